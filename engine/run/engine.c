/* The engine: opening, closing and the small calls; session.c, turn.c and placement.c do the work.
 * Engines may be opened one after another, also several at a time (each with its own thread
 * pool). */
#include "engine/run/engine.h"
#include "engine/adapter/control.h"
#include "engine/run/internal.h"
#include "engine/run/medusa_heads.h"

#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/topology.h"

#include <stdio.h>
#include <string.h>

#define TUNE_HOLD 300                       /* milliseconds */
#define LOOKED_AT_ONCE ((uint64_t)64 << 20) /* bytes: some ten milliseconds of a load */

static int go_on(const struct engine *g, struct error *e)
{
    return engine_given_up(g)
               ? error_set(e, ERR_CANCELLED, "%s: loading was interrupted", g->config.model_path)
               : 0;
}

static int check_config(struct engine *g, struct error *e)
{
    struct engine_footprint n;
    int rc = engine_resolve(&g->config, g->model, &n, e);

    g->info.context = n.context;
    g->info.ubatch = n.ubatch;
    return rc;
}

static void log_line(void *ctx, const char *line)
{
    engine_notice(ctx, "%s", line);
}

static int open_cpu(struct engine *g, struct error *e)
{
    struct device_slot *s = &g->slots[0];
    struct device_config c = {
        .model = g->model,
        .n_threads = g->info.n_threads,
        .pool = g->config.resources ? shared_resources_pool(g->config.resources) : NULL,
        .max_rows = g->info.ubatch,
        .context = g->info.context,
        .drafts = drafting_rows(&g->config.drafting, g->info.ubatch),
        .kv_k = g->config.kv_k,
        .kv_v = g->config.kv_v,
        .exact = g->config.exact,
        .cache_dir = g->config.cache_dir,
        .rope_cos = {g->rope.cos[ROPE_SHORT], g->rope.cos[ROPE_LONG]},
        .rope_sin = {g->rope.sin[ROPE_SHORT], g->rope.sin[ROPE_LONG]},
        .second_cos = g->rope.second_cos,
        .second_sin = g->rope.second_sin};
    const struct device_ops *ops = &cpu_device_ops;
    char why[8];
    int rc;

    c.tune = g->config.tune;
    c.float_library = g->config.float_library;
    c.fewer_threads = g->config.n_threads <= 0;
    c.log = log_line;
    c.log_ctx = g;
    for (const struct device_ops *const *b = g->config.backends; b && *b; b++)
        if (!b[1])
            ops = *b; /* the last one is the CPU */
    ops->probe(&s->info, 1, why, sizeof why);
    if ((rc = ops->open(&s->device, &c, e)) < 0)
        return rc;
    s->ops = ops;
    g->devices[0] = s->device;
    g->info.devices[0] = s->info;
    g->n_devices = g->info.n_devices = 1;
    return 0;
}

/* Polled while the tokenizer and the chat template load: true if the progress callback cancels. How
 * much is loaded is not known here: the callback is told 1 of 1. */
static bool loading_cancelled(void *ctx)
{
    const struct engine_config *c = ctx;

    return c->progress && c->progress(c->callback_ctx, 1, 1) != 0;
}

static void add_stop(void *ctx, int id)
{
    struct hparams *hp = ctx;

    for (int i = 0; i < hp->n_stops; i++)
        if (hp->stops[i] == id)
            return;
    if (id < hp->n_vocab && hp->n_stops < HPARAMS_STOPS)
        hp->stops[hp->n_stops++] = id;
}

