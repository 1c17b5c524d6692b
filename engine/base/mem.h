/* Memory allocation for all of engine/, ui/, gpu/ and app/. Any thread. Failure returns NULL
 * (mem_*) so that the caller can report what it was for; sizes are checked for overflow. The guard:
 * while armed on a thread, any mem_* call on it aborts with the place that armed it (builds with
 * MOETOP_DEBUG only; elsewhere it is free). It is armed around forward and sampling: computing a
 * token allocates nothing. mem_fail_after(n) makes the n-th allocation of the process fail (tests:
 * 0, 1, 2, ... until success). */
#ifndef ENGINE_BASE_MEM_H
#define ENGINE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

void *mem_alloc(size_t count, size_t size); /* zeroed; count * size checked */
/* not zeroed beyond the old size; old kept on failure */
void *mem_resize(void *old, size_t count, size_t size);
/* A list, made larger where it lies: false: it is as it was, there is no memory. */
bool mem_extend(void **list, size_t count, size_t size);
#define MEM_FIT(list, count) mem_extend((void **)&(list), (size_t)(count), sizeof *(list))
/* Whether there is room for element n: a full list is doubled, from `first` on. room, which counts
 * how many fit, is of n's type. */
#define MEM_ROOM(list, n, room, first)                                \
    ((n) < (room) || (MEM_FIT(list, (room) ? 2 * (room) : (first)) && \
                      ((room) = (room) ? 2 * (room) : (first)) > 0))
char *mem_string(const char *text);             /* copy; NULL in gives NULL */
char *mem_string_n(const char *text, size_t n); /* copy of n bytes plus a terminating 0 */
void mem_free(void *p);                         /* accepts NULL */

/* Page-backed memory for weights, KV and scratch: aligned to 2 MiB when that large (transparent
 * huge pages requested), else to the page; zeroed; exempt from the guard, counted in
 * mem_pages_total(). */
void *mem_pages(size_t bytes);
void mem_pages_free(void *p, size_t bytes);
/* Returns whole pages of such memory to the system until they are written again; they read as
 * zeros. */
void mem_pages_forget(void *p, size_t bytes);
/* Memory that mmap gave may be where AddressSanitizer had some of its own, which its runtime (LLVM
 * 14) goes on calling so: says that it is ours. Nothing in other builds. */
void mem_mapped(const void *p, size_t bytes);
/* Address space for memory that grows in place, aligned as that of mem_pages; NULL: not so much.
 * use: its next part, both bounds whole pages; false: no memory. free: all of it, `used` bytes of
 * which were made usable. */
void *mem_reserve(size_t bytes);
bool mem_reserve_use(void *p, size_t bytes);
void mem_reserve_free(void *p, size_t bytes, size_t used);
/* bytes now held by mem_pages, whole process */
size_t mem_pages_total(void);

void mem_guard_arm(const char *what); /* this thread, nests */
void mem_guard_disarm(void);
void mem_fail_after(long n); /* -1: never (the default) */

#endif
