/* What a model is made of, counted from the names, shapes and types of its tensors: no weight is
 * read. Of a folder whose weights are not there the tensors follow from its configuration. Any
 * thread.
 *
 * Active is what one decoded token needs: of routed experts as many as the router takes, of an
 * embedding one row, everything else whole. A head that is the embeddings once more is active too,
 * and no parameter of its own. */
#ifndef APP_ANALYZE_COUNT_H
#define APP_ANALYZE_COUNT_H

#include "engine/model/model.h"

#include <stdint.h>

/* name, what reports call it */
#define ANALYSIS_PARTS(X)                 \
    X(EMBEDDING, "embedding")             \
    X(ATTENTION, "attention")             \
    X(RECURRENT, "recurrent mixers")      \
    X(ROUTER, "router")                   \
    X(EXPERTS, "experts")                 \
    X(SHARED_EXPERTS, "shared experts")   \
    X(MLP, "mlp")                         \
    X(NORMS, "norms")                     \
    X(HEAD, "head")

enum analysis_part {
#define X(name, ...) ANALYSIS_##name,
    ANALYSIS_PARTS(X)
#undef X
    ANALYSIS_PART_COUNT
};

/* Dtypes that matrices could be held in; norms and the router stay F32 in the quantised ones. */
#define ANALYSIS_DTYPES 4
extern const struct analysis_dtype {
    const char *name;
    double bytes; /* a parameter */
} analysis_dtypes[ANALYSIS_DTYPES];

struct analysis_count {
    uint64_t total, active;
    uint64_t parts[ANALYSIS_PART_COUNT], active_parts[ANALYSIS_PART_COUNT];
    uint64_t tied_head;  /* active values of a head that is the embeddings; 0: it has its own */
    uint64_t matrices;   /* active values of everything with two dimensions, embeddings left out */
    int experts, used;   /* of a routed layer; 0: there is none */
    int routed_layers;
    uint64_t one_expert; /* of one layer: parameters */
    uint64_t file_bytes;
    uint64_t type_bytes[DTYPE_COUNT]; /* of these, by the type of the tensor */
    bool from_config; /* no weights are there */
};

const char *analysis_part_name(enum analysis_part part);
/* Which part a tensor belongs to, by its name in either world (Hugging Face, GGUF). */
enum analysis_part analysis_part_of(const char *tensor);
/* m: of model_describe with the same path. ERR_MODEL, ERR_IO: its weights cannot be read, or are
 * not there and its configuration does not say what they would be. */
int analysis_count(struct analysis_count *out, const struct model *m, const char *path,
                   struct error *e);

/* FLOPs of a decoded token: all products with weights, and attention behind so many others (its
 * scores and sums, each layer's window honoured). */
double analysis_matrix_flops(const struct analysis_count *c);
double analysis_attention_flops(const struct hparams *hp, int seen);
/* KV cache in F16: bytes a token more takes, and of one session behind so many tokens, of which a
 * layer with a window keeps only those. */
uint64_t analysis_kv_token(const struct hparams *hp);
uint64_t analysis_kv_bytes(const struct hparams *hp, int tokens);
/* Bytes of weights that a decoded token reads, and that all of them take, in one of
 * analysis_dtypes. */
uint64_t analysis_token_bytes(const struct analysis_count *c, int dtype);
uint64_t analysis_memory(const struct analysis_count *c, int dtype);

#endif
