/* Model families: an architecture's names of sizes and tensors. A family is a table in a file under
 * families/ and one line in registry.def there. In this folder tensor names appear nowhere else;
 * metadata keys common to all families are in hparams_*.c, rope_scaling.c, describe.c and
 * settings.c. Constant data: any thread. */
#ifndef ENGINE_MODEL_FAMILY_H
#define ENGINE_MODEL_FAMILY_H

#include "engine/base/error.h"
#include "engine/file/weights.h"
#include "engine/model/hparams.h"

#define FAMILY_NAMES 4 /* alternative names of one thing */
#define FAMILY_MTP "layers that predict further tokens"

/* A size or constant of struct hparams. gguf, json: NULL where that format has none. */
struct family_key {
    size_t field; /* offsetof(struct hparams, …) */
    enum { KEY_INT, KEY_FLOAT } kind;
    const char *gguf[FAMILY_NAMES]; /* without the "ARCH." prefix */
    const char *json[FAMILY_NAMES]; /* dotted paths in config.json */
    /* value where the metadata has none; 0: inferred from tensor shapes, or an error */
    double missing;
    double min, max; /* valid range */
};

/* Of hyper-connections, in one place: behind its first role. */
enum hyper_part { HYPER_NORM, HYPER_DOWN, HYPER_UP, HYPER_MIX, HYPER_BASE, HYPER_SCALE };

