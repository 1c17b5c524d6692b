/* Figures of a run as a table and as JSON. Main (UI) thread.
 * Each figure is computed in one place; table, JSON and the interpretation read the same struct, so
 * they always agree. */
#include "app/setup/run_stats.h"

#include "app/common/paths.h"
#include "engine/base/file.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/base/utf8.h"
#include "engine/device/cpu/tuning/microbench.h"
#include "engine/model/model.h"
#include "engine/run/report/roofline.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* share of the threads' time without a CPU, or of the CPUs used by others */
#define STARVED 0.15
/* share of the computing time spent waiting for experts on disk */
#define DISK_BOUND 0.5

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

double stats_joules_a_token(const struct stats *s, enum energy_source source)
{
    uint64_t tokens = s->prompt_tokens - s->cached_tokens + s->generated_tokens;

    return s->energy_seconds > 0 && tokens ? s->joules[source] / (double)tokens : NAN;
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

double stats_decode_rate(const struct stats *s)
{
    return s->later_tokens ? clock_rate((double)s->later_tokens, s->decode_ns) : 0;
}

double stats_prefill_rate(const struct stats *s)
{
    return s->prompt_tokens > s->cached_tokens
               ? clock_rate((double)(s->prompt_tokens - s->cached_tokens), s->prefill_ns)
               : 0;
}

static double wall_seconds(const struct stats *s)
{
    return clock_seconds(s->last->time_ns - s->first->time_ns);
}

/* CPUs' worth used on average during turns; between the two samples if there was no turn. */
static double cores_used(const struct stats *s)
{
    double wall = wall_seconds(s);

    if (s->load.seconds > 0)
        return s->load.cpu_s / s->load.seconds;

    return wall > 0 ? clock_seconds(s->last->cpu_ns - s->first->cpu_ns) / wall : 0;
}

static double known(uint64_t v)
{
    return v == SYSTEM_UNKNOWN ? NAN : (double)v;
}

/* Growth of a counter since the start; NAN if unknown. */
static double since(uint64_t first, uint64_t last)
{
    return first == SYSTEM_UNKNOWN || last == SYSTEM_UNKNOWN || last < first
               ? NAN
               : (double)(last - first);
}

/* This process's share of the machine's memory, 0 .. 1. */
static double memory_share(const struct stats *s)
{
    return known(s->last->rss) / known(s->last->memory_total);
}

/* ---- experts ---- */

/* How evenly a layer used its experts: 1 all equally, 0 only one; NAN if unused. */
static double evenness(const uint32_t *counts, int n)
{
    double sum = 0, h = 0;

    for (int i = 0; i < n; i++)
        sum += counts[i];
    for (int i = 0; i < n; i++)
        if (counts[i])
            h -= counts[i] / sum * log2(counts[i] / sum);
    return sum > 0 && n > 1 ? h / log2(n) : NAN;
}

static int most_used(const uint32_t *counts, int n, double *share)
{
    double sum = 0;
    int best = 0;

    for (int i = 0; i < n; i++) {
        sum += counts[i];
        if (counts[i] > counts[best])
            best = i;
    }
    *share = sum > 0 ? counts[best] / sum : 0;
    return best;
}

/* ---- experts on the disk ---- */

/* Share of the computing time spent waiting for the disk. */
static double disk_share(const struct stats *s)
{
    uint64_t time = s->prefill_ns + s->decode_ns;

    return time ? fmin(1, (double)s->paged.wait_ns / (double)time) : 0;
}

static double hit_rate(const struct expert_cache_stats *p)
{
    return p->hits + p->misses ? (double)p->hits / (double)(p->hits + p->misses) : NAN;
}

/* ---- interpretation ---- */

/* Share of the turns' time that this program's threads were ready to run and had no CPU; 0 if the
 * kernel does not report it, or if a driver's threads may have waited for ours. */
static double waited(const struct stats *s)
{
    double time = s->load.seconds * (s->n_threads > 0 ? s->n_threads : 1);

    return time > 0 && s->n_devices < 2 ? fmin(s->load.delay_s / time, 1) : 0;
}

static double others_used(const struct stats *s)
{
    return s->load.seconds > 0 ? s->load.others_s / s->load.seconds : 0;
}

/* Whether the threads lacked a processor: by the kernel's figures, or because others used so much
 * of it that the threads cannot all have run. Other limits of the speed cannot then be determined.
 */
static bool starved(const struct stats *s)
{
    int cores = s->last->n_cores > 0 ? s->last->n_cores : 1;

    return waited(s) > STARVED ||
           (others_used(s) > STARVED * cores && others_used(s) + cores_used(s) > 0.9 * cores &&
            cores_used(s) < 0.9 * s->n_threads);
}

static size_t interpret_starved(const struct stats *s, char *out, size_t size)
{
    char share[48] = "";

    if (waited(s) > 0)
        snprintf(share, sizeof share, " waited %.0f %% of the time for a processor and",
                 100 * waited(s));
    if (others_used(s) > STARVED)
        return (size_t)snprintf(
            out, size,
            "Starved: other processes used %.1f of the %d cores; this one's %d threads%s got %.1f. "
            "The rate says nothing of this machine: run without them, or with fewer threads (-t).",
            others_used(s), s->last->n_cores, s->n_threads, share, cores_used(s));
    return (size_t)snprintf(
        out, size,
        "Starved: this process's threads%s got %.1f of %d cores, though others used hardly any: "
        "a limit of the container, or more threads (-t, now %d) than it may use.",
        share, cores_used(s), s->last->n_cores, s->n_threads);
}

static size_t interpret_disk(const struct stats *s, char *out, size_t size)
{
    const struct expert_cache_stats *p = &s->paged;

    return (size_t)snprintf(
        out, size,
        "Disk-bound: computing waited %.0f %% of the time for experts, which came at %.0f MB/s; "
        "%.0f %% of those asked for were in memory. A larger --expert-cache, a faster disk or a "
        "smaller type help.",
        100 * disk_share(s), clock_rate((double)p->read_bytes, p->read_ns) / 1e6,
        100 * (p->hits + p->misses ? hit_rate(p) : 0));
}

/* Decode rate is interpreted by comparing the bytes read per token with the memory bandwidth. */
static size_t interpret_speed(const struct stats *s, char *out, size_t size)
{
    double rate = stats_decode_rate(s), mib = (double)s->active_bytes / (1 << 20),
           speed = rate * (double)s->active_bytes;
    double share = s->bandwidth > 0 ? speed / s->bandwidth : 0;
    const char *did = s->bandwidth_disturbed ? "did afterwards, beside other programs" : "can do";

    if (s->server[0])
        return (size_t)snprintf(out, size,
                                "The model runs at %s: rates are those at which tokens arrived "
                                "here, the first one's time holds the way there and back.",
                                s->server);
    if (!s->later_tokens)
        return (size_t)snprintf(out, size, "Too short an answer to tell what bounds the speed.");
    if (starved(s))
        return interpret_starved(s, out, size);
    if (s->paged.slots && disk_share(s) >= DISK_BOUND)
        return interpret_disk(s, out, size);
    if (s->in_cache)
        return (size_t)snprintf(out, size,
                                "Compute-bound: the model stays in the processor's cache "
                                "(measured), so faster or more cores would "
                                "help, not faster memory.");
    if (s->bandwidth <= 0)
        return (size_t)snprintf(out, size,
                                "Each token reads %.0f MiB, %.1f GB/s at this rate; what the "
                                "memory can do was not measured.",
                                mib, speed / 1e9);
    if (share >= 0.5)
        return (size_t)snprintf(out, size,
                                "Memory-bound: each token reads %.0f MiB, which is %.0f %% of the "
                                "%.1f GB/s that memory %s; %s, more "
                                "threads than %d will hardly help.",
                                mib, 100 * share, s->bandwidth / 1e9, did,
                                strcmp(s->type, "q4_0") ? "a smaller type (q4_0) reads less"
                                                        : "a shorter context reads less",
                                s->n_threads);
    return (size_t)snprintf(out, size,
                            "Compute-bound: reading takes only %.0f %% of the %.1f GB/s that "
                            "memory %s, with %.1f cores busy; more threads "
                            "(-t, now %d) help, a smaller type less.",
                            100 * share, s->bandwidth / 1e9, did, cores_used(s), s->n_threads);
}

static size_t interpret_memory(const struct stats *s, char *out, size_t size)
{
    double total = known(s->last->memory_total), available = known(s->last->memory_available);
    double swapped = known(s->last->process_swap),
           faults = since(s->first->major_faults, s->last->major_faults);

    if (swapped > 0)
        return (size_t)snprintf(
            out, size, " %.0f MiB of this process lie in swap: take a smaller type or context.",
            swapped / (1 << 20));
    if (available < 0.1 * total)
        return (size_t)snprintf(out, size,
                                " Only %.1f GiB of memory are left, so swapping is near: a smaller "
                                "context (-c) or type would help.",
                                available / (1 << 30));
    if (faults > 2000)
        return (size_t)snprintf(
            out, size,
            " %.0f pages had to be read from the disk; a second run finds them in memory.", faults);
    return (size_t)snprintf(out, size, " No risk of swapping: %.1f GiB are free.",
                            available / (1 << 30));
}

void stats_interpret(const struct stats *s, char *out, size_t size)
{
    size_t at = interpret_speed(s, out, size);

    if (at < size && !s->server[0] && !isnan(known(s->last->memory_total)) &&
        !isnan(known(s->last->memory_available)))
        interpret_memory(s, out + at, size - at);
}

/* ---- the table ---- */

static double share(uint64_t part, uint64_t of)
{
    return of ? (double)part / (double)of : NAN;
}

static void row(FILE *f, const char *label, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void row(FILE *f, const char *label, const char *format, ...)
{
    va_list args;

    fprintf(f, "  %-22s ", label);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    fputc('\n', f);
}

/* A figure with its unit, or N/A: a missing sensor is not zero. */
static void figure(FILE *f, const char *label, double value, const char *format, const char *unit)
{
    char text[64] = "not available";

    if (!isnan(value)) {
        int n = snprintf(text, sizeof text, format, value);

        snprintf(text + n, sizeof text - (size_t)n, " %s", unit);
    }
    row(f, label, "%s", text);
}

static void print_adapters(const struct stats *s, FILE *f)
{
    for (int i = 0; i < s->n_adapters; i++)
        row(f, "adapter",
            "%d: %s at strength %g, rank %d%s, on %d matrices (%d of experts), %.1f MiB", i,
            s->adapters[i].name, (double)s->adapters[i].strength, s->adapters[i].rank_most,
            s->adapters[i].rank_least < s->adapters[i].rank_most ? " and less" : "",
            s->adapters[i].matrices, s->adapters[i].expert_matrices,
            (double)s->adapters[i].bytes / (1 << 20));
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

/* Drafts were allowed but none was made: prints why. */
static void print_no_drafts(const struct speculation_figures *d, FILE *f)
{
    if (2 * d->passes_early > d->passes)
        row(f, "drafts",
            "none: weights were still brought into place in %llu of %llu passes; longer answers "
            "draft",
            (unsigned long long)d->passes_early, (unsigned long long)d->passes);
    else if (d->why[0])
        row(f, "drafts", "%s", d->why);
    else if (d->passes)
        row(f, "drafts", "none: nothing that was said before went on alike");
}

static void print_drafts(const struct speculation_figures *d, FILE *f)
{
    if (!d->wanted)
        return;
    if (d->drafted)
        row(f, "drafts",
            "%llu of %llu accepted (%.0f %%, by %s), in %llu of %llu passes: %.2f tokens a pass, "
            "%+.0f %% of late",
            (unsigned long long)d->accepted, (unsigned long long)d->drafted,
            100 * share(d->accepted, d->drafted), d->from, (unsigned long long)d->passes_drafted,
            (unsigned long long)d->passes, 1 + share(d->accepted, d->passes), 100 * d->gain);
    if (d->changed)
        row(f, "drafts", "%llu tokens are drafted ones that the model did not draw (--spec-accept)",
            (unsigned long long)d->changed);
    if (!d->drafted)
        print_no_drafts(d, f);
    else if (d->why[0])
        row(f, "drafts", "%s", d->why);
}

static void print_experts(const struct stats *s, FILE *f)
{
    fprintf(f, "experts\n");
    for (int l = 0; l < s->n_layers; l++) {
        const uint32_t *counts = s->experts + (size_t)l * (size_t)s->n_experts;
        double share, even = evenness(counts, s->n_experts);
        char label[32];
        int best = most_used(counts, s->n_experts, &share);

        snprintf(label, sizeof label, "layer %d", l);
        if (l < TELEMETRY_LAYERS && s->mixer_alone[l])
            row(f, label, "a mixer alone");
        else if (isnan(even))
            row(f, label, "not used");
        else
            row(f, label, "most used: expert %d with %.1f %%, evenness %.2f", best, 100 * share,
                even);
    }
}

static void print_paged(const struct stats *s, FILE *f)
{
    const struct expert_cache_stats *p = &s->paged;

    row(f, "expert cache", "%.1f MiB: %d of %d experts, %d there", (double)p->bytes / (1 << 20),
        p->slots, p->experts, p->here);
    row(f, "", "%llu asked for, %.1f %% there; %llu read ahead, %llu of them asked for",
        (unsigned long long)(p->hits + p->misses), 100 * (p->hits + p->misses ? hit_rate(p) : 0),
        (unsigned long long)p->guesses, (unsigned long long)p->guess_hits);
    row(f, "", "%.1f MiB read at %.1f MB/s; waiting for it took %.0f %% of the time",
        (double)p->read_bytes / (1 << 20), clock_rate((double)p->read_bytes, p->read_ns) / 1e6,
        100 * disk_share(s));
}

/* What auto decided, and the table that it decided from. */
static void print_verdict(const struct stats *s, FILE *f)
{
    char line[VERDICT_LINE];
    int width = 0;

    verdict_line(&s->verdict, line);
    row(f, "auto", "%s", line + strlen("auto: "));
    if (s->verdict.device[0])
        row(f, "", "measured on %s", s->verdict.device);
    for (int i = 0; i < s->verdict.n_rows; i++) {
        int n = (int)strlen(s->verdict.row[i].spec);

        width = n > width ? n : width;
    }
    for (int i = 0; i < s->verdict.n_rows; i++) {
        const struct verdict_row *r = &s->verdict.row[i];
        char prompt[80] = "not measured";

        if (r->ns[PHASE_PROMPT] > 0)
            snprintf(prompt, sizeof prompt, "%.3f ms (± %.0f %%)", r->ns[PHASE_PROMPT] * 1e-6,
                     100 * r->error[PHASE_PROMPT]);
        row(f, "", "%-*s expected: a token %.3f ms (± %.0f %%), a prompt's token %s", width,
            r->spec, r->ns[PHASE_TOKENS] * 1e-6, 100 * r->error[PHASE_TOKENS], prompt);
    }
}

static const char *const troubles[] = {
    [TROUBLE_NONE] = "none", [TROUBLE_SLOW] = "slow",   [TROUBLE_MEMORY] = "memory",
    [TROUBLE_LOST] = "lost", [TROUBLE_WRONG] = "wrong",
};

static void print_health(const struct stats *s, int d, FILE *f)
{
    static const char *const words[] = {[TROUBLE_SLOW] = "SLOW",
                                        [TROUBLE_MEMORY] = "OUT OF MEMORY",
                                        [TROUBLE_LOST] = "LOST",
                                        [TROUBLE_WRONG] = "WRONG"};
    const struct device_health *h = &s->health[d];
    uint64_t exact = h->jobs - h->inexact;

    if (!h->jobs)
        return;
    if (!s->audit)
        row(f, "", "no audits (--audit)");
    else if (!exact)
        row(f, "", "no audits: float weights");
    else
        row(f, "", "%llu of %llu jobs audited%s, %.1f ms%s", (unsigned long long)h->audited,
            (unsigned long long)exact, h->trouble == TROUBLE_WRONG ? " and equal" : ", all equal",
            (double)h->audit_ns * 1e-6, h->inexact ? "; others have float weights" : "");
    if (h->trouble != TROUBLE_NONE)
        row(f, "", "%s: %s", words[h->trouble], h->why);
    if (h->returned)
        row(f, "", "%d blocks went back to the CPU", h->returned);
}

/* "tokens 52.1 tokens/s (measured: 4 % less)", at `at`. */
static size_t expected_rate(char *out, size_t size, size_t at, const char *what, double expected,
                            double measured)
{
    int n;

    if (expected <= 0 || at >= size)
        return at;
    n = snprintf(out + at, size - at, "%s%s %.1f tokens/s", at ? ", " : "", what, expected);
    at += n > 0 ? (size_t)n : 0;
    if (measured <= 0 || at >= size)
        return at;
    n = snprintf(out + at, size - at, " (measured: %.0f %% %s)",
                 100 * fabs(measured / expected - 1), measured < expected ? "less" : "more");
    return at + (n > 0 ? (size_t)n : 0);
}

/* What the cost model expected of a plan, and how wrong that was. */
static void expected_row(const struct plan_metrics *p, FILE *f)
{
    char text[200] = "";
    size_t at = expected_rate(text, sizeof text, 0, "tokens", p->expected_tok_s, p->median_tok_s);

    at = expected_rate(text, sizeof text, at, "prompts", p->expected_prompt_tok_s, p->prompt_tok_s);
    if (at)
        row(f, "", "expected: %s", text);
}

static void print_devices(const struct stats *s, FILE *f)
{
    char name[sizeof s->device_names[0] * 4];
    uint64_t tokens = s->prompt_tokens - s->cached_tokens + s->generated_tokens;

    fprintf(f, "devices\n");
    for (int d = 0; d < s->n_devices; d++) {
        const struct device_stats *v = &s->devices[d];

        utf8_escape(name, sizeof name, s->device_names[d], strlen(s->device_names[d]), 0);
        row(f, name,
            "%.1f MiB weights, %.1f MiB KV; busy %.3f s, waited %.3f s, copied %.3f s; %llu "
            "failures",
            (double)v->weight_bytes / (1 << 20), (double)v->kv_bytes / (1 << 20),
            clock_seconds(v->busy_ns), clock_seconds(v->wait_ns), clock_seconds(v->transfer_ns),
            (unsigned long long)v->failures);
        if (d && v->waits)
            row(f, "", "waited for %.1f times a token (%llu jobs)",
                (double)v->waits / (double)(tokens ? tokens : 1), (unsigned long long)v->jobs);
        if (d && s->launch_ns[d] + s->handoff_wait_ns[d])
            row(f, "", "a job takes %.3f ms to launch and %.3f ms to wait beyond its kernels",
                (double)s->launch_ns[d] * 1e-6, (double)s->handoff_wait_ns[d] * 1e-6);
        if (d && v->replayed)
            row(f, "", "%llu tokens' launches were replayed, from %llu recordings",
                (unsigned long long)v->replayed, (unsigned long long)v->recorded);
        if (d && v->jobs)
            row(f, "", "%.0f bytes of rows copied a token%s",
                (double)v->row_bytes / (double)(tokens ? tokens : 1),
                v->row_bytes ? "" : ": the host's memory is used in place");
        if (d)
            print_health(s, d, f);
    }
    for (int d = 1; d < s->n_devices; d++) {
        const struct device_stats *v = &s->devices[d];

        if (v->streamed)
            row(f, "streamed",
                "%llu experts, %.1f MiB, through buffers of %.1f MiB; %llu of %llu copies begun on "
                "a guess were asked for",
                (unsigned long long)v->streamed, (double)v->streamed_bytes / (1 << 20),
                (double)v->stream_bytes / (1 << 20), (unsigned long long)v->prefetch_hits,
                (unsigned long long)v->prefetched);
    }
    fprintf(f, "placements\n");
    for (int i = 0; i < s->n_plans && i < TELEMETRY_PLANS; i++) {
        const struct plan_metrics *p = &s->plans[i];

        bool prompts = p->prompt_tokens && s->prompt_plan[0];

        if (!p->tokens && !p->switches && !prompts) /* measured on the side, or never used */
            continue;
        if (p->tokens || p->switches)
            row(f, p->name, "%llu tokens, median %.1f tokens/s (quartiles %.1f to %.1f), mean %.1f",
                (unsigned long long)p->tokens, p->median_tok_s, p->q1_tok_s, p->q3_tok_s,
                p->mean_tok_s);
        if (prompts)
            row(f, p->tokens || p->switches ? "" : p->name, "prompts: %llu tokens, %.1f tokens/s",
                (unsigned long long)p->prompt_tokens, p->prompt_tok_s);
        expected_row(p, f);
        if (p->switches)
            row(f, "",
                "switched to %llu time%s in an answer: %.1f tokens each until all blocks had "
                "moved, waits of %.2f ms at most",
                (unsigned long long)p->switches, p->switches == 1 ? "" : "s",
                (double)p->switch_tokens / (double)p->switches, (double)p->stall_ns * 1e-6);
    }
    if (s->verdict.n_rows)
        print_verdict(s, f);
    if (s->at_once.pieces)
        row(f, "at once",
            "%llu pieces of prompts (%llu tokens) on one side and %llu tokens of answers on the "
            "other: %.3f s, by turns %.3f s",
            (unsigned long long)s->at_once.pieces, (unsigned long long)s->at_once.rows,
            (unsigned long long)s->at_once.tokens, clock_seconds(s->at_once.ns),
            clock_seconds(s->at_once.turns_ns));
    if (s->handover_ns && s->prompt_plan[0])
        row(f, "handover",
            "%.2f ms after the newest prompt: %.1f KiB of keys and values copied to where tokens "
            "are computed",
            (double)s->handover_ns * 1e-6, (double)s->handover_bytes / (1 << 10));
    if (s->bandwidth_on)
        row(f, "bandwidth semaphore", "on: %.1f MiB passed it, jobs waited %.1f ms for it in all",
            (double)s->bandwidth_taken / (1 << 20), (double)s->bandwidth_waited_ns * 1e-6);
    if (s->moved_bytes)
        row(f, "moved", "%.1f MiB", (double)s->moved_bytes / (1 << 20));
    if (s->stall_ns && s->stall_token_ns)
        row(f, "longest stall",
            "%.2f ms for a switch to %s: the time of %.2f tokens (%.2f ms each before it)",
            (double)s->stall_ns * 1e-6, s->stall_plan,
            (double)s->stall_ns / (double)s->stall_token_ns, (double)s->stall_token_ns * 1e-6);
}

static void print_model(const struct stats *s, FILE *f)
{
    char model[sizeof s->model * 4], server[sizeof s->server * 4];

    utf8_escape(model, sizeof model, s->model, strlen(s->model), 0);
    utf8_escape(server, sizeof server, s->server, strlen(s->server), 0);
    fprintf(f, "model\n");
    if (s->server[0]) {
        row(f, "name", "%s, at %s", model, server);
        return;
    }
    row(f, "name", "%s, %s, %s kernels, %d thread%s, plan %s%s%s", model, s->type, s->kernels,
        s->n_threads, s->n_threads == 1 ? "" : "s", s->plan,
        s->prompt_plan[0] ? " for tokens, for prompts " : "", s->prompt_plan);
    row(f, "context", "%d of %d tokens", s->context_used, s->context_size);
    row(f, "read pattern", "%s, %s", s->pattern,
        s->pattern_measured ? "measured here" : "built in for this processor");
}

/* Of the whole machine while turns ran: the counters do not know who computed. */
static void print_energy(const struct stats *s, FILE *f)
{
    static const char *const labels[ENERGY_SOURCES] = {"of the processor", "of the GPU"};
    const char *why = energy_why(s->energy);

    if (!s->turns || s->server[0])
        return;
    fprintf(f, "energy\n");
    for (int i = 0; i < ENERGY_SOURCES; i++)
        if (s->energy_seconds > 0 && !isnan(s->joules[i]))
            row(f, labels[i], "%.1f J in %.1f s of computing: %.1f W, %.3f J a token", s->joules[i],
                s->energy_seconds, s->joules[i] / s->energy_seconds, stats_joules_a_token(s, i));
    if (*why)
        row(f, labels[ENERGY_PACKAGE], "N/A: %s", why);
}

void stats_print(const struct stats *s, FILE *f)
{
    char text[768];

    print_model(s, f);
    print_adapters(s, f);
    if (s->n_edits)
        row(f, "edited experts", "%d: %s", s->n_edits, s->edits);
    fprintf(f, "speed\n");
    row(f, "tokens",
        "%llu prompt (%llu from the cache, %llu recomputed) + %llu generated = %llu in %d turn%s",
        (unsigned long long)s->prompt_tokens, (unsigned long long)s->cached_tokens,
        (unsigned long long)s->recomputed_tokens, (unsigned long long)s->generated_tokens,
        (unsigned long long)(s->prompt_tokens + s->generated_tokens), s->turns,
        s->turns == 1 ? "" : "s");
    if (s->lost_turns)
        row(f, "computed again", "%llu tokens in %d turn%s, %.2f s: %s",
            (unsigned long long)s->lost_tokens, s->lost_turns, s->lost_turns == 1 ? "" : "s",
            s->lost_seconds, s->lost_why);
    figure(f, "first token", s->turns ? clock_seconds(s->ttft_ns) * 1e3 : NAN, "%.1f", "ms");
    figure(f, "prefill", stats_prefill_rate(s) > 0 ? stats_prefill_rate(s) : NAN, "%.1f",
           "tokens/s");
    figure(f, "decode", stats_decode_rate(s) > 0 ? stats_decode_rate(s) : NAN, "%.1f", "tokens/s");
    print_drafts(&s->speculation, f);
    row(f, "time", "%.3f s prefill + %.3f s decode, %.3f s in all", clock_seconds(s->prefill_ns),
        clock_seconds(s->decode_ns), clock_seconds(s->total_ns));
    fprintf(f, "memory\n");
    if (s->server[0])
        row(f, "model", "N/A (it lies in the server's memory)");
    else
        row(f, "model",
            "%.1f MiB in memory, %.1f MiB in the file, %.1f of %.1f MiB KV used, %.1f MiB scratch",
            (double)s->weights_packed / (1 << 20), (double)s->weights_mapped / (1 << 20),
            (double)s->kv_used_bytes / (1 << 20), (double)s->kv_bytes / (1 << 20),
            (double)s->scratch_bytes / (1 << 20));
    if (s->control_bytes)
        row(f, "control vectors", "%.2f MiB", (double)s->control_bytes / (1 << 20));
    if (s->paged.slots)
        print_paged(s, f);
    figure(f, "this process", known(s->last->rss) / (1 << 20), "%.1f", "MiB resident");
    figure(f, "at its peak", known(s->last->rss_peak) / (1 << 20), "%.1f", "MiB");
    figure(f, "of the machine", 100 * memory_share(s), "%.1f", "%");
    figure(f, "free", known(s->last->memory_available) / (1 << 20), "%.1f", "MiB");
    if (s->n_devices > 1 || s->n_plans > 1 || s->verdict.n_rows)
        print_devices(s, f);
    fprintf(f, "processor\n");
    row(f, "used", "%.2f of %d cores%s", cores_used(s), s->last->n_cores,
        s->load.seconds > 0 ? " while computing" : "");
    if (s->load.seconds > 0)
        row(f, "others used", "%.2f of %d cores", others_used(s), s->last->n_cores);
    if (waited(s) > 0.005)
        row(f, "waited for it", "%.0f %% of the threads' time", 100 * waited(s));
    figure(f, "frequency", s->last->mhz, "%.0f", "MHz");
    figure(f, "temperature", s->last->temperature, "%.0f", "°C");
    print_energy(s, f);
    fprintf(f, "disk\n");
    figure(f, "read", since(s->first->read_bytes, s->last->read_bytes) / (1 << 20), "%.1f", "MiB");
    figure(f, "written", since(s->first->write_bytes, s->last->write_bytes) / (1 << 20), "%.1f",
           "MiB");
    /* also to terminals and pipes: the disk has a count of its own */
    fprintf(f, "system calls\n");
    figure(f, "to read", since(s->first->read_calls, s->last->read_calls), "%.0f", "");
    figure(f, "to write", since(s->first->write_calls, s->last->write_calls), "%.0f", "");
    if (s->experts)
        print_experts(s, f);
    stats_interpret(s, text, sizeof text);
    fprintf(f, "%s\n", text);
}

/* ---- JSON ---- */

static json_t *number(double v)
{
    return isnan(v) || isinf(v) ? json_null() : json_real(v);
}

static json_t *whole(double v)
{
    return isnan(v) ? json_null() : json_integer((json_int_t)v);
}

static json_t *experts_json(const struct stats *s)
{
    json_t *layers = json_array();

    for (int l = 0; l < s->n_layers; l++) {
        const uint32_t *counts = s->experts + (size_t)l * (size_t)s->n_experts;
        json_t *row_json = json_array();
        double share;
        int best = most_used(counts, s->n_experts, &share);

        for (int x = 0; x < s->n_experts; x++)
            json_array_append_new(row_json, json_integer(counts[x]));
        json_array_append_new(layers,
                              json_pack("{s:i, s:o, s:i, s:f, s:o}", "layer", l, "tokens", row_json,
                                        "most_used", best, "most_used_share", share, "evenness",
                                        number(evenness(counts, s->n_experts))));
    }
    return layers;
}

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
                     number(share(d->accepted, d->drafted)), "gain", d->gain, "drafter", d->from,
                     "why_off", d->why);
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
                     (json_int_t)p->misses, "hit_rate", number(hit_rate(p)), "missed_bytes",
                     (json_int_t)p->missed_bytes, "read_ahead", (json_int_t)p->guesses,
                     "read_ahead_hits", (json_int_t)p->guess_hits, "read_bytes",
                     (json_int_t)p->read_bytes, "read_bytes_per_second",
                     number(p->read_ns ? clock_rate((double)p->read_bytes, p->read_ns) : NAN),
                     "wait_ms", (double)p->wait_ns / 1e6, "disk_share", disk_share(s));
}

