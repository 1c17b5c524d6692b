/* A report as text and as JSON; see report.h. */
#include "app/lab/report.h"

#include "engine/base/path.h"

#include <math.h>

static const char *name_of(const struct trace *t)
{
    return path_name(t->path);
}

static void put_spanned(FILE *f, const struct spanned *s, int digits)
{
    fprintf(f, " %*.*f [%.*f, %.*f]", digits + 3, digits, s->value, digits, s->low, digits,
            s->high);
}

static void put_test(FILE *f, const struct chi_square *t)
{
    if (!t->dof)
        fprintf(f, "        --       ");
    else
        fprintf(f, " %5.3f%-2s (%8.1e)", t->v,
                t->p_holm < 0.01   ? "**"
                : t->p_holm < 0.05 ? "*"
                                   : "",
                t->p_holm);
}

static void put_load(FILE *f, const struct trace_report *r)
{
    fprintf(f, "\nload: entropy in bits, Gini coefficient and largest over mean, with 95 %% "
               "intervals of a block bootstrap\n");
    fprintf(f, "layer experts  entropy               of most  Gini                  max/mean"
               "              unused\n");
    for (int l = 0; l < r->n_layers; l++) {
        const struct layer_report *p = &r->layers[l];

        fprintf(f, "%5d %3d of %-3d", p->layer, p->used, p->experts);
        put_spanned(f, &p->entropy, 3);
        fprintf(f, " %5.1f %%", 100 * p->entropy_share);
        put_spanned(f, &p->gini, 3);
        put_spanned(f, &p->max_mean, 2);
        fprintf(f, "  %5.1f %%\n", 100 * p->unused);
    }
}

static void put_time(FILE *f, const struct trace_report *r)
{
    bool scores = r->trace->head.scores;

    fprintf(f,
            "\nexperts kept from token to token, and told by the layer before, against chance; "
            "drift: divergence of the halves, bits%s\n",
            scores ? "; margin: chosen above the others, in the router's scores" : "");
    fprintf(f, "layer    kept  chance    told  chance   drift%s\n",
            scores ? "  margin  median     p10" : "");
    for (int l = 0; l < r->n_layers; l++) {
        const struct layer_report *p = &r->layers[l];

        fprintf(f, "%5d  %5.1f%%  %5.1f%%", p->layer, 100 * p->persistence,
                100 * p->persistence_chance);
        if (p->ahead_tokens)
            fprintf(f, "  %5.1f%%  %5.1f%%", 100 * p->ahead, 100 * p->ahead_chance);
        else
            fprintf(f, "      --      --");
        fprintf(f, "  %6.4f", p->drift);
        if (scores)
            fprintf(f, "  %6.3f  %6.3f  %6.3f", p->margin_mean, p->margin_median, p->margin_p10);
        fprintf(f, "\n");
    }
}

static void put_factors(FILE *f, const struct trace_report *r)
{
    fprintf(f,
            "\nspecialisation: Cram\u00e9r's V of the first expert with each, and the chi-square "
            "test's p after Holm's correction (* 0.05, ** 0.01)\nlayer");
    for (int i = 0; i < FACTORS; i++)
        fprintf(f, " %-17s", factor_words[i]);
    fprintf(f, "\n");
    for (int l = 0; l < r->n_layers; l++) {
        fprintf(f, "%5d", r->layers[l].layer);
        for (int i = 0; i < FACTORS; i++)
            put_test(f, &r->layers[l].tests[i]);
        fprintf(f, "\n");
    }
}

static void put_languages(FILE *f, const struct trace_report *r)
{
    const char *between = "\nlanguages, tokens of texts: ";

    for (int i = 0; i < REPORT_LANGUAGES && r->language; i++)
        if (r->languages[i]) {
            fprintf(f, "%s%s %llu", between, report_language_word(i),
                    (unsigned long long)r->languages[i]);
            between = ", ";
        }
    if (r->language)
        fprintf(f, "\n");
}

static void put_relation(FILE *f, const struct trace_report *r)
{
    if (!r->trace->head.logprobs || !r->trace->head.scores)
        return;
    fprintf(
        f,
        "\nrouter's margin and the next token: Spearman's rho of margin and -ln p, with a 95 %% "
        "interval; perplexity behind the quarter of least margins, of largest (all: %.4f)\n"
        "layer  rho                        least   largest    pairs\n",
        r->perplexity);
    for (int l = 0; l < r->n_layers; l++) {
        const struct relation *p = &r->layers[l].relation;

        fprintf(f, "%5d ", r->layers[l].layer);
        if (p->n) {
            put_spanned(f, &p->rho, 3);
            fprintf(f, " %9.3f %9.3f %8llu\n", p->low, p->high, (unsigned long long)p->n);
        } else {
            fprintf(f, " N/A: too few tokens have both\n");
        }
    }
}

