/* What model_export is asked for and what it says: plain data of export.h, which its parts share.
 */
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
    uint64_t memory;  /* bytes that the weights will take when the file is opened here */
    /* with an importance matrix: tensors rounded by it, and those that it does not know */
    int known, unknown;
    bool tokenizer; /* one was written */
    bool mtp;       /* the block that predicts further tokens was */
    /* what of a folder is not in the file, in words; empty: nothing */
    char left_out[400];
};

/* Tensors whose name a pattern (PCRE2) is found in get this type, in place of the mix's. */
struct export_override {
    const char *pattern;
    enum dtype type;
};

struct export_options {
    const struct export_type *type;
    const struct export_override *overrides; /* the first that fits counts */
    int n_overrides;
    /* of the head (the embeddings, where they are it too) and of the embeddings, before any
     * pattern; NULL: the mix's */
    const enum dtype *head, *embeddings;
    /* added to the weights, with the strengths of the requests; type must be one of floats */
    const struct adapter_request *adapters;
    int n_adapters;
    const char *importance; /* an importance matrix's file; NULL: none */
    int n_threads;
    /* About 10 times a second; non-zero cancels. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

#endif
