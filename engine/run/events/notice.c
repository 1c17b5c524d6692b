/* The engine's messages and cancellation: events to listeners, lines to the log, cancels by the
 * callbacks. Engine thread. */
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/report/logprobs.h"

#include "engine/base/log.h"
#include "engine/base/mem.h"

#include <stdarg.h>
#include <stdio.h>

static int hand_over(struct engine *g, struct event *ev)
{
    int stop = g->on_event(g->event_ctx, ev);

    if (stop && g->busy)
        g->session->turn_cancelled = true;
    return stop;
}

void engine_notice(struct engine *g, const char *format, ...)
{
    struct event ev = {.kind = EVENT_NOTICE};
    char line[700];
    bool taken = false;
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_write(LOG_LEVEL_WARNING, "%s", line);
    if (g->on_event && (ev.text = mem_string(line))) {
        hand_over(g, &ev);
        taken = !ev.text;
        event_release(&ev);
    }
    if (g->config.log && !taken)
        g->config.log(g->config.callback_ctx, line);
}

int engine_emit(struct engine *g, struct event *ev)
{
    int stop = g->on_event ? hand_over(g, ev) : 0;

    event_release(ev);
    return stop;
}

/* engine_config.stop requested the end. */
bool engine_given_up(const struct engine *g)
{
    return g->config.stop && g->config.stop(g->config.callback_ctx);
}

int session_emit(struct session *s, struct event *ev)
{
    int stop = s->run.on_event ? s->run.on_event(s->run.event_ctx, ev) : 0;

    event_release(ev);
    s->turn_cancelled |= stop != 0;
    return stop;
}

void session_logprobs(struct session *s, const float *logits, int id)
{
    struct event ev = {.kind = EVENT_LOGPROBS};

    logprobs_of(logits, s->engine->model->hp.n_vocab, id, s->run.turn->top_logprobs, &ev.logprobs);
    session_emit(s, &ev);
}

bool session_cancelled(struct session *s)
{
    return s->turn_cancelled || engine_given_up(s->engine) ||
           atomic_load_explicit(&s->cancel, memory_order_relaxed);
}

void engine_session_cancel(struct session *s)
{
    atomic_store(&s->cancel, 1);
    wake_signal(&s->engine->cancel_wake);
}

void engine_session_uncancel(struct session *s)
{
    s->turn_cancelled = false;
    atomic_store(&s->cancel, 0);
}

void engine_progress(struct engine *g, const char *line)
{
    struct event ev = {.kind = EVENT_PROGRESS, .text = mem_string(line)};

    engine_emit(g, &ev);
}

void engine_tell(struct engine *g, const char *line)
{
    engine_notice(g, "%s", line);
}
