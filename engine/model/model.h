/* A loaded model: hyperparameters, tokenizer source and packed weights. Owner: the engine.
 * Immutable after model_load: any thread reads. Loading: open file -> family by architecture ->
 * hparams (metadata, then tensor shapes) -> strict binding -> convert/repack by all threads ->
 * forget the mapped pages that were copied. Routed experts may stay on the disk (expert_cache.h):
 * their matrices' data alone changes, by the engine's thread. Errors: ERR_MODEL, ERR_VALUE, ERR_IO,
 * ERR_MEMORY, ERR_CANCELLED. */
#ifndef ENGINE_MODEL_MODEL_H
#define ENGINE_MODEL_MODEL_H

#include "engine/base/error.h"
#include "engine/file/weights.h"
#include "engine/model/hparams.h"
#include "engine/layout/matrix.h"

#include <stdbool.h>

struct norm_weights {
    const float *weight, *bias; /* hidden values; bias may be NULL */
};

struct expert_weights {
    /* (width, hidden), (width, hidden), (hidden, width); without gate where the activation has none
     */
    struct matrix gate, up, down;
};

/* Of a recurrent mixer, beside its matrices. */
struct recurrent_weights {
    /* tap by tap, the oldest first: (taps, channels); where q, k and v have tensors of their own
     * each of them (taps, channels / 3) */
    const float *conv[3];
    const float *conv_bias; /* (channels), or NULL */
    const float *a;         /* (heads): -exp(A_log); Kimi: exp(A_log) */
    const float *dt_bias;   /* (heads); Kimi: (heads * key_dim) */
    const float *skip;      /* (heads): D of Mamba 2 */
    const float *norm;      /* (value_dim); Mamba 2: (heads * value_dim) */
};

struct layer_weights {
    /* expert_norm: of the shared expert alone where routed ones have another (shape_normed_rows);
     * a norm without weight is left out */
    struct norm_weights attention_norm, expert_norm;
    struct norm_weights attention_after, expert_after; /* of norms.after */
    /* FFN_DENSE_AND_ROUTED: before and after the routed experts, after the dense part, and what the
     * router sees, the weight times 1/sqrt(hidden) */
    struct norm_weights routed_norm, routed_after, shared_after, router_norm;
    /* (heads*head_dim, hidden), (kv_heads*head_dim, hidden) twice; of a gated mixer q has twice as
     * many rows: of each head its query, then its gate */
    struct matrix q, k, v;
    struct matrix o; /* (hidden, heads*head_dim) */
    /* Recurrent mixers: projections in this order behind q, k and v, where there are those. in:
     * short convolution (3 hidden: B, C, x); delta net q, k and v, with z behind where z is not
     * apart, then a key head at a time; Mamba 2 all (z, x, B, C, dt). z: gates. b: betas, with what
     * decays follow from behind where a is not apart, a key head at a time. */
    struct matrix in, z, b, a;
    struct recurrent_weights recurrent;
    /* MLA has these in place of k and v: (q_rank, hidden), where there is one, and then q is
     * (heads*key_dim, q_rank); (kv_rank + rope_dims, hidden); and head by head
     * (heads*kv_rank, key_dim - rope_dims), what a query is made a latent row with, and
     * (heads*value_dim, kv_rank), what makes values of one. Where it is gated z is (heads, hidden)
     */
    struct matrix q_a, kv_a, k_b, v_b;
    /* (head_dim) or (heads*head_dim) and (kv_heads*head_dim), see enum qk_norm; MLA: (q_rank) and
     * (kv_rank); NULL: none */
    const float *q_norm, *k_norm;
    /* (routed experts, hidden), F32 row-major; NULL in a layer without any */
    const float *router, *shared_router; /* (hidden): of SHARED_SIGMOID */
    const float *router_bias;            /* (routed experts): of router_shape.choice_bias */
    const float *expert_scale;           /* (routed experts): of router_shape.expert_scales */
    const float *scale;                  /* one number: of layer_shape.scaled; NULL: none */
    const float *score_bias;             /* (routed experts): added to the scores; NULL: none */
    const float *sinks;                  /* (heads): of mixer_shape.sinks */
    struct expert_weights *experts;      /* shape_experts: the shared one is the last */
};

/* A block that predicts further tokens (DeepSeek-V3's technical report, arXiv:2412.19437, 2.2;
 * Qwen's and GLM's differ in what is normed alone): of a token's embedding and the hidden state
 * that the model had one position before, joined, its layer makes a hidden state that the head
 * makes the token after the next one of. */
struct mtp_weights {
    struct norm_weights embedding_norm, hidden_norm;
    struct matrix join; /* (hidden, 2 hidden): embedding, then hidden state */
    /* of the model it is part of, where it meets hidden states behind the last norm; else without
     * weight. That model outlives it */
    struct norm_weights state_norm;
};

