/* Weight files: detecting the format by content, and the common parts of all formats (tensor table,
 * overlap and duplicate checks, hash). Thread: see weights.h. The formats fill one plain table, so
 * that everything after open is the same code for all of them. */
#include "engine/base/hash.h"
#include "engine/file/weights.h"

#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/file/packed.h"
#include "engine/file/reader.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The two sorts below need the table; qsort has no argument for it. */
static int by_name(const void *a, const void *b, void *table)
{
    const struct stored_tensor *t = table;

    return strcmp(t[*(const uint32_t *)a].view.name, t[*(const uint32_t *)b].view.name);
}

static int by_place(const void *a, const void *b, void *table)
{
    const struct stored_tensor *x = (struct stored_tensor *)table + *(const uint32_t *)a,
                               *y = (struct stored_tensor *)table + *(const uint32_t *)b;

    if (x->map != y->map)
        return x->map < y->map ? -1 : 1;
    return x->view.data < y->view.data ? -1 : x->view.data > y->view.data;
}

/* Builds the name index; rejects duplicate names. */
static int sort_names(struct weight_file *f, struct error *e)
{
    size_t n = f->n_tensors;

    for (size_t i = 0; i < n; i++)
        f->by_name[i] = (uint32_t)i;
    qsort_r(f->by_name, n, sizeof *f->by_name, by_name, f->tensors);
    for (size_t i = 1; i < n; i++) {
        const struct stored_tensor *a = &f->tensors[f->by_name[i - 1]],
                                   *b = &f->tensors[f->by_name[i]];

        if (strcmp(a->view.name, b->view.name) == 0)
            return error_set(e, ERR_MODEL, "%s: tensor %s is there twice", f->maps[b->map].path,
                             b->view.name);
    }
    return 0;
}

/* Last step of every open: the name index, no byte in two tensors, packed ones shown as their
 * unpacked equivalents. */
static int seal(struct weight_file *f, struct error *e)
{
    size_t n = f->n_tensors;
    uint32_t *order = mem_alloc(n, sizeof *order);
    int rc = 0;

    f->by_name = mem_alloc(n, sizeof *f->by_name);
    if (!order || !f->by_name) {
        rc = error_set(e, ERR_MEMORY, "%s: out of memory for the tensor table", f->path);
        goto out;
    }
    if ((rc = sort_names(f, e)))
        goto out;
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    qsort_r(order, n, sizeof *order, by_place, f->tensors);
    for (size_t i = 1; i < n; i++) {
        const struct stored_tensor *a = &f->tensors[order[i - 1]], *b = &f->tensors[order[i]];

        if (a->map == b->map &&
            (const uint8_t *)a->view.data + a->view.bytes > (const uint8_t *)b->view.data) {
            rc = error_set(e, ERR_MODEL, "%s: tensors %s and %s overlap", f->maps[b->map].path,
                           a->view.name, b->view.name);
            goto out;
        }
    }
    if (n && f->packing.kind != PACKING_NONE && !(rc = packed_show(f, &f->packing, e)))
        rc = sort_names(f, e);
out:
    mem_free(order);
    return rc;
}

/* A folder without safetensors but with exactly one GGUF model (its first part, if split): that
 * one. 0: nothing found. */
static int find_gguf(const char *folder, char *out, size_t size)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    char name[NAME_MAX + 1];
    int found = 0;

    if (!d)
        return 0;
    while ((entry = readdir(d))) {
        size_t n = strlen(entry->d_name);
        const char *part = n > 20 && strncmp(entry->d_name + n - 14, "-of-", 4) == 0
                               ? entry->d_name + n - 19
                               : NULL;

        if (path_stem(entry->d_name, ".safetensors")) {
            found = 0;
            break;
        }
        if (entry->d_name[0] == '.' || !path_stem(entry->d_name, ".gguf") ||
            (part && strncmp(part, "00001", 5)))
            continue;
        found++;
        snprintf(name, sizeof name, "%s", entry->d_name);
    }
    closedir(d);
    if (found == 1)
        snprintf(out, size, "%s/%s", folder, name);
    return found == 1;
}

/* The end of a name of a piece that `split` or a script cut a GGUF file into, by bytes:
 * NAME.gguf.part1of3, NAME.gguf-split-a, NAME.gguf.part-aa, NAME.gguf.001. NULL: none. */
static const char *piece_ending(const char *path)
{
    const char *base = strrchr(path, '/'), *at = NULL;

    for (const char *p = base ? base : path; (p = strstr(p, ".gguf")); p += 5)
        at = p + 5;
    if (!at || !*at)
        return NULL;
    if (strncmp(at, "-split-", 7) == 0 || strncmp(at, ".part", 5) == 0 ||
        strncmp(at, "-part", 5) == 0 || (*at == '.' && strspn(at + 1, "0123456789") >= 2))
        return at;
    return NULL;
}

