/* Measures this machine's current memory read bandwidth, the upper bound of decoding. Owner: the
 * caller. Any thread, one measurement at a time. Other processes share the memory, so compare a
 * figure only with a run at the same time. */
#ifndef ENGINE_BASE_MEMBW_H
#define ENGINE_BASE_MEMBW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes per second read by n_threads threads together (0: one a physical core), best of five access
 * patterns (plain, prefetching, four streams, prefetching at two distances, four streams that do
 * so), each its median pass; takes about `milliseconds`. data: memory to read (the weights
 * themselves), or NULL: a temporary buffer of membw_far_bytes. 0: out of memory, less than twice a
 * buffer of 64 MiB left (membw_limit), or data too small for a result. */
double membw_read(const void *data, size_t bytes, int n_threads, int milliseconds);
/* The same with a temporary buffer; aborts soon after *stop becomes true and returns 0. */
double membw_read_until(int n_threads, int milliseconds, const atomic_bool *stop);
/* Last-level cache in bytes (of one package), 0: unknown. As reported by the processor: a virtual
 * machine may have a small share of it. */
uint64_t membw_cache_bytes(void);
/* Bytes of level 2 or 3 on the first CPU; 0: not known. */
uint64_t membw_cache_level(int level);
/* Size of a buffer that no cache holds: four times the last-level cache, at most 1 GiB and a
 * quarter of the memory left (membw_limit). 0: a meaningful one would take half of what is left or
 * more, so that a later allocation could be killed for it. */
size_t membw_far_bytes(void);
/* Whether so many bytes, read again and again, are read clearly faster than memory: both are
 * measured alternately. Takes some tenths of a second, unless bytes exceed the processor's cache:
 * false. */
bool membw_cached(uint64_t bytes, int n_threads);
/* The same, but aborts soon after *stop becomes true: false then means nothing. */
bool membw_cached_until(uint64_t bytes, int n_threads, const atomic_bool *stop);
/* Bytes of temporary buffers that these two hold now, and their maximum since the program started:
 * the extra memory of the process while it measures. Any thread. */
struct membw_held {
    uint64_t now, most;
};
struct membw_held membw_held(void);
/* Sets the function that returns how many bytes this process may still allocate, including a
 * control group's limit: called before a buffer is allocated, on the measuring thread. NULL, or if
 * it returns UINT64_MAX: the machine's free pages count, which are few if the page cache is full.
 * Set before any thread measures. */
void membw_limit(uint64_t (*left)(void));
/* The threshold for clearly faster. */
bool membw_faster(double near, double far);
/* Whether two readings differ so much that a share of either means nothing; false if one is 0. */
bool membw_swung(double a, double b);

#endif
