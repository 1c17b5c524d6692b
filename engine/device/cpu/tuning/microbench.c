/* See microbench.h. Loops use the compiler's vector extension so that one text serves every
 * instruction set; each figure is the best of several runs, since disturbances only make it
 * slower. */
#include "engine/device/cpu/tuning/microbench.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/pool.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/layout/pack.h"

#include <stdio.h>
#include <string.h>

#define PASSES 5
#define CACHED_ROWS 128 /* of a matrix that stays in the second-level cache */
/* Memory to read: at least this much, and with a large last-level cache so much that none of it
 * stays cached until it is read again. */
#define BUFFER_LEAST ((size_t)256 << 20)

static size_t buffer_bytes(void)
{
    size_t far = membw_far_bytes();

    return far > BUFFER_LEAST ? far : BUFFER_LEAST;
}

struct pass {
    struct pool *pool;
    char *buffer;
    size_t slice;         /* bytes of each thread */
    double (*peak)(void); /* operations done */
    double best, ops[POOL_MAX];
    uint64_t sink[POOL_MAX];
};

static void fill_slice(void *ctx, int tid, int n)
{
    struct pass *p = ctx;

    memset(p->buffer + p->slice * (size_t)tid, tid + 1, p->slice);
}

static void read_slice(void *ctx, int tid, int n)
{
    struct pass *p = ctx;
    const char *at = p->buffer + p->slice * (size_t)tid;
    uint64_t sum;

    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start;

        pool_barrier(p->pool, tid);
        start = clock_now();
        sum = kernels_active()->read(at, p->slice);
        pool_barrier(p->pool, tid);
        if (tid == 0 && clock_seconds(clock_now() - start) < p->best)
            p->best = clock_seconds(clock_now() - start);
        p->sink[tid] += sum;
    }
}

double cpu_read_bandwidth(int n_threads)
{
    size_t bytes = buffer_bytes();
    struct pass p = {
        .best = 1e30, .buffer = mem_pages(bytes), .slice = bytes / (size_t)n_threads / 4096 * 4096};

    if (!p.buffer || pool_new(&p.pool, n_threads, true, NULL) < 0) {
        mem_pages_free(p.buffer, bytes);
        return 0.0;
    }
    pool_run(p.pool, fill_slice, &p);
    pool_run(p.pool, read_slice, &p);
    pool_free(p.pool);
    mem_pages_free(p.buffer, bytes);
    return (double)(p.slice * (size_t)n_threads) / p.best;
}

static void peak_run(void *ctx, int tid, int n)
{
    struct pass *p = ctx;

    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start;

        pool_barrier(p->pool, tid);
        start = clock_now();
        p->ops[tid] = p->peak();
        pool_barrier(p->pool, tid);
        if (tid == 0 && clock_seconds(clock_now() - start) < p->best)
            p->best = clock_seconds(clock_now() - start);
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

/* One product of a random matrix, as on the device: panels of the set's size, all row groups. */
static int bench_dot(struct microbench_result *r, enum dtype type, int rows, int cols, int tokens)
{
    const struct kernels *k = kernels_active();
    int groups = pack_groups(rows, k->width), panels = (tokens + k->tile - 1) / k->tile,
        blocks = cols / NUM_BLOCK;
    size_t bytes = pack_bytes(type, rows, cols, k->width),
           act = (size_t)tokens * (size_t)blocks * sizeof(struct act_block);
    size_t out = (size_t)tokens * (size_t)groups * (size_t)k->width * sizeof(float),
           total = bytes + 64 + act + 64 + out;
    uint8_t *memory = mem_pages(total), *panel;
    float *y;

    if (!memory)
        return ERR_MEMORY;
    panel = memory + (bytes + 63) / 64 * 64;
    y = (float *)(void *)(panel + (act + 63) / 64 * 64);
    memset(memory, 0x11, bytes);
    memset(panel, 0, act);
    *r = (struct microbench_result){.rows = rows,
                                    .cols = cols,
                                    .tokens = tokens,
                                    .seconds = 1e30,
                                    .bytes = (double)bytes,
                                    .ops = 2.0 * (double)rows * (double)cols * (double)tokens};
    snprintf(r->kernel, sizeof r->kernel, "dot %s", dtype_info(type)->word);
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = clock_now();

        for (int g = 0; g < groups; g += 8)
            for (int p = 0; p < panels; p++) {
                int t0 = tokens * p / panels, t1 = tokens * (p + 1) / panels,
                    count = groups - g < 8 ? groups - g : 8;

                k->dot[type](memory + (size_t)g * (bytes / (size_t)groups), count, k->width, cols,
                             (struct act_block *)(void *)panel + (size_t)t0 * (size_t)blocks,
                             t1 - t0,
                             y + (size_t)t0 * (size_t)groups * (size_t)k->width +
                                 (size_t)g * (size_t)k->width,
                             (ptrdiff_t)groups * k->width);
            }
        if (clock_seconds(clock_now() - start) < r->seconds)
            r->seconds = clock_seconds(clock_now() - start);
    }
    mem_pages_free(memory, total);
    return 0;
}

