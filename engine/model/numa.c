/* The memory node of each slice of the packed weights (numa.h). */
#include "engine/model/numa.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/model/block.h"

#define PAGE 4096

struct slices {
    const char *base;
    size_t bytes;
    const int *node;
    int n_threads;
    struct topology_slice *out;
    int n, max;
};

static size_t whole_page(size_t at)
{
    return (at + PAGE / 2) / PAGE * PAGE;
}

static void add(struct slices *s, size_t begin, size_t end, int node)
{
    struct topology_slice *last = s->n > 0 ? &s->out[s->n - 1] : NULL;

    begin = whole_page(begin);
    end = whole_page(end);
    if (end <= begin || s->n < 0)
        return;
    if (last && last->node == node && last->offset + last->bytes == begin)
        last->bytes = end - last->offset;
    else if (s->n == s->max)
        s->n = -1;
    else
        s->out[s->n++] = (struct topology_slice){begin, end - begin, node};
}

/* A matrix whose rows are before .. before+rows-1 of the `all` rows of its phase. */
static void add_matrix(struct slices *s, const struct matrix *w, int before, int all)
{
    size_t at = (size_t)((const char *)w->data - s->base);
    int width = w->width ? w->width : 1, groups = (w->rows + width - 1) / width;

    if (!groups || (const char *)w->data < s->base || at >= s->bytes)
        return;
    for (int t = 0; t < s->n_threads; t++) {
        int64_t first = (int64_t)all * t / s->n_threads - before,
                end = (int64_t)all * (t + 1) / s->n_threads - before;

        first = first < 0 ? 0 : first < w->rows ? first / width : groups;
        end = end < 0 ? 0 : end < w->rows ? end / width : groups;
        if (first < end)
            add(s, at + w->bytes / (size_t)groups * (size_t)first,
                at + w->bytes / (size_t)groups * (size_t)end, s->node[t]);
    }
}

/* q, k, v and the other input projections of a mixer are one phase, every other matrix is a
 * separate one: o, and MLA's projections into the latent space and back. */
static bool together(const struct block_matrix *b)
{
    return b->part < MATRIX_GATE && b->part != MATRIX_O && b->part != MATRIX_K_B &&
           b->part != MATRIX_V_B && b->part != MATRIX_INPUT_GATE && b->part != MATRIX_INPUT_OUT &&
           b->part != MATRIX_INPUT_PROJECT && b->part != MATRIX_LAUREL_IN &&
           b->part != MATRIX_LAUREL_OUT && b->part != MATRIX_STREAM_IN &&
           b->part != MATRIX_STREAM_OUT;
}

static void add_block(struct slices *s, const struct block_matrix *list, int n)
{
    int all = 0, before = 0;

    for (int i = 0; i < n; i++)
        all += together(&list[i]) ? list[i].w->rows : 0;
    for (int i = 0; i < n; i++) {
        const struct matrix *w = list[i].w;

        if (together(&list[i])) {
            add_matrix(s, w, before, all);
            before += w->rows;
        } else {
            add_matrix(s, w, 0, w->rows);
        }
    }
}

int numa_slices(const struct model *m, const void *base, size_t bytes, const int *node,
                int n_threads, struct topology_slice *out, int max)
{
    struct slices s = {base, bytes, node, n_threads, out, 0, max};
    struct block_matrix list[BLOCK_MATRICES];
    bool several = false;

    for (int t = 1; t < n_threads; t++)
        several |= node[t] != node[0];
    if (!several)
        return 0;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        add_block(&s, list, model_block_matrices(m, id, list));
    return s.n;
}

void numa_bind(const struct model *m, void *base, size_t bytes, int n_threads)
{
    struct topology_slice *slices;
    int node[POOL_MAX], n = 0;

    if (topology_nodes() < 2)
        return;
    topology_interleave(base, bytes);
    if (n_threads < 1 || n_threads > POOL_MAX || topology_core_nodes(node, n_threads) < n_threads)
        return;
    slices = mem_alloc(NUMA_SLICES, sizeof *slices);
    if (slices && (n = numa_slices(m, base, bytes, node, n_threads, slices, NUMA_SLICES)) > 0)
        topology_bind(base, slices, n);
    mem_free(slices);
}