static json_t *to_json(const struct stats *s)
{
    char text[768];
    json_t *root = json_object();
    double rate = stats_decode_rate(s), prefill = stats_prefill_rate(s);

    stats_interpret(s, text, sizeof text);
    json_object_set_new(root, "moetop", json_string(MOETOP_VERSION));
    json_object_set_new(root, "model",
                        json_pack("{s:s, s:s, s:s, s:s, s:b, s:i, s:s, s:s, s:i, s:i}", "name",
                                  s->model, "type", s->type, "kernels", s->kernels, "read_pattern",
                                  s->pattern, "read_pattern_measured", s->pattern_measured,
                                  "threads", s->n_threads, "plan", s->plan, "prompt_plan",
                                  s->prompt_plan[0] ? s->prompt_plan : s->plan, "context_used",
                                  s->context_used, "context_size", s->context_size));
    json_object_set_new(root, "cache",
                        json_pack("{s:I, s:f, s:i, s:o, s:s?}", "lost_tokens",
                                  (json_int_t)s->lost_tokens, "lost_seconds", s->lost_seconds,
                                  "turns_with_losses", s->lost_turns, "first_difference",
                                  s->lost_turns ? json_integer(s->lost_at) : json_null(), "why",
                                  s->lost_why));
    json_object_set_new(root, "server", s->server[0] ? json_string(s->server) : json_null());
    json_object_set_new(root, "turns", json_integer(s->turns));
    json_object_set_new(root, "stop_reason", json_string(stop_reason_word(s->reason)));
    json_object_set_new(
        root, "tokens",
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "prompt", (json_int_t)s->prompt_tokens, "cached",
                  (json_int_t)s->cached_tokens, "recomputed", (json_int_t)s->recomputed_tokens,
                  "generated", (json_int_t)s->generated_tokens, "total",
                  (json_int_t)(s->prompt_tokens + s->generated_tokens)));
    json_object_set_new(root, "grammar",
                        s->ruled_tokens
                            ? json_pack("{s:I, s:f}", "tokens", (json_int_t)s->ruled_tokens,
                                        "forbidden", s->forbidden / (double)s->ruled_tokens)
                            : json_null());
    json_object_set_new(root, "time",
                        json_pack("{s:f, s:f, s:f, s:f, s:o, s:o}", "ttft_ms",
                                  (double)s->ttft_ns / 1e6, "prefill_ms",
                                  (double)s->prefill_ns / 1e6, "decode_ms",
                                  (double)s->decode_ns / 1e6, "total_ms", (double)s->total_ns / 1e6,
                                  "prefill_tok_s", number(prefill > 0 ? prefill : NAN),
                                  "decode_tok_s", number(rate > 0 ? rate : NAN)));
    json_object_set_new(
        root, "memory",
        json_pack(
            "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
            "weights_packed_bytes", (json_int_t)s->weights_packed, "weights_mapped_bytes",
            (json_int_t)s->weights_mapped, "kv_bytes", (json_int_t)s->kv_bytes, "kv_used_bytes",
            (json_int_t)s->kv_used_bytes, "scratch_bytes", (json_int_t)s->scratch_bytes,
            "control_vector_bytes", (json_int_t)s->control_bytes, "token_bytes",
            (json_int_t)s->active_bytes, "in_cache", s->in_cache, "read_disturbed",
            s->bandwidth_disturbed, "read_bytes_per_second",
            number(s->bandwidth > 0 ? s->bandwidth : NAN), "rss_bytes", whole(known(s->last->rss)),
            "peak_rss_bytes", whole(known(s->last->rss_peak)), "percent",
            number(100 * memory_share(s)), "total_bytes", whole(known(s->last->memory_total)),
            "available_bytes", whole(known(s->last->memory_available)), "swap_bytes",
            whole(known(s->last->process_swap)), "major_faults",
            whole(since(s->first->major_faults, s->last->major_faults))));
    json_object_set_new(root, "cpu",
                        json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:b, s:o, s:o}", "name",
                                  system_cpu_name(s->system), "cores", s->last->n_cores,
                                  "cores_used", cores_used(s), "use_percent",
                                  s->last->n_cores ? 100 * cores_used(s) / s->last->n_cores : 0.0,
                                  "others_cores_used", others_used(s), "waited_share", waited(s),
                                  "starved", starved(s), "mhz", number(s->last->mhz),
                                  "temperature_c", number(s->last->temperature)));
    json_object_set_new(
        root, "energy",
        json_pack("{s:o, s:o, s:o, s:f, s:s}", "processor_joules",
                  number(s->energy_seconds > 0 ? s->joules[ENERGY_PACKAGE] : NAN), "gpu_joules",
                  number(s->energy_seconds > 0 ? s->joules[ENERGY_GPU] : NAN),
                  "processor_joules_per_token", number(stats_joules_a_token(s, ENERGY_PACKAGE)),
                  "seconds", s->energy_seconds, "why_not", energy_why(s->energy)));
    json_object_set_new(
        root, "disk",
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "read_bytes",
                  whole(since(s->first->read_bytes, s->last->read_bytes)), "written_bytes",
                  whole(since(s->first->write_bytes, s->last->write_bytes)), "read_calls",
                  whole(since(s->first->read_calls, s->last->read_calls)), "write_calls",
                  whole(since(s->first->write_calls, s->last->write_calls)),
                  "system_read_operations", whole(since(s->first->disk_reads, s->last->disk_reads)),
                  "system_write_operations",
                  whole(since(s->first->disk_writes, s->last->disk_writes))));
    json_object_set_new(root, "speculation", drafts_json(&s->speculation));
    json_object_set_new(root, "adapters", adapters_json(s));
    json_object_set_new(root, "expert_edits", json_string(s->edits));
    json_object_set_new(root, "edited_experts", json_integer(s->n_edits));
    json_object_set_new(root, "expert_cache", paged_json(s));
    json_object_set_new(root, "devices", devices_json(s));
    json_object_set_new(root, "placements", plans_json(s));
    json_object_set_new(root, "auto", verdict_json(s));
    json_object_set_new(
        root, "moves",
        json_pack("{s:I, s:f, s:o, s:s}", "bytes", (json_int_t)s->moved_bytes, "longest_stall_ms",
                  (double)s->stall_ns / 1e6, "longest_stall_tokens",
                  number(s->stall_token_ns ? (double)s->stall_ns / (double)s->stall_token_ns : NAN),
                  "longest_stall_plan", s->stall_plan));
    json_object_set_new(root, "handover",
                        json_pack("{s:I, s:f}", "bytes", (json_int_t)s->handover_bytes, "ms",
                                  (double)s->handover_ns * 1e-6));
    json_object_set_new(
        root, "at_once",
        json_pack("{s:I, s:I, s:I, s:f, s:f}", "pieces", (json_int_t)s->at_once.pieces,
                  "prompt_tokens", (json_int_t)s->at_once.rows, "tokens",
                  (json_int_t)s->at_once.tokens, "seconds", clock_seconds(s->at_once.ns),
                  "seconds_by_turns", clock_seconds(s->at_once.turns_ns)));
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

int stats_finish(const struct stats *s, const struct options *o, FILE *text, struct error *e)
{
    if (o->stats)
        stats_print(s, text);
    return o->stats_json ? stats_write_json(s, o->stats_json, e) : 0;
}
