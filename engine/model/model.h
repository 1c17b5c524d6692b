/* A loaded model: hyperparameters, tokenizer source and packed weights. Owner: the engine.
 * Immutable after model_load: any thread reads. Loading: open file -> family by architecture ->
 * hparams (metadata, then tensor shapes) -> strict binding -> convert/repack by all threads ->
 * release the mapped pages that were copied. Routed experts may stay on disk (expert_cache.h): only
 * their matrices' data changes, by the engine's thread. Errors: ERR_MODEL, ERR_VALUE, ERR_IO,
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
    /* (width, hidden), (width, hidden), (hidden, width); no gate if the activation has none */
    struct matrix gate, up, down;
};

/* Weights of a recurrent mixer besides its matrices. */
struct recurrent_weights {
    /* tap by tap, the oldest first: (taps, channels); if q, k and v have separate tensors, each of
     * them (taps, channels / 3) */
    const float *conv[3];
    const float *conv_bias; /* (channels), or NULL */
    /* (heads): -exp(A_log); Kimi: exp(A_log); Mamba 1: (state, value_dim) of the former */
    const float *a;
    const float *dt_bias; /* (heads); Kimi: (heads * key_dim); Mamba 1: (value_dim) */
    const float *skip;    /* (heads): D of Mamba 2; Mamba 1: (value_dim) */
    const float *norm;    /* (value_dim); Mamba 2: (heads * value_dim) */
    /* Mamba 1: of the row that time steps come from (a_rank), of B and of C (state) */
    const float *dt_norm, *b_norm, *c_norm;
};

/* Of router_shape.row, n: the matrix (n, hidden) and bias of the row, what the row of the layer
 * before is multiplied with (NULL: there is none), its norm, and two matrices (n, n) with biases;
 * all F32 row-major. layer_weights.router is (choices, n) then. */
struct router_weights {
    const float *in, *in_bias, *carry, *norm, *first, *first_bias, *second, *second_bias;
};

/* Of a weighted stream, (hidden) each: what is added to an operator's output and then multiplied
 * with it, and the same of the stream that it enters. */
struct residual_weights {
    const float *shift, *scale, *stream_shift, *stream_scale;
};

/* Of hyper-connections, where the streams S (streams * hidden values) are read. Gated: weights of a
 * norm of each stream (S); (rank, S) and (S, rank); mix: (streams, S), how much of the output each
 * stream gains. Mixed: mix ((2 + streams) * streams, S): how much of each stream is read, how much
 * of the output each gains, how much of stream i goes to stream j (i * streams + j); base: as many
 * numbers, added; scale: what these three are multiplied with before. At the end only what is read:
 * no mix of gated ones; (streams, S), base (streams), one scale. */
struct hyper_weights {
    const float *norm, *base, *scale;
    struct matrix down, up, mix;
};

/* Of mixer_shape.ngrams, S and n as above. The table's rows, in tensors one behind the other, all
 * but the last of part_rows rows; hash h of a token is a row from offsets[h] on, of sizes[h]. key
 * (S, width), value (hidden, width); weights of norms of each stream (S), of keys, of the streams
 * as queries, and of the convolution's inputs; the convolution (taps, S). */
struct ngram_weights {
    const struct tensor_view **parts; /* n_parts, owned by the model */
    int n_parts;
    int64_t part_rows;
    int64_t multipliers[NGRAM_SIZE_MOST], sizes[NGRAM_HASHES_MOST], offsets[NGRAM_HASHES_MOST];
    struct matrix key, value;
    const float *key_norm, *query_norm, *conv_norm, *conv;
};

