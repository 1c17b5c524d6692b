/* Speculative decoding: drafted tokens are appended to the pending token in a pass, and the model
 * samples from each row's logits in sequence, exactly as without drafts: same penalties, same
 * random numbers, same stops. As long as the sampled token equals the drafted one, the next row is
 * valid; otherwise the rows after it are cut. So the text is identical to that without drafts. The
 * draft length is decided per pass (draft/utility.h). Engine thread; computing allocates
 * nothing. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/medusa_heads.h"
#include "engine/run/distinct_experts.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WHY_AGAIN 16   /* passes until a changing reason is reported again */
#define UNLIKELY 0.15f /* that all drafted so far are right: stop drafting */
#define WAIT_MOST 64   /* most passes between two tries of a costly drafter that does not pay */

static bool asked_for(const struct drafting *c, enum drafter_kind kind)
{
    return drafter_find(c->type) == kind ||
           (strcmp(c->type, "auto") == 0 && !drafter_ops(kind)->by_name);
}

/* Float weights: another device multiplies one row and several in different orders. */
static bool has_floats(const struct model *m)
{
    struct block_matrix list[BLOCK_MATRICES];

    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        for (int i = model_block_matrices(m, id, list); i-- > 0;)
            if (!dtype_is_quantised(list[i].w->type))
                return true;
    return false;
}

static bool medusa_wanted(const struct drafting *c)
{
    return c->medusa.path || c->medusa.n;
}

/* What a drafter needs but is missing, in words; NULL: nothing. */
static const char *missing(const struct engine *g, enum drafter_kind kind)
{
    switch (drafter_ops(kind)->needs) {
    case DRAFTER_NEEDS_MODEL:
        return g->config.drafting.model ? NULL : "a model has to draft: name one with -md";
    case DRAFTER_NEEDS_MTP:
        return g->model->has_mtp && engine_mtp_wanted(&g->config)
                   ? NULL
                   : "the model's file has no block that predicts further tokens; --spec-type "
                     "lookup needs none";
    case DRAFTER_NEEDS_HEADS:
        return medusa_wanted(&g->config.drafting)
                   ? NULL
                   : "heads have to draft: name their file with --medusa";
    case DRAFTER_NEEDS_ITSELF:
    case DRAFTER_NEEDS_NOTHING:
    default: return NULL;
    }
}

int speculate_init(struct engine *g, struct error *e)
{
    struct drafting *c = &g->config.drafting;

    utility_init(&g->utility, 0);
    c->n_max = c->n_max > 0 ? c->n_max : DRAFT_DEFAULT;
    c->n_max = c->n_max < DRAFT_MOST ? c->n_max : DRAFT_MOST;
    c->always = c->always || c->n_synthetic;
    if (!drafting_wanted(c))
        return 0;
    if (strcmp(c->type, "auto") != 0 && drafter_find(c->type) == DRAFTER_COUNT)
        return error_set(e, ERR_USAGE, "there is no drafter '%s'", c->type);
    for (int i = 0; i < DRAFTER_COUNT; i++) {
        const char *lacks = missing(g, (enum drafter_kind)i);

        if (lacks && drafter_find(c->type) == (enum drafter_kind)i)
            return error_set(e, ERR_USAGE, "--spec-type %s: %s", c->type, lacks);
        g->heard[i] = asked_for(c, (enum drafter_kind)i) && !lacks;
        g->drafters[i] = g->heard[i] || (c->all && !lacks);
    }
    g->drafts = true;
    g->most_drafted = c->n_max;
    g->draft_rows = drafting_most_rows(c, g->info.ubatch);
    g->draft_bytes = drafting_footprint(c, &g->model->hp, g->info.ubatch, g->config.sessions);
    g->has_floats = has_floats(g->model);
    return 0;
}