/* Buffers of the small kernels: one each for input and output, large enough for all of them. */
struct small {
    const struct kernels *k;
    float *x, *y, *w; /* CONTEXT * 128 floats */
    uint16_t *h;
    int n;
};

#define CONTEXT 1024 /* tokens of a measured attention head */
#define HEAD 128

static void run_norm(struct small *s)
{
    s->k->norm(s->x, s->n, s->w, s->w, 1.0f / (float)s->n, 1e-5f, s->y);
}
static void run_silu(struct small *s)
{
    s->k->activate[ACTIVATION_SILU](s->x, s->w, s->n, 0.0f, s->y);
}
static void run_quantise(struct small *s)
{
    s->k->quantise(s->x, s->n, (struct act_block *)(void *)s->y, 1);
}
static void run_router(struct small *s)
{
    s->k->router(s->w, 1, s->n, s->x, s->y);
}

static void run_scores(struct small *s)
{
    for (int t = 0; t < CONTEXT; t += NUM_CHUNK)
        s->k->scores[KV_F16](s->h + (size_t)t * HEAD, NUM_CHUNK / NUM_LANES, HEAD, s->x, 1,
                             s->y + t, s->h);
}

static void run_softmax(struct small *s)
{
    float max, sum;

    memcpy(s->y, s->x, CONTEXT * sizeof *s->y);
    s->k->softmax(s->y, CONTEXT, &max, &sum);
}

static void run_values(struct small *s)
{
    s->k->values[KV_F16](s->h, HEAD, s->x, 1, CONTEXT, false, s->y, HEAD, s->h);
}

/* Stores one token's key of a head in its lane between 15 others, and its value, as in the
 * cache. */
static void run_append(struct small *s)
{
    s->k->to_f16(s->x, HEAD, s->h);
    for (int i = 0; i < HEAD; i++)
        s->h[HEAD + i * NUM_LANES] = s->h[i];
    s->k->to_f16(s->w, HEAD, s->h + HEAD + HEAD * NUM_LANES);
}

static void run_append_scalar(struct small *s)
{
    struct small plain = *s;

    plain.k = &kernels_scalar;
    run_append(&plain);
}

static void append_q8(const float *x, uint8_t *row)
{
    for (int b = 0; b < HEAD / NUM_BLOCK; b++, row += KV_Q8_0_BYTES) {
        uint16_t scale = num_kv_quantise_block(x + b * NUM_BLOCK, (int8_t *)row + 2);

        memcpy(row, &scale, sizeof scale);
    }
}

/* With whole blocks: one text for every instruction set. */
static void run_append_q8(struct small *s)
{
    append_q8(s->x, (uint8_t *)s->h);
    append_q8(s->w, (uint8_t *)(s->h + HEAD));
}

/* Repeated within a pass: a single call is too short for the clock. */
static void bench_small(struct microbench_result *r, struct small *s, const char *name,
                        void (*run)(struct small *s), int rows, int cols, double bytes, double ops)
{
    enum { CALLS = 200 };

    *r = (struct microbench_result){
        .rows = rows, .cols = cols, .tokens = 1, .seconds = 1e30, .bytes = bytes, .ops = ops};
    snprintf(r->kernel, sizeof r->kernel, "%s", name);
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = clock_now();

        for (int i = 0; i < CALLS; i++)
            run(s);
        if ((clock_seconds(clock_now() - start)) / CALLS < r->seconds)
            r->seconds = (clock_seconds(clock_now() - start)) / CALLS;
    }
}

