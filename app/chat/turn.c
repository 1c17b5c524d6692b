/* See turn.h. */
#include "app/chat/turn.h"

#include "app/setup/engine_options.h"
#include "engine/base/mem.h"

int turn_make(const struct options *o, const struct transcript *t, bool go_on,
              struct dialogue *said, struct turn *turn, struct error *e)
{
    int rc = transcript_messages(t, &said->messages, &said->n_messages, e);

    if (rc < 0)
        return rc;
    if (!go_on) {
        mem_free(said->messages[--said->n_messages].text);
        mem_free(said->messages[said->n_messages].reasoning);
    }
    turn->stops = mem_alloc(o->stop.n + 1, sizeof *turn->stops);
    for (size_t i = 0;
         turn->stops && i < o->stop.n && (turn->stops[i] = mem_string(o->stop.items[i])); i++)
        turn->n_stops++;
    if (!turn->stops || turn->n_stops < o->stop.n)
        return error_set(e, ERR_MEMORY, "out of memory for the turn");
    said->continue_last = go_on;
    turn->max_tokens = o->n_predict;
    turn->ignore_eos = o->ignore_eos;
    sampling_from_options(o, &turn->sampling);
    if ((rc = grammar_from_options(o, &turn->grammar, e)) < 0 || !turn->grammar || !go_on)
        return rc;
    turn->begun = mem_string(said->messages[said->n_messages - 1].text);
    return turn->begun ? 0 : error_set(e, ERR_MEMORY, "out of memory for the turn");
}