struct model {
    struct hparams hp;
    const char *family; /* "phimoe" */
    /* general.name or the folder's name; control characters removed */
    char name[128];
    /* how its checkpoint's matrices are packed, "gptq"; empty: they are not */
    char packing_method[96];
    /* tensors of the file that nothing is computed with, in words, for the user; empty: none */
    char unused[240];
    enum dtype type;          /* that of most of the weights: what the status line shows */
    uint64_t hash;            /* weight_file_hash, mixed with a conversion (--dtype) */
    uint64_t adapters;        /* adapters_hash of what hangs on its matrices; 0: nothing */
    struct weight_file *file; /* stays open: embeddings and float weights are read from it */
    /* (n_vocab, hidden), any type; rows are dequantised on the host. positions: (positions,
     * hidden), added to them, data NULL where none are learned. Where hparams.embedding_width is
     * not 0 it is theirs and the head's: (hidden, width) and (width, hidden), F32 row-major, lie
     * between. */
    struct tensor_view embeddings, positions;
    const float *project_in, *project_out;
    struct layer_weights *layers;
    struct norm_weights output_norm; /* without weight: there is none */
    struct matrix head;              /* (n_vocab, hidden or embedding_width), with bias */
    /* of model_options.mtp_of: it is such a block, of one layer; else join has no rows */
    struct mtp_weights mtp;
    bool has_mtp; /* the file has such a block (it may miss something yet) */
    /* weights in memory of ours / in the mapped file / what the expert cache takes */
    size_t packed_bytes, mapped_bytes, cache_bytes;
    int64_t n_params, n_params_active;
    struct arena *arena; /* private: memory behind the matrices */
    /* private: what packs them behind the scenes; NULL: everything is packed */
    struct load *packing;
    /* where routed experts are that stay on the disk; NULL: all weights are in memory. The
     * engine's thread alone */
    struct expert_cache *cache;
};

struct model_options {
    /* Not the model, but the block of its file that predicts further tokens, with its embeddings
     * and, where the block has none of its own, its head; it outlives the block. NULL: the model */
    const struct model *mtp_of;
    bool mtp_used; /* that block is opened too: it does not count as unused */
    /* enum dtype to convert float weights to while loading, -1: keep */
    int convert;
    /* integers of packed checkpoints become F32, whose activations are not rounded */
    bool exact;
    /* routed experts stay on the disk, but for so many bytes of them; 0: they are all loaded */
    uint64_t expert_cache;
    bool in_file_order; /* no matrix has an order of its own: F32 where it would need one */
    /* metadata in place of the file's, copied; NULL: none */
    const struct overrides *overrides;
    /* row interleave of quantised matrices: 8 or 16 (cpu_pack_width()) */
    int width;
    int n_threads;
    /* that may be used without swapping, bytes; 0: not known. Float weights are copied when it
     * holds the file twice */
    uint64_t memory;
    /* matrices that keep their type are packed after model_load has returned: see matrix.raw */
    bool background;
    /* background: up to so many bytes are searched for what is no number before it returns */
    uint64_t looked_at_once;
    /* decoding meanwhile is about as fast with unpacked weights of this type; NULL: of none */
    bool (*reads_raw)(enum dtype type);
    /* Called from the loading thread about 10 times a second: bytes done of total. Non-zero
     * cancels. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    /* asked by every loading thread before a piece: true cancels. May be NULL */
    bool (*stop)(void *ctx);
    void *progress_ctx;
};

/* What a load would take, without loading (for --fit). All in bytes. */
struct model_footprint {
    uint64_t attention, experts, router_norms, embeddings, head; /* as they will lie in memory */
    uint64_t packed, mapped;                                     /* the same, by where they lie */
    /* of mapped, the tables of which a token reads a row (embeddings, positions), and how much of
     * them it touches at most: whole pages */
    uint64_t tables, table_row;
    /* of routed experts that stay on the disk, in none of these; and what holds some of them */
    uint64_t on_disk, cache;
    uint64_t cache_least; /* with less a pass of one token cannot have its experts side by side */
};

int model_load(struct model **out, const char *path, const struct model_options *o,
               struct error *e);
/* What the model is, computed or not: hp, family, name and packing_method, by its metadata and,
 * where the family's layers are what its tensors say, their shapes. Everything else is empty. */
int model_describe(struct model **out, const char *path, const struct overrides *overrides,
                   struct error *e);
/* ERR_MODEL names the first layer of a kind that no kernel computes, and the kind. */
int model_computable(const struct hparams *hp, struct error *e);
/* Metadata, shapes and binding only: hp, family, name, type and needs are filled, no weight byte is
 * read. Norms and biases that exist are not NULL, but must not be read. */
int model_inspect(struct model **out, const char *path, const struct model_options *o,
                  struct model_footprint *needs, struct error *e);
/* For tools that rewrite weights: every matrix row-major (width 0) in the mapped file, of the
 * file's own type; not for computing. mtp_of: as in struct model_options; a block that predicts
 * further tokens never counts as unused. */
int model_open_raw(struct model **out, const char *path, const struct model *mtp_of,
                   struct error *e);
void model_free(struct model *m);
/* Packing behind the scenes. hold: not before so many milliseconds have gone by (somebody waits for
 * a token); 0: go on. packed: bytes done of total, true when that is all. settle: returns when all
 * is packed. Any thread; a model that was loaded without `background` is packed. */
void model_hold(const struct model *m, int milliseconds);
bool model_packed(const struct model *m, uint64_t *done, uint64_t *total);
void model_settle(const struct model *m);
/* What was found out about the file since it was loaded. ERR_IO: it shrank. ERR_VALUE: a tensor,
 * named, holds a NaN or an infinity. Weights that are packed are looked at as they are packed,
 * those that stay mapped by a thread beside; mapped ones that do not fit the memory are not looked
 * at, nor are the embeddings. */
int model_check(const struct model *m, struct error *e);
/* A token's embedding at a position as F32 (hidden values): scaled, projected, the learned position
 * added. id and pos must be in range. ERR_VALUE when it holds a NaN or an infinity. */
int model_embed(const struct model *m, int id, int pos, float *out, struct error *e);
/* w (rows, cols) times x, rule 9 of numerics.h: between embeddings or head and the stream. */
void model_project(const float *w, int rows, int cols, const float *x, float *y);
/* A hidden state behind a norm of the model's kind (without weight: none), (hidden) values, for who
 * drafts: not to the bits of numerics.h. x and out may be the same. */
void model_norm(const struct model *m, const struct norm_weights *norm, const float *x, float *out);
/* How many positions the model has learned; 0: it has learned none, and takes any. */
int model_positions(const struct model *m);

#endif
