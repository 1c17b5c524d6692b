/* The figures as JSON (--stats-json). */
#include "app/stats/figures.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"

#include <jansson.h>
#include <math.h>

static json_t *number(double v)
{
    return isnan(v) || isinf(v) ? json_null() : json_real(v);
}

static json_t *whole(double v)
{
    return isnan(v) ? json_null() : json_integer((json_int_t)v);
}

static json_t *adapters_json(const struct stats *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->n_adapters; i++) {
        char hash[20];

        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->adapters[i].hash);
        json_array_append_new(
            list,
            json_pack("{s:s, s:f, s:i, s:i, s:i, s:i, s:I, s:s}", "name", s->adapters[i].name,
                      "strength", (double)s->adapters[i].strength, "rank", s->adapters[i].rank_most,
                      "matrices", s->adapters[i].matrices, "expert_matrices",
                      s->adapters[i].expert_matrices, "unplaced_tensors", s->adapters[i].unplaced,
                      "bytes", (json_int_t)s->adapters[i].bytes, "hash", hash));
    }
    return list;
}

static json_t *experts_json(const struct stats *s)
{
    json_t *layers = json_array();

    for (int l = 0; l < s->n_layers; l++) {
        const uint32_t *counts = s->experts + (size_t)l * (size_t)s->n_experts;
        json_t *row_json = json_array();
        double share;
        int best = stats_most_used(counts, s->n_experts, &share);

        for (int x = 0; x < s->n_experts; x++)
            json_array_append_new(row_json, json_integer(counts[x]));
        json_array_append_new(layers,
                              json_pack("{s:i, s:o, s:i, s:f, s:o}", "layer", l, "tokens", row_json,
                                        "most_used", best, "most_used_share", share, "evenness",
                                        number(stats_evenness(counts, s->n_experts))));
    }
    return layers;
}
static const char *const troubles[] = {
    [TROUBLE_NONE] = "none", [TROUBLE_SLOW] = "slow",   [TROUBLE_MEMORY] = "memory",
    [TROUBLE_LOST] = "lost", [TROUBLE_WRONG] = "wrong",
};

static json_t *devices_json(const struct stats *s)
{
    json_t *list = json_array();

    for (int d = 0; d < s->n_devices; d++) {
        const struct device_stats *v = &s->devices[d];
        const struct device_health *h = &s->health[d];

        json_array_append_new(
            list,
            json_pack("{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
                      " s:I, s:I, s:I, s:I, s:I, s:f, s:i, s:s, s:s}",
                      "name", s->device_names[d], "weight_bytes", (json_int_t)v->weight_bytes,
                      "kv_bytes", (json_int_t)v->kv_bytes, "scratch_bytes",
                      (json_int_t)(v->scratch_bytes + v->staging_bytes), "busy_ms",
                      (double)v->busy_ns / 1e6, "wait_ms", (double)v->wait_ns / 1e6, "transfer_ms",
                      (double)v->transfer_ns / 1e6, "jobs", (json_int_t)v->jobs, "failures",
                      (json_int_t)v->failures, "stream_buffer_bytes", (json_int_t)v->stream_bytes,
                      "streamed_experts", (json_int_t)v->streamed, "streamed_bytes",
                      (json_int_t)v->streamed_bytes, "prefetched_experts",
                      (json_int_t)v->prefetched, "prefetch_hits", (json_int_t)v->prefetch_hits,
                      "row_bytes", (json_int_t)v->row_bytes, "replayed_tokens",
                      (json_int_t)v->replayed, "recordings", (json_int_t)v->recorded, "audited",
                      (json_int_t)h->audited, "auditable", (json_int_t)(h->jobs - h->inexact),
                      "audits_missed", (json_int_t)h->missed, "audit_ms", (double)h->audit_ns / 1e6,
                      "returned_blocks", h->returned, "trouble", troubles[h->trouble],
                      "trouble_why", h->why));
    }
    return list;
}

