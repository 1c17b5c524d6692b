/* Allocation, the no-allocation guard and page-backed memory. Any thread. */
#include "engine/base/mem.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Libraries keep memory until the process ends (drivers' caches, readline's undo lists); only our
 * own leaks are to be reported. */
#if defined(__SANITIZE_ADDRESS__)
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libreadline\nleak:libpocl\nleak:libLLVM\nleak:libclang\nleak:libOpenCL\nleak:"
           "libclblast\nleak:libdnnl\nleak:libstdc++\n"
           "leak:libRusticlOpenCL\nleak:libMesaOpenCL\nleak:libigdrcl\n";
}
#endif

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define __asan_region_is_poisoned(at, bytes) ((void)(at), (void)(bytes), (void *)NULL)
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define MAPPED_PIECE ((size_t)256 << 10)

static atomic_size_t pages_total;
static atomic_long fail_countdown = -1;
static _Thread_local int guard_depth;
static _Thread_local const char *guard_what;

static int may_allocate(void)
{
#ifdef MOETOP_DEBUG
    if (guard_depth > 0) {
        fprintf(stderr, "moetop: allocation while '%s' forbids it\n", guard_what);
        abort();
    }
#endif
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) >= 0 &&
        atomic_fetch_sub(&fail_countdown, 1) == 0)
        return 0;
    return 1;
}

/* Where the system has huge pages on demand. */
static void ask_huge(void *p, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);
#endif
}

/* Rows of activations are a page or more apart: without huge pages every row is a TLB miss. */
static void want_huge(void *p, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1),
              end = ((uintptr_t)p + bytes) & ~(HUGE_PAGE - 1);

    if (end > begin)
        ask_huge((void *)begin, end - begin);
}

void *mem_alloc(size_t count, size_t size)
{
    void *p = may_allocate() ? calloc(count ? count : 1, size ? size : 1) : NULL;

    if (p && size && count >= 2 * HUGE_PAGE / size)
        want_huge(p, count * size);
    return p;
}

void *mem_resize(void *old, size_t count, size_t size)
{
    if (!may_allocate() || (size && count > SIZE_MAX / size))
        return NULL;
    return realloc(old, count && size ? count * size : 1);
}

bool mem_extend(void **list, size_t count, size_t size)
{
    void *more = mem_resize(*list, count, size);

    *list = more ? more : *list;
    return more;
}

char *mem_string_n(const char *text, size_t n)
{
    char *copy = n < SIZE_MAX ? mem_alloc(n + 1, 1) : NULL;

    assert(text || n == 0);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *mem_string(const char *text)
{
    return text ? mem_string_n(text, strlen(text)) : NULL;
}

void mem_free(void *p)
{
    free(p);
}

/* Only where something is wrong: what is written to the checker's shadow, an eighth of the memory,
 * would be resident, and count as the program's. */
void mem_mapped(const void *p, size_t bytes)
{
    char *at = (char *)(uintptr_t)p;

    while (bytes) {
        size_t piece = bytes < MAPPED_PIECE ? bytes : MAPPED_PIECE;

        if (__asan_region_is_poisoned(at, piece))
            ASAN_UNPOISON_MEMORY_REGION(at, piece);
        at += piece;
        bytes -= piece;
    }
}

/* mmap aligns to 4 KiB only; the surplus of a 2 MiB alignment is unmapped at once. */
void *mem_pages(size_t bytes)
{
    size_t want = (bytes + 4095) & ~(size_t)4095, extra = want >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *p, *aligned;

    if (!may_allocate() || bytes > SIZE_MAX / 2)
        return NULL;
    if (!want)
        want = 4096;
    p = mmap(NULL, want + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    aligned = p;
    if (extra) {
        aligned = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
        if (aligned > p)
            munmap(p, (size_t)(aligned - p));
        if (p + want + extra > aligned + want)
            munmap(aligned + want, (size_t)(p + want + extra - (aligned + want)));
        ask_huge(aligned, want);
    }
    mem_mapped(aligned, want);
    atomic_fetch_add(&pages_total, want);
    return aligned;
}

void *mem_reserve(size_t bytes)
{
    char *p, *aligned;
    size_t head;

    if (bytes > SIZE_MAX / 2 || (bytes & 4095))
        return NULL;
    p = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
             0);
    if (p == MAP_FAILED)
        return NULL;
    aligned = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
    head = (size_t)(aligned - p);
    if (head)
        munmap(p, head);
    if (head < HUGE_PAGE)
        munmap(aligned + bytes, HUGE_PAGE - head);
    return aligned;
}

bool mem_reserve_use(void *p, size_t bytes)
{
    assert((((uintptr_t)p | bytes) & 4095) == 0);
    if (!may_allocate() || mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0)
        return false;
    if (bytes >= HUGE_PAGE)
        ask_huge(p, bytes);
    mem_mapped(p, bytes);
    atomic_fetch_add(&pages_total, bytes);
    return true;
}

void mem_reserve_free(void *p, size_t bytes, size_t used)
{
    if (!p)
        return;
    munmap(p, bytes);
    atomic_fetch_sub(&pages_total, used);
}

void mem_pages_free(void *p, size_t bytes)
{
    size_t want = (bytes + 4095) & ~(size_t)4095;

    assert(((uintptr_t)p & 4095) == 0);
    if (!p)
        return;
    if (!want)
        want = 4096;
    munmap(p, want);
    atomic_fetch_sub(&pages_total, want);
}

void mem_pages_forget(void *p, size_t bytes)
{
    uintptr_t first = ((uintptr_t)p + 4095) & ~(uintptr_t)4095,
              end = ((uintptr_t)p + bytes) & ~(uintptr_t)4095;

    if (end > first)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

size_t mem_pages_total(void)
{
    return atomic_load(&pages_total);
}

void mem_guard_arm(const char *what)
{
    assert(what);
    guard_depth++;
    guard_what = what;
}

void mem_guard_disarm(void)
{
    assert(guard_depth > 0);
    guard_depth--;
}

void mem_fail_after(long n)
{
    assert(n >= -1);
    atomic_store(&fail_countdown, n);
}
