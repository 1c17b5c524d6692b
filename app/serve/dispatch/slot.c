/* See slot.h. */
#include "app/serve/dispatch/slot.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <string.h>

static int common_prefix(const struct slot *s, const struct turn *t)
{
    const struct prompt *p = &t->prompt;
    int n = s->n_held < p->n ? s->n_held : p->n, i = 0;

    if (memcmp(s->strengths, t->strengths, sizeof s->strengths) != 0 ||
        !expert_edits_equal(s->edits, t->edits))
        return 0;
    while (i < n && s->held[i] == p->ids[i])
        i++;
    return i;
}

struct slot *slot_choose(struct slot *slots, int n, const struct turn *t)
{
    struct slot *best = NULL, *spare = NULL, *oldest = NULL;
    int most = -1, least = 0;

    for (int i = 0; i < n; i++) {
        struct slot *s = &slots[i];
        int same, lost;

        if (s->task || !s->ready)
            continue;
        same = common_prefix(s, t);
        lost = s->n_held - same;
        if (same > most || (same == most && s->used_ns < best->used_ns)) {
            most = same;
            best = s;
        }
        if (!spare || lost < least || (lost == least && s->used_ns < spare->used_ns)) {
            least = lost;
            spare = s;
        }
        if (!oldest || s->used_ns < oldest->used_ns)
            oldest = s;
    }
    if (!best || 2 * (best->n_held - most) <= best->n_held)
        return best;
    return 2 * least <= spare->n_held ? spare : oldest;
}

int slot_begin(struct slot *s, struct task *t)
{
    struct command k = {.kind = COMMAND_TURN, .turn = t->turn};
    const struct engine_info *info = server_info(s->server);
    struct error e = {0};

    if (!s->held && !(s->held = mem_alloc((size_t)info->context + 1, sizeof *s->held)))
        return -1;
    s->n_held = t->n_prompt < info->context ? t->n_prompt : info->context;
    memcpy(s->held, t->turn.prompt.ids, (size_t)s->n_held * sizeof *s->held);
    memcpy(s->strengths, t->turn.strengths, sizeof s->strengths);
    expert_edits_free(s->edits);
    s->edits = expert_edits_share(t->turn.edits);
    s->used_ns = clock_now();
    s->prompt = t->n_prompt;
    s->cached = s->read = s->made = 0;
    t->turn = (struct turn){0}; /* moved to the command */
    if (client_send(s->client, &k, &e) < 0)
        return -1;
    t->slot = s;
    s->task = t;
    return 0;
}

void slot_end(struct slot *s)
{
    s->task = NULL;
    client_hold(s->client, false);
}

void slot_note(struct slot *s, const struct event *ev)
{
    const struct engine_info *info = server_info(s->server);

    if (ev->kind == EVENT_TURN_STARTED)
        s->cached = s->read = (int)ev->progress.done;
    if (ev->kind == EVENT_PREFILL)
        s->read = (int)ev->progress.done;
    if (ev->kind == EVENT_TOKEN && ev->token.id >= 0) {
        s->newest_ns = clock_now();
        if (s->made++ == 0)
            s->first_ns = s->newest_ns;
        if (s->n_held < info->context)
            s->held[s->n_held++] = ev->token.id;
    }
    /* the token that completed a stop string is not kept in the session */
    if (ev->kind == EVENT_TURN_DONE && ev->done_turn.reason == STOP_STRING && s->n_held > 0)
        s->n_held--;
}

void slot_release(struct slot *s)
{
    if (s->client && s->number > 0)
        client_close(s->client);
    mem_free(s->held);
    expert_edits_free(s->edits);
}
