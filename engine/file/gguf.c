/* GGUF v2 and v3, little-endian, one file or a split set (-00001-of-000NN.gguf). Thread: see
 * weights.h. Format: ggml/docs/gguf.md. Everything is read through a cursor with a sticky first
 * error, so the parser has one check per record instead of one per field, and nothing outside the
 * mapping is ever accessed. Values stay in the mapping; only string arrays (the vocabulary) get an
 * index of offsets, because their elements have no fixed size. */
#include "engine/base/mem.h"
#include "engine/file/reader.h"
#include "engine/file/row_scaled.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KV_MAX 65536
#define KEY_MAX 65535
#define NEST_MAX 4 /* arrays inside arrays */
#define ALIGNMENT_DEFAULT 32
#define GGUF_DIMS 4 /* of a tensor, by the format */

enum gguf_type {
    T_U8,
    T_I8,
    T_U16,
    T_I16,
    T_U32,
    T_I32,
    T_F32,
    T_BOOL,
    T_STRING,
    T_ARRAY,
    T_U64,
    T_I64,
    T_F64,
    T_COUNT
};

static const uint8_t scalar_bytes[T_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct gguf_array {
    uint32_t type;
    uint64_t count;
    const uint8_t *data;
    const uint8_t **at; /* strings: start of each (its length field) */
};

struct kv {
    const char *key; /* not terminated */
    size_t key_bytes;
    uint32_t type;
    const uint8_t *value; /* scalar or string (length field first) */
    const uint8_t *end;   /* of the entry */
    struct gguf_array array;
};

struct gguf {
    struct kv *kv;
    size_t n_kv;
};

struct cursor {
    const uint8_t *data;
    size_t size, at;
    const char *path;
    struct error *e;
    int rc;
};

/* Types that are not read, for naming the file's type in the error message; from 97 on those of
 * ik_llama.cpp. */
static const struct {
    uint32_t id;
    const char *name;
} foreign[] = {
    {9, "q8_1"},         {15, "q8_k"},       {24, "i8"},          {25, "i16"},
    {28, "f64"},         {31, "q4_0_4_4"},   {32, "q4_0_4_8"},    {33, "q4_0_8_8"},
    {36, "i2_s"},        {133, "q6_0"},      {134, "iq1_bn"},     {135, "iq2_bn"},
    {151, "q8_kv"},      {153, "iq2_kt"},    {154, "iq3_kt"},     {155, "iq4_kt"},
    {157, "iq2_kl"},     {158, "iq1_kt"},    {202, "q4_0_r8"},    {206, "q5_0_r4"},
    {208, "q8_0_r8"},    {210, "q2_k_r4"},   {211, "q3_k_r4"},    {212, "q4_k_r4"},
    {213, "q5_k_r4"},    {214, "q6_k_r4"},   {216, "iq2_xxs_r4"}, {217, "iq2_xs_r4"},
    {218, "iq3_xxs_r4"}, {219, "iq1_s_r4"},  {220, "iq4_nl_r4"},  {221, "iq3_s_r4"},
    {222, "iq2_s_r4"},   {223, "iq4_xs_r8"}, {229, "iq1_m_r4"},   {230, "bf16_r16"},
    {233, "q6_0_r4"},    {335, "iq2_bn_r4"}, {353, "mxfp4_r8"},   {397, "q8_k_r16"},
    {398, "q8_kv_r8"},   {399, "q8_k_r8"},
};

static int fail(struct cursor *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int fail(struct cursor *c, const char *format, ...)
{
    char text[400];
    va_list args;

    if (c->rc)
        return c->rc;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return c->rc = error_set(c->e, ERR_MODEL, "%s: %s", c->path, text);
}

/* n bytes, or a pointer to zeros after an error. */
static const uint8_t *take(struct cursor *c, uint64_t n, const char *what)
{
    static const uint8_t zeros[8];
    const uint8_t *p = c->data + c->at;

    if (c->rc || n > c->size - c->at) {
        fail(c, "truncated: %s at byte %zu needs %llu bytes, %zu are left", what, c->at,
             (unsigned long long)n, c->size - c->at);
        return n <= sizeof zeros ? zeros : c->data;
    }
    c->at += (size_t)n;
    return p;
}

static uint32_t take_u32(struct cursor *c, const char *what)
{
    uint32_t v;

    memcpy(&v, take(c, 4, what), 4);
    return v;
}

static uint64_t take_u64(struct cursor *c, const char *what)
{
    uint64_t v;

    memcpy(&v, take(c, 8, what), 8);
    return v;
}

static const char *take_string(struct cursor *c, size_t *bytes, uint64_t limit, const char *what)
{
    uint64_t n = take_u64(c, what);

    *bytes = 0;
    if (n > limit)
        fail(c, "%s at byte %zu is %llu bytes long; at most %llu make sense", what, c->at - 8,
             (unsigned long long)n, (unsigned long long)limit);
    if (c->rc)
        return "";
    *bytes = (size_t)n;
    return (const char *)take(c, n, what);
}

static int skip_array(struct cursor *c, struct gguf_array *a, int depth)
{
    uint32_t type = take_u32(c, "an array's type");
    uint64_t count = take_u64(c, "an array's length");
    size_t least = type < T_COUNT && scalar_bytes[type] ? scalar_bytes[type]
                   : type == T_STRING                   ? 8
                                                        : 12;

    if (type >= T_COUNT)
        return fail(c, "an array at byte %zu has the unknown type %u", c->at - 12, type);
    if (depth > NEST_MAX)
        return fail(c, "arrays are nested deeper than %d at byte %zu", NEST_MAX, c->at);
    if (!c->rc && count > (c->size - c->at) / least)
        return fail(c, "an array at byte %zu claims %llu elements; the file has room for %zu",
                    c->at - 12, (unsigned long long)count, (c->size - c->at) / least);
    if (c->rc)
        return c->rc;
    if (a)
        *a = (struct gguf_array){.type = type, .count = count, .data = c->data + c->at};
    if (scalar_bytes[type]) {
        take(c, count * scalar_bytes[type], "an array");
        return c->rc;
    }
    if (a && type == T_STRING && !(a->at = mem_alloc((size_t)count, sizeof *a->at)))
        return c->rc = error_set(c->e, ERR_MEMORY, "%s: out of memory for an array of %llu strings",
                                 c->path, (unsigned long long)count);
    for (uint64_t i = 0; i < count && !c->rc; i++) {
        size_t bytes;

        if (a && type == T_STRING)
            a->at[i] = c->data + c->at;
        if (type == T_STRING)
            take_string(c, &bytes, UINT32_MAX, "a string of an array");
        else
            skip_array(c, NULL, depth + 1);
    }
    return c->rc;
}

static int read_kv(struct cursor *c, struct kv *kv)
{
    size_t bytes;

    kv->key = take_string(c, &kv->key_bytes, KEY_MAX, "a metadata key");
    kv->type = take_u32(c, "a metadata type");
    if (c->rc)
        return c->rc;
    if (kv->type >= T_COUNT)
        return fail(c, "metadata key %.*s has the unknown type %u",
                    (int)(kv->key_bytes < 100 ? kv->key_bytes : 100), kv->key, kv->type);
    kv->value = c->data + c->at;
    if (kv->type == T_ARRAY)
        return skip_array(c, &kv->array, 0);
    if (kv->type == T_STRING)
        take_string(c, &bytes, UINT32_MAX, "a metadata string");
    else
        take(c, scalar_bytes[kv->type], "a metadata value");
    return c->rc;
}

static int kv_order(const void *a, const void *b)
{
    const struct kv *x = a, *y = b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int order = memcmp(x->key, y->key, n);

    return order ? order : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static int read_metadata(struct cursor *c, struct gguf *g, uint64_t count)
{
    if (count > KV_MAX || count > (c->size - c->at) / 13)
        return fail(c, "claims %llu metadata entries; %s", (unsigned long long)count,
                    count > KV_MAX ? "more than 65536 make no sense"
                                   : "the file is too short for that");
    if (!(g->kv = mem_alloc((size_t)count, sizeof *g->kv)))
        return c->rc = error_set(c->e, ERR_MEMORY, "%s: out of memory for the metadata", c->path);
    for (uint64_t i = 0; i < count; i++) {
        g->n_kv = (size_t)i + 1;
        if (read_kv(c, &g->kv[i]))
            return c->rc;
        g->kv[i].end = c->data + c->at;
    }
    qsort(g->kv, g->n_kv, sizeof *g->kv, kv_order);
    for (size_t i = 1; i < g->n_kv; i++)
        if (kv_order(&g->kv[i - 1], &g->kv[i]) == 0)
            return fail(c, "metadata key %.*s is there twice",
                        (int)(g->kv[i].key_bytes < 100 ? g->kv[i].key_bytes : 100), g->kv[i].key);
    return 0;
}

static const struct kv *kv_find(const struct gguf *g, const char *key)
{
    struct kv want = {.key = key, .key_bytes = strlen(key)};

    return g->n_kv ? bsearch(&want, g->kv, g->n_kv, sizeof *g->kv, kv_order) : NULL;
}

static struct meta_value value_of(uint32_t type, const uint8_t *p)
{
    struct meta_value v = {.type = META_INT, .origin = WEIGHT_GGUF};
    uint64_t u = 0;

    if (type == T_STRING) {
        memcpy(&u, p, 8);
        return (struct meta_value){
            .type = META_STRING, .s = (const char *)p + 8, .len = (size_t)u, .origin = WEIGHT_GGUF};
    }
    if (type >= T_COUNT || !scalar_bytes[type])
        return (struct meta_value){0};
    memcpy(&u, p, scalar_bytes[type]);
    switch (type) {
    case T_I8: v.i = (int8_t)u; break;
    case T_I16: v.i = (int16_t)u; break;
    case T_I32: v.i = (int32_t)u; break;
    case T_BOOL:
        v.type = META_BOOL;
        v.i = u != 0;
        break;
    case T_F32: {
        float f;
        uint32_t w = (uint32_t)u;
        memcpy(&f, &w, 4);
        v.f = (double)f;
        v.type = META_FLOAT;
        return v;
    }
    case T_F64:
        memcpy(&v.f, &u, 8);
        v.type = META_FLOAT;
        return v;
    case T_U64: v.i = u > INT64_MAX ? INT64_MAX : (int64_t)u; break;
    default: v.i = (int64_t)u; break;
    }
    v.f = (double)v.i;
    return v;
}

static struct meta_value kv_value(const struct kv *kv)
{
    if (!kv)
        return (struct meta_value){0};
    if (kv->type == T_ARRAY)
        return (struct meta_value){.type = META_ARRAY,
                                   .len = (size_t)kv->array.count,
                                   .array = &kv->array,
                                   .origin = WEIGHT_GGUF};
    return value_of(kv->type, kv->value);
}

static struct meta_value gguf_meta(const struct weight_file *f, const char *key)
{
    return kv_value(kv_find(f->impl, key));
}

static struct meta_value gguf_meta_at(const struct meta_value *array, size_t i)
{
    const struct gguf_array *a = array->array;

    if (a->type == T_STRING)
        return value_of(T_STRING, a->at[i]);
    return value_of(a->type, a->type < T_COUNT && scalar_bytes[a->type]
                                 ? a->data + i * scalar_bytes[a->type]
                                 : NULL);
}

static bool gguf_entry(const struct weight_file *f, size_t i, const char **key, size_t *key_bytes,
                       const void **entry, size_t *bytes)
{
    const struct gguf *g = f->impl;
    const uint8_t *begin;

    if (i >= g->n_kv)
        return false;
    *key = g->kv[i].key;
    *key_bytes = g->kv[i].key_bytes;
    begin = (const uint8_t *)g->kv[i].key - 8; /* its length field */
    *entry = begin;
    *bytes = (size_t)(g->kv[i].end - begin);
    return true;
}

static const char *foreign_name(uint32_t id)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (foreign[i].id == id)
            return foreign[i].name;
    return "unknown";
}

struct entry {
    const char *name;
    size_t name_bytes;
    enum dtype type;
    const struct packed *mark; /* of row_scaled.h */
    int n_dims;
    int64_t dims[GGUF_DIMS];
    uint64_t offset; /* in the data section */
    size_t bytes;
};

static int read_entry(struct cursor *c, struct entry *t, uint64_t alignment)
{
    uint32_t id;
    int type;
    char name[FILE_NAME_MAX + 1];

    t->name = take_string(c, &t->name_bytes, FILE_NAME_MAX, "a tensor name");
    t->n_dims = (int)take_u32(c, "a tensor's dimensions");
    if (c->rc)
        return c->rc;
    if (t->name_bytes == 0 || memchr(t->name, 0, t->name_bytes))
        return fail(c, "a tensor at byte %zu has an empty name or a zero byte in it", c->at);
    memcpy(name, t->name, t->name_bytes);
    name[t->name_bytes] = 0;
    if (t->n_dims < 1 || t->n_dims > GGUF_DIMS)
        return fail(c, "tensor %s has %u dimensions; 1 to %d are possible", name,
                    (unsigned)t->n_dims, GGUF_DIMS);
    for (int i = t->n_dims - 1; i >= 0; i--) {
        uint64_t d = take_u64(c, "a tensor's dimensions");

        t->dims[i] = d > INT64_MAX ? -1 : (int64_t)d;
    }
    id = take_u32(c, "a tensor's type");
    t->offset = take_u64(c, "a tensor's offset");
    if (c->rc)
        return c->rc;
    if ((type = dtype_from_gguf(id)) < 0 && (type = row_scaled_type(id)) < 0)
        return fail(c, "tensor %s has the type %s (%u), which is not supported", name,
                    foreign_name(id), id);
    t->type = (enum dtype)type;
    t->mark = row_scaled_mark(id);
    if (t->offset % alignment)
        return fail(c,
                    "tensor %s begins at offset %llu, which is no multiple of the alignment %llu",
                    name, (unsigned long long)t->offset, (unsigned long long)alignment);
    c->rc = file_shape_bytes(c->path, name, t->type, t->n_dims, t->dims, &t->bytes, c->e);
    if (!c->rc && row_scaled_type(id) >= 0) { /* no more than those of the type: no overflow */
        int64_t cols = t->dims[t->n_dims - 1];

        t->bytes = t->bytes / dtype_row_bytes(t->type, cols) * row_scaled_bytes(id, cols);
    }
    return c->rc;
}

/* Whether tensor i of n has blocks of 128 weights where Q2_0 has 64: a fork of llama.cpp gave them
 * the same type id. Told by where the next tensor begins. */
static bool has_wide_q2_0(const struct entry *t, uint64_t i, uint64_t n, uint64_t alignment)
{
    uint64_t bytes = t[i].bytes / 36 * 34;

    return t[i].type == DTYPE_Q2_0 && i + 1 < n && t[i].dims[t[i].n_dims - 1] % 128 == 0 &&
           t[i + 1].offset > t[i].offset && t[i + 1].offset - t[i].offset < t[i].bytes &&
           t[i + 1].offset - t[i].offset == (bytes + alignment - 1) / alignment * alignment;
}

static int read_tensors(struct weight_file *f, int map, struct cursor *c, uint64_t count,
                        uint64_t alignment)
{
    struct entry *t = NULL;
    size_t data, room;
    uint64_t end = 0;

    /* name length, one byte, dimension count, a dimension, type, offset: at least 33 */
    if (count > (c->size - c->at) / 32)
        return fail(c, "claims %llu tensors; the file is too short for that",
                    (unsigned long long)count);
    if (!(t = mem_alloc((size_t)count, sizeof *t)))
        return c->rc = error_set(c->e, ERR_MEMORY, "%s: out of memory for the tensor table",
                                 c->path);
    for (uint64_t i = 0; i < count; i++)
        if (read_entry(c, &t[i], alignment))
            goto out;
    data = (c->at + alignment - 1) / alignment * alignment;
    room = data < c->size ? c->size - data : 0;
    for (uint64_t i = 0; i < count; i++) {
        int name_bytes = (int)t[i].name_bytes;

        if (has_wide_q2_0(t, i, count, alignment)) {
            fail(c,
                 "tensor %.*s has Q2_0 in groups of 128 weights, as a fork of llama.cpp writes "
                 "them; take the file with groups of 64 (its name often has g64)",
                 name_bytes, t[i].name);
            goto out;
        }
        if (t[i].offset > room || t[i].bytes > room - t[i].offset) {
            fail(c,
                 "tensor %.*s needs %zu bytes at offset %llu, but the file ends %zu bytes into the "
                 "data: truncated or damaged",
                 name_bytes, t[i].name, t[i].bytes, (unsigned long long)t[i].offset, room);
            goto out;
        }
        if (file_tensor(f, map, t[i].name, t[i].name_bytes, t[i].type, t[i].n_dims, t[i].dims,
                        data + (size_t)t[i].offset, t[i].bytes, c->e)) {
            c->rc = ERR_MEMORY;
            goto out;
        }
        f->tensors[f->n_tensors - 1].view.packed = t[i].mark;
        end = t[i].offset + t[i].bytes > end ? t[i].offset + t[i].bytes : end;
    }
    if (count && room - end >= alignment)
        fail(c, "%llu bytes follow the last tensor: the header was cut or two files were joined",
             (unsigned long long)(room - end));
out:
    mem_free(t);
    return c->rc;
}

static void gguf_free(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_kv; i++)
        mem_free(g->kv[i].array.at);
    mem_free(g->kv);
    mem_free(g);
}

/* Adds one file of a set to f. *out gets its metadata (owned by the caller, also after an
 * error). */
static int read_part(struct weight_file *f, const char *path, struct gguf **out, struct error *e)
{
    int map = file_map(f, path, e);
    struct cursor c;
    struct meta_value v;
    uint64_t n_tensors, n_kv, alignment = ALIGNMENT_DEFAULT;
    uint32_t version;

    if (map < 0)
        return map;
    if (!(*out = mem_alloc(1, sizeof **out)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", path);
    c = (struct cursor){.data = f->maps[map].data, .size = f->maps[map].size, .path = path, .e = e};
    if (memcmp(take(&c, 4, "the magic"), "GGUF", 4))
        return fail(&c, "not a GGUF file");
    version = take_u32(&c, "the version");
    if (!c.rc && version && (version & 0xffff) == 0)
        return fail(&c, "a big-endian GGUF file; only little-endian ones are read");
    if (!c.rc && (version < 2 || version > 3))
        return fail(&c, "GGUF version %u; versions 2 and 3 are read", version);
    n_tensors = take_u64(&c, "the number of tensors");
    n_kv = take_u64(&c, "the number of metadata entries");
    if (c.rc || read_metadata(&c, *out, n_kv))
        return c.rc;
    v = kv_value(kv_find(*out, "general.alignment"));
    if (v.type != META_NONE) {
        if (v.type != META_INT || v.i < 1 || v.i > (1 << 20) || (v.i & (v.i - 1)))
            return fail(&c, "general.alignment must be a power of two up to 1048576");
        alignment = (uint64_t)v.i;
    }
    return read_tensors(f, map, &c, n_tensors, alignment);
}

/* "NAME-00002-of-00003.gguf" → its prefix length and numbers; 0: not of that form. */
static size_t split_name(const char *path, int *number, int *count)
{
    size_t n = strlen(path);
    const char *tail = path + n - 20;

    if (n < 21 || tail[0] != '-' || strspn(tail + 1, "0123456789") != 5 ||
        strncmp(tail + 6, "-of-", 4) || strspn(tail + 10, "0123456789") != 5)
        return 0;
    *number = atoi(tail + 1);
    *count = atoi(tail + 10);
    return n - 20;
}

static int read_split(struct weight_file *f, const char *path, int count, struct error *e)
{
    int number, named;
    size_t prefix = split_name(path, &number, &named);
    char part[PATH_MAX + 32];

    if (!prefix || named != count)
        return error_set(
            e, ERR_MODEL,
            "%s: part of a model split into %d files, but not named NAME-0000N-of-%05d.gguf", path,
            count, count);
    for (int i = 1; i < count; i++) {
        struct gguf *g = NULL;
        struct meta_value no;
        int rc;

        snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", (int)prefix, path, i + 1, count);
        rc = read_part(f, part, &g, e);
        no = rc ? (struct meta_value){0} : kv_value(kv_find(g, "split.no"));
        gguf_free(g);
        if (rc)
            return rc;
        if (no.type != META_INT || no.i != i)
            return error_set(e, ERR_MODEL,
                             "%s: its metadata says it is part %lld, its name part %d", part,
                             no.type == META_INT ? (long long)no.i + 1 : 0, i + 1);
    }
    return 0;
}

static int gguf_open(struct weight_file *f, const char *path, bool tokenizer_only, struct error *e)
{
    struct meta_value count, tensors, no;
    struct gguf *g = NULL;
    char first[PATH_MAX + 32];
    int rc, number = 1, named = 1;
    size_t prefix = split_name(path, &number, &named);

    snprintf(first, sizeof first, "%s", path);
    if (prefix && number > 1)
        snprintf(first, sizeof first, "%.*s-%05d-of-%05d.gguf", (int)prefix, path, 1, named);
    rc = read_part(f, first, &g, e);
    f->impl = g;
    if (rc)
        return rc;
    count = kv_value(kv_find(g, "split.count"));
    no = kv_value(kv_find(g, "split.no"));
    if (count.type == META_INT && count.i > 1) {
        if (count.i > FILE_SHARDS_MAX)
            return error_set(e, ERR_MODEL,
                             "%s: claims to be split into %lld files; at most %d make sense", first,
                             (long long)count.i, FILE_SHARDS_MAX);
        if (no.type == META_INT && no.i != 0)
            return error_set(
                e, ERR_MODEL,
                "%s: part %lld of a split model; name its first part (NAME-00001-of-%05lld.gguf)",
                first, (long long)no.i + 1, (long long)count.i);
        if ((rc = read_split(f, first, (int)count.i, e)))
            return rc;
        tensors = kv_value(kv_find(g, "split.tensors.count"));
        if (tensors.type == META_INT && (uint64_t)tensors.i != f->n_tensors)
            return error_set(e, ERR_MODEL, "%s: its parts hold %zu tensors, its metadata says %lld",
                             first, f->n_tensors, (long long)tensors.i);
    }
    if (!f->n_tensors && !tokenizer_only)
        return error_set(e, ERR_MODEL, "%s: holds no tensors, only metadata (a vocabulary file?)",
                         first);
    if ((rc = row_scaled_show(f, e)))
        return rc;
    /* their factors are found once the tensors are sorted */
    for (size_t i = 0; i < f->n_tensors && !f->n_packed; i++)
        if (f->tensors[i].view.type == DTYPE_NVFP4)
            f->packing.kind = PACKING_NVFP4_BLOCKS;
    return 0;
}

static void gguf_close(struct weight_file *f)
{
    gguf_free(f->impl);
}

const struct format_ops format_gguf = {
    .format = WEIGHT_GGUF,
    .name = "GGUF",
    .open = gguf_open,
    .close = gguf_close,
    .meta = gguf_meta,
    .meta_at = gguf_meta_at,
    .entry = gguf_entry,
};