static void put_pairs(FILE *f, const struct trace_report *r)
{
    fprintf(f, "\nexperts chosen together more often than by chance (times, expected)\n");
    for (int l = 0; l < r->n_layers; l++) {
        const struct layer_report *p = &r->layers[l];

        fprintf(f, "%5d", p->layer);
        for (int i = 0; i < p->n_pairs && i < 4; i++)
            fprintf(f, "  %d+%d \u00d7%.2f (%llu, %.1f)", p->pairs[i].a, p->pairs[i].b,
                    p->pairs[i].lift, (unsigned long long)p->pairs[i].count, p->pairs[i].expected);
        fprintf(f, p->n_pairs ? "\n" : "  none\n");
    }
}

static void put_placement(FILE *f, const struct report_placement *p)
{
    if (p->none[0]) {
        fprintf(f, "\nplacement in tok/s: N/A, %s\n", p->none);
        return;
    }
    fprintf(
        f,
        "\nplacement, tokens a second by the cost model with what jobs cost on this machine and "
        "%s: cpu %.2f, experts-gpu %.2f, gpu %.2f\n"
        "k experts a layer: hot, the most used ones there; experts:k, the first k of each layer; "
        "a cache of as many, the others on disk%s\n"
        "    k      MiB   hot tok/s   calls  experts:k   calls  cache tok/s   calls  read a "
        "token\n",
        p->device, p->cpu, p->experts_gpu, p->gpu,
        p->disk > 0
            ? ""
            : " (N/A: the disk's rate is not known, the file is small or not read directly)");
    for (int i = 0; i < p->n; i++) {
        const struct report_placed *r = &p->rows[i];

        fprintf(f, "%5d %8.2f %11.2f %6.1f%% %10.2f %6.1f%%", r->experts,
                (double)r->bytes / (1 << 20), r->hot, 100 * r->hot_hits, r->first,
                100 * r->first_hits);
        if (r->cached > 0)
            fprintf(f, " %12.2f", r->cached);
        else
            fprintf(f, " %12s", "N/A");
        fprintf(f, " %6.1f%% %9.3f MiB\n", 100 * r->cache_hits, r->read / (1 << 20));
    }
}

static json_t *placement_json(const struct report_placement *p)
{
    json_t *rows = json_array();

    if (p->none[0]) {
        json_decref(rows);
        return json_pack("{s:s}", "none", p->none);
    }
    for (int i = 0; i < p->n; i++) {
        const struct report_placed *r = &p->rows[i];

        json_array_append_new(
            rows, json_pack("{s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "experts", r->experts,
                            "bytes", (json_int_t)r->bytes, "hot_tok_s", r->hot, "hot_hits",
                            r->hot_hits, "first_tok_s", r->first, "first_hits", r->first_hits,
                            "cache_hits", r->cache_hits, "read_bytes", r->read, "cache_tok_s",
                            r->cached > 0 ? json_real(r->cached) : json_null()));
    }
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:o}", "device", p->device, "cpu_tok_s", p->cpu,
                     "experts_gpu_tok_s", p->experts_gpu, "gpu_tok_s", p->gpu,
                     "disk_bytes_per_second", p->disk, "rows", rows);
}

static void put_comparison(FILE *f, const struct trace_report *r, const struct trace_comparison *c)
{
    fprintf(f,
            "\n%s against %s: %llu tokens at the same place of both\n"
            "divergence of the loads in bits (Jensen-Shannon); V: first experts by trace\n"
            "layer  divergence  V (p)            ",
            name_of(r[0].trace), name_of(r[1].trace), (unsigned long long)c->common);
    fprintf(f, c->common ? "  common experts         same first  weights differ by\n" : "\n");
    for (int l = 0; l < c->n_layers; l++) {
        const struct layer_comparison *p = &c->layers[l];

        fprintf(f, "%5d  %10.5f ", p->layer, p->divergence);
        put_test(f, &p->test);
        if (c->common) {
            put_spanned(f, &p->overlap, 4);
            fprintf(f, "  %8.2f %%  %.5f", 100 * p->same_first, p->weight_difference);
        }
        fprintf(f, "\n");
    }
}

void report_text(FILE *f, const struct trace_report *r, size_t n, const struct trace_comparison *c)
{
    for (size_t i = 0; i < n; i++) {
        const struct trace *t = r[i].trace;

        fprintf(f, "%s%s: %s, %llu tokens in %d sequence%s%s\n", i ? "\n" : "", name_of(t),
                t->head.model, (unsigned long long)t->n, t->sequences, t->sequences == 1 ? "" : "s",
                t->torn ? "; its end is torn off" : "");
        put_load(f, &r[i]);
        put_time(f, &r[i]);
        put_factors(f, &r[i]);
        put_languages(f, &r[i]);
        put_relation(f, &r[i]);
        put_pairs(f, &r[i]);
        put_placement(f, &r[i].placement);
    }
    if (c)
        put_comparison(f, r, c);
}

/* ---- JSON ---- */

static json_t *spanned_json(const struct spanned *s)
{
    return json_pack("[f, f, f]", s->value, s->low, s->high);
}

