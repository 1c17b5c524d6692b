/* See kv.h. */
#include "engine/run/state/kv.h"

#include "engine/base/mem.h"
#include "engine/device/numerics.h"
#include "engine/run/state/device_slot.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

/* per copy step: a copy costs a device two waits, however few rows it has */
#define STAGING_BYTES ((size_t)2 << 20)
#define STAGING_LEAST 64
#define STAGING_MOST 512

static int staged_rows(size_t row_bytes)
{
    size_t rows = row_bytes ? STAGING_BYTES / row_bytes : 0;

    return rows < STAGING_LEAST ? STAGING_LEAST : rows > STAGING_MOST ? STAGING_MOST : (int)rows;
}

int kv_init(struct kv *kv, const struct model *m, struct device_slot *slots,
            const struct state_config *c, struct error *e)
{
    size_t widest = 0, staged;

    memset(kv, 0, sizeof *kv);
    kv->slots = slots;
    kv->n_layers = m->hp.n_layers;
    kv->layers = mem_alloc((size_t)kv->n_layers, sizeof *kv->layers);
    for (int l = 0; l < kv->n_layers && kv->layers; l++) {
        const struct mixer_shape *shape = &hparams_layer(&m->hp, l)->mixer;
        struct state_size s = state_size(shape, c->k, c->v);
        bool ring = state_is_ring(shape, c);

        kv->layers[l] = (struct kv_layer){.row_bytes = s.token_bytes,
                                          .fixed_bytes = s.fixed_bytes,
                                          .copy_bytes = state_copy_bytes(shape, c),
                                          .ring = ring ? state_room(shape, c) : 0,
                                          .window = ring ? shape->window : 0};
        kv->all_fixed += s.fixed_bytes;
        kv->all_copies += kv->layers[l].copy_bytes;
        staged = s.token_bytes * (size_t)staged_rows(s.token_bytes);
        widest = staged > widest ? staged : widest;
        widest = s.fixed_bytes > widest ? s.fixed_bytes : widest;
    }
    if (kv->layers && widest)
        kv->staging = mem_alloc(widest, 1);
    return kv->layers && (kv->staging || !widest)
               ? 0
               : error_set(e, ERR_MEMORY, "no memory for rows on their way");
}

void kv_release(struct kv *kv)
{
    for (int s = 0; s < kv->n_sessions; s++)
        mem_free(kv->held[s]);
    mem_free(kv->held);
    mem_free(kv->staging);
    mem_free(kv->layers);
    memset(kv, 0, sizeof *kv);
}

int kv_open(struct kv *kv, int session, struct error *e)
{
    bool there = session < kv->n_sessions || MEM_FIT(kv->held, session + 1);

    assert(session >= 0 && (session >= kv->n_sessions || !kv->held[session]));
    for (; there && kv->n_sessions <= session; kv->n_sessions++)
        kv->held[kv->n_sessions] = NULL;
    if (!there || !(kv->held[session] = mem_alloc((size_t)DEVICE_MAX * (size_t)kv->n_layers,
                                                  sizeof **kv->held)))
        return error_set(e, ERR_MEMORY, "no memory for the list of cached rows");
    return 0;
}

void kv_close(struct kv *kv, int session)
{
    assert(session >= 0);
    if (session >= kv->n_sessions)
        return;
    mem_free(kv->held[session]);
    kv->held[session] = NULL;
}

bool kv_in_place(const struct kv *kv, int layer, int device)
{
    const struct kv_layer *k = &kv->layers[layer];

    return kv->slots[device].in_place && k->row_bytes && !k->fixed_bytes;
}

/* The device whose rows it uses. */
static int owner_of(const struct kv *kv, int layer, int device)
{
    return kv_in_place(kv, layer, device) ? 0 : device;
}

static struct kv_held *held_at(const struct kv *kv, int session, int layer, int device)
{
    assert(session >= 0 && session < kv->n_sessions && kv->held[session]);
    assert(layer >= 0 && layer < kv->n_layers);
    assert(device >= 0 && device < DEVICE_MAX);
    return &kv->held[session][owner_of(kv, layer, device) * kv->n_layers + layer];
}