int speculate_heads_open(struct engine *g, struct error *e)
{
    int rc = 0;

    if (g->drafters[DRAFTER_medusa] && !g->slots[0].ops->multiply)
        rc = error_set(e, ERR_USAGE, "this device computes no Medusa heads");
    else if (g->drafters[DRAFTER_medusa])
        rc = medusa_heads_open(&g->medusa, g->model, &g->config.drafting.medusa, e);
    g->config.drafting.medusa.path = NULL; /* the caller's */
    return rc;
}

/* Sets the line with the reason for not drafting; REASON_NONE: no reason. */
static void tell(struct engine *g, enum draft_reason reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void tell(struct engine *g, enum draft_reason reason, const char *format, ...)
{
    struct speculation_figures *f = &g->t.speculation;
    va_list arguments;

    g->reason = reason;
    va_start(arguments, format);
    vsnprintf(f->why, sizeof f->why, format, arguments);
    va_end(arguments);
}

/* Clears a reason that no longer applies. */
static void untell(struct engine *g, enum draft_reason reason)
{
    if (g->reason == reason)
        tell(g, REASON_NONE, "%s", "");
}

int engine_drafting_set(struct engine *g, const struct drafting *d, struct error *e)
{
    struct drafting *c = &g->config.drafting;
    enum drafter_kind kind = drafter_find(d->type);

    if (kind == DRAFTER_COUNT && drafting_wanted(d) && strcmp(d->type, "auto") != 0)
        return error_set(e, ERR_USAGE, "there is no drafter '%s'", d->type);
    if (kind != DRAFTER_COUNT && !g->drafters[kind])
        return error_set(e, ERR_USAGE, "'%s' does not draft here: the model was opened without it",
                         d->type);
    if (drafting_wanted(d) && d->n_max > g->most_drafted)
        return error_set(e, ERR_USAGE, "the model was opened for at most %d drafted tokens",
                         g->most_drafted);
    snprintf(c->type, sizeof c->type, "%s", d->type);
    c->n_max = d->n_max > 0 ? d->n_max : g->most_drafted;
    c->accept = d->accept;
    c->alpha = d->alpha;
    c->always = d->always || c->n_synthetic;
    g->drafts = drafting_wanted(d);
    for (int i = 0; i < DRAFTER_COUNT; i++)
        g->heard[i] = g->drafters[i] && asked_for(d, (enum drafter_kind)i);
    utility_restart(&g->utility);
    tell(g, REASON_NONE, "%s", "");
    return 0;
}

static struct engine *needed(struct engine *g, enum drafter_kind kind)
{
    switch (drafter_ops(kind)->needs) {
    case DRAFTER_NEEDS_MODEL: return g->draft_model;
    case DRAFTER_NEEDS_MTP: return g->mtp;
    case DRAFTER_NEEDS_ITSELF:
    case DRAFTER_NEEDS_HEADS: return g;
    case DRAFTER_NEEDS_NOTHING:
    default: return NULL;
    }
}

int speculate_open(struct session *s, struct error *e)
{
    int rc = 0;

    for (int i = 0; i < DRAFTER_COUNT && rc == 0; i++)
        if (s->engine->drafters[i]) {
            s->spec.ops[i] = drafter_ops((enum drafter_kind)i);
            rc = drafter_new(&s->spec.drafters[i], s->spec.ops[i],
                             needed(s->engine, (enum drafter_kind)i), e);
        }
    return rc;
}

/* Why drafting is impossible here whatever the text; NULL: it is possible. */
static const char *not_here(const struct engine *g)
{
    return g->kv.all_fixed && !g->slots[0].ops->drafts
               ? "off: recurrent layers cannot take rows back here"
           : g->draft_rows < 1       ? "off: -ub leaves no room for drafts"
           : g->config.float_library ? "off: sums of --float-gemm onednn depend on the rows"
           : g->forward.defer        ? "off: experts are deferred"
           : g->has_floats && plan_uses_devices(g->in_force)
               ? "off: float weights on another device"
               : NULL;
}

/* Likewise, in a pass of so many answers with so many free rows. */
static const char *too_full(int answers, int room)
{
    return answers >= UTILITY_ROWS || room < 1 ? "off: answers fill the passes" : NULL;
}

/* Number of drafts that could be used if all are right. */
static int room_for(const struct session *s, int most)
{
    const struct engine *g = s->engine;
    const struct turn *t = s->run.turn;
    int room = g->info.context - s->n_tokens - 1;

    most = most < g->config.drafting.n_max ? most : g->config.drafting.n_max;
    if (t->max_tokens >= 0 && t->max_tokens - s->run.done.completion_tokens - 1 < room)
        room = t->max_tokens - s->run.done.completion_tokens - 1;
    most = room < most ? room : most;
    while (most > 0 && rope_choose(&g->rope, s->n_tokens + 1 + most) != s->variant)
        most--;
    return most > 0 ? most : 0;
}

static void multiply_up(float *p, int n)
{
    for (int i = 1; i < n; i++)
        p[i] *= p[i - 1];
}

/* The drafter exists and is enabled. */
static bool heard(const struct session *s, int kind)
{
    return s->spec.drafters[kind] && s->engine->heard[kind];
}

static void ask(struct session *s, enum drafter_kind kind, int most, float least)
{
    struct speculation *p = &s->spec;

    p->from = kind;
    p->n = drafter_ops(kind)->propose(p->drafters[kind], s->tokens, s->n_tokens + 1, most, least,
                                      p->ids, p->p);
    p->n = rule_allowed(s, p->ids, p->n);
    multiply_up(p->p, p->n);
}

/* Asks the free drafters in order; takes the first proposal. */
static void propose(struct session *s, int most)
{
    struct speculation *p = &s->spec;

    p->from = DRAFTER_COUNT;
    p->n = 0;
    most = room_for(s, most);
    for (int i = 0; i < DRAFTER_COUNT && most > 0 && !p->n; i++)
        if (heard(s, i) && !drafter_ops((enum drafter_kind)i)->expect)
            ask(s, (enum drafter_kind)i, most, 0);
}

/* Lets a drafter read the tokens it has not read yet. Beyond those since its last draft, the time
 * for the prompt's counts as prefill; that for the answer's counts as drafting. */
static void catch_up(struct session *s, enum drafter_kind kind)
{
    const struct drafter_ops *ops = drafter_ops(kind);
    int behind = ops->behind ? ops->behind(s->spec.drafters[kind], s->tokens, s->n_tokens + 1) : 0,
        own = s->run.done.completion_tokens < behind ? s->run.done.completion_tokens : behind;
    uint64_t start = clock_now();
    double ns;

    if (behind <= DRAFT_MOST + 1)
        return;
    ops->read(s->spec.drafters[kind], s->tokens, s->n_tokens);
    ns = (double)(clock_now() - start);
    s->engine->drafting_ns += ns * own / behind;
    s->engine->reading_ns += ns * (behind - own) / behind;
}

/* A costly drafter that was wrong too often may be right later: it is tried on a single token,
 * which is compared with the model's next one without being verified. Immediately if the last try
 * was right or an answer starts, at growing intervals if it was wrong; the cost is charged to the
 * account (utility.h). */
static bool is_tried_again(struct session *s)
{
    struct speculation *p = &s->spec;

    if (p->unasked++ < p->wait || !utility_bears(&s->engine->utility))
        return false;
    p->unasked = 0;
    p->wait = p->wait < WAIT_MOST / 2 ? 2 * p->wait + 1 : WAIT_MOST;
    return true;
}

/* For a single answer in the pass: the first costly drafter, if it is expected to pay. The average
 * number that pays gives the least probability; a drafter surer than average continues, as far as
 * the account covers, a less sure one stops early. Returns how many are worth a row; *offered:
 * number considered, each with probability p. Negative: none. */
static int propose_dearly(struct session *s, int most, float *p, int *offered)
{
    struct engine *g = s->engine;
    const struct drafter_ops *ops = NULL;
    struct utility_offer offer = {.answers = 1, .p = p, .to_draft = true};
    bool always = g->config.drafting.always, again;
    float experts[TOUCHED_ROWS], least;
    int kind = 0, n;
    uint64_t start;
    double gain;

    while (kind < DRAFTER_COUNT &&
           !(heard(s, kind) && (ops = drafter_ops((enum drafter_kind)kind))->expect))
        kind++;
    if (kind == DRAFTER_COUNT || (most = room_for(s, most)) < 1)
        return -1;
    ops->expect(s->spec.drafters[kind], most, p);
    multiply_up(p, most);
    offer.n = *offered = most;
    n = always ? most : utility_rows(&g->utility, &offer, &gain);
    least = !always && n < most ? p[n] : UNLIKELY;
    again = !n && is_tried_again(s);
    n = again ? 1 : always ? n : utility_may(&g->utility, &offer, n ? most : 0);
    if (!n)
        return 0;
    catch_up(s, (enum drafter_kind)kind);
    start = clock_now();
    ask(s, (enum drafter_kind)kind, n, least);
    g->drafting_ns += (double)(clock_now() - start);
    if (s->spec.n)
        utility_drafted(&g->utility, s->spec.n, (double)(clock_now() - start));
    memcpy(p, s->spec.p, (size_t)s->spec.n * sizeof *p);
    offer = (struct utility_offer){.answers = 1, .n = s->spec.n, .p = p};
    offer.experts = distinct_experts_expect(s, s->spec.ids, s->spec.n, experts) ? experts : NULL;
    n = always ? s->spec.n : utility_rows(&g->utility, &offer, &gain);
    return again ? utility_may(&g->utility, &offer, n) : n;
}

/* Sorts all drafts, likeliest first; returns how many there are, *p: probability of each. */
static int in_order(const struct engine *g, int n, int room, float *p, int *whose)
{
    int at[UTILITY_ROWS] = {0}, count = 0;

    while (count < room) {
        int best = -1;

        for (int i = 0; i < n; i++) {
            const struct speculation *a = &g->pass.parts[i].session->spec, *b;

            if (at[i] == a->n)
                continue;
            b = best < 0 ? NULL : &g->pass.parts[best].session->spec;
            if (!b || a->p[at[i]] > b->p[at[best]])
                best = i;
        }
        if (best < 0)
            break;
        p[count] = g->pass.parts[best].session->spec.p[at[best]++];
        whose[count++] = best;
    }
    return count;
}

/* Reports that drafts were available and none was used. touched: experts per layer, 0: not
 * known. */
static void tell_cost(struct engine *g, const struct utility_offer *o, bool pays)
{
    double right = 0, touched = o->experts ? (double)o->experts[o->n] : 0;

    if (!g->utility.passes[o->answers].ns) {
        untell(g, REASON_SILENCE);
        return;
    }
    if (g->reason == REASON_COST && g->t.speculation.passes % WHY_AGAIN)
        return;
    for (int i = 0; i < o->n; i++)
        right += (double)o->p[i];
    right = 100 * right / o->n;
    if (pays)
        tell(g, REASON_COST, "off: drafts lost time of late; tried again soon");
    else if (touched > 0)
        tell(g, REASON_COST,
             "off: %d draft%s would touch %.0f experts a layer; %.0f %% likely accepted", o->n,
             o->n == 1 ? "" : "s", touched, right);
    else
        tell(g, REASON_COST,
             "off: %d draft%s would make a pass %.1f times as long; %.0f %% likely accepted", o->n,
             o->n == 1 ? "" : "s", utility_cost(&g->utility, o->answers, o->answers + o->n, 0),
             right);
}

/* Reports that no drafter had a proposal, once that has lasted for WHY_AGAIN passes. */
static void tell_silence(struct engine *g)
{
    if (++g->silent_passes >= WHY_AGAIN)
        tell(g, REASON_SILENCE, "off: nothing repeats here");
}

void speculate_idle(struct engine *g)
{
    untell(g, REASON_EARLY);
}

/* Appends drafts after the pending token. */
static void extend(struct pass_part *part, int rows)
{
    struct session *s = part->session;

    memcpy(s->tokens + s->n_tokens + 1, s->spec.ids, (size_t)rows * sizeof *s->tokens);
    part->rows += rows;
    part->drafted = rows;
    s->spec.rows = rows;
}

/* Whether the current time of a decode pass is representative. */
static bool is_time(const struct engine *g)
{
    uint64_t done, total;

    return !trace_active(g->forward.trace) && model_packed(g->model, &done, &total);
}

/* It is not: reports why, if that lasts for more than one pass. */
static void tell_early(struct engine *g)
{
    uint64_t done, total;

    if (g->trace.active)
        tell(g, REASON_EARLY, "off: a trace is recorded");
    if (model_packed(g->model, &done, &total))
        return;
    g->t.speculation.passes_early++;
    tell(g, REASON_EARLY, "off: weights are still packed, %.*f of %.*f GB", total < 1e9 ? 3 : 1,
         (double)done / 1e9, total < 1e9 ? 3 : 1, (double)total / 1e9);
}

/* Records paying drafts that are not made, to compare them with the tokens that follow. */
static void watch(struct session *s, const struct utility_offer *o, int rows)
{
    struct watched *w = &s->spec.watched;

    if (w->n || rows < 1)
        return;
    memcpy(w->ids, s->spec.ids, (size_t)rows * sizeof *w->ids);
    w->n = rows;
    w->right = 0;
    w->cost = utility_cost(&s->engine->utility, o->answers, o->answers + rows,
                           o->experts ? (double)o->experts[rows] : 0);
}

/* A token was sampled: updates the comparison with unmade drafts. */
static void watch_drawn(struct session *s, int id)
{
    struct watched *w = &s->spec.watched;
    bool right;

    if (!w->n)
        return;
    right = w->ids[w->right] == id;
    w->right += right;
    if (right && w->right < w->n)
        return;
    utility_missed(&s->engine->utility, 1 + w->right, w->cost);
    w->n = 0;
}

/* Of the free drafts, likeliest first, chooses those that pay and are allowed. */
static int choose(struct engine *g, const struct utility_offer *o)
{
    struct session *s = g->pass.parts->session;
    double gain;
    int pay = utility_rows(&g->utility, o, &gain), may = utility_may(&g->utility, o, pay);

    if (pay && !may && o->answers == 1)
        watch(s, o, pay);
    return may;
}

int speculate_fill(struct engine *g, int n, int room)
{
    struct speculation_figures *f = &g->t.speculation;
    float p[UTILITY_ROWS], experts[TOUCHED_ROWS];
    struct utility_offer offer = {.answers = n, .p = p};
    int whose[UTILITY_ROWS] = {0}, rows[UTILITY_ROWS] = {0}, taken;
    const char *why;
    double gain;

    g->drafting_ns = g->reading_ns = 0;
    if (!g->drafts || n < 1)
        return 0;
    if (!is_time(g)) {
        tell_early(g);
        return 0;
    }
    if ((why = not_here(g)) || (why = too_full(n, room))) {
        tell(g, REASON_LASTS, "%s", why);
        return 0;
    }
    untell(g, REASON_EARLY);
    untell(g, REASON_LASTS);
    room = room < g->draft_rows ? room : g->draft_rows;
    room = room < UTILITY_ROWS - n ? room : UTILITY_ROWS - n;
    for (int i = 0; i < n; i++)
        propose(g->pass.parts[i].session, room);
    offer.n = in_order(g, n, room, p, whose);
    if (n == 1 && offer.n &&
        distinct_experts_expect(g->pass.parts->session, g->pass.parts->session->spec.ids, offer.n,
                                experts))
        offer.experts = experts;
    taken = g->config.drafting.always ? offer.n : choose(g, &offer);
    if (!taken && n == 1) {
        int dear = propose_dearly(g->pass.parts->session, room, p, &offer.n);

        if (dear >= 0) {
            taken = dear;
            offer.experts = NULL;
            memset(whose, 0, sizeof whose);
        }
    }
    if (!offer.n) {
        tell_silence(g);
        return 0;
    }
    g->silent_passes = 0;
    if (!taken) {
        tell_cost(g, &offer, utility_rows(&g->utility, &offer, &gain) > 0);
        return 0;
    }
    for (int i = 0; i < taken; i++)
        rows[whose[i]]++;
    for (int i = 0; i < n; i++)
        if (rows[i])
            extend(&g->pass.parts[i], rows[i]);
    f->rows = taken;
    tell(g, REASON_NONE, "%s", "");
    snprintf(f->from, sizeof f->from, "%s",
             drafter_ops(g->pass.parts[whose[0]].session->spec.from)->name);
    return taken;
}

/* With synthetic rates: the token at `place` of the draft, or what the model drew, or, if both are
 * the same but it must be rejected, another one. */
static int draw_synthetic(const struct session *s, int place, int n_recent, int id)
{
    const struct drafting *c = &s->engine->config.drafting;
    int drafted = s->spec.ids[place];

    if (acceptance_synthetic(c->synthetic, c->n_synthetic, place, n_recent))
        return drafted;
    return id != drafted ? id : id ? id - 1 : 1;
}

/* Samples the token after row n of a pass from its logits, which are unchanged afterwards; drafted:
 * the drafted token, negative: none. */
static int draw(struct session *s, float *logits, int n, int n_recent, int drafted)
{
    const struct drafting *c = &s->engine->config.drafting;
    const struct hparams *hp = &s->engine->model->hp;
    float kept[HPARAMS_STOPS], probability;
    int id;

    for (int i = 0; i < hp->n_stops; i++)
        kept[i] = hp->stops[i] >= 0 && hp->stops[i] < hp->n_vocab ? logits[hp->stops[i]] : 0;
    rule_mask(s, logits);
    id = sampler_sample(&s->sampler, logits, s->tokens, (size_t)n_recent, NULL);
    if (c->n_synthetic && drafted >= 0)
        id = draw_synthetic(s, n, n_recent, id);
    else if (id != drafted &&
             acceptance_takes(&c->accept, logits, hp->n_vocab, drafted, &probability))
        id = drafted;
    for (int i = 0; i < hp->n_stops; i++)
        if (hp->stops[i] >= 0 && hp->stops[i] < hp->n_vocab)
            logits[hp->stops[i]] = kept[i];
    return id;
}

/* Predicts how many tokens the pass makes for a session, by sampling; the random state is
 * restored. */
static int foresee(struct session *s, int drafted)
{
    uint64_t state = s->sampler.state;
    int n = 0, n_vocab = s->sampler.n_vocab, cursor = s->cursor, id;

    do {
        rule_apply(s, cursor);
        id = draw(s, s->spec.logits + (size_t)n * (size_t)n_vocab, n, s->n_tokens + n,
                  n < drafted ? s->spec.ids[n] : -1);
        cursor = rule_cursor(s, cursor, id);
        n++;
    } while (n <= drafted && id == s->tokens[s->n_tokens + n - 1]);
    s->sampler.state = state;
    return n;
}

static void count_positions(struct speculation_figures *f, int drafted, int right)
{
    static_assert(TELEMETRY_DRAFTS == DRAFT_MOST, "a position is counted where it is drafted");
    for (int i = 0; i < drafted; i++) {
        f->tried[i]++;
        f->right[i] += i < right;
    }
}

void speculate_computed(struct engine *g, int n, double ns)
{
    struct speculation_figures *f = &g->t.speculation;
    struct speculated *a = &g->speculated;

    *a = (struct speculated){.answers = n};
    for (int i = 0; i < n; i++) {
        struct session *s = g->pass.parts[i].session;
        int drafted = g->pass.parts[i].drafted, made = drafted ? foresee(s, drafted) : 1;

        s->run.share_ns = drafted ? (uint64_t)(ns / made) : 0;
        s->run.done.drafted += drafted;
        count_positions(f, drafted, made - 1);
        a->rows += g->pass.parts[i].rows;
        a->tokens += made;
        a->paused_ns += s->run.paused_ns;
    }
    if (!g->drafts)
        return;
    a->experts = distinct_experts_by(g, a->rows);
    f->passes++;
    f->passes_drafted += a->rows > n;
    f->drafted += (uint64_t)(a->rows - n);
    f->accepted += (uint64_t)(a->tokens - n);
}

void speculate_learn(struct engine *g, double ns)
{
    const struct speculated *a = &g->speculated;
    uint64_t paused_ns = 0;

    if (!g->drafts || a->answers >= UTILITY_ROWS || !is_time(g))
        return;
    for (int i = 0; i < a->answers; i++) {
        const struct session *s = g->pass.parts[i].session;

        if (!turn_running(s)) /* the time includes the end of a turn */
            return;
        paused_ns += s->run.paused_ns;
    }
    utility_learn(&g->utility, a->answers, a->rows, a->experts, a->tokens,
                  ns - g->drafting_ns - g->reading_ns - (double)(paused_ns - a->paused_ns),
                  g->drafting_ns);
    g->t.speculation.gain = utility_gain(&g->utility);
}

static int accept_synthetic(struct session *s, int id)
{
    int now = draw_synthetic(s, s->spec.taken, s->n_tokens, id);

    s->run.done.changed += now != id;
    s->engine->t.speculation.changed += now != id;
    return now;
}

int speculate_accept(struct session *s, int id, struct sampler_draw *draw)
{
    const struct speculation *p = &s->spec;
    float probability;

    if (s->engine->config.drafting.n_synthetic && p->from != DRAFTER_COUNT && p->taken < p->rows)
        return accept_synthetic(s, id);
    if (p->from == DRAFTER_COUNT || p->taken >= p->rows || p->ids[p->taken] == id ||
        !acceptance_takes(&s->engine->config.drafting.accept, s->logits,
                          s->engine->model->hp.n_vocab, p->ids[p->taken], &probability))
        return id;
    s->run.done.changed++;
    s->engine->t.speculation.changed++;
    draw->probability = probability;
    draw->share = 0.0f; /* it was not drawn by the sampler */
    return p->ids[p->taken];
}

bool speculate_drawn(struct session *s, int id)
{
    struct speculation *p = &s->spec;

    watch_drawn(s, id);
    if (p->from == DRAFTER_COUNT || p->taken == p->n || p->ids[p->taken] != id)
        return false;
    if (p->taken == p->rows) { /* it would have been right */
        p->missed = true;
        return false;
    }
    p->drawn = rope_choose(&s->engine->rope, s->n_tokens + 1) == s->variant;
    return p->drawn;
}

bool speculate_next(struct session *s)
{
    struct speculation *p = &s->spec;
    struct span row = {s->number, s->n_tokens, 1, (int)s->variant, 0, NULL, NULL};
    size_t n_vocab = (size_t)s->engine->model->hp.n_vocab;

    if (!p->drawn)
        return false;
    p->drawn = false;
    p->taken++;
    s->run.done.accepted++;
    session_rows_done(s, &row, p->row + p->taken, true);
    memcpy(s->logits, p->logits + (size_t)p->taken * n_vocab, n_vocab * sizeof *s->logits);
    return true;
}

void speculate_end(struct session *s, bool computed)
{
    struct speculation *p = &s->spec;

    if (p->rows > p->taken)
        kv_cut(&s->engine->kv, s->number, s->n_tokens);
    if ((p->missed || p->taken) && drafter_ops(p->from)->expect)
        p->wait = 0;
    if (computed && p->from != DRAFTER_COUNT && p->n && turn_running(s))
        drafter_ops(p->from)->learn(p->drafters[p->from], p->rows ? p->rows : 1,
                                    p->rows ? p->taken : p->missed);
    p->from = DRAFTER_COUNT;
    p->n = p->rows = p->taken = 0;
    p->drawn = p->missed = false;
    s->run.share_ns = 0;
}