static int load_tokenizer(struct engine *g, struct error *e)
{
    struct stop stop = {loading_cancelled, &g->config};
    struct chat_template_options o = {.name = g->config.chat_template,
                                      .file = g->config.chat_template_file,
                                      .globals = g->config.chat_template_globals,
                                      .stop = &stop};
    int rc;

    if (g->config.mtp_of)
        return 0;
    rc = tokenizer_load(&g->tokenizer, g->model->file, e);
    if (rc == 0)
        rc = chat_template_load(&g->chat, g->model->file, g->tokenizer, &o, e);
    /* the caller's */
    g->config.chat_template = g->config.chat_template_file = g->config.chat_template_globals = NULL;
    g->config.overrides = NULL;
    if (rc == ERR_MODEL && g->tokenizer && g->config.chat_optional) {
        g->info.chat_error = *e;
        rc = 0;
    }
    if (rc < 0 && g->config.no_tokenizer && rc != ERR_MEMORY && rc != ERR_CANCELLED)
        rc = 0;
    if (rc == 0 && g->tokenizer)
        chat_template_ends(g->tokenizer, add_stop, &g->model->hp);
    if (rc == 0 && g->model->unused[0])
        engine_notice(g, "%s", g->model->unused);
    if (rc == 0 && g->tokenizer && tokenizer_notice(g->tokenizer))
        engine_notice(g, "%s", tokenizer_notice(g->tokenizer));
    if (rc == 0 && g->chat && chat_template_notice(g->chat))
        engine_notice(g, "%s", chat_template_notice(g->chat));
    return rc;
}

int engine_settle(struct engine *g, struct error *e)
{
    while (engine_idle_step(g) && !engine_given_up(g))
        ;
    metrics_refresh(g);
    return model_check(g->model, e);
}

#define NOTICE_NAMES 500 /* most bytes of names in a line */

/* Bytes of the names that fit in one line, at least one name. */
static size_t names_of_line(const char *from)
{
    size_t n = 0;

    for (;;) {
        const char *end = strstr(from + n + (n ? 2 : 0), ", ");
        size_t upto = end ? (size_t)(end - from) : strlen(from);

        if (n && upto > NOTICE_NAMES)
            return n;
        n = upto;
        if (!end)
            return n;
    }
}

/* Reports the names of all tensors of an adapter without a matching matrix. */
static void tell_unplaced(struct engine *g, const struct adapter_info *a)
{
    const char *from = a->unplaced;

    engine_notice(g, "%s: %d tensor%s of the adapter found no place in the model:", a->path,
                  a->n_unplaced, a->n_unplaced == 1 ? "" : "s");
    while (*from) {
        size_t n = names_of_line(from);

        engine_notice(g, "  %.*s", (int)n, from);
        from += from[n] ? n + 2 : n;
    }
}

/* Call before a device reads the matrices. */
static int open_adapters(struct engine *g, const struct engine_config *c, struct error *e)
{
    int rc = c->n_adapters
                 ? adapters_open(&g->adapters, g->model, c->adapters, c->n_adapters, true, e)
                 : 0;

    for (int i = 0; i < adapters_count(g->adapters); i++)
        if (adapters_at(g->adapters, i)->unplaced)
            tell_unplaced(g, adapters_at(g->adapters, i));
    g->config.adapters = NULL; /* the caller's */
    g->info.adapters = g->adapters;
    return rc;
}

static int open_edits(struct engine *g, const struct engine_config *c, struct error *e)
{
    int rc = 0;

    if (c->n_control)
        rc = control_vectors_open(&g->control, g->model, c->control, c->n_control, c->control_first,
                                  c->control_last, e);
    g->config.control = NULL; /* the caller's */
    g->config.n_control = 0;
    if (rc < 0)
        return rc;
    if (c->n_expert_edits)
        rc = expert_edits_read(&g->edits, NULL, &g->model->hp, c->expert_edits, c->n_expert_edits,
                               e);
    g->info.edits = g->edits;
    g->config.expert_edits = NULL; /* the caller's */
    g->config.n_expert_edits = 0;
    return rc;
}

