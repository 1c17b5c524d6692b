/* Measures the fastest read pattern for one token (shape_table.h) on an opened CPU device. Engine
 * thread, no job running: the model's own matrices of one type and row length are multiplied as in
 * decoding, with each pattern in turn. Each runs for a while before it is measured: the processors'
 * prefetchers take a millisecond to adapt to another one, in which all patterns look alike. The
 * apparently fastest then runs against the built-in choice alone, alternately: of nine patterns and
 * many shapes some win by chance, and the result is stored. On a busy machine nothing is stored,
 * and the built-in choice stays. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/device/cpu/cpu.h"
#include "engine/model/block.h"

#include <stdlib.h>
#include <string.h>

#define TASK_ROWS (2 * CPU_UNIT)
#define TASKS 4096
#define MATRICES 4096 /* most examined */
/* per thread, before a sample and in it */
#define LEAD ((size_t)4 << 20)
#define SAMPLE ((size_t)8 << 20)
#define BUDGET_NS (250 * CLOCK_MILLI)
/* share of time that threads may wait for their cores */
#define WAITED 0.1
#define DUELS 20     /* pairs of samples */
#define DUELS_WON 15 /* by chance: one time in fifty */
#define DUEL_GAIN 1.08

struct slice {
    const struct matrix *w;
    int row;
};

struct trial {
    struct cpu_device *d;
    const struct matrix *w[MATRICES];
    int n, at, row; /* matrices; start of the next sample */
    size_t bytes;   /* of all of them */
    struct input in;
    struct slice task[TASKS];
    int n_tasks;
};

/* Collects those of a type and row length. False: some are not packed yet. */
static bool collect(struct trial *t, enum dtype type, int cols)
{
    const struct model *m = t->d->model;
    struct block_matrix list[BLOCK_MATRICES];

    t->n = t->at = t->row = 0;
    t->bytes = 0;
    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        for (int i = 0, n = model_block_matrices(m, id, list); i < n; i++) {
            const struct matrix *w = list[i].w;

            if (w->type != type || w->cols != cols || t->n == MATRICES)
                continue;
            if (!w->data || atomic_load_explicit(&w->raw, memory_order_acquire))
                return false;
            t->w[t->n++] = w;
            t->bytes += dtype_row_bytes(type, cols) * (size_t)w->rows;
        }
    return t->n > 0;
}

/* The next tasks, of about so many bytes. */
static void choose_tasks(struct trial *t, size_t bytes)
{
    size_t row_bytes = dtype_row_bytes(t->w[0]->type, t->w[0]->cols), taken = 0;

    for (t->n_tasks = 0; t->n_tasks < TASKS && taken < bytes && taken < t->bytes; t->n_tasks++) {
        const struct matrix *w = t->w[t->at];

        t->task[t->n_tasks] = (struct slice){w, t->row};
        taken += row_bytes * (size_t)min_int(TASK_ROWS, w->rows - t->row);
        t->row += TASK_ROWS;
        if (t->row >= w->rows) {
            t->row = 0;
            t->at = (t->at + 1) % t->n;
        }
    }
}

static void read_tasks(void *ctx, int tid, int n)
{
    struct trial *t = ctx;
    struct cpu_device *d = t->d;

    phase_open(d, tid, t->n_tasks);
    for (int i; (i = phase_take(d, tid, 1)) < t->n_tasks;) {
        const struct slice *s = &t->task[i];

        gemv(d, tid, s->w, s->row, min_int(s->row + TASK_ROWS, s->w->rows), &t->in,
             d->threads[tid].tile,
             i + 1 < t->n_tasks ? matrix_hint(t->task[i + 1].w, t->task[i + 1].row)
                                : (struct prefetch_hint){0});
    }
    phase_end(d, tid);
}

static uint64_t read_bytes(struct trial *t, size_t bytes)
{
    uint64_t start;

    for (int i = 0; i < t->d->n_threads; i++) {
        t->d->threads[i].phase = 0;
        t->d->threads[i].panel_of = NULL;
    }
    choose_tasks(t, bytes * (size_t)t->d->n_threads);
    start = clock_now();
    pool_run_elastic(t->d->pool, read_tasks, t);
    return clock_now() - start + 1;
}