static int refuse_piece(const char *path, struct error *e)
{
    const char *ending = piece_ending(path);
    int whole = (int)(ending - path), mark = 1;

    while (ending[mark] && strchr("abcdefghijklmnopqrstuvwxyz-", ending[mark]) &&
           !(ending[mark - 1] == '-' && mark > 1))
        mark++;
    return error_set(e, ERR_MODEL,
                     "%s: one of the pieces that a GGUF file was cut into; join all of them, in "
                     "their order, first: cat '%.*s'* > '%.*s'",
                     path, whole + mark, path, whole, path);
}

static int choose(const char *path, bool tokenizer_only, char *real, size_t size,
                  const struct format_ops **ops, struct error *e)
{
    struct mapping m;
    struct stat st;
    uint8_t head[9] = {0};
    int rc;

    snprintf(real, size, "%s", path);
    if (stat(path, &st))
        return error_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        *ops = find_gguf(path, real, size) ? &format_gguf : &format_safetensors;
        return 0;
    }
    if (piece_ending(path))
        return refuse_piece(path, e);
    if ((rc = mapping_open(&m, path, e)))
        return rc;
    memcpy(head, m.data, m.size < sizeof head ? m.size : sizeof head);
    rc = m.size == 0 ? error_set(e, ERR_MODEL, "%s: empty file", path) : 0;
    mapping_close(&m);
    if (rc)
        return rc;
    if (memcmp(head, "GGUF", 4) == 0) {
        *ops = &format_gguf;
    } else if (head[8] == '{' && memcmp(head + 4, "\0\0\0\0", 4) == 0) {
        *ops = &format_safetensors;
    } else if (head[0] == '{') {
        /* config.json, tokenizer.json or the index: use its folder */
        char *slash = strrchr(real, '/');

        if (slash == real)
            slash++;
        snprintf(slash ? slash : real, slash ? 1 : size, "%s", slash ? "" : ".");
        *ops = &format_safetensors;
    } else if (memcmp(head, "FUGG", 4) == 0) {
        return error_set(e, ERR_MODEL,
                         "%s: a big-endian GGUF file; only little-endian ones are read", path);
    } else if (memcmp(head, "PK\3\4", 4) == 0) {
        return error_set(e, ERR_MODEL,
                         "%s: a PyTorch pickle (or zip) file; convert it to safetensors or GGUF: "
                         "pickles can run code",
                         path);
    } else {
        return error_set(
            e, ERR_MODEL,
            "%s: neither a GGUF nor a safetensors file (the first bytes say otherwise)", path);
    }
    return 0;
}

int weight_file_open(struct weight_file **out, const char *path, bool tokenizer_only,
                     struct error *e)
{
    struct weight_file *f;
    char real[PATH_MAX];
    const struct format_ops *ops = NULL;
    int rc;

    *out = NULL;
    if (strlen(path) >= sizeof real)
        return error_set(e, ERR_IO, "%.64s…: the path is too long", path);
    if ((rc = choose(path, tokenizer_only, real, sizeof real, &ops, e)))
        return rc;
    f = mem_alloc(1, sizeof *f);
    if (!f || !(f->path = mem_string(real))) {
        rc = error_set(e, ERR_MEMORY, "%s: out of memory", path);
        goto out;
    }
    f->ops = ops;
    if ((rc = ops->open(f, f->path, tokenizer_only, e)) || (rc = seal(f, e)))
        goto out;
    rc = weight_file_check(f, e);
out:
    if (rc) {
        weight_file_close(f);
        f = NULL;
    }
    *out = f;
    return rc;
}

void weight_file_close(struct weight_file *f)
{
    if (!f)
        return;
    if (f->ops)
        f->ops->close(f);
    for (size_t i = 0; i < f->n_tensors; i++)
        mem_free((void *)(uintptr_t)f->tensors[i].view.name);
    for (int i = 0; i < f->n_maps; i++)
        mapping_close(&f->maps[i]);
    overrides_release(&f->overrides);
    packed_release(f);
    mem_free(f->tensors);
    mem_free(f->by_name);
    mem_free(f->maps);
    mem_free(f->path);
    mem_free(f);
}

enum weight_format weight_file_format(const struct weight_file *f)
{
    return f->ops->format;
}

const struct packing *weight_file_packing(const struct weight_file *f)
{
    return &f->packing;
}

const char *weight_file_path(const struct weight_file *f)
{
    return f->path;
}

