/* How well decoding shares its work among cores of unequal speed:
 *
 *   build/release/tests/uneven_cores [THREADS [FACTOR [TOKENS]]]      (2, 2.0, 4000)
 *
 * The last half of the threads is made FACTOR times slower by waiting, in each product of a slice
 * of weights, as often as the product took. (A control group's quota does not make a core slow: it
 * stops it for a millisecond or more, which is longer than a phase.) Prints the time of a token's
 * layers with equal cores, with slow ones and equal parts, and with slow ones and parts by speed,
 * beside the best there can be: equal cores' time by their mean speed. Figures are the tenth
 * percentiles of tokens in turn, since other programs only make them larger. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/device/cpu/cpu.h"
#include "tests/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

#define LAYERS 4
#define EXPERTS 8
#define TURN 25 /* tokens of a mode before the next one's */

enum mode { EVEN, SLOW_EQUAL, SLOW_SHARED, MODES };

static struct kernels slowed;
static const struct kernels *plain;
static _Thread_local bool slow_thread;
static volatile bool slow_on;
static double factor = 2;

static void gemv_slowed(const struct kernel_gemv *s, int cols, const struct act_block *x)
{
    uint64_t start = clock_now(), end;

    plain->gemv[DTYPE_Q4_0](s, cols, x);
    if (!slow_on || !slow_thread)
        return;
    end = clock_now();
    end += (uint64_t)((factor - 1) * (double)(end - start));
    while (clock_now() < end)
        ;
}

static void mark(void *ctx, int tid, int n)
{
    slow_thread = tid >= (n + 1) / 2;
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
    if (mode != SLOW_SHARED)
        shares_init(&d->decoding_shares, d->n_threads);
    crowd_init(&d->decoding, d->n_threads);
    start = clock_now();
    if (cpu_device_ops.layers((struct device *)d, &j, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return (double)(clock_now() - start);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2, tokens = argc > 3 ? atoi(argv[3]) : 4000;
    struct tiny_shape shape = {.layers = LAYERS,
                               .hidden = 1024,
                               .heads = 16,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .ffn = 768,
                               .experts = EXPERTS,
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
    int fast;

    factor = argc > 2 ? atof(argv[2]) : 2;
    if (threads < 2 || threads > POOL_MAX || !(factor >= 1 && factor <= 100) || tokens < 100) {
        fprintf(stderr, "usage: uneven_cores [THREADS [FACTOR [TOKENS]]]\n");
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
        pool_run(d[i]->pool, mark, NULL);
        ns[i] = mem_alloc((size_t)tokens, sizeof *ns[i]);
    }
    for (int t = 0; t < tokens; t += TURN)
        for (int i = 0; i < MODES; i++)
            for (int k = t; k < t + TURN && k < tokens; k++)
                ns[i][k] = token(d[i], (enum mode)i, x, k);
    for (int i = 0; i < MODES; i++) {
        /* the first half is for the shares to settle */
        qsort(ns[i] + tokens / 2, (size_t)(tokens - tokens / 2), sizeof **ns, series_compare);
        at[i] = ns[i][tokens / 2 + (tokens - tokens / 2) / 10];
    }
    fast = (threads + 1) / 2;
    best = at[EVEN] * threads / (fast + (threads - fast) / factor);
    printf("%d threads, %d of them %.2f times slower, %s kernels, us a token of %d layers\n",
           threads, threads - fast, factor, plain->name, shape.layers);
    printf("equal cores                  %8.1f\n", at[EVEN] / 1e3);
    printf("best with the slow ones      %8.1f\n", best / 1e3);
    printf("equal parts                  %8.1f  %+.1f %%\n", at[SLOW_EQUAL] / 1e3,
           100 * (at[SLOW_EQUAL] / best - 1));
    printf("parts by measured speed      %8.1f  %+.1f %%\n", at[SLOW_SHARED] / 1e3,
           100 * (at[SLOW_SHARED] / best - 1));
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