enum tensor_role {
    TENSOR_EMBEDDINGS,  /* (vocab, hidden) */
    TENSOR_OUTPUT_NORM, /* (hidden) */
    TENSOR_HEAD,        /* (vocab, hidden); absent: the embeddings */
    TENSOR_ROPE_SHORT,
    TENSOR_ROPE_LONG,   /* (rope_dims / 2) */
    TENSOR_POSITIONS,   /* (positions, hidden) */
    TENSOR_PROJECT_IN,  /* (hidden, embedding width) */
    TENSOR_PROJECT_OUT, /* (embedding width, hidden) */
    TENSOR_ROPE_FREQS,  /* divisors for the pairs of whole heads, huge ones: not rotated */
    /* before the operators, or after the sum if there is none before */
    TENSOR_ATTENTION_NORM,
    TENSOR_EXPERT_NORM,
    TENSOR_ATTENTION_AFTER, /* of the operators' outputs */
    TENSOR_EXPERT_AFTER,
    TENSOR_ROUTED_NORM, /* FFN_DENSE_AND_ROUTED, see struct layer_weights */
    TENSOR_ROUTED_AFTER,
    TENSOR_SHARED_AFTER,
    TENSOR_ROUTER_NORM,
    TENSOR_LAYER_SCALE,  /* (1) */
    TENSOR_EXPERT_SCALE, /* (experts) */
    /* what tokens bring for single layers, see struct model and layer_weights */
    TENSOR_INPUT_TABLE,
    TENSOR_INPUT_PROJECT,
    TENSOR_INPUT_NORM,
    TENSOR_INPUT_GATE,
    TENSOR_INPUT_OUT,
    TENSOR_INPUT_AFTER,
    /* of streams besides the first, %e one of them (GGUF: all in one), and the learned residual;
     * see struct model and layer_weights */
    TENSOR_STREAM_IN,
    TENSOR_STREAM_OUT,
    TENSOR_STREAM_NORM,
    TENSOR_STREAM_ROUTER,
    TENSOR_STREAM_PREDICT,
    TENSOR_STREAM_CORRECT,
    TENSOR_STREAM_SCALE,
    TENSOR_LAUREL_IN,
    TENSOR_LAUREL_OUT,
    TENSOR_LAUREL_AFTER,
    /* of hyper-connections (struct hyper_weights): before a layer's mixer, before its feed-forward,
     * at the end; each in the order of enum hyper_part */
    TENSOR_HYPER_MIXER_NORM,
    TENSOR_HYPER_MIXER_DOWN,
    TENSOR_HYPER_MIXER_UP,
    TENSOR_HYPER_MIXER_MIX,
    TENSOR_HYPER_MIXER_BASE,
    TENSOR_HYPER_MIXER_SCALE,
    TENSOR_HYPER_FFN_NORM,
    TENSOR_HYPER_FFN_DOWN,
    TENSOR_HYPER_FFN_UP,
    TENSOR_HYPER_FFN_MIX,
    TENSOR_HYPER_FFN_BASE,
    TENSOR_HYPER_FFN_SCALE,
    TENSOR_HYPER_END_NORM,
    TENSOR_HYPER_END_DOWN,
    TENSOR_HYPER_END_UP,
    TENSOR_HYPER_END_MIX,
    TENSOR_HYPER_END_BASE,
    TENSOR_HYPER_END_SCALE,
    /* of n-grams, see struct ngram_weights; %e one of the table's tensors; numbers of hashes */
    TENSOR_NGRAM_TABLE,
    TENSOR_NGRAM_KEY,
    TENSOR_NGRAM_VALUE,
    TENSOR_NGRAM_KEY_NORM,
    TENSOR_NGRAM_QUERY_NORM,
    TENSOR_NGRAM_CONV_NORM,
    TENSOR_NGRAM_CONV,
    TENSOR_NGRAM_MULTIPLIERS,
    TENSOR_NGRAM_SIZES,
    TENSOR_NGRAM_OFFSETS,
    TENSOR_Q,
    TENSOR_K,
    TENSOR_V,
    TENSOR_O,
    TENSOR_QKV, /* the three stacked by rows in this order */
    TENSOR_KV,  /* k and v likewise */
    /* of attention whose heads are routed: (experts, hidden); in folders also (experts, heads of
     * one * head_dim, hidden), (experts, hidden, heads of one * head_dim) and the bias (hidden) of
     * the sum, whose GGUF names are those of Q and O */
    TENSOR_HEADS_ROUTER,
    TENSOR_HEADS_Q,
    TENSOR_HEADS_O,
    TENSOR_HEADS_BIAS,
    TENSOR_ROUTER, /* (experts, hidden) */
    TENSOR_GATE,
    TENSOR_UP,
    TENSOR_DOWN, /* of one expert: (ffn, hidden) twice, (hidden, ffn) */
    TENSOR_GATES,
    TENSOR_UPS,
    TENSOR_DOWNS,    /* all experts: one leading dimension more */
    TENSOR_GATE_UPS, /* (experts, 2 * ffn, hidden), gate first */
    TENSOR_SUM_BIAS, /* (hidden): of a layer's routed experts together, whose weights sum to 1 */
    TENSOR_Q_NORM,
    TENSOR_K_NORM, /* of a head (head_dim), or of all heads in one */
    /* of the shared expert: (width, hidden) twice, (hidden, width) */
    TENSOR_SHARED_GATE,
    TENSOR_SHARED_UP,
    TENSOR_SHARED_DOWN,
    TENSOR_SHARED_GATE_UP, /* gate and up in one, gate first */
    /* adjugate experts, %e of them in GGUF files all in one */
    TENSOR_ADJUGATE_GATE,
    TENSOR_ADJUGATE_UP,
    TENSOR_ADJUGATE_DOWN,
    TENSOR_SINKS,         /* (heads) */
    TENSOR_SHARED_ROUTER, /* (1, hidden) or (hidden) */
    /* MLA: (q_rank, hidden), (q_rank), (heads * key_dim, q_rank); (kv_rank + rope_dims, hidden),
     * (kv_rank) */
    TENSOR_Q_A,
    TENSOR_Q_A_NORM,
    TENSOR_Q_B,
    TENSOR_KV_A,
    TENSOR_KV_A_NORM,
    /* per head keys and values stacked, (heads * (nope + value_dim), kv_rank); or separate: (heads,
     * kv_rank, nope), (heads, value_dim, kv_rank) */
    TENSOR_KV_B,
    TENSOR_K_B,
    TENSOR_V_B,
    /* of an indexer, see struct layer_weights */
    TENSOR_INDEX_Q,
    TENSOR_INDEX_K,
    TENSOR_INDEX_WEIGHTS,
    TENSOR_INDEX_NORM,
    TENSOR_INDEX_QK,     /* queries and the key, stacked by rows in this order */
    TENSOR_INDEX_Q_NORM, /* of a head's queries */
    /* of MIXER_COMPRESSED, see struct layer_weights */
    TENSOR_INDEX_GATE,
    TENSOR_INDEX_BIAS,
    TENSOR_COMPRESS_KEYS,
    TENSOR_COMPRESS_GATES,
    TENSOR_COMPRESS_BIAS,
    TENSOR_COMPRESS_NORM,
    TENSOR_O_A,
    TENSOR_TOKEN_EXPERTS, /* (vocab, used), integers */
    TENSOR_ROUTER_BIAS,   /* (experts) or (1, experts): only for the choice */
    TENSOR_DENSE_GATE,    /* of a dense layer: the same */
    TENSOR_DENSE_UP,
    TENSOR_DENSE_DOWN,
    /* of a recurrent mixer, see struct layer_weights */
    TENSOR_MIX_IN,
    TENSOR_MIX_Z,
    TENSOR_MIX_B,
    TENSOR_MIX_A,
    TENSOR_MIX_Z_IN,
    TENSOR_MIX_A_IN,
    TENSOR_CONV, /* (channels, taps), further dimensions of 1 */
    TENSOR_CONV_Q,
    TENSOR_CONV_K,
    TENSOR_CONV_V,
    TENSOR_DECAY, /* A_log; in GGUF files the value derived from it */
    TENSOR_DT_BIAS,
    TENSOR_SKIP,
    TENSOR_MIX_NORM,
    TENSOR_DT_NORM,
    TENSOR_B_NORM,
    TENSOR_C_NORM,
    /* of convolved attention, besides CONV: see struct layer_weights */
    TENSOR_V_BEFORE,
    TENSOR_CONV_HEADS, /* (channels, key_dim, taps) */
    TENSOR_KEY_SCALE,
    /* of routers with a row, and of weighted streams: see struct layer_weights and model */
    TENSOR_ROUTER_IN,
    TENSOR_ROUTER_CARRY,
    TENSOR_ROUTER_ROW_NORM,
    TENSOR_ROUTER_FIRST,
    TENSOR_ROUTER_SECOND,
    TENSOR_MIXED_SCALE,
    TENSOR_MIXED_SHIFT,
    TENSOR_BEFORE_MIXED_SCALE,
    TENSOR_BEFORE_MIXED_SHIFT,
    TENSOR_EXPERTS_SCALE,
    TENSOR_EXPERTS_SHIFT,
    TENSOR_BEFORE_EXPERTS_SCALE,
    TENSOR_BEFORE_EXPERTS_SHIFT,
    TENSOR_EMBEDDINGS_SCALE,
    TENSOR_EMBEDDINGS_SHIFT,
    /* Of an MTP block, besides its layer: norms of the embedding and of the hidden state that it
     * joins, (hidden, 2 hidden), the norm before its head; its embeddings and head if it has its
     * own. %l: its number among the file's layers */
    TENSOR_MTP_EMBEDDING_NORM,
    TENSOR_MTP_HIDDEN_NORM,
    TENSOR_MTP_JOIN,
    TENSOR_MTP_NORM,
    TENSOR_MTP_EMBEDDINGS,
    TENSOR_MTP_HEAD,
    /* the join's halves, (hidden, hidden) each, if it is in two: the embedding's, the state's */
    TENSOR_MTP_JOIN_EMBEDDING,
    TENSOR_MTP_JOIN_STATE,
    /* the end of its hyper-connections, in the order of enum hyper_part */
    TENSOR_MTP_END_NORM,
    TENSOR_MTP_END_DOWN,
    TENSOR_MTP_END_UP,
    TENSOR_MTP_END_MIX,
    TENSOR_MTP_END_BASE,
    TENSOR_MTP_END_SCALE,
    TENSOR_ROLES
};

