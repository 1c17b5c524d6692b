/* Inside engine/model only: from an open file to a list of what must be copied, packed or left
 * mapped, without reading a weight. Thread: the one that loads. The list is made first and carried
 * out later, so that --fit and loading count with the same code. */
#ifndef ENGINE_MODEL_BIND_H
#define ENGINE_MODEL_BIND_H

#include "engine/model/family.h"
#include "engine/model/model.h"

/* A matrix that lies head by head within another one's rows: of every `stride` rows of the tensor
 * `rows` from `first` on. across: a head's part is turned, columns become rows. */
struct job_split {
    int stride, first, rows;
    bool across;
};

/* Rows of a tensor that become one matrix. Bytes are those of rows of the tensor's type, one behind
 * the other; where it is packed, no such rows lie anywhere, and they count them all the same. */
struct matrix_job {
    struct matrix *matrix;
    const struct tensor_view *tensor;
    size_t from; /* byte offset of the first row in the tensor */
    /* bytes to the next row, and to the next column, where rows do not lie one behind the other
     * (gather.h); 0: they do; each is in one piece */
    size_t row_step, col_step;
    size_t to; /* byte offset in the arena; of no meaning when mapped */
    bool mapped;
    bool paged;             /* it stays on the disk: `to` is of no meaning */
    struct job_split split; /* stride 0: all rows from there on */
};

static inline bool gathered(const struct matrix_job *j)
{
    return j->row_step != 0 || j->tensor->packed;
}

/* What becomes of a vector's values. */
enum vector_form {
    VECTOR_PLAIN,
    VECTOR_ONE_MORE,  /* 1 + w */
    VECTOR_EXP,       /* in double, rounded once */
    VECTOR_MINUS_EXP, /* the same, negative */
    VECTOR_OVER_ROOT, /* w / sqrt(n), in double, rounded once */
    VECTOR_TURNED     /* (n, turned) as (turned, n) */
};

/* Elements of a tensor that become F32. */
struct vector_job {
    const float **vector;
    const struct tensor_view *tensor;
    int64_t from, count; /* elements */
    int64_t step;        /* to the next one */
    size_t to;
    enum vector_form form;
    int turned;
};

struct binding {
    struct model *model;
    const struct family *family;
    struct family mtp; /* what that is of model_options.mtp_of */
    const struct model_options *options;
    struct matrix_job *matrices;
    size_t n_matrices, room_matrices;
    struct vector_job *vectors;
    size_t n_vectors, room_vectors;
    uint8_t *used; /* a byte per tensor of the file */
    /* bytes the jobs need, every part aligned to 64: the vectors', and then all; the matrices' */
    size_t arena, arena_matrices;
    bool paging;       /* what jobs now make stays on the disk */
    uint64_t *counted; /* the part of total that jobs now count for */
    struct model_footprint total;
    uint64_t by_type[DTYPE_COUNT];
};

/* Of one tensor, whatever its dimensions, all n values; form other than VECTOR_PLAIN changes them.
 */
int bind_values(struct binding *b, const float **vector, enum tensor_role role, int layer,
                int64_t n, enum vector_form form, int turned, struct error *e);
/* A matrix and the bias beside it, where there is one. */
int bind_plain(struct binding *b, struct matrix *m, enum tensor_role role, int layer, int rows,
               int cols, struct error *e);
int bind_bias(struct binding *b, const float **bias, enum tensor_role role, int layer, int n,
              struct error *e);
/* bind_recurrent.c */
int bind_recurrent(struct binding *b, struct layer_weights *w, int layer, struct error *e);
/* m->hp, m->file and m->layers (n_layers, experts too) are there. Errors name the tensor. */
int bind_model(struct binding *b, struct error *e);
void bind_release(struct binding *b);

#endif
