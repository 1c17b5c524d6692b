/* What the files of this folder share: the jobs of the device contract as sequences of kernels.
 * Engine thread; nothing here allocates or waits, unless noted. What others call is in
 * gpu/internal.h. */
#ifndef GPU_JOBS_H
#define GPU_JOBS_H

#include "gpu/internal.h"

static inline size_t jobs_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static inline const struct layer_shape *jobs_shape(const struct device *d, int layer)
{
    return hparams_layer(&d->base.config.model->hp, layer);
}

/* The spans of a job; spans NULL: session 0's, from pos on. */
struct spans {
    const struct span *at;
    int n, rows;
    struct span one;
};

struct spans jobs_spans(const struct span *spans, int n, int rows, int pos);

/* What the layers of a job leave between them. */
struct between {
    struct expert_sum sum; /* experts' outputs that x still lacks */
    bool normed;           /* h and hq are x, normed as the next layer begins */
};

/* attention.c */
/* flags of the kernels that norm */
int jobs_norm_flags(const struct norms_shape *s, const struct norm_rows *n);
int jobs_norm_rows(struct device *d, const struct norms_shape *s, struct norm_rows n,
                   struct error *e);
/* y = y + x * scale */
int jobs_add_rows(struct device *d, cl_mem y, cl_mem x, float scale, int rows, struct error *e);
/* What comes with the output projection of one token (kernel_set_token_outputs): the norm before
 * the experts, and which they are. */
struct output_end {
    struct norm_rows norm;
    int base;   /* of the layer's choices */
    bool tiles; /* as in jobs_route */
};
/* The attention block from x to y (add: y is the residual stream itself; of layers with nothing
 * normed behind it). end: in the same launch; NULL: nothing. */
int jobs_attention_block(struct device *d, struct block *b, int layer, const struct spans *s,
                         const struct between *from, cl_mem y, bool add,
                         const struct output_end *end, struct error *e);
/* The first chunk of 256 keys that a token of the layer sees, and how many it does. */
int jobs_chunks(const struct mixer_shape *m, int token, int *first);
/* Where a session's rows of a layer are; rows pos .. end - 1 will be written. */
int jobs_kv_place(struct device *d, const struct block *b, int layer, int session, int pos, int end,
                  struct kv_place *out, struct error *e);
/* A block that is there; NULL: e says which is not. */
struct block *jobs_resident(struct device *d, enum block_kind kind, int layer, int expert,
                            struct error *e);

/* experts.c: experts of a job's groups, from h (and hq) on the device to out; compact: its row n
 * has entry n. */
int jobs_run_groups(struct device *d, const struct experts_job *j, bool compact, struct error *e);

/* routing.c: the choices of a dense layer's rows, as jobs_route leaves a routed one's. */
int jobs_choose_dense(struct device *d, int layer, int rows, int base, struct error *e);

#endif