/* Opens the parts that compute, once the model is loaded. */
static int open_parts(struct engine *g, const struct engine_config *c, struct error *e)
{
    const struct hparams *hp = &g->model->hp;
    int rc;

    if ((rc = go_on(g, e)) < 0 || (rc = load_tokenizer(g, e)) < 0 || (rc = check_config(g, e)) < 0)
        return rc;
    if ((rc = rope_init(&g->rope, hp, g->info.context, e)) < 0 || (rc = go_on(g, e)) < 0)
        return rc;
    g->state = (struct state_config){c->kv_k, c->kv_v, g->info.context, g->info.ubatch};
    if ((rc = open_cpu(g, e)) < 0 || (rc = go_on(g, e)) < 0)
        return rc;
    if ((rc = kv_init(&g->kv, g->model, g->slots, &g->state, e)) < 0)
        return rc;
    if ((rc = forward_init(&g->forward, g->model, g->slots, &g->kv, g->info.ubatch, e)) < 0)
        return rc;
    g->forward.hooks = (struct forward_hooks){.before_layer = session_hooks_layer,
                                              .notice = session_hooks_notice,
                                              .device_lost = place_device_lost,
                                              .distrust = session_hooks_distrust,
                                              .ctx = g};
    g->forward.trace = &g->trace;
    g->forward.control = g->control;
    g->forward.bandwidth = g->bandwidth;
    g->forward.defer = c->defer_experts;
    if (c->experts_least != 0.0f && (rc = engine_experts_least_set(g, c->experts_least, e)) < 0)
        return rc;
    if (c->experts_used && (rc = engine_experts_used_set(g, c->experts_used, e)) < 0)
        return rc;
    g->opened = lossy_now(g);
    return speculate_init(g, e);
}

/* Opens a session and its drafters. */
static int open_session(struct engine *g, struct session **out, struct error *e)
{
    int rc = session_new(out, g, e);

    if (rc == 0 && (rc = speculate_open(*out, e)) < 0) {
        session_free(*out);
        *out = NULL;
    }
    return rc;
}

/* The chat's session and its statistics. */
static int take_session(struct engine *g, struct error *e)
{
    const struct hparams *hp = &g->model->hp;

    g->plans = mem_alloc(TELEMETRY_PLANS, sizeof *g->plans);
    if (!g->plans || telemetry_init(&g->t, hp->n_layers, hp->n_experts, hp->n_experts_used) < 0 ||
        trace_init(&g->timeline, TELEMETRY_SPANS) < 0)
        return error_set(e, ERR_MEMORY, "no memory for telemetry");
    return open_session(g, &g->session, e);
}

/* Applies the initial placement. */
static int place_first(struct engine *g, const struct engine_config *c, struct error *e)
{
    char request[PLAN_NAME + 16];
    int rc;

    if ((rc = go_on(g, e)) < 0 || (rc = place_init(g, e)) < 0)
        return rc;
    if ((rc = place_now(g, c->placement ? c->placement : "cpu", e)) < 0)
        return rc;
    if (c->placement_prompt) {
        snprintf(request, sizeof request, "prompt %s", c->placement_prompt);
        if ((rc = place_now(g, request, e)) < 0)
            return rc;
    }
    return c->placement_script ? engine_script_set(g, c->placement_script, e) : 0;
}

/* Creates the resources shared by a model and its drafter, unless the caller passed some. */
static int take_resources(struct engine *g, struct error *e)
{
    int rc;

    if (g->config.resources)
        return 0;
    if ((rc = shared_resources_new(&g->own_resources, g->config.n_threads, e)) == 0)
        g->config.resources = g->own_resources;
    return rc;
}

/* Opens the draft model, if one is named. */
static int open_draft_model(struct engine *g, const struct engine_config *of, struct error *e)
{
    struct engine_config c = engine_draft_config(of, g->info.context);

    if (!of->drafting.model || !g->drafts)
        return 0;
    c.resources = g->config.resources;
    if (engine_open(&g->draft_model, &c, e) < 0)
        return error_prefix(e, "-md");
    return draft_model_check(g, g->draft_model, e);
}