int kv_valid(const struct kv *kv, int session, int layer, int device)
{
    const struct kv_held *h = held_at(kv, session, layer, device);

    return kv->layers[layer].fixed_bytes && !kv->layers[layer].row_bytes ? h->stands : h->end;
}

/* The first row visible to the token at pos. */
static int first_seen(const struct kv *kv, int layer, int pos)
{
    int window = kv->layers[layer].window;

    return window && pos >= window ? pos - window + 1 : 0;
}

/* Rows up to `end` were written, and possibly one more by a measurement: in a ring, they overwrote
 * others. */
static void overwritten(const struct kv *kv, struct kv_held *h, int layer, int end)
{
    int ring = kv->layers[layer].ring;

    if (ring && h->begin < end + 1 - ring)
        h->begin = end + 1 - ring;
}

static bool rows_there(const struct kv *kv, int session, int layer, int device, int pos)
{
    const struct kv_held *h = held_at(kv, session, layer, device);

    return pos == 0 || !kv->layers[layer].row_bytes ||
           (h->end >= pos && h->begin <= first_seen(kv, layer, pos));
}

static bool fixed_there(const struct kv *kv, int session, int layer, int device, int pos)
{
    const struct kv_held *h = held_at(kv, session, layer, device);

    return pos == 0 || !kv->layers[layer].fixed_bytes ||
           (pos >= h->stands && pos <= h->stands + h->ahead);
}

bool kv_there(const struct kv *kv, int session, int layer, int device, int pos)
{
    return rows_there(kv, session, layer, device, pos) &&
           fixed_there(kv, session, layer, device, pos);
}

/* A device on which the layer can continue at pos > 0; -1: none. */
static int standing(const struct kv *kv, int session, int layer, int pos)
{
    for (int d = 0; d < DEVICE_MAX; d++)
        if (kv->slots[d].device && kv_there(kv, session, layer, d, pos))
            return d;
    return -1;
}

bool kv_copies(const struct kv *kv, int session, int pos)
{
    for (int l = 0; l < kv->n_layers; l++) {
        int d = kv->layers[l].copy_bytes ? standing(kv, session, l, pos) : 0;

        if (d < 0 || (kv->layers[l].fixed_bytes && held_at(kv, session, l, d)->stands != pos))
            return false;
    }
    return true;
}

int kv_rows_held(const struct kv *kv, int session)
{
    int least = INT_MAX;

    for (int l = 0; l < kv->n_layers; l++) {
        int most = 0;

        for (int d = 0; d < DEVICE_MAX; d++)
            if (kv->slots[d].device && kv_valid(kv, session, l, d) > most)
                most = kv_valid(kv, session, l, d);
        if (kv->layers[l].row_bytes && !kv->layers[l].ring && most < least)
            least = most;
    }
    return least;
}

bool kv_stands(const struct kv *kv, int session, int pos)
{
    for (int l = 0; l < kv->n_layers && pos > 0; l++)
        if (kv->layers[l].copy_bytes && standing(kv, session, l, pos) < 0)
            return false;
    return kv_rows_held(kv, session) >= pos;
}

void kv_cut(struct kv *kv, int session, int pos)
{
    assert(pos >= 0);
    for (int d = 0; d < DEVICE_MAX; d++)
        for (int l = 0; l < kv->n_layers; l++) {
            struct kv_held *h = held_at(kv, session, l, d);

            if (h->stands + h->ahead > pos)
                h->ahead = h->stands > pos ? 0 : pos - h->stands;
            if (h->stands > pos)
                h->stands = 0;
            if (h->end > pos)
                h->end = pos;
            if (h->begin > h->end)
                h->begin = h->end;
        }
    for (int d = 0; d < DEVICE_MAX; d++)
        if (kv->slots[d].device && !kv->slots[d].lost && kv->slots[d].ops->state_cut)
            kv->slots[d].ops->state_cut(kv->slots[d].device, session, pos);
}

