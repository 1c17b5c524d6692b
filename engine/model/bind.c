/* Strict binding: every tensor the family needs must exist with the shape given by the
 * hyperparameters, and every tensor of the file must be used. Thread: the one that loads. It makes
 * lists of jobs (bind.h) instead of loading at once: the order of loading, its threads and its
 * memory are then decided in one place, with everything known. */
#include "engine/model/bind.h"

#include "engine/base/mem.h"
#include "engine/file/packed.h"
#include "engine/layout/pack.h"
#include "engine/model/mix.h"

#include <stdio.h>
#include <string.h>

#define ALIGN 64
/* alignment of packed matrices: devices that share the host's memory then use them in place */
#define PAGE 4096

static const struct tensor_view *want(struct binding *b, enum tensor_role role, int layer,
                                      int expert, struct error *e)
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
static int check_shape(struct binding *b, const struct tensor_view *t, int64_t d0, int64_t d1,
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
static size_t reserve(struct binding *b, size_t *end, size_t bytes, size_t align)
{
    size_t from = *end, at = (from + align - 1) / align * align;

    *end = at + (bytes + ALIGN - 1) / ALIGN * ALIGN;
    *b->counted += *end - from;
    b->total.packed += *end - from;
    return at;
}

/* Vectors first, together: matrices may be packed long after them, and scattered vectors would
 * populate their huge pages before that. */
static void join_arena(struct binding *b)
{
    reserve(b, &b->arena, 0, PAGE);
    for (size_t i = 0; i < b->n_matrices; i++)
        if (!b->matrices[i].mapped && !b->matrices[i].paged)
            b->matrices[i].to += b->arena;
    b->arena += b->arena_matrices;
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
static int add_job(struct binding *b, enum tensor_role role, int layer, struct matrix_job job,
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
        j->to = reserve(b, &b->arena_matrices, m->bytes, PAGE);
    } else {
        *b->counted += m->bytes;
        b->total.mapped += m->bytes;
    }
    b->by_type[type] += m->bytes;
    b->model->n_params += (int64_t)rows * cols;
    return 0;
}

/* rows of t from row first on become *m. */
static int add_matrix(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                      const struct tensor_view *t, int64_t first, int rows, int cols,
                      struct error *e)
{
    return add_job(b, role, layer,
                   (struct matrix_job){.matrix = m,
                                       .tensor = t,
                                       .from = (size_t)first * dtype_row_bytes(t->type, cols)},
                   rows, cols, e);
}

/* The same for a transposed tensor of `wide` rows, of which every step-th is used. */
static int add_transposed(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                          const struct tensor_view *t, int64_t first, int step, int wide, int rows,
                          int cols, struct error *e)
{
    size_t unit = (size_t)dtype_info(t->type)->bytes;

    if (dtype_is_quantised(t->type))
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s; it is needed as floats",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word);
    return add_job(b, role, layer,
                   (struct matrix_job){.matrix = m,
                                       .tensor = t,
                                       .from = (size_t)first * unit,
                                       .row_step = (size_t)step * unit,
                                       .col_step = (size_t)wide * unit},
                   rows, cols, e);
}

/* count elements of t from `from` on, `step` apart. */
static int add_steps(struct binding *b, const float **vector, const struct tensor_view *t,
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
    b->vectors[b->n_vectors++] =
        (struct vector_job){.vector = vector,
                            .tensor = t,
                            .from = from,
                            .count = count,
                            .step = step,
                            .to = reserve(b, &b->arena, (size_t)count * sizeof(float), ALIGN)};
    b->model->n_params += count;
    return 0;
}

/* What the file does not have: n times the same value. */
static int add_filled(struct binding *b, const float **vector, float value, int64_t n,
                      struct error *e)
{
    if (!MEM_ROOM(b->vectors, b->n_vectors, b->room_vectors, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the list of vectors");
    b->vectors[b->n_vectors++] =
        (struct vector_job){.vector = vector,
                            .fill = value,
                            .count = n,
                            .step = 1,
                            .to = reserve(b, &b->arena, (size_t)n * sizeof(float), ALIGN)};
    return 0;
}

static int add_vector(struct binding *b, const float **vector, const struct tensor_view *t,
                      int64_t from, int64_t count, struct error *e)
{
    return add_steps(b, vector, t, from, 1, count, e);
}

/* The bias of a tensor, if there is one; rows first .. first+rows-1 of `all`. */
static int add_bias(struct binding *b, const float **bias, enum tensor_role role, int layer,
                    int first, int rows, int all, struct error *e)
{
    const struct tensor_view *t = family_tensor(b->family, b->model->file, role, layer, 0, true);
    int rc;

    if (!t)
        return 0;
    if ((rc = check_shape(b, t, all, 0, 0, e)))
        return rc;
    return add_vector(b, bias, t, first, rows, e);
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
    const struct tensor_view *t = want(b, role, layer, 0, e);
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
    if ((rc = add_vector(b, vector, t, 0, n, e)))
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
    return add_bias(b, bias, role, layer, 0, n, n, e);
}

static int bind_vector(struct binding *b, const float **vector, enum tensor_role role, int layer,
                       int n, struct error *e)
{
    const struct tensor_view *t = want(b, role, layer, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = check_shape(b, t, n, 0, 0, e)))
        return rc;
    return add_vector(b, vector, t, 0, n, e);
}

/* A matrix as F32, row-major. */
static int bind_matrix_values(struct binding *b, const float **values, enum tensor_role role,
                              int layer, int rows, int cols, struct error *e)
{
    const struct tensor_view *t = want(b, role, layer, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = check_shape(b, t, rows, cols, 0, e)))
        return rc;
    return add_vector(b, values, t, 0, (int64_t)rows * cols, e);
}

void bind_one_more(struct binding *b)
{
    if (b->model->hp.common.norms.kind == NORM_RMS_ONE &&
        weight_file_format(b->model->file) != WEIGHT_GGUF)
        b->vectors[b->n_vectors - 1].form = VECTOR_ONE_MORE;
}

static int bind_norm(struct binding *b, struct norm_weights *n, enum tensor_role role, int layer,
                     struct error *e)
{
    int hidden = b->model->hp.hidden, rc = bind_vector(b, &n->weight, role, layer, hidden, e);

    if (!rc && !(role == TENSOR_OUTPUT_NORM && b->family->last_norm_plain))
        bind_one_more(b);
    return rc ? rc : add_bias(b, &n->bias, role, layer, 0, hidden, hidden, e);
}

int bind_plain(struct binding *b, struct matrix *m, enum tensor_role role, int layer, int rows,
               int cols, struct error *e)
{
    const struct tensor_view *t = want(b, role, layer, 0, e);
    bool turned = family_tensor_turned(b->family, b->model->file, role, t);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = turned ? check_shape(b, t, cols, rows, 0, e) : check_shape(b, t, rows, cols, 0, e)) ||
        (rc = turned ? add_transposed(b, m, role, layer, t, 0, 1, rows, rows, cols, e)
                     : add_matrix(b, m, role, layer, t, 0, rows, cols, e)))
        return rc;
    return add_bias(b, &m->bias, role, layer, 0, rows, rows, e);
}

