/* See importance_gather.h. One table of the matrices by address, sorted, so that a compute thread
 * finds its sums; a second one of the tensors they are parts of. The sums of matrices in one tensor
 * (experts) are consecutive. */
#include "engine/convert/importance_gather.h"

#include "engine/base/mem.h"
#include "engine/convert/export_list.h"
#include "engine/convert/export_order.h"
#include "engine/file/gguf_write.h"
#include "engine/model/block.h"
#include "engine/model/family.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor's sums: (matrices, cols), and the number of rows for each matrix. */
struct tensor_sums {
    char name[64];
    char also[64]; /* a second tensor with the same input; empty: none */
    int matrices, cols;
    float *squares, *rows;
    bool routed;
    /* heads whose values are the columns, in another order in the file; NULL: unchanged */
    const struct mixer_shape *dealt;
};

struct met {
    const struct matrix *w;
    int sums, index; /* index of the tensor, of its matrix */
    int part;        /* rows of each of several stacked matrices */
};

struct importance_gather {
    const struct model *m;
    const struct family *family;
    struct tensor_sums *sums;
    int n_sums, sums_room;
    struct met *met;
    int n_met, met_room;
};

/* GGUF tensor roles that may contain a part of a block; those common to experts are named
 * separately. */
static const enum tensor_role roles[MATRIX_PARTS][4] = {
    [MATRIX_Q] = {TENSOR_Q, TENSOR_Q_B, TENSOR_QKV, TENSOR_ROLES},
    [MATRIX_K] = {TENSOR_K, TENSOR_ROLES},
    [MATRIX_V] = {TENSOR_V, TENSOR_ROLES},
    [MATRIX_O] = {TENSOR_O, TENSOR_ROLES},
    [MATRIX_IN] = {TENSOR_MIX_IN, TENSOR_ROLES},
    [MATRIX_Z] = {TENSOR_MIX_Z, TENSOR_ROLES},
    [MATRIX_B] = {TENSOR_MIX_B, TENSOR_ROLES},
    [MATRIX_A] = {TENSOR_MIX_A, TENSOR_ROLES},
    [MATRIX_Z_IN] = {TENSOR_MIX_Z_IN, TENSOR_ROLES},
    [MATRIX_A_IN] = {TENSOR_MIX_A_IN, TENSOR_ROLES},
    [MATRIX_Q_A] = {TENSOR_Q_A, TENSOR_ROLES},
    [MATRIX_KV_A] = {TENSOR_KV_A, TENSOR_ROLES},
    [MATRIX_K_B] = {TENSOR_K_B, TENSOR_ROLES}, /* a matrix per head */
    [MATRIX_V_B] = {TENSOR_V_B, TENSOR_ROLES},
    [MATRIX_INDEX_Q] = {TENSOR_INDEX_Q, TENSOR_ROLES},
    [MATRIX_INDEX_K] = {TENSOR_INDEX_K, TENSOR_ROLES},
    [MATRIX_INDEX_WEIGHTS] = {TENSOR_INDEX_WEIGHTS, TENSOR_ROLES},
    [MATRIX_INDEX_GATE] = {TENSOR_INDEX_GATE, TENSOR_ROLES},
    [MATRIX_COMPRESS_KEYS] = {TENSOR_COMPRESS_KEYS, TENSOR_ROLES},
    [MATRIX_COMPRESS_GATES] = {TENSOR_COMPRESS_GATES, TENSOR_ROLES},
    [MATRIX_O_A] = {TENSOR_ROLES}, /* each group of heads has other inputs */
    [MATRIX_INPUT_GATE] = {TENSOR_INPUT_GATE, TENSOR_ROLES},
    [MATRIX_INPUT_OUT] = {TENSOR_INPUT_OUT, TENSOR_ROLES},
    [MATRIX_INPUT_PROJECT] = {TENSOR_INPUT_PROJECT, TENSOR_ROLES},
    [MATRIX_LAUREL_IN] = {TENSOR_LAUREL_IN, TENSOR_ROLES},
    [MATRIX_LAUREL_OUT] = {TENSOR_LAUREL_OUT, TENSOR_ROLES},
    [MATRIX_V_BEFORE] = {TENSOR_V_BEFORE, TENSOR_ROLES},
    [MATRIX_NGRAM_KEY] = {TENSOR_NGRAM_KEY, TENSOR_ROLES},
    [MATRIX_NGRAM_VALUE] = {TENSOR_NGRAM_VALUE, TENSOR_ROLES},
    [MATRIX_HYPER_MIXER_DOWN] = {TENSOR_HYPER_MIXER_DOWN, TENSOR_ROLES},
    [MATRIX_HYPER_MIXER_UP] = {TENSOR_HYPER_MIXER_UP, TENSOR_ROLES},
    [MATRIX_HYPER_MIXER_MIX] = {TENSOR_HYPER_MIXER_MIX, TENSOR_ROLES},
    [MATRIX_HYPER_FFN_DOWN] = {TENSOR_HYPER_FFN_DOWN, TENSOR_ROLES},
    [MATRIX_HYPER_FFN_UP] = {TENSOR_HYPER_FFN_UP, TENSOR_ROLES},
    [MATRIX_HYPER_FFN_MIX] = {TENSOR_HYPER_FFN_MIX, TENSOR_ROLES},
    [MATRIX_HYPER_END_DOWN] = {TENSOR_HYPER_END_DOWN, TENSOR_ROLES},
    [MATRIX_HYPER_END_UP] = {TENSOR_HYPER_END_UP, TENSOR_ROLES},
    [MATRIX_HYPER_END_MIX] = {TENSOR_HYPER_END_MIX, TENSOR_ROLES},
    [MATRIX_STREAM_IN] = {TENSOR_ROLES}, /* several in one tensor, which is not rounded */
    [MATRIX_STREAM_OUT] = {TENSOR_ROLES},
    [MATRIX_GATE] = {TENSOR_GATES, TENSOR_GATE_UPS, TENSOR_ROLES},
    [MATRIX_UP] = {TENSOR_UPS, TENSOR_ROLES},
    [MATRIX_DOWN] = {TENSOR_DOWNS, TENSOR_ROLES},
    [MATRIX_HEAD] = {TENSOR_ROLES}, /* only a text's last row reaches it, as in llama-imatrix */
};
static const enum tensor_role shared_roles[MATRIX_PARTS][4] = {
    [MATRIX_GATE] = {TENSOR_SHARED_GATE, TENSOR_DENSE_GATE, TENSOR_SHARED_GATE_UP, TENSOR_ROLES},
    [MATRIX_UP] = {TENSOR_SHARED_UP, TENSOR_DENSE_UP, TENSOR_ROLES},
    [MATRIX_DOWN] = {TENSOR_SHARED_DOWN, TENSOR_DENSE_DOWN, TENSOR_ROLES},
};

