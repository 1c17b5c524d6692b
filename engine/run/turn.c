/* One turn: ids, reuse of the cached prefix, prefill in chunks, then token after token. Engine
 * thread. Everything between two tokens (events, pacing, new sampling values, plans) happens
 * outside the computing; computing a token allocates nothing. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/model/finite.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/report/pooling.h"

#include <math.h>
#include <string.h>

/* background packing is paused so long for a first token; beyond that packed weights help more */
#define FIRST_TOKEN_MS 500
#define PIECE 1024 /* most bytes of one token */

static int stop_matcher_init(struct stop_matcher *o, const struct turn *t)
{
    size_t longest = 0;

    for (size_t i = 0; i < t->n_stops; i++)
        longest = strlen(t->stops[i]) > longest ? strlen(t->stops[i]) : longest;
    *o = (struct stop_matcher){.turn = t, .room = longest + 2 * PIECE};
    o->held = mem_alloc(o->room, 1);
    return o->held ? 0 : ERR_MEMORY;
}

/* Adds text; *free_bytes of held may be sent now. True: a stop string is complete, *free_bytes end
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

        if (at && (size_t)(at - o->held) < first) {
            first = (size_t)(at - o->held);
            o->met = (int)i;
        }
        for (size_t k = m && m - 1 < o->n ? m - 1 : m ? o->n : 0; k > keep; k--)
            if (memcmp(o->held + o->n - k, t->stops[i], k) == 0) {
                keep = k;
                break;
            }
    }
    *free_bytes = first != SIZE_MAX ? first : o->n - keep;
    return first != SIZE_MAX;
}

/* Sends text as events: the first one is the token's, the rest carry text only. */
static void send_text(struct session *s, struct token_event *token, const char *text, size_t n)
{
    size_t at = 0;

    while (at < n || token->id >= 0) {
        struct event ev = {.kind = EVENT_TOKEN, .token = *token};
        size_t len = n - at;

        if (len > sizeof ev.token.text - 1) {
            len = sizeof ev.token.text - 1;
            /* not within a code point */
            while (len > 1 && ((unsigned char)text[at + len] & 0xc0) == 0x80)
                len--;
        }
        memcpy(ev.token.text, text + at, len);
        ev.token.text[len] = 0;
        ev.token.len = (uint16_t)len;
        session_emit(s, &ev);
        at += len;
        *token = (struct token_event){.id = -1, .part = token->part};
    }
}

/* Sends the first n held bytes as part of the answer. */
static void stop_matcher_send(struct session *s, size_t n, struct token_event *token)
{
    struct stop_matcher *o = &s->run.out;

    if (!n)
        return;
    token->part = PART_ANSWER;
    send_text(s, token, o->held, n);
    memmove(o->held, o->held + n, o->n - n);
    o->n -= n;
}

/* A token being output: its text is sent as events part by part. */
struct saying {
    struct session *session;
    struct token_event *token;
    bool stopped; /* by a stop string; no further output */
};

/* answer_put. Stop strings end only the answer: reasoning may contain them. */
static void say(void *ctx, enum answer_part part, const char *text, size_t n)
{
    struct saying *said = ctx;
    struct session *s = said->session;
    size_t ready;

    if (said->stopped)
        return;
    if (part != PART_ANSWER) {
        said->token->part = part;
        send_text(s, said->token, text, n);
        return;
    }
    said->stopped = stop_matcher_push(&s->run.out, text, n, &ready);
    s->run.done.stop = said->stopped ? s->run.out.met : 0;
    s->run.line_ends |= memchr(text, '\n', n) != NULL;
    stop_matcher_send(s, ready, said->token);
}

/* Outputs the token's text; true: a stop string is complete. */
static bool say_token(struct session *s, struct token_event *token)
{
    struct turn_run *r = &s->run;
    struct saying said = {s, token, false};
    char piece[PIECE];
    size_t n;
    bool control = false;
    const char *name = tokenizer_piece(s->engine->tokenizer, token->id, &n, &control);

    token->part = r->parts.part;
    if (control) {
        answer_parts_push(&r->parts, name, n, true, say, &said);
    } else {
        n = detokenizer_push(&r->text, token->id, piece, sizeof piece);
        answer_parts_push(&r->parts, piece, n, false, say, &said);
    }
    if (token->id >= 0) /* no event was sent yet */
        send_text(s, token, "", 0);
    return said.stopped;
}

static bool is_cancelled(void *s)
{
    return session_cancelled(s);
}

/* Logits, or an embedding: sampling is impossible with NaN, and an empty or arbitrary answer would
 * hide the problem. */
