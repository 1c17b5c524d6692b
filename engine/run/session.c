/* A session: a token sequence and its KV cache; and a pass, which computes rows of several
 * sessions. Engine thread. n_tokens counts whole tokens only: it is advanced when a chunk is done
 * on every layer, so a cancel or a failure in the middle of a pass leaves a consistent session.
 * Also the current lossy settings, which decide whether earlier rows are still valid (lossy_now,
 * lossy_changed). */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/report/pooling.h"

#include <limits.h>
#include <string.h>

static size_t logits_bytes(const struct engine *g)
{
    return (size_t)g->model->hp.n_vocab * sizeof(float);
}

void pass_logits_free(struct engine *g)
{
    if (!g->pass.logits)
        return;
    devices_offer_rows(g, g->pass.logits, 0);
    mem_pages_free(g->pass.logits, (size_t)g->pass.n_logits * logits_bytes(g));
    g->pass.logits = NULL;
}

void pass_free(struct pass *p)
{
    mem_free(p->parts);
    mem_free(p->spans);
    mem_free(p->ids);
    mem_free(p->states);
    mem_free(p->wanted);
    mem_free(p->ends);
}

#define TICK_NS (100 * CLOCK_MILLI)
#define LONG_PASS_NS \
    (300 * CLOCK_MILLI) /* from this duration on the layer in progress is reported */
#define RETRIES (2 * DEVICE_MAX + 2)

/* Logits of a pass for so many rows, whose values are those of the newest pass alone. */
static bool logits_room(struct engine *g, int rows)
{
    struct pass *p = &g->pass;
    size_t row = logits_bytes(g);
    float *now = rows > p->n_logits ? mem_pages((size_t)rows * row) : p->logits;

    if (now && now != p->logits) {
        pass_logits_free(g);
        p->logits = now;
        p->n_logits = rows;
        devices_offer_rows(g, now, (size_t)rows * row);
    }
    return now != NULL;
}

/* Allocates the pass buffers for n sessions. */
static int pass_room(struct engine *g, int n, struct error *e)
{
    struct pass *p = &g->pass;
    size_t heads = (size_t)n + (size_t)g->draft_rows;

    if (!MEM_FIT(g->sessions, n) || !MEM_FIT(p->parts, n) || !MEM_FIT(p->spans, n) ||
        !MEM_FIT(p->ids, n) || !MEM_FIT(p->states, n) || !MEM_FIT(p->wanted, heads) ||
        !MEM_FIT(p->ends, n) || (heads > 1 && !logits_room(g, (int)heads)))
        return error_set(e, ERR_MEMORY, "no memory for %d sessions", n);
    while (g->n_sessions < n)
        g->sessions[g->n_sessions++] = NULL;
    return 0;
}

static void close_states(struct engine *g, int number, int n_devices)
{
    /* a device's first state belongs to it while it is open */
    for (int d = 0; d < n_devices && number > 0; d++)
        g->slots[d].ops->state_close(g->slots[d].device, number);
}

/* If a device lacks memory for it, moves attention of its layers to the CPU until it fits. */
static int open_state(struct engine *g, int device, int number, struct error *e)
{
    const struct device_slot *s = &g->slots[device];
    int rc = s->ops->state_open(s->device, number, e), layers = 0;
    struct error ignored;

    for (; rc < 0 && device > 0 && place_give_back(g, device, &ignored) == 1; layers++)
        rc = s->ops->state_open(s->device, number, e);
    if (layers && rc == 0)
        engine_notice(g,
                      "%s has no room for the keys and values of another session: the attention of "
                      "%d layer%s goes back to the CPU",
                      s->info.selector[0] ? s->info.selector : s->ops->name, layers,
                      layers == 1 ? "" : "s");
    return rc;
}

/* Takes the lowest free number, and opens a state of that number on every device. */
static int take_number(struct session *s, struct error *e)
{
    struct engine *g = s->engine;
    int n = 0, rc;

    while (n < g->n_sessions && g->sessions[n])
        n++;
    if ((n == g->n_sessions && (rc = pass_room(g, n + 1, e)) < 0) ||
        (rc = kv_open(&g->kv, n, e)) < 0)
        return rc;
    for (int d = 0; d < g->n_devices && n > 0; d++)
        if ((rc = open_state(g, d, n, e)) < 0) {
            close_states(g, n, d);
            kv_close(&g->kv, n);
            return rc;
        }
    s->number = n;
    g->sessions[n] = s;
    return 0;
}

