/* Writing a model as GGUF, rounded to another type: what --quantize does. The calling thread and a
 * pool of its own. The router, norms, biases and rope factors stay F32; the head is at least Q6_K.
 * Rows that a type's block does not divide fall back (Q4_K to Q5_0, Q6_K to Q8_0, then F16).
 * A GGUF source of any family keeps its metadata, names and shapes; a Hugging Face folder is
 * translated, its tokenizer included, where its family's table knows how. */
#ifndef ENGINE_CONVERT_EXPORT_H
#define ENGINE_CONVERT_EXPORT_H

#include "engine/base/error.h"
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
/* Entry i; NULL beyond the last. */
const struct export_type *export_type_at(int i);
/* llama-quantize's short words too (q4_k is q4_k_m); case does not matter; NULL: none */
const struct export_type *export_type_find(const char *word);

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
    const char *importance; /* an importance matrix's file; NULL: none */
    int n_threads;
    /* About 10 times a second; non-zero cancels. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
};

/* out is replaced as a whole or not at all. ERR_MODEL, ERR_IO, ERR_MEMORY, ERR_CANCELLED;
 * ERR_USAGE: a pattern; ERR_INPUT: the importance matrix. */
int model_export(const char *in, const char *out, const struct export_options *o,
                 struct export_report *report, struct error *e);

#endif