static int check_values(struct session *s, const float *values, int n, struct error *e)
{
    struct engine *g = s->engine;
    const char *tensor;

    if (values_finite(values, n))
        return 0;
    tensor = model_find_broken(g->model, is_cancelled, s);
    if (tensor)
        return tensor_broken(g->model->file, tensor, e);
    return error_set(e, ERR_VALUE,
                     "%s: the results overflow, though no weight is infinite: the model or its "
                     "conversion is broken; try another file "
                     "of it",
                     weight_file_path(g->model->file));
}

/* The grammar's state where the answer begins. */
static int begin_grammar(struct session *s, const struct turn *t, struct error *e)
{
    struct engine *g = s->engine;
    const struct hparams *hp = &g->model->hp;
    int rc;

    if (!t->grammar)
        return 0;
    if (!g->tokenizer)
        return error_set(e, ERR_MODEL, "%s has no tokenizer", g->config.model_path);
    if (!g->vocabulary && (rc = grammar_vocabulary_new(&g->vocabulary, g->tokenizer, hp->n_vocab,
                                                       hp->stops, hp->n_stops, e)) < 0)
        return rc;
    if (!s->matcher || matcher_grammar(s->matcher) != t->grammar || matcher_failed(s->matcher)) {
        matcher_free(s->matcher);
        s->matcher = NULL;
        if ((rc = matcher_new(&s->matcher, t->grammar, g->vocabulary, e)) < 0)
            return rc;
    }
    s->cursor = matcher_start(s->matcher);
    if (t->begun)
        s->cursor = matcher_accept_text(s->matcher, s->cursor, t->begun, strlen(t->begun));
    if (s->cursor == MATCHER_DEAD)
        return error_set(e, ERR_INPUT, "the answer so far is none that the grammar allows");
    return 0;
}

/* Passes the grammar's current mask to the sampler. Fails closed: no other token is ever
 * sampled. */
static int apply_grammar(struct session *s, struct error *e)
{
    const uint32_t *mask;

    if (!rule_holds(s))
        return 0;
    s->cursor = matcher_settle(s->matcher, s->cursor);
    mask = matcher_mask(s->matcher, s->cursor);
    if (!mask)
        return error_set(e, ERR_INPUT, "%s", matcher_failed(s->matcher));
    for (int i = 0; i < (s->engine->model->hp.n_vocab + 31) / 32; i++)
        if (mask[i]) {
            sampler_mask(&s->sampler, mask);
            return 0;
        }
    return error_set(e, ERR_INPUT, "no token of the model spells what the grammar asks for here");
}

static int sample(struct session *s, struct sampler_draw *draw)
{
    struct engine *g = s->engine;
    const struct hparams *hp = &g->model->hp;
    uint64_t start = clock_now();
    int id;

    mem_guard_arm("sampling");
    rule_mask(s, s->logits);
    id = sampler_sample(&s->sampler, s->logits, s->tokens, (size_t)s->n_tokens, draw);
    trace_span(g->forward.trace, TRACE_SAMPLE, hp->n_layers, 0, start, clock_now());
    mem_guard_disarm();
    metrics_timeline_end(g);
    return id;
}

/* Waits until the next token is due. In slices, so that a cancel ends it at once and a new pace is
 * noticed. No waiting beside other turns. */
static void pace(struct session *s)
{
    struct engine *g = s->engine;
    uint64_t now = clock_now(), begun = now;

    while (g->pace > 0.0 && g->pace_due_ns > now && g->n_running == 1 && !session_cancelled(s)) {
        uint64_t left = g->pace_due_ns - now, most = (uint64_t)(1e9 / g->pace);

        if (left > most) /* the pace was raised meanwhile */
            left = most, g->pace_due_ns = now + most;
        wake_wait(&g->cancel_wake, (int64_t)(left < 50 * CLOCK_MILLI ? left : 50 * CLOCK_MILLI));
        wake_clear(&g->cancel_wake);
        now = clock_now();
        if (g->tick && g->pace_due_ns > now) {
            metrics_refresh(g);
            g->tick(g->tick_ctx);
        }
    }
    s->run.paused_ns += now - begun;
    if (s == g->session)
        g->t.paused_ns = s->run.paused_ns;
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
    /* always recompute the last token: its logits are needed */
    return i < n ? i : n - 1;
}

