/* The mode --compare: prompts, the run, and its report as Markdown, CSV, JSON and plot. Main
 * thread. */
#include "app/setup/engine_options.h"
#include "app/setup/test_text.h"
#include "app/placement/compare.h"
#include "app/common/svg_plot.h"
#include "app/common/paths.h"
#include "app/common/signals.h"
#include "app/setup/prompt.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define PROMPTS 3 /* of the program's own, by default */
#define TOKENS 64

static double sum_share(const struct compare *c, size_t plan)
{
    double sum = 0;

    for (int d = 0; d < c->n_devices; d++)
        sum += c->plans[plan].share[d];
    return sum;
}

/* "cpu 64 %, opencl:0 36 %" */
static void shares(const struct compare *c, size_t plan, char *out, size_t size)
{
    double sum = sum_share(c, plan);
    size_t n = 0;

    out[0] = 0;
    for (int d = 0; d < c->n_devices && n < size && sum > 0; d++)
        n += (size_t)snprintf(out + n, size - n, "%s%s %.0f %%", d ? ", " : "", c->devices[d],
                              100 * c->plans[plan].share[d] / sum);
}

/* Loss of a deferred plan per token. */
static double kl_of(const struct compare *c, const struct compare_plan *p)
{
    return c->tokens ? p->kl / (double)c->tokens : 0;
}

static const char *text_word(const struct compare *c, const struct compare_plan *p, char *lossy,
                             size_t size)
{
    if (p->defer) {
        snprintf(lossy, size, "lossy: KL %.4f, %d of %llu tokens", kl_of(c, p), p->changed,
                 (unsigned long long)c->tokens);
        return lossy;
    }
    return p->same_bits ? "same bits" : p->same_tokens ? "same text" : "DIFFERS";
}

/* "52.1 (+4 %)": tokens a second that were expected of a plan, and how far it is from them. */
static const char *expected_word(double expected, double measured, char *out, size_t size)
{
    if (expected > 0 && measured > 0)
        snprintf(out, size, "%.2f (%+.0f %%)", expected, 100 * (measured / expected - 1));
    else
        snprintf(out, size, "-");
    return out;
}

static double per_token(const struct compare *c, double total)
{
    return c->tokens ? total / (double)c->tokens : 0;
}

static void put_markdown(FILE *f, const struct compare *c)
{
    fprintf(
        f,
        "| %-21s | %20s | %18s | %20s | %18s | %-30s | %-24s | %9s | %9s | %10s | %9s | %-9s |\n",
        "placement", "prefill t/s", "expected", "decode t/s", "expected", "against the first",
        "busy", "wait/tok", "copy/tok", "moved", "switch", "text");
    fprintf(f, "| --------------------- | -------------------: | -----------------: | "
               "-------------------: | -----------------: | ------------------------------ | "
               "------------------------ | "
               "--------: | --------: | ---------: | --------: | --------- |\n");
    for (size_t i = 0; i < c->n; i++) {
        const struct compare_plan *p = &c->plans[i];
        struct series_figures a, b;
        char verdict[120], busy[120], moved[16], lossy[64], prefill[32], decode[32];

        series_summarise(&p->prefill, &a);
        series_summarise(&p->decode, &b);
        compare_verdict(c, i, verdict, sizeof verdict);
        shares(c, i, busy, sizeof busy);
        fprintf(f,
                "| %-21s | %10.2f ± %7.2f | %18s | %10.2f ± %7.2f | %18s | %-30s | %-24s | %6.2f "
                "ms | %6.2f ms | "
                "%10s | %6.1f ms | %-9s |\n",
                p->name, a.median, a.sd,
                expected_word(p->expected_prefill, a.median, prefill, sizeof prefill), b.median,
                b.sd, expected_word(p->expected_decode, b.median, decode, sizeof decode), verdict,
                busy, per_token(c, p->wait_ms), per_token(c, p->transfer_ms),
                size_format(p->moved_bytes, moved, sizeof moved), p->switch_ms,
                text_word(c, p, lossy, sizeof lossy));
    }
}

static void put_csv(FILE *f, const struct compare *c)
{
    char why[160];

    fprintf(
        f,
        "placement,prefill_median_ts,prefill_sd_ts,decode_median_ts,decode_mean_ts,decode_"
        "sd_ts,blocks,ratio,differs,wait_ms_per_token,"
        "transfer_ms_per_token,moved_bytes,switch_ms,same_tokens,same_bits,worst_difference,"
        "deferred,kl_per_token,changed_tokens,disturbed,expected_prefill_ts,expected_decode_ts\n");
    for (size_t i = 0; i < c->n; i++) {
        const struct compare_plan *p = &c->plans[i];
        struct series_figures a, b;
        bool differs;
        double ratio = compare_ratio(c, i, &differs);

        series_summarise(&p->prefill, &a);
        series_summarise(&p->decode, &b);
        fprintf(f,
                "\"%s\",%.4f,%.4f,%.4f,%.4f,%.4f,%zu,%.5f,%d,%.4f,%.4f,%llu,%.3f,%d,%d,%g,%d,%.6f,%"
                "d,%d,%.4f,%.4f\n",
                p->name, a.median, a.sd, b.median, b.mean, b.sd, b.n, ratio, differs,
                per_token(c, p->wait_ms), per_token(c, p->transfer_ms),
                (unsigned long long)p->moved_bytes, p->switch_ms, p->same_tokens, p->same_bits,
                p->worst_difference, p->defer, kl_of(c, p), p->changed,
                compare_disturbed(c, why, sizeof why), p->expected_prefill, p->expected_decode);
    }
}