/* Everything besides the matrices, with cached data as during a token; the attention of one head
 * over 1024 tokens. */
static int bench_others(struct microbench_result *out, int hidden, int ffn)
{
    size_t n = (size_t)(NUM_LANES * hidden > CONTEXT * HEAD ? NUM_LANES * hidden : CONTEXT * HEAD);
    struct small s = {.k = kernels_active(),
                      .x = mem_alloc(n, sizeof(float)),
                      .y = mem_alloc(n, sizeof(float)),
                      .w = mem_alloc(n, sizeof(float)),
                      .h = mem_alloc(n, sizeof(uint16_t))};
    const struct {
        const char *name;
        void (*run)(struct small *s);
        int rows, cols;
        double bytes, ops;
    } all[] = {
        {"norm", run_norm, 1, hidden, 8.0 * hidden, 7.0 * hidden},
        {"quantise", run_quantise, 1, hidden, 4.0 * hidden, 3.0 * hidden},
        {"router", run_router, NUM_LANES, hidden, 4.0 * NUM_LANES * hidden,
         2.0 * NUM_LANES * hidden},
        {"silu * up", run_silu, 1, ffn, 8.0 * ffn, 20.0 * ffn},
        {"scores f16", run_scores, CONTEXT, HEAD, 2.0 * CONTEXT * HEAD, 2.0 * CONTEXT * HEAD},
        {"softmax", run_softmax, 1, CONTEXT, 4.0 * CONTEXT, 18.0 * CONTEXT},
        {"values f16", run_values, CONTEXT, HEAD, 2.0 * CONTEXT * HEAD, 2.0 * CONTEXT * HEAD},
        {"append kv f16", run_append, 2, HEAD, 12.0 * HEAD, 2.0 * HEAD},
        {"append kv f16, scalar", run_append_scalar, 2, HEAD, 12.0 * HEAD, 2.0 * HEAD},
        {"append kv q8_0, scalar", run_append_q8, 2, HEAD, 10.125 * HEAD, 6.0 * HEAD},
    };
    int done = 0;

    for (size_t i = 0; s.x && s.y && s.w && s.h && i < n; i++)
        s.x[i] = s.w[i] = (float)(i % 7) * 0.1f;
    for (size_t i = 0; s.x && s.y && s.w && s.h && i < sizeof all / sizeof *all; i++) {
        s.n = all[i].cols;
        if (s.n % NUM_BLOCK == 0)
            bench_small(&out[done++], &s, all[i].name, all[i].run, all[i].rows, all[i].cols,
                        all[i].bytes, all[i].ops);
    }
    mem_free(s.x);
    mem_free(s.y);
    mem_free(s.w);
    mem_free(s.h);
    return done ? done : ERR_MEMORY;
}

/* Float rows by their own rule, with unrounded activations. */
static int bench_float(struct microbench_result *r, enum dtype type, int rows, int cols, int tokens)
{
    const struct kernels *k = kernels_active();
    size_t row = dtype_row_bytes(type, cols), bytes = (size_t)rows * row,
           x = (size_t)tokens * (size_t)kernel_float_cols(cols) * sizeof(float),
           total = bytes + x + (size_t)tokens * (size_t)rows * sizeof(float);
    uint8_t *memory = mem_pages(total);

    if (!memory)
        return ERR_MEMORY;
    *r = (struct microbench_result){.rows = rows,
                                    .cols = cols,
                                    .tokens = tokens,
                                    .seconds = 1e30,
                                    .bytes = (double)bytes,
                                    .ops = 2.0 * (double)rows * (double)cols * (double)tokens};
    snprintf(r->kernel, sizeof r->kernel, "dot %s", dtype_info(type)->word);
    memset(memory, 0, total);
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = clock_now();

        k->dot_float(type, type == DTYPE_BF16, memory, row, rows, cols, memory + bytes, tokens,
                     (float *)(void *)(memory + bytes + x), rows);
        if (clock_seconds(clock_now() - start) < r->seconds)
            r->seconds = clock_seconds(clock_now() - start);
    }
    mem_pages_free(memory, total);
    return 0;
}