/* Files may hold keys and values of a layer that reads another one's; nothing reads them. */
static void pass_over_keys(struct binding *b, int layer)
{
    static const enum tensor_role roles[] = {TENSOR_K, TENSOR_V, TENSOR_K_NORM};

    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        const struct tensor_view *t = family_tensor(b->family, b->model->file, roles[i], layer, 0,
                                                    false);

        if (t)
            b->used[t->index] = 1;
    }
}

/* Of q and k. */
static int bind_head_norms(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    bool whole = a->qk_norm == QK_NORM_WHOLE;
    char name[128];
    int rc;

    if (a->qk_norm == QK_NORM_NONE)
        return 0;
    if (a->q_norm_unsaid != 0.0f &&
        !family_tensor(b->family, b->model->file, TENSOR_Q_NORM, layer, 0, false)) {
        family_gguf_name(b->family, TENSOR_Q_NORM, layer, false, false, name, sizeof name);
        if (name[0]) /* as in a GGUF file made of the folder */
            b->model->n_params += 2 * a->key_dim;
        return (rc = add_filled(b, &w->q_norm, a->q_norm_unsaid, a->key_dim, e))
                   ? rc
                   : add_filled(b, &w->k_norm, 1.0f, a->key_dim, e);
    }
    if ((rc = bind_vector(b, &w->q_norm, TENSOR_Q_NORM, layer,
                          whole ? a->heads * a->key_dim : a->key_dim, e)))
        return rc;
    bind_one_more(b);
    if (a->keys_of)
        return 0;
    if ((rc = bind_vector(b, &w->k_norm, TENSOR_K_NORM, layer,
                          whole ? a->kv_heads * a->key_dim : a->key_dim, e)))
        return rc;
    bind_one_more(b);
    return 0;
}

/* The indexer of blocks; in folders one matrix gives its queries and its key. */
static int bind_block_indexer(struct binding *b, struct layer_weights *w, int layer,
                              struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    const struct tensor_view *both = family_tensor(b->family, b->model->file, TENSOR_INDEX_QK,
                                                   layer, 0, false);
    int hidden = b->model->hp.hidden, dim = a->index_dim, q = a->index_heads * dim, rc;

    if (!both)
        rc = (rc = bind_plain(b, &w->index_q, TENSOR_INDEX_Q, layer, q, hidden, e))
                 ? rc
                 : bind_plain(b, &w->index_k, TENSOR_INDEX_K, layer, dim, hidden, e);
    else if (!(rc = check_shape(b, both, q + dim, hidden, 0, e)) &&
             !(rc = add_matrix(b, &w->index_q, TENSOR_INDEX_Q, layer, both, 0, q, hidden, e)))
        rc = add_matrix(b, &w->index_k, TENSOR_INDEX_K, layer, both, q, dim, hidden, e);
    if (rc || (rc = bind_vector(b, &w->index_norm, TENSOR_INDEX_NORM, layer, dim, e)))
        return rc;
    bind_one_more(b);
    if ((rc = bind_vector(b, &w->index_q_norm, TENSOR_INDEX_Q_NORM, layer, dim, e)))
        return rc;
    bind_one_more(b);
    return 0;
}

/* A folder's heads of several experts become heads of one matrix, those that read the same keys
 * beside each other. */
static int bind_regrouped(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, of_one = a->kv_heads * a->key_dim, rc;
    struct job_heads rows = {a->experts, a->kv_heads, a->key_dim, false}, columns = rows;
    const struct tensor_view *q = want(b, TENSOR_HEADS_Q, layer, 0, e), *kv, *o;

    columns.columns = true;
    if (!q || !(kv = want(b, TENSOR_KV, layer, 0, e)) ||
        !(o = want(b, TENSOR_HEADS_O, layer, 0, e)))
        return ERR_MODEL;
    if (q->packed || o->packed || dtype_is_quantised(o->type))
        return error_set(e, ERR_MODEL, "%s: tensor %s is packed; floats are needed here",
                         weight_file_path(b->model->file), q->packed ? q->name : o->name);
    if ((rc = check_shape(b, q, a->experts, of_one, hidden, e)) ||
        (rc = check_shape(b, kv, 2 * of_one, hidden, 0, e)) ||
        (rc = check_shape(b, o, a->experts, hidden, of_one, e)) ||
        (rc = add_job(b, TENSOR_Q, layer,
                      (struct matrix_job){.matrix = &w->q, .tensor = q, .heads = rows},
                      a->experts * of_one, hidden, e)) ||
        (rc = add_matrix(b, &w->k, TENSOR_K, layer, kv, 0, of_one, hidden, e)) ||
        (rc = add_matrix(b, &w->v, TENSOR_V, layer, kv, of_one, of_one, hidden, e)) ||
        (rc = add_job(b, TENSOR_O, layer,
                      (struct matrix_job){.matrix = &w->o, .tensor = o, .heads = columns}, hidden,
                      a->experts * of_one, e)))
        return rc;
    return bind_vector(b, &w->o.bias, TENSOR_HEADS_BIAS, layer, hidden, e);
}

/* Scores are computed in F32, as those of other experts are. */
static int bind_head_router(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int experts = hparams_layer(&b->model->hp, layer)->mixer.experts, hidden = b->model->hp.hidden;
    const struct tensor_view *t = want(b, TENSOR_HEADS_ROUTER, layer, 0, e);
    int rc = t ? check_shape(b, t, experts, hidden, 0, e) : ERR_MODEL;

    return rc ? rc : add_vector(b, &w->head_router, t, 0, (int64_t)experts * hidden, e);
}

static int bind_attention(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    const struct mixer_shape *a = &hparams_layer(hp, layer)->mixer;
    const struct tensor_view *fused = family_tensor(b->family, b->model->file, TENSOR_QKV, layer, 0,
                                                    false);
    bool turned = family_tensor_turned(b->family, b->model->file, TENSOR_QKV, fused);
    int q = a->heads * shape_query_dim(a), kv = a->kv_heads * a->key_dim,
        values = a->kv_heads * shape_value_dim(a), all = q + kv + values, rc;
    struct {
        struct matrix *m;
        enum tensor_role role;
        int first, rows;
    } part[3] = {
        {&w->q, TENSOR_Q, 0, q}, {&w->k, TENSOR_K, q, kv}, {&w->v, TENSOR_V, q + kv, values}};

    if (a->experts && (rc = bind_head_router(b, w, layer, e)))
        return rc;
    if (a->experts && family_tensor(b->family, b->model->file, TENSOR_HEADS_Q, layer, 0, false))
        return bind_regrouped(b, w, layer, e);
    if (fused && (rc = turned ? check_shape(b, fused, hp->hidden, all, 0, e)
                              : check_shape(b, fused, all, hp->hidden, 0, e)))
        return rc;
    if (a->keys_of)
        pass_over_keys(b, layer);
    for (int i = 0; i < (a->keys_of ? 1 : a->values_are_keys ? 2 : 3); i++) {
        if (!fused) {
            if ((rc = bind_plain(b, part[i].m, part[i].role, layer, part[i].rows, hp->hidden, e)))
                return rc;
            continue;
        }
        if ((rc = turned ? add_transposed(b, part[i].m, part[i].role, layer, fused, part[i].first,
                                          1, all, part[i].rows, hp->hidden, e)
                         : add_matrix(b, part[i].m, part[i].role, layer, fused, part[i].first,
                                      part[i].rows, hp->hidden, e)) ||
            (rc = add_bias(b, &part[i].m->bias, TENSOR_QKV, layer, part[i].first, part[i].rows, all,
                           e)))
            return rc;
    }
    if ((rc = bind_head_norms(b, w, layer, e)))
        return rc;
    if ((a->index_heads && (rc = bind_block_indexer(b, w, layer, e))) ||
        (a->sinks && (rc = bind_vector(b, &w->sinks, TENSOR_SINKS, layer, a->heads, e))) ||
        (shape_gates(a) &&
         (rc = bind_plain(b, &w->z, TENSOR_MIX_Z, layer, shape_gates(a), hp->hidden, e))))
        return rc;
    return bind_plain(b, &w->o, TENSOR_O, layer, hp->hidden, a->heads * shape_value_dim(a), e);
}

