/* Events of a connection on their way to its owner, and the figures of an answer that are measured
 * here, from the times at which its pieces arrive. The connection's thread, but for remote_push. */
#include "app/connect/answer.h"
#include "app/connect/internal.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <string.h>

bool remote_is_quitting(void *ctx)
{
    return atomic_load(&((struct remote *)ctx)->quit);
}

bool remote_is_unwanted(void *ctx)
{
    struct remote *r = ctx;

    return atomic_load(&r->quit) || atomic_load(&r->cancel);
}

void remote_push(struct remote *r, struct ring *to, const struct event *ev)
{
    struct event copy = *ev;

    if (ring_push(to, &copy) < 0)
        event_release(&copy); /* out of memory: a piece of text is missing */
    wake_signal(&r->event_wake);
}

void remote_send(struct remote *r, enum event_kind kind, int code, const char *text)
{
    struct event ev = {.kind = kind, .text = mem_string(text)};

    if (kind == EVENT_ERROR)
        ev.failure.code = code;
    remote_push(r, &r->events, &ev);
}

void remote_publish(struct remote *r)
{
    r->live.serial++;
    r->slots[snapshot_write_slot(&r->snapshot)] = r->live;
    snapshot_publish(&r->snapshot);
}

/* A piece of text arrived: the time since the previous one counts as one token's. */
static void note_token(struct remote *r, const struct token_event *t)
{
    struct telemetry *m = &r->live;
    uint64_t now = clock_now();

    if (t->first) {
        m->first_token_ns = now;
        m->prefill_ns = now - r->begun_ns;
    } else if (now > m->last_token_ns) {
        m->recent_us[m->recent_count++ % TELEMETRY_RECENT] = (uint32_t)((now - m->last_token_ns) /
                                                                        1000);
    }
    m->last_token_ns = now;
    m->decode_ns = answer_decode_ns(m->first_token_ns, now);
    m->state = ENGINE_DECODE;
    m->generated_tokens++;
    m->session_generated_tokens++;
    m->context_used++;
    if (m->generated_tokens > 1)
        m->decode_tok_s = clock_rate(m->generated_tokens - 1, m->decode_ns);
}

int remote_note_event(struct remote *r, struct event *ev)
{
    if (ev->kind == EVENT_TOKEN) {
        note_token(r, &ev->token);
        remote_publish(r);
    }
    remote_push(r, &r->events, ev);
    if (ev->kind == EVENT_NOTICE)
        ev->text = NULL; /* owned by the ring */
    return remote_is_unwanted(r);
}

/* The server's own counts take precedence over those made here. */
void remote_note_done(struct remote *r, const struct turn_done_event *d)
{
    struct telemetry *m = &r->live;
    int more = d->completion_tokens - m->generated_tokens;

    m->state = ENGINE_IDLE;
    m->prompt_tokens = m->prefilled_tokens = d->prompt_tokens;
    m->cached_tokens = d->cached_tokens;
    m->generated_tokens = d->completion_tokens;
    m->session_generated_tokens += (uint64_t)(more > 0 ? more : 0);
    m->session_prompt_tokens += (uint64_t)d->prompt_tokens;
    m->context_used = d->prompt_tokens + d->completion_tokens;
    m->prefill_tok_s = clock_rate(d->prompt_tokens - d->cached_tokens, d->prefill_ns);
    if (d->completion_tokens > 1)
        m->decode_tok_s = clock_rate(d->completion_tokens - 1, d->decode_ns);
    remote_publish(r);
}

void remote_note_begin(struct remote *r)
{
    struct telemetry *m = &r->live;

    r->begun_ns = clock_now();
    m->state = ENGINE_PREFILL;
    m->turn_start_ns = r->begun_ns;
    m->first_token_ns = m->last_token_ns = m->prefill_ns = m->decode_ns = 0;
    m->generated_tokens = m->cached_tokens = m->prompt_tokens = m->prefilled_tokens = 0;
    remote_publish(r);
}