/* Opens the MTP block, if its drafter is enabled; if it cannot be computed, that is a notice unless
 * the drafter was named. */
static int open_mtp_block(struct engine *g, const struct engine_config *of, struct error *e)
{
    struct engine_config c;
    struct error own = {0};
    int rc;

    if (!g->drafters[DRAFTER_mtp])
        return 0;
    c = engine_mtp_config(of, g->model, g->info.context);
    c.resources = g->config.resources;
    rc = engine_open(&g->mtp, &c, &own);
    if (rc == ERR_MODEL && strcmp(of->drafting.type, "auto") == 0) {
        g->drafters[DRAFTER_mtp] = false;
        engine_notice(g, "the block that predicts further tokens does not draft: %s", own.text);
        return 0;
    }
    if (rc < 0)
        *e = own;
    return rc;
}

/* Opens the drafters' engines, as far as needed. */
static int open_drafting(struct engine *g, const struct engine_config *of, struct error *e)
{
    int rc;

    if ((rc = open_draft_model(g, of, e)) < 0 || (rc = open_mtp_block(g, of, e)) < 0)
        return rc;
    return speculate_heads_open(g, e);
}

int engine_open(struct engine **out, const struct engine_config *c, struct error *e)
{
    struct engine *g = mem_alloc(1, sizeof *g);
    struct model_options o = {.convert = c->convert,
                              .exact = c->exact,
                              .overrides = c->overrides,
                              .mtp_of = c->mtp_of,
                              .mtp_used = engine_mtp_wanted(c),
                              .memory = c->memory,
                              .expert_cache = c->expert_cache,
                              .background = c->background,
                              .looked_at_once = LOOKED_AT_ONCE,
                              .reads_raw = cpu_reads_raw,
                              .progress = c->progress,
                              .stop = c->stop,
                              .progress_ctx = c->callback_ctx};
    struct error own = {0};
    int rc = 0;

    if (!e)
        e = &own;
    *out = NULL;
    if (!g)
        return error_set(e, ERR_MEMORY, "no memory for the engine");
    g->cancel_wake.fd = -1;
    g->bandwidth = &g->own_bandwidth;
    g->config = *c;
    g->config.model_path = mem_string(c->model_path);
    g->config.device_selector = mem_string(c->device_selector);
    g->config.cache_dir = mem_string(c->cache_dir);
    g->config.kernels = g->config.placement = g->config.placement_prompt = NULL;
    g->config.placement_script = NULL;
    g->pace = c->pace;
    g->plan_at[PHASE_TOKENS] = g->plan_at[PHASE_PROMPT] = g->charged = -1;
    if (!c->model_path) {
        rc = error_set(e, ERR_USAGE, "no model was named");
        goto out;
    }
    if (c->drafting.model && (rc = take_resources(g, e)) < 0)
        goto out;
    g->info.n_threads = g->config.resources
                            ? pool_threads(shared_resources_pool(g->config.resources))
                        : c->n_threads > 0 ? c->n_threads
                                           : topology_default_threads();
    if (!g->config.model_path || !g->config.device_selector != !c->device_selector ||
        !g->config.cache_dir != !c->cache_dir) {
        rc = error_set(e, ERR_MEMORY, "no memory for the engine");
        goto out;
    }
    if ((rc = cpu_kernels_select(c->kernels, e)) < 0 || (rc = wake_init(&g->cancel_wake, e)) < 0)
        goto out;
    o.width = cpu_pack_width();
    o.n_threads = g->info.n_threads;
    if ((rc = model_load(&g->model, c->model_path, &o, e)) < 0 ||
        (rc = open_adapters(g, c, e)) < 0 || (rc = open_edits(g, c, e)) < 0)
        goto out;
    if (g->model->has_mtp && engine_mtp_wanted(c) && (rc = take_resources(g, e)) < 0)
        goto out;
    if (g->config.resources)
        g->bandwidth = shared_resources_bandwidth(g->config.resources);
    if ((rc = open_parts(g, c, e)) < 0 || (rc = open_drafting(g, c, e)) < 0 ||
        (rc = take_session(g, e)) < 0)
        goto out;
    g->config.drafting.model = NULL; /* the caller's */
    g->info.model = g->model;
    g->info.tokenizer = g->tokenizer;
    g->info.chat = g->chat;
    g->info.kernels = cpu_kernels_name();
    metrics_init(g);
    if ((rc = place_first(g, c, e)) < 0 || (rc = disk_sessions_open(g, e)) < 0)
        goto out;
    g->config.prompt_cache = NULL; /* the caller's */
    /* at the start no token is delayed: the plan is in effect before the first one */
    rc = engine_settle(g, e);
    if (rc == 0)
        rc = routing_tap_open(g, e);
    if (rc == 0 && c->opened && (rc = go_on(g, e)) == 0)
        rc = c->opened(c->opened_ctx, g, e);
    if (rc == 0)
        rc = go_on(g, e);
out:
    if (rc < 0) {
        engine_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void engine_close(struct engine *g)
{
    if (!g)
        return;
    disk_sessions_close(g);
    place_release(g);
    for (int n = 0; n < g->n_sessions; n++)
        session_free(g->sessions[n]);
    engine_close(g->draft_model);
    engine_close(g->mtp);
    medusa_heads_free(g->medusa);
    pass_logits_free(g);
    session_beside_swap(g);
    pass_logits_free(g);
    session_beside_swap(g);
    for (int d = g->n_devices - 1; d >= 0; d--)
        g->slots[d].ops->close(g->slots[d].device);
    apart_release(&g->beside.apart);
    forward_release(&g->forward);
    kv_release(&g->kv);
    mem_free(g->sessions);
    pass_free(&g->pass);
    pass_free(&g->beside.pass);
    trace_release(&g->trace);
    trace_release(&g->timeline);
    rope_release(&g->rope);
    chat_template_free(g->chat);
    grammar_vocabulary_free(g->vocabulary);
    tokenizer_free(g->tokenizer);
    model_free(g->model);
    adapters_close(g->adapters);
    expert_edits_free(g->edits);
    control_vectors_free(g->control);
    telemetry_release(&g->t);
    wake_release(&g->cancel_wake);
    mem_free(g->plans);
    routing_tap_release(g);
    mem_free(g->used_trained);
    mem_free((char *)g->config.model_path);
    mem_free((char *)g->config.device_selector);
    mem_free((char *)g->config.cache_dir);
    shared_resources_free(g->own_resources);
    mem_free(g);
}

const struct engine_info *engine_info(const struct engine *g)
{
    return &g->info;
}

void engine_audit_set(struct engine *g, int n)
{
    g->config.audit = n > 0 ? n : 0;
    for (int d = 1; d < g->n_devices; d++)
        g->slots[d].health.until = 0;
    devices_audit(g);
}

int engine_tune(struct engine *g)
{
    uint64_t done, total;
    int n = 0, pos = model_packed(g->model, &done, &total) &&
                             g->session->n_tokens < g->info.context &&
                             !plan_uses_devices(g->in_force) &&
                             !plan_uses_devices(place_of_phase(g, PHASE_PROMPT))
                         ? g->session->n_tokens
                         : -1;

    model_hold(g->model, TUNE_HOLD); /* background packing would disturb the measurement */
    for (int i = 0; i < g->n_devices; i++)
        if (g->slots[i].ops->tune && !g->slots[i].lost)
            n += g->slots[i].ops->tune(g->slots[i].device, pos);
    model_hold(g->model, 0);
    return n;
}

bool engine_idle_step(struct engine *g)
{
    if (!g->busy && place_waits(g))
        place_safe_point(g);
    if (!g->busy && g->tune_due) {
        g->tune_due = false;
        engine_tune(g);
    }
    return (!g->busy && disk_sessions_step(g, true)) || place_pending(g);
}

int engine_routing_hooks_set(struct engine *g, const struct routing_hooks *h, struct error *e)
{
    int rc;

    routing_tap_release(g);
    g->config.routing = h;
    if ((rc = routing_tap_open(g, e)) < 0) {
        routing_tap_release(g);
        g->config.routing = NULL;
        return rc;
    }
    if (h)
        disk_sessions_stop(g, DISK_SESSIONS_WHOLE);
    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i])
            engine_session_forget(g->sessions[i]);
    return 0;
}

