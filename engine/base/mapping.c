/* File mappings and the SIGBUS guard. Any thread; the table is the only global of this file,
 * because a signal handler gets no user argument: it can only find the mapping by address. */
#include "engine/base/mapping.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define PAGE 4096

/* begin is stored last and cleared first, so the handler never pairs it with another mapping's
 * end. */
static struct {
    atomic_uintptr_t begin, end;
    atomic_int damaged, used;
} guard[MAPPING_MAX];

static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction previous;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    int saved = errno;

    for (int i = 0; i < MAPPING_MAX; i++) {
        uintptr_t begin = atomic_load(&guard[i].begin), end = atomic_load(&guard[i].end);

        if (!begin || at < begin || at >= end)
            continue;
        at &= ~(uintptr_t)(PAGE - 1);
        /* mmap is a plain system call on Linux: safe here. The whole rest is replaced at once: it
         * is lost as well. */
        if (mmap((void *)at, end - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
            MAP_FAILED)
            break;
        atomic_store(&guard[i].damaged, 1);
        errno = saved;
        return;
    }
    errno = saved;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(sig, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(sig);
    } else {
        /* the faulting instruction runs again and terminates the process as without the handler */
        signal(SIGBUS, SIG_DFL);
    }
}

/* At every open: a crash handler installed in between is then called by ours instead of replacing
 * it. */
static int install(void)
{
    struct sigaction now, ours = {0};
    int rc = 0;

    pthread_mutex_lock(&install_lock);
    if (sigaction(SIGBUS, NULL, &now) == 0 &&
        !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_sigbus)) {
        previous = now;
        ours.sa_sigaction = on_sigbus;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&ours.sa_mask);
        rc = sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&install_lock);
    return rc;
}

static int slot_take(const void *begin, size_t bytes)
{
    for (int i = 0; i < MAPPING_MAX; i++) {
        int free_slot = 0;

        if (!atomic_compare_exchange_strong(&guard[i].used, &free_slot, 1))
            continue;
        atomic_store(&guard[i].damaged, 0);
        atomic_store(&guard[i].end, (uintptr_t)begin + bytes);
        atomic_store(&guard[i].begin, (uintptr_t)begin);
        return i;
    }
    return -1;
}

int mapping_open(struct mapping *m, const char *path, struct error *e)
{
    struct stat st;
    void *p;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;

    *m = (struct mapping){.data = (const uint8_t *)"", .slot = -1};
    if (fd < 0)
        return error_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st)) {
        rc = error_set(e, ERR_IO, "%s: cannot read its size: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = error_set(e, ERR_IO, "%s: not a regular file", path);
        goto out;
    }
    if (!(m->path = mem_string(path))) {
        rc = error_set(e, ERR_MEMORY, "%s: out of memory", path);
        goto out;
    }
    if (st.st_size == 0)
        goto out;
    if (install()) {
        rc = error_set(e, ERR_IO, "%s: cannot guard the mapping: %s", path, strerror(errno));
        goto out;
    }
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        rc = error_set(e, errno == ENOMEM ? ERR_MEMORY : ERR_IO, "%s: cannot map: %s", path,
                       strerror(errno));
        goto out;
    }
    mem_mapped(p, (size_t)st.st_size);
    /* The last page belongs to the mapping completely: beyond the end of the file it reads as
     * zeros. */
    m->slot = slot_take(p, ((size_t)st.st_size + PAGE - 1) & ~(size_t)(PAGE - 1));
    if (m->slot < 0) {
        munmap(p, (size_t)st.st_size);
        rc = error_set(e, ERR_IO, "%s: more than %d files mapped", path, MAPPING_MAX);
        goto out;
    }
    m->data = p;
    m->size = (size_t)st.st_size;
out:
    close(fd);
    if (rc)
        mapping_close(m);
    return rc;
}

void mapping_close(struct mapping *m)
{
    if (m->size && m->slot >= 0) {
        atomic_store(&guard[m->slot].begin, 0);
        munmap((void *)(uintptr_t)m->data, m->size);
        atomic_store(&guard[m->slot].used, 0);
    }
    mem_free(m->path);
    *m = (struct mapping){.data = (const uint8_t *)"", .slot = -1};
}

int mapping_check(const struct mapping *m, struct error *e)
{
    assert(m->data);
    if (m->slot >= 0 && m->size &&
        atomic_load_explicit(&guard[m->slot].damaged, memory_order_relaxed))
        return error_set(
            e, ERR_IO,
            "%s: changed while it was read (truncated or a disk error); load the model again",
            m->path);
    return 0;
}

void mapping_want(const struct mapping *m, size_t offset, size_t bytes)
{
    size_t from = offset & ~(size_t)(PAGE - 1);

    assert(m->data);
    if (m->slot < 0 || offset >= m->size || bytes > m->size - offset)
        return;
    if (madvise((void *)(uintptr_t)(m->data + from), offset + bytes - from, MADV_POPULATE_READ))
        madvise((void *)(uintptr_t)(m->data + from), offset + bytes - from, MADV_WILLNEED);
}

void mapping_ahead(const struct mapping *m, size_t offset, size_t bytes)
{
    size_t from = offset & ~(size_t)(PAGE - 1);

    assert(m->data);
    if (m->slot >= 0 && offset < m->size && bytes <= m->size - offset)
        madvise((void *)(uintptr_t)(m->data + from), offset + bytes - from, MADV_WILLNEED);
}

void mapping_forget(const struct mapping *m, size_t offset, size_t bytes)
{
    size_t from = (offset + PAGE - 1) & ~(size_t)(PAGE - 1),
           to = (offset + bytes) & ~(size_t)(PAGE - 1);

    assert(m->data);
    /* The guard's pages need no check: dropping them is harmless too (they are zeros). */
    if (m->slot >= 0 && offset <= m->size && bytes <= m->size - offset && to > from)
        madvise((void *)(uintptr_t)(m->data + from), to - from, MADV_DONTNEED);
}
