/* --price: cost and gain of lossy settings. The base is the most exact configuration; each setting
 * is the base with a change, and computes the same chunks of a text, in turn with the base, so that
 * changes of the machine's speed affect all alike. Divergences are computed from full logits, not
 * from a file's rounded ones. */
#include "app/quality/quality.h"

#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/common/turns.h"
#include "app/quality/base_file.h"
#include "app/quality/price_arms.h"
#include "app/quality/score.h"
#include "app/setup/test_text.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 512
#define DECODED 16 /* tokens of each chunk computed one after another, for the rate */

bool price_wanted(const struct options *o)
{
    return o->price;
}

struct run {
    const char *text;
    struct price_arms arms;
    int *ids, n, bos, context, chunks, vocabulary;
    float *base; /* its logits of the chunk: (rows, vocabulary) */
    struct progress progress;
    int done, passes; /* chunks computed, and to be computed, by all arms */
    int first;        /* first arm of the current group, after the base */
    /* in progress */
    struct price_arm *arm;
    const int *chunk;
    int row;
};

/* ---- measuring ---- */

static int take_row(void *ctx, int at, const float *logits, struct error *e)
{
    struct run *r = ctx;
    float *kept = r->base + (size_t)r->row++ * (size_t)r->vocabulary;
    struct price_arm *a = r->arm;

    if (a == r->arms.all)
        memcpy(kept, logits, (size_t)r->vocabulary * sizeof *kept);
    if (!a->counted)
        divergence_add_logits(&a->sums, logits, kept, r->vocabulary, r->chunk[at + 1],
                              &a->kl[a->sums.count], &a->diff[a->sums.count]);
    return 0;
}

/* Tokens/s of a prompt of half a chunk, and of single tokens after it. */
static int take_rates(struct run *r, struct error *e)
{
    struct engine *g = r->arm->engine;
    int first = r->context / 2, rc, n = 0;
    uint64_t begun;

    engine_session_clear(g);
    begun = clock_now();
    if ((rc = engine_eval(g, r->chunk, first, NULL, false, e)) < 0)
        return rc;
    rc = series_add(&r->arm->prefill, first / clock_seconds(clock_now() - begun));
    begun = clock_now();
    for (; n < DECODED && first + n < r->context && rc == 0; n++)
        rc = engine_eval(g, r->chunk + first + n, 1, NULL, false, e);
    if (rc == 0)
        rc = series_add(&r->arm->decode, n / clock_seconds(clock_now() - begun));
    return rc == -1 ? error_set(e, ERR_MEMORY, "out of memory for a rate") : rc;
}

static int measure_chunk(struct run *r, struct price_arm *arm, int chunk, struct error *e)
{
    int *ids = r->ids + (size_t)chunk * (size_t)r->context, kept = ids[0], rc;

    progress_draw(&r->progress, r->done++, r->passes, arm->label);
    r->arm = arm;
    r->chunk = ids;
    r->row = 0;
    if (r->bos >= 0)
        ids[0] = r->bos;
    rc = score_text_by(arm->engine, ids, r->context, r->context / 2,
                       price_arm_by_token(arm) ? 1 : SCORE_ROWS, take_row, r, e);
    if (rc == 0)
        rc = take_rates(r, e);
    ids[0] = kept;
    return rc < 0 ? error_prefix(e, "%s", arm->label) : rc;
}

/* Index 0 of a group is the base. */
static int run_arm(void *ctx, size_t arm, size_t position, int chunk, struct error *e)
{
    struct run *r = ctx;

    return measure_chunk(r, &r->arms.all[arm ? r->first + (int)arm - 1 : 0], chunk, e);
}

/* The base and arms first .. last - 1 compute every chunk, starting with another arm each time; the
 * base before them, since they are compared with it. */
static int measure_group(struct run *r, int first, int last, struct error *e)
{
    struct price_arm *arms = r->arms.all;
    const struct turns turns = {.n_arms = (size_t)(1 + last - first),
                                .rounds = r->chunks,
                                .order = TURNS_REFERENCE_ROTATED,
                                .run = run_arm,
                                .ctx = r};
    int rc = price_arm_open(&arms[0], e);

    for (int k = first; k < last && rc == 0; k++)
        rc = price_arm_open(&arms[k], e);
    r->first = first;
    if (rc == 0)
        rc = turns_run(&turns, e);
    for (int k = first; k < last; k++)
        price_arm_close(&arms[k]);
    arms[0].counted = true;
    return rc;
}