static bool in_gguf(const struct importance_gather *g)
{
    return weight_file_format(g->m->file) == WEIGHT_GGUF;
}

/* The tensor's name in the model's GGUF file, or in an exported one; false: no tensor of this
 * role. */
static bool name_of(const struct importance_gather *g, enum tensor_role role, int layer, char *name,
                    size_t size)
{
    const struct tensor_view *t;

    if (in_gguf(g)) {
        t = family_tensor(g->family, g->m->file, role, layer, 0, false);
        snprintf(name, size, "%s", t ? t->name : "");
    } else {
        family_gguf_name(g->family, role, layer,
                         shape_recurrent(&hparams_layer(&g->m->hp, layer)->mixer), false, name,
                         size);
    }
    return name[0] != 0;
}

/* Roles of tensors that may contain a matrix, ended by TENSOR_ROLES; a single one for exports of a
 * folder. */
static const enum tensor_role *roles_of(const struct importance_gather *g, struct block_id id,
                                        enum matrix_part part, bool shared,
                                        enum tensor_role written[2])
{
    if (in_gguf(g))
        return shared ? shared_roles[part] : roles[part];
    written[0] = part == MATRIX_HEAD ? TENSOR_ROLES : export_role_of(g->m, id, part);
    written[1] = TENSOR_ROLES;
    if (g->family->gguf_fused && (written[0] == TENSOR_GATES || written[0] == TENSOR_UPS))
        written[0] = written[0] == TENSOR_GATES ? TENSOR_GATE_UPS : TENSOR_ROLES;
    return written;
}

static struct tensor_sums *sums_named(struct importance_gather *g, const char *name)
{
    for (int i = g->n_sums - 1; i >= 0 && i >= g->n_sums - 64; i--)
        if (strcmp(g->sums[i].name, name) == 0)
            return &g->sums[i];
    return NULL;
}