/* Weights of one type, read by all threads together with each pattern in turn. */
struct pattern_pass {
    struct pool *pool;
    uint8_t *weights;
    enum dtype type;
    int cols, width, groups; /* rows of a group, groups of each thread in a run */
    int runs;                /* so many different ones, one after the other */
    void *token;             /* zeros, as blocks and as floats */
    double *rates;
};

/* Groups g0 .. g1-1 of this thread in a run; a multiple of KERNEL_GEMV_GROUPS. */
static void read_groups(const struct pattern_pass *p, int tid, int run, const struct pattern *how,
                        int g0, int g1)
{
    const struct kernels *k = kernels_active();
    size_t bytes = dtype_row_bytes(p->type, p->cols) * (size_t)p->width;
    const uint8_t *at = p->weights + (size_t)(tid * p->runs + run) * (size_t)p->groups * bytes;
    float out[KERNEL_GEMV_GROUPS][NUM_LANES];

    for (int g = g0; g < g1; g += KERNEL_GEMV_GROUPS) {
        struct kernel_gemv s = {.how = how, .n = KERNEL_GEMV_GROUPS};

        for (int i = 0; i < KERNEL_GEMV_GROUPS; i++) {
            s.at[i] = at + (size_t)(g + i) * bytes;
            s.next[i] = s.at[i] + KERNEL_GEMV_GROUPS * bytes;
            s.out[i] = out[i];
        }
        if (dtype_is_quantised(p->type))
            k->gemv[p->type](&s, p->cols, p->token);
        else
            k->gemv_float(p->type, p->type == DTYPE_BF16, &s, p->cols, p->token);
    }
}

static void pattern_run(void *ctx, int tid, int n)
{
    struct pattern_pass *p = ctx;
    double bytes = (double)dtype_row_bytes(p->type, p->cols) * p->width * p->groups * n;
    int lead = p->groups / 8 / KERNEL_GEMV_GROUPS * KERNEL_GEMV_GROUPS;

    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < READ_PATTERNS; i++) {
            int run = (pass * READ_PATTERNS + i) % p->runs;
            uint64_t start;
            double rate;

            /* prefetchers adapt to a pattern first, on the end of the preceding data */
            read_groups(p, tid, (run + p->runs - 1) % p->runs, &pattern_of[i], p->groups - lead,
                        p->groups);
            pool_barrier(p->pool, tid);
            start = clock_now();
            read_groups(p, tid, run, &pattern_of[i], 0, p->groups);
            pool_barrier(p->pool, tid);
            rate = clock_rate(bytes, clock_now() - start);
            if (tid == 0 && rate > p->rates[i])
                p->rates[i] = rate;
        }
}

int cpu_pattern_rates(enum dtype type, int cols, int n_threads, double rates[READ_PATTERNS],
                      struct error *e)
{
    bool quantised = dtype_is_quantised(type);
    struct pattern_pass p = {.type = type,
                             .cols = cols,
                             .width = quantised ? kernels_active()->width : 1,
                             .rates = rates};
    size_t bytes = dtype_row_bytes(type, cols) * (size_t)p.width, buffer = buffer_bytes();
    int rc = 0;

    memset(rates, 0, READ_PATTERNS * sizeof *rates);
    if (quantised && !kernels_active()->gemv[type])
        return 0;
    p.groups = (int)(BUFFER_LEAST / bytes) / n_threads / KERNEL_GEMV_GROUPS * KERNEL_GEMV_GROUPS;
    p.runs = (int)(buffer / BUFFER_LEAST);
    p.weights = mem_pages(buffer);
    p.token = mem_alloc((size_t)cols + NUM_BLOCK, sizeof(float));
    if (!p.weights || !p.token)
        rc = error_set(e, ERR_MEMORY, "no memory for measuring how weights are read");
    if (rc == 0 && (rc = pool_new(&p.pool, n_threads, true, e)) == 0) {
        memset(p.weights, 0x11, buffer);
        pool_run(p.pool, pattern_run, &p);
    }
    pool_free(p.pool);
    mem_free(p.token);
    mem_pages_free(p.weights, buffer);
    return rc;
}