static json_t *drafts_json(const struct speculation_figures *d)
{
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:s, s:s}", "wanted", d->wanted,
                     "changed", (json_int_t)d->changed, "drafted", (json_int_t)d->drafted,
                     "accepted", (json_int_t)d->accepted, "passes", (json_int_t)d->passes,
                     "passes_drafted", (json_int_t)d->passes_drafted, "accepted_share",
                     number(stats_share(d->accepted, d->drafted)), "gain", d->gain, "drafter",
                     d->from, "why_off", d->why);
}

static json_t *plans_json(const struct stats *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->n_plans && i < TELEMETRY_PLANS; i++) {
        const struct plan_metrics *p = &s->plans[i];

        json_array_append_new(
            list, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:f}", "name",
                            p->name, "tokens", (json_int_t)p->tokens, "decode_ms",
                            (double)p->decode_ns / 1e6, "mean_tok_s", p->mean_tok_s, "median_tok_s",
                            p->median_tok_s, "sd_tok_s", p->sd_tok_s, "switches",
                            (json_int_t)p->switches, "switch_tokens", (json_int_t)p->switch_tokens,
                            "longest_stall_ms", (double)p->stall_ns / 1e6, "stall_ms",
                            (double)p->stall_sum_ns / 1e6, "prompt_tokens",
                            (json_int_t)p->prompt_tokens, "prompt_tok_s", p->prompt_tok_s));
    }
    return list;
}

static json_t *verdict_json(const struct stats *s)
{
    const struct verdict *v = &s->verdict;
    char line[VERDICT_LINE];
    json_t *rows;

    if (!v->n_rows)
        return json_null();
    rows = json_array();
    verdict_line(v, line);
    for (int i = 0; i < v->n_rows; i++)
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f, s:f, s:f}", "plan", v->row[i].spec,
                                              "token_ms", v->row[i].ns[PHASE_TOKENS] * 1e-6,
                                              "token_error", v->row[i].error[PHASE_TOKENS],
                                              "prompt_token_ms", v->row[i].ns[PHASE_PROMPT] * 1e-6,
                                              "prompt_token_error", v->row[i].error[PHASE_PROMPT]));
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:f, s:I, s:i, s:i, s:o}", "line", line,
                     "devices", v->device, "tokens", v->spec[PHASE_TOKENS], "prompts",
                     v->spec[PHASE_PROMPT], "decided", (int)v->decided, "kept", (int)v->kept,
                     "seconds", (double)v->spent_ns * 1e-9, "copied_bytes", (json_int_t)v->bytes,
                     "layers_sampled", v->layers, "layers", v->of_layers, "table", rows);
}

static json_t *paged_json(const struct stats *s)
{
    const struct expert_cache_stats *p = &s->paged;

    if (!p->slots)
        return json_null();
    return json_pack("{s:I, s:i, s:i, s:i, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:f, s:f}",
                     "bytes", (json_int_t)p->bytes, "slots", p->slots, "in_memory", p->here,
                     "experts", p->experts, "hits", (json_int_t)p->hits, "misses",
                     (json_int_t)p->misses, "hit_rate", number(stats_hit_rate(p)), "missed_bytes",
                     (json_int_t)p->missed_bytes, "read_ahead", (json_int_t)p->guesses,
                     "read_ahead_hits", (json_int_t)p->guess_hits, "read_bytes",
                     (json_int_t)p->read_bytes, "read_bytes_per_second",
                     number(p->read_ns ? clock_rate((double)p->read_bytes, p->read_ns) : NAN),
                     "wait_ms", (double)p->wait_ns / 1e6, "disk_share", stats_disk_share(s));
}

static json_t *model_json(const struct stats *s)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:s, s:s, s:i, s:i}", "name", s->model, "type",
                     s->type, "kernels", s->kernels, "read_pattern", s->pattern,
                     "read_pattern_measured", s->pattern_measured, "threads", s->n_threads, "plan",
                     s->plan, "prompt_plan", s->prompt_plan[0] ? s->prompt_plan : s->plan,
                     "context_used", s->context_used, "context_size", s->context_size);
}

