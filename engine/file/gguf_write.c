/* See gguf_write.h. One thread. The head is built in memory (a vocabulary is a few MB), so that its
 * counts need no patching later. */
#include "engine/file/gguf_write.h"

#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/base/size.h"
#include "engine/file/tensor.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ALIGNMENT 32

enum { TYPE_U32 = 4, TYPE_BOOL = 7, TYPE_ARRAY = 9 };

struct bytes {
    uint8_t *data;
    size_t size, room;
};

struct gguf_writer {
    char path[PATH_MAX], temporary[PATH_MAX + 32];
    int fd;
    bool named; /* temporary is a name in the folder, not only a descriptor's */
    struct bytes metadata, tensors;
    uint64_t n_metadata, n_tensors;
    size_t *sizes;   /* bytes of each tensor */
    uint64_t offset; /* of the next tensor */
    uint64_t now;    /* tensor being written */
    size_t written;  /* bytes of it */
    struct error error;
};

static void put(struct gguf_writer *w, struct bytes *b, const void *data, size_t n)
{
    if (w->error.code)
        return;
    if (n > b->room - b->size) {
        size_t room = 2 * (b->size + n) + 4096;

        if (!MEM_FIT(b->data, room)) {
            error_set(&w->error, ERR_MEMORY, "%s: out of memory for its metadata", w->path);
            return;
        }
        b->room = room;
    }
    if (n)
        memcpy(b->data + b->size, data, n);
    b->size += n;
}

static void put_text(struct gguf_writer *w, struct bytes *b, const char *text, size_t n)
{
    uint64_t size = n;

    put(w, b, &size, 8);
    put(w, b, text, n);
}

static void put_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    put_text(w, &w->metadata, key, strlen(key));
    put(w, &w->metadata, &type, 4);
    w->n_metadata++;
}

/* A file without a name until it is whole: a process that is killed leaves nothing behind. */
static int open_nameless(struct gguf_writer *w)
{
#ifdef O_TMPFILE
    char folder[PATH_MAX];

    path_folder(w->path, folder, sizeof folder);
    w->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    snprintf(w->temporary, sizeof w->temporary, "/proc/self/fd/%d", w->fd);
    if (w->fd >= 0 && access(w->temporary, R_OK) == 0)
        return 0;
    if (w->fd >= 0)
        close(w->fd); /* no /proc: it could not be linked to a name */
#endif
    return -1;
}