struct layer_weights {
    /* expert_norm: of the shared expert only if routed ones have another (shape_normed_rows);
     * absent for a norm without weight */
    struct norm_weights attention_norm, expert_norm;
    struct norm_weights attention_after, expert_after; /* of norms.after */
    /* FFN_DENSE_AND_ROUTED: before and after the routed experts, after the dense part, and before
     * the router, the weight times 1/sqrt(hidden) */
    struct norm_weights routed_norm, routed_after, shared_after, router_norm;
    /* (heads*head_dim, hidden), (kv_heads*head_dim, hidden) twice; q of a mixer whose
     * gates are within it has twice as many rows: per head its query, then its gate */
    struct matrix q, k, v;
    struct matrix o; /* (hidden, heads*head_dim) */
    /* Recurrent mixers: projections in this order after q, k and v, where present. in: short
     * convolution (3 hidden: B, C, x); delta net q, k and v, followed by z unless z is separate,
     * then a key head at a time; Mamba 2 all (z, x, B, C, dt); Mamba 1 x and z. z: gates. b: betas,
     * followed by the decay inputs unless a is separate, a key head at a time. */
    struct matrix in, z, b, a;
    /* (rank, hidden), where z or a takes the result of it instead of the stream
     * (mixer_shape.z_rank, a_rank). Mamba 1: a_in (shape_selection, value_dim) takes the
     * convolution's outputs: the row for a, (value_dim, a_rank), then B and C */
    struct matrix z_in, a_in;
    struct recurrent_weights recurrent;
    /* MLA has these instead of k and v: (q_rank, hidden), if present, and then q is (heads*key_dim,
     * q_rank); (kv_rank + rope_dims, hidden); and per head (heads*kv_rank, key_dim - rope_dims),
     * which maps a query to a latent row, and (heads*value_dim, kv_rank), which maps a latent row
     * to values. If gated, z is (heads, hidden); of attention with gates apart (shape_gates,
     * hidden) */
    struct matrix q_a, kv_a, k_b, v_b;
    /* of an indexer (mixer_shape.index_heads): (index_heads*index_dim, q_rank), (index_dim,
     * hidden), (index_heads, hidden), and weights and biases (index_dim) of the keys' layer norm;
     * of blocks (index_ratio): the first of them over hidden, no weights of heads and no biases,
     * and weights (index_dim) of the queries' norm */
    struct matrix index_q, index_k, index_weights;
    const float *index_norm, *index_norm_bias, *index_q_norm;
    /* MIXER_COMPRESSED has these besides q_a, q, kv_a (key_dim, hidden) and sinks: of compressed
     * rows, (shape_compressed, hidden) twice, the gates' bias (block, shape_compressed) and the
     * rows' norm (key_dim); of its indexer's likewise, index_k (shape_index_compressed, hidden) and
     * index_gate, index_bias (block, shape_index_compressed); and per group of heads its part of
     * o_a (out_groups*out_rank, heads*key_dim/out_groups), whose results o takes */
    struct matrix compress_keys, compress_gates, index_gate, o_a;
    const float *compress_bias, *compress_norm, *index_bias;
    /* (head_dim) or (heads*head_dim) and (kv_heads*head_dim), see enum qk_norm; MLA: (q_rank) and
     * (kv_rank); NULL: none */
    const float *q_norm, *k_norm;
    /* (routed experts, hidden), F32 row-major; NULL in a layer without any */
    const float *router, *shared_router; /* (hidden): of SHARED_SIGMOID */
    const float *router_bias;            /* (routed experts): of router_shape.choice_bias */
    const float *expert_scale;           /* (routed experts): of router_shape.expert_scales */
    const float *scale;                  /* one number: of layer_shape.scaled; NULL: none */
    /* (n_vocab, used): numbers of experts, of router_shape.by_token */
    const float *token_experts;
    const float *score_bias;  /* (routed experts): added to the scores; NULL: none */
    const float *sinks;       /* (heads): of mixer_shape.sinks */
    const float *head_router; /* (mixer_shape.experts, hidden): of GATE_ROUTED */
    /* of layer_shape.inputs: (inputs, hidden), (hidden, inputs), and the norm after both */
    struct matrix input_gate, input_out;
    struct norm_weights input_after;
    /* of hparams.streams, n of them: the norm and the matrix (n, hidden) of what mixes them, how
     * they are mixed before the layer (n, n, n) and after it (n, n), and weights (hidden) of the
     * first one for the layer's own inputs, or NULL */
    struct norm_weights stream_norm;
    const float *stream_router, *stream_predict, *stream_correct, *stream_scale;
    struct hyper_weights hyper[2]; /* of hparams_hyper: before the mixer, before the feed-forward */
    struct ngram_weights ngrams;
    /* of hparams.laurel: (laurel, hidden), (hidden, laurel), and the norm after both */
    struct matrix laurel_in, laurel_out;
    struct norm_weights laurel_after;
    /* MIXER_CONVOLVED: v makes the first half of the values, v_before the other half for the next
     * token; the first convolution is recurrent.conv[0]. The second one tap by tap, (head_taps,
     * channels, key_dim), with bias (channels): an output channel of a head from all of its own;
     * and a factor of each key head (kv_heads) */
    struct matrix v_before;
    const float *head_conv, *head_conv_bias, *key_scale;
    struct router_weights router_row;
    struct residual_weights mixed, combined; /* of layer_shape.weighted */
    struct expert_weights *experts;          /* shape_experts: the shared one is the last */
};