static void put_json(FILE *f, const struct compare *c)
{
    char line[1000] = "";

    fprintf(f,
            "{\"prompts\": %d, \"repeats\": %d, \"block_tokens\": %d, \"tokens\": %llu, "
            "\"quantised\": %s, "
            "\"level\": %g, \"disturbed\": %s, \"remark\": ",
            c->prompts, c->repeats, c->block, (unsigned long long)c->tokens,
            c->exact ? "true" : "false", SERIES_LEVEL,
            compare_disturbed(c, line, sizeof line) ? "true" : "false");
    report_quoted(f, line);
    fputs(", \"placements\": [\n", f);
    for (size_t i = 0; i < c->n; i++) {
        const struct compare_plan *p = &c->plans[i];
        struct series_figures a, b;
        double sum = sum_share(c, i), ratio;
        char verdict[120];
        bool differs;

        ratio = compare_ratio(c, i, &differs);
        series_summarise(&p->prefill, &a);
        series_summarise(&p->decode, &b);
        compare_verdict(c, i, verdict, sizeof verdict);
        fputs("  {\"placement\": ", f);
        report_quoted(f, p->name);
        fprintf(f,
                ", \"prefill_ts\": {\"median\": %.4f, \"mean\": %.4f, \"sd\": %.4f}, "
                "\"decode_ts\": {\"median\": %.4f, \"mean\": %.4f, \"sd\": %.4f, "
                "\"samples\": [",
                a.median, a.mean, a.sd, b.median, b.mean, b.sd);
        for (size_t k = 0; k < p->decode.n; k++)
            fprintf(f, "%s%.4f", k ? ", " : "", p->decode.values[k]);
        fprintf(f,
                "]}, \"expected_prefill_ts\": %.4f, \"expected_decode_ts\": %.4f, "
                "\"ratio\": %.5f, \"differs\": %s, \"verdict\": ",
                p->expected_prefill, p->expected_decode, ratio, differs ? "true" : "false");
        report_quoted(f, verdict);
        fputs(", \"busy_share\": {", f);
        for (int d = 0; d < c->n_devices; d++) {
            fputs(d ? ", " : "", f);
            report_quoted(f, c->devices[d]);
            fprintf(f, ": %.4f", sum > 0 ? p->share[d] / sum : 0);
        }
        fprintf(f,
                "}, \"wait_ms_per_token\": %.4f, \"transfer_ms_per_token\": %.4f, \"moved_bytes\": "
                "%llu, \"switch_ms\": %.3f, \"same_tokens\": %s, "
                "\"same_bits\": %s, \"worst_difference\": %g, \"deferred\": %d, \"kl_per_token\": "
                "%.6f, \"changed_tokens\": %d}%s\n",
                per_token(c, p->wait_ms), per_token(c, p->transfer_ms),
                (unsigned long long)p->moved_bytes, p->switch_ms, p->same_tokens ? "true" : "false",
                p->same_bits ? "true" : "false", p->worst_difference, p->defer, kl_of(c, p),
                p->changed, i + 1 < c->n ? "," : "");
    }
    fputs("], \"summary\": ", f);
    compare_fastest(c, line, sizeof line);
    report_quoted(f, line);
    fputs("}\n", f);
}

void compare_write(FILE *f, int format, const struct compare *c)
{
    if (format == REPORT_MD)
        put_markdown(f, c);
    else if (format == REPORT_CSV)
        put_csv(f, c);
    else
        put_json(f, c);
    fflush(f);
}

static int draw(const struct compare *c, const char *path, struct error *e)
{
    struct plot_bar bars[COMPARE_MAX];
    struct plot_point points[COMPARE_MAX];
    char *drawing;
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < c->n; i++) {
        bars[i] = (struct plot_bar){.label = c->plans[i].name};
        series_summarise(&c->plans[i].decode, &bars[i].figures);
        if (c->range && (n == 0 || c->plans[i].x > points[n - 1].x))
            points[n++] = (struct plot_point){c->plans[i].x, bars[i].figures.median};
    }
    drawing = n > 2 ? plot_curve("Decode speed over the sweep", "layers, experts or MiB",
                                 "tokens/s", points, n)
                    : plot_bars("Decode speed by placement", "tokens/s", bars, c->n);
    rc = plot_write(path, &drawing, 1, e);
    mem_free(drawing);
    return rc;
}