static void give_number(struct session *s)
{
    struct engine *g = s->engine;

    close_states(g, s->number, g->n_devices);
    kv_close(&g->kv, s->number);
    g->sessions[s->number] = NULL;
}

int session_new(struct session **out, struct engine *g, struct error *e)
{
    struct session *s = mem_alloc(1, sizeof *s);
    int rc;

    *out = NULL;
    if (!s)
        return error_set(e, ERR_MEMORY, "no memory for a session");
    s->engine = g;
    s->number = -1;
    s->as_opened = INT_MAX;
    s->spec.from = DRAFTER_COUNT;
    for (int i = 0; i < adapters_count(g->adapters); i++)
        s->strengths[i] = adapters_at(g->adapters, i)->strength;
    s->edits = expert_edits_share(g->edits);
    s->tokens = mem_alloc((size_t)g->info.context, sizeof *s->tokens);
    s->logits = mem_pages(logits_bytes(g));
    if (!s->tokens || !s->logits || history_init(s) < 0)
        rc = error_set(e, ERR_MEMORY, "no memory for a session of %d tokens", g->info.context);
    else
        rc = sampler_init(&s->sampler, g->model->hp.n_vocab, &g->config.sampling, e);
    if (rc == 0)
        rc = take_number(s, e);
    if (rc == 0)
        rc = routing_tap_session(s, e);
    if (rc == 0 && g->kv.all_copies)
        rc = checkpoints_new(&s->checkpoints, &g->model->hp, &g->state, &g->kv, s->number, e);
    if (rc < 0) {
        session_free(s);
        return rc;
    }
    devices_offer_rows(g, s->logits, logits_bytes(g));
    *out = s;
    return 0;
}

void session_free(struct session *s)
{
    if (!s)
        return;
    prefix_sharing_forget(s);
    if (s->number >= 0)
        give_number(s);
    if (turn_running(s))
        s->engine->busy = --s->engine->n_running > 0;
    mem_free(s->run.out.held);
    mem_free(s->run.scores);
    pooling_free(s->run.pooling);
    for (int i = 0; i < DRAFTER_COUNT; i++)
        drafter_free(s->spec.drafters[i], s->spec.ops[i]);
    sampler_release(&s->sampler);
    matcher_free(s->matcher);
    expert_edits_free(s->edits);
    checkpoints_free(s->checkpoints);
    mem_free(s->tokens);
    devices_offer_rows(s->engine, s->logits, 0);
    mem_pages_free(s->logits, logits_bytes(s->engine));
    mem_free(s->routed);
    mem_free(s->ahead);
    mem_free(s);
}

/* Drops everything beyond pos. */
static void cut(struct session *s, int pos)
{
    kv_cut(&s->engine->kv, s->number, pos);
    if (s->checkpoints)
        checkpoints_cut(s->checkpoints, pos);
}

/* Passes hidden states of rows of the newest pass, from its row `row` on, to the drafters that use
 * them (drafter_ops.states). */
static void tell_drafters(struct session *s, int pos, int rows, int row)
{
    const struct hparams *hp = &s->engine->model->hp;
    const struct forward *f = &s->engine->forward;
    struct hidden_states h = {.x = f->x + (size_t)row * (size_t)hp->hidden};

    if (hparams_hyper(hp)) {
        h.stride = (size_t)hparams_beside(hp);
        h.streams = f->inputs + (size_t)row * h.stride + hparams_streams_at(hp);
    }
    for (int i = 0; i < DRAFTER_COUNT; i++)
        if (s->spec.drafters[i] && s->spec.ops[i]->states)
            s->spec.ops[i]->states(s->spec.drafters[i], pos, rows, &h);
}

void session_rewind(struct session *s, int n_tokens)
{
    if (n_tokens < 0)
        n_tokens = 0;
    if (n_tokens >= s->n_tokens)
        return;
    s->token_waits = false;
    s->n_tokens = n_tokens;
    s->as_opened = n_tokens <= s->as_opened ? INT_MAX : s->as_opened;
    s->counted = s->counted < n_tokens ? s->counted : n_tokens;
    tell_drafters(s, n_tokens, 0, 0);
    cut(s, n_tokens);
}

struct lossy lossy_now(const struct engine *g)
{
    return (struct lossy){g->experts_used, g->forward.defer, g->forward.least, g->config.kv_k,
                          g->config.kv_v};
}