/* All heads of k or v: heads x rows of cols. */
static int bind_heads(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                      int heads, int rows, int cols, struct error *e)
{
    const struct tensor_view *t = want(b, role, layer, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = check_shape(b, t, heads, rows, cols, e)))
        return rc;
    return add_matrix(b, m, role, layer, t, 0, heads * rows, cols, e);
}

/* Keys and values from a latent row, separate in GGUF files, else to be separated: only then can
 * queries and outputs stay in the latent space (absorbed, arXiv:2405.04434, 2.1.2). */
static int bind_latent_heads(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    const struct tensor_view *both = family_tensor(b->family, b->model->file, TENSOR_KV_B, layer, 0,
                                                   false);
    int nope = a->key_dim - a->rope_dims, each = nope + a->value_dim, rc;

    if (!both && weight_file_format(b->model->file) == WEIGHT_GGUF)
        return (rc = bind_heads(b, &w->k_b, TENSOR_K_B, layer, a->heads, a->kv_rank, nope, e))
                   ? rc
                   : bind_heads(b, &w->v_b, TENSOR_V_B, layer, a->heads, a->value_dim, a->kv_rank,
                                e);
    if (!(both = want(b, TENSOR_KV_B, layer, 0, e)))
        return ERR_MODEL;
    if ((rc = check_shape(b, both, a->heads * each, a->kv_rank, 0, e)) ||
        (rc = add_job(
             b, TENSOR_K_B, layer,
             (struct matrix_job){.matrix = &w->k_b, .tensor = both, .split = {each, 0, nope, true}},
             a->heads * a->kv_rank, nope, e)))
        return rc;
    return add_job(b, TENSOR_V_B, layer,
                   (struct matrix_job){.matrix = &w->v_b,
                                       .tensor = both,
                                       .split = {each, nope, a->value_dim, false}},
                   a->heads * a->value_dim, a->kv_rank, e);
}

/* Queries of the indexer come from the row that MLA's do. */
static int bind_indexer(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, heads = a->index_heads, dim = a->index_dim, rc;

    if ((rc = bind_plain(b, &w->index_q, TENSOR_INDEX_Q, layer, heads * dim, a->q_rank, e)) ||
        (rc = bind_plain(b, &w->index_k, TENSOR_INDEX_K, layer, dim, hidden, e)) ||
        (rc = bind_plain(b, &w->index_weights, TENSOR_INDEX_WEIGHTS, layer, heads, hidden, e)) ||
        (rc = bind_vector(b, &w->index_norm, TENSOR_INDEX_NORM, layer, dim, e)))
        return rc;
    return bind_bias(b, &w->index_norm_bias, TENSOR_INDEX_NORM, layer, dim, e);
}

static int bind_latent(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, q = a->heads * a->key_dim, rc;

    rc = !a->q_rank ? bind_plain(b, &w->q, TENSOR_Q, layer, q, hidden, e)
         : (rc = bind_plain(b, &w->q_a, TENSOR_Q_A, layer, a->q_rank, hidden, e)) ? rc
         : (rc = bind_vector(b, &w->q_norm, TENSOR_Q_A_NORM, layer, a->q_rank, e))
             ? rc
             : bind_plain(b, &w->q, TENSOR_Q_B, layer, q, a->q_rank, e);
    if (rc ||
        (rc = bind_plain(b, &w->kv_a, TENSOR_KV_A, layer, a->kv_rank + a->rope_dims, hidden, e)) ||
        (rc = bind_vector(b, &w->k_norm, TENSOR_KV_A_NORM, layer, a->kv_rank, e)) ||
        (rc = bind_latent_heads(b, w, layer, e)) ||
        (a->gated && (rc = bind_plain(b, &w->z, TENSOR_MIX_Z, layer, a->heads, hidden, e))) ||
        (a->index_heads && (rc = bind_indexer(b, w, layer, e))))
        return rc;
    return bind_plain(b, &w->o, TENSOR_O, layer, hidden, a->heads * a->value_dim, e);
}

/* What compressed rows are made of, and their indexer's. */
static int bind_compressors(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, n = shape_compressed(a), of_index = shape_index_compressed(a),
        rc;

    if ((rc = bind_plain(b, &w->compress_keys, TENSOR_COMPRESS_KEYS, layer, n, hidden, e)) ||
        (rc = bind_plain(b, &w->compress_gates, TENSOR_COMPRESS_GATES, layer, n, hidden, e)) ||
        (rc = bind_matrix_values(b, &w->compress_bias, TENSOR_COMPRESS_BIAS, layer, a->block, n,
                                 e)) ||
        (rc = bind_vector(b, &w->compress_norm, TENSOR_COMPRESS_NORM, layer, a->key_dim, e)) ||
        !a->index_heads)
        return rc;
    if ((rc = bind_plain(b, &w->index_q, TENSOR_INDEX_Q, layer, a->index_heads * a->index_dim,
                         a->q_rank, e)) ||
        (rc = bind_plain(b, &w->index_k, TENSOR_INDEX_K, layer, of_index, hidden, e)) ||
        (rc = bind_plain(b, &w->index_gate, TENSOR_INDEX_GATE, layer, of_index, hidden, e)) ||
        (rc = bind_plain(b, &w->index_weights, TENSOR_INDEX_WEIGHTS, layer, a->index_heads, hidden,
                         e)) ||
        (rc = bind_matrix_values(b, &w->index_bias, TENSOR_INDEX_BIAS, layer, a->block, of_index,
                                 e)))
        return rc;
    return bind_vector(b, &w->index_norm, TENSOR_INDEX_NORM, layer, a->index_dim, e);
}

