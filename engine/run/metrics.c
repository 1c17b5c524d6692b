/* The engine's figures, shown by the panels. Engine thread; everything is allocated at init, so
 * nothing here allocates. Each figure has one source: counts from the computed routing, times from
 * CLOCK_MONOTONIC around it, bytes from the devices. */
#include "engine/adapter/control.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/device/expert_edits.h"
#include "engine/device/state.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "engine/run/distinct_experts.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HALF_LIFE 16.0 /* tokens: decay of `now` */
#define MEDIAN_NS (250 * CLOCK_MILLI)
#define STALL_TOKENS 15 /* newest tokens that a stall is compared with */

/* Bytes of weights that decoding one token reads: all of attention, router and head, the routed
 * experts (at their mean size), one embedding row. */
static uint64_t active_bytes(const struct model *m)
{
    uint64_t sum = model_block_parts(m, (struct block_id){BLOCK_HEAD, 0, 0}).matrices +
                   (uint64_t)m->hp.hidden * 4;

    for (int l = 0; l < m->hp.n_layers; l++) {
        struct block_bytes b = model_block_parts(m, (struct block_id){BLOCK_ATTENTION, l, 0});

        sum += model_token_mixer(m, l) + b.router + model_token_experts(m, l);
    }
    return sum;
}

void metrics_init(struct engine *g)
{
    g->token_weight_bytes = active_bytes(g->model);
    g->t.n_experts_used = g->model->hp.n_experts_used;
    for (int l = 0; l < g->t.n_layers && l < TELEMETRY_LAYERS; l++) {
        const struct layer_shape *s = hparams_layer(&g->model->hp, l);

        g->t.routed[l] = (uint16_t)s->ffn.experts;
        g->t.blocks[l] = shape_experts(s) ? (uint16_t)shape_experts(s) : TELEMETRY_MIXER;
    }
    g->t.context_size = g->info.context;
    g->t.weights_packed = g->model->packed_bytes;
    g->t.weights_mapped = g->model->mapped_bytes;
    g->t.token_weight_bytes = g->token_weight_bytes;
    g->t.speculation.wanted = g->drafts;
    g->utility.expert = distinct_experts_share(g->model, (double)g->token_weight_bytes);
    g->t.state = ENGINE_IDLE;
    g->plan_at[PHASE_TOKENS] = g->plan_at[PHASE_PROMPT] = g->charged = -1;
}

void metrics_turn(struct engine *g, const struct turn_done_event *turn)
{
    struct telemetry *t = &g->t;

    t->prompt_tokens = turn->prompt_tokens;
    t->cached_tokens = turn->cached_tokens;
    t->recomputed_tokens = turn->recomputed_tokens;
    t->prefilled_tokens = t->generated_tokens = 0;
    t->first_token_ns = t->last_token_ns = 0;
    t->prefill_ns = t->decode_ns = t->paused_ns = 0;
    memset(t->answer, 0, (size_t)(t->n_layers * t->n_experts) * sizeof *t->answer);
}

void metrics_routed(struct engine *g, int first_row, int end_row, bool decode)
{
    const struct forward *f = &g->forward;
    struct telemetry *t = &g->t;
    int used = t->n_experts_used, cells = t->n_layers * t->n_experts;
    float fade = (float)pow(0.5, 1.0 / HALF_LIFE);
    uint16_t *route = t->routes + t->session_generated_tokens % TELEMETRY_ROUTES *
                                      (uint64_t)(t->n_layers * used);

    for (int row = first_row; row < end_row; row++) {
        bool newest = row == end_row - 1;

        for (int i = 0; i < cells; i++)
            t->now[i] *= fade;
        if (newest)
            memset(t->newest, 0, (size_t)cells);
        for (int l = 0; l < t->n_layers; l++)
            for (int s = 0; s < used; s++) {
                int expert = f->experts[((size_t)l * (size_t)f->rows + (size_t)row) * (size_t)used +
                                        (size_t)s],
                    cell = l * t->n_experts + expert;

                if (newest)
                    route[l * used + s] = (uint16_t)expert; /* TELEMETRY_NO_EXPERT: an empty slot */
                if (expert < 0)
                    continue;
                t->session[cell]++;
                t->answer[cell] += decode;
                t->now[cell] += 1.0f;
                if (newest)
                    t->newest[cell] = (uint8_t)(1 + s);
            }
    }
}