bool lossy_as_opened(const struct engine *g)
{
    struct lossy is = lossy_now(g), was = g->opened;

    return is.used == was.used && is.defer == was.defer && is.least == was.least && is.k == was.k &&
           is.v == was.v;
}

void lossy_changed(struct engine *g)
{
    if (!lossy_as_opened(g))
        return;
    for (int i = 0; g->sessions && i < g->n_sessions; i++)
        if (g->sessions[i])
            session_rewind(g->sessions[i], g->sessions[i]->as_opened);
}

int session_strengths(struct session *s, const float *strengths)
{
    size_t n = (size_t)adapters_count(s->engine->adapters);
    int computed = s->n_tokens;

    if (!n || memcmp(s->strengths, strengths, n * sizeof *strengths) == 0)
        return 0;
    memcpy(s->strengths, strengths, n * sizeof *strengths);
    session_rewind(s, 0);
    return computed;
}

int session_edits(struct session *s, struct expert_edits *edits)
{
    struct expert_edits *before = s->edits;
    int computed = s->n_tokens;

    if (expert_edits_equal(before, edits))
        return 0;
    s->edits = expert_edits_share(edits);
    expert_edits_free(before);
    session_rewind(s, 0);
    return computed;
}

/* The next mark after pos; INT_MAX: none. */
static int next_mark(const struct session *s, int pos)
{
    const struct prompt *p = turn_running(s) ? &s->run.turn->prompt : NULL;

    for (int i = 0; p && s->checkpoints && i < p->n_marks; i++)
        if (p->marks[i] > pos)
            return p->marks[i];
    return INT_MAX;
}

int session_rows_to_mark(const struct session *s, int n)
{
    int mark = next_mark(s, s->n_tokens);

    return mark - s->n_tokens < n ? mark - s->n_tokens : n;
}

/* A pass is aborted when all its turns are cancelled. */
static bool pass_cancelled(struct engine *g)
{
    for (int i = 0; i < g->pass.n; i++)
        if (!session_cancelled(g->pass.parts[i].session))
            return false;
    return true;
}

/* A decoded token is completed if its change to recurrent state could not be undone. */
static bool pass_ends_early(struct engine *g)
{
    bool decode = true;

    for (int i = 0; i < g->pass.n; i++)
        decode = decode && g->pass.parts[i].decode;
    return !(g->kv.all_fixed && decode) && pass_cancelled(g);
}

/* Reports the progress of a prompt, by the layer of the pass. */
static void tell_progress(const struct pass_part *p, int layer)
{
    struct session *s = p->session;
    struct engine *g = s->engine;
    int rows = p->rows * layer / g->model->hp.n_layers;
    struct event ev = {.kind = EVENT_PREFILL};

    if (!turn_running(s) || s->run.answering)
        return;
    ev.progress.done = (uint64_t)(s->n_tokens + rows);
    ev.progress.total = (uint64_t)s->run.end;
    if (s == g->session)
        g->t.prefilled_tokens = s->n_tokens + rows - s->run.done.cached_tokens;
    session_emit(s, &ev);
}

/* Between layers: checks for cancel, and reports progress about ten times a second. */
int session_hooks_layer(void *ctx, int layer)
{
    struct engine *g = ctx;
    uint64_t now;

    apart_poll(&g->beside.apart);
    if ((g->beside.between_layers && g->beside.between_layers(g)) || pass_ends_early(g))
        return 1;
    now = clock_now();
    if (now - g->last_tick_ns < TICK_NS)
        return 0;
    g->last_tick_ns = now;
    g->t.layer_at = now - g->pass_ns > LONG_PASS_NS ? layer + 1 : 0;
    for (int i = 0; i < g->pass.n; i++)
        tell_progress(&g->pass.parts[i], layer);
    if (g->tick) {
        metrics_refresh(g);
        g->tick(g->tick_ctx);
    }
    return pass_ends_early(g);
}

/* Empties every session: those in the pass, or with a turn, compute their tokens again, the others
 * with their next one. */
int session_hooks_distrust(void *ctx, int device)
{
    struct engine *g = ctx;
    int n = 0;

    disk_sessions_distrust(g);
    apart_drop(&g->beside.apart);
    for (int i = 0; i < g->n_sessions; i++) {
        struct session *s = g->sessions[i];

        if (!s)
            continue;
        n += s->n_tokens;
        s->n_tokens = 0;
        s->token_waits = s->token_waits && turn_running(s);
        s->as_opened = lossy_as_opened(g) ? INT_MAX : 0;
        tell_drafters(s, 0, 0, 0);
        cut(s, 0);
    }
    return n;
}

