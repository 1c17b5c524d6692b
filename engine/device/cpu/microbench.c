/* See microbench.h. Loops are written with the compiler's vector extension so that one text serves every instruction set; each figure is
 * the best of several runs, since a machine is only ever disturbed towards slower. */
#include "engine/device/cpu/microbench.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/pack.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define BUFFER ((size_t)256 << 20)
#define PASSES 5

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct pass {
    struct pool *pool;
    char *buffer;
    double (*peak)(void);               /* operations done */
    double best, ops[POOL_MAX];
    uint64_t sink[POOL_MAX];
};

static void fill_slice(void *ctx, int tid, int n)
{
    struct pass *p = ctx;
    size_t slice = BUFFER / (size_t)n / 4096 * 4096;

    memset(p->buffer + slice * (size_t)tid, tid + 1, slice);
}

static void read_slice(void *ctx, int tid, int n)
{
    struct pass *p = ctx;
    size_t slice = BUFFER / (size_t)n / 4096 * 4096;
    const char *at = p->buffer + slice * (size_t)tid;
    uint64_t sum;

    for (int pass = 0; pass < PASSES; pass++) {
        double start;

        pool_barrier(p->pool, tid);
        start = seconds();
        sum = kernels_active()->read(at, slice);
        pool_barrier(p->pool, tid);
        if (tid == 0 && seconds() - start < p->best)
            p->best = seconds() - start;
        p->sink[tid] += sum;
    }
}

double cpu_read_bandwidth(int n_threads)
{
    struct pass p = {.best = 1e30, .buffer = mem_pages(BUFFER)};

    if (!p.buffer || pool_new(&p.pool, n_threads, true, NULL) < 0) {
        mem_pages_free(p.buffer, BUFFER);
        return 0.0;
    }
    pool_run(p.pool, fill_slice, &p);
    pool_run(p.pool, read_slice, &p);
    pool_free(p.pool);
    mem_pages_free(p.buffer, BUFFER);
    return (double)(BUFFER / (size_t)n_threads / 4096 * 4096 * (size_t)n_threads) / p.best;
}

static void peak_run(void *ctx, int tid, int n)
{
    struct pass *p = ctx;

    for (int pass = 0; pass < PASSES; pass++) {
        double start;

        pool_barrier(p->pool, tid);
        start = seconds();
        p->ops[tid] = p->peak();
        pool_barrier(p->pool, tid);
        if (tid == 0 && seconds() - start < p->best)
            p->best = seconds() - start;
    }
}

static double peak(double (*kernel)(void), int n_threads)
{
    struct pass p = {.best = 1e30, .peak = kernel};

    if (pool_new(&p.pool, n_threads, true, NULL) < 0)
        return 0.0;
    pool_run(p.pool, peak_run, &p);
    pool_free(p.pool);
    return p.ops[0] * n_threads / p.best;
}

double cpu_peak_f32(int n_threads)
{
    return peak(kernels_active()->peak_f32, n_threads);
}

double cpu_peak_int8(int n_threads)
{
    return peak(kernels_active()->peak_int8, n_threads);
}

/* One product of a random matrix, as the device would run it: panels of at most KERNEL_TILE tokens, all row groups. */
static int bench_dot(struct microbench_result *r, enum dtype type, int rows, int cols, int tokens)
{
    const struct kernels *k = kernels_active();
    int groups = pack_groups(rows, k->width), panels = (tokens + KERNEL_TILE - 1) / KERNEL_TILE, blocks = cols / NUM_BLOCK;
    size_t bytes = pack_bytes(type, rows, cols, k->width), act = (size_t)tokens * (size_t)blocks * sizeof(struct act_block);
    size_t out = (size_t)tokens * (size_t)groups * (size_t)k->width * sizeof(float), total = bytes + 64 + act + 64 + out;
    uint8_t *memory = mem_pages(total), *panel;
    float *y;

    if (!memory)
        return ERR_MEMORY;
    panel = memory + (bytes + 63) / 64 * 64;
    y = (float *)(void *)(panel + (act + 63) / 64 * 64);
    memset(memory, 0x11, bytes);
    memset(panel, 0, act);
    *r = (struct microbench_result){.rows = rows, .cols = cols, .tokens = tokens, .seconds = 1e30, .bytes = (double)bytes,
                                    .ops = 2.0 * (double)rows * (double)cols * (double)tokens};
    snprintf(r->kernel, sizeof r->kernel, "dot %s", dtype_info(type)->word);
    for (int pass = 0; pass < PASSES; pass++) {
        double start = seconds();

        for (int g = 0; g < groups; g += 4)
            for (int p = 0; p < panels; p++) {
                int t0 = tokens * p / panels, t1 = tokens * (p + 1) / panels, count = groups - g < 4 ? groups - g : 4;

                k->dot[type](memory + (size_t)g * (bytes / (size_t)groups), count, k->width, cols, (struct act_block *)(void *)panel + (size_t)t0 * (size_t)blocks,
                             t1 - t0, y + (size_t)t0 * (size_t)groups * (size_t)k->width + (size_t)g * (size_t)k->width, (ptrdiff_t)groups * k->width);
            }
        if (seconds() - start < r->seconds)
            r->seconds = seconds() - start;
    }
    mem_pages_free(memory, total);
    return 0;
}

int cpu_microbench(struct microbench_result *out, int max, int hidden, int expert_ffn, struct error *e)
{
    const struct { int rows, cols, tokens; } shapes[] = {
        {128, hidden, 1}, {8 * hidden, hidden, 1}, {expert_ffn, hidden, 2}, {expert_ffn, hidden, 3}, {expert_ffn, hidden, 12}, {expert_ffn, hidden, 24}, {hidden, expert_ffn, 24},
        {hidden / 2, hidden, 96},
    };
    static const enum dtype types[] = {DTYPE_Q4_0, DTYPE_Q8_0};
    int n = 0;

    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes && n < max; s++) {
            if (shapes[s].cols % NUM_BLOCK || !kernels_active()->dot[types[t]])
                continue;
            if (bench_dot(&out[n], types[t], shapes[s].rows, shapes[s].cols, shapes[s].tokens) < 0)
                return error_set(e, ERR_MEMORY, "no memory for measuring the kernels");
            n++;
        }
    return n;
}
