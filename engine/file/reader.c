/* Common reading code of all formats: mappings, the table of tensors, checked shapes. Thread: the
 * one that opens the file. */
#include "engine/file/reader.h"

#include "engine/base/mem.h"

#include <string.h>

int file_map(struct weight_file *f, const char *path, struct error *e)
{
    int rc;

    if (!MEM_FIT(f->maps, f->n_maps + 1))
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    rc = mapping_open(&f->maps[f->n_maps], path, e);
    return rc ? rc : f->n_maps++;
}

int file_tensor(struct weight_file *f, int map, const char *name, size_t name_bytes,
                enum dtype type, int n_dims, const int64_t *dims, size_t offset, size_t bytes,
                struct error *e)
{
    struct stored_tensor *t;

    if (!MEM_ROOM(f->tensors, f->n_tensors, f->tensor_room, 256))
        return error_set(e, ERR_MEMORY, "%s: out of memory for the tensor table", f->path);
    t = &f->tensors[f->n_tensors];
    *t = (struct stored_tensor){.map = map,
                                .view = {.index = (uint32_t)f->n_tensors,
                                         .type = type,
                                         .n_dims = n_dims,
                                         .data = f->maps[map].data + offset,
                                         .bytes = bytes}};
    memcpy(t->view.dims, dims, (size_t)n_dims * sizeof *dims);
    if (!(t->view.name = mem_string_n(name, name_bytes)))
        return error_set(e, ERR_MEMORY, "%s: out of memory for a tensor name", f->path);
    f->n_tensors++;
    f->bytes += bytes;
    return 0;
}

int file_shape_bytes(const char *path, const char *name, enum dtype type, int n_dims,
                     const int64_t *dims, size_t *bytes, struct error *e)
{
    const struct dtype_info *d = dtype_info(type);
    int64_t rows = 1, last = n_dims ? dims[n_dims - 1] : 1;
    size_t row;

    for (int i = 0; i < n_dims; i++)
        if (dims[i] < 1)
            return error_set(e, ERR_MODEL,
                             "%s: tensor %s: dimension %d is %lld; it must be positive", path, name,
                             i, (long long)dims[i]);
    for (int i = 0; i + 1 < n_dims; i++)
        if (__builtin_mul_overflow(rows, dims[i], &rows))
            return error_set(e, ERR_MODEL, "%s: tensor %s: its dimensions overflow when multiplied",
                             path, name);
    if (last % d->block)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s: rows of %lld elements are no multiple of %s's block of %d",
                         path, name, (long long)last, d->word, d->block);
    row = dtype_row_bytes(type, last);
    if (!row || __builtin_mul_overflow(row, (size_t)rows, bytes) || *bytes > SIZE_MAX / 4)
        return error_set(e, ERR_MODEL, "%s: tensor %s: its dimensions overflow when multiplied",
                         path, name);
    return 0;
}

const struct tensor_view *file_find(const struct weight_file *f, const char *name)
{
    size_t low = 0, high = f->n_tensors;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct tensor_view *t = &f->tensors[f->by_name[mid]].view;
        int order = strcmp(name, t->name);

        if (order == 0)
            return t;
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}
