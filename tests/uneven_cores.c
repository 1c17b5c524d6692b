/* How well decoding shares its work among cores of unequal speed:
 *
 *   build/release/tests/uneven_cores [THREADS [FACTOR [TOKENS [FILE]]]]      (2, 2.0, 4000)
 *
 * The last half of the threads is made FACTOR times slower by waiting, in each product of a slice
 * of weights, as often as the product took. Or by a control group: FILE is where the kernel is told
 * its threads (tests/tools/slow_core.sh makes one, with 1/FACTOR of a core), and nothing waits. A
 * quota does not make a core slow, it stops it, for a millisecond of every two at best, and whoever
 * waits for the end of a phase waits for that too. So the model's one layer is large then, with
 * phases of tens of milliseconds (1.8 GB); with shorter ones it is chance that is measured.
 *
 * Prints the time of a token's layers with equal cores; with slow ones and equal parts; with parts
 * by measured speed; and with eight fixed shares of the slow ones, the best of which is the best
 * share that there is. Beside it equal cores' time by their mean speed, which no share can beat
 * where the slow ones are slow in everything. Figures are of tokens in turn: the tenth percentiles,
 * since other programs only make them larger; of a group, the median of turns. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/pieces.h"
#include "tests/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LAYERS 4 /* at most */
#define EXPERTS 8
#define TURN 25      /* tokens of a mode before the next one's; of a group's large layer, which */
#define TURN_LARGE 5 /* takes tens of milliseconds */
#define FIXED 8      /* shares of the slow threads, in so many parts of a fast one's */

enum mode { EVEN, SLOW_EQUAL, SLOW_SHARED, SLOW_FIXED, MODES = SLOW_FIXED + FIXED };

static struct kernels slowed;
static const struct kernels *plain;
static _Thread_local bool slow_thread;
static volatile bool slow_on;
static double factor = 2;
static const char *group; /* NULL: slow threads wait */
static int turn = TURN;

static void gemv_slowed(const struct kernel_gemv *s, int cols, const struct act_block *x)
{
    uint64_t start = clock_now(), end;

    plain->gemv[DTYPE_Q4_0](s, cols, x);
    if (!slow_on || !slow_thread || group)
        return;
    end = clock_now();
    end += (uint64_t)((factor - 1) * (double)(end - start));
    while (clock_now() < end)
        ;
}

static void mark(void *ctx, int tid, int n)
{
    FILE *f;

    slow_thread = tid >= (n + 1) / 2;
    if (!slow_thread || !group || !*(bool *)ctx)
        return;
    if (!(f = fopen(group, "w")) || fprintf(f, "%ld\n", syscall(SYS_gettid)) < 0 || fclose(f)) {
        perror(group);
        exit(1);
    }
}

/* The slow threads' share stays, and no phase is timed. */
static void fix_shares(struct cpu_device *d, int parts)
{
    struct shares *s = &d->decoding_shares;

    shares_init(s, d->n_threads);
    s->job = 1;
    for (int i = (d->n_threads + 1) / 2; i < d->n_threads; i++)
        s->share[i] = POOL_SHARE * parts / FIXED;
    s->differ = parts < FIXED;
    for (int l = 0; l < d->model->hp.n_layers; l++) {
        const struct ffn_shape *f = &shape_of(d, l)->ffn;

        d->gate_piece[l] = piece_units(f->used, (f->width + CPU_UNIT - 1) / CPU_UNIT, 0, s->share,
                                       d->n_threads);
    }
    d->down_piece = piece_units(1, (d->model->hp.hidden + CPU_UNIT - 1) / CPU_UNIT, 0, s->share,
                                d->n_threads);
}

