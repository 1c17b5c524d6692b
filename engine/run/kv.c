/* See kv.h. */
#include "engine/run/kv.h"

#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/run/device_slot.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#define STAGING_ROWS 64 /* a copy step */

int kv_init(struct kv *kv, const struct model *m, struct device_slot *slots, enum kv_type k,
            enum kv_type v, struct error *e)
{
    size_t widest = 0;

    memset(kv, 0, sizeof *kv);
    kv->slots = slots;
    kv->n_layers = m->hp.n_layers;
    kv->row_bytes = mem_alloc((size_t)kv->n_layers, sizeof *kv->row_bytes);
    kv->fixed_bytes = mem_alloc((size_t)kv->n_layers, sizeof *kv->fixed_bytes);
    for (int l = 0; l < kv->n_layers && kv->row_bytes && kv->fixed_bytes; l++) {
        struct state_size s = state_size(&hparams_layer(&m->hp, l)->mixer, k, v);

        kv->row_bytes[l] = s.token_bytes;
        kv->fixed_bytes[l] = s.fixed_bytes;
        kv->all_fixed += s.fixed_bytes;
        widest = s.token_bytes * STAGING_ROWS > widest ? s.token_bytes * STAGING_ROWS : widest;
        widest = s.fixed_bytes > widest ? s.fixed_bytes : widest;
    }
    if (kv->row_bytes && kv->fixed_bytes && widest)
        kv->staging = mem_alloc(widest, 1);
    return kv->row_bytes && kv->fixed_bytes && (kv->staging || !widest)
               ? 0
               : error_set(e, ERR_MEMORY, "no memory for rows on their way");
}

void kv_release(struct kv *kv)
{
    for (int s = 0; s < kv->n_sessions; s++)
        mem_free(kv->valid[s]);
    mem_free(kv->valid);
    mem_free(kv->staging);
    mem_free(kv->row_bytes);
    mem_free(kv->fixed_bytes);
    memset(kv, 0, sizeof *kv);
}

int kv_open(struct kv *kv, int session, struct error *e)
{
    int **list = session < kv->n_sessions
                     ? kv->valid
                     : mem_resize(kv->valid, (size_t)session + 1, sizeof *list);

    assert(session >= 0 && (session >= kv->n_sessions || !kv->valid[session]));
    for (; list && kv->n_sessions <= session; kv->n_sessions++)
        list[kv->n_sessions] = NULL;
    kv->valid = list ? list : kv->valid;
    if (!list ||
        !(list[session] = mem_alloc((size_t)DEVICE_MAX * (size_t)kv->n_layers, sizeof **list)))
        return error_set(e, ERR_MEMORY, "no memory for the list of cached rows");
    return 0;
}

void kv_close(struct kv *kv, int session)
{
    assert(session >= 0);
    if (session >= kv->n_sessions)
        return;
    mem_free(kv->valid[session]);
    kv->valid[session] = NULL;
}

static int *valid_at(struct kv *kv, int session, int layer, int device)
{
    return &kv->valid[session][device * kv->n_layers + layer];
}

int kv_valid(const struct kv *kv, int session, int layer, int device)
{
    assert(session >= 0 && session < kv->n_sessions && kv->valid[session]);
    assert(layer >= 0 && layer < kv->n_layers);
    assert(device >= 0 && device < DEVICE_MAX);
    return kv->valid[session][device * kv->n_layers + layer];
}

bool kv_there(const struct kv *kv, int session, int layer, int device, int pos)
{
    int have = kv_valid(kv, session, layer, device);

    if (kv->fixed_bytes[layer])
        return have == pos || pos == 0;
    return have >= pos || !kv->row_bytes[layer];
}

/* A device that has recurrent state after pos tokens; -1: none. */
static int standing(const struct kv *kv, int session, int layer, int pos)
{
    for (int d = 0; d < DEVICE_MAX; d++)
        if (kv->slots[d].device && kv_valid(kv, session, layer, d) == pos)
            return d;
    return -1;
}

int kv_rows_held(const struct kv *kv, int session)
{
    int least = INT_MAX;

    for (int l = 0; l < kv->n_layers; l++) {
        int most = 0;

        for (int d = 0; d < DEVICE_MAX; d++)
            if (kv->slots[d].device && kv_valid(kv, session, l, d) > most)
                most = kv_valid(kv, session, l, d);
        if (kv->row_bytes[l] && most < least)
            least = most;
    }
    return least;
}

bool kv_stands(const struct kv *kv, int session, int pos)
{
    for (int l = 0; l < kv->n_layers && pos > 0; l++)
        if (kv->fixed_bytes[l] && standing(kv, session, l, pos) < 0)
            return false;
    return kv_rows_held(kv, session) >= pos;
}

void kv_cut(struct kv *kv, int session, int pos)
{
    assert(session >= 0 && session < kv->n_sessions && kv->valid[session]);
    assert(pos >= 0);
    for (int i = 0; i < DEVICE_MAX * kv->n_layers; i++)
        if (kv->valid[session][i] > pos)
            kv->valid[session][i] = kv->fixed_bytes[i % kv->n_layers] ? 0 : pos;
    for (int d = 0; d < DEVICE_MAX; d++)
        if (kv->slots[d].device && !kv->slots[d].lost && kv->slots[d].ops->state_cut)
            kv->slots[d].ops->state_cut(kv->slots[d].device, session, pos);
}

