/* One turn: prompt, reuse of the cached prefix, prefill in chunks, then token after token. Engine
 * thread. Everything between two tokens (events, pacing, new sampling values, plans) happens
 * outside the computing; computing a token allocates nothing. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/model/finite.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <math.h>
#include <string.h>

/* packing keeps still so long for a first token; what takes longer is served better by packed
 * weights */
#define FIRST_TOKEN_MS 500
#define PIECE 1024 /* bytes one token may spell */

/* Text on its way out. What may be the beginning of a stop string is held back until it is decided.
 */
struct stop_matcher {
    const struct turn *turn;
    char *held;
    size_t n, room;
};

static int stop_matcher_init(struct stop_matcher *o, const struct turn *t)
{
    size_t longest = 0;

    for (size_t i = 0; i < t->n_stops; i++)
        longest = strlen(t->stops[i]) > longest ? strlen(t->stops[i]) : longest;
    *o = (struct stop_matcher){.turn = t, .room = longest + 2 * PIECE};
    o->held = mem_alloc(o->room, 1);
    return o->held ? 0 : ERR_MEMORY;
}

/* Adds text; *free_bytes of held may go out now. True: a stop string is complete, *free_bytes end
 * before it. */
static bool stop_matcher_push(struct stop_matcher *o, const char *text, size_t len,
                              size_t *free_bytes)
{
    const struct turn *t = o->turn;
    size_t first = SIZE_MAX, keep = 0;

    memcpy(o->held + o->n, text, len);
    o->n += len;
    for (size_t i = 0; i < t->n_stops; i++) {
        size_t m = strlen(t->stops[i]);
        const char *at = m ? memmem(o->held, o->n, t->stops[i], m) : NULL;

        if (at && (size_t)(at - o->held) < first)
            first = (size_t)(at - o->held);
        for (size_t k = m && m - 1 < o->n ? m - 1 : m ? o->n : 0; k > keep; k--)
            if (memcmp(o->held + o->n - k, t->stops[i], k) == 0) {
                keep = k;
                break;
            }
    }
    *free_bytes = first != SIZE_MAX ? first : o->n - keep;
    return first != SIZE_MAX;
}

/* Sends the first n held bytes as events: the first one is the token's, the rest carry text only.
 * id -1 with no text sends nothing. */
static void stop_matcher_send(struct engine *g, struct stop_matcher *o, size_t n,
                              const struct token_event *token)
{
    size_t at = 0;
    bool first = true;

    while (at < n || (first && token->id >= 0)) {
        struct event ev = {.kind = EVENT_TOKEN, .token = *token};
        size_t len = n - at;

        if (len > sizeof ev.token.text - 1) {
            len = sizeof ev.token.text - 1;
            /* not inside a code point */
            while (len > 1 && ((unsigned char)o->held[at + len] & 0xc0) == 0x80)
                len--;
        }
        if (!first) {
            ev.token.id = -1;
            ev.token.first = false;
            ev.token.compute_ns = 0;
        }
        memcpy(ev.token.text, o->held + at, len);
        ev.token.text[len] = 0;
        ev.token.len = (uint16_t)len;
        engine_emit(g, &ev);
        at += len;
        first = false;
    }
    memmove(o->held, o->held + n, o->n - n);
    o->n -= n;
}

static bool is_stop(const struct engine *g, int id)
{
    for (int i = 0; i < g->model->hp.n_stops; i++)
        if (g->model->hp.stops[i] == id)
            return true;
    return false;
}

static bool is_cancelled(void *g)
{
    return engine_cancelled(g);
}

/* Nothing can be chosen from what is no number; an answer that says nothing, or anything, would
 * hide it. */
static int check_logits(struct session *s, struct error *e)
{
    struct engine *g = s->engine;
    const char *tensor;

    if (values_finite(s->logits, g->model->hp.n_vocab))
        return 0;
    tensor = model_find_broken(g->model, is_cancelled, g);
    if (tensor)
        return tensor_broken(g->model->file, tensor, e);
    return error_set(e, ERR_VALUE,
                     "%s: the results overflow, though no weight is infinite: the model or its "
                     "conversion is broken; try another file "
                     "of it",
                     weight_file_path(g->model->file));
}

static int sample(struct session *s, bool ignore_eos, struct sampler_draw *draw)
{
    struct engine *g = s->engine;
    const struct hparams *hp = &g->model->hp;
    uint64_t start = clock_now();
    int id;

    mem_guard_arm("sampling");
    for (int i = 0; ignore_eos && i < hp->n_stops; i++)
        if (hp->stops[i] >= 0 && hp->stops[i] < hp->n_vocab)
            s->logits[hp->stops[i]] = -INFINITY;
    id = sampler_sample(&s->sampler, s->logits, s->tokens, (size_t)s->n_tokens, draw);
    trace_span(g->forward.trace, TRACE_SAMPLE, hp->n_layers, 0, start, clock_now());
    mem_guard_disarm();
    metrics_timeline_end(g);
    return id;
}

