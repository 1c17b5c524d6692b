/* See hints.h. */
#include "app/analyze/hints.h"

#include <stdarg.h>
#include <stdio.h>

#define MIB ((double)(1 << 20))

static __attribute__((format(printf, 3, 4))) void say(struct analysis_hints *h, const char *key,
                                                      const char *format, ...)
{
    va_list args;

    if (h->n == ANALYSIS_HINTS)
        return;
    h->at[h->n].key = key;
    va_start(args, format);
    vsnprintf(h->at[h->n].text, sizeof h->at[h->n].text, format, args);
    va_end(args);
    h->n++;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Experts need much memory and little computation, everything else the opposite. */
static void about_experts(struct analysis_hints *h, const struct analysis_count *c)
{
    uint64_t experts = c->parts[ANALYSIS_EXPERTS], active = c->active_parts[ANALYSIS_EXPERTS];

    if (!c->experts) {
        say(h, "no_experts", "no routed experts: every token reads all of its %.1f M parameters",
            (double)c->total * 1e-6);
        return;
    }
    say(h, "experts_on_cpu",
        "experts are %.0f %% of the parameters and %.0f %% of what a token reads (%d of %d a "
        "layer): they belong where memory is large, the CPU's",
        percent(experts, c->total), percent(active, c->active), c->used, c->experts);
    say(h, "rest_on_device",
        "attention, head and the rest are %.0f %% of the parameters and %.0f %% of what a token "
        "reads: the fastest memory gains most there (--place attention-gpu)",
        percent(c->total - experts, c->total), percent(c->active - active, c->active));
}

static void about_intensity(struct analysis_hints *h, const struct analysis_count *c)
{
    double flops = analysis_matrix_flops(c);

    say(h, "bound_by_memory",
        "decoding does %.1f operations a byte in F16, %.1f in Q4_0: memory bounds it, and a "
        "quarter of the bytes is up to %.1f times the tokens",
        flops / (double)analysis_token_bytes(c, 1), flops / (double)analysis_token_bytes(c, 3),
        (double)analysis_token_bytes(c, 1) / (double)analysis_token_bytes(c, 3));
}

static void about_context(struct analysis_hints *h, const struct analysis_count *c,
                          const struct hparams *hp)
{
    uint64_t kv = analysis_kv_bytes(hp, hp->context_max);

    if (hp->context_max && kv > c->file_bytes / 4)
        say(h, "kv_is_large",
            "at %d tokens the KV cache takes %.0f MiB in F16, %.0f %% of the weights: -c, or -ctk "
            "and -ctv q8_0, which halve it",
            hp->context_max, (double)kv / MIB, percent(kv, c->file_bytes));
}

static void about_fit(struct analysis_hints *h, const struct analysis_machine *a)
{
    if (fit_fits(&a->fit))
        say(h, "fits", "fits here: %.0f MiB needed, %.0f MiB free",
            (double)fit_needed(&a->fit) / MIB, (double)a->available / MIB);
    else
        say(h, "does_not_fit",
            "does not fit here: %.0f MiB needed, %.0f MiB free (--fit names what would help)",
            (double)fit_needed(&a->fit) / MIB, (double)a->available / MIB);
}

static void about_device(struct analysis_hints *h, const struct analysis_machine *a)
{
    if (!a->n_plans)
        say(h, "no_device", "no GPU is here: everything runs on the CPU");
    else if (a->device_shares)
        say(h, "shared_memory",
            "%s shares the CPU's memory: it computes, but no byte is read faster from there; "
            "--compare says which plan wins",
            a->device);
    else if (a->plans[0].fits)
        say(h, "device_holds_all", "%s holds all of it (%.0f of %.0f MiB): --place gpu", a->device,
            (double)a->plans[0].bytes / MIB, (double)a->device_memory / MIB);
    else
        say(h, "device_holds_some", "%s holds %.0f MiB, all of it would be %.0f: --place hot",
            a->device, (double)a->device_memory / MIB, (double)a->plans[0].bytes / MIB);
}

void analysis_hints(struct analysis_hints *h, const struct analysis_count *c,
                    const struct hparams *hp, const struct analysis_machine *a)
{
    h->n = 0;
    about_experts(h, c);
    about_intensity(h, c);
    about_context(h, c, hp);
    if (a->why.code)
        return;
    about_fit(h, a);
    about_device(h, a);
}