static json_t *cache_json(const struct stats *s)
{
    return json_pack("{s:I, s:f, s:i, s:o, s:s?}", "lost_tokens", (json_int_t)s->lost_tokens,
                     "lost_seconds", s->lost_seconds, "turns_with_losses", s->lost_turns,
                     "first_difference", s->lost_turns ? json_integer(s->lost_at) : json_null(),
                     "why", s->lost_why);
}

static json_t *tokens_json(const struct stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "prompt", (json_int_t)s->prompt_tokens, "cached",
                     (json_int_t)s->cached_tokens, "recomputed", (json_int_t)s->recomputed_tokens,
                     "generated", (json_int_t)s->generated_tokens, "total",
                     (json_int_t)(s->prompt_tokens + s->generated_tokens));
}

static json_t *grammar_json(const struct stats *s)
{
    if (!s->ruled_tokens)
        return json_null();
    return json_pack("{s:I, s:f}", "tokens", (json_int_t)s->ruled_tokens, "forbidden",
                     s->forbidden / (double)s->ruled_tokens);
}

static json_t *time_json(const struct stats *s)
{
    double rate = stats_decode_rate(s), prefill = stats_prefill_rate(s);

    return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o}", "ttft_ms", (double)s->ttft_ns / 1e6,
                     "prefill_ms", (double)s->prefill_ns / 1e6, "decode_ms",
                     (double)s->decode_ns / 1e6, "total_ms", (double)s->total_ns / 1e6,
                     "prefill_tok_s", number(prefill > 0 ? prefill : NAN), "decode_tok_s",
                     number(rate > 0 ? rate : NAN));
}

static json_t *memory_json(const struct stats *s)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "weights_packed_bytes", (json_int_t)s->weights_packed, "weights_mapped_bytes",
        (json_int_t)s->weights_mapped, "kv_bytes", (json_int_t)s->kv_bytes, "kv_used_bytes",
        (json_int_t)s->kv_used_bytes, "scratch_bytes", (json_int_t)s->scratch_bytes,
        "control_vector_bytes", (json_int_t)s->control_bytes, "token_bytes",
        (json_int_t)s->active_bytes, "in_cache", s->in_cache, "read_disturbed",
        s->bandwidth_disturbed, "read_bytes_per_second",
        number(s->bandwidth > 0 ? s->bandwidth : NAN), "rss_bytes",
        whole(stats_known(s->last->rss)), "peak_rss_bytes", whole(stats_known(s->last->rss_peak)),
        "percent", number(100 * stats_memory_share(s)), "total_bytes",
        whole(stats_known(s->last->memory_total)), "available_bytes",
        whole(stats_known(s->last->memory_available)), "swap_bytes",
        whole(stats_known(s->last->process_swap)), "major_faults",
        whole(stats_since(s->first->major_faults, s->last->major_faults)));
}

static json_t *cpu_json(const struct stats *s)
{
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:b, s:o, s:o}", "name",
                     system_cpu_name(s->system), "cores", s->last->n_cores, "cores_used",
                     stats_cores_used(s), "use_percent",
                     s->last->n_cores ? 100 * stats_cores_used(s) / s->last->n_cores : 0.0,
                     "others_cores_used", stats_others_used(s), "waited_share", stats_waited(s),
                     "starved", stats_starved(s), "mhz", number(s->last->mhz), "temperature_c",
                     number(s->last->temperature));
}

static json_t *energy_json(const struct stats *s)
{
    bool known = s->energy_seconds > 0;

    return json_pack("{s:o, s:o, s:o, s:f, s:s}", "processor_joules",
                     number(known ? s->joules[ENERGY_PACKAGE] : NAN), "gpu_joules",
                     number(known ? s->joules[ENERGY_GPU] : NAN), "processor_joules_per_token",
                     number(stats_joules_a_token(s, ENERGY_PACKAGE)), "seconds", s->energy_seconds,
                     "why_not", energy_why(s->energy));
}