void engine_counting_set(struct engine *g, bool on)
{
    if (!on && !g->uncounted)
        memcpy(g->spec_before, g->spec, sizeof g->spec);
    if (on && g->uncounted)
        memcpy(g->spec, g->spec_before, sizeof g->spec); /* a re-planning strategy continues */
    g->uncounted = !on;
    if (on) {
        g->session->counted = g->session->n_tokens;
        metrics_plan(g);
    }
}

int engine_session_tokens(const struct engine *g, const int **ids)
{
    if (ids)
        *ids = g->session->tokens;
    return g->session->n_tokens;
}

void engine_session_clear(struct engine *g)
{
    size_t cells = (size_t)g->t.n_layers * (size_t)g->t.n_experts;

    session_rewind(g->session, 0);
    if (g->uncounted) /* beside the session: its counts stay */
        return;
    g->t.session_prompt_tokens = g->t.session_generated_tokens = 0;
    g->t.speculation = (struct speculation_figures){.wanted = g->drafts};
    g->reason = REASON_NONE;
    g->replan_at = 0;
    memset(g->t.answer, 0, cells * sizeof *g->t.answer);
    memset(g->t.session, 0, cells * sizeof *g->t.session);
    memset(g->t.now, 0, cells * sizeof *g->t.now);
    memset(g->t.newest, 0, cells);
    metrics_refresh(g);
}