/* Flags of a table row. Only in folders: a matrix may be stored transposed (columns, rows), and
 * rows of gate and up may alternate in a fused one. Only in GGUF files: the first spelling is that
 * of attention, the second that of recurrent mixers. */
enum {
    TENSOR_BIAS = 1, /* `true`: there may be a bias with it */
    TENSOR_TRANSPOSED = 2,
    TENSOR_TURNS = 4,
    TENSOR_BY_MIXER = 8,
    TENSOR_EITHER = 16, /* transposed if the hidden size is not in its place */
};

/* %l is the layer, %e the expert. Where a folder's layer is several of ours (family.parts): %p is
 * its number, %s that of ours in it, and %f as %p in the first of ours, nothing in others. A name
 * that ends in ".weight" may have a ".bias", any other one a
 * "_bias". */
struct family_tensor {
    enum tensor_role role;
    int flags;
    const char *gguf[FAMILY_NAMES], *json[FAMILY_NAMES];
};

/* Names of one thing in config.json and in GGUF metadata (after "ARCH."). */
struct family_rename {
    const char *json, *gguf;
};

struct describer; /* describe.h */

struct family {
    const char *name;
    const char *gguf[FAMILY_NAMES]; /* general.architecture */
    /* architectures[0] or model_type; case does not matter */
    const char *json[FAMILY_NAMES];
    /* defaults not in the metadata; the keys fill in the rest */
    struct layer_shape shape;
    /* prefix instead of "model." in multimodal models, besides "language_model." before whole
     * names; NULL: none */
    const char *nested;
    enum rope_pairing gguf_rope;   /* in GGUF files, whose converter may have reordered the rows */
    const struct family_key *keys; /* ends with an entry without names */
    /* ends with role TENSOR_ROLES; NULL: described, but not computed yet */
    const struct family_tensor *tensors;
    /* If the metadata describes how layers differ: sets them in hp->layers, initialised as copies
     * of hp->common with their own feed-forwards: from the file's tensors, or, without tensors,
     * from the keys of most families (describe.h). NULL: no change */
    void (*layers)(struct hparams *hp, struct describer *d);
    /* GGUF names of the config.json names that `layers` reads; NULL-terminated, or NULL */
    const struct family_rename *renamed;
    bool one_operator;     /* a layer is a mixer or a feed-forward, with one norm */
    bool qk_norm_optional; /* a layer without those tensors has no norms of q and k */
    bool exported;         /* engine/convert can write GGUF files of it */
    /* in those: mixer_shape.tiled; gate and up of routed experts are one tensor (GATE_UPS);
     * rope.dimension_sections where config.json has none (4 numbers; NULL: no such key) */
    bool gguf_tiled, gguf_fused;
    bool last_norm_plain; /* NORM_RMS_ONE: not of the last norm's weight */
    /* in those: rope.dimension_count is twice what layers that see all rotate (llama.cpp halves
     * it), and there are as many factors */
    bool gguf_half_rope;
    bool gguf_qkv; /* in those: q, k and v are one tensor (QKV) */
    /* in those: the epsilon's name tells the kind of norm, and logit_scale multiplies */
    bool gguf_eps;
    bool gguf_minus_decay; /* in those: DECAY is -exp(A_log) also of MIXER_KIMI_DELTA */
    const int *gguf_sections;
    /* the family whose GGUF name is written if it has none of its own; NULL: its own */
    const struct family *exported_as;
    /* layers after the last one are MTP blocks: they may draft (family_mtp) */
    bool extra_layers;
    /* a layer of its folders is so many of ours; 0: one */
    int parts;
    /* prefix of such a layer's names in folders, if it is not "model.layers.%l."; NULL: it is.
     * Layers are numbered from 0 behind it. mtp_normed: its input and output hidden states are
     * after the last norm. mtp_spelt_last: of several names of a tensor there the last one is the
     * block's, for messages */
    const char *mtp;
    bool mtp_normed, mtp_spelt_last;
    /* it may lack a last norm: then its model's is used; it sees all keys, and is rotated */
    bool mtp_last_norm, mtp_sees_all;
    /* the layer whose mixer the MTP block's is like; NULL: the last one with attention. Its lists
     * have the block after the layers */
    int (*mtp_like)(const struct hparams *hp, struct describer *d);
    /* changes that layer's shape to the block's own; hp: the model's. NULL: no change */
    void (*mtp_layer)(const struct hparams *hp, struct layer_shape *s, struct describer *d);
    /* In family_mtp's copy: number of its first layer in the file, by names without that prefix */
    bool is_mtp;
    int first_layer;
    const char *normalised; /* config.json: whether the chosen experts' weights sum to 1 */
    const char *rope_kind[FAMILY_NAMES], *rope_short[FAMILY_NAMES], *rope_long[FAMILY_NAMES];
    /* YaRN's range is not rounded to whole pairs in GGUF files, which do not state it */
    bool yarn_exact;
    /* defaults of config.json: rope_theta (0: 10000), and the rotated part of a head
     * (partial_rotary_factor; 0: all of it, whatever config.json says) */
    float theta_unsaid, part_unsaid;
    const char *tied; /* config.json */
    bool tied_unsaid; /* default: embeddings are the head */
    /* keys, complete, of either format that mark a variant which is not computed; NULL-terminated,
     * or NULL */
    const char *const *unsupported;
    /* tensor names that carry nothing the engine needs ('*': anything); NULL-terminated, or NULL */
    const char *const *ignored;
    /* end-of-generation tokens besides those in the files; NULL-terminated */
    const char *const *stops;
};