static uint64_t tokens_of(const struct plan_metrics *p)
{
    return p->tokens + p->prompt_tokens;
}

/* The record of a plan; if all are in use, the one with the fewest tokens is replaced, but not
 * `kept` (-1: any). */
static int record_of(struct engine *g, const char *name, int kept)
{
    struct telemetry *t = &g->t;
    int at = 0;

    for (int i = 0; i < t->n_plans; i++)
        if (strcmp(t->plans[i].name, name) == 0)
            return i;
    if (t->n_plans < TELEMETRY_PLANS) {
        at = t->n_plans++;
    } else {
        at = kept == 0;
        for (int i = at + 1; i < TELEMETRY_PLANS; i++)
            if (i != kept && tokens_of(&t->plans[i]) < tokens_of(&t->plans[at]))
                at = i;
    }
    memset(&t->plans[at], 0, sizeof t->plans[at]);
    memset(&g->plans[at], 0, sizeof g->plans[at]);
    memcpy(t->plans[at].name, name, strnlen(name, sizeof t->plans[at].name - 1));
    return at;
}

static int sessions_open(const struct engine *g)
{
    int n = 0;

    for (int i = 0; i < g->n_sessions; i++)
        n += g->sessions[i] != NULL;
    return n;
}

/* Charges the devices' work since the last call to the plan of the newest pass. */
static void charge_devices(struct engine *g)
{
    struct plan_metrics *p = g->charged < 0 ? NULL : &g->t.plans[g->charged];
    uint64_t busy = 0;

    g->t.kv_bytes = g->t.kv_used_bytes = g->t.scratch_bytes = 0;
    for (int d = 0; d < g->n_devices; d++) {
        struct device_stats *now = &g->t.devices[d], *before = &g->last_stats[d];

        memset(now, 0, sizeof *now);
        g->slots[d].ops->stats(g->slots[d].device, now);
        g->t.kv_bytes += now->kv_bytes;
        g->t.kv_used_bytes += now->kv_used_bytes;
        g->t.scratch_bytes += now->scratch_bytes + now->staging_bytes + now->stream_bytes;
        if (p) {
            p->wait_ns += now->wait_ns - before->wait_ns;
            p->transfer_ns += now->transfer_ns - before->transfer_ns;
            g->plans[g->charged].busy_ns[d] += now->busy_ns - before->busy_ns;
            busy += g->plans[g->charged].busy_ns[d];
        }
        *before = *now;
    }
    for (int d = 0; p && d < DEVICE_MAX; d++)
        p->share[d] = busy && d < g->n_devices
                          ? (double)g->plans[g->charged].busy_ns[d] / (double)busy
                          : 0.0;
    g->t.n_devices = g->n_devices;
    g->t.scratch_bytes += g->forward.scratch_bytes + g->rope.bytes +
                          session_footprint(&g->model->hp, &g->state, sessions_open(g)) +
                          g->draft_bytes;
}

void metrics_expect(struct engine *g)
{
    if (g->plan_at[PHASE_TOKENS] >= 0)
        place_expect(g, PHASE_TOKENS, &g->t.plans[g->plan_at[PHASE_TOKENS]].expected_tok_s);
    if (g->plan_at[PHASE_PROMPT] >= 0)
        place_expect(g, PHASE_PROMPT, &g->t.plans[g->plan_at[PHASE_PROMPT]].expected_prompt_tok_s);
}