void session_hooks_notice(void *ctx, const char *line)
{
    engine_notice(ctx, "%s", line);
}

/* The routing of a span of the newest pass, its first row being the job's row `row`. */
static struct routing routing_of(const struct session *s, const struct span *span, int row,
                                 bool prefill)
{
    const struct forward *f = &s->engine->forward;
    size_t used = (size_t)f->model->hp.n_experts_used;

    return (struct routing){.session = s,
                            .model = f->model,
                            .rows = span->rows,
                            .pos = span->pos,
                            .n_layers = f->model->hp.n_layers,
                            .used = (int)used,
                            .ids = s->tokens + span->pos,
                            .layer_stride = (size_t)f->rows * used,
                            .experts = f->experts + (size_t)row * used,
                            .weights = f->weights + (size_t)row * used,
                            .prefill = prefill};
}

/* Selects the rotary table for a sequence this long; a change of table voids every cached key of
 * the session. Returns the first position to compute. */
static int choose_rope(struct session *s, int start, int total)
{
    enum rope_variant v = rope_choose(&s->engine->rope, total);

    if (v == s->variant)
        return start;
    s->variant = v;
    cut(s, 0);
    if (start)
        log_write(
            LOG_LEVEL_INFO,
            "the text crosses %d tokens: its rotary factors change, %d tokens are computed again",
            s->engine->rope.original_context, start);
    return 0;
}

/* The rows whose logits are needed, if there is more than one part or row; returns how many. */
static int wanted_rows(struct engine *g, int n)
{
    int wanted = 0;

    for (int i = 0, row = 0; i < n; row += g->pass.parts[i++].rows) {
        const struct pass_part *p = &g->pass.parts[i];

        for (int k = p->logits ? p->rows - 1 - p->drafted : p->rows; k < p->rows; k++)
            g->pass.wanted[wanted++] = row + k;
    }
    return wanted;
}

/* Computes the logits requested by the parts of a pass. */
static int pass_heads(struct engine *g, int n, struct error *e)
{
    const struct pass_part *parts = g->pass.parts;
    size_t n_vocab = (size_t)g->model->hp.n_vocab;
    float *from = g->pass.logits;
    int wanted, rc;

    if (n == 1 && parts->logits && !parts->drafted)
        return parts->all_logits ? forward_head(&g->forward, 0, parts->rows, parts->logits, e)
                                 : forward_head(&g->forward, parts->rows - 1, 1, parts->logits, e);
    if (!(wanted = wanted_rows(g, n)))
        return 0;
    if ((rc = forward_head_of(&g->forward, g->pass.wanted, wanted, g->pass.logits, e)) < 0)
        return rc;
    for (int i = 0; i < n; i++) {
        if (!parts[i].logits)
            continue;
        memcpy(parts[i].logits, from, n_vocab * sizeof(float));
        parts[i].session->spec.logits = from;
        from += (size_t)(1 + parts[i].drafted) * n_vocab;
    }
    return 0;
}

void session_rows_done(struct session *s, const struct span *span, int row, bool decode)
{
    struct engine *g = s->engine;
    int end = span->pos + span->rows, first = s->counted > span->pos ? s->counted - span->pos : 0;

    s->n_tokens = end;
    if (span->pos <= s->as_opened)
        s->as_opened = lossy_as_opened(g) ? INT_MAX : span->pos;
    tell_drafters(s, span->pos, span->rows, row);
    if (s->checkpoints)
        checkpoints_take(s->checkpoints, end, next_mark(s, end - 1) == end);
    if (end <= s->counted)
        return;
    if (!g->uncounted)
        metrics_routed(g, row + first, row + span->rows, decode);
    if (first == 0 && g->observer) {
        struct routing r = routing_of(s, span, row, !decode);

        g->observer(g->observer_ctx, &r);
    }
    if (g->config.routing) {
        struct routing r = routing_of(s, span, row, !decode);

        routing_tap_rows(s, &r, first);
    }
    s->counted = end;
    history_write(s, span, row);
}

/* Counts the computed rows, once, and adds them to the session; drafted rows only once they are
 * accepted. */