/* The family of an open file by its metadata (families/registry.c); ERR_MODEL names the
 * architecture and the known ones. */
int family_of(const struct family **out, const struct weight_file *f, struct error *e);
/* The tensor of a role, by any of its names; NULL: none. */
const struct tensor_view *family_tensor(const struct family *family, const struct weight_file *f,
                                        enum tensor_role role, int layer, int expert, bool bias);
/* The family with the names of the first MTP block, after n_layers layers, as its layer 0. false:
 * the file has none, or of a kind that is not computed. */
bool family_mtp(const struct family *family, const struct weight_file *f, int n_layers,
                struct family *out);
/* Whether the tensors of a role have a flag in this file. */
bool family_tensor_is(const struct family *family, const struct weight_file *f,
                      enum tensor_role role, int flag);
/* Whether a role's tensor t, or NULL, is stored as (columns, rows). Packed ones never are. */
bool family_tensor_turned(const struct family *family, const struct weight_file *f,
                          enum tensor_role role, const struct tensor_view *t);
/* Name of a missing tensor for messages: the first name in this file's format. */
void family_tensor_name(const struct family *family, const struct weight_file *f,
                        enum tensor_role role, int layer, int expert, char *out, size_t size);
/* The GGUF name in a written file, for a layer whose mixer is `recurrent` or not, whatever the
 * format of the current file; empty: none. */
void family_gguf_name(const struct family *family, enum tensor_role role, int layer, bool recurrent,
                      bool bias, char *out, size_t size);
/* A value of config.json, at its top or in the text_config of a multimodal model. META_NONE:
 * none. */
struct meta_value family_config(const struct weight_file *f, const char *name);
/* Prefix of keys in a GGUF file of this family: its general.architecture. */
const char *family_architecture(const struct family *family, const struct weight_file *f);
/* The first name of a key found in the metadata; name gets it. gguf, json: FAMILY_NAMES each, or
 * NULL. META_NONE: none. */
struct meta_value family_meta(const struct family *family, const struct weight_file *f,
                              const char *const *gguf, const char *const *json, char *name,
                              size_t size);
/* "ARCH.NAME" of the field at this offset of struct hparams in GGUF metadata; false: the format has
 * none for it. */
bool family_gguf_key(const struct family *family, size_t field, char *out, size_t size,
                     bool *is_float);
/* Purpose of a tensor that the family knows but does not use, in words ("a vision tower"); NULL:
 * not such a tensor. */
const char *family_ignores(const struct family *family, const char *tensor);

#endif