void metrics_plan(struct engine *g)
{
    const struct plan *tokens = residency_wanted(g->residency),
                      *prompts = residency_wanted_prompt(g->residency);

    charge_devices(g);
    if (g->uncounted) { /* trial, not counted */
        g->plan_at[PHASE_TOKENS] = g->plan_at[PHASE_PROMPT] = g->charged = -1;
        return;
    }
    g->plan_at[PHASE_TOKENS] = record_of(g, tokens->name, -1);
    g->plan_at[PHASE_PROMPT] = prompts ? record_of(g, prompts->name, g->plan_at[PHASE_TOKENS])
                                       : g->plan_at[PHASE_TOKENS];
    g->charged = g->plan_at[g->phase];
    metrics_expect(g);
    snprintf(g->t.plan, sizeof g->t.plan, "%s", tokens->name);
    snprintf(g->t.prompt_plan, sizeof g->t.prompt_plan, "%s", prompts ? prompts->name : "");
}

void metrics_phase(struct engine *g, enum plan_phase phase)
{
    g->phase = phase;
    if (g->plan_at[phase] == g->charged)
        return;
    charge_devices(g);
    g->charged = g->plan_at[phase];
}

void metrics_prompt(struct engine *g, int rows, uint64_t ns)
{
    if (g->plan_at[PHASE_PROMPT] < 0)
        return;
    g->t.plans[g->plan_at[PHASE_PROMPT]].prompt_tokens += (uint64_t)rows;
    g->t.plans[g->plan_at[PHASE_PROMPT]].prompt_ns += ns;
}

void metrics_token(struct engine *g, bool told, uint64_t compute_ns)
{
    struct telemetry *t = &g->t;

    t->generated_tokens += told;
    t->session_generated_tokens++;
    if (told && t->generated_tokens == 1 && g->plan_at[PHASE_TOKENS] >= 0)
        t->plans[g->plan_at[PHASE_TOKENS]].ttft_ns = t->first_token_ns - t->turn_start_ns;
    if (!compute_ns)
        return;
    t->recent_us[t->recent_count++ % TELEMETRY_RECENT] =
        (uint32_t)(compute_ns / 1000 < UINT32_MAX ? compute_ns / 1000 : UINT32_MAX);
    if (g->plan_at[PHASE_TOKENS] >= 0) {
        struct plan_metrics *p = &t->plans[g->plan_at[PHASE_TOKENS]];

        g->plans[g->plan_at[PHASE_TOKENS]].token_s[p->tokens++ % PLAN_WINDOW] = 1e-9 *
                                                                                (double)compute_ns;
        p->decode_ns += compute_ns;
    }
}

void metrics_switched(struct engine *g)
{
    if (g->plan_at[PHASE_TOKENS] >= 0 && g->busy && g->t.state == ENGINE_DECODE)
        g->t.plans[g->plan_at[PHASE_TOKENS]].switches++;
}

uint64_t metrics_token_ns(const struct engine *g)
{
    const struct telemetry *t = &g->t;
    double recent[STALL_TOKENS];
    struct series_figures f;
    size_t n = t->recent_count < STALL_TOKENS ? (size_t)t->recent_count : STALL_TOKENS;

    for (size_t i = 0; i < n; i++)
        recent[i] = 1e3 * t->recent_us[(t->recent_count - 1 - i) % TELEMETRY_RECENT];
    series_summarise_sorted(recent, n, &f);
    return (uint64_t)f.median;
}

void metrics_stall(struct engine *g, uint64_t ns, bool pending)
{
    struct telemetry *t = &g->t;

    if (g->plan_at[PHASE_TOKENS] < 0)
        return;
    t->plans[g->plan_at[PHASE_TOKENS]].switch_tokens += pending;
    t->plans[g->plan_at[PHASE_TOKENS]].stall_sum_ns += ns;
    if (ns > t->plans[g->plan_at[PHASE_TOKENS]].stall_ns)
        t->plans[g->plan_at[PHASE_TOKENS]].stall_ns = ns;
    if (ns <= t->stall_ns)
        return;
    t->stall_ns = ns;
    t->stall_token_ns = metrics_token_ns(g);
    memcpy(t->stall_plan, t->plan, sizeof t->stall_plan);
}

