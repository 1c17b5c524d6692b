/* See membw.h. Vectors of 16 bytes, available on all supported machines: reading is limited by
 * memory long before by the width of a load. */
#include "engine/base/membw.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/base/series.h"
#include "engine/base/topology.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PASSES 16 /* most passes of one pattern */
#define LEAST_BYTES ((size_t)64 << 20)
#define MOST_BYTES ((size_t)1 << 30)
#define ROUNDS 3 /* alternating rounds of the possibly cached buffer and of memory */
#define STEP 512
/* bytes read or written between two checks of stop: milliseconds even on a busy machine */
#define PIECE ((size_t)16 << 20)
#define AHEAD 4096 /* bytes: one prefetch per line */
/* two prefetches per line, into the second-level cache and then the first: the fastest on some
 * machines */
#define FAR 2880
#define NEAR 1152
/* plain, prefetched, four streams, prefetched at two distances, four streams prefetched so */
#define PATTERNS 5

typedef long long lanes __attribute__((vector_size(16)));

struct reading {
    const char *data;
    size_t slice; /* bytes of each thread, a multiple of 4 * STEP */
    int pattern;
    const atomic_bool *stop; /* NULL: never stopped */
    long long sum[POOL_MAX]; /* keeps the loads alive */
};

static inline lanes at(const char *p)
{
    return *(const lanes *)p;
}

static inline __attribute__((always_inline)) void ask(const char *p, int pattern)
{
    if (pattern == 1)
        __builtin_prefetch(p + AHEAD, 0, 3);
    if (pattern >= 3) {
        __builtin_prefetch(p + FAR, 0, 2);
        __builtin_prefetch(p + NEAR, 0, 3);
    }
}

static inline __attribute__((always_inline)) long long read_line_by_line(const char *p, size_t n,
                                                                         const int pattern)
{
    lanes a = {0}, b = a, c = a, d = a;

    for (size_t i = 0; i < n; i += STEP) {
        for (int k = 0; k < STEP; k += 64) {
            ask(p + i + k, pattern);
            a ^= at(p + i + k);
            b ^= at(p + i + k + 16);
            c ^= at(p + i + k + 32);
            d ^= at(p + i + k + 48);
        }
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1];
}

static inline __attribute__((always_inline)) long long read_streams(const char *p, size_t n,
                                                                    const int pattern)
{
    size_t q = n / 4;
    lanes a = {0}, b = a, c = a, d = a;

    for (size_t i = 0; i < q; i += 64) {
        for (size_t stream = 0; stream < 4 * q; stream += q)
            ask(p + stream + i, pattern);
        for (int k = 0; k < 64; k += 16) {
            a ^= at(p + i + k);
            b ^= at(p + q + i + k);
            c ^= at(p + 2 * q + i + k);
            d ^= at(p + 3 * q + i + k);
        }
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1];
}

static long long read_piece(const char *p, size_t n, int pattern)
{
    switch (pattern) {
    case 0: return read_line_by_line(p, n, 0);
    case 1: return read_line_by_line(p, n, 1);
    case 2: return read_streams(p, n, 2);
    case 3: return read_line_by_line(p, n, 3);
    default: return read_streams(p, n, 4);
    }
}

