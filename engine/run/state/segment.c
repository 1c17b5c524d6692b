/* See segment.h. Numbers are in native byte order: little-endian on all supported machines. */
#include "engine/run/state/segment.h"

#include <assert.h>
#include <string.h>

#define MAGIC "moetop state\n"
#define SUM (DIGEST_HEX - 1)

struct head {
    char magic[16];
    char key[DIGEST_HEX - 1], parent[DIGEST_HEX - 1]; /* zeros: none */
    uint32_t format, first, n, variant, copy, reserved;
    uint64_t bytes; /* of the file */
    uint64_t strengths;
};

static_assert(sizeof(struct head) == 184, "the head of a file has no gaps");

static size_t ids_bytes(int n)
{
    return (size_t)n * sizeof(int32_t);
}

/* Parts begin at multiples of 8. */
static size_t aligned(size_t n)
{
    return (n + 7) / 8 * 8;
}

static size_t rows_at(int n)
{
    return aligned(sizeof(struct head) + ids_bytes(n));
}

static size_t copy_at(const struct segment_shape *s, int n)
{
    return aligned(rows_at(n) + (size_t)n * s->row_bytes);
}

static size_t routes_at(const struct segment_shape *s, int n, bool copy)
{
    return aligned(copy_at(s, n) + (copy ? s->copy_bytes : 0));
}

size_t segment_bytes(const struct segment_shape *shape, int n, bool copy)
{
    return routes_at(shape, n, copy) + (size_t)n * shape->routes_bytes + SUM;
}

size_t segment_head_bytes(void)
{
    return sizeof(struct head) + ids_bytes(SEGMENT_TOKENS);
}

static void fill_head(struct head *h, const struct segment_place *p, size_t bytes)
{
    *h = (struct head){.magic = MAGIC,
                       .format = SEGMENT_FORMAT,
                       .first = (uint32_t)p->first,
                       .n = (uint32_t)p->n,
                       .variant = (uint32_t)p->variant,
                       .copy = p->copy,
                       .bytes = bytes,
                       .strengths = p->strengths};
    memcpy(h->key, p->key, sizeof h->key);
    if (p->parent[0])
        memcpy(h->parent, p->parent, sizeof h->parent);
}

void segment_name(const struct segment_place *p, char name[DIGEST_HEX])
{
    struct digest d;
    struct head h;

    assert(p->n > 0 && p->n <= SEGMENT_TOKENS);
    fill_head(&h, p, 0);
    digest_init(&d, DIGEST_SHA256, 0);
    digest_add(&d, &h, sizeof h);
    digest_add(&d, p->ids, ids_bytes(p->n));
    digest_end(&d, name);
}

static void parts(uint8_t *data, const struct segment_shape *shape, struct segment *s)
{
    const struct segment_place *p = &s->place;

    s->rows = data + rows_at(p->n);
    s->copy = p->copy ? data + copy_at(shape, p->n) : NULL;
    s->routes = data + routes_at(shape, p->n, p->copy);
}

void segment_begin(uint8_t *data, const struct segment_shape *shape, const struct segment_place *p,
                   struct segment *s)
{
    struct head h;

    fill_head(&h, p, segment_bytes(shape, p->n, p->copy));
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, p->ids, ids_bytes(p->n));
    s->place = *p;
    parts(data, shape, s);
}

static bool sum_of(const uint8_t *data, size_t bytes, char hex[DIGEST_HEX])
{
    struct digest d;

    digest_init(&d, DIGEST_SHA256, 0);
    digest_add(&d, data, bytes);
    digest_end(&d, hex);
    return hex[0] != 0;
}

int segment_seal(uint8_t *data, size_t bytes, struct error *e)
{
    char hex[DIGEST_HEX];

    if (!sum_of(data, bytes - SUM, hex))
        return digest_failed("a cached prompt", e);
    memcpy(data + bytes - SUM, hex, SUM);
    return 0;
}

/* Checks that head and ids match the place and the name. */
static bool place_of(const uint8_t *data, size_t bytes, const char *key, const char *name,
                     struct segment_place *p, int *ids)
{
    struct head h;
    char own[DIGEST_HEX];

    if (bytes < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof MAGIC) != 0 || h.format != SEGMENT_FORMAT ||
        memcmp(h.key, key, sizeof h.key) != 0 || h.n < 1 || h.n > SEGMENT_TOKENS ||
        h.first > INT32_MAX - SEGMENT_TOKENS || h.first % SEGMENT_TOKENS || h.copy > 1 ||
        h.variant > 1 || bytes < sizeof h + ids_bytes((int)h.n))
        return false;
    *p = (struct segment_place){.first = (int)h.first,
                                .n = (int)h.n,
                                .variant = (int)h.variant,
                                .strengths = h.strengths,
                                .copy = h.copy != 0,
                                .ids = ids};
    memcpy(p->key, h.key, sizeof h.key);
    memcpy(p->parent, h.parent, sizeof h.parent);
    memcpy(ids, data + sizeof h, ids_bytes((int)h.n));
    segment_name(p, own);
    return strcmp(own, name) == 0;
}

bool segment_glance(const void *data, size_t bytes, const char *key, const char *name,
                    struct segment_place *out, int *ids)
{
    return place_of(data, bytes, key, name, out, ids);
}

static bool ids_known(const struct segment_place *p, int n_vocab)
{
    for (int i = 0; i < p->n; i++)
        if (p->ids[i] < 0 || p->ids[i] >= n_vocab)
            return false;
    return true;
}

int segment_open(uint8_t *data, size_t bytes, const struct segment_shape *shape, const char *key,
                 const char *name, struct segment *out, struct error *e)
{
    int ids[SEGMENT_TOKENS];
    char hex[DIGEST_HEX];

    if (!place_of(data, bytes, key, name, &out->place, ids))
        return error_set(e, ERR_INPUT, "it is not what its name says, or of another model");
    if (bytes != segment_bytes(shape, out->place.n, out->place.copy))
        return error_set(e, ERR_INPUT, "it has %zu bytes instead of %zu", bytes,
                         segment_bytes(shape, out->place.n, out->place.copy));
    if (!sum_of(data, bytes - SUM, hex))
        return digest_failed("a cached prompt", e);
    if (memcmp(data + bytes - SUM, hex, SUM) != 0)
        return error_set(e, ERR_INPUT, "it is damaged: its sum is another one");
    if (!ids_known(&out->place, shape->n_vocab))
        return error_set(e, ERR_INPUT, "it has tokens that the model does not know");
    out->place.ids = (const int *)(const void *)(data + sizeof(struct head));
    parts(data, shape, out);
    return 0;
}
