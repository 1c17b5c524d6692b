/* safetensors and the Hugging Face folder around it: one file or shards with an index, config.json
 * and its companions. Thread: see weights.h. Format: huggingface/safetensors README: u64 header
 * length, JSON header, data; ranges contiguous to the end. The companions are mapped and parsed at
 * open because the object is immutable afterwards; they are small compared to weights. */
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"
#include "engine/file/reader.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEADER_MAX ((uint64_t)100 << 20) /* as the reference implementation */
#define INDEX_FILE "model.safetensors.index.json"

/* parsed: its values are available from weight_file_meta("name:path"); config.json also without the
 * prefix. The first one and the last describe packed weights (packing.h). */
static const struct {
    const char *name;
    bool parsed;
} companion[] = {
    {"config.json", true},           {"generation_config.json", true},
    {"tokenizer_config.json", true}, {"special_tokens_map.json", true},
    {"added_tokens.json", true},     {"tokenizer.json", false},
    {"chat_template.jinja", false},  {"chat_template.json", true},
    {"tokenizer.model", false},      {"vocab.json", false},
    {"merges.txt", false},           {"1_Pooling/config.json", true},
    {"hf_quant_config.json", true},
};
#define COMPANIONS (sizeof companion / sizeof *companion)

struct folder {
    struct mapping file[COMPANIONS];
    json_t *root[COMPANIONS];
    json_t *index;
};

/* Reads one tensor of a header; its data starts `data` bytes into the file. */
static int read_tensor(struct weight_file *f, int map, const char *name, const json_t *entry,
                       size_t data, struct error *e)
{
    const struct mapping *m = &f->maps[map];
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape"),
                 *range = json_object_get(entry, "data_offsets");
    int64_t dims[TENSOR_DIMS], begin, end;
    size_t bytes, room = m->size - data, n_dims = json_array_size(shape);
    int type, rc;

    if (strlen(name) > FILE_NAME_MAX)
        return error_set(e, ERR_MODEL, "%s: a tensor name is %zu bytes long; at most %d make sense",
                         m->path, strlen(name), FILE_NAME_MAX);
    if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(range) != 2)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s: dtype, shape or data_offsets missing or of the wrong kind",
                         m->path, name);
    if ((type = dtype_from_safetensors(json_string_value(dtype))) < 0)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s has the type %.32s, which is not supported (F32, F16, BF16 "
                         "and those of packed weights are)",
                         m->path, name, json_string_value(dtype));
    if (n_dims > TENSOR_DIMS)
        return error_set(e, ERR_MODEL, "%s: tensor %s has %zu dimensions; at most %d are possible",
                         m->path, name, n_dims, TENSOR_DIMS);
    for (size_t i = 0; i < n_dims; i++) {
        const json_t *d = json_array_get(shape, i);

        if (!json_is_integer(d))
            return error_set(e, ERR_MODEL, "%s: tensor %s: dimension %zu is not an integer",
                             m->path, name, i);
        dims[i] = json_integer_value(d);
    }
    if ((rc = file_shape_bytes(m->path, name, (enum dtype)type, (int)n_dims, dims, &bytes, e)))
        return rc;
    begin = json_integer_value(json_array_get(range, 0));
    end = json_integer_value(json_array_get(range, 1));
    if (!json_is_integer(json_array_get(range, 0)) || !json_is_integer(json_array_get(range, 1)) ||
        begin < 0 || end < begin)
        return error_set(e, ERR_MODEL, "%s: tensor %s: data_offsets are not two rising integers",
                         m->path, name);
    if ((uint64_t)(end - begin) != bytes)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s: its shape needs %zu bytes, its data_offsets span %lld",
                         m->path, name, bytes, (long long)(end - begin));
    if ((uint64_t)end > room)
        return error_set(e, ERR_MODEL,
                         "%s: tensor %s ends at byte %lld of the data, but the file holds %zu: "
                         "truncated or damaged",
                         m->path, name, (long long)end, room);
    return file_tensor(f, map, name, strlen(name), (enum dtype)type, (int)n_dims, dims,
                       data + (size_t)begin, bytes, e);
}

