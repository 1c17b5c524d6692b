/* Tokens allowed by a turn's grammar or schema, sampled or drafted. Engine thread; the matcher is
 * the session's. */
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <math.h>

bool rule_holds(const struct session *s)
{
    return s->run.turn->grammar && s->run.parts.part != PART_REASONING;
}

int rule_allowed(struct session *s, const int *ids, int n)
{
    int cursor = s->cursor, i = 0;

    if (!rule_holds(s))
        return n;
    while (i < n && (cursor = matcher_accept(s->matcher, cursor, ids[i])) != MATCHER_DEAD)
        i++;
    return i;
}

void rule_apply(struct session *s, int cursor)
{
    const uint32_t *mask = rule_holds(s) ? matcher_mask(s->matcher, cursor) : NULL;

    if (mask)
        sampler_mask(&s->sampler, mask);
}

int rule_cursor(struct session *s, int cursor, int id)
{
    return rule_holds(s) ? matcher_accept(s->matcher, cursor, id) : cursor;
}

void rule_mask(const struct session *s, float *logits)
{
    const struct hparams *hp = &s->engine->model->hp;

    for (int i = 0; s->run.turn->ignore_eos && i < hp->n_stops; i++)
        if (hp->stops[i] >= 0 && hp->stops[i] < hp->n_vocab)
            logits[hp->stops[i]] = -INFINITY;
}