/* Mean over all tokens of the plan; median, quartiles and deviation of tokens/s over the newest
 * PLAN_WINDOW ones. */
static void plan_rates(struct engine *g)
{
    double sorted[PLAN_WINDOW];

    for (int i = 0; i < g->t.n_plans; i++) {
        struct plan_metrics *p = &g->t.plans[i];
        size_t n = p->tokens < PLAN_WINDOW ? (size_t)p->tokens : PLAN_WINDOW;
        struct series_figures f;

        for (size_t k = 0; k < n; k++)
            sorted[k] = 1.0 / g->plans[i].token_s[k];
        series_summarise_sorted(sorted, n, &f);
        p->mean_tok_s = clock_rate((double)p->tokens, p->decode_ns);
        p->prompt_tok_s = clock_rate((double)p->prompt_tokens, p->prompt_ns);
        p->median_tok_s = f.median;
        p->sd_tok_s = f.sd;
        p->q1_tok_s = series_percentile(sorted, n, 25);
        p->q3_tok_s = series_percentile(sorted, n, 75);
    }
}

void metrics_timeline_begin(struct engine *g, uint64_t now)
{
    if (!g->timeline_wanted || g->trace.active || now - g->timeline_ns < CLOCK_SECOND)
        return;
    g->timeline_ns = now;
    g->timeline.n = 0;
    g->timeline.active = true;
    g->forward.trace = &g->timeline;
}

void metrics_timeline_end(struct engine *g)
{
    const struct trace *t = &g->timeline;

    if (!t->active)
        return;
    g->timeline.active = false;
    g->forward.trace = &g->trace;
    g->t.n_spans = (int)t->n;
    for (size_t i = 0; i < t->n; i++)
        g->t.spans[i] = (struct telemetry_span){
            .start_us = (uint32_t)((t->entries[i].start_ns - g->timeline_ns) / 1000),
            .duration_us = (uint32_t)((t->entries[i].end_ns - t->entries[i].start_ns) / 1000),
            .layer = t->entries[i].layer,
            .kind = t->entries[i].kind,
            .device = t->entries[i].device};
}

/* Disk figures since the last call, if there were any reads. */
static void disk_rates(struct engine *g, uint64_t now)
{
    struct telemetry *t = &g->t;
    const struct expert_cache_stats *a = &g->disk_before, *b = &t->disk;
    uint64_t asked = b->hits + b->misses - a->hits - a->misses;

    if (asked && now > g->metrics_ns) {
        t->disk_hits = (double)(b->hits - a->hits) / (double)asked;
        t->disk_share = fmin(1, (double)(b->wait_ns - a->wait_ns) / (double)(now - g->metrics_ns));
    }
    if (b->read_ns > a->read_ns)
        t->disk_rate = clock_rate((double)(b->read_bytes - a->read_bytes), b->read_ns - a->read_ns);
    g->disk_before = *b;
}

/* Where each expert ran last; if prompts and tokens differ, where those that ran would run in this
 * phase: the map shows what computes now. */
static void ran_on(struct engine *g, enum plan_phase phase)
{
    const uint8_t *ran = g->forward.ran_on, *now = place_of_phase(g, phase)->experts;
    bool apart = place_apart(g);

    for (int i = 0; i < g->t.n_layers * g->t.n_experts; i++)
        g->t.ran_on[i] = apart && ran[i] != PLAN_NO_DEVICE ? now[i] : ran[i];
}

/* The edits of the chat's session, if they are others than before. */
static void take_edits(struct engine *g)
{
    const struct expert_edits *x = g->session->edits;
    struct telemetry *t = &g->t;

    t->edits_others = !expert_edits_equal(x, g->edits);
    if (t->edits_hash == (x ? x->hash : 0))
        return;
    t->edits_hash = x ? x->hash : 0;
    t->n_edits = x ? x->n : 0;
    snprintf(t->edits, sizeof t->edits, "%s", x ? x->text : "");
    for (int l = 0; l < t->n_layers; l++)
        for (int i = 0; i < t->n_experts; i++)
            t->edited[l * t->n_experts + i] = expert_edits_marks(x, l, i);
}

