/* How fast this machine reads memory right now: the speed of light of decoding. Owner: the caller.
 * Any thread, one measurement at a time. Other processes share the memory, so a figure is worth
 * something only next to the run it is compared with. */
#ifndef ENGINE_BASE_MEMBW_H
#define ENGINE_BASE_MEMBW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes a second that n_threads threads (0: one a physical core) together read, best of five access
 * patterns (plain, prefetching, four streams, prefetching at two distances, four streams that do
 * so), each its median pass; takes about `milliseconds`. data: memory to read (the weights
 * themselves), or NULL: a buffer of its own of membw_far_bytes. 0: no memory, not twice a buffer of
 * 64 MiB left (membw_limit), or data too small to say anything. */
double membw_read(const void *data, size_t bytes, int n_threads, int milliseconds);
/* The same of a buffer of its own, but soon over once *stop is true, and then 0. */
double membw_read_until(int n_threads, int milliseconds, const atomic_bool *stop);
/* Last-level cache in bytes (of one package), 0: unknown. What the processor says of itself: a
 * virtual machine may have a small share of it. */
uint64_t membw_cache_bytes(void);
/* Size of a buffer that no cache holds: four times the last-level cache, at most 1 GiB and a
 * quarter of what is left (membw_limit). 0: one that says anything would take half of what is left
 * or more, and whoever needs that next would be killed for it. */
size_t membw_far_bytes(void);
/* Whether so many bytes, read again and again, are read clearly faster than memory: measured beside
 * it, by turns. Takes some tenths of a second, unless more than the processor's cache is asked for:
 * no. */
bool membw_cached(uint64_t bytes, int n_threads);
/* The same, but soon over once *stop is true: false then says nothing. */
bool membw_cached_until(uint64_t bytes, int n_threads, const atomic_bool *stop);
/* Bytes of buffers of its own that these two hold now, and the most there were since the program
 * began: what a process has in memory beside its own while it measures. Any thread. */
struct membw_held {
    uint64_t now, most;
};
struct membw_held membw_held(void);
/* Who tells how many bytes this process may still take, a control group's limit honoured: asked
 * before a buffer is taken, on the thread that measures. NULL, or UINT64_MAX of it: the machine's
 * free pages count, which are few where files fill the rest. Set before any thread measures. */
void membw_limit(uint64_t (*left)(void));
/* What counts as clearly faster. */
bool membw_faster(double near, double far);
/* Whether two readings lie so far apart that a share of either means nothing; not with one of 0. */
bool membw_swung(double a, double b);

#endif
