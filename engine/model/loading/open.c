/* Opening a model: the steps in order, and its memory. Thread: the one that loads; afterwards any
 * thread reads. */
#include "engine/model/model.h"

#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/utf8.h"
#include "engine/file/packed.h"
#include "engine/layout/pack.h"
#include "engine/model/bind.h"
#include "engine/model/describe.h"
#include "engine/model/expert_cache.h"
#include "engine/model/finite.h"
#include "engine/model/gather.h"
#include "engine/model/hparams_read.h"
#include "engine/model/load.h"
#include "engine/model/repack.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena {
    uint8_t *data; /* NULL after model_inspect */
    size_t bytes;
};

static void name_model(struct model *m)
{
    struct meta_value v = weight_file_meta(m->file, "general.name");
    char real[PATH_MAX], *p = real;

    if (v.type == META_STRING && v.len && weight_file_format(m->file) == WEIGHT_GGUF) {
        utf8_strip(m->name, sizeof m->name, v.s, v.len, 0);
        return;
    }
    if (!realpath(weight_file_path(m->file), real))
        return;
    if (strrchr(p, '.') && (strcmp(strrchr(p, '.'), ".safetensors") == 0) && strrchr(p, '/'))
        *strrchr(p, '/') = 0; /* model.safetensors says nothing; its folder does */
    utf8_strip(m->name, sizeof m->name, path_name(real), strlen(path_name(real)), 0);
}

static int make_layers(struct model *m, struct error *e)
{
    struct expert_weights *all;
    size_t n = (size_t)m->hp.n_layers, experts = (size_t)m->hp.n_experts;

    m->layers = mem_alloc(n, sizeof *m->layers);
    all = m->layers ? mem_alloc(n * experts, sizeof *all) : NULL;
    if (!all)
        return error_set(e, ERR_MEMORY, "%s: out of memory", weight_file_path(m->file));
    for (size_t l = 0; l < n; l++)
        m->layers[l].experts = all + l * experts;
    return 0;
}

/* Whether the layers are described by config.json alone: for unsupported packings, families that
 * are only described, folders without weights. */
static bool by_config(const struct model *m, const struct family *family)
{
    const struct packing *p = weight_file_packing(m->file);

    return p->refused[0] || !weight_file_count(m->file) || (family->layers && !family->tensors);
}

/* Opens what a description needs: config.json of a folder, and the tensors too if only they define
 * the layers. */
static int open_file(struct model *m, const struct family **family, const char *path,
                     const struct overrides *overrides, struct error *e)
{
    int rc = weight_file_open(&m->file, path, true, e);
    struct weight_file *whole = NULL;
    bool described;

    if (!rc && (rc = weight_file_override(m->file, overrides, e)) < 0)
        return rc;
    if (!rc)
        rc = family_of(family, m->file, e);
    if (rc == ERR_MEMORY)
        return rc;
    if (!rc) {
        snprintf(m->packing_method, sizeof m->packing_method, "%s",
                 weight_file_packing(m->file)->method);
        if (weight_file_packing(m->file)->refused[0] || weight_file_count(m->file) ||
            ((*family)->layers && !(*family)->tensors))
            return 0;
    }
    described = !rc;
    rc = weight_file_open(&whole, path, false, e);
    if ((rc == ERR_MODEL || rc == ERR_IO) && described)
        return 0; /* by config.json alone; check_bindable decides about the weights */
    weight_file_close(m->file);
    m->file = whole;
    if (!rc)
        rc = weight_file_override(whole, overrides, e);
    return rc ? rc : family_of(family, m->file, e);
}

static int describe(struct model *m, const struct family **family, const char *path,
                    const struct overrides *overrides, struct error *e)
{
    int rc = open_file(m, family, path, overrides, e);

    if (rc)
        return rc;
    m->family = (*family)->name;
    name_model(m);
    return by_config(m, *family) ? hparams_describe(&m->hp, *family, m->file, e)
                                 : hparams_read(&m->hp, *family, m->file, e);
}

