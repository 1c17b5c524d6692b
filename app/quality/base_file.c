/* See base_file.h. The format has no version and no byte order mark: little-endian, like all
 * supported machines. */
#include "app/quality/base_file.h"

#include "app/quality/log_probs.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "_logits_"
#define CONTEXT_MOST (1 << 24)

int base_file_rows(int context)
{
    return context - 1 - context / 2;
}

static int write_failed(const struct base_file *f, struct error *e)
{
    return error_set(e, ERR_IO, "%s: cannot be written: %s", f->path, strerror(errno));
}

static int take_row(struct base_file *f, struct error *e)
{
    f->row = mem_alloc(log_probs_packed_bytes(f->vocabulary), 1);
    return f->row ? 0 : error_set(e, ERR_MEMORY, "%s: out of memory for a row", f->path);
}

int base_file_create(struct base_file *f, const char *path, int context, int vocabulary,
                     const int *ids, int chunks, struct error *e)
{
    int32_t head[3] = {context, vocabulary, chunks};
    char name[PATH_MAX];

    *f = (struct base_file){.context = context, .vocabulary = vocabulary, .chunks = chunks};
    snprintf(name, sizeof name, "%s.%ld.part", path, (long)getpid());
    if (!(f->path = mem_string(path)) || !(f->temporary = mem_string(name)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if (!(f->file = fopen(name, "wb")))
        return error_set(e, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
    if (fwrite(MAGIC, 1, 8, f->file) != 8 || fwrite(head, sizeof *head, 3, f->file) != 3 ||
        fwrite(ids, sizeof *ids, (size_t)chunks * (size_t)context, f->file) !=
            (size_t)chunks * (size_t)context)
        return write_failed(f, e);
    return take_row(f, e);
}

int base_file_write(struct base_file *f, const float *logits, struct error *e)
{
    log_probs_pack(logits, f->vocabulary, f->row);
    return fwrite(f->row, log_probs_packed_bytes(f->vocabulary), 1, f->file) == 1
               ? 0
               : write_failed(f, e);
}

int base_file_finish(struct base_file *f, struct error *e)
{
    if (fflush(f->file) || fsync(fileno(f->file)) || rename(f->temporary, f->path))
        return write_failed(f, e);
    mem_free(f->temporary);
    f->temporary = NULL;
    return 0;
}

/* The expected file size for this header, magic included. */
static uint64_t expected_bytes(const struct base_file *f)
{
    uint64_t chunks = (uint64_t)f->chunks;

    return 8 + 12 + 4 * chunks * (uint64_t)f->context +
           chunks * (uint64_t)base_file_rows(f->context) * log_probs_packed_bytes(f->vocabulary);
}

static int read_head(struct base_file *f, int vocabulary, struct error *e)
{
    char magic[8];
    int32_t head[3];
    struct stat s;

    if (fread(magic, 1, 8, f->file) != 8 || memcmp(magic, MAGIC, 8) != 0 ||
        fread(head, sizeof *head, 3, f->file) != 3)
        return error_set(e, ERR_INPUT,
                         "%s: no file of base logits (--kl-divergence-base with --perplexity "
                         "writes one)",
                         f->path);
    f->context = head[0];
    f->vocabulary = head[1];
    f->chunks = head[2];
    if (f->vocabulary != vocabulary)
        return error_set(e, ERR_INPUT, "%s: of a model with %d tokens; this one has %d", f->path,
                         f->vocabulary, vocabulary);
    if (f->context < 4 || f->context > CONTEXT_MOST || f->chunks < 1 ||
        f->chunks > INT_MAX / f->context || fstat(fileno(f->file), &s) != 0 ||
        (uint64_t)s.st_size != expected_bytes(f))
        return error_set(e, ERR_INPUT, "%s: damaged: %d chunks of %d tokens are not what it holds",
                         f->path, f->chunks, f->context);
    return 0;
}

static int read_ids(struct base_file *f, struct error *e)
{
    size_t n = (size_t)f->chunks * (size_t)f->context;

    if (!(f->ids = mem_alloc(n, sizeof *f->ids)))
        return error_set(e, ERR_MEMORY, "%s: out of memory for its tokens", f->path);
    if (fread(f->ids, sizeof *f->ids, n, f->file) != n)
        return error_set(e, ERR_IO, "%s: cannot be read: %s", f->path, strerror(errno));
    for (size_t i = 0; i < n; i++)
        if (f->ids[i] < 0 || f->ids[i] >= f->vocabulary)
            return error_set(e, ERR_INPUT, "%s: damaged: token %zu is %d", f->path, i, f->ids[i]);
    return 0;
}

int base_file_open(struct base_file *f, const char *path, int vocabulary, struct error *e)
{
    int rc;

    *f = (struct base_file){0};
    if (!(f->path = mem_string(path)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    if (!(f->file = fopen(path, "rb")))
        return error_set(e, ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if ((rc = read_head(f, vocabulary, e)) < 0 || (rc = read_ids(f, e)) < 0)
        return rc;
    return take_row(f, e);
}

int base_file_read(struct base_file *f, struct error *e)
{
    return fread(f->row, log_probs_packed_bytes(f->vocabulary), 1, f->file) == 1
               ? 0
               : error_set(e, ERR_IO, "%s: cannot be read to its end", f->path);
}

void base_file_close(struct base_file *f)
{
    if (f->file)
        fclose(f->file);
    if (f->temporary)
        unlink(f->temporary);
    mem_free(f->path);
    mem_free(f->temporary);
    mem_free(f->ids);
    mem_free(f->row);
    *f = (struct base_file){0};
}