void engine_session_rewind(struct engine *g, int n_tokens)
{
    session_rewind(g->session, n_tokens);
    metrics_refresh(g);
}

int engine_session_open(struct engine *g, struct session **out, struct error *e)
{
    struct error own = {0};

    return open_session(g, out, e ? e : &own);
}

int engine_session_turn(struct session *s, const struct turn *t,
                        int (*on_event)(void *ctx, struct event *ev), void *ctx, struct error *e)
{
    struct error own = {0};

    if (turn_running(s))
        return error_set(e, ERR_USAGE, "the session's answer is not over yet");
    return turn_begin(s, t, on_event, ctx, e ? e : &own);
}

void engine_session_hold(struct session *s, bool held)
{
    atomic_store(&s->held, held);
}

struct session *engine_session(struct engine *g)
{
    return g->session;
}

void engine_session_forget(struct session *s)
{
    session_rewind(s, 0);
}

int engine_session_strengths_set(struct session *s, const float *strengths)
{
    return session_strengths(s, strengths);
}

const float *engine_session_strengths(const struct session *s)
{
    return s->strengths;
}

int engine_session_edits_set(struct session *s, struct expert_edits *edits, struct error *e)
{
    int again;

    if (edits && (s->engine->routing.experts || s->engine->forward.imposed))
        return error_set(e, ERR_USAGE,
                         "the routing is imposed (--routing-replay): experts cannot "
                         "be edited");
    again = session_edits(s, edits);
    metrics_refresh(s->engine);
    return again;
}

struct expert_edits *engine_session_edits(const struct session *s)
{
    return s->edits;
}

static void stream_at(void *ctx, const struct forward *f, enum tap_point where, int layer)
{
    const struct engine *g = ctx;

    if (where == TAP_AFTER)
        g->stream_observer(g->stream_observer_ctx, layer, f->x, f->rows);
}

