/* See checkpoints.h. */
#include "engine/run/state/checkpoints.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <string.h>

/* The start of a message is worth as much as a gap so many times longer. */
#define MARK_WORTH 4

struct checkpoint {
    int pos, slot; /* slot: index of its memory */
    bool mark;
};

struct checkpoints {
    struct kv *kv;
    int session, room, n;
    int most; /* most copies since memory was returned: slots with pages */
    struct checkpoint list[CHECKPOINTS_MOST]; /* n, ascending */
    uint8_t *memory;                          /* room pieces of kv->all_copies bytes */
};

/* Over all layers: size of a copy, the part of it that is ring rows, and the memory that rings
 * save. */
struct copy_size {
    size_t all, rows, saved;
};

static struct copy_size copy_size(const struct hparams *hp, const struct state_config *state)
{
    struct copy_size sum = {0};

    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;
        size_t bytes = state_copy_bytes(m, state);

        sum.all += bytes;
        if (!state_is_ring(m, state))
            continue;
        sum.rows += bytes;
        sum.saved += state_size(m, state->k, state->v).token_bytes *
                     (size_t)(state->context - state_room(m, state));
    }
    return sum;
}

static size_t fewer(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As many as are worth their memory and as a whole context needs, so that the count is that of a
 * full session; state_is_ring guarantees that half of the savings holds the least number. */
static int room_for(const struct copy_size *s, const struct state_config *state)
{
    int apart = state->rows > CHECKPOINT_EVERY ? state->rows : CHECKPOINT_EVERY;
    size_t n = fewer(CHECKPOINTS_MOST, (size_t)(state->context / apart));

    if (!s->all)
        return 0;
    n = fewer(n, CHECKPOINTS_BYTES / s->all);
    if (s->rows)
        n = fewer(n, s->saved / 2 / s->rows);
    return n > CHECKPOINTS_LEAST ? (int)n : CHECKPOINTS_LEAST;
}

size_t checkpoints_footprint(const struct hparams *hp, const struct state_config *state)
{
    struct copy_size size = copy_size(hp, state);

    return (size_t)room_for(&size, state) * size.all;
}

int checkpoints_new(struct checkpoints **out, const struct hparams *hp,
                    const struct state_config *state, struct kv *kv, int session, struct error *e)
{
    size_t bytes = checkpoints_footprint(hp, state);
    struct checkpoints *c = mem_alloc(1, sizeof *c);

    *out = NULL;
    if (!c || !(c->memory = mem_pages(bytes))) {
        mem_free(c);
        return error_set(e, ERR_MEMORY,
                         "no memory for copies of what a session goes back to (%.1f MiB)",
                         (double)bytes / 1048576.0);
    }
    c->kv = kv;
    c->session = session;
    c->room = (int)(bytes / kv->all_copies);
    for (int i = 0; i < c->room; i++)
        c->list[i].slot = i;
    *out = c;
    return 0;
}

void checkpoints_free(struct checkpoints *c)
{
    if (!c)
        return;
    mem_pages_free(c->memory, (size_t)c->room * c->kv->all_copies);
    mem_free(c);
}

static uint8_t *piece(const struct checkpoints *c, int i)
{
    return c->memory + (size_t)c->list[i].slot * c->kv->all_copies;
}

/* Makes its memory the next free slot. */
static void forget(struct checkpoints *c, int i)
{
    struct checkpoint gone = c->list[i];

    memmove(&c->list[i], &c->list[i + 1], (size_t)(--c->n - i) * sizeof gone);
    c->list[c->n] = gone;
}

/* The copy to evict; the newest is kept, for the next rewind starts there. */
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
    if (pos <= last || (!mark && pos - last < CHECKPOINT_EVERY) ||
        !kv_copies(c->kv, c->session, pos))
        return;
    if (c->n == c->room)
        forget(c, least_missed(c, pos));
    to = piece(c, c->n);
    for (int l = 0; l < c->kv->n_layers; to += c->kv->layers[l++].copy_bytes)
        if (c->kv->layers[l].copy_bytes && kv_copy_read(c->kv, c->session, l, pos, to, NULL) < 0)
            return;
    c->list[c->n].pos = pos;
    c->list[c->n++].mark = mark;
    c->most = c->n > c->most ? c->n : c->most;
}

void checkpoints_cut(struct checkpoints *c, int pos)
{
    while (c->n && c->list[c->n - 1].pos > pos)
        c->n--;
}

size_t checkpoints_give_back(struct checkpoints *c)
{
    size_t bytes = (size_t)c->most * c->kv->all_copies;

    mem_pages_forget(c->memory, (size_t)c->room * c->kv->all_copies);
    c->n = c->most = 0;
    return bytes;
}

static int bring_back(struct checkpoints *c, int i)
{
    const uint8_t *from = piece(c, i);
    int rc = 0;

    for (int l = 0; l < c->kv->n_layers && rc >= 0; from += c->kv->layers[l++].copy_bytes)
        if (c->kv->layers[l].copy_bytes)
            rc = kv_copy_write(c->kv, c->session, l, c->list[i].pos, from, NULL);
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

const void *checkpoints_copy(const struct checkpoints *c, int pos)
{
    for (int i = 0; i < c->n; i++)
        if (c->list[i].pos == pos)
            return piece(c, i);
    return NULL;
}

int checkpoints_list(const struct checkpoints *c, int *pos, int max)
{
    for (int i = 0; i < c->n && i < max; i++)
        pos[i] = c->list[i].pos;
    return c->n;
}