static json_t *test_json(const struct chi_square *t)
{
    return t->dof ? json_pack("{s:f, s:i, s:f, s:f, s:f, s:I}", "chi2", t->chi2, "dof", t->dof, "p",
                              t->p, "p_holm", t->p_holm, "v", t->v, "n", (json_int_t)t->n)
                  : json_null();
}

static json_t *layer_json(const struct layer_report *p, bool scores)
{
    json_t *counts = json_array(), *pairs = json_array(), *tests = json_object(), *o;

    for (int x = 0; x < p->experts; x++)
        json_array_append_new(counts, json_integer((json_int_t)p->counts[x]));
    for (int i = 0; i < p->n_pairs; i++)
        json_array_append_new(pairs, json_pack("{s:i, s:i, s:I, s:f, s:f}", "a", p->pairs[i].a, "b",
                                               p->pairs[i].b, "count",
                                               (json_int_t)p->pairs[i].count, "expected",
                                               p->pairs[i].expected, "lift", p->pairs[i].lift));
    for (int i = 0; i < FACTORS; i++)
        json_object_set_new(tests, factor_words[i], test_json(&p->tests[i]));
    o = json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:f, s:f, s:I, s:f, s:f, s:o, s:o, s:f}",
                  "layer", p->layer, "experts", p->experts, "used", p->used, "counts", counts,
                  "entropy_bits", spanned_json(&p->entropy), "gini", spanned_json(&p->gini),
                  "max_mean", spanned_json(&p->max_mean), "entropy_share", p->entropy_share,
                  "unused", p->unused, "follow", (json_int_t)p->follow, "persistence",
                  p->persistence, "persistence_chance", p->persistence_chance, "pairs", pairs,
                  "tests", tests, "drift_bits", p->drift);
    if (o && p->before >= 0)
        json_object_set_new(o, "ahead",
                            json_pack("{s:i, s:I, s:f, s:f}", "from_layer", p->before, "tokens",
                                      (json_int_t)p->ahead_tokens, "share", p->ahead, "chance",
                                      p->ahead_chance));
    if (o && scores)
        json_object_set_new(o, "margin",
                            json_pack("{s:f, s:f, s:f}", "mean", p->margin_mean, "median",
                                      p->margin_median, "p10", p->margin_p10));
    if (o && p->relation.n)
        json_object_set_new(o, "margin_surprise",
                            json_pack("{s:I, s:o, s:f, s:f}", "pairs", (json_int_t)p->relation.n,
                                      "rho", spanned_json(&p->relation.rho), "perplexity_least",
                                      p->relation.low, "perplexity_largest", p->relation.high));
    return o;
}

static json_t *trace_json(const struct trace_report *r)
{
    const struct trace *t = r->trace;
    json_t *layers = json_array(), *languages = json_object(), *o;

    for (int l = 0; l < r->n_layers; l++)
        json_array_append_new(layers, layer_json(&r->layers[l], t->head.scores));
    for (int i = 0; i < REPORT_LANGUAGES; i++)
        if (r->languages[i])
            json_object_set_new(languages, report_language_word(i),
                                json_integer((json_int_t)r->languages[i]));
    o = json_pack("{s:s, s:s, s:I, s:i, s:b, s:o, s:o}", "file", t->path, "model", t->head.model,
                  "tokens", (json_int_t)t->n, "sequences", t->sequences, "torn", t->torn,
                  "languages", languages, "layers", layers);
    if (o)
        json_object_set_new(o, "placement", placement_json(&r->placement));
    if (o && r->perplexity > 0)
        json_object_set_new(o, "perplexity", json_real(r->perplexity));
    return o;
}

static json_t *comparison_json(const struct trace_comparison *c)
{
    json_t *layers = json_array();

    for (int l = 0; l < c->n_layers; l++) {
        const struct layer_comparison *p = &c->layers[l];
        json_t *o = json_pack("{s:i, s:f, s:o}", "layer", p->layer, "divergence_bits",
                              p->divergence, "test", test_json(&p->test));

        if (o && c->common) {
            json_object_set_new(o, "overlap", spanned_json(&p->overlap));
            json_object_set_new(o, "same_first", json_real(p->same_first));
            json_object_set_new(o, "weight_difference", json_real(p->weight_difference));
        }
        json_array_append_new(layers, o);
    }
    return json_pack("{s:I, s:o}", "common_tokens", (json_int_t)c->common, "layers", layers);
}

json_t *report_figures_json(const struct trace_report *r, size_t n,
                            const struct trace_comparison *c)
{
    json_t *traces = json_array(), *o;

    for (size_t i = 0; i < n; i++)
        json_array_append_new(traces, trace_json(&r[i]));
    o = json_pack("{s:s, s:i, s:o}", "format", "moetop-routing-report", "version", 1, "traces",
                  traces);
    if (o && c)
        json_object_set_new(o, "comparison", comparison_json(c));
    return o;
}
