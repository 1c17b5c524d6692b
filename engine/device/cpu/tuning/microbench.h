/* The machine's limits and the kernels' use of them: read bandwidth, compute peaks, and each kernel
 * and shape against them. Called by one thread at a time (--bench, the speed panel's roofline);
 * allocates its own memory and threads during the call. */
#ifndef ENGINE_DEVICE_CPU_TUNING_MICROBENCH_H
#define ENGINE_DEVICE_CPU_TUNING_MICROBENCH_H

#include "engine/base/error.h"
#include "engine/device/cpu/kernels/patterns.h"
#include "engine/model/model.h"

#include <stdbool.h>

/* Best of several passes over memory, by n_threads together: bytes a second; 0 without memory. The
 * buffer is 256 MiB, or membw_far_bytes if the last-level cache is large. Takes some tenths of a
 * second. */
double cpu_read_bandwidth(int n_threads);
/* Multiply-adds count two: operations a second of n_threads. int8: the widest integer dot product
 * this CPU has. */
double cpu_peak_f32(int n_threads);
double cpu_peak_int8(int n_threads);

struct microbench_result {
    char kernel[24]; /* "gemv q4_0", "dot q4_0", "norm" */
    int rows, cols, tokens;
    double seconds;    /* best run */
    bool integer;      /* its products are integers: the int8 peak applies */
    double bytes, ops; /* of one run: weights or cache read, multiply-adds times two */
};

/* Results of cpu_microbench, at most: every type on each shape, and what is no matrix. */
#define MICROBENCH_MOST (DTYPE_COUNT * 8 + 64)

/* Measures every kernel of the active set on the shapes of a model with this hidden size and expert
 * width, one thread. One token: as in decoding, from a matrix that fits the second-level cache and
 * from memory (uncached, see cpu_read_bandwidth). Fills out[MICROBENCH_MOST] and returns how many,
 * or a negative code. */
int cpu_microbench(struct microbench_result *out, int hidden, int expert_ffn, struct error *e);

/* Bytes a second at which n_threads together multiply weights of this type, rows of cols, with one
 * token by each read pattern: the best of some passes over more than the caches hold. ERR_MEMORY; 0
 * for all if the active set has no such kernel. */
int cpu_pattern_rates(enum dtype type, int cols, int n_threads, double rates[READ_PATTERNS],
                      struct error *e);
/* The pattern that decoding uses for them, and whether it was measured. */
enum pattern_id cpu_pattern_chosen(const char *cache_dir, enum dtype type, int cols, int n_threads,
                                   bool *measured);

/* The kernels that multiply a slice of `rows` weight rows, by number of tokens. */
struct microbench_choice {
    enum dtype type;
    int rows, cols;
    /* "avx512", "amx", "oneDNN"; large_batch NULL: small_batch serves all */
    const char *small_batch, *large_batch;
    int from;      /* tokens from which `large_batch` does; TUNE_NEVER: never */
    bool measured; /* else the built-in threshold */
    int busy;      /* per cent of the machine that others used meanwhile; 0: less than TUNE_BUSY */
};

/* For every shape of the model (from model_inspect), the choice of a CPU device opened with this
 * cache folder. Returns how many, at most max. decode: the number of n_threads measured to decode
 * fastest, 0: not measured. */
int cpu_choices(const struct model *m, const char *cache_dir, bool exact, bool float_library,
                int n_threads, struct microbench_choice *out, int max, int *decode);

#endif