static json_t *disk_json(const struct stats *s)
{
    const struct system_sample *a = s->first, *b = s->last;

    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "read_bytes",
                     whole(stats_since(a->read_bytes, b->read_bytes)), "written_bytes",
                     whole(stats_since(a->write_bytes, b->write_bytes)), "read_calls",
                     whole(stats_since(a->read_calls, b->read_calls)), "write_calls",
                     whole(stats_since(a->write_calls, b->write_calls)), "system_read_operations",
                     whole(stats_since(a->disk_reads, b->disk_reads)), "system_write_operations",
                     whole(stats_since(a->disk_writes, b->disk_writes)));
}

static json_t *moves_json(const struct stats *s)
{
    double stall = s->stall_token_ns ? (double)s->stall_ns / (double)s->stall_token_ns : NAN;

    return json_pack("{s:I, s:f, s:o, s:s}", "bytes", (json_int_t)s->moved_bytes,
                     "longest_stall_ms", (double)s->stall_ns / 1e6, "longest_stall_tokens",
                     number(stall), "longest_stall_plan", s->stall_plan);
}

static json_t *handover_json(const struct stats *s)
{
    return json_pack("{s:I, s:f}", "bytes", (json_int_t)s->handover_bytes, "ms",
                     (double)s->handover_ns * 1e-6);
}

static json_t *at_once_json(const struct stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:f, s:f}", "pieces", (json_int_t)s->at_once.pieces,
                     "prompt_tokens", (json_int_t)s->at_once.rows, "tokens",
                     (json_int_t)s->at_once.tokens, "seconds", clock_seconds(s->at_once.ns),
                     "seconds_by_turns", clock_seconds(s->at_once.turns_ns));
}

static json_t *to_json(const struct stats *s)
{
    char text[768];
    json_t *root = json_object();

    stats_interpret(s, text, sizeof text);
    json_object_set_new(root, "moetop", json_string(MOETOP_VERSION));
    json_object_set_new(root, "model", model_json(s));
    json_object_set_new(root, "cache", cache_json(s));
    json_object_set_new(root, "server", s->server[0] ? json_string(s->server) : json_null());
    json_object_set_new(root, "turns", json_integer(s->turns));
    json_object_set_new(root, "stop_reason", json_string(stop_reason_word(s->reason)));
    json_object_set_new(root, "tokens", tokens_json(s));
    json_object_set_new(root, "grammar", grammar_json(s));
    json_object_set_new(root, "time", time_json(s));
    json_object_set_new(root, "memory", memory_json(s));
    json_object_set_new(root, "cpu", cpu_json(s));
    json_object_set_new(root, "energy", energy_json(s));
    json_object_set_new(root, "disk", disk_json(s));
    json_object_set_new(root, "speculation", drafts_json(&s->speculation));
    json_object_set_new(root, "adapters", adapters_json(s));
    json_object_set_new(root, "expert_edits", json_string(s->edits));
    json_object_set_new(root, "edited_experts", json_integer(s->n_edits));
    json_object_set_new(root, "expert_cache", paged_json(s));
    json_object_set_new(root, "devices", devices_json(s));
    json_object_set_new(root, "placements", plans_json(s));
    json_object_set_new(root, "auto", verdict_json(s));
    json_object_set_new(root, "moves", moves_json(s));
    json_object_set_new(root, "handover", handover_json(s));
    json_object_set_new(root, "at_once", at_once_json(s));
    json_object_set_new(root, "experts", s->experts ? experts_json(s) : json_null());
    if (s->beside)
        json_object_set(root, "beside", s->beside);
    if (s->receipt)
        json_object_set(root, "receipt", s->receipt);
    json_object_set_new(root, "interpretation", json_string(text));
    return root;
}

int stats_write_json(const struct stats *s, const char *path, struct error *e)
{
    return json_write_file(to_json(s), path, JSON_INDENT(2) | JSON_REAL_PRECISION(9), e);
}
