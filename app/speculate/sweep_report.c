/* Tables and plots of --spec-sweep; see sweep.h. */
#include "app/speculate/sweep.h"

#include "app/common/svg_plot.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"

#include <jansson.h>
#include <string.h>

#define DRAWINGS 5

/* Statistics of the samples of an arm. */
struct arm_figures {
    struct series_figures rate, gain, reads, accepted, token_ms; /* accepted: percent of drafted */
    double tokens_a_pass;
    int changed, tokens;
    bool same;
    uint64_t tried[TELEMETRY_DRAFTS], right[TELEMETRY_DRAFTS];
};

static double percent(uint64_t part, uint64_t all)
{
    return all ? 100.0 * (double)part / (double)all : 0;
}

static int collect(const struct sweep *s, int arm, double (*of)(const struct sweep_sample *),
                   struct series_figures *out, struct error *e)
{
    struct series v = {0};
    int rc = 0;

    for (size_t i = 0; i < s->n && rc == 0; i++)
        if (s->samples[i].arm == arm)
            rc = series_add(&v, of(&s->samples[i]));
    if (rc == 0)
        rc = series_summarise(&v, out);
    series_release(&v);
    return rc < 0 ? error_set(e, ERR_MEMORY, "out of memory for the results") : 0;
}

static double rate_of(const struct sweep_sample *x)
{
    return x->rate;
}

static double gain_of(const struct sweep_sample *x)
{
    return x->gain;
}

static double reads_of(const struct sweep_sample *x)
{
    return x->reads;
}

static double accepted_of(const struct sweep_sample *x)
{
    return percent((uint64_t)x->accepted, (uint64_t)x->drafted);
}

static double token_ms_of(const struct sweep_sample *x)
{
    return x->token_ms;
}

static int figures_of(const struct sweep *s, int arm, struct arm_figures *f, struct error *e)
{
    uint64_t passes = 0;
    int rc;

    *f = (struct arm_figures){.same = true};
    for (size_t i = 0; i < s->n; i++) {
        const struct sweep_sample *x = &s->samples[i];

        if (x->arm != arm)
            continue;
        passes += x->passes;
        f->tokens += x->tokens;
        f->changed += x->changed;
        f->same = f->same && x->same;
        for (int k = 0; k < TELEMETRY_DRAFTS; k++) {
            f->tried[k] += x->tried[k];
            f->right[k] += x->right[k];
        }
    }
    f->tokens_a_pass = passes ? (double)f->tokens / (double)passes : 0;
    if ((rc = collect(s, arm, rate_of, &f->rate, e)) < 0 ||
        (rc = collect(s, arm, gain_of, &f->gain, e)) < 0 ||
        (rc = collect(s, arm, reads_of, &f->reads, e)) < 0 ||
        (rc = collect(s, arm, accepted_of, &f->accepted, e)) < 0)
        return rc;
    return collect(s, arm, token_ms_of, &f->token_ms, e);
}

/* "4", "auto". */
static const char *k_text(const struct sweep_arm *a, char out[16])
{
    snprintf(out, 16, "%d", a->k);
    return a->adaptive ? "auto" : out;
}

/* A row an arm. */
static int put_arm(FILE *f, enum report_format format, const void *ctx, size_t i, struct error *e)
{
    const struct sweep *s = ctx;
    const struct sweep_arm *a = &s->arms[i];
    struct arm_figures v;
    char rate[48], ms[48], k[16];
    int rc = figures_of(s, (int)i, &v, e);

    if (rc < 0 || !v.rate.n) /* interrupted before its first run */
        return rc;
    fprintf(f, "| %s | %s | %s | %zu | %s | %.3f | %.3f | %.3f | %.1f %% | %.2f | %s | ",
            a->drafter, a->policy, k_text(a, k), v.rate.n,
            report_spread(&v.rate, v.rate.median, rate), v.gain.median, v.gain.min, v.reads.median,
            v.accepted.mean, v.tokens_a_pass, report_spread(&v.token_ms, v.token_ms.mean, ms));
    if (v.same)
        fprintf(f, "the same |\n");
    else
        fprintf(f, "another (%d of %d tokens changed) |\n", v.changed, v.tokens);
    return 0;
}

static void put_csv_head(FILE *f, const struct sweep *s)
{
    fprintf(f, "drafts,accept,k,prompt,run,tokens_per_second,against_none,ttft_ms,token_ms,"
               "token_sd_ms,tokens,passes,bytes,bytes_against_none,drafted,accepted,changed,"
               "same_text");
    for (int k = 0; k < s->most_k; k++)
        fprintf(f, ",tried_%d,right_%d", k + 1, k + 1);
    fprintf(f, "\n");
}