void kv_written(struct kv *kv, int session, int layer, int device, int pos, int rows)
{
    assert(session >= 0 && session < kv->n_sessions && kv->valid[session]);
    assert(pos >= 0 && rows > 0);
    assert(layer >= 0 && layer < kv->n_layers);
    assert(device >= 0 && device < DEVICE_MAX);
    for (int d = 0; d < DEVICE_MAX && !kv->fixed_bytes[layer]; d++)
        if (*valid_at(kv, session, layer, d) > pos)
            *valid_at(kv, session, layer, d) = pos;
    *valid_at(kv, session, layer, device) = pos + rows;
}

int kv_share(struct kv *kv, int from, int to, int n)
{
    const struct device_slot *cpu = &kv->slots[0];

    if (kv->all_fixed || !cpu->ops->state_share)
        return 0;
    for (int l = 0; l < kv->n_layers; l++)
        if (kv->row_bytes[l] && kv_valid(kv, from, l, 0) < n)
            n = kv_valid(kv, from, l, 0);
    if ((n = cpu->ops->state_share(cpu->device, from, to, n)) == 0)
        return 0;
    for (int d = 0; d < DEVICE_MAX; d++)
        for (int l = 0; l < kv->n_layers; l++)
            *valid_at(kv, to, l, d) = d ? 0 : n;
    return n;
}

void kv_failed(struct kv *kv, int session, int layer, int device)
{
    if (kv->fixed_bytes[layer])
        *valid_at(kv, session, layer, device) = 0;
}

void kv_dropped(struct kv *kv, int layer, int device)
{
    assert(layer >= 0 && layer < kv->n_layers);
    assert(device >= 0 && device < DEVICE_MAX);
    for (int s = 0; s < kv->n_sessions; s++)
        if (kv->valid[s])
            *valid_at(kv, s, layer, device) = 0;
}

static int copy(const struct kv *kv, int device, struct kv_move *m, bool write, struct error *e)
{
    const struct device_slot *s = &kv->slots[device];
    int rc;

    m->write = write;
    rc = s->ops->kv_rows(s->device, m, e);
    return rc < 0 ? rc : s->ops->wait(s->device, e);
}

int kv_fixed_read(struct kv *kv, int session, int layer, int pos, void *to, struct error *e)
{
    struct kv_move m = {.session = session, .layer = layer, .pos = pos, .data = to, .fixed = true};
    int d;

    while ((d = standing(kv, session, layer, pos)) >= 0) {
        if (copy(kv, d, &m, false, e) >= 0)
            return 0;
        *valid_at(kv, session, layer, d) = 0; /* what cannot be read is not there */
    }
    return error_set(e, ERR_DEVICE, "the state of layer %d after %d tokens is on no device", layer,
                     pos);
}

int kv_fixed_write(struct kv *kv, int session, int layer, int pos, const void *from,
                   struct error *e)
{
    struct kv_move m = {
        .session = session, .layer = layer, .pos = pos, .data = (void *)from, .fixed = true};
    int rc = copy(kv, 0, &m, true, e);

    *valid_at(kv, session, layer, 0) = rc < 0 ? 0 : pos;
    return rc;
}

/* Recurrent state in one piece. */
static int fixed_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t *spent,
                      struct error *e)
{
    struct kv_move m = {
        .session = session, .layer = layer, .pos = pos, .data = kv->staging, .fixed = true};
    int rc;

    if (kv_there(kv, session, layer, device, pos))
        return 1;
    if ((rc = kv_fixed_read(kv, session, layer, pos, kv->staging, e)) < 0 ||
        (rc = copy(kv, device, &m, true, e)) < 0)
        return rc;
    *valid_at(kv, session, layer, device) = pos;
    if (spent)
        *spent += kv->fixed_bytes[layer];
    return 1;
}

int kv_step(struct kv *kv, int session, int layer, int device, int pos, uint64_t max_bytes,
            uint64_t *spent, struct error *e)
{
    int *have = valid_at(kv, session, layer, device), source = -1, rc;
    size_t row = kv->row_bytes[layer];
    uint64_t budget = row && max_bytes / row > 0 ? max_bytes / row : 1;

    if (kv->fixed_bytes[layer])
        return fixed_step(kv, session, layer, device, pos, spent, e);
    if (!row)
        return 1;
    assert(session >= 0 && session < kv->n_sessions && kv->valid[session]);
    assert(kv->slots[device].device && pos >= 0);
    while (*have < pos && budget) {
        struct kv_move m = {.session = session,
                            .layer = layer,
                            .pos = *have,
                            .count = pos - *have,
                            .data = kv->staging};

        /* The device that has most of them; the CPU where it is as good as another. */
        source = -1;
        for (int d = 0; d < DEVICE_MAX; d++)
            if (d != device && kv->slots[d].device && kv_valid(kv, session, layer, d) > *have &&
                (source < 0 ||
                 kv_valid(kv, session, layer, d) > kv_valid(kv, session, layer, source)))
                source = d;
        if (source < 0)
            return error_set(e, ERR_DEVICE, "the cached keys of layer %d are on no device any more",
                             layer);
        if (m.count > kv_valid(kv, session, layer, source) - *have)
            m.count = kv_valid(kv, session, layer, source) - *have;
        if (m.count > STAGING_ROWS)
            m.count = STAGING_ROWS;
        if ((uint64_t)m.count > budget)
            m.count = (int)budget;
        if ((rc = copy(kv, source, &m, false, e)) < 0) {
            *valid_at(kv, session, layer, source) = 0; /* what cannot be read is not there */
            continue;
        }
        if ((rc = copy(kv, device, &m, true, e)) < 0)
            return rc;
        *have += m.count;
        budget -= (uint64_t)m.count;
        if (spent)
            *spent += (uint64_t)m.count * row;
    }
    return *have >= pos;
}