/* Queues the prompt's ids for passes, after the prefix that the session holds. */
static int take_prompt(struct session *s, const int *ids, int n, struct error *e)
{
    struct event ev = {.kind = EVENT_TURN_STARTED};
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;
    int cached, rc;

    if (!g->tokenizer && !r->pooling)
        return error_set(e, ERR_MODEL, "%s has no tokenizer", g->config.model_path);
    if (n <= 0)
        return error_set(e, ERR_INPUT, "the prompt is empty");
    cached = r->scores || r->pooling ? 0 : common_prefix(s, ids, n);
    if (g->config.routing && cached < s->n_tokens)
        cached = 0;
    r->begin = clock_now();
    session_rewind(s, cached);
    r->kept = cached;
    if ((rc = session_append(s, ids + cached, n - cached, e)) < 0)
        return rc;
    r->done.prompt_tokens = n;
    r->done.cached_tokens = s->n_tokens;
    r->done.recomputed_tokens = cached - s->n_tokens;
    if (s == g->session)
        metrics_turn(g, &r->done);
    ev.progress.total = (uint64_t)n;
    ev.progress.done = (uint64_t)s->n_tokens;
    if (session_emit(s, &ev))
        return error_set(e, ERR_CANCELLED, "cancelled");
    g->t.state = ENGINE_PREFILL;
    model_hold(g->model, FIRST_TOKEN_MS);
    r->end = rc;
    if (!r->scores && !r->pooling && !g->config.routing) {
        prefix_sharing_choose(s);
        disk_sessions_choose(s);
    }
    if (r->pooling) /* what the session held is gone */
        s->stored.due = false;
    return 0;
}

static void tell_dropped(struct engine *g, int turns)
{
    if (turns)
        engine_notice(g,
                      "the conversation has outgrown the context of %d tokens: the model no longer "
                      "sees its %d oldest turn%s",
                      g->info.context, turns, turns == 1 ? "" : "s");
}

/* Starts at the least service of the running turns, instead of catching up with them. */
static void begin_served(struct session *s)
{
    const struct engine *g = s->engine;
    uint64_t least = UINT64_MAX;

    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i] && g->sessions[i] != s && turn_running(g->sessions[i]) &&
            g->sessions[i]->run.served < least)
            least = g->sessions[i]->run.served;
    s->run.served = least == UINT64_MAX ? 0 : least;
}

int turn_begin(struct session *s, const struct turn *t,
               int (*on_event)(void *ctx, struct event *ev), void *ctx, struct error *e)
{
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;
    int rc = 0;

    *r = (struct turn_run){.turn = t, .on_event = on_event, .event_ctx = ctx};
    r->start = t->prompt.start_ns ? t->prompt.start_ns : clock_now();
    r->done.dropped_turns = t->prompt.dropped_turns;
    begin_served(s);
    utility_begin(&g->utility);
    s->spec.watched.n = 0;
    s->spec.unasked = s->spec.wait = 0;
    g->busy = true;
    g->n_running++;
    if (s == g->session)
        g->t.turn_start_ns = r->start;
    sampler_set(&s->sampler, &t->sampling);
    sampler_seed(&s->sampler, t->sampling.seed);
    tell_dropped(g, t->prompt.dropped_turns);
    if (t->score_prompt)
        r->scores = mem_alloc(SCORE_ROWS, (size_t)g->model->hp.n_vocab * sizeof *r->scores);
    if (stop_matcher_init(&r->out, t) < 0 || (t->score_prompt && !r->scores))
        rc = error_set(e, ERR_MEMORY, "no memory for the stop strings or the prompt's logits");
    if (rc == 0 && t->embed)
        rc = pooling_new(&r->pooling, &g->model->hp, t->embed, e);
    if (rc == 0)
        rc = begin_grammar(s, t, e);
    if (rc == 0 && !t->embed)
        rc = sampler_prepare(&s->sampler, g->tokenizer, g->info.context, e);
    if (rc == 0) {
        if (t->adapters)
            session_strengths(s, t->strengths);
        if (t->edited && !expert_edits_equal(s->edits, t->edits))
            rc = engine_session_edits_set(s, t->edits, e);
        place_safe_point(g);
        rc = rc < 0 ? rc : take_prompt(s, t->prompt.ids, t->prompt.n, e);
    }
    if (rc < 0)
        turn_end(s, rc, e);
    return rc;
}

/* Prefill is complete or aborted. */
static void end_prompt(struct session *s)
{
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;
    int cached = r->done.cached_tokens;

    model_hold(g->model, 0);
    r->done.prefill_ns = clock_now() - r->begin;
    g->t.session_prompt_tokens += (uint64_t)(s->n_tokens > cached ? s->n_tokens - cached : 0);
    if (s == g->session) {
        g->t.prefilled_tokens = s->n_tokens - cached;
        g->t.prefill_ns = r->done.prefill_ns;
    }
}

