/* See checkpoints.h. */
#include "engine/run/checkpoints.h"

#include "engine/base/mem.h"
#include "engine/device/state.h"

#include <assert.h>
#include <string.h>

/* A message's beginning is worth as much as a gap so many times as long. */
#define MARK_WORTH 4

struct checkpoint {
    int pos, slot; /* slot: which piece of memory */
    bool mark;
};

struct checkpoints {
    struct kv *kv;
    int session, room, n;
    struct checkpoint list[CHECKPOINTS_MOST]; /* n, upwards */
    uint8_t *memory;                          /* room pieces of kv->all_fixed bytes */
};

static size_t fixed_of(const struct hparams *hp)
{
    size_t sum = 0;

    for (int l = 0; l < hp->n_layers; l++)
        sum += state_size(&hparams_layer(hp, l)->mixer, KV_F32, KV_F32).fixed_bytes;
    return sum;
}

static int room_for(size_t fixed)
{
    size_t n = fixed ? CHECKPOINTS_BYTES / fixed : 0;

    return n > CHECKPOINTS_MOST    ? CHECKPOINTS_MOST
           : n > CHECKPOINTS_LEAST ? (int)n
           : fixed                 ? CHECKPOINTS_LEAST
                                   : 0;
}

size_t checkpoints_footprint(const struct hparams *hp)
{
    size_t fixed = fixed_of(hp);

    return (size_t)room_for(fixed) * fixed;
}

int checkpoints_new(struct checkpoints **out, const struct hparams *hp, struct kv *kv, int session,
                    struct error *e)
{
    struct checkpoints *c = mem_alloc(1, sizeof *c);

    *out = NULL;
    if (!c || !(c->memory = mem_pages(checkpoints_footprint(hp)))) {
        mem_free(c);
        return error_set(e, ERR_MEMORY, "no memory for copies of recurrent state (%.1f MiB)",
                         (double)checkpoints_footprint(hp) / 1048576.0);
    }
    c->kv = kv;
    c->session = session;
    c->room = room_for(kv->all_fixed);
    for (int i = 0; i < c->room; i++)
        c->list[i].slot = i;
    *out = c;
    return 0;
}

void checkpoints_free(struct checkpoints *c)
{
    if (!c)
        return;
    mem_pages_free(c->memory, (size_t)c->room * c->kv->all_fixed);
    mem_free(c);
}

static uint8_t *piece(const struct checkpoints *c, int i)
{
    return c->memory + (size_t)c->list[i].slot * c->kv->all_fixed;
}

/* Its memory is the next free one. */
static void forget(struct checkpoints *c, int i)
{
    struct checkpoint gone = c->list[i];

    memmove(&c->list[i], &c->list[i + 1], (size_t)(--c->n - i) * sizeof gone);
    c->list[c->n] = gone;
}

/* What is missed least: the newest stays, for the next step back begins there. */
static int least_missed(const struct checkpoints *c, int now)
{
    double least = 0;
    int at = -1;

    for (int i = 0; i + 1 < c->n; i++) {
        double gap = c->list[i + 1].pos - (i ? c->list[i - 1].pos : 0),
               worth = gap * (c->list[i].mark ? MARK_WORTH : 1) / (now - c->list[i].pos + 1);

        if (at < 0 || worth < least) {
            least = worth;
            at = i;
        }
    }
    return at;
}

void checkpoints_take(struct checkpoints *c, int pos, bool mark)
{
    int last = c->n ? c->list[c->n - 1].pos : 0;
    uint8_t *to;

    assert(pos > 0);
    if (pos <= last || (!mark && pos - last < CHECKPOINT_EVERY))
        return;
    if (c->n == c->room)
        forget(c, least_missed(c, pos));
    to = piece(c, c->n);
    for (int l = 0; l < c->kv->n_layers; to += c->kv->fixed_bytes[l++])
        if (c->kv->fixed_bytes[l] && kv_fixed_read(c->kv, c->session, l, pos, to, NULL) < 0)
            return;
    c->list[c->n].pos = pos;
    c->list[c->n++].mark = mark;
}

void checkpoints_cut(struct checkpoints *c, int pos)
{
    while (c->n && c->list[c->n - 1].pos > pos)
        c->n--;
}

static int bring_back(struct checkpoints *c, int i)
{
    const uint8_t *from = piece(c, i);
    int rc = 0;

    for (int l = 0; l < c->kv->n_layers && rc >= 0; from += c->kv->fixed_bytes[l++])
        if (c->kv->fixed_bytes[l])
            rc = kv_fixed_write(c->kv, c->session, l, c->list[i].pos, from, NULL);
    return rc;
}

int checkpoints_resume(struct checkpoints *c, int pos)
{
    int held = kv_rows_held(c->kv, c->session);

    if (kv_stands(c->kv, c->session, pos))
        return pos;
    for (int i = c->n; i-- > 0;)
        if (c->list[i].pos <= pos && c->list[i].pos <= held && bring_back(c, i) >= 0)
            return c->list[i].pos;
    return 0;
}

int checkpoints_list(const struct checkpoints *c, int *pos, int max)
{
    for (int i = 0; i < c->n && i < max; i++)
        pos[i] = c->list[i].pos;
    return c->n;
}