/* Without support for unnamed files: opens a temporary name. */
static int open_part(struct gguf_writer *w)
{
    snprintf(w->temporary, sizeof w->temporary, "%s.%ld.part", w->path, (long)getpid());
    w->fd = open(w->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    w->named = w->fd >= 0;
    return w->fd < 0 ? -1 : 0;
}

/* If the target is a symbolic link it is kept: the file it points to is replaced. */
int gguf_write_open(struct gguf_writer **out, const char *path, struct error *e)
{
    struct gguf_writer *w = mem_alloc(1, sizeof *w);
    struct stat st;

    *out = NULL;
    if (!w)
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    w->fd = -1;
    if (!realpath(path, w->path) &&
        (size_t)snprintf(w->path, sizeof w->path, "%s", path) >= sizeof w->path) {
        mem_free(w);
        return error_set(e, ERR_IO, "%.64s…: the path is too long", path);
    }
    if (stat(w->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        mem_free(w);
        return error_set(e, ERR_IO, "%s: not a regular file; name the file to write", path);
    }
    if (open_nameless(w) < 0 && open_part(w) < 0) {
        error_set(e, ERR_IO, "%s: cannot write: %s", w->temporary, strerror(errno));
        mem_free(w);
        return e ? e->code : ERR_IO;
    }
    *out = w;
    return 0;
}

const char *gguf_write_temporary(const struct gguf_writer *w)
{
    return w->temporary;
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    put_key(w, key, TYPE_U32);
    put(w, &w->metadata, &v, 4);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    put_key(w, key, GGUF_F32);
    put(w, &w->metadata, &v, 4);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;

    put_key(w, key, TYPE_BOOL);
    put(w, &w->metadata, &byte, 1);
}

void gguf_put_string(struct gguf_writer *w, const char *key, const char *text, size_t bytes)
{
    put_key(w, key, GGUF_STRING);
    put_text(w, &w->metadata, text, bytes);
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_element type, size_t count)
{
    uint32_t t = type;
    uint64_t n = count;

    assert(type == GGUF_I32 || type == GGUF_F32 || type == GGUF_BOOL || type == GGUF_STRING ||
           type == GGUF_U64);
    put_key(w, key, TYPE_ARRAY);
    put(w, &w->metadata, &t, 4);
    put(w, &w->metadata, &n, 8);
}

void gguf_add_i32(struct gguf_writer *w, int32_t v)
{
    put(w, &w->metadata, &v, 4);
}

void gguf_add_f32(struct gguf_writer *w, float v)
{
    put(w, &w->metadata, &v, 4);
}

void gguf_add_u64(struct gguf_writer *w, uint64_t v)
{
    put(w, &w->metadata, &v, 8);
}

void gguf_add_bool(struct gguf_writer *w, bool v)
{
    uint8_t byte = v;

    put(w, &w->metadata, &byte, 1);
}

void gguf_add_string(struct gguf_writer *w, const char *text, size_t bytes)
{
    put_text(w, &w->metadata, text, bytes);
}

void gguf_put_raw(struct gguf_writer *w, const void *entry, size_t bytes)
{
    put(w, &w->metadata, entry, bytes);
    w->n_metadata++;
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, enum dtype type, int n_dims,
                       const int64_t *dims)
{
    uint32_t n = (uint32_t)n_dims, id = (uint32_t)dtype_info(type)->gguf;
    size_t bytes = dtype_row_bytes(type, dims[n_dims - 1]);

    assert(n_dims >= 1 && n_dims <= TENSOR_DIMS);
    if (!MEM_FIT(w->sizes, w->n_tensors + 1)) {
        error_set(&w->error, ERR_MEMORY, "%s: out of memory for its tensors", w->path);
        return;
    }
    put_text(w, &w->tensors, name, strlen(name));
    put(w, &w->tensors, &n, 4);
    for (int i = n_dims - 1; i >= 0; i--) {
        uint64_t d = (uint64_t)dims[i];

        put(w, &w->tensors, &d, 8);
        bytes *= i < n_dims - 1 ? (size_t)dims[i] : 1;
    }
    put(w, &w->tensors, &id, 4);
    put(w, &w->tensors, &w->offset, 8);
    w->sizes[w->n_tensors++] = bytes;
    w->offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int out(struct gguf_writer *w, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    while (bytes && !w->error.code) {
        ssize_t n = write(w->fd, p, bytes < 1u << 30 ? bytes : 1u << 30);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return error_set(&w->error, ERR_IO, "%s: cannot write: %s", w->path,
                             strerror(n ? errno : ENOSPC));
        p += n;
        bytes -= (size_t)n;
    }
    return w->error.code;
}

static int report(struct gguf_writer *w, struct error *e)
{
    if (w->error.code && e)
        *e = w->error;
    return w->error.code;
}

static void pad(struct gguf_writer *w, uint64_t at)
{
    static const uint8_t zeros[ALIGNMENT];

    out(w, zeros, (ALIGNMENT - at % ALIGNMENT) % ALIGNMENT);
}

int gguf_write_begin(struct gguf_writer *w, struct error *e)
{
    uint32_t version = 3;
    uint64_t head = 24 + w->metadata.size + w->tensors.size;
    char room[16];
    int full;

    assert(w->now == 0 && w->written == 0);
    if (w->error.code)
        return report(w, e);
    /* Allocates everything now: a full disk is detected before hours of work, not after. Some file
     * systems cannot; then it is detected later. */
    full = posix_fallocate(w->fd, 0, (off_t)(head + ALIGNMENT + w->offset));
    if (full == ENOSPC || full == EFBIG || full == EDQUOT) {
        error_set(&w->error, ERR_IO, "%s: no room for %s: %s", w->path,
                  size_format(head + w->offset, room, sizeof room), strerror(full));
        return report(w, e);
    }
    if (full == 0 && ftruncate(w->fd, 0)) {
        error_set(&w->error, ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
        return report(w, e);
    }
    out(w, "GGUF", 4);
    out(w, &version, 4);
    out(w, &w->n_tensors, 8);
    out(w, &w->n_metadata, 8);
    out(w, w->metadata.data, w->metadata.size);
    out(w, w->tensors.data, w->tensors.size);
    pad(w, head);
    return report(w, e);
}

int gguf_write_data(struct gguf_writer *w, const void *data, size_t bytes, struct error *e)
{
    if (w->error.code)
        return report(w, e);
    if (w->now >= w->n_tensors || bytes > w->sizes[w->now] - w->written) {
        error_set(&w->error, ERR_IO, "%s: more bytes than its tensors have", w->path);
        return report(w, e);
    }
    out(w, data, bytes);
    w->written += bytes;
    if (w->written == w->sizes[w->now]) {
        pad(w, w->written);
        w->written = 0;
        w->now++;
    }
    return report(w, e);
}

int gguf_write_sync(struct gguf_writer *w, struct error *e)
{
    if (!w->error.code && (w->now != w->n_tensors || w->written))
        error_set(&w->error, ERR_IO, "%s: only %llu of %llu tensors were written", w->path,
                  (unsigned long long)w->now, (unsigned long long)w->n_tensors);
    if (!w->error.code && fsync(w->fd))
        error_set(&w->error, ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
    return report(w, e);
}

static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    int fd;

    path_folder(path, folder, sizeof folder);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        if (fsync(fd)) {
            /* the rename is done; some file systems cannot sync folders */
        }
        close(fd);
    }
}

static void writer_free(struct gguf_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    mem_free(w->metadata.data);
    mem_free(w->tensors.data);
    mem_free(w->sizes);
    mem_free(w);
}

/* Links an unnamed file to a name to be renamed from: a link cannot replace another file. */
static int take_name(struct gguf_writer *w)
{
    char nameless[sizeof w->temporary];

    if (w->named)
        return 0;
    memcpy(nameless, w->temporary, sizeof nameless);
    snprintf(w->temporary, sizeof w->temporary, "%s.%ld.part", w->path, (long)getpid());
    w->named = linkat(AT_FDCWD, nameless, AT_FDCWD, w->temporary, AT_SYMLINK_FOLLOW) == 0;
    return w->named ? 0 : -1;
}

int gguf_write_finish(struct gguf_writer *w, struct error *e)
{
    int rc = gguf_write_sync(w, e);

    if (!rc && take_name(w) < 0)
        rc = error_set(e, ERR_IO, "%s: cannot take its name: %s", w->temporary, strerror(errno));
    if (!rc && close(w->fd))
        rc = error_set(e, ERR_IO, "%s: cannot write: %s", w->path, strerror(errno));
    w->fd = rc ? w->fd : -1;
    if (!rc && rename(w->temporary, w->path))
        rc = error_set(e, ERR_IO, "%s: cannot take its name: %s", w->path, strerror(errno));
    if (rc) {
        gguf_write_abort(w);
        return rc;
    }
    sync_folder(w->path);
    writer_free(w);
    return 0;
}

void gguf_write_abort(struct gguf_writer *w)
{
    if (!w)
        return;
    if (w->named)
        unlink(w->temporary);
    writer_free(w);
}