static int bind_compressed(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *a = &hparams_layer(&b->model->hp, layer)->mixer;
    int hidden = b->model->hp.hidden, q = a->heads * a->key_dim, out = a->out_groups * a->out_rank,
        rc;

    if ((rc = bind_plain(b, &w->q_a, TENSOR_Q_A, layer, a->q_rank, hidden, e)) ||
        (rc = bind_vector(b, &w->q_norm, TENSOR_Q_A_NORM, layer, a->q_rank, e)) ||
        (rc = bind_plain(b, &w->q, TENSOR_Q_B, layer, q, a->q_rank, e)) ||
        (rc = bind_plain(b, &w->kv_a, TENSOR_KV_A, layer, a->key_dim, hidden, e)) ||
        (rc = bind_vector(b, &w->k_norm, TENSOR_KV_A_NORM, layer, a->key_dim, e)) ||
        (rc = bind_vector(b, &w->sinks, TENSOR_SINKS, layer, a->heads, e)) ||
        (a->block && (rc = bind_compressors(b, w, layer, e))) ||
        (rc = bind_plain(b, &w->o_a, TENSOR_O_A, layer, out, q / a->out_groups, e)))
        return rc;
    return bind_plain(b, &w->o, TENSOR_O, layer, hidden, out, e);
}

/* A tensor with a matrix for every expert, whose rows are `step` apart among `wide` ones, from
 * `first` on; and their biases. t NULL: each expert has its own tensors. */
struct stack {
    const struct tensor_view *t, *bias;
    int wide, first, step;
    bool transposed;
    bool same_bias; /* one for all of them */
};

static int find_stack(struct binding *b, int layer, enum tensor_role one, enum tensor_role all,
                      int rows, int cols, struct stack *s, struct error *e)
{
    const struct weight_file *f = b->model->file;
    int experts = hparams_layer(&b->model->hp, layer)->ffn.experts, rc;

    *s = (struct stack){
        .t = family_tensor(b->family, f, all, layer, 0, false), .wide = rows, .step = 1};
    if (!s->t && one != TENSOR_DOWN) {
        all = TENSOR_GATE_UPS;
        s->t = family_tensor(b->family, f, all, layer, 0, false);
        s->wide = 2 * rows;
        s->step = family_tensor_is(b->family, f, all, TENSOR_TURNS) ? 2 : 1;
        s->first = one == TENSOR_GATE ? 0 : s->step == 2 ? 1 : rows;
    }
    s->transposed = family_tensor_turned(b->family, f, all, s->t);
    s->bias = s->t ? family_tensor(b->family, f, all, layer, 0, true) : NULL;
    if (s->t && (rc = s->transposed ? check_shape(b, s->t, experts, cols, s->wide, e)
                                    : check_shape(b, s->t, experts, s->wide, cols, e)))
        return rc;
    if (s->t && !s->bias && one == TENSOR_DOWN &&
        (s->bias = family_tensor(b->family, f, TENSOR_SUM_BIAS, layer, 0, false))) {
        s->same_bias = true;
        return check_shape(b, s->bias, rows, 0, 0, e);
    }
    return s->bias ? check_shape(b, s->bias, experts, s->wide, 0, e) : 0;
}

static int add_stacked(struct binding *b, struct matrix *m, enum tensor_role role, int layer,
                       const struct stack *s, int x, int rows, int cols, struct error *e)
{
    int64_t at = (int64_t)x * s->wide;
    size_t row = dtype_row_bytes(s->t->type, cols);
    int rc = s->transposed
                 ? add_transposed(b, m, role, layer, s->t, at * cols + s->first, s->step, s->wide,
                                  rows, cols, e)
                 : add_job(b, role, layer,
                           (struct matrix_job){.matrix = m,
                                               .tensor = s->t,
                                               .from = (size_t)(at + s->first) * row,
                                               .row_step = s->step > 1 ? (size_t)s->step * row : 0},
                           rows, cols, e);

    return rc || !s->bias ? rc
                          : add_steps(b, &m->bias, s->bias, s->same_bias ? 0 : at + s->first,
                                      s->step, rows, e);
}

/* One of gate, up, down of every expert: a tensor each, one for all, or (gate and up) a fused one.
 */
static int bind_kind(struct binding *b, struct layer_weights *w, int layer, enum tensor_role one,
                     enum tensor_role all, size_t field, int rows, int cols, struct error *e)
{
    int experts = hparams_layer(&b->model->hp, layer)->ffn.experts;
    bool gguf = weight_file_format(b->model->file) == WEIGHT_GGUF;
    struct stack s;
    int rc = find_stack(b, layer, one, all, rows, cols, &s, e);

    for (int x = 0; x < experts && !rc; x++) {
        struct matrix *m = (struct matrix *)((char *)&w->experts[x] + field);
        const struct tensor_view *t;

        if (s.t) {
            rc = add_stacked(b, m, one, layer, &s, x, rows, cols, e);
            continue;
        }
        /* If none exists, the message uses the current spelling: GGUF files have one tensor for all
         * experts. */
        if (!(t = want(b,
                       x == 0 && gguf &&
                               !family_tensor(b->family, b->model->file, one, layer, 0, false)
                           ? all
                           : one,
                       layer, x, e)))
            return ERR_MODEL;
        if (!(rc = check_shape(b, t, rows, cols, 0, e)))
            rc = add_matrix(b, m, one, layer, t, 0, rows, cols, e);
    }
    return rc;
}

static int bind_expert(struct binding *b, struct expert_weights *w, int layer,
                       enum tensor_role gate, enum tensor_role up, enum tensor_role down, int width,
                       struct error *e)
{
    bool gated = activation_gated(hparams_layer(&b->model->hp, layer)->ffn.activation);
    int hidden = b->model->hp.hidden, rc;

    if ((gated && (rc = bind_plain(b, &w->gate, gate, layer, width, hidden, e))) ||
        (rc = bind_plain(b, &w->up, up, layer, width, hidden, e)))
        return rc;
    return bind_plain(b, &w->down, down, layer, hidden, width, e);
}

/* Gate and up of one tensor, gate first. */
static int bind_halves(struct binding *b, struct expert_weights *w, int layer,
                       const struct tensor_view *t, int width, struct error *e)
{
    int hidden = b->model->hp.hidden, rc = check_shape(b, t, 2 * width, hidden, 0, e);

    if (!rc)
        rc = add_matrix(b, &w->gate, TENSOR_GATE, layer, t, 0, width, hidden, e);
    return rc ? rc : add_matrix(b, &w->up, TENSOR_UP, layer, t, width, width, hidden, e);
}

/* The always-used expert: the shared one after the routed ones, or all of a dense layer. */
static int bind_shared(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    struct expert_weights *x = &w->experts[s->experts];
    const struct tensor_view *fused = family_tensor(b->family, b->model->file,
                                                    TENSOR_SHARED_GATE_UP, layer, 0, false);
    int rc;

    if (fused && (rc = bind_halves(b, x, layer, fused, s->shared_width, e)))
        return rc;
    if (fused)
        return bind_plain(b, &x->down, TENSOR_SHARED_DOWN, layer, b->model->hp.hidden,
                          s->shared_width, e);
    return s->kind == FFN_DENSE ? bind_expert(b, x, layer, TENSOR_DENSE_GATE, TENSOR_DENSE_UP,
                                              TENSOR_DENSE_DOWN, s->shared_width, e)
                                : bind_expert(b, x, layer, TENSOR_SHARED_GATE, TENSOR_SHARED_UP,
                                              TENSOR_SHARED_DOWN, s->shared_width, e);
}