static uint64_t waited(const struct cpu_device *d)
{
    uint64_t sum = 0;

    for (int i = 0; i < d->n_threads; i++)
        sum += pool_waited(d->pool, i);
    return sum;
}

static double sample(struct trial *t, struct tune *forced, int id)
{
    forced->pattern[0].id = (enum pattern_id)id;
    read_bytes(t, LEAD);
    return (double)read_bytes(t, SAMPLE);
}

/* Whether a pattern is faster than another one again, alternately; the order changes too. */
static bool wins(struct trial *t, struct tune *forced, int id, int other)
{
    double gain[DUELS];
    int won = 0;

    for (int i = 0; i < DUELS; i++) {
        double ns[2];

        for (int k = 0; k < 2; k++)
            ns[(i + k) % 2] = sample(t, forced, (i + k) % 2 ? other : id);
        gain[i] = ns[1] / ns[0];
        won += gain[i] > 1.0;
    }
    qsort(gain, DUELS, sizeof *gain, series_compare);
    return won >= DUELS_WON && gain[DUELS / 2] >= DUEL_GAIN;
}

/* The fastest pattern for the collected matrices, the built-in one unless another is clearly
 * faster; -1: the machine was busy. */
static int measure(struct trial *t, enum dtype type, int cols)
{
    struct cpu_device *d = t->d;
    struct tune forced = {.n_pattern = 1,
                          .pattern = {{.type = type, .cols = cols, .threads = d->n_threads}}};
    const struct tune *old = d->thresholds;
    double ns[READ_PATTERNS][TUNE_PAIRS];
    uint64_t before = waited(d), start = clock_now();
    int best, built_in = (int)pattern_for(d->pattern, type);

    d->thresholds = &forced;
    for (int round = 0; round < TUNE_PAIRS; round++)
        for (int i = 0; i < READ_PATTERNS; i++) {
            int id = (i + round) % READ_PATTERNS;

            ns[id][round] = sample(t, &forced, id);
        }
    best = tune_fastest((const double(*)[TUNE_PAIRS])ns, READ_PATTERNS, built_in);
    if (best >= 0 && best != built_in && !wins(t, &forced, best, built_in))
        best = built_in;
    d->thresholds = old;
    if ((double)(waited(d) - before) >
        WAITED * (double)d->n_threads * (double)(clock_now() - start))
        return -1;
    return best;
}

int tuning_patterns(struct cpu_device *d, size_t least, struct tune *fresh)
{
    struct trial *t = mem_alloc(1, sizeof *t);
    uint64_t end = clock_now() + BUDGET_NS;
    struct tune shapes;
    size_t cols = 0;
    uint8_t *token;
    int id;

    fresh->n_pattern = 0;
    tune_shapes(d->model, &shapes);
    for (int i = 0; i < shapes.n; i++)
        cols = (size_t)shapes.entry[i].cols > cols ? (size_t)shapes.entry[i].cols : cols;
    /* zeros, as blocks and as floats */
    token = mem_alloc(cols + NUM_BLOCK, sizeof(float));
    for (int i = 0; t && token && i < shapes.n && clock_now() < end; i++) {
        struct tune_pattern p = {
            .type = shapes.entry[i].type, .cols = shapes.entry[i].cols, .threads = d->n_threads};
        const struct tune_pattern *known = tune_pattern(&d->tune, p.type, p.cols, p.threads);
        struct tuning_watch watch;

        t->d = d;
        t->in = (struct input){.n = 1,
                               .cols = p.cols,
                               .panels = (struct act_block *)(void *)token,
                               .rows = (float *)(void *)token,
                               .stride = p.cols};
        if ((known && !tune_again(known->when, d->busy)) ||
            tune_pattern(fresh, p.type, p.cols, p.threads) || !collect(t, p.type, p.cols) ||
            t->bytes < least)
            continue;
        tuning_watch(d, &watch, d->n_threads);
        if ((id = measure(t, p.type, p.cols)) < 0)
            continue;
        p.id = (enum pattern_id)id;
        p.when.busy = tuning_busy(d, &watch);
        tune_pattern_set(fresh, p);
    }
    mem_free(token);
    mem_free(t);
    return fresh->n_pattern;
}