/* The prompt as a user's turn, or raw if the model has no chat format. */
static int encode(struct engine *g, const char *prompt, bool raw, int **ids, int *n,
                  struct error *e)
{
    const struct engine_info *info = engine_info(g);
    struct message m = {.role = ROLE_USER, .text = (char *)prompt};

    if (!info->tokenizer)
        return error_set(e, ERR_MODEL, "--compare needs a model with a tokenizer");
    if (raw || !info->chat)
        return tokenizer_encode(info->tokenizer, prompt, strlen(prompt), false, ids, n, e);
    return chat_template_encode(info->chat, &m, 1, NULL, true, NULL, ids, n, NULL, e);
}

static int compare_text(struct compare *c, struct engine *g, const char *prompt,
                        const struct options *o, struct error *e)
{
    int *ids = NULL, n = 0, rc = encode(g, prompt, o->raw, &ids, &n, e);

    if (rc == 0 && n > 0)
        rc = compare_prompt(c, g, ids, n, o->n_predict > 0 ? o->n_predict : TOKENS,
                            o->bench_repetitions, signals_stop, NULL, e);
    mem_free(ids);
    return rc;
}

/* Lines of a file, the first `most` of them. */
static int compare_lines(struct compare *c, struct engine *g, const char *path, int most,
                         const struct options *o, struct error *e)
{
    char own[4096], *text, *rest;
    size_t size;
    int rc = test_prompts_read(path, own, &text, &size, e);

    rest = text;
    for (const char *line; rc == 0 && c->prompts < most && (line = test_text_line(&rest));)
        rc = compare_text(c, g, line, o, e);
    mem_free(text);
    return rc;
}

static int run(struct compare *c, struct engine *g, const struct options *o, struct error *e)
{
    char *prompt = NULL;
    int rc;

    if (o->bench_prompts || (!o->prompt && !o->file))
        return compare_lines(c, g, o->bench_prompts, o->bench_prompts ? 1 << 20 : PROMPTS, o, e);
    rc = prompt_read(o, &prompt, e);
    if (rc == 0)
        rc = compare_text(c, g, prompt, o, e);
    mem_free(prompt);
    return rc;
}

/* Reports whether logits are identical, the invariant of the program; a violation is an error for
 * quantised weights. */
static int judge_text(const struct compare *c, struct error *e)
{
    size_t lossy = 0;
    char line[1000];

    for (size_t i = 1; i < c->n; i++)
        if (!c->plans[i].defer && (c->exact ? !c->plans[i].same_bits : !c->plans[i].same_tokens))
            return error_set(
                e, ERR_INPUT,
                "the text under '%s' is not that under '%s' (largest difference of a logit: %g)",
                c->plans[i].name, c->plans[0].name, c->plans[i].worst_difference);
    if (c->n > 1) {
        compare_fastest(c, line, sizeof line);
        fprintf(stderr, "%s\n", line);
        if (compare_disturbed(c, line, sizeof line))
            fprintf(stderr, "moetop: warning: %s; measure again on a quiet machine\n", line);
    }
    for (size_t i = 0; i < c->n; i++)
        lossy += c->plans[i].defer > 0;
    if (c->n - lossy > 1)
        fprintf(
            stderr,
            c->exact
                ? "Every logit of %llu tokens is the same, to the bit, under all %zu placements.\n"
                : "The text of %llu tokens is the same under all %zu placements (float weights: "
                  "within a tolerance, not to the bit).\n",
            (unsigned long long)c->tokens, c->n - lossy);
    return 0;
}

int compare_mode_run(struct options *o, struct error *e)
{
    struct compare c = {0};
    struct engine *g = NULL;
    struct options plain = *o; /* borrowed: only read */
    int rc = compare_parse(&c, o->compare, e);

    plain.place = (char *)"cpu"; /* plans are applied one by one later */
    plain.place_script = plain.place_prompt = NULL;
    for (size_t i = 0; i < c.n && o->place_prompt && strcmp(o->place_prompt, "same"); i++)
        if (!c.plans[i].prompt[0])
            snprintf(c.plans[i].prompt, sizeof c.plans[i].prompt, "%s", o->place_prompt);
    if (rc == 0)
        rc = engine_setup_open(&plain, &g, e);
    if (rc == 0)
        rc = run(&c, g, o, e);
    if (rc == 0 && !c.prompts)
        rc = error_set(e, ERR_INPUT, "--compare: no prompt to run");
    if (rc == 0) {
        compare_write(stdout, o->bench_format, &c);
        rc = judge_text(&c, e);
    }
    if (rc == 0 && o->plot)
        rc = draw(&c, o->plot, e);
    engine_close(g);
    compare_release(&c);
    return rc;
}
