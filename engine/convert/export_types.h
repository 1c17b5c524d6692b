/* Options and report of model_export: plain data of export.h, shared by its parts. */
#ifndef ENGINE_CONVERT_EXPORT_TYPES_H
#define ENGINE_CONVERT_EXPORT_TYPES_H

#include "engine/adapter/adapter.h"
#include "engine/file/dtype.h"
#include "engine/model/mix.h"

#include <stdbool.h>
#include <stdint.h>

#define EXPORT_KINDS 40

struct export_type {
    const char *word, *summary;
    enum dtype base; /* of most matrices */
    enum mix_size size;
    int file_type; /* general.file_type, ggml's number */
};

/* All matrices of one name and one pair of types. */
struct export_kind {
    char name[32]; /* "attn_q", "ffn_down_exps" */
    enum dtype from, to;
    uint64_t elements, bytes; /* bytes: written */
    double relative;          /* root of the squared error over that of the squares */
    double largest;           /* absolute */
};

struct export_report {
    int n_kinds;
    struct export_kind kinds[EXPORT_KINDS];
    uint64_t bytes_in, bytes_out;
    uint64_t weights; /* elements of all tensors */
    uint64_t memory;  /* bytes of the weights in memory when the file is opened here */
    /* with an importance matrix: tensors rounded with it, and those missing in it */
    int known, unknown;
    bool tokenizer; /* one was written */
    bool mtp;       /* the MTP block was written */
    /* parts of a folder not in the file, in words; empty: none */
    char left_out[400];
};

/* Tensors whose name matches a pattern (PCRE2) get this type, instead of the mix's. */
struct export_override {
    const char *pattern;
    enum dtype type;
};

struct export_options {
    const struct export_type *type;
    const struct export_override *overrides; /* the first match counts */
    int n_overrides;
    /* of the head (tied embeddings, too) and of the embeddings, before any pattern; NULL: the
     * mix's */
    const enum dtype *head, *embeddings;
    /* merged into the weights, with the strengths of the requests; type must be a float type */
    const struct adapter_request *adapters;
    int n_adapters;
    const char *importance; /* an importance matrix's file; NULL: none */
    bool without_mtp;       /* a folder's MTP block is left out */
    int n_threads;
    /* About 10 times a second; non-zero cancels. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

#endif