static void pass_count(const struct pass_part *p, const struct span *span, int row)
{
    const struct engine *g = p->session->engine;
    struct span own = *span;

    if (g->pass_observer) {
        struct routing r = routing_of(p->session, span, row, !p->decode);

        g->pass_observer(g->pass_observer_ctx, &r);
    }
    own.rows -= p->drafted;
    p->session->spec.row = row + own.rows - 1;
    session_rows_done(p->session, &own, row, p->decode);
}

/* The hidden states joined with its next tokens, for an MTP block; NULL: none. */
static const float *states_of(const struct session *s)
{
    size_t values = (size_t)hparams_state_values(&s->engine->model->hp);

    return s->states && s->n_tokens >= s->states_at
               ? s->states + (size_t)(s->n_tokens - s->states_at) * values
               : NULL;
}

/* Reports the log probabilities of the prompt's tokens after each of these rows, which the pass
 * computed after the session's n_tokens, the first as its row `row`. */
static int score_rows(struct session *s, int row, int rows, struct error *e)
{
    size_t n_vocab = (size_t)s->engine->model->hp.n_vocab;
    int rc = 0, last = s->run.turn->prompt.n - 1;

    for (int done = 0; done < rows && rc == 0; done += SCORE_ROWS) {
        int n = rows - done < SCORE_ROWS ? rows - done : SCORE_ROWS;

        if (s->n_tokens + done >= last)
            break;
        rc = forward_head(&s->engine->forward, row + done, n, s->run.scores, e);
        for (int i = 0; i < n && rc == 0 && s->n_tokens + done + i < last; i++)
            session_logprobs(s, s->run.scores + (size_t)i * n_vocab,
                             s->tokens[s->n_tokens + done + i + 1]);
    }
    return rc;
}

/* The rows of prompts that end in this pass go to where their tokens are computed. */
static void hand_over(struct engine *g, int n, enum plan_phase phase)
{
    /* a device at work is not asked for copies: its next pass fetches them */
    bool apart = phase == PHASE_PROMPT && place_apart(g) && !g->beside.n, any = false;

    for (int i = 0; i < n && apart; i++) {
        const struct pass_part *p = &g->pass.parts[i];

        g->forward.hands_over[i] = p->logits && !p->all_logits;
        any = any || g->forward.hands_over[i];
    }
    forward_hand_over(&g->forward, any ? g->in_force : NULL);
}

/* Whether more is read of a session's rows than the logits of the last ones. */
static bool reads_all(const struct session *s)
{
    const struct engine *g = s->engine;

    for (int i = 0; i < DRAFTER_COUNT; i++)
        if (s->spec.drafters[i] && s->spec.ops[i]->states)
            return true;
    return s->run.scores || s->run.pooling || g->config.routing || g->forward.tap ||
           g->matrices_observed;
}

/* Of which rows somebody reads what the last layer's experts add. */
static void want_rows(struct engine *g, int n)
{
    struct forward *f = &g->forward;

    f->partly = false;
    for (int i = 0, row = 0; i < n; i++) {
        const struct pass_part *p = &g->pass.parts[i];
        int first = p->all_logits || reads_all(p->session) ? 0 : p->rows - 1 - p->drafted;

        for (int k = 0; k < p->rows; k++)
            f->wanted[row++] = k >= first;
        f->partly |= first > 0;
    }
}

/* The spans of the pass's first n parts. Returns how many rows they have. */
static int pass_spans(struct engine *g, int n)
{
    const struct pass_part *parts = g->pass.parts;
    int rows = 0;

    g->pass.n = n;
    for (int i = 0; i < n; i++) {
        struct session *s = parts[i].session;

        g->pass.spans[i] = (struct span){s->number,        s->n_tokens,
                                         parts[i].rows,    (int)s->variant,
                                         parts[i].drafted, g->adapters ? s->strengths : NULL,
                                         s->edits};
        g->pass.ids[i] = s->tokens + s->n_tokens;
        g->pass.states[i] = states_of(s);
        rows += parts[i].rows;
        rope_reach(&g->rope, s->n_tokens + parts[i].rows);
    }
    return rows;
}

