/* The figures as a table (--stats, /stats). */
#include "app/stats/figures.h"
#include "engine/base/clock.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

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
            100 * stats_share(d->accepted, d->drafted), d->from,
            (unsigned long long)d->passes_drafted, (unsigned long long)d->passes,
            1 + stats_share(d->accepted, d->passes), 100 * d->gain);
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
        double share, even = stats_evenness(counts, s->n_experts);
        char label[32];
        int best = stats_most_used(counts, s->n_experts, &share);

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
        (unsigned long long)(p->hits + p->misses),
        100 * (p->hits + p->misses ? stats_hit_rate(p) : 0), (unsigned long long)p->guesses,
        (unsigned long long)p->guess_hits);
    row(f, "", "%.1f MiB read at %.1f MB/s; waiting for it took %.0f %% of the time",
        (double)p->read_bytes / (1 << 20), clock_rate((double)p->read_bytes, p->read_ns) / 1e6,
        100 * stats_disk_share(s));
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
            (unsigned long long)exact,
            h->trouble == TROUBLE_WRONG ? " and equal"
            : h->audited                ? ", all equal"
                                        : "",
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

static void print_device(const struct stats *s, int d, FILE *f)
{
    char name[sizeof s->device_names[0] * 4];
    const struct device_stats *v = &s->devices[d];
    uint64_t tokens = s->prompt_tokens - s->cached_tokens + s->generated_tokens;

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

static void print_streamed(const struct device_stats *v, FILE *f)
{
    if (v->streamed)
        row(f, "streamed",
            "%llu experts, %.1f MiB, through buffers of %.1f MiB; %llu of %llu copies begun on "
            "a guess were asked for",
            (unsigned long long)v->streamed, (double)v->streamed_bytes / (1 << 20),
            (double)v->stream_bytes / (1 << 20), (unsigned long long)v->prefetch_hits,
            (unsigned long long)v->prefetched);
}

static void print_plan(const struct stats *s, const struct plan_metrics *p, FILE *f)
{
    bool prompts = p->prompt_tokens && s->prompt_plan[0];

    if (!p->tokens && !p->switches && !prompts) /* measured on the side, or never used */
        return;
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

/* What was moved, and what both sides did at once. */
static void print_moves(const struct stats *s, FILE *f)
{
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

static void print_devices(const struct stats *s, FILE *f)
{
    fprintf(f, "devices\n");
    for (int d = 0; d < s->n_devices; d++)
        print_device(s, d, f);
    for (int d = 1; d < s->n_devices; d++)
        print_streamed(&s->devices[d], f);
    fprintf(f, "placements\n");
    for (int i = 0; i < s->n_plans && i < TELEMETRY_PLANS; i++)
        print_plan(s, &s->plans[i], f);
    if (s->verdict.n_rows)
        print_verdict(s, f);
    print_moves(s, f);
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
    figure(f, "this process", stats_known(s->last->rss) / (1 << 20), "%.1f", "MiB resident");
    figure(f, "at its peak", stats_known(s->last->rss_peak) / (1 << 20), "%.1f", "MiB");
    figure(f, "of the machine", 100 * stats_memory_share(s), "%.1f", "%");
    figure(f, "free", stats_known(s->last->memory_available) / (1 << 20), "%.1f", "MiB");
    if (s->n_devices > 1 || s->n_plans > 1 || s->verdict.n_rows)
        print_devices(s, f);
    fprintf(f, "processor\n");
    row(f, "used", "%.2f of %d cores%s", stats_cores_used(s), s->last->n_cores,
        s->load.seconds > 0 ? " while computing" : "");
    if (s->load.seconds > 0)
        row(f, "others used", "%.2f of %d cores", stats_others_used(s), s->last->n_cores);
    if (stats_waited(s) > 0.005)
        row(f, "waited for it", "%.0f %% of the threads' time", 100 * stats_waited(s));
    figure(f, "frequency", s->last->mhz, "%.0f", "MHz");
    figure(f, "temperature", s->last->temperature, "%.0f", "°C");
    print_energy(s, f);
    fprintf(f, "disk\n");
    figure(f, "read", stats_since(s->first->read_bytes, s->last->read_bytes) / (1 << 20), "%.1f",
           "MiB");
    figure(f, "written", stats_since(s->first->write_bytes, s->last->write_bytes) / (1 << 20),
           "%.1f", "MiB");
    /* also to terminals and pipes: the disk has a count of its own */
    fprintf(f, "system calls\n");
    figure(f, "to read", stats_since(s->first->read_calls, s->last->read_calls), "%.0f", "");
    figure(f, "to write", stats_since(s->first->write_calls, s->last->write_calls), "%.0f", "");
    if (s->experts)
        print_experts(s, f);
    stats_interpret(s, text, sizeof text);
    fprintf(f, "%s\n", text);
}