/* Folders may hold gates and ups of identities, too; nothing reads them. */
static void pass_over_identities(struct binding *b, const struct ffn_shape *s, int layer)
{
    static const enum tensor_role roles[] = {TENSOR_GATE, TENSOR_UP, TENSOR_DOWN};

    for (int x = s->experts; x < shape_choices(s); x++)
        for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
            const struct tensor_view *t = family_tensor(b->family, b->model->file, roles[i], layer,
                                                        x, false);

            if (t)
                b->used[t->index] = 1;
        }
}

static int bind_routed(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int hidden = b->model->hp.hidden, rc;

    pass_over_identities(b, s, layer);
    if ((activation_gated(s->activation) &&
         (rc = bind_kind(b, w, layer, TENSOR_GATE, TENSOR_GATES,
                         offsetof(struct expert_weights, gate), s->width, hidden, e))) ||
        (rc = bind_kind(b, w, layer, TENSOR_UP, TENSOR_UPS, offsetof(struct expert_weights, up),
                        s->width, hidden, e)))
        return rc;
    return bind_kind(b, w, layer, TENSOR_DOWN, TENSOR_DOWNS, offsetof(struct expert_weights, down),
                     hidden, s->width, e);
}

/* A matrix of each adjugate expert: a tensor each, or all in one. */
static int bind_adjugates_of(struct binding *b, struct layer_weights *w, int layer,
                             enum tensor_role role, size_t field, int rows, int cols,
                             struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int n = shape_further(s), rc = 0;

    for (int i = 0; i < n && !rc; i++) {
        struct matrix *to = (struct matrix *)((char *)&w->experts[s->experts + i] + field);
        const struct tensor_view *t = want(b, role, layer, i, e);
        bool all = t && t->n_dims == 3;

        if (!t)
            return ERR_MODEL;
        if ((rc = all ? check_shape(b, t, n, rows, cols, e) : check_shape(b, t, rows, cols, 0, e)))
            return rc;
        rc = add_matrix(b, to, role, layer, t, all ? (int64_t)i * rows : 0, rows, cols, e);
    }
    return rc;
}

static int bind_adjugates(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int hidden = b->model->hp.hidden, rc,
        width = hparams_layer(&b->model->hp, layer)->ffn.shared_width;

    if ((rc = bind_adjugates_of(b, w, layer, TENSOR_ADJUGATE_GATE,
                                offsetof(struct expert_weights, gate), width, hidden, e)) ||
        (rc = bind_adjugates_of(b, w, layer, TENSOR_ADJUGATE_UP,
                                offsetof(struct expert_weights, up), width, hidden, e)))
        return rc;
    return bind_adjugates_of(b, w, layer, TENSOR_ADJUGATE_DOWN,
                             offsetof(struct expert_weights, down), hidden, width, e);
}

static int bind_experts(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int rc = 0;

    b->paging = b->options->expert_cache > 0;
    if (s->experts)
        rc = bind_routed(b, w, layer, e);
    b->paging = false;
    if (!rc && s->grouped)
        rc = bind_adjugates(b, w, layer, e);
    return rc || !s->shared ? rc : bind_shared(b, w, layer, e);
}

/* What a router makes its row of, and scores from it. */
static int bind_router_row(struct binding *b, struct router_weights *w, int layer, struct error *e)
{
    int n = hparams_layer(&b->model->hp, layer)->ffn.router.row, hidden = b->model->hp.hidden, rc;
    const struct {
        const float **to, **bias;
        enum tensor_role role;
        int cols;
    } parts[] = {{&w->in, &w->in_bias, TENSOR_ROUTER_IN, hidden},
                 {&w->first, &w->first_bias, TENSOR_ROUTER_FIRST, n},
                 {&w->second, &w->second_bias, TENSOR_ROUTER_SECOND, n}};
    char name[128];

    for (size_t i = 0; n && i < sizeof parts / sizeof *parts; i++) {
        if ((rc = bind_matrix_values(b, parts[i].to, parts[i].role, layer, n, parts[i].cols, e)) ||
            (rc = bind_bias(b, parts[i].bias, parts[i].role, layer, n, e)))
            return rc;
        family_tensor_name(b->family, b->model->file, parts[i].role, layer, 0, name, sizeof name);
        if (!family_tensor(b->family, b->model->file, parts[i].role, layer, 0, true))
            return error_set(e, ERR_MODEL, "%s: the bias of tensor %s is missing",
                             weight_file_path(b->model->file), name);
    }
    if (n && layer && (rc = bind_vector(b, &w->carry, TENSOR_ROUTER_CARRY, layer, n, e)))
        return rc;
    return n ? bind_vector(b, &w->norm, TENSOR_ROUTER_ROW_NORM, layer, n, e) : 0;
}

/* What the parts of a weighted stream are shifted by and multiplied with. */
static int bind_residual(struct binding *b, struct residual_weights *w, enum tensor_role first,
                         int layer, struct error *e)
{
    const float **const to[] = {&w->scale, &w->shift, &w->stream_scale, &w->stream_shift};
    int rc = 0;

    for (int i = 0; i < 4 && !rc; i++)
        rc = bind_vector(b, to[i], (enum tensor_role)(first + i), layer, b->model->hp.hidden, e);
    return rc;
}