/* shard: its name in the index, which then decides which tensors count; NULL: all. */
static int read_file(struct weight_file *f, const char *path, const char *shard,
                     const json_t *weight_map, struct error *e)
{
    int map = file_map(f, path, e), rc = 0;
    const struct mapping *m;
    json_t *header = NULL;
    const char *name;
    json_t *entry;
    uint64_t n;
    int64_t end = 0;
    char label[PATH_MAX + 32];

    if (map < 0)
        return map;
    m = &f->maps[map];
    if (m->size < 8)
        return error_set(e, ERR_MODEL,
                         "%s: truncated: %zu bytes, and a safetensors file begins with 8", path,
                         m->size);
    memcpy(&n, m->data, 8);
    if (n > m->size - 8)
        return error_set(e, ERR_MODEL,
                         "%s: its header claims %llu bytes, the file holds %zu: truncated, or not "
                         "a safetensors file",
                         path, (unsigned long long)n, m->size - 8);
    if (n > HEADER_MAX)
        return error_set(e, ERR_MODEL, "%s: a header of %llu bytes; at most %llu make sense", path,
                         (unsigned long long)n, (unsigned long long)HEADER_MAX);
    snprintf(label, sizeof label, "%s: header", path);
    if (!(header = json_read(m->data + 8, (size_t)n, label, e)))
        return ERR_MODEL;
    if (!json_is_object(header)) {
        rc = error_set(e, ERR_MODEL, "%s: its header is not a JSON object", path);
        goto out;
    }
    json_object_foreach(header, name, entry)
    {
        const json_t *last = json_array_get(json_object_get(entry, "data_offsets"), 1);

        if (strcmp(name, "__metadata__") == 0)
            continue;
        end = json_integer_value(last) > end ? json_integer_value(last) : end;
        if (shard) {
            const char *owner = json_string_value(json_object_get(weight_map, name));

            if (!owner || strcmp(owner, shard))
                continue;
        }
        if ((rc = read_tensor(f, map, name, entry, 8 + (size_t)n, e)))
            goto out;
    }
    if ((uint64_t)end != m->size - 8 - n)
        rc = error_set(e, ERR_MODEL,
                       "%s: holds %llu bytes of data, its tensors end at %lld: truncated, damaged, "
                       "or something was appended",
                       path, (unsigned long long)(m->size - 8 - n), (long long)end);
out:
    json_decref(header);
    return rc;
}

static int safe_shard_name(const char *name)
{
    return strlen(name) < 256 && name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           path_stem(name, ".safetensors");
}

static int read_shards(struct weight_file *f, const char *folder, struct folder *d, struct error *e)
{
    char path[PATH_MAX + 512];
    struct mapping m;
    const char *name, *seen[FILE_SHARDS_MAX];
    json_t *weight_map, *shard;
    int n = 0, rc;

    snprintf(path, sizeof path, "%s/%s", folder, INDEX_FILE);
    if ((rc = mapping_open(&m, path, e)))
        return rc;
    d->index = json_read(m.data, m.size, path, e);
    mapping_close(&m);
    if (!d->index)
        return ERR_MODEL;
    weight_map = json_object_get(d->index, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0)
        return error_set(e, ERR_MODEL,
                         "%s: has no weight_map (an object of tensor names and file names)", path);
    json_object_foreach(weight_map, name, shard)
    {
        const char *file = json_string_value(shard);
        int i = 0;

        if (!file)
            return error_set(e, ERR_MODEL, "%s: weight_map: the file of tensor %s is not a string",
                             path, name);
        if (!safe_shard_name(file))
            return error_set(e, ERR_MODEL,
                             "%s: weight_map: tensor %s is said to be in '%.100s'; only "
                             ".safetensors files of the same folder are read",
                             path, name, file);
        while (i < n && strcmp(seen[i], file))
            i++;
        if (i < n)
            continue;
        if (n == FILE_SHARDS_MAX)
            return error_set(e, ERR_MODEL, "%s: names more than %d files", path, FILE_SHARDS_MAX);
        seen[n++] = file;
    }
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, seen[i]);
        if ((rc = read_file(f, path, seen[i], weight_map, e)))
            return rc;
    }
    if (f->n_tensors == json_object_size(weight_map))
        return 0;
    for (size_t i = 0; i < f->n_tensors; i++) /* what remains is missing in all shards */
        json_object_del(weight_map, f->tensors[i].view.name);
    name = json_object_iter_key(json_object_iter(weight_map));
    return error_set(e, ERR_MODEL, "%s/%s: tensor %s is said to be in %s, which does not hold it",
                     folder, INDEX_FILE, name,
                     json_string_value(json_object_get(weight_map, name)));
}

static int read_companions(struct folder *d, const char *folder, struct error *e)
{
    char path[PATH_MAX + 64];

    for (size_t i = 0; i < COMPANIONS; i++) {
        int rc;

        snprintf(path, sizeof path, "%s/%s", folder, companion[i].name);
        if (access(path, F_OK))
            continue;
        if ((rc = mapping_open(&d->file[i], path, e)))
            return rc;
        if (companion[i].parsed &&
            !(d->root[i] = json_read_python(d->file[i].data, d->file[i].size, path, e)))
            return ERR_MODEL;
    }
    return 0;
}

/* The only *.safetensors of a folder without the usual names; 1 found, 0 none, 2 several. */
static int find_single(const char *folder, char *out, size_t size)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    int found = 0;

    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] != '.' && path_stem(entry->d_name, ".safetensors")) {
            found += found < 2;
            snprintf(out, size, "%s/%s", folder, entry->d_name);
        }
    }
    if (d)
        closedir(d);
    return found;
}