/* An MTP block, which predicts further tokens (DeepSeek-V3's technical report, arXiv:2412.19437,
 * 2.2; Qwen's and GLM's differ only in what is normed): it joins a token's embedding and the
 * model's hidden state at the position before; from that its layer makes a hidden state, and the
 * head the token after the next one. Of hyper-connected streams (DeepSeek V4's) the state is all of
 * them: the embedding is joined with each, and its layer starts from the results. */
struct mtp_weights {
    struct norm_weights embedding_norm, hidden_norm;
    struct matrix join; /* (hidden, 2 hidden): embedding, then hidden state */
    /* the last norm of its model, if it takes hidden states after that; else without weight. That
     * model outlives it */
    struct norm_weights state_norm;
};

struct model {
    struct hparams hp;
    const char *family; /* "phimoe" */
    /* general.name or the folder's name; control characters removed */
    char name[128];
    /* packing of the checkpoint's matrices, "gptq"; empty: not packed */
    char packing_method[96];
    /* unused tensors of the file, in words, for the user; empty: none */
    char unused[240];
    enum dtype type;          /* type of most of the weights, for the status line */
    uint64_t hash;            /* weight_file_hash, mixed with a conversion (--dtype) */
    uint64_t adapters;        /* adapters_hash of the attached adapters; 0: none */
    struct weight_file *file; /* stays open: embeddings and float weights are read from it */
    /* (n_vocab, hidden), any type; rows are dequantised on the host. positions: (positions,
     * hidden), added to them, data NULL if none are learned. If hparams.embedding_width is not 0 it
     * is the width of both and the head; (hidden, width) and (width, hidden), F32 row-major, are in
     * between. */
    struct tensor_view embeddings, positions;
    const float *project_in, *project_out;
    const float *embedding_shift, *embedding_scale; /* (hidden): of embedding_weighted; or NULL */
    /* Of layers with inputs of their own, all layers' in one row: the table (rows, layers * inputs)
     * by token, data NULL if there is none, the matrix (layers * inputs, hidden) for the embedding,
     * and the norm (inputs) of each layer's part of its product */
    struct tensor_view input_table;
    struct matrix input_project;
    const float *input_norm;
    /* (hidden, hidden) each: streams besides the first one from the embedding, and what they give
     * to the end */
    struct matrix stream_in[HPARAMS_STREAMS_MOST - 1], stream_out[HPARAMS_STREAMS_MOST - 1];
    struct hyper_weights hyper_end; /* of hparams_hyper: what the head sees */
    struct layer_weights *layers;
    struct norm_weights output_norm; /* without weight: there is none */
    struct matrix head;              /* (n_vocab, hidden or embedding_width), with bias */
    /* for model_options.mtp_of: this is such a block, of one layer; else join has no rows */
    struct mtp_weights mtp;
    bool has_mtp; /* the file has such a block (possibly incomplete) */
    /* bytes: weights in allocated memory / in the mapped file / of the expert cache */
    size_t packed_bytes, mapped_bytes, cache_bytes;
    int64_t n_params, n_params_active;
    struct arena *arena; /* private: memory of the matrices */
    /* private: background packing; NULL: everything is packed */
    struct load *packing;
    /* cache of routed experts that stay on disk; NULL: all weights are in memory. The engine's
     * thread only */
    struct expert_cache *cache;
};

struct model_options {
    /* Load the MTP block of that model's file instead of a model, with that model's embeddings and,
     * unless the block has its own, its head; it outlives the block. NULL: a model */
    const struct model *mtp_of;
    bool mtp_used; /* the MTP block is opened too: it does not count as unused */
    /* enum dtype to convert float weights to while loading, -1: keep */
    int convert;
    /* integers of packed checkpoints become F32, and activations are not rounded */
    bool exact;
    /* routed experts stay on disk, with a cache of so many bytes; 0: all are loaded */
    uint64_t expert_cache;
    bool in_file_order; /* no matrix has a column order: F32 if it would need one */
    /* metadata overrides, copied; NULL: none */
    const struct overrides *overrides;
    /* row interleave of quantised matrices: 8 or 16 (cpu_pack_width()) */
    int width;
    int n_threads;
    /* memory usable without swapping, bytes; 0: not known. Float weights are copied if it holds the
     * file twice */
    uint64_t memory;
    /* matrices that keep their type are packed after model_load returns: see matrix.raw */
    bool background;
    /* background: up to so many bytes are checked for non-finite values before it returns */
    uint64_t looked_at_once;
    /* decoding with unpacked weights of this type is about as fast; NULL: for none */
    bool (*reads_raw)(enum dtype type);
    /* Called from the loading thread about 10 times a second: bytes done of total. Non-zero
     * cancels. May be NULL. */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    /* polled by every loading thread before a piece: true cancels. May be NULL */
    bool (*stop)(void *ctx);
    void *progress_ctx;
};

