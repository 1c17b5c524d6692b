/* --kl-divergence: how far the distributions under these settings are from those in a file of base
 * logits, with the figures of llama-perplexity. */
#include "app/quality/quality.h"

#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/quality/base_file.h"
#include "app/quality/log_probs.h"
#include "app/quality/score.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool divergence_wanted(const struct options *o)
{
    return o->kl_divergence;
}

struct run {
    struct engine *g;
    struct base_file base;
    const int *chunk;
    struct divergence_sums sums;
    float *kl, *diff;
};

static int compare_row(void *ctx, int at, const float *logits, struct error *e)
{
    struct run *r = ctx;
    int rc = base_file_read(&r->base, e);

    if (rc == 0)
        divergence_add(&r->sums, logits, r->base.row, r->base.vocabulary, r->chunk[at + 1],
                       &r->kl[r->sums.count], &r->diff[r->sums.count]);
    return rc;
}

static int compute(struct run *r, struct error *e)
{
    struct base_file *f = &r->base;
    size_t rows = (size_t)f->chunks * (size_t)base_file_rows(f->context);
    struct progress p;
    int bos, rc = score_bos(r->g, &bos, e);

    r->kl = mem_alloc(rows, sizeof *r->kl);
    r->diff = mem_alloc(rows, sizeof *r->diff);
    if (rc == 0 && (!r->kl || !r->diff))
        rc = error_set(e, ERR_MEMORY, "out of memory for %zu divergences", rows);
    progress_begin(&p, "divergence");
    for (int i = 0; i < f->chunks && rc == 0; i++) {
        int *chunk = f->ids + (size_t)i * (size_t)f->context, kept = chunk[0];

        progress_draw(&p, i, f->chunks, NULL);
        r->chunk = chunk;
        if (bos >= 0)
            chunk[0] = bos;
        rc = score_text(r->g, chunk, f->context, f->context / 2, compare_row, r, e);
        chunk[0] = kept;
    }
    progress_end(&p);
    return rc;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void print_percentiles(const char *what, const float *sorted, size_t n, double scale,
                              const char *unit)
{
    static const double parts[] = {0.999, 0.99, 0.95, 0.9, 0.5, 0.1, 0.05, 0.01, 0.001};

    printf("Maximum %s: %10.6f%s\n", what, scale * (double)sorted[n - 1], unit);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i] == 0.5)
            printf("Median  %s: %10.6f%s\n", what, scale * (double)percentile(sorted, n, 0.5),
                   unit);
        else
            printf("%4.1f%%   %s: %10.6f%s\n", 100.0 * parts[i], what,
                   scale * (double)percentile(sorted, n, parts[i]), unit);
    printf("Minimum %s: %10.6f%s\n", what, scale * (double)sorted[0], unit);
}

static void print_estimate(const char *what, struct estimate x, double scale, const char *unit)
{
    printf("%-30s: %10.6f ± %10.6f%s\n", what, scale * x.value, scale * x.error, unit);
}

/* Root mean square, with its error derived from the square's. */
static struct estimate rms(const struct divergence_sums *s)
{
    struct estimate square = estimate_mean(s->diff2, s->diff4, s->count);
    double root = sqrt(square.value);

    return (struct estimate){root, root > 0.0 ? 0.5 / root * square.error : 0.0};
}

static void print_report(const struct run *r)
{
    const struct divergence_sums *s = &r->sums;
    struct estimate here = estimate_mean(s->nll, s->nll2, s->count),
                    there = estimate_mean(s->base, s->base2, s->count),
                    ratio = divergence_log_ratio(s);

    printf("====== Perplexity statistics ======\n");
    print_estimate("Mean PPL(Q)", estimate_exp(here), 1.0, "");
    print_estimate("Mean PPL(base)", estimate_exp(there), 1.0, "");
    printf("%-30s: %6.2f%%\n", "Cor(ln(PPL(Q)), ln(PPL(base)))", 100.0 * divergence_correlation(s));
    print_estimate("Mean ln(PPL(Q)/PPL(base))", ratio, 1.0, "");
    print_estimate("Mean PPL(Q)/PPL(base)", estimate_exp(ratio), 1.0, "");
    printf("%-30s: %10.6f\n", "Mean PPL(Q)-PPL(base)", exp(here.value) - exp(there.value));
    printf("\n====== KL divergence statistics ======\n");
    print_estimate("Mean    KLD", estimate_mean(s->kl, s->kl2, s->count), 1.0, "");
    print_percentiles("KLD", r->kl, s->count, 1.0, "");
    printf("\n====== Token probability statistics ======\n");
    print_estimate("Mean    Δp", estimate_mean(s->diff, s->diff2, s->count), 100.0, " %");
    print_percentiles("Δp", r->diff, s->count, 100.0, " %");
    print_estimate("RMS Δp", rms(s), 100.0, " %");
    print_estimate("Same top p", divergence_same_top(s), 100.0, " %");
}

static json_t *as_json(const struct run *r)
{
    const struct divergence_sums *s = &r->sums;
    struct estimate kl = estimate_mean(s->kl, s->kl2, s->count), ratio = divergence_log_ratio(s);

    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "tokens",
                     (json_int_t)s->count, "perplexity",
                     exp(estimate_mean(s->nll, s->nll2, s->count).value), "base_perplexity",
                     exp(estimate_mean(s->base, s->base2, s->count).value), "log_ratio",
                     ratio.value, "log_ratio_error", ratio.error, "mean_kl", kl.value,
                     "mean_kl_error", kl.error, "median_kl",
                     (double)percentile(r->kl, s->count, 0.5), "kl_99",
                     (double)percentile(r->kl, s->count, 0.99), "max_kl",
                     (double)r->kl[s->count - 1], "same_top", divergence_same_top(s).value);
}

int divergence_run(struct options *o, struct error *e)
{
    struct run r = {0};
    int rc;

    if (!o->kl_divergence_base)
        return error_set(e, ERR_USAGE,
                         "--kl-divergence needs the file to compare with: --kl-divergence-base "
                         "FILE, which --perplexity TEXT --kl-divergence-base FILE writes");
    if ((rc = score_open(o, 512, &r.g, e)) == 0 &&
        (rc = base_file_open(&r.base, o->kl_divergence_base, engine_info(r.g)->model->hp.n_vocab,
                             e)) == 0 &&
        r.base.context > engine_info(r.g)->context)
        rc = error_set(e, ERR_USAGE, "%s: its chunks have %d tokens; give -c %d", r.base.path,
                       r.base.context, r.base.context);
    if (rc == 0)
        rc = compute(&r, e);
    if (rc == 0) {
        qsort(r.kl, r.sums.count, sizeof *r.kl, ascending);
        qsort(r.diff, r.sums.count, sizeof *r.diff, ascending);
        print_report(&r);
        rc = fflush(stdout) ? output_failed("the divergence", errno, e)
                            : score_report(o, r.g, as_json(&r), e);
    }
    base_file_close(&r.base);
    mem_free(r.kl);
    mem_free(r.diff);
    engine_close(r.g);
    return rc;
}