/* ns of one token's layers. */
static double token(struct cpu_device *d, enum mode mode, float *x, int at)
{
    int layers = d->model->hp.n_layers, experts[LAYERS * EXPERTS];
    float weights[LAYERS * EXPERTS];
    struct layers_job j = {.first = 0,
                           .last = layers,
                           .rows = 1,
                           .pos = at % 32,
                           .x = x,
                           .experts = experts,
                           .weights = weights};
    unsigned seed = (unsigned)at;
    uint64_t start;
    struct error e;

    for (int i = 0; i < d->model->hp.hidden; i++)
        x[i] = tiny_random(&seed);
    slow_on = mode != EVEN;
    if (mode >= SLOW_FIXED)
        fix_shares(d, (int)mode - SLOW_FIXED + 1);
    else if (mode != SLOW_SHARED)
        shares_init(&d->decoding_shares, d->n_threads);
    crowd_init(&d->decoding, d->n_threads);
    start = clock_now();
    if (cpu_device_ops.layers((struct device *)d, &j, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return (double)(clock_now() - start);
}

/* The first half is for the shares to settle. */
static double tenth(double *ns, int n)
{
    qsort(ns + n / 2, (size_t)(n - n / 2), sizeof *ns, series_compare);
    return ns[n / 2 + (n - n / 2) / 10];
}

static double turns(double *ns, int n)
{
    int first = n / turn / 2, last = n / turn;

    for (int t = first; t < last; t++) {
        double sum = 0;

        for (int k = 0; k < turn; k++)
            sum += ns[t * turn + k];
        ns[t] = sum / turn;
    }
    qsort(ns + first, (size_t)(last - first), sizeof *ns, series_compare);
    return ns[(first + last) / 2];
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2, tokens = argc > 3 ? atoi(argv[3]) : 4000;
    struct tiny_shape shape = {.layers = argc > 4 ? 1 : LAYERS,
                               .hidden = argc > 4 ? 8192 : 1024,
                               .heads = 16,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .ffn = argc > 4 ? 65536 : 768,
                               .experts = argc > 4 ? 2 : EXPERTS,
                               .vocab = 64,
                               .context = 64,
                               .type = DTYPE_Q4_0,
                               .width = cpu_pack_width(),
                               .seed = 11};
    struct tiny_model *m = tiny_model_new(&shape);
    struct device_config c = {.model = &m->model,
                              .n_threads = threads,
                              .max_rows = 4,
                              .context = 64,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16,
                              .rope_cos = {m->rope_cos},
                              .rope_sin = {m->rope_sin}};
    struct device *device;
    struct cpu_device *d[MODES];
    struct error e;
    float *x = mem_alloc((size_t)shape.hidden, sizeof *x);
    double *ns[MODES], at[MODES], best;
    int fast, found = SLOW_FIXED;

    factor = argc > 2 ? atof(argv[2]) : 2;
    if (argc > 4) {
        group = argv[4];
        turn = TURN_LARGE;
    }
    if (threads < 2 || threads > POOL_MAX || !(factor >= 1 && factor <= 100) || tokens < 100) {
        fprintf(stderr, "usage: uneven_cores [THREADS [FACTOR [TOKENS [FILE]]]]\n");
        return 2;
    }
    plain = kernels_active();
    slowed = *plain;
    slowed.gemv[DTYPE_Q4_0] = gemv_slowed;
    for (int i = 0; i < MODES; i++) {
        if (cpu_device_ops.open(&device, &c, &e) < 0) {
            fprintf(stderr, "%s\n", e.text);
            return 1;
        }
        d[i] = (struct cpu_device *)device;
        d[i]->k = &slowed;
        pool_run(d[i]->pool, mark, &(bool){i != EVEN});
        ns[i] = mem_alloc((size_t)tokens, sizeof *ns[i]);
    }
    for (int t = 0; t + turn <= tokens; t += turn)
        for (int i = 0; i < MODES; i++)
            for (int k = t; k < t + turn; k++)
                ns[i][k] = token(d[i], (enum mode)i, x, k);
    for (int i = 0; i < MODES; i++)
        at[i] = group ? turns(ns[i], tokens) : tenth(ns[i], tokens);
    fast = (threads + 1) / 2;
    best = at[EVEN] * threads / (fast + (threads - fast) / factor);
    printf("%d threads, %d of them %.2f times slower, %s kernels, us a token, layers: %d\n",
           threads, threads - fast, factor, plain->name, shape.layers);
    for (int i = SLOW_FIXED; i < MODES; i++)
        found = at[i] < at[found] ? i : found;
    printf("equal cores                  %8.1f\n", at[EVEN] / 1e3);
    printf("by the cores' mean speed     %8.1f\n", best / 1e3);
    for (int i = SLOW_FIXED; i < MODES; i++)
        printf("a fixed share of %d/%d         %8.1f%s\n", i - SLOW_FIXED + 1, FIXED, at[i] / 1e3,
               i == found ? "  the best share" : "");
    printf("equal parts                  %8.1f  %+.1f %% of the best share's\n",
           at[SLOW_EQUAL] / 1e3, 100 * (at[SLOW_EQUAL] / at[found] - 1));
    printf("parts by measured speed      %8.1f  %+.1f %%\n", at[SLOW_SHARED] / 1e3,
           100 * (at[SLOW_SHARED] / at[found] - 1));
    printf("measured speeds:");
    for (int i = 0; i < threads; i++)
        printf(" %.2f", d[SLOW_SHARED]->decoding_shares.speed[i]);
    printf("; pieces of %d and %d units, %d and %d with equal parts\n",
           d[SLOW_SHARED]->gate_piece[0], d[SLOW_SHARED]->down_piece, d[EVEN]->gate_piece[0],
           d[EVEN]->down_piece);
    for (int i = 0; i < MODES; i++) {
        cpu_device_ops.close((struct device *)d[i]);
        mem_free(ns[i]);
    }
    mem_free(x);
    tiny_model_free(m);
    return 0;
}
