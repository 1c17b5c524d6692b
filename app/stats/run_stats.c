/* See run_stats.h: what is collected, and when. Each figure is computed in one place (figures.c);
 * table, JSON and the interpretation read the same struct, so they always agree. */
#include "app/stats/run_stats.h"

#include "app/common/paths.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/device/cpu/tuning/microbench.h"
#include "engine/model/model.h"
#include "engine/run/report/roofline.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int stats_open(struct stats *s, const struct options *o, struct error *e)
{
    struct stat st;

    *s = (struct stats){0};
    s->system = system_new("");
    s->energy = energy_new("");
    s->first = mem_alloc(1, sizeof *s->first);
    s->last = mem_alloc(1, sizeof *s->last);
    s->begun = mem_alloc(1, sizeof *s->begun);
    if (!s->system || !s->energy || !s->first || !s->last || !s->begun)
        return error_set(e, ERR_MEMORY, "out of memory");
    system_read(s->system, s->first);
    *s->last = *s->first;
    s->cache_dir = o && o->tune != DEVICE_TUNE_OFF ? paths_cache(o->cache_dir) : NULL;
    /* Reported now, not after the run. A pipe is not opened: its reader would take closing it for
     * the end. */
    if (o && o->stats_json && (stat(o->stats_json, &st) < 0 || !S_ISFIFO(st.st_mode))) {
        int fd = file_open_write(o->stats_json, O_CREAT | O_APPEND, 0666, e);

        if (fd < 0)
            return error_prefix(e, "--stats-json");
        close(fd);
    }
    return 0;
}

void stats_release(struct stats *s)
{
    system_free(s->system);
    energy_free(s->energy);
    mem_free(s->first);
    mem_free(s->last);
    mem_free(s->begun);
    mem_free(s->experts);
    json_decref(s->receipt);
    json_decref(s->beside);
    *s = (struct stats){0};
}

void stats_restart(struct stats *s)
{
    struct stats fresh = {.system = s->system,
                          .first = s->first,
                          .last = s->last,
                          .begun = s->begun,
                          .energy = s->energy,
                          .cache_dir = s->cache_dir};

    mem_free(s->experts);
    json_decref(s->receipt);
    json_decref(s->beside);
    *s = fresh;
    system_read(s->system, s->first);
    *s->last = *s->first;
    s->begun->time_ns = 0;
}

void stats_begin_turn(struct stats *s)
{
    system_read(s->system, s->begun);
    energy_read(s->energy, &s->energy_begun);
}

static void add_energy(struct stats *s)
{
    struct energy_reading now;

    energy_read(s->energy, &now);
    for (int i = 0; i < ENERGY_SOURCES; i++)
        s->joules[i] += now.joules[i] - s->energy_begun.joules[i];
    s->energy_seconds += clock_seconds(now.time_ns - s->energy_begun.time_ns);
}

void stats_add_turn(struct stats *s, const struct turn_done_event *done)
{
    if (s->begun->time_ns) {
        machine_load_end(s->system, s->begun, &s->load);
        add_energy(s);
    }
    s->begun->time_ns = 0;
    s->turns++;
    s->prompt_tokens += (uint64_t)done->prompt_tokens;
    s->cached_tokens += (uint64_t)done->cached_tokens;
    s->recomputed_tokens += (uint64_t)done->recomputed_tokens;
    s->generated_tokens += (uint64_t)done->completion_tokens;
    if (done->completion_tokens > 1)
        s->later_tokens += (uint64_t)done->completion_tokens - 1;
    s->ruled_tokens += (uint64_t)done->ruled_tokens;
    s->forbidden += done->forbidden;
    s->ttft_ns = done->ttft_ns;
    s->prefill_ns += done->prefill_ns;
    s->decode_ns += done->decode_ns;
    s->total_ns += done->total_ns;
    s->reason = done->reason;
}

void stats_cache(struct stats *s, int lost, double seconds, int at, const char *why)
{
    if (!lost)
        return;
    s->lost_tokens += (uint64_t)lost;
    s->lost_seconds += seconds;
    s->lost_turns++;
    s->lost_at = at;
    s->lost_why = why;
}

void stats_remote(struct stats *s, const char *model, const char *server)
{
    snprintf(s->model, sizeof s->model, "%s", model);
    snprintf(s->server, sizeof s->server, "%s", server);
}

static void take_pattern(struct stats *s, const struct model *m)
{
    enum pattern_id id = cpu_pattern_chosen(s->cache_dir, m->type, m->hp.hidden, s->n_threads,
                                            &s->pattern_measured);

    snprintf(s->pattern, sizeof s->pattern, "%s", pattern_of[id].word);
}

