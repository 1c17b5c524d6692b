/* The blocks a model is divided into for placement (a layer's mixer, each of its experts, the head)
 * and the only iterator over a block's weights: all code that counts, copies, checks or moves
 * weights uses it, so that a new matrix is added in one place. Plain functions of an immutable
 * model: any thread, nothing is allocated. */
#ifndef ENGINE_MODEL_BLOCK_H
#define ENGINE_MODEL_BLOCK_H

#include "engine/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BLOCK_ATTENTION: the mixer, of whatever kind, with all norms and the router of its layer. Every
 * layer has one; in a layer without a mixer it has no matrices, and stays on the CPU. BLOCK_EXPERT:
 * a routed expert; after those the shared one, the adjugate ones, or a dense layer's feed-forward.
 */
enum block_kind { BLOCK_ATTENTION, BLOCK_EXPERT, BLOCK_HEAD };

struct block_id {
    enum block_kind kind;
    int layer, expert; /* expert: BLOCK_EXPERT only */
};

enum matrix_part {
    MATRIX_Q,
    MATRIX_K,
    MATRIX_V,
    MATRIX_O,
    MATRIX_IN, /* of recurrent mixers, as in struct layer_weights */
    MATRIX_Z,
    MATRIX_B,
    MATRIX_A,
    MATRIX_Z_IN,
    MATRIX_A_IN,
    MATRIX_Q_A, /* of MLA */
    MATRIX_KV_A,
    MATRIX_K_B,
    MATRIX_V_B,
    MATRIX_INDEX_Q, /* of its indexer */
    MATRIX_INDEX_K,
    MATRIX_INDEX_WEIGHTS,
    MATRIX_INDEX_GATE, /* of MIXER_COMPRESSED */
    MATRIX_COMPRESS_KEYS,
    MATRIX_COMPRESS_GATES,
    MATRIX_O_A,
    MATRIX_INPUT_GATE,
    MATRIX_INPUT_OUT,
    MATRIX_LAUREL_IN,
    MATRIX_LAUREL_OUT,
    MATRIX_V_BEFORE,
    MATRIX_NGRAM_KEY,
    MATRIX_NGRAM_VALUE,
    MATRIX_INPUT_PROJECT, /* of all layers, in the first one's block */
    MATRIX_STREAM_IN,     /* several, likewise */
    MATRIX_STREAM_OUT,
    MATRIX_HYPER_MIXER_DOWN, /* of hyper-connections */
    MATRIX_HYPER_MIXER_UP,
    MATRIX_HYPER_MIXER_MIX,
    MATRIX_HYPER_FFN_DOWN,
    MATRIX_HYPER_FFN_UP,
    MATRIX_HYPER_FFN_MIX,
    MATRIX_HYPER_END_DOWN, /* the model's, in the first layer's block */
    MATRIX_HYPER_END_UP,
    MATRIX_HYPER_END_MIX,
    MATRIX_JOIN, /* of an MTP block: before its layer's mixer */
    MATRIX_GATE,
    MATRIX_UP,
    MATRIX_DOWN,
    MATRIX_HEAD,
    MATRIX_PARTS
};

#define BLOCK_MATRICES (39 + 2 * (HPARAMS_STREAMS_MOST - 1)) /* most matrices of a block */

/* One matrix of a block. Adapters (LoRA) are attached to it by (block, part): matrix.lora. */
struct block_matrix {
    const struct matrix *w;
    enum matrix_part part;
};

/* The matrices of a block in the order of enum matrix_part, without absent ones; returns how many.
 * 0: the model has no such block (its layer has fewer experts), or the layer has no mixer. */
int model_block_matrices(const struct model *m, struct block_id id,
                         struct block_matrix out[BLOCK_MATRICES]);
/* F32 values of a recurrent mixer besides its matrices; 0: not recurrent. */
size_t model_recurrent_values(const struct model *m, int layer);
/* Number of values of q_norm (queries) or k_norm of a layer, including a latent row's; 0: none. */
size_t model_qk_norm_values(const struct model *m, int layer, bool queries);
/* Values of hyper-connections besides their matrices. */
uint64_t model_hyper_values(const struct model *m, const struct hyper_weights *w);
const char *matrix_part_name(enum matrix_part part); /* "q", "gate", "head" */

/* Bytes of a block's weights in memory, padding included. A layer's norms and its router, with the
 * gate of its shared expert, belong to its attention block, because a device that runs the whole
 * layer needs them; the final norm belongs to the head. matrices: those of matrix products. */
struct block_bytes {
    uint64_t matrices, biases, norms, router;
};
struct block_bytes model_block_parts(const struct model *m, struct block_id id);
/* Total bytes of the block. 0: there is no such block. */
uint64_t model_block_bytes(const struct model *m, struct block_id id);
/* Bytes of the experts' matrices that one token uses in a layer, at the mean size of the routed
 * ones; shared ones are always used, and of adjugate ones as many as of the routed. */
uint64_t model_token_experts(const struct model *m, int layer);
/* Bytes of a layer's mixer's matrices that one token uses: of heads that are routed, the queries'
 * rows and the outputs' columns of those that it uses. */
uint64_t model_token_mixer(const struct model *m, int layer);
/* Bytes of the largest gate, up and down of any expert: sizes of a buffer for any expert. */
void model_largest_expert(const struct model *m, uint64_t bytes[3]);

/* for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);): layer by layer the mixer,
 * then all experts of this layer; the head last. */
#define BLOCK_BEFORE ((struct block_id){BLOCK_ATTENTION, -1, 0})
bool model_block_next(const struct model *m, struct block_id *id);

#endif