uint64_t kv_trim(struct kv *kv)
{
    uint64_t bytes = 0;

    for (int d = 0; d < DEVICE_MAX; d++)
        if (kv->slots[d].device && !kv->slots[d].lost && kv->slots[d].ops->state_trim)
            bytes += kv->slots[d].ops->state_trim(kv->slots[d].device);
    return bytes;
}

/* Rows were written; those of others from pos on are old. */
static void rows_written(struct kv *kv, int session, int layer, int device, int pos, int rows)
{
    struct kv_held *h = held_at(kv, session, layer, device);

    for (int d = 0; d < DEVICE_MAX; d++) {
        struct kv_held *other = held_at(kv, session, layer, d);

        other->end = other->end > pos ? pos : other->end;
        other->begin = other->begin > other->end ? other->end : other->begin;
    }
    h->begin = pos ? h->begin : 0;
    h->end = pos + rows;
    overwritten(kv, h, layer, h->end);
}

static void fixed_advanced(struct kv *kv, struct kv_held *h, int layer, int end, int drafted)
{
    if (!kv->layers[layer].fixed_bytes)
        return;
    h->stands = end - drafted;
    h->ahead = drafted;
}

void kv_written(struct kv *kv, int session, int layer, int device, int pos, int rows, int drafted)
{
    assert(pos >= 0 && rows > 0);
    rows_written(kv, session, layer, device, pos, rows);
    fixed_advanced(kv, held_at(kv, session, layer, device), layer, pos + rows, drafted);
}

void kv_written_too(struct kv *kv, int session, int layer, int device, int pos, int rows,
                    int drafted)
{
    struct kv_held *h = held_at(kv, session, layer, device);

    assert(!kv->layers[layer].row_bytes || h->end == pos);
    h->begin = pos ? h->begin : 0;
    h->end = pos + rows;
    overwritten(kv, h, layer, h->end);
    fixed_advanced(kv, h, layer, pos + rows, drafted);
}

void kv_forget(struct kv *kv, int session, int layer, int device)
{
    const struct device_slot *s = &kv->slots[device];
    bool any = false;

    if (device && kv_in_place(kv, layer, device))
        return;
    *held_at(kv, session, layer, device) = (struct kv_held){0};
    for (int l = 0; l < kv->n_layers; l++)
        any = any || (kv->layers[l].row_bytes && kv_valid(kv, session, l, device) > 0);
    if (any || s->lost)
        return;
    if (s->ops->state_cut)
        s->ops->state_cut(s->device, session, 0);
    if (s->ops->state_trim)
        s->ops->state_trim(s->device);
}

int kv_share(struct kv *kv, int from, int to, int n)
{
    const struct device_slot *cpu = &kv->slots[0];

    if (kv->all_fixed || !cpu->ops->state_share)
        return 0;
    for (int l = 0; l < kv->n_layers; l++)
        if (kv->layers[l].row_bytes && kv_valid(kv, from, l, 0) < n)
            n = kv_valid(kv, from, l, 0);
    n = n / NUM_CHUNK * NUM_CHUNK;
    for (int l = 0; l < kv->n_layers; l++)
        if (!kv_there(kv, from, l, 0, n))
            return 0;
    if ((n = cpu->ops->state_share(cpu->device, from, to, n)) == 0)
        return 0;
    for (int d = 0; d < DEVICE_MAX; d++)
        for (int l = 0; l < kv->n_layers; l++)
            if (!d || !kv_in_place(kv, l, d))
                *held_at(kv, to, l, d) = d ? (struct kv_held){0}
                                           : (struct kv_held){held_at(kv, from, l, 0)->begin, n, 0,
                                                              0};
    return n;
}