/* All at once if they fit into memory together, else the base with each of them. */
static int measure(struct run *r, struct error *e)
{
    int n = r->arms.n, rc = 0;

    progress_begin(&r->progress, "price");
    if (price_arms_fit(&r->arms)) {
        r->passes = r->chunks * n;
        rc = measure_group(r, 1, n, e);
    } else {
        r->passes = r->chunks * 2 * (n - 1);
        for (int k = 1; k < n && rc == 0; k++)
            rc = measure_group(r, k, k + 1, e);
    }
    progress_end(&r->progress);
    return rc;
}

/* ---- the text ---- */

static int take_room(struct run *r, struct error *e)
{
    size_t rows = (size_t)base_file_rows(r->context), all = rows * (size_t)r->chunks;

    r->base = mem_alloc(rows * (size_t)r->vocabulary, sizeof *r->base);
    for (int i = 0; i < r->arms.n && r->base; i++) {
        struct price_arm *a = &r->arms.all[i];

        a->kl = mem_alloc(all, sizeof *a->kl);
        a->diff = mem_alloc(all, sizeof *a->diff);
        if (!a->kl || !a->diff)
            return error_set(e, ERR_MEMORY, "out of memory for %zu divergences", all);
    }
    return r->base
               ? 0
               : error_set(e, ERR_MEMORY,
                           "out of memory for %zu rows of logits; a smaller -c needs fewer", rows);
}

static int prepare(struct run *r, const struct options *o, struct error *e)
{
    const struct engine_info *info;
    int rc;

    r->text = o->perplexity ? o->perplexity : TEST_TEXT_DEFAULT;
    if ((rc = price_arms_init(&r->arms, o, CHUNK, e)) < 0 ||
        (rc = price_arm_open(&r->arms.all[0], e)) < 0)
        return rc;
    info = engine_info(r->arms.all[0].engine);
    r->context = info->context;
    r->vocabulary = info->model->hp.n_vocab;
    if ((rc = score_file(r->arms.all[0].engine, r->text, o->parse_special, &r->bos, &r->ids, &r->n,
                         e)) < 0)
        return rc;
    r->chunks = r->context < 4 ? 0 : r->n / r->context;
    if ((rc = score_chunks(o, r->text, r->n, r->context, &r->chunks, e)) < 0)
        return rc;
    return take_room(r, e);
}

/* ---- the report ---- */

struct figures {
    struct estimate kl, ratio, same_top, ppl;
    double median, high, most, prefill, decode;
};

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* kl is sorted. */
static struct figures figures_of(const struct price_arm *a)
{
    const struct divergence_sums *s = &a->sums;
    struct series_figures prefill = {0}, decode = {0};

    series_summarise(&a->prefill, &prefill);
    series_summarise(&a->decode, &decode);
    return (struct figures){
        .kl = estimate_mean(s->kl, s->kl2, s->count),
        .ratio = divergence_log_ratio(s),
        .same_top = divergence_same_top(s),
        .ppl = estimate_exp(estimate_mean(s->nll, s->nll2, s->count)),
        .median = (double)percentile(a->kl, s->count, 0.5),
        .high = (double)percentile(a->kl, s->count, 0.99),
        .most = (double)a->kl[s->count - 1],
        .prefill = prefill.median,
        .decode = decode.median,
    };
}

/* "no-exact" if the user set that: describes the base. */
static void print_base(const struct options *o)
{
    static const enum option_id told[] = {OPTION_ID_cache_type_k,  OPTION_ID_cache_type_v,
                                          OPTION_ID_dtype,         OPTION_ID_float_gemm,
                                          OPTION_ID_defer_experts, OPTION_ID_experts_used};
    char value[64];

    printf("base: %s", o->exact ? "--exact" : "--no-exact");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        option_value(o, &option_table[told[i]], value, sizeof value);
        printf(" --%s %s", option_table[told[i]].name, value);
    }
    printf("\n\n");
}

/* Whether no position differs by more than the rounding of the comparison. */
static bool is_same(const struct figures *f)
{
    return f->most < 1e-12;
}

