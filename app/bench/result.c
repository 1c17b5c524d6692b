/* See result.h. */
#include "app/bench/result.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST_COLUMNS 30 /* width of a test's name in a table */

enum column_type { TEXT, INT, REAL, BOOL };

/* type, name, value from r and f (figures of the rates) and t (of the times). Constants are
 * moetop's fixed values: one file, mapped, no tensor split. llama-bench's own columns come first,
 * in a fixed order. */
/* clang-format off */
#define COLUMNS(X)                                   \
    X(TEXT, build_commit, r->version)                \
    X(INT, build_number, 0)                          \
    X(TEXT, cpu_info, r->cpu_info)                   \
    X(TEXT, gpu_info, r->gpu_info)                   \
    X(TEXT, backends, r->backends)                   \
    X(TEXT, model_filename, r->model_filename)       \
    X(TEXT, model_type, r->model_type)               \
    X(INT, model_size, r->model_size)                \
    X(INT, model_n_params, r->model_n_params)        \
    X(INT, n_batch, r->n_batch)                      \
    X(INT, n_ubatch, r->n_ubatch)                    \
    X(INT, n_threads, r->n_threads)                  \
    X(TEXT, cpu_mask, "0x0")                         \
    X(BOOL, cpu_strict, 0)                           \
    X(INT, poll, 50)                                 \
    X(TEXT, type_k, r->type_k)                       \
    X(TEXT, type_v, r->type_v)                       \
    X(INT, n_gpu_layers, r->n_gpu_layers)            \
    X(INT, n_cpu_moe, 0)                             \
    X(TEXT, split_mode, "layer")                     \
    X(INT, main_gpu, 0)                              \
    X(BOOL, no_kv_offload, 0)                        \
    X(INT, flash_attn, 1)                            \
    X(TEXT, devices, r->devices)                     \
    X(TEXT, tensor_split, "0.00")                    \
    X(TEXT, tensor_buft_overrides, "none")           \
    X(TEXT, load_mode, "mmap")                       \
    X(TEXT, lazy_mode, "off")                        \
    X(BOOL, embeddings, 0)                           \
    X(INT, no_op_offload, 0)                         \
    X(BOOL, no_host, 0)                              \
    X(BOOL, repack, 1)                               \
    X(INT, fit_target, 0)                            \
    X(INT, fit_min_ctx, 0)                           \
    X(INT, n_prompt, r->n_prompt)                    \
    X(INT, n_gen, r->n_gen)                          \
    X(INT, n_depth, r->n_depth)                      \
    X(TEXT, test_time, r->test_time)                 \
    X(INT, avg_ns, t->mean)                          \
    X(INT, stddev_ns, t->sd)                         \
    X(REAL, avg_ts, f->mean)                         \
    X(REAL, stddev_ts, f->sd)                        \
    X(TEXT, engine, "moetop")                        \
    X(TEXT, version, r->version)                     \
    X(TEXT, arm, r->arm)                             \
    X(TEXT, placement, r->placement)                 \
    X(TEXT, kernels, r->kernels)                     \
    X(TEXT, routing, r->routing)                     \
    X(BOOL, routing_imposed, r->routing_imposed)     \
    X(TEXT, test, r->test)                           \
    X(REAL, median_ts, f->median)                    \
    X(REAL, min_ts, f->min)                          \
    X(REAL, max_ts, f->max)                          \
    X(REAL, token_p50_ms, r->token_p50_ms)           \
    X(REAL, token_p95_ms, r->token_p95_ms)           \
    X(REAL, ttft_ms, r->ttft_ms)                     \
    X(REAL, bandwidth_before, r->bandwidth_before)   \
    X(REAL, bandwidth_after, r->bandwidth_after)     \
    X(REAL, bandwidth_lowest, r->bandwidth_lowest)   \
    X(REAL, bandwidth_highest, r->bandwidth_highest) \
    X(INT, token_bytes, r->token_bytes)              \
    X(REAL, roofline_ts, r->roofline_ts)             \
    X(REAL, roofline_share, r->share)                \
    X(BOOL, in_cache, r->in_cache)                   \
    X(INT, rss, r->rss)                              \
    X(INT, rss_peak, r->rss_peak)                    \
    X(REAL, cpu_use, r->cpu_use)                     \
    X(REAL, others_cpu_use, r->others_use)           \
    X(REAL, cpu_mhz, r->mhz)                         \
    X(INT, disk_read_bytes, r->read_bytes)           \
    X(INT, disk_write_bytes, r->write_bytes)         \
    X(INT, disk_read_calls, r->read_calls)           \
    X(INT, disk_write_calls, r->write_calls)         \
    X(REAL, experts_seen, r->experts_seen)           \
    X(REAL, experts_imbalance, r->experts_imbalance) \
    X(BOOL, disturbed, r->disturbed)                 \
    X(TEXT, remark, r->remark)                       \
    X(INT, n_parallel, r->n_parallel > 1 ? r->n_parallel : 1) \
    X(REAL, joules_a_token, r->joules_a_token) \
    X(REAL, watts, r->watts)