void engine_observe_stream(struct engine *g,
                           void (*fn)(void *ctx, int layer, const float *x, int rows), void *ctx)
{
    g->stream_observer = fn;
    g->stream_observer_ctx = ctx;
    g->stream_tap = (struct pass_tap){.at = stream_at, .ctx = g};
    g->forward.tap = fn ? &g->stream_tap : NULL;
}

void engine_session_close(struct session *s)
{
    session_free(s);
}

int engine_session_eval(struct session *s, const int *ids, int n, int chunk, float *logits,
                        bool all_logits, struct error *e)
{
    struct engine *g = s->engine;
    struct error own = {0};
    bool was_busy = g->busy;
    int rc;

    g->busy = true;
    rc = session_extend(s, ids, n, chunk > 0 ? chunk : g->info.ubatch, logits, all_logits,
                        e ? e : &own);
    g->busy = was_busy;
    /* this evaluation consumed the cancel; the next one starts clean */
    if (rc == ERR_CANCELLED)
        engine_session_uncancel(s);
    metrics_refresh(g);
    return rc;
}

int engine_sessions_eval(struct session *const *s, int n, const int *ids, struct error *e)
{
    struct engine *g = s[0]->engine;
    struct error own = {0};
    bool was_busy = g->busy;
    int rc;

    g->busy = true;
    rc = session_extend_all(s, n, ids, e ? e : &own);
    g->busy = was_busy;
    metrics_refresh(g);
    return rc;
}

int engine_eval_chunked(struct engine *g, const int *ids, int n, int chunk, float *logits,
                        bool all_logits, struct error *e)
{
    return engine_session_eval(g->session, ids, n, chunk, logits, all_logits, e);
}

int engine_eval(struct engine *g, const int *ids, int n, float *logits, bool all_logits,
                struct error *e)
{
    return engine_eval_chunked(g, ids, n, g->info.ubatch, logits, all_logits, e);
}

void engine_session_sampling_set(struct session *s, const struct sampling *values)
{
    sampler_set(&s->sampler, values);
}

void engine_pace_set(struct engine *g, double tokens_per_second)
{
    g->pace = tokens_per_second > 0.0 ? tokens_per_second : 0.0;
}

const struct telemetry *engine_telemetry(const struct engine *g)
{
    return &g->t;
}

void engine_events_set(struct engine *g, int (*on_event)(void *ctx, struct event *ev), void *ctx)
{
    g->on_event = on_event;
    g->event_ctx = ctx;
}

void engine_tick_set(struct engine *g, void (*tick)(void *ctx), void *ctx)
{
    g->tick = tick;
    g->tick_ctx = ctx;
}

void engine_observe(struct engine *g, void (*fn)(void *ctx, const struct routing *r), void *ctx)
{
    g->observer = fn;
    g->observer_ctx = ctx;
}

void engine_observe_passes(struct engine *g, void (*fn)(void *ctx, const struct routing *r),
                           void *ctx)
{
    g->pass_observer = fn;
    g->pass_observer_ctx = ctx;
}

struct engine *engine_draft_model(struct engine *g)
{
    return g->draft_model;
}

void engine_observe_matrices(struct engine *g, const struct device_observer *o)
{
    g->slots[0].ops->observe(g->slots[0].device, o);
    g->matrices_observed = o != NULL;
}

void engine_routing_impose(struct engine *g, const struct imposed_routing *r)
{
    g->forward.imposed = r;
}

int engine_trace_start(struct engine *g, size_t room, struct error *e)
{
    if (!room) {
        g->trace.active = false;
        return 0;
    }
    trace_release(&g->trace);
    if (trace_init(&g->trace, room) < 0)
        return error_set(e, ERR_MEMORY, "no memory for a trace of %zu spans", room);
    g->trace.active = true;
    return 0;
}

void engine_timeline_set(struct engine *g, bool on)
{
    g->timeline_wanted = on;
    g->timeline_ns = 0;
    if (!on)
        g->t.n_spans = 0;
}

const struct trace *engine_trace(const struct engine *g)
{
    return &g->trace;
}
