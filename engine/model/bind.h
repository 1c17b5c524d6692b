/* Inside engine/model only: turns an open file into a list of jobs (what to copy, pack or leave
 * mapped) without reading a weight. Thread: the one that loads. The list is made first and executed
 * later, so that --fit and loading count with the same code. */
#ifndef ENGINE_MODEL_BIND_H
#define ENGINE_MODEL_BIND_H

#include "engine/model/family.h"
#include "engine/model/model.h"

/* A per-head matrix inside another one's rows: of every `stride` rows of the tensor, `rows` from
 * `first` on. across: a head's part is transposed. */
struct job_split {
    int stride, first, rows;
    bool across;
};

/* Heads of a few experts that become neighbours: head h of expert x, the tensor's (x*heads + h)-th
 * stretch of dim rows, is the matrix's (h*experts + x)-th; columns: stretches of dim columns of a
 * row, which is the same row of each expert's part of the tensor. */
struct job_heads {
    int experts, heads, dim;
    bool columns;
};

/* Rows of a tensor that become one matrix. Byte counts assume consecutive rows of the tensor's
 * type, also for packed tensors, which have no such rows. */
struct matrix_job {
    struct matrix *matrix;
    const struct tensor_view *tensor;
    size_t from; /* byte offset of the first row in the tensor */
    /* bytes to the next row, and to the next column, where rows are not consecutive (gather.h); 0:
     * they are; each is contiguous */
    size_t row_step, col_step;
    size_t to; /* byte offset in the arena; unused if mapped */
    bool mapped;
    bool paged;             /* it stays on disk: `to` is unused */
    struct job_split split; /* stride 0: all rows from there on */
    struct job_heads heads; /* experts 0: none of that */
    /* whose rows follow the tensor's, as further columns: both (rows, cols); NULL: none */
    const struct tensor_view *beside;
};

static inline bool gathered(const struct matrix_job *j)
{
    return j->row_step != 0 || j->tensor->packed || j->heads.experts || j->beside;
}

/* The type of a job's rows as read from the file; of two tensors that differ or are packed: F32. */
static inline enum dtype job_type(const struct matrix_job *j)
{
    const struct tensor_view *t = j->tensor, *more = j->beside;

    return more && (t->packed || more->packed || t->type != more->type) ? DTYPE_F32 : t->type;
}

/* How a vector's values are transformed. */
enum vector_form {
    VECTOR_PLAIN,
    VECTOR_ONE_MORE,  /* 1 + w */
    VECTOR_EXP,       /* in double, rounded once */
    VECTOR_MINUS_EXP, /* the same, negative */
    VECTOR_OVER_ROOT, /* w / sqrt(n), in double, rounded once */
    VECTOR_SIZE       /* |w| */
};

/* Elements of a tensor that become F32. */
struct vector_job {
    const float **vector;
    const struct tensor_view *tensor; /* NULL: every value is `fill` */
    float fill;
    int64_t from, count; /* elements */
    int64_t step;        /* to the next one */
    size_t to;
    enum vector_form form;
    int turned; /* not 0: (n, turned) becomes (turned, n) */
    int below;  /* not 0: whole numbers from 0 on below this, integers in the file or not */
};

struct binding {
    struct model *model;
    const struct family *family;
    struct family mtp; /* the MTP block's family, for model_options.mtp_of */
    const struct model_options *options;
    struct matrix_job *matrices;
    size_t n_matrices, room_matrices;
    struct vector_job *vectors;
    size_t n_vectors, room_vectors;
    uint8_t *used; /* a byte per tensor of the file */
    /* bytes the jobs need, every part aligned to 64: the vectors', and then all; the matrices' */
    size_t arena, arena_matrices;
    bool paging;       /* new jobs stay on disk */
    uint64_t *counted; /* the part of total that new jobs are added to */
    struct model_footprint total;
    uint64_t by_type[DTYPE_COUNT];
};

/* Of one tensor all n values, in one dimension besides those of 1; any form but VECTOR_PLAIN
 * transforms them, and `turned` (at most BIND_TURNED) turns them: the last dimension then, if there
 * are several. */
#define BIND_TURNED 256
int bind_values(struct binding *b, const float **vector, enum tensor_role role, int layer,
                int64_t n, enum vector_form form, int turned, struct error *e);
/* The same of groups of `row` values, in rows or in one. */
int bind_groups(struct binding *b, const float **vector, enum tensor_role role, int layer,
                int groups, int row, struct error *e);
/* A matrix and its bias, if there is one. */
int bind_plain(struct binding *b, struct matrix *m, enum tensor_role role, int layer, int rows,
               int cols, struct error *e);
int bind_bias(struct binding *b, const float **bias, enum tensor_role role, int layer, int n,
              struct error *e);
/* The vector bound last has weights of a norm. Norm weights may be stored as offsets from 1;
 * llama.cpp's converter has added the 1. */
void bind_one_more(struct binding *b);
/* binding/hyper.c: a layer's hyper-connections; the end of them, the model's or its MTP block's. */
int bind_hyper(struct binding *b, struct layer_weights *w, int layer, struct error *e);
int bind_hyper_end(struct binding *b, struct error *e);
/* binding/ngrams.c: what a layer's n-grams have, if it has any. */
int bind_ngrams(struct binding *b, struct layer_weights *w, int layer, struct error *e);
/* Counts a tensor of a table, of which a token reads `rows` rows in the mapped file; ERR_MODEL: of
 * a type that cannot be read so. */
int bind_rows(struct binding *b, const struct tensor_view *t, enum tensor_role role, int cols,
              int rows, struct error *e);
/* binding/recurrent.c */
int bind_recurrent(struct binding *b, struct layer_weights *w, int layer, struct error *e);
/* MIXER_CONVOLVED. */
int bind_convolved(struct binding *b, struct layer_weights *w, int layer, struct error *e);
/* Requires m->hp, m->file and m->layers (n_layers, experts too). Errors name the tensor. */
int bind_model(struct binding *b, struct error *e);
void bind_release(struct binding *b);

#endif