/* Switches from prefill to decoding. */
static void begin_answer(struct session *s)
{
    struct event ev = {.kind = EVENT_PREFILL};
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;

    end_prompt(s);
    disk_sessions_due(s);
    ev.progress.done = ev.progress.total = (uint64_t)r->end;
    session_emit(s, &ev);
    r->answering = true;
    r->begin = clock_now();
    detokenizer_init(&r->text, g->tokenizer, true);
    if (r->turn->prompt.goes_on)
        r->text.at_start = false;
    r->parts = r->turn->prompt.parts;
    g->t.state = ENGINE_DECODE;
}

/* The times of a token sampled just now. */
static void count_token(struct session *s, struct token_event *token)
{
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;
    uint64_t now;

    token->compute_ns = r->share_ns ? r->share_ns : clock_now() - r->begin;
    if (token->first && g->n_running == 1)
        g->pace_due_ns = 0;
    pace(s);
    now = clock_now();
    if (token->first) {
        r->first = now;
        r->paused_before = r->paused_ns;
        r->done.ttft_ns = now - r->start;
    }
    r->done.completion_tokens++;
    r->done.decode_ns = now - r->first - (r->paused_ns - r->paused_before);
    if (s == g->session) {
        g->t.first_token_ns = r->first;
        g->t.last_token_ns = now;
        g->t.decode_ns = r->done.decode_ns;
    }
    metrics_token(g, s == g->session, token->first ? 0 : token->compute_ns);
    token->serial = g->t.session_generated_tokens;
}

static bool ends_answer(const struct session *s, int id)
{
    const struct turn *t = s->run.turn;

    for (int i = 0; i < t->n_ends; i++)
        if (id == t->ends[i])
            return true;
    return hparams_is_stop(&s->engine->model->hp, id);
}

/* Samples a token and sends its text; *id: that token. Returns the reason for ending, or
 * STOP_NONE. */
static enum stop_reason take_token(struct session *s, int *id)
{
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;
    const struct turn *t = r->turn;
    struct token_event token = {.first = r->done.completion_tokens == 0};
    struct sampler_draw draw = {0};
    bool stopped, ruled = rule_holds(s);

    *id = token.id = speculate_accept(s, sample(s, t->probabilities || ruled ? &draw : NULL),
                                      &draw);
    token.probability = draw.probability;
    token.share = draw.share;
    token.candidates = draw.candidates;
    token.forbidden = draw.forbidden;
    r->done.ruled_tokens += ruled;
    r->done.forbidden += (double)draw.forbidden;
    if ((ruled || !t->ignore_eos) && ends_answer(s, token.id))
        return STOP_TOKEN;
    if (t->logprobs)
        session_logprobs(s, s->logits, token.id);
    if (ruled)
        s->cursor = matcher_accept(s->matcher, s->cursor, token.id);
    count_token(s, &token);
    r->line_ends = false;
    stopped = say_token(s, &token);
    r->begin = clock_now();
    if (stopped)
        r->out.n = 0;
    return stopped                                                            ? STOP_STRING
           : session_cancelled(s)                                             ? STOP_CANCELLED
           : t->max_tokens >= 0 && r->done.completion_tokens >= t->max_tokens ? STOP_LENGTH
           : t->most_ns && r->line_ends && r->done.decode_ns > t->most_ns     ? STOP_LENGTH
           : s->n_tokens >= g->info.context                                   ? STOP_CONTEXT
                                                                              : STOP_NONE;
}

/* How probable the tokens that the turn asks for are after the prompt. */
static int tell_asked(struct session *s, struct error *e)
{
    const struct turn *t = s->run.turn;
    int rc = 0;

    if (t->n_asked && s->run.done.completion_tokens == 0)
        rc = check_values(s, s->logits, s->engine->model->hp.n_vocab, e);
    for (int i = 0; i < t->n_asked && s->run.done.completion_tokens == 0 && rc == 0; i++)
        session_logprobs(s, s->logits, t->asked[i]);
    return rc;
}

/* The prompt is computed: its embedding is the turn's result. */
static void end_embedding(struct session *s)
{
    struct event ev = {.kind = EVENT_EMBEDDING};
    struct error e = {0};
    int rc;

    if (session_cancelled(s)) {
        turn_end(s, ERR_CANCELLED, NULL);
        return;
    }
    ev.embedding.n = s->engine->model->hp.hidden;
    ev.embedding.values = pooling_take(s->run.pooling);
    rc = check_values(s, ev.embedding.values, ev.embedding.n, &e);
    if (rc < 0)
        event_release(&ev);
    else
        session_emit(s, &ev);
    s->run.done.reason = STOP_LENGTH;
    turn_end(s, rc, &e);
}