void metrics_refresh(struct engine *g)
{
    struct telemetry *t = &g->t;
    const struct model *m = g->model;
    enum plan_phase phase = g->busy ? g->phase : PHASE_TOKENS;
    struct residency_status s = residency_status(g->residency, g->in_force);
    uint64_t now = clock_now();

    charge_devices(g);
    t->serial++;
    t->context_used = g->session->n_tokens;
    t->prefill_tok_s = clock_rate(t->prefilled_tokens, t->prefill_ns ? t->prefill_ns
                                                       : t->turn_start_ns && t->prefilled_tokens
                                                           ? now - t->turn_start_ns
                                                           : 0);
    t->decode_tok_s = t->generated_tokens > 1 ? clock_rate(t->generated_tokens - 1, t->decode_ns)
                                              : 0.0;
    t->pace = g->pace;
    t->audit = g->config.audit;
    for (int d = 1; d < g->n_devices; d++) {
        t->health[d] = g->slots[d].health;
        t->launch_ns[d] = (uint64_t)job_cost_typical(&g->slots[d].launch);
        t->handoff_wait_ns[d] = (uint64_t)job_cost_typical(&g->slots[d].handoff);
        t->handoff_wait_ns[d] -= t->launch_ns[d] < t->handoff_wait_ns[d] ? t->launch_ns[d]
                                                                         : t->handoff_wait_ns[d];
    }
    t->n_adapters = adapters_count(g->adapters);
    take_edits(g);
    t->adapter_bytes = adapters_bytes(g->adapters);
    t->control_bytes = control_vectors_bytes(g->control);
    memcpy(t->strengths, g->session->strengths, sizeof t->strengths);
    t->token_kv_bytes = state_read_bytes(&m->hp, g->config.kv_k, g->config.kv_v,
                                         g->session->n_tokens, 1);
    t->moves_pending = s.pending;
    t->moves_pending_bytes = s.pending_bytes;
    t->moved_bytes = s.moved_bytes;
    t->bandwidth_on = g->bandwidth->active;
    t->bandwidth_taken = atomic_load_explicit(&g->bandwidth->taken, memory_order_relaxed);
    t->bandwidth_waited_ns = atomic_load_explicit(&g->bandwidth->waited_ns, memory_order_relaxed);
    t->phase = phase;
    t->handover_ns = g->forward.handover_ns;
    t->handover_bytes = g->forward.handover_bytes;
    ran_on(g, phase);
    t->disk = expert_cache_stats(m->cache);
    if (g->stored.cache)
        t->stored = prompt_cache_look(g->stored.cache);
    if (m->cache)
        expert_cache_map(m->cache, t->here);
    memcpy(t->planned,
           phase == PHASE_PROMPT && residency_wanted_prompt(g->residency)
               ? residency_wanted_prompt(g->residency)->experts
               : residency_wanted(g->residency)->experts,
           (size_t)(t->n_layers * t->n_experts));
    if (now - g->metrics_ns >= MEDIAN_NS || t->state == ENGINE_IDLE) {
        disk_rates(g, now);
        g->metrics_ns = now;
        plan_rates(g);
    }
}

int pass_bucket_most(int bucket)
{
    static const int most[PASS_BUCKETS] = {1, 2, 3, 4, 6, 8, 16, 32, 64, INT_MAX};

    return most[bucket];
}

void metrics_pass(struct engine *g, int rows, int answers)
{
    struct pass_figures *p = &g->t.passes;
    int bucket = 0;

    p->passes++;
    p->rows += (uint64_t)rows;
    if (!answers)
        return;
    p->answering++;
    p->answered += (uint64_t)answers;
    while (answers > pass_bucket_most(bucket))
        bucket++;
    p->answers[bucket]++;
}
