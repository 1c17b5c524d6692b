/* Sessions with a common prefix share the whole pages of its rows, and one of them computes those
 * for all: many lines of a batch, or many clients, have one system prompt. A prompt waits while
 * another one with the same prefix, that waits for no other, is computing it. Only rows on the CPU;
 * recurrent state is not shared. Engine thread. */
#include "engine/device/numerics.h"
#include "engine/run/internal.h"

#include <string.h>

/* Rows computed with other adapter strengths or edited experts differ. */
static bool same_weights(const struct session *s, const struct session *other)
{
    return memcmp(s->strengths, other->strengths, sizeof s->strengths) == 0 &&
           expert_edits_equal(s->edits, other->edits);
}

/* Tokens that it holds, or will after its turn's prefill. */
static int known(const struct session *s)
{
    return turn_running(s) ? s->run.end : s->n_tokens;
}

/* Common prefix in whole pages; a prompt's last token is never shared. */
static int alike(const struct session *s, const struct session *other)
{
    int n = s->run.end - 1 < known(other) ? s->run.end - 1 : known(other), i = 0;

    while (i < n && s->tokens[i] == other->tokens[i])
        i++;
    return i / NUM_CHUNK * NUM_CHUNK;
}

void prefix_sharing_choose(struct session *s)
{
    struct engine *g = s->engine;

    s->run.leader = NULL;
    s->run.lead = s->n_tokens;
    for (int i = 0; i < g->n_sessions && !g->kv.all_fixed; i++) {
        struct session *other = g->sessions[i];
        int n;

        if (!other || other == s || (turn_running(other) && other->run.leader) ||
            !same_weights(s, other))
            continue;
        if ((n = alike(s, other)) > s->run.lead) {
            s->run.leader = other;
            s->run.lead = n;
        }
    }
}

/* It has them, or is computing them and waits for no other. */
static bool goes_there(const struct session *leader, int lead)
{
    return leader->n_tokens < lead && turn_running(leader) && !leader->run.leader &&
           leader->run.end >= lead;
}

static void take(struct session *s)
{
    struct session *leader = s->run.leader;
    int n = alike(s, leader), shared = 0;

    n = leader->n_tokens < n ? leader->n_tokens : n;
    s->run.leader = NULL;
    if (n / NUM_CHUNK * NUM_CHUNK > s->n_tokens && s->variant == leader->variant &&
        same_weights(s, leader))
        shared = kv_share(&s->engine->kv, leader->number, s->number, n / NUM_CHUNK * NUM_CHUNK);
    if (shared <= s->n_tokens)
        return;
    history_copy(s, leader, shared);
    s->run.done.cached_tokens += shared - s->n_tokens;
    if (s == s->engine->session)
        s->engine->t.cached_tokens = s->run.done.cached_tokens;
    if (leader->as_opened < shared && leader->as_opened < s->as_opened)
        s->as_opened = leader->as_opened;
    s->n_tokens = shared;
    s->counted = s->counted < shared ? shared : s->counted;
}

void prefix_sharing_take(struct engine *g)
{
    for (int i = 0; i < g->n_sessions; i++) {
        struct session *s = g->sessions[i];

        if (s && turn_running(s) && s->run.leader && !goes_there(s->run.leader, s->run.lead))
            take(s);
    }
}

void prefix_sharing_forget(struct session *s)
{
    struct engine *g = s->engine;

    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i] && g->sessions[i]->run.leader == s)
            g->sessions[i]->run.leader = NULL;
}
