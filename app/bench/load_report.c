/* See load_report.h. All formats are made from one table of columns. */
#include "app/bench/load_report.h"

#include <jansson.h>
#include <string.h>

struct figures {
    struct series_figures ttft, gap, rate;
};

static int figures_of(const struct load_result *r, struct figures *f, struct error *e)
{
    if (series_summarise(&r->ttft, &f->ttft) < 0 || series_summarise(&r->gap, &f->gap) < 0 ||
        series_summarise(&r->rate, &f->rate) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the results");
    return 0;
}

static double cached_percent(const struct load_result *r)
{
    return r->prompt_tokens ? 100.0 * (double)r->cached_tokens / (double)r->prompt_tokens : 0;
}

static json_t *series_json(const struct series_figures *f)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:I}", "mean", f->mean, "sd", f->sd, "median", f->median,
                     "p95", f->p95, "n", (json_int_t)f->n);
}

static int row_json(const void *ctx, size_t i, json_t **out, struct error *e)
{
    const struct load_result *r = (const struct load_result *)ctx + i;
    struct figures f;
    int rc = figures_of(r, &f, e);

    if (rc < 0)
        return rc;
    *out = json_pack("{s:s, s:s, s:i, s:I, s:i, s:I, s:I, s:I, s:o, s:o, s:o}", "where", r->where,
                     "model", r->model, "clients", r->clients, "requests", (json_int_t)r->requests,
                     "failed", r->failed, "prompt_tokens", (json_int_t)r->prompt_tokens,
                     "cached_tokens", (json_int_t)r->cached_tokens, "completion_tokens",
                     (json_int_t)r->completion_tokens, "ttft_ms", series_json(&f.ttft),
                     "inter_token_ms", series_json(&f.gap), "tokens_per_second",
                     series_json(&f.rate));
    return 0;
}

static int put_row(FILE *f, enum report_format format, const void *ctx, size_t i, struct error *e)
{
    const struct load_result *r = (const struct load_result *)ctx + i;
    struct figures v;
    int rc = figures_of(r, &v, e);

    if (rc < 0)
        return rc;
    if (format == REPORT_MD)
        fprintf(f,
                "| %s | %d | %zu | %d | %.0f %% | %.1f ± %.1f | %.1f | %.2f ± %.2f | %.2f | "
                "%.1f ± %.1f |\n",
                r->where, r->clients, r->requests, r->failed, cached_percent(r), v.ttft.mean,
                v.ttft.sd, v.ttft.p95, v.gap.mean, v.gap.sd, v.gap.p95, v.rate.mean, v.rate.sd);
    else
        fprintf(f,
                "\"%s\",\"%s\",%d,%zu,%d,%llu,%llu,%llu,%.3f,%.3f,%.3f,%.4f,%.4f,%.4f,%.3f,%.3f\n",
                r->where, r->model, r->clients, r->requests, r->failed,
                (unsigned long long)r->prompt_tokens, (unsigned long long)r->cached_tokens,
                (unsigned long long)r->completion_tokens, v.ttft.mean, v.ttft.sd, v.ttft.p95,
                v.gap.mean, v.gap.sd, v.gap.p95, v.rate.mean, v.rate.sd);
    return 0;
}

int load_report_write(FILE *f, enum report_format format, const struct load_result *r, size_t n,
                      struct error *e)
{
    const struct report_table table = {
        .option = "--bench --connect",
        .md = "| where | clients | requests | failed | cached | TTFT ms | p95 | between tokens "
              "ms | p95 | tokens/s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | "
              "---: | ---: |\n",
        .csv = "where,model,clients,requests,failed,prompt_tokens,cached_tokens,"
               "completion_tokens,ttft_ms,ttft_sd_ms,ttft_p95_ms,inter_token_ms,"
               "inter_token_sd_ms,inter_token_p95_ms,tokens_per_second,tokens_per_second_sd\n",
        .n = n,
        .indent = JSON_INDENT(2),
        .row = put_row,
        .json = row_json,
        .ctx = r};

    return report_table(f, format, &table, e);
}