/* Memory that a load would take, without loading (for --fit). All in bytes. */
struct model_footprint {
    uint64_t attention, experts, router_norms, embeddings, head; /* as stored in memory */
    uint64_t packed, mapped;                                     /* the same, by location */
    /* part of mapped: the tables of which a token reads a row (embeddings, positions), and the
     * bytes of whole pages it touches at most */
    uint64_t tables, table_row;
    uint64_t ngrams, ngram_rows; /* likewise: the tables of n-grams, of which it reads several */
    /* routed experts that stay on disk, in none of these; and their cache */
    uint64_t on_disk, cache;
    uint64_t cache_least; /* minimum for a pass of one token to hold all its experts */
};

int model_load(struct model **out, const char *path, const struct model_options *o,
               struct error *e);
/* Describes a model, computable or not: hp, family, name and packing_method, by its metadata and,
 * if the family's layers follow from its tensors, their shapes. Everything else is empty. */
int model_describe(struct model **out, const char *path, const struct overrides *overrides,
                   struct error *e);
/* ERR_MODEL names the first layer of an unsupported kind, and the kind. */
int model_computable(const struct hparams *hp, struct error *e);
/* Metadata, shapes and binding only: hp, family, name, type and needs are filled, no weight byte is
 * read. Norms and biases that exist are not NULL, but must not be read. */
int model_inspect(struct model **out, const char *path, const struct model_options *o,
                  struct model_footprint *needs, struct error *e);
/* For tools that rewrite weights: every matrix row-major (width 0) in the mapped file, of the
 * file's own type; not for computing. mtp_of: as in struct model_options; an MTP block never counts
 * as unused. */
int model_open_raw(struct model **out, const char *path, const struct model *mtp_of,
                   struct error *e);
void model_free(struct model *m);
/* Background packing. hold: pause it for so many milliseconds (while a token is computed); 0:
 * continue. packed: bytes done of total, true when complete. settle: returns when all is packed.
 * Any thread; a model loaded without `background` is packed. */
void model_hold(const struct model *m, int milliseconds);
bool model_packed(const struct model *m, uint64_t *done, uint64_t *total);
void model_settle(const struct model *m);
/* Problems of the file found since it was loaded. ERR_IO: it shrank. ERR_VALUE: a tensor, named,
 * contains NaN or infinity. Packed weights are checked while packing, mapped ones by a background
 * thread; mapped ones that do not fit in memory are not checked, nor are the embeddings. */
int model_check(const struct model *m, struct error *e);
/* A token's embedding at a position as F32 (hidden values): scaled, projected, the learned position
 * added. id and pos must be in range. ERR_VALUE if it contains NaN or infinity. */
int model_embed(const struct model *m, int id, int pos, float *out, struct error *e);
/* A token's row of input_table as F32, scaled (hparams_inputs values); a token beyond the
 * table's last row has the first one. ERR_VALUE as above. */
int model_inputs(const struct model *m, int id, float *out, struct error *e);
/* ngrams.c. The rows of a token's n-grams (ngram_hashes) in the table; ids: the token's and those
 * of the ones before it, s->size in all, the newest first, -1: there is none. The tensor with a
 * row, and its place there. */
void model_ngram_rows(const struct ngram_weights *w, const struct ngram_shape *s, const int *ids,
                      int64_t *rows);
const struct tensor_view *model_ngram_at(const struct ngram_weights *w, int64_t row,
                                         int64_t *within);
/* Those rows of a layer as F32, s->width values. false: one has NaN or infinity, *tensor is where.
 */
bool model_ngrams(const struct model *m, int layer, const int *ids, float *out,
                  const char **tensor);
/* w (rows, cols) times x, rule 9 of numerics.h: between embeddings or head and the stream. */
void model_project(const float *w, int rows, int cols, const float *x, float *y);
/* A hidden state after a norm of the model's kind (without weight: none), (hidden) values, for
 * drafters: not to the bits of numerics.h. x and out may be the same. */
void model_norm(const struct model *m, const struct norm_weights *norm, const float *x, float *out);
/* Number of learned positions; 0: none, any position is valid. */
int model_positions(const struct model *m);

#endif