/* One token's product as in decoding, with the built-in pattern. weights: `size` bytes, of which
 * each pass reads others, or `cached` the same. */
static int bench_gemv(struct microbench_result *r, enum dtype type, int rows, int cols, bool cached,
                      uint8_t *weights, size_t size)
{
    const struct pattern *how = &pattern_of[pattern_for(pattern_here(), type)];
    struct pattern_pass p = {.weights = weights, .type = type, .cols = cols};
    size_t bytes = dtype_row_bytes(type, cols) * (size_t)rows;

    p.width = dtype_is_quantised(type) ? kernels_active()->width : 1;
    p.groups = rows / p.width;
    p.runs = cached || bytes >= size ? 1 : (int)(size / bytes);
    if (!(p.token = mem_alloc((size_t)cols + NUM_BLOCK, sizeof(float))))
        return ERR_MEMORY;
    *r = (struct microbench_result){.rows = rows,
                                    .cols = cols,
                                    .tokens = 1,
                                    .seconds = 1e30,
                                    .bytes = (double)bytes,
                                    .ops = 2.0 * (double)rows * (double)cols};
    snprintf(r->kernel, sizeof r->kernel, "gemv %s", dtype_info(type)->word);
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = clock_now();

        read_groups(&p, 0, pass % p.runs, how, 0, p.groups);
        if (clock_seconds(clock_now() - start) < r->seconds)
            r->seconds = clock_seconds(clock_now() - start);
    }
    mem_free(p.token);
    return 0;
}

/* A type's products with one token and with more. */
static int bench_shape(struct microbench_result *r, enum dtype type, int rows, int cols, int tokens,
                       uint8_t *weights, size_t size)
{
    const struct kernels *k = kernels_active();
    size_t bytes = dtype_row_bytes(type, cols) * (size_t)rows;

    if (tokens == 1 && rows % (KERNEL_GEMV_GROUPS * NUM_LANES) == 0 && bytes <= size &&
        (!dtype_is_quantised(type) || k->gemv[type]))
        return bench_gemv(r, type, rows, cols, rows == CACHED_ROWS, weights, size);
    return dtype_is_quantised(type) ? bench_dot(r, type, rows, cols, tokens)
                                    : bench_float(r, type, rows, cols, tokens);
}

int cpu_microbench(struct microbench_result *out, int hidden, int expert_ffn, struct error *e)
{
    const struct {
        int rows, cols, tokens;
    } shapes[] = {
        /* as MICROBENCH_MOST counts */
        {CACHED_ROWS, hidden, 1}, {8 * hidden, hidden, 1},  {expert_ffn, hidden, 2},
        {expert_ffn, hidden, 3},  {expert_ffn, hidden, 12}, {expert_ffn, hidden, 24},
        {hidden, expert_ffn, 24}, {hidden / 2, hidden, 96},
    };
    static const enum dtype floats[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8};
    size_t size = buffer_bytes();
    uint8_t *weights = mem_pages(size);
    int n = 0, rc = weights ? 0 : ERR_MEMORY;

    if (weights)
        memset(weights, 0x11, size);
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes && rc == 0; s++) {
            if (!kernels_active()->dot[type] ||
                shapes[s].cols % dtype_info((enum dtype)type)->block)
                continue;
            rc = bench_shape(&out[n], (enum dtype)type, shapes[s].rows, shapes[s].cols,
                             shapes[s].tokens, weights, size);
            out[n++].integer = true;
        }
    for (size_t t = 0; t < sizeof floats / sizeof *floats; t++)
        for (size_t s = 0; s < 4 && rc == 0; s++)
            rc = bench_shape(&out[n++], floats[t], shapes[s].rows, shapes[s].cols, shapes[s].tokens,
                             weights, size);
    mem_pages_free(weights, size);
    if (rc == 0 && (rc = bench_others(out + n, hidden, expert_ffn)) >= 0)
        n += rc;
    return rc < 0 ? error_set(e, ERR_MEMORY, "no memory for measuring the kernels") : n;
}