/* The scores of experts are computed in F32, whatever the file's type. */
/* The table that says which experts a token has; integers, which F32 holds exactly. */
static int bind_token_experts(struct binding *b, struct layer_weights *w, int layer,
                              struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    const struct tensor_view *t = want(b, TENSOR_TOKEN_EXPERTS, layer, 0, e);
    int64_t n = (int64_t)b->model->hp.n_vocab * s->used;
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = check_shape(b, t, b->model->hp.n_vocab, s->used, 0, e)))
        return rc;
    if (t->packed || (t->type != DTYPE_I32 && t->type != DTYPE_I64 && t->type != DTYPE_F32))
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s; integers are needed here",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word);
    if (!MEM_ROOM(b->vectors, b->n_vectors, b->room_vectors, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the list of vectors");
    b->vectors[b->n_vectors++] =
        (struct vector_job){.vector = &w->token_experts,
                            .tensor = t,
                            .count = n,
                            .step = 1,
                            .below = s->experts,
                            .to = reserve(b, &b->arena, (size_t)n * sizeof(float), ALIGN)};
    b->model->n_params += n;
    return 0;
}

static int bind_router(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct ffn_shape *s = &hparams_layer(&b->model->hp, layer)->ffn;
    int hidden = b->model->hp.hidden, choices = shape_choices(s), rc;
    const struct tensor_view *t;

    if ((rc = bind_router_row(b, &w->router_row, layer, e)))
        return rc;
    if (s->experts) {
        if ((rc = bind_matrix_values(b, &w->router, TENSOR_ROUTER, layer, choices,
                                     s->router.row ? s->router.row : hidden, e)) ||
            (rc = add_bias(b, &w->score_bias, TENSOR_ROUTER, layer, 0, choices, choices, e)))
            return rc;
    }
    if (s->experts && s->router.choice_bias) {
        if (!(t = want(b, TENSOR_ROUTER_BIAS, layer, 0, e)))
            return ERR_MODEL;
        if ((rc = t->n_dims == 1 ? check_shape(b, t, choices, 0, 0, e)
                                 : check_shape(b, t, 1, choices, 0, e)) ||
            (rc = add_vector(b, &w->router_bias, t, 0, choices, e)))
            return rc;
    }
    if (s->experts && s->router.by_token && (rc = bind_token_experts(b, w, layer, e)))
        return rc;
    if (s->experts && s->router.expert_scales &&
        (rc = bind_values(b, &w->expert_scale, TENSOR_EXPERT_SCALE, layer, s->experts, VECTOR_PLAIN,
                          0, e)))
        return rc;
    if (!s->shared || s->shared_gate != SHARED_SIGMOID)
        return 0;
    if (!(t = want(b, TENSOR_SHARED_ROUTER, layer, 0, e)))
        return ERR_MODEL;
    if ((rc = t->n_dims == 1 ? check_shape(b, t, hidden, 0, 0, e)
                             : check_shape(b, t, 1, hidden, 0, e)))
        return rc;
    return add_vector(b, &w->shared_router, t, 0, hidden, e);
}

static int bind_mixer(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct mixer_shape *s = &hparams_layer(&b->model->hp, layer)->mixer;

    return s->kind == MIXER_NONE         ? 0
           : s->kind == MIXER_MLA        ? bind_latent(b, w, layer, e)
           : s->kind == MIXER_COMPRESSED ? bind_compressed(b, w, layer, e)
           : s->kind == MIXER_CONVOLVED  ? bind_convolved(b, w, layer, e)
           : shape_recurrent(s)          ? bind_recurrent(b, w, layer, e)
                                         : bind_attention(b, w, layer, e);
}

/* The norms of one operator; role: of the only one, if there is no other. */
static int bind_around(struct binding *b, struct norm_weights *before, struct norm_weights *after,
                       enum tensor_role role, enum tensor_role role_after, int layer,
                       struct error *e)
{
    const struct norms_shape *s = &hparams_layer(&b->model->hp, layer)->norms;
    int rc = s->before ? bind_norm(b, before, role, layer, e) : 0;

    return rc || !s->after ? rc : bind_norm(b, after, norms_sum(s) ? role : role_after, layer, e);
}

/* Norms of a dense part and routed experts in parallel. */
static int bind_apart(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int rc;

    if ((rc = bind_norm(b, &w->routed_norm, TENSOR_ROUTED_NORM, layer, e)) ||
        (rc = bind_norm(b, &w->routed_after, TENSOR_ROUTED_AFTER, layer, e)) ||
        (rc = bind_norm(b, &w->shared_after, TENSOR_SHARED_AFTER, layer, e)))
        return rc;
    return bind_values(b, &w->router_norm.weight, TENSOR_ROUTER_NORM, layer, b->model->hp.hidden,
                       VECTOR_OVER_ROOT, 0, e);
}

static int bind_norms(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct layer_shape *s = hparams_layer(&b->model->hp, layer);
    enum tensor_role of_experts = s->parallel ? TENSOR_ATTENTION_NORM : TENSOR_EXPERT_NORM;
    int rc;

    if ((s->mixer.kind != MIXER_NONE &&
         (rc = bind_around(b, &w->attention_norm, &w->attention_after, TENSOR_ATTENTION_NORM,
                           TENSOR_ATTENTION_AFTER, layer, e))) ||
        (s->ffn.kind != FFN_NONE &&
         (rc = bind_around(b, &w->expert_norm, &w->expert_after, of_experts, TENSOR_EXPERT_AFTER,
                           layer, e))) ||
        (s->ffn.kind == FFN_DENSE_AND_ROUTED && (rc = bind_apart(b, w, layer, e))))
        return rc;
    if (s->weighted && ((rc = bind_residual(b, &w->mixed, TENSOR_MIXED_SCALE, layer, e)) ||
                        (rc = bind_residual(b, &w->combined, TENSOR_EXPERTS_SCALE, layer, e))))
        return rc;
    return s->scaled ? bind_values(b, &w->scale, TENSOR_LAYER_SCALE, layer, 1, VECTOR_PLAIN, 0, e)
                     : 0;
}

/* What joins the layer's own inputs to the stream. */
static int bind_layer_inputs(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int hidden = b->model->hp.hidden, n = hparams_layer(&b->model->hp, layer)->inputs, rc;

    if (!n)
        return 0;
    if ((rc = bind_plain(b, &w->input_gate, TENSOR_INPUT_GATE, layer, n, hidden, e)) ||
        (rc = bind_plain(b, &w->input_out, TENSOR_INPUT_OUT, layer, hidden, n, e)))
        return rc;
    return bind_norm(b, &w->input_after, TENSOR_INPUT_AFTER, layer, e);
}

/* What mixes the streams around a layer. */
static int bind_streams(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    const struct hparams *hp = &b->model->hp;
    int n = hp->streams, rc;

    if (!n || hparams_hyper(hp))
        return bind_hyper(b, w, layer, e);
    if ((rc = bind_norm(b, &w->stream_norm, TENSOR_STREAM_NORM, layer, e)) ||
        (rc = bind_matrix_values(b, &w->stream_router, TENSOR_STREAM_ROUTER, layer, n, hp->hidden,
                                 e)) ||
        (rc = bind_matrix_values(b, &w->stream_predict, TENSOR_STREAM_PREDICT, layer, n * n, n,
                                 e)) ||
        (rc = bind_matrix_values(b, &w->stream_correct, TENSOR_STREAM_CORRECT, layer, n, n, e)))
        return rc;
    return hp->streams_scaled
               ? bind_vector(b, &w->stream_scale, TENSOR_STREAM_SCALE, layer, hp->hidden, e)
               : 0;
}

/* The learned residual beside a layer's mixer. */
static int bind_laurel(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int hidden = b->model->hp.hidden, n = b->model->hp.laurel, rc;

    if (!n)
        return 0;
    if ((rc = bind_plain(b, &w->laurel_in, TENSOR_LAUREL_IN, layer, n, hidden, e)) ||
        (rc = bind_plain(b, &w->laurel_out, TENSOR_LAUREL_OUT, layer, hidden, n, e)))
        return rc;
    return bind_norm(b, &w->laurel_after, TENSOR_LAUREL_AFTER, layer, e);
}

static int bind_layer(struct binding *b, struct layer_weights *w, int layer, struct error *e)
{
    int rc;

    b->counted = &b->total.router_norms;
    if ((rc = bind_norms(b, w, layer, e)) || (rc = bind_router(b, w, layer, e)) ||
        (rc = bind_streams(b, w, layer, e)))
        return rc;
    b->counted = &b->total.attention;
    if ((rc = bind_mixer(b, w, layer, e)) || (rc = bind_layer_inputs(b, w, layer, e)) ||
        (rc = bind_laurel(b, w, layer, e)) || (rc = bind_ngrams(b, w, layer, e)))
        return rc;
    b->counted = &b->total.experts;
    return bind_experts(b, w, layer, e);
}

/* Pages of a row, which may start anywhere in a page. */
static size_t pages_of_row(size_t bytes)
{
    return (bytes + 2 * (size_t)PAGE - 2) / PAGE * PAGE;
}

/* Packings in which files have embeddings. */
static bool table_unpacked(const struct packed *p)
{
    return p->kind == PACKING_ROWS || p->kind == PACKING_MLX || p->kind == PACKING_MXFP4_ROWS ||
           p->kind == PACKING_NVFP4 || p->kind == PACKING_NVFP4_BLOCKS;
}

int bind_rows(struct binding *b, const struct tensor_view *t, enum tensor_role role, int cols,
              int rows, struct error *e)
{
    bool hashed = role == TENSOR_NGRAM_TABLE;

    if (!row_readable(t->type) ||
        (t->packed && (!table_unpacked(t->packed) || role == TENSOR_POSITIONS)))
        return error_set(e, ERR_MODEL, "%s: tensor %s has the type %s%s, which is not supported",
                         weight_file_path(b->model->file), t->name, dtype_info(t->type)->word,
                         t->packed ? ", packed" : "");
    b->total.embeddings += t->bytes;
    b->total.mapped += t->bytes;
    *(hashed ? &b->total.ngrams : &b->total.tables) += t->bytes;
    *(hashed ? &b->total.ngram_rows : &b->total.table_row) +=
        (uint64_t)rows * pages_of_row(dtype_row_bytes(t->type, cols));
    return 0;
}

/* A table whose rows are read in the mapped file: `rows` of them, or any number. */
static int bind_table(struct binding *b, struct tensor_view *table, enum tensor_role role,
                      int64_t rows, int cols, struct error *e)
{
    const struct tensor_view *t = want(b, role, 0, 0, e);
    int rc;

    if (!t)
        return ERR_MODEL;
    if ((rc = check_shape(b, t, rows ? rows : t->dims[0], cols, 0, e)) ||
        (rc = bind_rows(b, t, role, cols, 1, e)))
        return rc;
    *table = *t;
    return 0;
}

static int bind_positions(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int rc = bind_table(b, &m->positions, TENSOR_POSITIONS, 0, m->hp.hidden, e);

    if (!rc && m->positions.dims[0] <= m->hp.position_offset)
        return error_set(e, ERR_MODEL, "%s: tensor %s holds no position", weight_file_path(m->file),
                         m->positions.name);
    if (!rc)
        m->n_params += m->positions.dims[0] * m->hp.hidden;
    return rc;
}

/* Where tokens' inputs of single layers come from. The table may have fewer rows than the
 * vocabulary, whose last tokens stand for images and sounds. */
static int bind_inputs_table(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int n = hparams_inputs(&m->hp), rc;

    if (!n)
        return 0;
    if ((rc = bind_table(b, &m->input_table, TENSOR_INPUT_TABLE, 0, n, e)))
        return rc;
    m->n_params += m->input_table.dims[0] * n;
    b->counted = &b->total.router_norms;
    if ((rc = bind_vector(b, &m->input_norm, TENSOR_INPUT_NORM, 0, n / m->hp.n_layers, e)))
        return rc;
    b->counted = &b->total.attention;
    return bind_plain(b, &m->input_project, TENSOR_INPUT_PROJECT, 0, n, m->hp.hidden, e);
}

/* A square matrix of each stream but the first: a tensor each, or all in one. */
static int bind_stream_matrices(struct binding *b, struct matrix *to, enum tensor_role role,
                                struct error *e)
{
    int n = b->model->hp.streams - 1, hidden = b->model->hp.hidden, rc = 0;

    for (int i = 0; i < n && !rc; i++) {
        const struct tensor_view *t = want(b, role, 0, i, e);
        bool all = t && t->n_dims == 3;

        if (!t)
            return ERR_MODEL;
        if ((rc = all ? check_shape(b, t, n, hidden, hidden, e)
                      : check_shape(b, t, hidden, hidden, 0, e)))
            return rc;
        rc = add_matrix(b, &to[i], role, 0, t, all ? (int64_t)i * hidden : 0, hidden, hidden, e);
    }
    return rc;
}

static int bind_stream_ends(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int rc;

    if (!m->hp.streams)
        return 0;
    b->counted = &b->total.attention;
    if (hparams_hyper(&m->hp))
        return bind_hyper_end(b, e);
    if ((rc = bind_stream_matrices(b, m->stream_in, TENSOR_STREAM_IN, e)))
        return rc;
    return bind_stream_matrices(b, m->stream_out, TENSOR_STREAM_OUT, e);
}

/* Layers that read others' keys may have some, which are not used (Gemma 3n's files). */
static void skip_keys(struct binding *b)
{
    static const enum tensor_role own[] = {TENSOR_K, TENSOR_V, TENSOR_K_NORM};
    const struct hparams *hp = &b->model->hp;

    for (int l = 0; l < hp->n_layers; l++)
        for (size_t i = 0; i < sizeof own / sizeof *own && hparams_layer(hp, l)->mixer.keys_of;
             i++) {
            const struct tensor_view *t = family_tensor(b->family, b->model->file, own[i], l, 0,
                                                        false);

            if (t)
                b->used[t->index] = 1;
        }
}

static int bind_projections(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int width = m->hp.embedding_width, hidden = m->hp.hidden,
        rc = bind_matrix_values(b, &m->project_in, TENSOR_PROJECT_IN, 0, hidden, width, e);

    return rc ? rc
              : bind_matrix_values(b, &m->project_out, TENSOR_PROJECT_OUT, 0, width, hidden, e);
}

static bool has(const struct binding *b, enum tensor_role role)
{
    return family_tensor(b->family, b->model->file, role, 0, 0, false) != NULL;
}

/* Its join, whose halves may be two tensors. */
static int bind_join(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int hidden = m->hp.hidden, rc;
    const struct tensor_view *embedding, *state;

    if (!has(b, TENSOR_MTP_JOIN_EMBEDDING) && !has(b, TENSOR_MTP_JOIN_STATE))
        return bind_plain(b, &m->mtp.join, TENSOR_MTP_JOIN, 0, hidden, 2 * hidden, e);
    if (!(embedding = want(b, TENSOR_MTP_JOIN_EMBEDDING, 0, 0, e)) ||
        !(state = want(b, TENSOR_MTP_JOIN_STATE, 0, 0, e)))
        return ERR_MODEL;
    if ((rc = check_shape(b, embedding, hidden, hidden, 0, e)) ||
        (rc = check_shape(b, state, hidden, hidden, 0, e)))
        return rc;
    return add_job(
        b, TENSOR_MTP_JOIN, 0,
        (struct matrix_job){.matrix = &m->mtp.join, .tensor = embedding, .beside = state}, hidden,
        2 * hidden, e);
}

/* Binds the MTP block. */
static int bind_mtp(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    const struct model *of = b->options->mtp_of;
    int hidden = m->hp.hidden, rc = 0;

    if (has(b, TENSOR_MTP_EMBEDDINGS))
        rc = bind_table(b, &m->embeddings, TENSOR_MTP_EMBEDDINGS, m->hp.n_vocab, hidden, e);
    else
        m->embeddings = of->embeddings;
    if (rc)
        return rc;
    b->counted = &b->total.router_norms;
    if ((rc = bind_norm(b, &m->mtp.embedding_norm, TENSOR_MTP_EMBEDDING_NORM, 0, e)) ||
        (rc = bind_norm(b, &m->mtp.hidden_norm, TENSOR_MTP_HIDDEN_NORM, 0, e)))
        return rc;
    if (!has(b, TENSOR_MTP_NORM) && b->family->mtp_last_norm)
        m->output_norm = of->output_norm;
    else if ((rc = bind_norm(b, &m->output_norm, TENSOR_MTP_NORM, 0, e)))
        return rc;
    if (b->family->mtp_normed)
        m->mtp.state_norm = of->output_norm;
    b->counted = &b->total.attention;
    if ((rc = bind_join(b, e)) || (hparams_hyper(&m->hp) && (rc = bind_hyper_end(b, e))))
        return rc;
    b->counted = &b->total.head;
    if (has(b, TENSOR_MTP_HEAD))
        return bind_plain(b, &m->head, TENSOR_MTP_HEAD, 0, m->hp.n_vocab, hidden, e);
    m->head = of->head;
    m->head.lora = NULL; /* strengths are the model's sessions' */
    return 0;
}

static int bind_ends(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    int width = m->hp.embedding_width ? m->hp.embedding_width : m->hp.hidden, rc;

    if ((rc = bind_table(b, &m->embeddings, TENSOR_EMBEDDINGS, m->hp.n_vocab, width, e)) ||
        (m->hp.common.mixer.learned_positions && (rc = bind_positions(b, e))) ||
        (rc = bind_inputs_table(b, e)) || (rc = bind_stream_ends(b, e)))
        return rc;
    b->counted = &b->total.router_norms;
    if (m->hp.embedding_weighted &&
        ((rc = bind_vector(b, &m->embedding_scale, TENSOR_EMBEDDINGS_SCALE, 0, m->hp.hidden, e)) ||
         (rc = bind_vector(b, &m->embedding_shift, TENSOR_EMBEDDINGS_SHIFT, 0, m->hp.hidden, e))))
        return rc;
    if ((m->hp.embedding_width && (rc = bind_projections(b, e))) ||
        (norms_last(&m->hp.common.norms) &&
         (rc = bind_norm(b, &m->output_norm, TENSOR_OUTPUT_NORM, 0, e))))
        return rc;
    b->counted = &b->total.head;
    if (m->hp.tied_embeddings)
        return add_matrix(b, &m->head, TENSOR_HEAD, 0, want(b, TENSOR_EMBEDDINGS, 0, 0, e), 0,
                          m->hp.n_vocab, width, e);
    m->n_params += (int64_t)m->hp.n_vocab * width;
    return bind_plain(b, &m->head, TENSOR_HEAD, 0, m->hp.n_vocab, width, e);
}

/* Whether it is a tensor of a layer beyond the model's last. */
static bool behind_the_last(const struct binding *b, const char *name)
{
    int layer;

    return (sscanf(name, "model.layers.%d.", &layer) == 1 ||
            sscanf(name, "blk.%d.", &layer) == 1) &&
           layer >= b->model->hp.n_layers;
}

/* Purpose of an unused tensor, in words; NULL: unknown. */
static const char *purpose_of(const struct binding *b, const char *name)
{
    const char *what = family_ignores(b->family, name);

    return what ? what : b->family->extra_layers && behind_the_last(b, name) ? FAMILY_MTP : NULL;
}

#define PURPOSES 8

/* Counted by purpose, for the one-line report. */
struct unused {
    const char *what[PURPOSES];
    int tensors[PURPOSES];
};

static void count_unused(struct unused *u, const char *what)
{
    int i = 0;

    while (i < PURPOSES - 1 && u->what[i] && strcmp(u->what[i], what) != 0)
        i++;
    u->what[i] = what;
    u->tensors[i]++;
}

static void tell_unused(const struct unused *u, char *out, size_t size)
{
    for (int i = 0; i < PURPOSES && u->what[i]; i++)
        snprintf(out + strlen(out), size - strlen(out), "%s%d tensor%s of %s",
                 i ? ", " : "not used: ", u->tensors[i], u->tensors[i] == 1 ? "" : "s", u->what[i]);
}

/* An unknown tensor means a variant of the architecture that this program would compute wrongly. */
static int check_all_used(struct binding *b, struct error *e)
{
    const struct weight_file *f = b->model->file;
    struct unused unused = {0};
    static const enum tensor_role read_before[] = {TENSOR_ROPE_SHORT, TENSOR_ROPE_LONG,
                                                   TENSOR_ROPE_FREQS};

    for (size_t i = 0; i < sizeof read_before / sizeof *read_before; i++) {
        const struct tensor_view *t = family_tensor(b->family, f, read_before[i], 0, 0, false);

        if (t)
            b->used[t->index] = 1;
    }
    for (size_t i = 0; i < weight_file_count(f); i++) {
        const char *what = b->used[i] ? NULL : purpose_of(b, weight_file_at(f, i)->name);

        if (what && b->options->mtp_used && b->model->has_mtp && strcmp(what, FAMILY_MTP) == 0)
            continue;
        if (what)
            count_unused(&unused, what);
        else if (!b->used[i])
            return error_set(e, ERR_MODEL,
                             "%s: tensor %s is no part of a %s model of %d layers and %d experts",
                             weight_file_path(f), weight_file_at(f, i)->name, b->family->name,
                             b->model->hp.n_layers, b->model->hp.n_experts);
    }
    tell_unused(&unused, b->model->unused, sizeof b->model->unused);
    return 0;
}

int bind_model(struct binding *b, struct error *e)
{
    struct model *m = b->model;
    uint64_t most = 0;
    int rc;

    if (!(b->used = mem_alloc(weight_file_count(m->file), 1)))
        return error_set(e, ERR_MEMORY, "out of memory for the binding");
    if ((rc = b->options->mtp_of ? bind_mtp(b, e) : bind_ends(b, e)))
        return rc;
    for (int l = 0; l < m->hp.n_layers; l++)
        if ((rc = bind_layer(b, &m->layers[l], l, e)))
            return rc;
    skip_keys(b);
    if (!b->options->mtp_of && (rc = check_all_used(b, e)))
        return rc;
    join_arena(b);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (b->by_type[t] > most) {
            most = b->by_type[t];
            m->type = (enum dtype)t;
        }
    /* Active: parameters that a token is multiplied with. A look-up in the embeddings is not, so
     * those count only if they are the head. */
    m->n_params_active =
        m->n_params - (m->hp.tied_embeddings ? 0 : m->embeddings.dims[0] * m->embeddings.dims[1]) -
        (m->input_table.data ? m->input_table.dims[0] * m->input_table.dims[1] : 0);
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;
        const struct ngram_weights *g = &m->layers[l].ngrams;

        for (int i = 0; i < g->n_parts; i++)
            m->n_params_active -= g->parts[i]->dims[0] * g->parts[i]->dims[1];
        m->n_params_active -= (int64_t)(activation_gated(s->activation) ? 3 : 2) * m->hp.hidden *
                              s->width * (s->experts - s->used);
        if (s->grouped)
            m->n_params_active -= (int64_t)3 * m->hp.hidden * s->shared_width *
                                  (shape_further(s) - shape_further_used(s));
    }
    return 0;
}

void bind_release(struct binding *b)
{
    mem_free(b->matrices);
    mem_free(b->vectors);
    mem_free(b->used);
}