static bool stopped(const atomic_bool *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

static void read_slice(void *ctx, int tid, int n)
{
    struct reading *r = ctx;
    const char *p = r->data + (size_t)tid * r->slice;
    /* all at once without stop: four streams are as far apart as possible */
    size_t piece = r->stop ? PIECE : r->slice;

    for (size_t i = 0; i < r->slice && !stopped(r->stop); i += piece)
        r->sum[tid] += read_piece(p + i, r->slice - i < piece ? r->slice - i : piece, r->pattern);
}

uint64_t membw_cache_level(int level)
{
    char path[64];
    unsigned long kib = 0;
    long known = 0;
    FILE *f;

#ifdef _SC_LEVEL3_CACHE_SIZE
    known = sysconf(level == 3 ? _SC_LEVEL3_CACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);
#endif
    if (known > 0)
        return (uint64_t)known;
    /* what the C library does not know the kernel says: "32768K" */
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
    if (!(f = fopen(path, "re")))
        return 0;
    if (fscanf(f, "%luK", &kib) != 1)
        kib = 0;
    fclose(f);
    return (uint64_t)kib << 10;
}

uint64_t membw_cache_bytes(void)
{
    uint64_t l3 = membw_cache_level(3);

    return l3 ? l3 : membw_cache_level(2);
}

static double measure(struct pool *pool, struct reading *r, int milliseconds)
{
    uint64_t each = (uint64_t)milliseconds * CLOCK_MILLI / PATTERNS;
    double best = 0;

    for (r->pattern = 0; r->pattern < PATTERNS && !stopped(r->stop); r->pattern++) {
        double rate[PASSES];
        struct series_figures f;
        uint64_t start = clock_now();
        size_t n = 0;

        do {
            uint64_t t = clock_now();

            pool_run(pool, read_slice, r);
            rate[n++] = clock_rate((double)r->slice * pool_threads(pool), clock_now() - t);
        } while (n < PASSES && clock_now() - start < each && !stopped(r->stop));
        series_summarise_sorted(rate, n, &f);
        if (f.median > best)
            best = f.median;
    }
    return stopped(r->stop) ? 0 : best;
}

static uint64_t (*left_now)(void);

void membw_limit(uint64_t (*left)(void))
{
    left_now = left;
}

size_t membw_far_bytes(void)
{
    size_t own = 4 * (size_t)membw_cache_bytes();
    uint64_t left = left_now ? left_now() : UINT64_MAX;

    /* the page cache is not free memory, but is reclaimed at once */
    if (left == UINT64_MAX)
#ifdef _SC_AVPHYS_PAGES
        left = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
#else
        left = (uint64_t)sysconf(_SC_PHYS_PAGES) / 2 * (uint64_t)sysconf(_SC_PAGESIZE);
#endif
    own = own > MOST_BYTES ? MOST_BYTES : own;
    own = own > left / 4 ? (size_t)(left / 4) : own;
    if (own >= LEAST_BYTES)
        return own;
    return left / 2 > LEAST_BYTES ? LEAST_BYTES : 0;
}

static _Atomic uint64_t held_now, held_most;

struct membw_held membw_held(void)
{
    return (struct membw_held){atomic_load(&held_now), atomic_load(&held_most)};
}

/* Written once, for untouched pages are all the same zero page. NULL: no memory. */
static void *buffer_new(size_t bytes, const atomic_bool *stop)
{
    void *buffer = mem_pages(bytes);
    uint64_t now, most = atomic_load(&held_most);

    if (!buffer)
        return NULL;
    now = atomic_fetch_add(&held_now, bytes) + bytes;
    while (now > most && !atomic_compare_exchange_weak(&held_most, &most, now))
        ;
    for (size_t i = 0; i < bytes && !stopped(stop); i += PIECE)
        memset((char *)buffer + i, 1, bytes - i < PIECE ? bytes - i : PIECE);
    return buffer;
}

static void buffer_free(void *buffer, size_t bytes)
{
    if (!buffer)
        return;
    mem_pages_free(buffer, bytes);
    atomic_fetch_sub(&held_now, bytes);
}

static double read_rate(const void *data, size_t bytes, int n_threads, int milliseconds,
                        const atomic_bool *stop)
{
    int n = n_threads > 0 ? n_threads : topology_cores();
    size_t own = membw_far_bytes();
    struct reading *r = mem_alloc(1, sizeof *r);
    struct pool *pool = NULL;
    void *buffer = NULL;
    double rate = 0;

    assert(n_threads >= 0 && milliseconds > 0);
    n = n < POOL_MAX ? n : POOL_MAX;
    if (!r || (!data && !own) || pool_new(&pool, n, true, NULL) < 0)
        goto out;
    if (!data) {
        bytes = own;
        if (!(buffer = buffer_new(own, stop)))
            goto out;
        data = buffer;
    }
    r->stop = stop;
    r->data = (const char *)(((uintptr_t)data + 63) & ~(uintptr_t)63);
    bytes -= bytes < 64 ? bytes : (size_t)(r->data - (const char *)data);
    if (bytes > MOST_BYTES)
        bytes = MOST_BYTES;
    r->slice = bytes / (size_t)n / (4 * STEP) * (4 * STEP);
    if (r->slice * (size_t)n >= (own ? own : LEAST_BYTES) / 2)
        rate = measure(pool, r, milliseconds);
out:
    buffer_free(buffer, own);
    pool_free(pool);
    mem_free(r);
    return rate;
}

double membw_read(const void *data, size_t bytes, int n_threads, int milliseconds)
{
    return read_rate(data, bytes, n_threads, milliseconds, NULL);
}

double membw_read_until(int n_threads, int milliseconds, const atomic_bool *stop)
{
    return read_rate(NULL, 0, n_threads, milliseconds, stop);
}

bool membw_faster(double near, double far)
{
    return far > 0 && near > 1.4 * far;
}

bool membw_swung(double a, double b)
{
    return a > 0 && b > 0 && (a > 1.25 * b || b > 1.25 * a);
}

/* Reads the first `bytes` repeatedly until `volume` bytes are read. */
static double read_again(struct pool *pool, struct reading *r, size_t bytes, size_t volume)
{
    uint64_t start = clock_now();
    size_t read = 0;

    r->slice = bytes / (size_t)pool_threads(pool) / (4 * STEP) * (4 * STEP);
    while (read < volume && r->slice && !stopped(r->stop)) {
        pool_run(pool, read_slice, r);
        read += r->slice * (size_t)pool_threads(pool);
    }
    return clock_rate((double)read, clock_now() - start);
}

bool membw_cached(uint64_t bytes, int n_threads)
{
    return membw_cached_until(bytes, n_threads, NULL);
}

bool membw_cached_until(uint64_t bytes, int n_threads, const atomic_bool *stop)
{
    int n = n_threads > 0 ? n_threads : topology_cores();
    size_t own = membw_far_bytes();
    struct reading *r = NULL;
    struct series_figures near, far;
    double fast[ROUNDS], slow[ROUNDS];
    struct pool *pool = NULL;
    void *buffer = NULL;
    bool cached = false;

    assert(n_threads >= 0);
    if (!bytes || bytes > membw_cache_bytes() || bytes > own / 2)
        return false;
    n = n < POOL_MAX ? n : POOL_MAX;
    if (!(r = mem_alloc(1, sizeof *r)) || pool_new(&pool, n, true, NULL) < 0 ||
        !(buffer = buffer_new(own, stop)))
        goto out;
    r->stop = stop;
    r->data = buffer;
    r->pattern = PATTERNS - 1;
    /* the same volume each, so that a pause of the machine affects both equally */
    for (int i = 0; i < ROUNDS && !stopped(stop); i++) {
        slow[i] = read_again(pool, r, own, own);
        read_again(pool, r, (size_t)bytes, 1);
        fast[i] = read_again(pool, r, (size_t)bytes, own);
    }
    if (stopped(stop))
        goto out;
    series_summarise_sorted(fast, ROUNDS, &near);
    series_summarise_sorted(slow, ROUNDS, &far);
    cached = membw_faster(near.median, far.median);
out:
    buffer_free(buffer, own);
    pool_free(pool);
    mem_free(r);
    return cached;
}
