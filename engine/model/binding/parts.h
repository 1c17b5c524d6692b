/* Inside this folder only: the jobs that all parts of a model are bound with, and those parts.
 * Results as of bind.h: 0, or an error that names the tensor; `b` collects. Thread: the one that
 * loads. */
#ifndef ENGINE_MODEL_BINDING_PARTS_H
#define ENGINE_MODEL_BINDING_PARTS_H

#include "engine/model/bind.h"

#define BIND_ALIGN 64 /* of every part of the arena */
/* alignment of packed matrices: devices that share the host's memory then use them in place */
#define BIND_PAGE 4096

/* ---- jobs.c ---- */

/* The tensor of a role, which counts as used; NULL: there is none (ERR_MODEL). */
const struct tensor_view *bind_want(struct binding *b, enum tensor_role role, int layer, int expert,
                                    struct error *e);
/* d0 × d1 × d2; 0: the tensor has that many dimensions less. */
int bind_check_shape(struct binding *b, const struct tensor_view *t, int64_t d0, int64_t d1,
                     int64_t d2, struct error *e);
/* Reserves bytes in the one allocation of all weights; padding counts as needed. */
size_t bind_reserve(struct binding *b, size_t *end, size_t bytes, size_t align);
/* The rows of a job become *job.matrix, or the part selected by its `split`. Without memory for a
 * copy float types stay mapped, unless a conversion or their layout in the file forbids it. Blocks
 * cannot be transposed: their values become F16. */
int bind_add_job(struct binding *b, enum tensor_role role, int layer, struct matrix_job job,
                 int rows, int cols, struct error *e);
/* rows of t from row first on become *m. */
int bind_add_matrix(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                    const struct tensor_view *t, int64_t first, int rows, int cols,
                    struct error *e);
/* The same for a transposed tensor of `wide` rows, of which every step-th is used. */
int bind_add_transposed(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                        const struct tensor_view *t, int64_t first, int step, int wide, int rows,
                        int cols, struct error *e);
/* count elements of t from `from` on, `step` apart. */
int bind_add_steps(struct binding *b, const float **vector, const struct tensor_view *t,
                   int64_t from, int64_t step, int64_t count, struct error *e);
int bind_add_vector(struct binding *b, const float **vector, const struct tensor_view *t,
                    int64_t from, int64_t count, struct error *e);
/* What the file does not have: n times the same value. */
int bind_add_filled(struct binding *b, const float **vector, float value, int64_t n,
                    struct error *e);
/* The bias of a tensor, if there is one; rows first .. first+rows-1 of `all`. */
int bind_add_bias(struct binding *b, const float **bias, enum tensor_role role, int layer,
                  int first, int rows, int all, struct error *e);
/* Of one tensor all n values. */
int bind_vector(struct binding *b, const float **vector, enum tensor_role role, int layer, int n,
                struct error *e);
/* A matrix as F32, row-major. */
int bind_matrix_values(struct binding *b, const float **values, enum tensor_role role, int layer,
                       int rows, int cols, struct error *e);
int bind_norm(struct binding *b, struct norm_weights *n, enum tensor_role role, int layer,
              struct error *e);

/* ---- attention.c: a layer's mixer, of three kinds ---- */

int bind_attention(struct binding *b, struct layer_weights *w, int layer, struct error *e);
int bind_latent(struct binding *b, struct layer_weights *w, int layer, struct error *e);
int bind_compressed(struct binding *b, struct layer_weights *w, int layer, struct error *e);

/* ---- ffn.c ---- */

int bind_router(struct binding *b, struct layer_weights *w, int layer, struct error *e);
int bind_experts(struct binding *b, struct layer_weights *w, int layer, struct error *e);
/* What the parts of a weighted stream are shifted by and multiplied with. */
int bind_residual(struct binding *b, struct residual_weights *w, enum tensor_role first, int layer,
                  struct error *e);

/* ---- ends.c ---- */

/* Layers that read others' keys may have some, which are not used (Gemma 3n's files). */
void bind_skip_keys(struct binding *b);
/* Tables, projections and the head, before the first layer and behind the last. */
int bind_ends(struct binding *b, struct error *e);
/* Binds the MTP block. */
int bind_mtp(struct binding *b, struct error *e);

#endif