void turn_step(struct session *s)
{
    struct turn_run *r = &s->run;
    struct error e = {0};
    int id = -1, rc;

    if (r->pooling) {
        end_embedding(s);
        return;
    }
    if (!r->answering)
        begin_answer(s);
    if (session_cancelled(s)) {
        turn_end(s, ERR_CANCELLED, NULL);
        return;
    }
    if ((rc = tell_asked(s, &e)) < 0) {
        turn_end(s, rc, &e);
        return;
    }
    if (r->turn->max_tokens >= 0 && r->done.completion_tokens >= r->turn->max_tokens)
        r->done.reason = STOP_LENGTH;
    else if ((rc = check_values(s, s->logits, s->engine->model->hp.n_vocab, &e)) < 0 ||
             (rc = apply_grammar(s, &e)) < 0) {
        turn_end(s, rc, &e);
        return;
    } else {
        r->done.reason = take_token(s, &id);
    }
    /* The answer ends with a token that was not computed; the next turn's prompt computes it. */
    if ((r->done.reason == STOP_LENGTH || r->done.reason == STOP_CANCELLED) && id >= 0 &&
        s->n_tokens < s->engine->info.context) {
        s->tokens[s->n_tokens] = id;
        s->token_waits = true;
    }
    if (r->done.reason != STOP_NONE)
        turn_end(s, 0, NULL);
    else if (speculate_drawn(s, id))
        r->end = s->n_tokens + 1;
    else if ((rc = session_append(s, &id, 1, &e)) < 0)
        turn_end(s, rc, &e);
    else
        r->end = rc;
}

/* Sends held text that turned out to be harmless. */
static void send_rest(struct session *s)
{
    struct turn_run *r = &s->run;
    struct token_event rest = {.id = -1};
    struct saying said = {s, &rest, false};
    char piece[PIECE];
    size_t n = detokenizer_finish(&r->text, piece, sizeof piece);

    answer_parts_push(&r->parts, piece, n, false, say, &said);
    answer_parts_end(&r->parts, say, &said);
    if (!said.stopped)
        stop_matcher_send(s, r->out.n, &rest);
}

void turn_end(struct session *s, int rc, const struct error *e)
{
    struct engine *g = s->engine;
    struct turn_run *r = &s->run;
    struct event ev = {.kind = EVENT_TURN_DONE};

    disk_sessions_cancel(s);
    if (rc == ERR_CANCELLED && r->answering && r->end == s->n_tokens + 1)
        s->token_waits = true; /* sampled and shown, but its computation was cancelled */
    if (r->answering && r->done.reason != STOP_STRING)
        send_rest(s);
    if (!r->answering && r->end)
        end_prompt(s);
    if (rc == 0) { /* found while the last token was computed */
        rc = model_check(g->model, &r->error);
        e = rc < 0 ? &r->error : e;
    }
    if (rc == ERR_CANCELLED)
        r->done.reason = STOP_CANCELLED;
    else if (rc < 0)
        r->done.reason = STOP_ERROR;
    r->rc = rc == ERR_CANCELLED ? 0 : rc;
    if (rc < 0 && e)
        r->error = *e;
    if (s->n_tokens < r->kept && s->checkpoints)
        s->n_tokens = r->kept;    /* kept: recomputed when the session continues */
    if (s->counted > s->n_tokens) /* tokens dropped from the session may be counted again */
        s->counted = s->n_tokens;
    r->done.altered = s->as_opened < s->n_tokens;
    r->done.total_ns = clock_now() - r->start;
    if (g->n_running == 1)
        g->t.state = ENGINE_IDLE;
    metrics_refresh(g);
    disk_sessions_due(s);
    r->turn = NULL;
    mem_free(r->out.held);
    r->out.held = NULL;
    mem_free(r->scores);
    r->scores = NULL;
    pooling_free(r->pooling);
    r->pooling = NULL;
    ev.done_turn = r->done;
    if (r->rc < 0) {
        ev = (struct event){.kind = EVENT_ERROR, .text = mem_string(r->error.text)};
        ev.failure.code = r->rc;
    }
    session_emit(s, &ev);
    g->n_running--;
    g->busy = g->n_running > 0;
    engine_session_uncancel(s);
    g->tune_due = true;
}
