/* Jobs, one kind after the other: what is to be copied, packed or left mapped of a tensor. See
 * bind.h. */
#include "engine/model/binding/parts.h"

#include "engine/base/mem.h"
#include "engine/file/packed.h"
#include "engine/layout/pack.h"
#include "engine/model/mix.h"

#include <string.h>

const struct tensor_view *bind_want(struct binding *b, enum tensor_role role, int layer, int expert,
                                    struct error *e)
{
    const struct tensor_view *t = family_tensor(b->family, b->model->file, role, layer, expert,
                                                false);
    char name[128];

    if (t)
        return t;
    family_tensor_name(b->family, b->model->file, role, layer, expert, name, sizeof name);
    error_set(e, ERR_MODEL, "%s: tensor %s is missing", weight_file_path(b->model->file), name);
    return NULL;
}

/* d0 × d1 × d2; 0: the tensor has that many dimensions less. */
int bind_check_shape(struct binding *b, const struct tensor_view *t, int64_t d0, int64_t d1,
                     int64_t d2, struct error *e)
{
    int64_t wanted[3] = {d0, d1, d2};
    int n = d1 ? d2 ? 3 : 2 : 1, same = t->n_dims == n;
    char has[100] = "", should[100] = "";

    for (int i = 0; same && i < n; i++)
        same = t->dims[i] == wanted[i];
    if (same) {
        b->used[t->index] = 1;
        return 0;
    }
    for (int i = 0; i < t->n_dims; i++)
        snprintf(has + strlen(has), sizeof has - strlen(has), "%s%lld", i ? ", " : "",
                 (long long)t->dims[i]);
    for (int i = 0; i < n; i++)
        snprintf(should + strlen(should), sizeof should - strlen(should), "%s%lld", i ? ", " : "",
                 (long long)wanted[i]);
    return error_set(e, ERR_MODEL, "%s: tensor %s has the shape (%s); the model needs (%s)",
                     weight_file_path(b->model->file), t->name, has, should);
}

/* Reserves bytes in the one allocation of all weights; padding counts as needed. */
size_t bind_reserve(struct binding *b, size_t *end, size_t bytes, size_t align)
{
    size_t from = *end, at = (from + align - 1) / align * align;

    *end = at + (bytes + BIND_ALIGN - 1) / BIND_ALIGN * BIND_ALIGN;
    *b->counted += *end - from;
    b->total.packed += *end - from;
    return at;
}

/* Float rows could be read in the mapping, but its pages of 4 KiB read a fifth slower than large
 * ones: they are copied if memory is sufficient. The file's own pages can be dropped then. */
static bool has_room(const struct binding *b)
{
    if (b->options->expert_cache)
        return true; /* the large ones stay on disk */
    return weight_file_bytes(b->model->file) <= b->options->memory / 2;
}

/* The type of a job's matrix before conversions. Packed integers are exact only as F32, since
 * activations are then not rounded. */
static enum dtype exact_type(const struct binding *b, const struct matrix_job *j)
{
    const struct tensor_view *t = j->tensor;

    if (j->beside)
        return job_type(j);
    if (t->packed && (t->type == DTYPE_F8 ? j->split.across : b->options->exact))
        return DTYPE_F32;
    if (t->packed && t->packed->order && (j->split.stride || b->options->in_file_order))
        return DTYPE_F32;
    return j->split.across && dtype_is_quantised(t->type) ? DTYPE_F16 : t->type;
}

/* The rows of a job become *job.matrix, or the part selected by its `split`. Without memory for a
 * copy float types stay mapped, unless a conversion or their layout in the file forbids it. Blocks
 * cannot be transposed: their values become F16. */