uint64_t weight_file_bytes(const struct weight_file *f)
{
    return f->bytes;
}

size_t weight_file_count(const struct weight_file *f)
{
    return f->n_tensors;
}

const struct tensor_view *weight_file_at(const struct weight_file *f, size_t i)
{
    return i < f->n_tensors ? &f->tensors[i].view : NULL;
}

const struct tensor_view *weight_file_find(const struct weight_file *f, const char *name)
{
    return file_find(f, name);
}

int weight_file_override(struct weight_file *f, const struct overrides *o, struct error *e)
{
    int rc = o ? overrides_check(o, e) : 0;

    assert(!f->overrides.n);
    return rc == 0 && o ? overrides_copy(&f->overrides, o, e) : rc;
}

struct meta_value weight_file_meta(const struct weight_file *f, const char *key)
{
    struct meta_value v;

    assert(f->ops && key);
    v = overrides_find(&f->overrides, key);
    return v.type == META_NONE ? f->ops->meta(f, key) : v;
}

struct meta_value meta_at(const struct meta_value *array, size_t i)
{
    if (array->type != META_ARRAY || i >= array->len)
        return (struct meta_value){0};
    return (array->origin == WEIGHT_GGUF ? &format_gguf : &format_safetensors)->meta_at(array, i);
}

bool weight_file_entry(const struct weight_file *f, size_t i, const char **key, size_t *key_bytes,
                       const void **entry, size_t *bytes)
{
    return f->ops->entry && f->ops->entry(f, i, key, key_bytes, entry, bytes);
}

const void *weight_file_aux(const struct weight_file *f, const char *name, size_t *bytes)
{
    *bytes = 0;
    return f->ops->aux ? f->ops->aux(f, name, bytes) : NULL;
}

int weight_file_check(const struct weight_file *f, struct error *e)
{
    for (int i = 0; i < f->n_maps; i++) {
        int rc = mapping_check(&f->maps[i], e);

        if (rc)
            return rc;
    }
    return 0;
}

/* Passes a hint to the mapping that contains these bytes of a tensor; none: a programmer's
 * error. */
static void tell_mapping(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                         size_t bytes,
                         void (*tell)(const struct mapping *m, size_t offset, size_t bytes))
{
    const struct mapping *m = &f->maps[((const struct stored_tensor *)t)->map];

    assert(offset <= t->bytes && bytes <= t->bytes - offset);
    if (offset <= t->bytes && bytes <= t->bytes - offset && bytes)
        tell(m, (size_t)((const uint8_t *)t->data - m->data) + offset, bytes);
}

void weight_file_want(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                      size_t bytes)
{
    tell_mapping(f, t, offset, bytes, mapping_want);
}

void weight_file_ahead(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                       size_t bytes)
{
    tell_mapping(f, t, offset, bytes, mapping_ahead);
}

void weight_file_forget(const struct weight_file *f, const struct tensor_view *t, size_t offset,
                        size_t bytes)
{
    tell_mapping(f, t, offset, bytes, mapping_forget);
}

/* FNV-1a over 64-bit steps, mixed: identity, not security. */
static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    const uint8_t *p = data;

    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t w;

        memcpy(&w, p, 8);
        h = hash_add(h, w);
        h ^= h >> 29;
    }
    return hash_bytes(h, p, bytes);
}

bool weight_file_place(const struct weight_file *f, const void *data, size_t bytes,
                       struct weight_place *out)
{
    uintptr_t at = (uintptr_t)data;

    for (int i = 0; i < f->n_maps; i++) {
        const struct mapping *m = &f->maps[i];
        uintptr_t from = (uintptr_t)m->data;

        if (at < from || at - from > m->size || bytes > m->size - (at - from))
            continue;
        *out = (struct weight_place){m->path, m->data, m->size, at - from};
        return true;
    }
    return false;
}

uint64_t weight_file_hash(const struct weight_file *f)
{
    uint64_t h = HASH_START;

    for (size_t i = 0; i < f->n_tensors; i++) {
        const struct tensor_view *t = &f->tensors[f->by_name[i]].view;
        const uint8_t *p = t->data;
        size_t sample = t->bytes < 64 ? t->bytes : 64;
        int type = (int)t->type;

        h = mix(h, t->name, strlen(t->name));
        h = mix(h, &type, sizeof type);
        h = mix(h, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        h = mix(h, p, sample);
        h = mix(h, p + (t->bytes - sample) / 2, sample);
        if (t->packed)
            h = mix(h, t->packed->scales.data,
                    t->packed->scales.bytes < 64 ? t->packed->scales.bytes : 64);
    }
    return h;
}