int model_describe(struct model **out, const char *path, const struct overrides *overrides,
                   struct error *e)
{
    struct model *m = mem_alloc(1, sizeof *m);
    const struct family *family = NULL;
    int rc;

    *out = NULL;
    if (!m)
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if ((rc = describe(m, &family, path, overrides, e))) {
        model_free(m);
        return rc;
    }
    *out = m;
    return 0;
}

/* Whether its weights can be bound for computing. */
static int check_bindable(const struct model *m, const struct family *family, struct error *e)
{
    struct weight_file *without = NULL;
    const struct packing *packing = weight_file_packing(m->file);
    int rc;

    if (packing->refused[0])
        return error_set(e, ERR_MODEL, "%s: its weights are packed by %s, which is not read: %s",
                         weight_file_path(m->file), packing->method, packing->refused);
    if ((rc = model_computable(&m->hp, e)))
        return error_prefix(e, "%s", weight_file_path(m->file));
    if (!family->tensors)
        return error_set(e, ERR_MODEL, "%s: models of the family %s are described, not computed",
                         weight_file_path(m->file), family->name);
    if (!weight_file_count(m->file) &&
        (rc = weight_file_open(&without, weight_file_path(m->file), false, e)) < 0)
        return rc; /* with the reason */
    weight_file_close(without);
    return 0;
}

/* The layer whose mixer the MTP block's is like: the family's choice, or the last one with
 * attention. */
static int mtp_like(const struct model *m, const struct binding *b, int *like, struct error *e)
{
    struct describer d = {.f = m->file, .family = b->family, .e = e};

    if (b->family->mtp_like && m->hp.layers) {
        *like = b->family->mtp_like(&m->hp, &d);
        return d.rc;
    }
    *like = m->hp.n_layers - 1;
    while (*like > 0 && hparams_layer(&m->hp, *like)->mixer.kind != MIXER_ATTENTION &&
           hparams_layer(&m->hp, *like)->mixer.kind != MIXER_MLA)
        --*like;
    return 0;
}

/* The block's feed-forward by its tensors: dense where it has no router, else as that of the last
 * layer with experts, without its limits. */
static struct ffn_shape mtp_ffn(const struct model *m, const struct binding *b,
                                const struct ffn_shape *like)
{
    const struct tensor_view *down = family_tensor(&b->mtp, m->file, TENSOR_DENSE_DOWN, 0, 0,
                                                   false);
    struct ffn_shape s = *like;
    int l = m->hp.n_layers - 1;

    while (l > 0 && !m->hp.layers[l].ffn.experts)
        l--;
    if (family_tensor(&b->mtp, m->file, TENSOR_ROUTER, 0, 0, false))
        s = m->hp.layers[l].ffn;
    else if (down && down->n_dims == 2 && down->dims[1] > 0 && down->dims[1] <= 1 << 24)
        describe_dense(&s, (int)down->dims[1]);
    if (s.activation == ACTIVATION_BOUNDED_SILU) {
        s.activation = ACTIVATION_SILU;
        s.limit = s.shared_limit = 0.0f;
    }
    return s;
}

/* Of a model whose layers differ: the first one's shape becomes the block's, that of the layer
 * `like` but for what is its own. */
static int shape_mtp(struct model *m, const struct binding *b, int like, struct error *e)
{
    struct describer d = {.f = m->file, .family = b->family, .e = e};
    struct layer_shape s = m->hp.layers[like];

    s.ffn = mtp_ffn(m, b, &s.ffn);
    s.shortcut = SHORTCUT_NONE;
    if (b->family->mtp_layer)
        b->family->mtp_layer(&m->hp, &s, &d);
    m->hp.layers[0] = s;
    return d.rc;
}