/* What follows the layers of a pass: heads, scores, and what each session has now. */
static int pass_end(struct engine *g, int n, int rc, bool *again, struct error *e)
{
    const struct pass_part *parts = g->pass.parts;
    struct forward *f = &g->forward;

    if (rc == 0)
        rc = pass_heads(g, n, e);
    for (int i = 0, row = 0; i < n && rc == 0; row += parts[i++].rows)
        if (parts[i].session->run.scores)
            rc = score_rows(parts[i].session, row, parts[i].rows, e);
    for (int i = 0, row = 0; i < n && rc == 0; row += parts[i++].rows)
        if (parts[i].session->run.pooling)
            pooling_rows(parts[i].session->run.pooling, g->model, g->pass.spans[i].pos,
                         parts[i].rows, f->x + (size_t)row * (size_t)g->model->hp.hidden);
    for (int i = 0, row = 0; i < n; row += parts[i++].rows) {
        struct session *s = parts[i].session;

        if (rc == 0)
            pass_count(&parts[i], &g->pass.spans[i], row);
        else if (rc == ERR_DEVICE && f->resumes && f->resume_at[i] < s->n_tokens)
            s->n_tokens = f->resume_at[i];
        /* rows that some layers wrote beyond the last whole token are void */
        if (rc < 0)
            kv_cut(&g->kv, s->number, s->n_tokens);
        if (rc == ERR_DEVICE && f->resumes && s->checkpoints)
            s->n_tokens = checkpoints_resume(s->checkpoints, s->n_tokens);
    }
    *again = rc == ERR_DEVICE && f->resumes;
    return rc;
}

int session_pass(struct engine *g, int n, enum plan_phase phase, bool *again, struct error *e)
{
    struct forward *f = &g->forward;
    int rc, rows = pass_spans(g, n);

    *again = false;
    phase = place_phase_of(g, phase, rows);
    metrics_phase(g, phase);
    forward_placed(f, place_of_phase(g, phase), g->n_devices);
    hand_over(g, n, phase);
    want_rows(g, n);
    g->trace.token = g->pass.parts->session->n_tokens;
    g->pass_ns = clock_now();
    rc = g->config.routing ? routing_tap_begin(g, n, e) : 0;
    if (rc == 0)
        rc = forward_rows(f, g->pass.spans, g->pass.ids, g->pass.states, n, e);
    g->t.layer_at = 0;
    rc = pass_end(g, n, rc, again, e);
    g->computed_ns += clock_now() - g->pass_ns;
    g->computed_rows[phase] += (uint64_t)f->rows;
    if (rc == 0 && g->config.routing)
        rc = routing_tap_end(g, e);
    return rc < 0 ? rc : model_check(g->model, e);
}

void session_beside_swap(struct engine *g)
{
    struct pass pass = g->pass;
    struct forward forward = g->forward;

    g->pass = g->beside.pass;
    g->beside.pass = pass;
    g->forward = g->beside.apart.f;
    g->beside.apart.f = forward;
}

int session_beside_room(struct engine *g, struct error *e)
{
    struct beside *b = &g->beside;
    int rc = apart_open(&b->apart, &g->forward, e);

    if (rc < 0 || b->room >= g->n_sessions)
        return rc;
    session_beside_swap(g);
    rc = pass_room(g, g->n_sessions, e);
    session_beside_swap(g);
    b->room = rc < 0 ? b->room : g->n_sessions;
    return rc;
}

void session_beside_begin(struct engine *g, int n, enum plan_phase phase, int device)
{
    struct beside *b = &g->beside;
    const struct plan *plan = place_of_phase(g, phase);
    bool any;

    assert(!b->n);
    session_beside_swap(g);
    pass_spans(g, n);
    hand_over(g, n, phase);
    any = g->forward.next != NULL;
    session_beside_swap(g);
    b->n = n;
    b->phase = phase;
    b->start = clock_now();
    apart_begin(&b->apart, device, plan, any ? g->in_force : NULL, b->pass.spans, b->pass.ids, n);
    for (int i = 0; i < n; i++)
        b->pass.parts[i].session->run.beside = true;
}

int session_beside_end(struct engine *g, int rc, bool *again, struct error *e)
{
    struct beside *b = &g->beside;
    uint64_t moved = b->apart.f.handover_bytes, ns = b->apart.f.handover_ns;
    bool handed = b->apart.f.next != NULL;
    int rows = b->apart.f.rows;

    session_beside_swap(g);
    rc = pass_end(g, b->n, rc < 0 ? rc : 0, again, e);
    for (int i = 0; i < b->n; i++)
        g->pass.parts[i].session->run.beside = false;
    session_beside_swap(g);
    g->computed_rows[b->phase] += (uint64_t)rows;
    if (handed) {
        g->forward.handover_bytes = moved;
        g->forward.handover_ns = ns;
    }
    b->n = 0;
    return rc < 0 ? rc : model_check(g->model, e);
}