/* clang-format on */

struct column {
    enum column_type type;
    const char *name, *text;
    double number;
};

#define COUNT(...) +1
enum { N_COLUMNS = 0 COLUMNS(COUNT) };

/* A column's value: text for TEXT, else a number. One function, so that all formats have the same
 * values. */
static void columns_of(const struct bench_result *r, const struct series_figures *t,
                       const struct series_figures *f, struct column out[N_COLUMNS])
{
    int i = 0;

#define AS_TEXT(v) .text = (v)
#define AS_INT(v) .number = (double)(v)
#define AS_REAL(v) .number = (v)
#define AS_BOOL(v) .number = (v)
#define X(kind, column_name, v) \
    out[i++] = (struct column){.type = kind, .name = #column_name, AS_##kind(v)};
    COLUMNS(X)
#undef X
}

void bench_result_release(struct bench_result *r)
{
    series_release(&r->ns);
    series_release(&r->memory_before);
    series_release(&r->memory_after);
}

int bench_result_tokens(const struct bench_result *r)
{
    return (r->n_prompt + r->n_gen) * (r->n_parallel > 1 ? r->n_parallel : 1);
}

int bench_result_rates(const struct bench_result *r, struct series_figures *out)
{
    struct series rates = {0};
    int rc = 0;

    for (size_t i = 0; i < r->ns.n && rc == 0; i++)
        rc = series_add(&rates,
                        r->ns.values[i] > 0 ? 1e9 * bench_result_tokens(r) / r->ns.values[i] : 0);
    if (rc == 0)
        rc = series_summarise(&rates, out);
    if (rc < 0)
        memset(out, 0, sizeof *out);
    series_release(&rates);
    return rc;
}

void bench_test_name(const struct bench_result *r, char *out, size_t size)
{
    int n;

    if (r->test[0]) {
        snprintf(out, size, "%s", r->test);
        return;
    }
    n = r->n_prompt && r->n_gen ? snprintf(out, size, "pp%d+tg%d", r->n_prompt, r->n_gen)
        : r->n_gen              ? snprintf(out, size, "tg%d", r->n_gen)
                                : snprintf(out, size, "pp%d", r->n_prompt);
    if (r->n_depth && n >= 0 && (size_t)n < size)
        n += snprintf(out + n, size - (size_t)n, " @ d%d", r->n_depth);
    if (r->n_parallel > 1 && n >= 0 && (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " x%d", r->n_parallel);
}

/* JSON has no NaN: unknown is null. */
static void put_json(FILE *f, const struct column *c)
{
    if (c->type == TEXT)
        report_quoted(f, c->text);
    else if (c->type == BOOL)
        fputs(c->number ? "true" : "false", f);
    else if (!isfinite(c->number))
        fputs("null", f);
    else
        fprintf(f, c->type == INT ? "%.0f" : "%.6f", c->number);
}

static void put_quoted(FILE *f, const struct column *c, char quote)
{
    fputc(quote, f);
    if (c->type == TEXT) {
        for (const char *s = c->text; *s; s++) {
            if (*s == quote)
                fputc(quote, f);
            fputc((unsigned char)*s < 0x20 ? ' ' : *s, f);
        }
    } else if (isfinite(c->number)) {
        fprintf(f, c->type == REAL ? "%.6f" : "%.0f", c->number);
    }
    fputc(quote, f);
}

static void put_samples(FILE *f, const struct bench_result *r, const char *separator,
                        const char *gap)
{
    fprintf(f, "\"samples_ns\": [");
    for (size_t i = 0; i < r->ns.n; i++)
        fprintf(f, "%s%.0f", i ? ", " : gap, r->ns.values[i]);
    fprintf(f, "%s],%s\"samples_ts\": [", gap, separator);
    for (size_t i = 0; i < r->ns.n; i++)
        fprintf(f, "%s%.6f", i ? ", " : gap,
                r->ns.values[i] > 0 ? 1e9 * bench_result_tokens(r) / r->ns.values[i] : 0);
    fprintf(f, "%s]", gap);
}

static const char *const sql_types[] = {
    [TEXT] = "TEXT", [INT] = "INTEGER", [REAL] = "REAL", [BOOL] = "INTEGER"};

void bench_write_begin(FILE *f, enum report_format format)
{
    static const struct bench_result empty;
    static const struct series_figures none;
    struct column c[N_COLUMNS];

    columns_of(&empty, &none, &none, c);
    switch (format) {
    case REPORT_MD:
        fprintf(f, "| %-30s | %10s | %10s | %-10s | %7s | %-16s | %15s | %20s | %10s | %s |\n",
                "model", "size", "params", "backend", "threads", "placement", "test", "t/s",
                "of roofline", "remark");
        fprintf(f, "| ------------------------------ | ---------: | ---------: | ---------- | "
                   "------: | ---------------- | --------------: | "
                   "-------------------: | ----------: | --- |\n");
        break;
    case REPORT_CSV:
        for (int i = 0; i < N_COLUMNS; i++)
            fprintf(f, "%s%s", c[i].name, i < N_COLUMNS - 1 ? "," : "\n");
        break;
    case REPORT_JSON: fputs("[\n", f); break;
    case REPORT_SQL:
        fputs("CREATE TABLE IF NOT EXISTS llama_bench (\n", f);
        for (int i = 0; i < N_COLUMNS; i++)
            fprintf(f, "  %s %s%s\n", c[i].name, sql_types[c[i].type],
                    i < N_COLUMNS - 1 ? "," : "");
        fputs(");\n\n", f);
        break;
    case REPORT_JSONL: break;
    }
}

static void put_markdown(FILE *f, const struct bench_result *r, const struct series_figures *rates)
{
    char name[128], test[128], model[200], roof[24] = "", arm[96], routing[48], energy[64] = "";

    bench_test_name(r, name, sizeof name);
    /* a prompt, printed completely in the other formats */
    utf8_strip(test, sizeof test, name, utf8_fit(name, strlen(name), TEST_COLUMNS, NULL), 0);
    snprintf(model, sizeof model, "%s", r->model_type);
    if (r->in_cache)
        snprintf(roof, sizeof roof, "in cache");
    else if (r->share > 0)
        snprintf(roof, sizeof roof, "%.0f %%", 100 * r->share);
    snprintf(arm, sizeof arm, "%.60s", r->placement);
    snprintf(routing, sizeof routing, "%s%s", r->routing_imposed ? "routing imposed: " : "",
             r->routing_imposed ? r->routing : "");
    if (r->joules_a_token > 0) /* not NAN */
        snprintf(energy, sizeof energy, "%.3g J a token, %.3g W%s", r->joules_a_token, r->watts,
                 r->arm[0] || routing[0] || r->remark[0] || r->disturbed ? "; " : "");
    fprintf(f,
            "| %-30s | %6.2f GiB | %8.2f B | %-10s | %7d | %-16s | %15s | %10.2f ± %.2f | %11s | "
            "%s%s%s%s%s%s%s |\n",
            model, (double)r->model_size / (1024.0 * 1024 * 1024), (double)r->model_n_params * 1e-9,
            r->backends, r->n_threads, arm, test, rates->mean, rates->sd, roof, energy, r->arm,
            r->arm[0] && (r->remark[0] || routing[0]) ? "; " : "", routing,
            routing[0] && r->remark[0] ? "; " : "", r->remark,
            r->disturbed && !r->remark[0] ? "disturbed" : "");
}

void bench_write_row(FILE *f, enum report_format format, const struct bench_result *r, int index)
{
    struct series_figures times, rates;
    struct column c[N_COLUMNS];

    series_summarise(&r->ns, &times);
    bench_result_rates(r, &rates);
    columns_of(r, &times, &rates, c);
    switch (format) {
    case REPORT_MD: put_markdown(f, r, &rates); break;
    case REPORT_CSV:
        for (int i = 0; i < N_COLUMNS; i++) {
            put_quoted(f, &c[i], '"');
            fputs(i < N_COLUMNS - 1 ? "," : "\n", f);
        }
        break;
    case REPORT_JSON:
    case REPORT_JSONL: {
        bool lines = format == REPORT_JSONL;

        fputs(lines ? "{" : index ? ",\n  {\n" : "  {\n", f);
        for (int i = 0; i < N_COLUMNS; i++) {
            fprintf(f, "%s\"%s\": ", lines ? "" : "    ", c[i].name);
            put_json(f, &c[i]);
            fputs(lines ? ", " : ",\n", f);
        }
        fputs(lines ? "" : "    ", f);
        put_samples(f, r, lines ? " " : "\n    ", lines ? "" : " ");
        fputs(lines ? "}\n" : "\n  }", f);
        break;
    }
    case REPORT_SQL:
        fputs("INSERT INTO llama_bench (", f);
        for (int i = 0; i < N_COLUMNS; i++)
            fprintf(f, "%s%s", c[i].name, i < N_COLUMNS - 1 ? ", " : ") VALUES (");
        for (int i = 0; i < N_COLUMNS; i++) {
            put_quoted(f, &c[i], '\'');
            fputs(i < N_COLUMNS - 1 ? ", " : ");\n", f);
        }
        break;
    }
    fflush(f);
}

void bench_write_end(FILE *f, enum report_format format, int rows)
{
    if (format == REPORT_JSON)
        fputs(rows ? "\n]\n" : "]\n", f);
    fflush(f);
}

static void read_text(const json_t *o, const char *key, char *out, size_t size)
{
    const char *s = json_string_value(json_object_get(o, key));

    snprintf(out, size, "%s", s ? s : "");
}

static double read_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    return json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
}

static int read_int(const json_t *o, const char *key)
{
    double v = read_number(o, key);

    return v >= 0 && v < 2e9 ? (int)v : 0;
}

static int read_result(const json_t *o, struct bench_result *r)
{
    const json_t *samples = json_object_get(o, "samples_ns"), *v;
    size_t i;

    read_text(o, "cpu_info", r->cpu_info, sizeof r->cpu_info);
    read_text(o, "backends", r->backends, sizeof r->backends);
    read_text(o, "model_filename", r->model_filename, sizeof r->model_filename);
    read_text(o, "model_type", r->model_type, sizeof r->model_type);
    read_text(o, "type_k", r->type_k, sizeof r->type_k);
    read_text(o, "type_v", r->type_v, sizeof r->type_v);
    read_text(o, "version", r->version, sizeof r->version);
    read_text(o, "arm", r->arm, sizeof r->arm);
    read_text(o, "placement", r->placement, sizeof r->placement);
    read_text(o, "kernels", r->kernels, sizeof r->kernels);
    read_text(o, "routing", r->routing, sizeof r->routing);
    read_text(o, "test", r->test, sizeof r->test);
    r->n_threads = read_int(o, "n_threads");
    r->n_ubatch = read_int(o, "n_ubatch");
    r->n_batch = read_int(o, "n_batch");
    r->n_prompt = read_int(o, "n_prompt");
    r->n_gen = read_int(o, "n_gen");
    r->n_depth = read_int(o, "n_depth");
    r->n_parallel = read_int(o, "n_parallel");
    r->model_size = (uint64_t)read_number(o, "model_size");
    r->model_n_params = (uint64_t)read_number(o, "model_n_params");
    r->share = read_number(o, "roofline_share");
    r->disturbed = read_number(o, "disturbed") != 0;
    r->routing_imposed = read_number(o, "routing_imposed") != 0;
    if (!json_is_array(samples) || bench_result_tokens(r) <= 0)
        return ERR_INPUT;
    json_array_foreach(samples, i,
                       v) if (json_number_value(v) > 0 &&
                              series_add(&r->ns, json_number_value(v)) < 0) return ERR_MEMORY;
    return 0;
}

int bench_read(struct bench_result **out, size_t *n, const char *path, struct error *e)
{
    static const struct file_kind kind = {"benchmark report", (size_t)256 << 20, ERR_INPUT};
    json_t *root, *list;
    int rc = json_read_file(&root, path, &kind, e);

    *out = NULL;
    *n = 0;
    if (rc < 0)
        return rc;
    list = json_is_array(root) ? root : json_object_get(root, "results");
    if (!json_is_array(list))
        rc = error_set(e, ERR_INPUT, "%s: not a benchmark report (an array of results is expected)",
                       path);
    else if (!(*out = mem_alloc(json_array_size(list), sizeof **out)))
        rc = error_set(e, ERR_MEMORY, "out of memory for '%s'", path);
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        rc = read_result(json_array_get(list, i), &(*out)[i]);
        *n = i + 1;
        if (rc < 0)
            error_set(e, rc,
                      rc == ERR_MEMORY
                          ? "out of memory for '%s'"
                          : "%s: result %zu has no samples_ns, or no n_prompt and n_gen",
                      path, i + 1);
    }
    json_decref(root);
    if (rc < 0) {
        for (size_t i = 0; i < *n; i++)
            bench_result_release(&(*out)[i]);
        mem_free(*out);
        *out = NULL;
        *n = 0;
    }
    return rc;
}

