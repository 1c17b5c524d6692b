/* See measured_turn.h. */
#include "app/bench/measured_turn.h"

#include "app/common/signals.h"
#include "engine/base/hash.h"
#include "engine/run/prompt.h"

static int hear(void *ctx, struct event *ev)
{
    struct measured_turn *m = ctx;

    if (ev->kind == EVENT_TOKEN && ev->token.id >= 0) {
        m->text = hash_bytes(m->text, &ev->token.id, sizeof ev->token.id);
        if (!ev->token.first && m->token_ms &&
            series_add(m->token_ms, (double)ev->token.compute_ns * 1e-6) < 0)
            m->rc = ERR_MEMORY;
    }
    return m->rc < 0 || signals_last();
}

int measured_turn_run(struct measured_turn *m, struct engine *g, const struct dialogue *said,
                      const struct turn *t, struct turn_done_event *done, struct error *e)
{
    int rc;

    m->text = HASH_START;
    m->rc = 0;
    engine_session_clear(g);
    rc = prompt_turn(g, NULL, said, t, hear, m, done, e);
    if (rc == 0 && m->rc < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the samples");
    return rc == 0 && (done->reason == STOP_CANCELLED || signals_last())
               ? error_set(e, ERR_CANCELLED, "interrupted")
               : rc;
}