void kv_failed(struct kv *kv, int session, int layer, int device, int end)
{
    struct kv_held *h = held_at(kv, session, layer, device);

    h->stands = h->ahead = 0;
    overwritten(kv, h, layer, end);
    h->begin = h->begin > h->end ? h->end : h->begin;
}

void kv_measured(struct kv *kv, int pos, int rows)
{
    for (int d = 0; d < DEVICE_MAX && kv->held[0]; d++)
        for (int l = 0; l < kv->n_layers; l++) {
            struct kv_held *h = held_at(kv, 0, l, d);

            overwritten(kv, h, l, pos + rows - 1);
            h->begin = h->begin > h->end ? h->end : h->begin;
        }
}

void kv_dropped(struct kv *kv, int layer, int device)
{
    if (kv_in_place(kv, layer, device))
        return;
    for (int s = 0; s < kv->n_sessions; s++)
        if (kv->held[s])
            *held_at(kv, s, layer, device) = (struct kv_held){0};
}

static int copy(const struct kv *kv, int device, struct kv_move *m, bool write, struct error *e)
{
    const struct device_slot *s = &kv->slots[device];
    int rc;

    m->write = write;
    rc = s->ops->kv_rows(s->device, m, e);
    return rc < 0 ? rc : s->ops->wait(s->device, e);
}

/* The move for kv_copy_read and kv_copy_write. */
static struct kv_move copy_of(const struct kv *kv, int session, int layer, int pos, void *data)
{
    struct kv_move m = {.session = session, .layer = layer, .pos = pos, .data = data};

    if (kv->layers[layer].fixed_bytes) {
        m.fixed = true;
    } else {
        m.pos = first_seen(kv, layer, pos);
        m.count = pos - m.pos;
    }
    return m;
}

int kv_copy_read(struct kv *kv, int session, int layer, int pos, void *to, struct error *e)
{
    struct kv_move m = copy_of(kv, session, layer, pos, to);
    int d;

    while ((d = standing(kv, session, layer, pos)) >= 0 &&
           !(m.fixed && held_at(kv, session, layer, d)->stands != pos)) {
        if (copy(kv, d, &m, false, e) >= 0)
            return 0;
        *held_at(kv, session, layer,
                 d) = (struct kv_held){0}; /* unreadable rows count as missing */
    }
    return error_set(e, ERR_DEVICE, "the state of layer %d after %d tokens is on no device", layer,
                     pos);
}

int kv_copy_write(struct kv *kv, int session, int layer, int pos, const void *from, struct error *e)
{
    struct kv_move m = copy_of(kv, session, layer, pos, (void *)from);
    int rc = copy(kv, 0, &m, true, e);
    struct kv_held *h = held_at(kv, session, layer, 0);

    if (rc < 0)
        *h = (struct kv_held){0};
    else if (m.fixed)
        *h = (struct kv_held){h->begin, h->end, pos, 0};
    else
        *h = (struct kv_held){m.pos, pos, 0, 0};
    return rc;
}

/* The device with most rows following the end of `device`'s; the CPU if it is as good as another.
 * -1: none. */
static int source_of(const struct kv *kv, int session, int layer, int device)
{
    int end = kv_valid(kv, session, layer, device), source = -1;

    for (int d = 0; d < DEVICE_MAX; d++) {
        const struct kv_held *h = held_at(kv, session, layer, d);

        if (owner_of(kv, layer, d) == d && d != device && kv->slots[d].device && h->begin <= end &&
            h->end > end && (source < 0 || h->end > kv_valid(kv, session, layer, source)))
            source = d;
    }
    return source;
}

/* The source of the next rows for a device that needs those before pos. Of a ring it may have rows
 * that cannot be extended any more, or too few before them: then it restarts from a source that has
 * all that is needed. */
static int next_source(struct kv *kv, int session, int layer, int device, int pos)
{
    struct kv_held *h = held_at(kv, session, layer, device);
    int source = source_of(kv, session, layer, device);

    if (!kv->layers[layer].ring || (source >= 0 && h->begin <= first_seen(kv, layer, pos)))
        return source;
    if ((source = standing(kv, session, layer, pos)) >= 0)
        h->begin = h->end = held_at(kv, session, layer, source)->begin;
    return source;
}