static int add_sums(struct importance_gather *g, const char *name, int matrices, int cols,
                    bool routed, struct error *e)
{
    struct tensor_sums *s;

    if (sums_named(g, name))
        return 0;
    if (!MEM_ROOM(g->sums, g->n_sums, g->sums_room, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
    s = &g->sums[g->n_sums++];
    *s = (struct tensor_sums){.matrices = matrices, .cols = cols, .routed = routed};
    snprintf(s->name, sizeof s->name, "%s", name);
    s->squares = mem_alloc((size_t)matrices * (size_t)cols, sizeof *s->squares);
    s->rows = mem_alloc((size_t)matrices, sizeof *s->rows);
    if (!s->squares || !s->rows)
        return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
    memset(s->squares, 0, (size_t)matrices * (size_t)cols * sizeof *s->squares);
    memset(s->rows, 0, (size_t)matrices * sizeof *s->rows);
    return 0;
}

static int add_met(struct importance_gather *g, const struct matrix *w, int sums, int index,
                   int part, struct error *e)
{
    if (!MEM_ROOM(g->met, g->n_met, g->met_room, 1024))
        return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
    g->met[g->n_met++] = (struct met){w, sums, index, part};
    return 0;
}

/* The file's column order and additional tensors. */
static void mind_mixer(struct importance_gather *g, struct tensor_sums *s, struct block_id id,
                       enum matrix_part part)
{
    const struct mixer_shape *mixer = &hparams_layer(&g->m->hp, id.layer)->mixer;

    if (id.kind != BLOCK_ATTENTION || in_gguf(g))
        return;
    if (part == MATRIX_O && export_heads_dealt(g->family, mixer))
        s->dealt = mixer;
    if (part == MATRIX_IN && mixer->kind == MIXER_DELTA_NET && !g->m->layers[id.layer].z.bytes)
        (void)name_of(g, TENSOR_MIX_Z, id.layer, s->also, sizeof s->also);
}

/* Number of matrices in the tensor of a part: experts, or heads. */
static int matrices_of(const struct importance_gather *g, struct block_id id, enum matrix_part part,
                       bool routed)
{
    const struct layer_shape *s = hparams_layer(&g->m->hp, id.layer);

    return routed ? s->ffn.experts : part == MATRIX_K_B || part == MATRIX_V_B ? s->mixer.heads : 1;
}

/* A matrix is assigned to the first tensor that may contain it; other parts of that tensor have the
 * same input. */
static int add_matrix(struct importance_gather *g, struct block_id id, const struct block_matrix *b,
                      struct error *e)
{
    const struct ffn_shape *f = &hparams_layer(&g->m->hp, id.layer)->ffn;
    bool expert = id.kind == BLOCK_EXPERT, routed = expert && id.expert < f->experts;
    enum tensor_role written[2];
    const enum tensor_role *list = roles_of(g, id, b->part, expert && !routed, written);
    int n = matrices_of(g, id, b->part, routed), rc;
    char name[64];

    for (; *list != TENSOR_ROLES; list++) {
        if (!name_of(g, *list, id.layer, name, sizeof name))
            continue;
        if ((rc = add_sums(g, name, n, b->w->cols, routed, e)))
            return rc;
        mind_mixer(g, sums_named(g, name), id, b->part);
        return add_met(g, b->w, (int)(sums_named(g, name) - g->sums), routed ? id.expert : 0,
                       routed ? b->w->rows : b->w->rows / n, e);
    }
    return 0;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const struct met *)a)->w, y = (uintptr_t)((const struct met *)b)->w;

    return (x > y) - (x < y);
}

int importance_gather_new(struct importance_gather **out, const struct model *m, struct error *e)
{
    struct importance_gather *g = mem_alloc(1, sizeof *g);
    struct block_matrix list[BLOCK_MATRICES];
    int rc;

    *out = NULL;
    if (!g)
        return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
    *g = (struct importance_gather){.m = m};
    rc = family_of(&g->family, m->file, e);
    for (struct block_id id = BLOCK_BEFORE; rc == 0 && model_block_next(m, &id);) {
        int n = id.kind == BLOCK_HEAD ? 0 : model_block_matrices(m, id, list);

        for (int i = 0; i < n && rc == 0; i++)
            rc = add_matrix(g, id, &list[i], e);
    }
    if (rc == 0 && !g->n_met)
        rc = error_set(e, ERR_MODEL, "%s: its matrices have no names in GGUF files",
                       weight_file_path(m->file));
    if (rc < 0) {
        importance_gather_free(g);
        return rc;
    }
    qsort(g->met, (size_t)g->n_met, sizeof *g->met, by_address);
    *out = g;
    return 0;
}