/* Makes the model the MTP block of its file: one layer. */
static int describe_mtp(struct model *m, struct binding *b, struct error *e)
{
    int n = m->hp.n_layers, like, rc;

    if (!family_mtp(b->family, m->file, n, &b->mtp))
        return error_set(e, ERR_USAGE, "%s has no block that predicts further tokens",
                         weight_file_path(m->file));
    if ((rc = mtp_like(m, b, &like, e)))
        return rc;
    if (m->hp.layers && (rc = shape_mtp(m, b, like, e)))
        return rc;
    if (m->hp.layers && b->mtp.mtp_sees_all) {
        m->hp.layers[0].mixer.window = 0;
        m->hp.layers[0].mixer.rope = m->hp.common.mixer.rope;
        m->hp.layers[0].mixer.rope_dims = m->hp.common.mixer.rope_dims;
    }
    m->hp.n_layers = 1;
    hparams_count(&m->hp);
    b->family = &b->mtp;
    return 0;
}

/* Everything except the weights' bytes. */
static int prepare(struct model *m, struct binding *b, const char *path, struct error *e)
{
    int rc;

    if (!(m->arena = mem_alloc(1, sizeof *m->arena)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if ((rc = describe(m, &b->family, path, b->options->overrides, e)) ||
        (rc = check_bindable(m, b->family, e)))
        return rc;
    m->has_mtp = family_mtp(b->family, m->file, m->hp.n_layers, &b->mtp);
    if ((b->options->mtp_of && (rc = describe_mtp(m, b, e))) || (rc = make_layers(m, e)))
        return rc;
    return bind_model(b, e);
}

static int open_model(struct model **out, const char *path, const struct model_options *o,
                      struct model_footprint *needs, bool load, struct error *e)
{
    struct model *m = mem_alloc(1, sizeof *m);
    struct binding b = {.model = m, .options = o};
    int rc;

    *out = NULL;
    if (!m)
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if (o->convert >= 0 && !row_writable((enum dtype)o->convert)) {
        rc = error_set(e, ERR_USAGE,
                       "--dtype %s: weights are not converted to it while loading; --quantize "
                       "makes a file of it",
                       dtype_info((enum dtype)o->convert)->word);
        goto out;
    }
    if ((rc = prepare(m, &b, path, e)))
        goto out;
    b.total.cache = b.total.on_disk ? expert_cache_footprint(m, &b, &b.total.cache_least) : 0;
    if (needs)
        *needs = b.total;
    m->cache_bytes = (size_t)b.total.cache;
    m->mapped_bytes = (size_t)b.total.mapped;
    m->packed_bytes = b.arena;
    if (!load) {
        static const float nothing;

        for (size_t i = 0; i < b.n_vectors; i++) /* marks the existing norms and biases */
            *b.vectors[i].vector = &nothing;
        goto out;
    }
    if ((rc = expert_cache_new(&m->cache, m, &b, e)) < 0)
        goto out;
    m->hash = weight_file_hash(m->file) ^ (o->overrides ? overrides_hash(o->overrides) : 0);
    m->hash ^= o->mtp_of ? 0x66757274686572u : 0;
    if (o->convert >= 0)
        m->hash = (m->hash ^ (uint64_t)(o->convert + 1)) * 0x9e3779b97f4a7c15u;
    if (b.arena && !(m->arena->data = mem_pages(b.arena))) {
        rc = error_set(e, ERR_MEMORY, "%s: %.1f GB of memory for the weights are not there", path,
                       (double)b.arena / 1e9);
        goto out;
    }
    m->arena->bytes = b.arena;
    rc = load_weights(&b, m->arena->data, e);
out:
    bind_release(&b);
    if (rc) {
        model_free(m);
        m = NULL;
    }
    *out = m;
    return rc;
}

/* Separates the heads of a matrix with two kinds of rows, as for computing. */
static int open_raw_heads(const struct matrix_job *j, uint8_t *room, struct error *e)
{
    const struct piece all = {.job = j, .count = j->matrix->rows};
    uint8_t *scratch = mem_alloc(repack_scratch(j), 1);

    if (!scratch)
        return error_set(e, ERR_MEMORY, "out of memory for %s", j->tensor->name);
    (void)repack(&all, room, scratch);
    mem_free(scratch);
    return 0;
}

/* In the file if its rows are consecutive there; others are gathered, except a GGUF file's heads,
 * whose tensors are accessed directly. */
static int open_raw_matrix(const struct binding *b, const struct matrix_job *j, struct error *e)
{
    struct matrix *x = j->matrix;
    uint8_t *room = b->model->arena->data + j->to;

    x->width = 0;
    x->bytes = (size_t)x->rows * dtype_row_bytes(x->type, x->cols);
    x->data = room;
    if (j->split.stride && weight_file_format(b->model->file) != WEIGHT_GGUF)
        return open_raw_heads(j, room, e);
    if (j->split.stride || !gathered(j))
        x->data = (const uint8_t *)j->tensor->data + j->from;
    else if (x->type == job_type(j))
        gather_rows(j, 0, x->rows, room);
    else /* only packed ones have another type here */
        for (int r = 0; r < x->rows; r++)
            gather_values(j, r, (float *)(void *)room + (size_t)r * (size_t)x->cols);
    return 0;
}

int model_open_raw(struct model **out, const char *path, const struct model *mtp_of,
                   struct error *e)
{
    struct model *m = mem_alloc(1, sizeof *m);
    struct model_options o = {
        .mtp_of = mtp_of, .mtp_used = true, .convert = -1, .in_file_order = true, .width = 8};
    struct binding b = {.model = m, .options = &o};
    int rc;

    *out = NULL;
    if (!m)
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if ((rc = prepare(m, &b, path, e)))
        goto out;
    /* Matrices stay in the file, so only the vectors need memory; their offsets are those of the
     * whole arena, whose other pages stay untouched. */
    if (b.arena && !(m->arena->data = mem_pages(b.arena))) {
        rc = error_set(e, ERR_MEMORY, "%s: out of memory", path);
        goto out;
    }
    m->arena->bytes = b.arena;
    load_vectors(&b, m->arena->data);
    for (size_t i = 0; i < b.n_matrices && !rc; i++)
        rc = open_raw_matrix(&b, &b.matrices[i], e);
    if (rc)
        goto out;
    m->packed_bytes = 0;
    m->mapped_bytes = (size_t)weight_file_bytes(m->file);
out:
    bind_release(&b);
    if (rc) {
        model_free(m);
        m = NULL;
    }
    *out = m;
    return rc;
}

int model_load(struct model **out, const char *path, const struct model_options *o, struct error *e)
{
    return open_model(out, path, o, NULL, true, e);
}

int model_inspect(struct model **out, const char *path, const struct model_options *o,
                  struct model_footprint *needs, struct error *e)
{
    return open_model(out, path, o, needs, false, e);
}

void model_free(struct model *m)
{
    if (!m)
        return;
    load_stop(m->packing);
    expert_cache_free(m->cache);
    for (int l = 0; m->layers && l < m->hp.n_layers; l++)
        mem_free(m->layers[l].ngrams.parts);
    if (m->layers)
        mem_free(m->layers[0].experts);
    mem_free(m->layers);
    mem_free(m->hp.layers);
    mem_free(m->hp.short_factor);
    mem_free(m->hp.long_factor);
    if (m->arena)
        mem_pages_free(m->arena->data, m->arena->bytes);
    mem_free(m->arena);
    weight_file_close(m->file);
    mem_free(m);
}

int model_positions(const struct model *m)
{
    if (m->positions.data)
        return (int)m->positions.dims[0] - m->hp.position_offset;
    return m->hp.rope_within ? m->hp.context_max : 0;
}

void model_norm(const struct model *m, const struct norm_weights *norm, const float *x, float *out)
{
    bool layer = m->hp.common.norms.kind == NORM_LAYER;
    float mean = 0.0f, squares = 0.0f, by;
    int n = m->hp.hidden;

    if (!norm->weight) {
        memmove(out, x, (size_t)n * sizeof *x);
        return;
    }
    for (int i = 0; i < n && layer; i++)
        mean += x[i] / (float)n;
    for (int i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    by = 1.0f / sqrtf(squares / (float)n + m->hp.common.norms.eps);
    for (int i = 0; i < n; i++)
        out[i] = (x[i] - mean) * by * norm->weight[i] + (norm->bias ? norm->bias[i] : 0.0f);
}

void model_project(const float *w, int rows, int cols, const float *x, float *y)
{
    for (int r = 0; r < rows; r++, w += cols) {
        float sum = 0.0f;

        for (int c = 0; c < cols; c++)
            sum = sum + w[c] * x[c];
        y[r] = sum;
    }
}

static void table_row(const struct tensor_view *t, int64_t row, float *out)
{
    size_t bytes = dtype_row_bytes(t->type, t->dims[1]);

    if (t->packed)
        packed_values(t, row, out);
    else
        row_to_f32(t->type, (const uint8_t *)t->data + (size_t)row * bytes, t->dims[1], out);
}

#define PIECE 256 /* values of a row */

/* A piece of the row at a time, so that no buffer for it is needed. */
static int add_position(const struct model *m, int pos, float *out, struct error *e)
{
    const struct tensor_view *t = &m->positions;
    size_t bytes = dtype_row_bytes(t->type, t->dims[1]), at = (size_t)(pos + m->hp.position_offset);
    float row[PIECE];

    for (int i = 0; i < m->hp.hidden; i += PIECE) {
        int n = m->hp.hidden - i < PIECE ? m->hp.hidden - i : PIECE;

        row_to_f32(t->type, (const uint8_t *)t->data + at * bytes + dtype_row_bytes(t->type, i), n,
                   row);
        if (!values_finite(row, n))
            return tensor_broken(m->file, t->name, e);
        for (int k = 0; k < n; k++)
            out[i + k] = out[i + k] + row[k];
    }
    return 0;
}

int model_inputs(const struct model *m, int id, float *out, struct error *e)
{
    int n = hparams_inputs(&m->hp);
    float scale = sqrtf((float)(n / m->hp.n_layers));

    table_row(&m->input_table, id < m->input_table.dims[0] ? id : 0, out);
    if (!values_finite(out, n))
        return tensor_broken(m->file, m->input_table.name, e);
    for (int i = 0; i < n; i++)
        out[i] *= scale;
    return 0;
}

static void norm_embedding(float *x, int n, float eps)
{
    double squares = 0.0;
    float by;

    for (int i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    by = (float)(1.0 / sqrt(squares / n + (double)eps));
    for (int i = 0; i < n; i++)
        x[i] *= by;
}

int model_embed(const struct model *m, int id, int pos, float *out, struct error *e)
{
    float narrow[HPARAMS_EMBEDDING_MOST], *row = m->project_in ? narrow : out;
    int n = m->hp.embedding_width ? m->hp.embedding_width : m->hp.hidden;

    table_row(&m->embeddings, id, row);
    if (!values_finite(row, n))
        return tensor_broken(m->file, m->embeddings.name, e);
    for (int i = 0; i < n && m->hp.embedding_scale != 0.0f; i++)
        row[i] *= m->hp.embedding_scale;
    for (int i = 0; i < n && m->embedding_scale; i++)
        row[i] = (row[i] + m->embedding_shift[i]) * m->embedding_scale[i];
    if (m->hp.embedding_normed)
        norm_embedding(row, n, m->hp.common.norms.eps);
    if (m->project_in)
        model_project(m->project_in, m->hp.hidden, n, row, out);
    return m->positions.data ? add_position(m, pos, out, e) : 0;
}