/* Waits until the next token is due. In slices, so that a cancel ends it at once and a new pace is
 * seen. */
static void pace(struct engine *g)
{
    uint64_t now = clock_now(), begun = now;

    while (g->pace > 0.0 && g->pace_due_ns > now && !engine_cancelled(g)) {
        uint64_t left = g->pace_due_ns - now, most = (uint64_t)(1e9 / g->pace);

        if (left > most) /* the pace was raised meanwhile */
            left = most, g->pace_due_ns = now + most;
        wake_wait(&g->cancel_wake, (int64_t)(left < 50 * CLOCK_MILLI ? left : 50 * CLOCK_MILLI));
        now = clock_now();
        if (g->tick && g->pace_due_ns > now) {
            metrics_refresh(g);
            g->tick(g->tick_ctx);
        }
    }
    g->t.paused_ns += now - begun;
    if (g->pace > 0.0)
        g->pace_due_ns = (g->pace_due_ns > now - begun && g->pace_due_ns <= now &&
                                  now - g->pace_due_ns < CLOCK_SECOND
                              ? g->pace_due_ns
                              : now) +
                         (uint64_t)(1e9 / g->pace);
}

static int common_prefix(const struct session *s, const int *ids, int n)
{
    int i = 0;

    while (i < n && i < s->n_tokens && ids[i] == s->tokens[i])
        i++;
    /* the last token is computed in any case: its logits are needed */
    return i < n ? i : n - 1;
}

static int prefill(struct session *s, const int *ids, int n, struct turn_done_event *done,
                   struct error *e)
{
    struct engine *g = s->engine;
    struct event ev = {.kind = EVENT_TURN_STARTED};
    uint64_t start = clock_now();
    int cached = common_prefix(s, ids, n), rc = 0;

    session_rewind(s, cached);
    done->prompt_tokens = n;
    done->cached_tokens = cached;
    metrics_turn(g, n, cached);
    ev.progress.total = (uint64_t)n;
    ev.progress.done = (uint64_t)cached;
    if (engine_emit(g, &ev))
        return error_set(e, ERR_CANCELLED, "cancelled");
    s->progress_start = cached;
    s->progress_total = n;
    g->t.state = ENGINE_PREFILL;
    model_hold(g->model, FIRST_TOKEN_MS);
    rc = session_extend(s, ids + cached, n - cached, g->info.ubatch, s->logits, false, false, e);
    model_hold(g->model, 0);
    s->progress_total = 0;
    g->t.prefilled_tokens = s->n_tokens - cached;
    g->t.prefill_ns = done->prefill_ns = clock_now() - start;
    g->t.session_prompt_tokens += (uint64_t)(s->n_tokens > cached ? s->n_tokens - cached : 0);
    if (rc == 0) {
        ev = (struct event){.kind = EVENT_PREFILL};
        ev.progress.done = ev.progress.total = (uint64_t)n;
        engine_emit(g, &ev);
        if (engine_cancelled(g))
            rc = error_set(e, ERR_CANCELLED, "cancelled");
    }
    return rc;
}

/* The answer ends with a token that was not computed; the next turn's prompt takes it from here. */
static void keep_waiting(struct session *s, int id)
{
    if (s->n_tokens < s->engine->info.context) {
        s->tokens[s->n_tokens] = id;
        s->token_waits = true;
    }
}