static int check_extension(const struct session *s, const int *ids, int n, struct error *e)
{
    const struct engine *g = s->engine;

    if (n <= 0)
        return error_set(e, ERR_USAGE, "no tokens to compute");
    if (n > g->info.context - s->n_tokens)
        return error_set(e, ERR_CONTEXT, "%d tokens do not fit into the context of %d (-c)",
                         s->n_tokens + n, g->info.context);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= g->model->hp.n_vocab)
            return error_set(e, ERR_USAGE, "token %d is not in the vocabulary of %d", ids[i],
                             g->model->hp.n_vocab);
    return 0;
}

int session_append(struct session *s, const int *ids, int n, struct error *e)
{
    int start = s->n_tokens, rc = check_extension(s, ids, n, e);

    if (rc < 0)
        return rc;
    s->token_waits = false;
    memmove(s->tokens + start, ids, (size_t)n * sizeof *ids);
    if (s->checkpoints)
        cut(s, start);
    s->n_tokens = choose_rope(s, start, start + n);
    if (s->checkpoints)
        s->n_tokens = checkpoints_resume(s->checkpoints, s->n_tokens);
    return start + n;
}

int session_extend(struct session *s, const int *ids, int n, int chunk, float *logits,
                   bool all_logits, struct error *e)
{
    struct engine *g = s->engine;
    int start = s->n_tokens, total = session_append(s, ids, n, e), rc = 0, tries = 0;
    size_t n_vocab = (size_t)g->model->hp.n_vocab;

    if (total < 0)
        return total;
    if (chunk < 1 || chunk > g->forward.max_rows)
        chunk = g->forward.max_rows;
    g->pressure.evaluated = s;
    while (s->n_tokens < total) {
        int at = s->n_tokens, end = at < start ? start : total,
            rows = end - at < chunk ? end - at : chunk;
        bool last = at + rows == total, again;
        struct pass_part *part = g->pass.parts;

        *part = (struct pass_part){.session = s, .rows = rows, .all_logits = all_logits};

        if (logits && all_logits && at >= start)
            part->logits = logits + (size_t)(at - start) * n_vocab;
        else if (logits && !all_logits && last)
            part->logits = logits;
        rc = session_pass(g, 1, n > 1 ? PHASE_PROMPT : PHASE_TOKENS, &again, e);
        if (again && tries++ < RETRIES)
            continue;
        if (rc < 0)
            break;
        if (s->n_tokens < total) {
            place_safe_point(g);
            if (session_cancelled(s)) {
                rc = error_set(e, ERR_CANCELLED, "cancelled");
                break;
            }
        }
    }
    g->pressure.evaluated = NULL;
    if (rc < 0 && s->checkpoints && s->n_tokens < start)
        s->n_tokens = start; /* kept: recomputed when the session continues */
    if (rc < 0)              /* tokens dropped from the session may be counted again */
        s->counted = s->counted < s->n_tokens ? s->counted : s->n_tokens;
    return rc;
}

/* Parts for the missing tokens of each session up to its end; returns how many. */
static int parts_missing(struct session *const *s, int n, const int *ends)
{
    struct engine *g = s[0]->engine;
    int parts = 0, left = g->forward.max_rows;

    for (int i = 0; i < n && left > 0; i++) {
        int missing = ends[i] - s[i]->n_tokens, rows = missing < left ? missing : left;

        if (!missing)
            continue;
        g->pass.parts[parts++] = (struct pass_part){
            .session = s[i], .rows = rows, .logits = rows == missing ? s[i]->logits : NULL};
        left -= rows;
    }
    return parts;
}

int session_extend_all(struct session *const *s, int n, const int *ids, struct error *e)
{
    struct engine *g = s[0]->engine;
    int rc = 0, tries = 0, parts;
    bool again;

    for (int i = 0; i < n && rc >= 0; i++)
        rc = g->pass.ends[i] = session_append(s[i], &ids[i], 1, e);
    while (rc >= 0 && (parts = parts_missing(s, n, g->pass.ends)) > 0) {
        rc = session_pass(g, parts, PHASE_TOKENS, &again, e);
        if (again && tries++ < RETRIES)
            rc = 0;
    }
    return rc < 0 ? rc : 0;
}