static void print_table(const struct run *r)
{
    const struct price_arm *base = &r->arms.all[0];
    int width = 12;

    for (int i = 1; i < r->arms.n; i++)
        width = (int)strlen(r->arms.all[i].label) > width ? (int)strlen(r->arms.all[i].label)
                                                          : width;
    printf("%zu positions in %d chunks of %d tokens; ", base->sums.count, r->chunks, r->context);
    print_base(&base->o);
    printf("| %-*s | %18s | %8s | %8s | %8s | %14s | %17s | %8s | %8s | %8s |\n", width, "setting",
           "mean KL", "median", "99 %", "most", "top-1 changed", "perplexity", "prompt", "decode",
           "memory");
    printf("| %-*s | %18s | %8s | %8s | %8s | %14s | %17s | %8s | %8s | %8s |\n", width, "---",
           "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:");
    for (int i = 0; i < r->arms.n; i++) {
        const struct price_arm *a = &r->arms.all[i];
        struct figures f = figures_of(a);
        char kl[40] = "", top[24] = "", ppl[40], median[16] = "", high[16] = "", most[16] = "";

        if (i && is_same(&f)) {
            snprintf(kl, sizeof kl, "the same");
            snprintf(ppl, sizeof ppl, "%17s ", "");
        } else if (i) {
            snprintf(kl, sizeof kl, "%.2e ± %.0e", f.kl.value, f.kl.error);
            snprintf(top, sizeof top, "%.2f ± %.2f %%", 100.0 * (1.0 - f.same_top.value),
                     100.0 * f.same_top.error);
            snprintf(median, sizeof median, "%.1e", f.median);
            snprintf(high, sizeof high, "%.1e", f.high);
            snprintf(most, sizeof most, "%.1e", f.most);
            snprintf(ppl, sizeof ppl, "%+.3f ± %.3f %%", 100.0 * expm1(f.ratio.value),
                     100.0 * exp(f.ratio.value) * f.ratio.error);
        } else {
            snprintf(ppl, sizeof ppl, "%.4f ± %.4f", f.ppl.value, f.ppl.error);
        }
        /* ± has two bytes */
        printf("| %-*s | %*s | %8s | %8s | %8s | %*s | %18s | %8.1f | %8.1f | %8.1f |\n", width,
               a->label, strstr(kl, "±") ? 19 : 18, kl, median, high, most, *top ? 15 : 14, top,
               ppl, f.prefill, f.decode, (double)a->bytes / (1 << 20));
    }
    printf("\nKL in nats, from the base; prompt and decode in tokens/s, medians, measured by "
           "turns;\nmemory in MiB: weights, KV cache and scratch.\n");
    for (int i = 1; i < r->arms.n; i++) {
        struct figures f = figures_of(&r->arms.all[i]);

        if (is_same(&f))
            printf("%s: no position differs, so it changes nothing with this model and "
                   "placement.\n",
                   r->arms.all[i].label);
    }
}

static json_t *arm_json(const struct price_arm *a)
{
    struct figures f = figures_of(a);

    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}",
                     "setting", a->label, "perplexity", f.ppl.value, "perplexity_error",
                     f.ppl.error, "log_ratio", f.ratio.value, "log_ratio_error", f.ratio.error,
                     "mean_kl", f.kl.value, "mean_kl_error", f.kl.error, "median_kl", f.median,
                     "kl_99", f.high, "max_kl", f.most, "top_changed", 1.0 - f.same_top.value,
                     "prompt_tokens_per_second", f.prefill, "decode_tokens_per_second", f.decode,
                     "memory_bytes", (json_int_t)a->bytes);
}

static json_t *as_json(const struct run *r)
{
    json_t *arms = json_array();

    for (int i = 0; i < r->arms.n; i++)
        if (json_array_append_new(arms, arm_json(&r->arms.all[i])) < 0) {
            json_decref(arms);
            return NULL;
        }
    return json_pack("{s:s, s:I, s:i, s:i, s:o}", "text", r->text, "positions",
                     (json_int_t)r->arms.all[0].sums.count, "chunks", r->chunks, "context",
                     r->context, "settings", arms);
}

int price_run(struct options *o, struct error *e)
{
    struct run r = {0};
    int rc;

    if ((rc = prepare(&r, o, e)) == 0 && (rc = measure(&r, e)) == 0) {
        for (int i = 0; i < r.arms.n; i++)
            qsort(r.arms.all[i].kl, r.arms.all[i].sums.count, sizeof(float), ascending);
        print_table(&r);
        rc = fflush(stdout) ? output_failed("the prices", errno, e)
                            : score_report(o, r.arms.all[0].engine, as_json(&r), e);
    }
    price_arms_release(&r.arms);
    mem_free(r.ids);
    mem_free(r.base);
    return rc;
}
