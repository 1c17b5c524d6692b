/* What a model consists of, counted from the names, shapes and types of its tensors: no weights are
 * read. For a folder without weights the tensors are derived from its configuration. Any thread.
 *
 * Active means needed for one decoded token: of routed experts as many as the router selects, of an
 * embedding one row, everything else completely. A head tied to the embeddings is active too, but
 * has no parameters of its own. */
#ifndef APP_ANALYZE_COUNT_H
#define APP_ANALYZE_COUNT_H

#include "engine/model/model.h"

#include <stdint.h>

/* name, what reports call it */
#define ANALYSIS_PARTS(X)               \
    X(EMBEDDING, "embedding")           \
    X(LAYER_TABLE, "per-layer table")   \
    X(LAYER_INPUTS, "per-layer inputs") \
    X(STREAMS, "hyper-connections")     \
    X(ATTENTION, "attention")           \
    X(RECURRENT, "recurrent mixers")    \
    X(ROUTER, "router")                 \
    X(EXPERTS, "experts")               \
    X(SHARED_EXPERTS, "shared experts") \
    X(MLP, "mlp")                       \
    X(NORMS, "norms")                   \
    X(HEAD, "head")

enum analysis_part {
#define X(name, ...) ANALYSIS_##name,
    ANALYSIS_PARTS(X)
#undef X
        ANALYSIS_PART_COUNT
};

/* Types for which the size is computed; norms and the router stay F32 in the quantised ones. */
#define ANALYSIS_DTYPES 4
extern const struct analysis_dtype {
    const char *name;
    double bytes; /* per parameter */
} analysis_dtypes[ANALYSIS_DTYPES];

struct analysis_count {
    uint64_t total, active;
    uint64_t parts[ANALYSIS_PART_COUNT], active_parts[ANALYSIS_PART_COUNT];
    uint64_t tied_head; /* active values of a head tied to the embeddings; 0: it has its own */
    uint64_t matrices;  /* active values of all matrices, without embeddings */
    int experts, used;  /* of a routed layer; 0: none */
    int routed_layers;
    uint64_t one_expert; /* of one layer: parameters */
    uint64_t file_bytes;
    uint64_t type_bytes[DTYPE_COUNT]; /* of these, by the type of the tensor */
    bool from_config;                 /* there are no weights */
};

/* Of a model that cannot be described by its family: an unknown architecture, or a variant of a
 * known one that is refused. */
struct analysis_by_tensors {
    struct analysis_count count;
    char name[128], architecture[64]; /* the path's last part; empty: not said */
    int layers;                       /* 0: not said */
    int strange;                      /* tensors of no known kind: not counted elsewhere */
    uint64_t strange_values;
    char strange_name[128]; /* of the first */
};

const char *analysis_part_name(enum analysis_part part);
/* The part that a tensor belongs to, by its name in Hugging Face's or GGUF's naming. */
enum analysis_part analysis_part_of(const char *tensor);
/* m: of model_describe with the same path. ERR_MODEL, ERR_IO: its weights cannot be read, or are
 * missing and cannot be derived from its configuration. */
int analysis_count(struct analysis_count *out, const struct model *m, const char *path,
                   struct error *e);

/* Counts the tensors of the model at path by their names alone; experts by the keys that most
 * families have. ERR_MODEL, ERR_IO: it has no weights that can be read, or they are not those of a
 * language model. */
int analysis_count_tensors(struct analysis_by_tensors *out, const char *path,
                           const struct overrides *overrides, struct error *e);

/* FLOPs of a decoded token: all products with weights, and attention with so many tokens in the
 * context (scores and sums, limited by each layer's window). */
double analysis_matrix_flops(const struct analysis_count *c);
double analysis_attention_flops(const struct hparams *hp, int seen);
/* KV cache in F16: bytes for one more token, and of a session with so many tokens, of which a layer
 * with a sliding window keeps only the newest. */
uint64_t analysis_kv_token(const struct hparams *hp);
uint64_t analysis_kv_bytes(const struct hparams *hp, int tokens);
/* Bytes of weights read per decoded token, and of all weights, in one of analysis_dtypes. */
uint64_t analysis_token_bytes(const struct analysis_count *c, int dtype);
uint64_t analysis_memory(const struct analysis_count *c, int dtype);

#endif