/* A row a sample. */
static int put_sample(FILE *f, enum report_format format, const void *ctx, size_t i,
                      struct error *e)
{
    const struct sweep *s = ctx;
    const struct sweep_sample *x = &s->samples[i];
    const struct sweep_arm *a = &s->arms[x->arm];
    char number[16];

    fprintf(f, "%s,%s,%s,%d,%d,%.4f,%.5f,%.3f,%.4f,%.4f,%d,%llu,%llu,%.5f,%d,%d,%d,%d", a->drafter,
            a->policy, k_text(a, number), x->prompt + 1, x->run + 1, x->rate, x->gain, x->ttft_ms,
            x->token_ms, x->token_sd_ms, x->tokens, (unsigned long long)x->passes,
            (unsigned long long)x->bytes, x->reads, x->drafted, x->accepted, x->changed, x->same);
    for (int k = 0; k < s->most_k; k++)
        fprintf(f, ",%llu,%llu", (unsigned long long)x->tried[k], (unsigned long long)x->right[k]);
    fprintf(f, "\n");
    return 0;
}

static json_t *counts_json(const uint64_t *v, int n)
{
    json_t *all = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_integer((json_int_t)v[i]));
    return all;
}

static int sample_json(const void *ctx, size_t i, json_t **out, struct error *e)
{
    const struct sweep *s = ctx;
    const struct sweep_sample *x = &s->samples[i];
    const struct sweep_arm *a = &s->arms[x->arm];

    *out = json_pack("{s:s, s:s, s:i, s:b, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:I, s:i, s:i, "
                     "s:i, s:b, s:o, s:o, s:I, s:f}",
                     "drafts", a->drafter, "accept", a->policy, "k", a->k, "adaptive", a->adaptive,
                     "prompt", x->prompt + 1, "run", x->run + 1, "tokens_per_second", x->rate,
                     "against_none", x->gain, "ttft_ms", x->ttft_ms, "token_ms", x->token_ms,
                     "token_sd_ms", x->token_sd_ms, "tokens", x->tokens, "passes",
                     (json_int_t)x->passes, "drafted", x->drafted, "accepted", x->accepted,
                     "changed", x->changed, "same_text", x->same, "tried",
                     counts_json(x->tried, s->most_k), "right", counts_json(x->right, s->most_k),
                     "bytes", (json_int_t)x->bytes, "bytes_against_none", x->reads);
    return 0;
}

static json_t *series_json(const struct series_figures *f)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I}", "mean", f->mean, "sd", f->sd, "median",
                     f->median, "min", f->min, "max", f->max, "n", (json_int_t)f->n);
}

static json_t *arm_json(const struct sweep *s, int i, const struct arm_figures *v)
{
    const struct sweep_arm *a = &s->arms[i];

    return json_pack("{s:s, s:s, s:i, s:b, s:o, s:o, s:o, s:o, s:f, s:i, s:b, s:o, s:o, s:o}",
                     "drafts", a->drafter, "accept", a->policy, "k", a->k, "adaptive", a->adaptive,
                     "tokens_per_second", series_json(&v->rate), "against_none",
                     series_json(&v->gain), "accepted_percent", series_json(&v->accepted),
                     "token_ms", series_json(&v->token_ms), "tokens_per_pass", v->tokens_a_pass,
                     "changed", v->changed, "same_text", v->same, "tried",
                     counts_json(v->tried, s->most_k), "right", counts_json(v->right, s->most_k),
                     "bytes_against_none", series_json(&v->reads));
}

static int put_whole_json(FILE *f, const struct sweep *s, struct error *e)
{
    json_t *arms = json_array(), *samples = json_array();
    int rc = 0;

    for (int i = 0; i < s->n_arms && rc == 0; i++) {
        struct arm_figures v;

        if ((rc = figures_of(s, i, &v, e)) == 0)
            json_array_append_new(arms, arm_json(s, i, &v));
    }
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        json_t *one;

        if ((rc = sample_json(s, i, &one, e)) == 0)
            json_array_append_new(samples, one);
    }
    if (rc < 0) {
        json_decref(arms);
        json_decref(samples);
        return rc;
    }
    return report_json(f, json_pack("{s:o, s:o}", "arms", arms, "samples", samples), JSON_INDENT(1),
                       e);
}