static int read_folder(struct weight_file *f, const char *folder, struct folder *d,
                       bool tokenizer_only, struct error *e)
{
    char path[PATH_MAX + 300];
    int found;

    if (tokenizer_only) {
        for (size_t i = 0; i < COMPANIONS; i++)
            if (d->file[i].path)
                return 0;
        return error_set(e, ERR_MODEL, "%s: holds no tokenizer.json or other model file", folder);
    }
    snprintf(path, sizeof path, "%s/%s", folder, INDEX_FILE);
    if (access(path, F_OK) == 0)
        return read_shards(f, folder, d, e);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (access(path, F_OK) == 0)
        return read_file(f, path, NULL, NULL, e);
    found = find_single(folder, path, sizeof path);
    if (found == 1)
        return read_file(f, path, NULL, NULL, e);
    if (found > 1)
        return error_set(e, ERR_MODEL,
                         "%s: several .safetensors files and no %s that lists their files", folder,
                         INDEX_FILE);
    return error_set(e, ERR_MODEL,
                     "%s: holds no model (expected model.safetensors, %s, or one .gguf file)",
                     folder, INDEX_FILE);
}

static int hf_open(struct weight_file *f, const char *path, bool tokenizer_only, struct error *e)
{
    struct folder *d = mem_alloc(1, sizeof *d);
    char folder[PATH_MAX];
    DIR *probe;
    int rc;

    if (!(f->impl = d))
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < COMPANIONS; i++)
        d->file[i].slot = -1;
    /* content decided that this is safetensors: a file by another name, or a folder */
    if ((probe = opendir(path))) {
        closedir(probe);
        snprintf(folder, sizeof folder, "%s", path);
    } else {
        path_folder(path, folder, sizeof folder);
    }
    if ((rc = read_companions(d, folder, e)))
        return rc;
    packing_read(&f->packing, d->root[0], d->root[COMPANIONS - 1]);
    if (!tokenizer_only && f->packing.refused[0])
        return error_set(e, ERR_MODEL, "%s: its weights are packed by %s, which is not read: %s",
                         path, f->packing.method, f->packing.refused);
    return probe ? read_folder(f, folder, d, tokenizer_only, e) : read_file(f, path, NULL, NULL, e);
}

static void hf_close(struct weight_file *f)
{
    struct folder *d = f->impl;

    for (size_t i = 0; d && i < COMPANIONS; i++) {
        json_decref(d->root[i]);
        mapping_close(&d->file[i]);
    }
    if (d)
        json_decref(d->index);
    mem_free(d);
}

static struct meta_value value_of(const json_t *j)
{
    struct meta_value v = {.origin = WEIGHT_SAFETENSORS};

    switch (j ? json_typeof(j) : JSON_NULL) {
    case JSON_INTEGER:
        v.type = META_INT;
        v.i = json_integer_value(j);
        v.f = (double)v.i;
        break;
    case JSON_REAL:
        v.type = META_FLOAT;
        v.f = json_real_value(j);
        break;
    case JSON_TRUE:
        v.type = META_BOOL;
        v.i = 1;
        break;
    case JSON_FALSE: v.type = META_BOOL; break;
    case JSON_STRING:
        v.type = META_STRING;
        v.s = json_string_value(j);
        v.len = json_string_length(j);
        break;
    case JSON_ARRAY:
        v.type = META_ARRAY;
        v.len = json_array_size(j);
        v.array = j;
        break;
    default: break;
    }
    return v;
}

static struct meta_value hf_meta(const struct weight_file *f, const char *key)
{
    const struct folder *d = f->impl;
    const char *colon = strchr(key, ':'), *file = colon ? key : "config.json";
    size_t n = colon ? (size_t)(colon - key) : strlen(file);

    for (size_t i = 0; i < COMPANIONS; i++)
        if (strlen(companion[i].name) == n && memcmp(companion[i].name, file, n) == 0)
            return value_of(d->root[i] ? json_walk(d->root[i], colon ? colon + 1 : key) : NULL);
    return (struct meta_value){0};
}

static struct meta_value hf_meta_at(const struct meta_value *array, size_t i)
{
    return value_of(json_array_get(array->array, i));
}

static const void *hf_aux(const struct weight_file *f, const char *name, size_t *bytes)
{
    const struct folder *d = f->impl;

    for (size_t i = 0; i < COMPANIONS; i++) {
        if (strcmp(companion[i].name, name) || !d->file[i].path)
            continue;
        *bytes = d->file[i].size;
        return d->file[i].data;
    }
    return NULL;
}

const struct format_ops format_safetensors = {
    .format = WEIGHT_SAFETENSORS,
    .name = "safetensors",
    .open = hf_open,
    .close = hf_close,
    .meta = hf_meta,
    .meta_at = hf_meta_at,
    .aux = hf_aux,
};