int bind_add_job(struct binding *b, enum tensor_role role, int layer, struct matrix_job job,
                 int rows, int cols, struct error *e)
{
    const struct model_options *o = b->options;
    const struct tensor_view *t = job.tensor;
    struct matrix *m = job.matrix;
    enum dtype type = exact_type(b, &job);
    size_t unit = (size_t)dtype_info(t->type)->bytes;
    struct matrix_job *j;

    if (!row_readable(type) || type == DTYPE_I32 || type == DTYPE_I64)
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s, which no kernel multiplies",
                         weight_file_path(b->model->file), t->name, dtype_info(type)->word);
    if (o->convert >= 0 && !dtype_is_quantised(t->type) &&
        cols % dtype_info((enum dtype)o->convert)->block == 0)
        type = mix_type((struct mix){.base = (enum dtype)o->convert}, &b->model->hp, role, layer,
                        cols);
    if (!MEM_ROOM(b->matrices, b->n_matrices, b->room_matrices, 512))
        return error_set(e, ERR_MEMORY, "out of memory for the list of matrices");
    *m = (struct matrix){
        .type = type, .rows = rows, .cols = cols, .width = pack_width(type, o->width)};
    m->order = t->packed && type == t->type ? t->packed->order : NULL;
    m->bytes = pack_bytes(type, rows, cols, m->width);
    if (!m->bytes)
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s, which no kernel multiplies",
                         weight_file_path(b->model->file), t->name, dtype_info(type)->word);
    j = &b->matrices[b->n_matrices++];
    *j = job;
    j->paged = m->paged = b->paging;
    j->mapped = !j->paged && !has_room(b) && type == t->type && !dtype_is_quantised(type) &&
                !gathered(j) && !job.split.stride && ((uintptr_t)t->data + job.from) % unit == 0;
    if (j->paged) {
        b->total.on_disk += m->bytes;
    } else if (!j->mapped) {
        j->to = bind_reserve(b, &b->arena_matrices, m->bytes, BIND_PAGE);
    } else {
        *b->counted += m->bytes;
        b->total.mapped += m->bytes;
    }
    b->by_type[type] += m->bytes;
    b->model->n_params += (int64_t)rows * cols;
    return 0;
}

/* rows of t from row first on become *m. */
int bind_add_matrix(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                    const struct tensor_view *t, int64_t first, int rows, int cols, struct error *e)
{
    return bind_add_job(b, role, layer,
                        (struct matrix_job){.matrix = m,
                                            .tensor = t,
                                            .from = (size_t)first * dtype_row_bytes(t->type, cols)},
                        rows, cols, e);
}

/* The same for a transposed tensor of `wide` rows, of which every step-th is used. */
int bind_add_transposed(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                        const struct tensor_view *t, int64_t first, int step, int wide, int rows,
                        int cols, struct error *e)
{
    size_t unit = (size_t)dtype_info(t->type)->bytes;

    if (dtype_is_quantised(t->type))
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s; it is needed as floats",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word);
    return bind_add_job(b, role, layer,
                        (struct matrix_job){.matrix = m,
                                            .tensor = t,
                                            .from = (size_t)first * unit,
                                            .row_step = (size_t)step * unit,
                                            .col_step = (size_t)wide * unit},
                        rows, cols, e);
}