static int texts_of(const struct bench_result *r)
{
    return r->n_parallel > 1 ? r->n_parallel : 1;
}

static bool same_test(const struct bench_result *a, const struct bench_result *b)
{
    return a->n_prompt == b->n_prompt && a->n_gen == b->n_gen && a->n_depth == b->n_depth &&
           texts_of(a) == texts_of(b) && strcmp(a->test, b->test) == 0;
}

/* Similarity of everything except the test: of several candidates the most similar partner is
 * taken. */
static int likeness(const struct bench_result *a, const struct bench_result *b)
{
    return 16 * (strcmp(a->routing, b->routing) == 0) + 8 * (strcmp(a->arm, b->arm) == 0) +
           4 * (a->n_threads == b->n_threads) + 2 * (strcmp(a->model_type, b->model_type) == 0) +
           (strcmp(a->placement, b->placement) == 0);
}

/* Appends "A" if both have the same, "A -> B" if they differ. */
static void put_setting(char *out, size_t size, const char *a, const char *b)
{
    size_t n = strlen(out);

    if (a[0] || b[0])
        snprintf(out + n, size - n, "%s%.60s%s%.60s", n ? ", " : "", a, strcmp(a, b) ? " -> " : "",
                 strcmp(a, b) ? b : "");
}

/* The arm, or the number of threads; then other differences between the two. */
static void settings(const struct bench_result *a, const struct bench_result *b, char *out,
                     size_t size)
{
    const char *pairs[][2] = {{a->model_type, b->model_type}, {a->kernels, b->kernels},
                              {a->placement, b->placement},   {a->routing, b->routing},
                              {a->type_k, b->type_k},         {a->type_v, b->type_v}};
    char x[16], y[16];

    out[0] = 0;
    put_setting(out, size, a->arm, b->arm);
    snprintf(x, sizeof x, "%d thread%s", a->n_threads, a->n_threads == 1 ? "" : "s");
    snprintf(y, sizeof y, "%d thread%s", b->n_threads, b->n_threads == 1 ? "" : "s");
    if (!out[0] || strcmp(x, y))
        put_setting(out, size, x, y);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (strcmp(pairs[i][0], pairs[i][1]))
            put_setting(out, size, pairs[i][0], pairs[i][1]);
}