static int rows_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t max_bytes,
                     uint64_t *spent, struct error *e)
{
    struct kv_held *have = held_at(kv, session, layer, device);
    size_t row = kv->layers[layer].row_bytes;
    uint64_t budget = row && max_bytes / row > 0 ? max_bytes / row : 1;
    int source, rc;

    assert(kv->slots[device].device && pos >= 0);
    while (!rows_there(kv, session, layer, device, pos) && budget) {
        struct kv_move m = {.session = session, .layer = layer, .data = kv->staging};

        if ((source = next_source(kv, session, layer, device, pos)) < 0)
            return error_set(e, ERR_DEVICE, "the cached keys of layer %d are on no device any more",
                             layer);
        m.pos = have->end;
        m.count = (pos < kv_valid(kv, session, layer, source)
                       ? pos
                       : kv_valid(kv, session, layer, source)) -
                  m.pos;
        if (m.count > staged_rows(row))
            m.count = staged_rows(row);
        if ((uint64_t)m.count > budget)
            m.count = (int)budget;
        if ((rc = copy(kv, source, &m, false, e)) < 0) {
            /* unreadable rows count as missing */
            *held_at(kv, session, layer, source) = (struct kv_held){0};
            continue;
        }
        if ((rc = copy(kv, device, &m, true, e)) < 0)
            return rc;
        have->end += m.count;
        overwritten(kv, have, layer, have->end);
        budget -= (uint64_t)m.count;
        if (spent)
            *spent += (uint64_t)m.count * row;
    }
    return rows_there(kv, session, layer, device, pos);
}

int kv_rows_read(struct kv *kv, int session, int layer, int pos, int n, void *to, struct error *e)
{
    struct kv_move m = {.session = session, .layer = layer, .pos = pos, .count = n, .data = to};

    for (int d = 0; d < DEVICE_MAX; d++) {
        const struct kv_held *h = held_at(kv, session, layer, d);

        if (kv->slots[d].device && h->begin <= pos && h->end >= pos + n)
            return copy(kv, d, &m, false, e);
    }
    return error_set(e, ERR_DEVICE, "rows %d+%d of layer %d are on no device", pos, n, layer);
}

int kv_rows_write(struct kv *kv, int session, int layer, int pos, int n, const void *from,
                  struct error *e)
{
    struct kv_move m = {
        .session = session, .layer = layer, .pos = pos, .count = n, .data = (void *)from};
    int rc = rows_step(kv, session, layer, 0, pos, UINT64_MAX, NULL, e);

    if (rc < 0 || (rc = copy(kv, 0, &m, true, e)) < 0)
        return rc;
    rows_written(kv, session, layer, 0, pos, n);
    return 0;
}

/* Copies recurrent state in one piece. */
static int fixed_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t *spent,
                      struct error *e)
{
    struct kv_move m = {
        .session = session, .layer = layer, .pos = pos, .data = kv->staging, .fixed = true};
    int rc;

    if (fixed_there(kv, session, layer, device, pos))
        return 1;
    if ((rc = kv_copy_read(kv, session, layer, pos, kv->staging, e)) < 0 ||
        (rc = copy(kv, device, &m, true, e)) < 0)
        return rc;
    held_at(kv, session, layer, device)->stands = pos;
    held_at(kv, session, layer, device)->ahead = 0;
    if (spent)
        *spent += kv->layers[layer].fixed_bytes;
    return 1;
}

int kv_step(struct kv *kv, int session, int layer, int to, int pos, uint64_t max_bytes,
            uint64_t *spent, struct error *e)
{
    int device = owner_of(kv, layer, to),
        rc = rows_step(kv, session, layer, device, pos, max_bytes, spent, e);

    return rc < 1 ? rc : fixed_step(kv, session, layer, device, pos, spent, e);
}