static int decode(struct session *s, const struct turn *t, struct stop_matcher *o,
                  uint64_t turn_start, struct turn_done_event *done, struct error *e)
{
    struct engine *g = s->engine;
    struct detokenizer d;
    uint64_t first = 0, last = 0, paused_before = 0, begin = clock_now();
    char piece[PIECE];
    size_t ready;
    int rc = 0;

    detokenizer_init(&d, g->tokenizer, true);
    if (t->raw || t->continue_last)
        d.at_start = false; /* a text that goes on keeps its next space */
    g->t.state = ENGINE_DECODE;
    while (done->reason == STOP_NONE) {
        struct token_event token = {.first = done->completion_tokens == 0};
        struct sampler_draw draw = {0};
        bool stopped;

        if (t->max_tokens >= 0 && done->completion_tokens >= t->max_tokens) {
            done->reason = STOP_LENGTH;
            break;
        }
        if ((rc = check_logits(s, e)) < 0) {
            done->reason = STOP_ERROR;
            break;
        }
        token.id = sample(s, t->ignore_eos, t->probabilities ? &draw : NULL);
        token.probability = draw.probability;
        token.candidates = draw.candidates;
        if (!t->ignore_eos && is_stop(g, token.id)) {
            done->reason = STOP_TOKEN;
            break;
        }
        token.compute_ns = clock_now() - begin;
        if (token.first)
            g->pace_due_ns = 0;
        pace(g);
        last = clock_now();
        if (token.first) {
            first = last;
            paused_before = g->t.paused_ns;
            g->t.first_token_ns = last;
            done->ttft_ns = last - turn_start;
        }
        g->t.last_token_ns = last;
        ++done->completion_tokens;
        done->decode_ns = g->t.decode_ns = last - first - (g->t.paused_ns - paused_before);
        metrics_token(g, token.first ? 0 : token.compute_ns);
        token.serial = g->t.session_generated_tokens;
        stopped = stop_matcher_push(o, piece, detokenizer_push(&d, token.id, piece, sizeof piece),
                                    &ready);
        stop_matcher_send(g, o, ready, &token);
        begin = clock_now();
        if (stopped) {
            done->reason = STOP_STRING;
            o->n = 0;
        } else if (engine_cancelled(g)) {
            keep_waiting(s, token.id);
            done->reason = STOP_CANCELLED;
        } else if (t->max_tokens >= 0 && done->completion_tokens >= t->max_tokens) {
            keep_waiting(s, token.id);
            done->reason = STOP_LENGTH;
        } else if (s->n_tokens >= g->info.context) {
            done->reason = STOP_CONTEXT;
        } else {
            place_safe_point(g);
            if (g->tick) {
                metrics_refresh(g);
                g->tick(g->tick_ctx);
            }
            begin = clock_now();
            metrics_timeline_begin(g, begin);
            rc = session_extend(s, &token.id, 1, 1, s->logits, false, true, e);
            if (rc == ERR_CANCELLED) {
                keep_waiting(s, token.id);
                done->reason = STOP_CANCELLED;
            } else if (rc < 0) {
                done->reason = STOP_ERROR;
            }
        }
    }
    if (done->reason != STOP_STRING) {
        struct token_event rest = {.id = -1};

        if (stop_matcher_push(o, piece, detokenizer_finish(&d, piece, sizeof piece), &ready))
            o->n = ready;
        stop_matcher_send(g, o, o->n, &rest);
    }
    return done->reason == STOP_ERROR ? rc : 0;
}

int engine_turn(struct engine *g, const struct turn *t,
                int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e)
{
    struct session *s = g->session;
    struct event ev = {.kind = EVENT_TURN_DONE};
    int (*idle_event)(void *ctx, struct event *ev) = g->on_event;
    void *idle_ctx = g->event_ctx;
    struct turn_done_event local;
    struct stop_matcher o = {0};
    struct error own = {0};
    uint64_t start = clock_now();
    int *ids = NULL, n = 0, rc;

    if (!e)
        e = &own;
    if (!done)
        done = &local;
    memset(done, 0, sizeof *done);
    g->on_event = on_event;
    g->event_ctx = ctx;
    g->busy = true;
    g->t.turn_start_ns = start;
    sampler_set(&s->sampler, &t->sampling);
    sampler_seed(&s->sampler, t->sampling.seed);
    rc = prompt_build(s, t, &ids, &n, &done->dropped_turns, e);
    if (rc == 0 && stop_matcher_init(&o, t) < 0)
        rc = error_set(e, ERR_MEMORY, "no memory for the stop strings");
    if (rc == 0)
        place_safe_point(g);
    if (rc == 0 && (rc = prefill(s, ids, n, done, e)) == 0)
        rc = decode(s, t, &o, start, done, e);
    if (rc == 0) /* what was found while the last token was computed */
        rc = model_check(g->model, e);
    if (rc == ERR_CANCELLED) {
        done->reason = STOP_CANCELLED;
        rc = 0;
    }
    done->total_ns = clock_now() - start;
    g->t.state = ENGINE_IDLE;
    metrics_refresh(g);
    if (rc < 0) {
        done->reason = STOP_ERROR;
    } else {
        ev.done_turn = *done;
        engine_emit(g, &ev);
    }
    g->on_event = idle_event;
    g->event_ctx = idle_ctx;
    g->tune_due = true;
    g->busy = false;
    s->turn_cancelled = false;
    engine_uncancel(g);
    mem_free(ids);
    mem_free(o.held);
    return rc;
}