/* count elements of t from `from` on, `step` apart. */
int bind_add_steps(struct binding *b, const float **vector, const struct tensor_view *t,
                   int64_t from, int64_t step, int64_t count, struct error *e)
{
    if (t->packed && (step != 1 || from % t->dims[t->n_dims - 1] || count % t->dims[t->n_dims - 1]))
        return error_set(e, ERR_MODEL, "%s: tensor %s is packed; floats are needed here",
                         weight_file_path(b->model->file), t->name);
    if (!row_readable(t->type) || from % dtype_info(t->type)->block ||
        count % dtype_info(t->type)->block || (step != 1 && dtype_is_quantised(t->type)))
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s has the type %s; F32, F16 or BF16 is needed here",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word);
    if (!MEM_ROOM(b->vectors, b->n_vectors, b->room_vectors, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the list of vectors");
    b->vectors[b->n_vectors++] = (struct vector_job){
        .vector = vector,
        .tensor = t,
        .from = from,
        .count = count,
        .step = step,
        .to = bind_reserve(b, &b->arena, (size_t)count * sizeof(float), BIND_ALIGN)};
    b->model->n_params += count;
    return 0;
}

/* What the file does not have: n times the same value. */
int bind_add_filled(struct binding *b, const float **vector, float value, int64_t n,
                    struct error *e)
{
    if (!MEM_ROOM(b->vectors, b->n_vectors, b->room_vectors, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the list of vectors");
    b->vectors[b->n_vectors++] = (struct vector_job){
        .vector = vector,
        .fill = value,
        .count = n,
        .step = 1,
        .to = bind_reserve(b, &b->arena, (size_t)n * sizeof(float), BIND_ALIGN)};
    return 0;
}

int bind_add_vector(struct binding *b, const float **vector, const struct tensor_view *t,
                    int64_t from, int64_t count, struct error *e)
{
    return bind_add_steps(b, vector, t, from, 1, count, e);
}

/* The bias of a tensor, if there is one; rows first .. first+rows-1 of `all`. */
int bind_add_bias(struct binding *b, const float **bias, enum tensor_role role, int layer,
                  int first, int rows, int all, struct error *e)
{
    const struct tensor_view *t = family_tensor(b->family, b->model->file, role, layer, 0, true);
    int rc;

    if (!t)
        return 0;
    if ((rc = bind_check_shape(b, t, all, 0, 0, e)))
        return rc;
    return bind_add_vector(b, bias, t, first, rows, e);
}

/* Whether a tensor of n values has rows of `row`: dimensions of 1 say nothing, and a list does not
 * say where its rows end. */
static bool has_rows(const struct tensor_view *t, int64_t n, int64_t row)
{
    int64_t last = 1;

    for (int i = 0; i < t->n_dims; i++)
        last = t->dims[i] == 1 ? last : t->dims[i];
    return t->n_dims == 1 || last == (row > 1 ? row : n);
}

static int bind_shaped(struct binding *b, const float **vector, enum tensor_role role, int layer,
                       int64_t n, int64_t row, enum vector_form form, int turned, struct error *e)
{
    const struct tensor_view *t = bind_want(b, role, layer, 0, e);
    int64_t has = 1;
    int rc;

    if (!t)
        return ERR_MODEL;
    for (int i = 0; i < t->n_dims; i++)
        has *= t->dims[i];
    if (has != n)
        return error_set(e, ERR_MODEL, "%s: tensor %s has %lld values; the model needs %lld",
                         weight_file_path(b->model->file), t->name, (long long)has, (long long)n);
    if (!has_rows(t, n, row))
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s has rows of %lld values; the model needs rows of %lld",
                         weight_file_path(b->model->file), t->name,
                         (long long)t->dims[t->n_dims - 1], (long long)row);
    if (t->packed && turned)
        return error_set(e, ERR_MODEL, "%s: tensor %s is packed; floats are needed here",
                         weight_file_path(b->model->file), t->name);
    b->used[t->index] = 1;
    if ((rc = bind_add_vector(b, vector, t, 0, n, e)))
        return rc;
    b->vectors[b->n_vectors - 1].form = form;
    b->vectors[b->n_vectors - 1].turned = turned;
    return 0;
}

int bind_values(struct binding *b, const float **vector, enum tensor_role role, int layer,
                int64_t n, enum vector_form form, int turned, struct error *e)
{
    return bind_shaped(b, vector, role, layer, n, turned ? turned : n, form, turned, e);
}

int bind_groups(struct binding *b, const float **vector, enum tensor_role role, int layer,
                int groups, int row, struct error *e)
{
    return bind_shaped(b, vector, role, layer, (int64_t)groups * row, row, VECTOR_PLAIN, 0, e);
}

int bind_bias(struct binding *b, const float **bias, enum tensor_role role, int layer, int n,
              struct error *e)
{
    return bind_add_bias(b, bias, role, layer, 0, n, n, e);
}

int bind_vector(struct binding *b, const float **vector, enum tensor_role role, int layer, int n,
                struct error *e)
{
    const struct tensor_view *t = bind_want(b, role, layer, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, t, n, 0, 0, e)))
        return rc;
    return bind_add_vector(b, vector, t, 0, n, e);
}

/* A matrix as F32, row-major. */
int bind_matrix_values(struct binding *b, const float **values, enum tensor_role role, int layer,
                       int rows, int cols, struct error *e)
{
    const struct tensor_view *t = bind_want(b, role, layer, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = bind_check_shape(b, t, rows, cols, 0, e)))
        return rc;
    return bind_add_vector(b, values, t, 0, (int64_t)rows * cols, e);
}

void bind_one_more(struct binding *b)
{
    if (b->model->hp.common.norms.kind == NORM_RMS_ONE &&
        weight_file_format(b->model->file) != WEIGHT_GGUF)
        b->vectors[b->n_vectors - 1].form = VECTOR_ONE_MORE;
}

int bind_norm(struct binding *b, struct norm_weights *n, enum tensor_role role, int layer,
              struct error *e)
{
    int hidden = b->model->hp.hidden, rc = bind_vector(b, &n->weight, role, layer, hidden, e);

    if (!rc && !(role == TENSOR_OUTPUT_NORM && b->family->last_norm_plain))
        bind_one_more(b);
    return rc ? rc : bind_add_bias(b, &n->bias, role, layer, 0, hidden, hidden, e);
}

int bind_plain(struct binding *b, struct matrix *m, enum tensor_role role, int layer, int rows,
               int cols, struct error *e)
{
    const struct tensor_view *t = bind_want(b, role, layer, 0, e);
    bool turned = family_tensor_turned(b->family, b->model->file, role, t);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = turned ? bind_check_shape(b, t, cols, rows, 0, e)
                     : bind_check_shape(b, t, rows, cols, 0, e)) ||
        (rc = turned ? bind_add_transposed(b, m, role, layer, t, 0, 1, rows, rows, cols, e)
                     : bind_add_matrix(b, m, role, layer, t, 0, rows, cols, e)))
        return rc;
    return bind_add_bias(b, &m->bias, role, layer, 0, rows, rows, e);
}