void importance_gather_free(struct importance_gather *g)
{
    for (int i = 0; g && i < g->n_sums; i++) {
        mem_free(g->sums[i].squares);
        mem_free(g->sums[i].rows);
    }
    if (g) {
        mem_free(g->sums);
        mem_free(g->met);
    }
    mem_free(g);
}

float *importance_squares(void *ctx, const struct matrix *w, int row, int n)
{
    const struct importance_gather *g = ctx;
    const struct met key = {.w = w},
                     *m = bsearch(&key, g->met, (size_t)g->n_met, sizeof key, by_address);
    struct tensor_sums *s = m ? &g->sums[m->sums] : NULL;

    int index;

    if (!s || row % m->part)
        return NULL;
    index = m->index + row / m->part;
    assert(s->cols == w->cols && index < s->matrices);
    s->rows[index] += (float)n;
    return s->squares + (size_t)index * (size_t)s->cols;
}

static void put_about(struct gguf_writer *w, const struct importance_about *about)
{
    gguf_put_string(w, "general.type", "imatrix", 7);
    gguf_put_array(w, "imatrix.datasets", GGUF_STRING, 1);
    gguf_add_string(w, about->text, strlen(about->text));
    gguf_put_u32(w, "imatrix.chunk_count", (uint32_t)about->chunks);
    gguf_put_u32(w, "imatrix.chunk_size", (uint32_t)about->chunk_tokens);
}

static void put_tensor(struct gguf_writer *w, const struct tensor_sums *s, const char *tensor)
{
    char name[96];

    snprintf(name, sizeof name, "%s.in_sum2", tensor);
    gguf_write_tensor(w, name, DTYPE_F32, 2, (int64_t[]){s->matrices, s->cols});
    snprintf(name, sizeof name, "%s.counts", tensor);
    gguf_write_tensor(w, name, DTYPE_F32, 2, (int64_t[]){s->matrices, 1});
}

static void put_tensors(struct gguf_writer *w, const struct importance_gather *g)
{
    for (int i = 0; i < g->n_sums; i++) {
        put_tensor(w, &g->sums[i], g->sums[i].name);
        if (g->sums[i].also[0])
            put_tensor(w, &g->sums[i], g->sums[i].also);
    }
}

static int write_squares(struct gguf_writer *w, const struct tensor_sums *s, struct error *e)
{
    size_t bytes = (size_t)s->matrices * (size_t)s->cols * sizeof *s->squares;
    int dim = s->dealt ? s->dealt->value_dim : 0, rc = 0;

    if (!dim)
        return gguf_write_data(w, s->squares, bytes, e);
    for (int head = 0; head < s->dealt->heads && !rc; head++)
        rc = gguf_write_data(w, s->squares + export_dealt_head(s->dealt, head) * dim,
                             (size_t)dim * sizeof *s->squares, e);
    return rc;
}

static int write_sums(struct gguf_writer *w, const struct tensor_sums *s, struct error *e)
{
    int rc = 0;

    for (int n = s->also[0] ? 2 : 1; n > 0 && !rc; n--)
        if ((rc = write_squares(w, s, e)) == 0)
            rc = gguf_write_data(w, s->rows, (size_t)s->matrices * sizeof *s->rows, e);
    return rc;
}

int importance_gather_write(const struct importance_gather *g, const char *path,
                            const struct importance_about *about, int *experts, int *unmet,
                            struct error *e)
{
    struct gguf_writer *w;
    int rc = gguf_write_open(&w, path, e);

    *experts = *unmet = 0;
    if (rc < 0)
        return rc;
    put_about(w, about);
    put_tensors(w, g);
    rc = gguf_write_begin(w, e);
    for (int i = 0; i < g->n_sums && rc == 0; i++) {
        const struct tensor_sums *s = &g->sums[i];

        rc = write_sums(w, s, e);
        for (int k = 0; s->routed && strstr(s->name, "ffn_down") && k < s->matrices; k++) {
            ++*experts;
            *unmet += s->rows[k] == 0.0f;
        }
    }
    if (rc < 0) {
        gguf_write_abort(w);
        return rc;
    }
    return gguf_write_finish(w, e);
}