int sweep_write(FILE *f, enum report_format format, const struct sweep *s, struct error *e)
{
    bool arms = format == REPORT_MD;
    const struct report_table table = {
        .option = "--spec-sweep",
        .md = "| drafts | accept | K | answers | tokens/s | against none | worst | bytes | "
              "accepted | tokens a pass | ms a token | text |\n| --- | --- | ---: | ---: | ---: | "
              "---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
        .csv = "", /* its columns depend on the longest draft */
        .n = arms ? (size_t)s->n_arms : s->n,
        .row = arms ? put_arm : put_sample,
        .json = sample_json,
        .ctx = s};

    if (format == REPORT_JSON)
        return put_whole_json(f, s, e);
    if (format == REPORT_CSV)
        put_csv_head(f, s);
    return report_table(f, format, &table, e);
}

/* ---- pictures ---- */

struct picture {
    const struct sweep *s;
    struct arm_figures *arms;
    char (*labels)[64];
    struct plot_bar *bars;
};

static char *draw_arms(struct picture *p, const char *title, const char *unit, size_t offset,
                       int first)
{
    size_t n = 0;

    for (int i = first; i < p->s->n_arms; i++, n++)
        p->bars[n] = (struct plot_bar){
            .label = p->labels[i],
            .figures = *(struct series_figures *)(void *)((char *)&p->arms[i] + offset)};
    return plot_bars(title, unit, p->bars, n);
}

/* Acceptance rate at each draft position, for the longest drafts of each drafter and policy. */
static char *draw_positions(struct picture *p)
{
    const struct sweep *s = p->s;
    char(*labels)[64] = mem_alloc((size_t)s->n_arms * TELEMETRY_DRAFTS + 1, sizeof *labels);
    struct plot_bar *bars = mem_alloc((size_t)s->n_arms * TELEMETRY_DRAFTS + 1, sizeof *bars);
    char *drawing = NULL;
    size_t n = 0;

    for (int i = 0; i < s->n_arms && labels && bars; i++)
        for (int k = 0; s->arms[i].k == s->most_k && k < s->most_k; k++) {
            double v = percent(p->arms[i].right[k], p->arms[i].tried[k]);

            snprintf(labels[n], sizeof labels[n], "%s, %s%s: position %d", s->arms[i].drafter,
                     s->arms[i].policy, s->arms[i].adaptive ? ", auto" : "", k + 1);
            bars[n] = (struct plot_bar){
                .label = labels[n],
                .figures = {.n = 1, .min = v, .max = v, .mean = v, .median = v, .p95 = v}};
            n++;
        }
    if (labels && bars)
        drawing = plot_bars("Drafts that were right with all before them, by position", "%", bars,
                            n);
    mem_free(labels);
    mem_free(bars);
    return drawing;
}

static int draw(struct picture *p, const char *path, struct error *e)
{
    char *all[DRAWINGS];
    int rc;

    all[0] = draw_arms(p, "Answers with drafts", "tokens/s", offsetof(struct arm_figures, rate), 0);
    all[1] = draw_arms(p, "Against the same answer without drafts", "times",
                       offsetof(struct arm_figures, gain), 1);
    all[2] = draw_arms(p, "Drafts accepted", "%", offsetof(struct arm_figures, accepted), 1);
    all[3] = draw_arms(p, "Time of a token", "ms", offsetof(struct arm_figures, token_ms), 0);
    all[4] = draw_positions(p);
    rc = plot_write(path, all, DRAWINGS, e);
    for (int i = 0; i < DRAWINGS; i++)
        mem_free(all[i]);
    return rc;
}

int sweep_draw(const char *path, const struct sweep *s, struct error *e)
{
    struct picture p = {.s = s};
    size_t n = (size_t)s->n_arms;
    int rc = 0;

    p.arms = mem_alloc(n, sizeof *p.arms);
    p.labels = mem_alloc(n, sizeof *p.labels);
    p.bars = mem_alloc(n, sizeof *p.bars);
    if (!p.arms || !p.labels || !p.bars)
        rc = error_set(e, ERR_MEMORY, "out of memory for the drawing");
    for (int i = 0; i < s->n_arms && rc == 0; i++) {
        const struct sweep_arm *a = &s->arms[i];

        rc = figures_of(s, i, &p.arms[i], e);
        char k[16];

        if (a->k)
            snprintf(p.labels[i], sizeof p.labels[i], "%s, %s, K %s", a->drafter, a->policy,
                     k_text(a, k));
        else
            snprintf(p.labels[i], sizeof p.labels[i], "no drafts");
    }
    if (rc == 0)
        rc = draw(&p, path, e);
    mem_free(p.arms);
    mem_free(p.labels);
    mem_free(p.bars);
    return rc;
}
