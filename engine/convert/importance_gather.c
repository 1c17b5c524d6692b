/* See importance_gather.h. One table of the matrices by address, sorted, so that a compute thread
 * finds its sums; a second one of the tensors they are parts of. Matrices that stand beside each
 * other as one tensor (experts) have their sums one behind the other. */
#include "engine/convert/importance_gather.h"

#include "engine/base/mem.h"
#include "engine/file/gguf_write.h"
#include "engine/model/block.h"
#include "engine/model/family.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A tensor's sums: (matrices, cols), and the rows that each matrix met. */
struct tensor_sums {
    char name[64];
    int matrices, cols;
    float *squares, *rows;
    bool routed;
};

struct met {
    const struct matrix *w;
    int sums, index; /* which tensor, which matrix of it */
};

struct importance_gather {
    const struct model *m;
    const struct family *family;
    struct tensor_sums *sums;
    int n_sums, sums_room;
    struct met *met;
    int n_met, met_room;
};

/* What tensors of a GGUF file a part of a block may lie in; what experts share is named apart. */
static const enum tensor_role roles[MATRIX_PARTS][4] = {
    [MATRIX_Q] = {TENSOR_Q, TENSOR_Q_B, TENSOR_QKV, TENSOR_ROLES},
    [MATRIX_K] = {TENSOR_K, TENSOR_ROLES},
    [MATRIX_V] = {TENSOR_V, TENSOR_ROLES},
    [MATRIX_O] = {TENSOR_O, TENSOR_ROLES},
    [MATRIX_IN] = {TENSOR_MIX_IN, TENSOR_ROLES},
    [MATRIX_Z] = {TENSOR_MIX_Z, TENSOR_ROLES},
    [MATRIX_B] = {TENSOR_MIX_B, TENSOR_ROLES},
    [MATRIX_A] = {TENSOR_MIX_A, TENSOR_ROLES},
    [MATRIX_Q_A] = {TENSOR_Q_A, TENSOR_ROLES},
    [MATRIX_KV_A] = {TENSOR_KV_A, TENSOR_ROLES},
    [MATRIX_K_B] = {TENSOR_ROLES}, /* heads' matrices: not told */
    [MATRIX_V_B] = {TENSOR_ROLES},
    [MATRIX_GATE] = {TENSOR_GATES, TENSOR_GATE_UPS, TENSOR_ROLES},
    [MATRIX_UP] = {TENSOR_UPS, TENSOR_ROLES},
    [MATRIX_DOWN] = {TENSOR_DOWNS, TENSOR_ROLES},
    [MATRIX_HEAD] = {TENSOR_ROLES}, /* it meets a text's last row alone, as in llama-imatrix */
};
static const enum tensor_role shared_roles[MATRIX_PARTS][4] = {
    [MATRIX_GATE] = {TENSOR_SHARED_GATE, TENSOR_DENSE_GATE, TENSOR_SHARED_GATE_UP, TENSOR_ROLES},
    [MATRIX_UP] = {TENSOR_SHARED_UP, TENSOR_DENSE_UP, TENSOR_ROLES},
    [MATRIX_DOWN] = {TENSOR_SHARED_DOWN, TENSOR_DENSE_DOWN, TENSOR_ROLES},
};

/* The tensor's name in the model's GGUF file, or in the one that would be written; false: there is
 * none of this role. */
static bool name_of(const struct importance_gather *g, enum tensor_role role, int layer, char *name,
                    size_t size)
{
    const struct tensor_view *t;

    if (weight_file_format(g->m->file) == WEIGHT_GGUF) {
        t = family_tensor(g->family, g->m->file, role, layer, 0, false);
        snprintf(name, size, "%s", t ? t->name : "");
    } else {
        family_gguf_name(g->family, role, layer, false, name, size);
    }
    return name[0] != 0;
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
    if (g->n_sums == g->sums_room) {
        int room = g->sums_room ? 2 * g->sums_room : 256;

        if (!(s = mem_resize(g->sums, (size_t)room, sizeof *s)))
            return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
        g->sums = s;
        g->sums_room = room;
    }
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
                   struct error *e)
{
    struct met *p;

    if (g->n_met == g->met_room) {
        int room = g->met_room ? 2 * g->met_room : 1024;

        if (!(p = mem_resize(g->met, (size_t)room, sizeof *p)))
            return error_set(e, ERR_MEMORY, "out of memory for the importance matrix");
        g->met = p;
        g->met_room = room;
    }
    g->met[g->n_met++] = (struct met){w, sums, index};
    return 0;
}

/* A matrix is given to the first tensor it may lie in; parts that lie in one with it meet the same
 * rows. */
static int add_matrix(struct importance_gather *g, struct block_id id, const struct block_matrix *b,
                      struct error *e)
{
    const struct ffn_shape *f = &hparams_layer(&g->m->hp, id.layer)->ffn;
    bool expert = id.kind == BLOCK_EXPERT, routed = expert && id.expert < f->experts;
    const enum tensor_role *list = expert && !routed ? shared_roles[b->part] : roles[b->part];
    char name[64];
    int rc;

    for (; *list != TENSOR_ROLES; list++) {
        if (!name_of(g, *list, id.layer, name, sizeof name))
            continue;
        if ((rc = add_sums(g, name, routed ? f->experts : 1, b->w->cols, routed, e)))
            return rc;
        return add_met(g, b->w, (int)(sums_named(g, name) - g->sums), routed ? id.expert : 0, e);
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

float *importance_squares(void *ctx, const struct matrix *w, int n)
{
    const struct importance_gather *g = ctx;
    const struct met key = {.w = w},
                     *m = bsearch(&key, g->met, (size_t)g->n_met, sizeof key, by_address);
    struct tensor_sums *s = m ? &g->sums[m->sums] : NULL;

    if (!s)
        return NULL;
    assert(s->cols == w->cols && m->index < s->matrices);
    s->rows[m->index] += (float)n;
    return s->squares + (size_t)m->index * (size_t)s->cols;
}

static void put_about(struct gguf_writer *w, const struct importance_about *about)
{
    gguf_put_string(w, "general.type", "imatrix", 7);
    gguf_put_array(w, "imatrix.datasets", GGUF_STRING, 1);
    gguf_add_string(w, about->text, strlen(about->text));
    gguf_put_u32(w, "imatrix.chunk_count", (uint32_t)about->chunks);
    gguf_put_u32(w, "imatrix.chunk_size", (uint32_t)about->chunk_tokens);
}

static void put_tensors(struct gguf_writer *w, const struct importance_gather *g)
{
    char name[96];

    for (int i = 0; i < g->n_sums; i++) {
        const struct tensor_sums *s = &g->sums[i];

        snprintf(name, sizeof name, "%s.in_sum2", s->name);
        gguf_write_tensor(w, name, DTYPE_F32, 2, (int64_t[]){s->matrices, s->cols});
        snprintf(name, sizeof name, "%s.counts", s->name);
        gguf_write_tensor(w, name, DTYPE_F32, 2, (int64_t[]){s->matrices, 1});
    }
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
        size_t n = (size_t)s->matrices;

        if ((rc = gguf_write_data(w, s->squares, n * (size_t)s->cols * sizeof *s->squares, e)) == 0)
            rc = gguf_write_data(w, s->rows, n * sizeof *s->rows, e);
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