static void take_adapters(struct stats *s, const struct adapters *all, const struct telemetry *t)
{
    s->n_adapters = adapters_count(all);
    for (int i = 0; i < s->n_adapters; i++) {
        const struct adapter_info *a = adapters_at(all, i);

        snprintf(s->adapters[i].name, sizeof s->adapters[i].name, "%s", a->name);
        s->adapters[i].strength = t->strengths[i];
        s->adapters[i].rank_least = a->rank_least;
        s->adapters[i].rank_most = a->rank_most;
        s->adapters[i].matrices = a->matrices;
        s->adapters[i].expert_matrices = a->expert_matrices;
        s->adapters[i].unplaced = a->n_unplaced;
        s->adapters[i].bytes = a->bytes;
        s->adapters[i].hash = a->hash;
    }
}

void stats_take(struct stats *s, const struct engine_info *info, const struct telemetry *t)
{
    struct roofline reads; /* of the weights only */
    size_t cells;

    system_read(s->system, s->last);
    if (!info || !info->model || !t)
        return;
    snprintf(s->model, sizeof s->model, "%s", info->model->name);
    snprintf(s->type, sizeof s->type, "%s", dtype_info(info->model->type)->word);
    snprintf(s->kernels, sizeof s->kernels, "%s", info->kernels ? info->kernels : "");
    snprintf(s->plan, sizeof s->plan, "%s", t->plan);
    snprintf(s->prompt_plan, sizeof s->prompt_plan, "%s", t->prompt_plan);
    s->handover_ns = t->handover_ns;
    s->handover_bytes = t->handover_bytes;
    s->at_once = t->at_once;
    s->n_threads = info->n_threads;
    take_pattern(s, info->model);
    take_adapters(s, info->adapters, t);
    s->n_edits = t->n_edits;
    snprintf(s->edits, sizeof s->edits, "%s", t->edits);
    s->context_used = t->context_used;
    s->context_size = t->context_size;
    s->weights_packed = t->weights_packed;
    s->control_bytes = t->control_bytes;
    s->weights_mapped = t->weights_mapped;
    s->kv_bytes = t->kv_bytes;
    s->kv_used_bytes = t->kv_used_bytes;
    s->scratch_bytes = t->scratch_bytes;
    s->paged = t->disk;
    s->active_bytes = t->token_weight_bytes + t->token_kv_bytes;
    roofline_init(&reads, info->model, KV_F16, KV_F16);
    s->all_weights = reads.all_weights;
    s->n_devices = t->n_devices;
    s->n_plans = t->n_plans;
    memcpy(s->devices, t->devices, sizeof s->devices);
    memcpy(s->health, t->health, sizeof s->health);
    memcpy(s->launch_ns, t->launch_ns, sizeof s->launch_ns);
    memcpy(s->handoff_wait_ns, t->handoff_wait_ns, sizeof s->handoff_wait_ns);
    s->audit = t->audit;
    memcpy(s->plans, t->plans, sizeof s->plans);
    s->speculation = t->speculation;
    s->moved_bytes = t->moved_bytes;
    s->verdict = t->verdict;
    s->bandwidth_on = t->bandwidth_on;
    s->bandwidth_taken = t->bandwidth_taken;
    s->bandwidth_waited_ns = t->bandwidth_waited_ns;
    s->stall_ns = t->stall_ns;
    s->stall_token_ns = t->stall_token_ns;
    memcpy(s->stall_plan, t->stall_plan, sizeof s->stall_plan);
    for (int d = 0; d < t->n_devices; d++)
        snprintf(s->device_names[d], sizeof s->device_names[d], "%s%s%s",
                 d ? info->devices[d].selector : "cpu", info->devices[d].name[0] ? " " : "",
                 info->devices[d].name);
    cells = (size_t)t->n_layers * (size_t)t->n_experts;
    if (!s->experts && cells)
        s->experts = mem_alloc(cells, sizeof *s->experts);
    if (s->experts) {
        s->n_layers = t->n_layers;
        for (int l = 0; l < t->n_layers && l < TELEMETRY_LAYERS; l++)
            s->mixer_alone[l] = telemetry_blocks(t, l) == 0;
        s->n_experts = t->n_experts;
        memcpy(s->experts, t->session, cells * sizeof *s->experts);
    }
}

void stats_measure(struct stats *s)
{
    struct machine_load load = {0};
    char why[160];

    if (!s->later_tokens)
        return;
    system_read(s->system, s->begun);
    s->in_cache = membw_cached(s->all_weights, s->n_threads);
    if (!s->in_cache)
        s->bandwidth = membw_read(NULL, 0, s->n_threads, 60);
    machine_load_end(s->system, s->begun, &load);
    s->begun->time_ns = 0;
    s->bandwidth_disturbed = machine_load_disturbed(&load, why, sizeof why);
}

int stats_finish(const struct stats *s, const struct options *o, FILE *text, struct error *e)
{
    if (o->stats)
        stats_print(s, text);
    return o->stats_json ? stats_write_json(s, o->stats_json, e) : 0;
}