const char *bench_verdict(const struct series_figures *a, const struct series_figures *b)
{
    if (series_differ(a, b))
        return b->median > a->median ? "B is faster" : "A is faster";
    return a->max < b->min || b->max < a->min ? "too few runs" : "none";
}

int bench_compare(FILE *f, const struct bench_result *a, size_t n_a, const struct bench_result *b,
                  size_t n_b)
{
    int found = 0;

    for (size_t i = 0; i < n_a; i++) {
        const struct bench_result *best = NULL;
        struct series_figures x, y;
        char name[128], test[128], arm[256];

        for (size_t j = 0; j < n_b; j++)
            if (same_test(&a[i], &b[j]) &&
                (!best || likeness(&a[i], &b[j]) > likeness(&a[i], best)))
                best = &b[j];
        if (!best)
            continue;
        if (!found++)
            fprintf(f,
                    "| %-22s | %-24s | %20s | %20s | %7s | %-14s |\n"
                    "| ---------------------- | ------------------------ | -------------------: | "
                    "-------------------: | ------: | -------------- |\n",
                    "test", "arm", "A t/s", "B t/s", "B / A", "difference");
        bench_result_rates(&a[i], &x);
        bench_result_rates(best, &y);
        bench_test_name(&a[i], name, sizeof name);
        utf8_strip(test, sizeof test, name, utf8_fit(name, strlen(name), TEST_COLUMNS, NULL), 0);
        settings(&a[i], best, arm, sizeof arm);
        fprintf(f, "| %-22s | %-24s | %10.2f ± %7.2f | %10.2f ± %7.2f | %6.3fx | %s%s |\n", test,
                arm, x.median, x.sd, y.median, y.sd, x.median > 0 ? y.median / x.median : 0,
                bench_verdict(&x, &y), a[i].disturbed || best->disturbed ? ", disturbed" : "");
    }
    if (found)
        fprintf(f, "\nDifferences at 98 %%, by Welch's t-test or because all runs of one lie above "
                   "all of the other; what cannot be told from noise is called none.\n");
    return found;
}
