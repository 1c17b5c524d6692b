/* --bench-verify: the cost of verifying drafts. Every round starts at the same place of the text
 * and computes 1, 2 .. K of its next tokens in one pass, with logits of every row, each from the
 * same KV cache; the order is rotated from round to round. A pass is compared with the one-row pass
 * of its own round, in time and in bytes (the experts that its rows chose, each counted once), so
 * that variations of the machine affect both. Main thread. */
#include "app/bench/internal.h"
#include "app/common/signals.h"
#include "app/common/turns.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <jansson.h>
#include <string.h>

/* Of passes of so many rows, one value per round. */
struct pass_rows {
    struct series ms, bytes, gb_s;
    struct series time, reads, over; /* relative to one row; time / reads */
    double round_ns;                 /* of the current round */
    uint64_t round_bytes;
};

struct verifying {
    struct bench *b;
    struct bench_arm *a;
    struct pass_rows *rows; /* (most) */
    float *logits;          /* (most, n_vocab) */
    int *ids;
    int most, depth, rounds;
    uint64_t read;
};

/* A line of the report: medians. */
struct verify_figures {
    int rows;
    struct series_figures ms, bytes, gb_s, time, reads, over;
};

/* Start of a round; the warm-up is number -1. */
static int pos_of(const struct verifying *v, int round)
{
    return v->depth + (round + 1) * v->most;
}

static void count_rows(void *ctx, const struct routing *r)
{
    struct verifying *v = ctx;

    v->read += roofline_rows_bytes(&v->a->roofline, engine_info(v->a->g)->model, r->experts,
                                   r->rows, r->pos);
}

/* Arm `arm`: a pass of arm + 1 rows; the session is restored. */
static int run_pass(void *ctx, size_t arm, size_t position, int round, struct error *e)
{
    struct verifying *v = ctx;
    struct pass_rows *p = &v->rows[arm];
    int pos = pos_of(v, round), n = (int)arm + 1, rc;
    uint64_t start;

    for (int i = 0; i < v->most && !position; i++)
        v->ids[i] = bench_token_at(v->b, v->a, pos + i, 0);
    v->read = v->a->roofline.head;
    start = clock_now();
    rc = engine_eval_chunked(v->a->g, v->ids, n, n, v->logits, true, e);
    p->round_ns = (double)(clock_now() - start);
    p->round_bytes = v->read;
    engine_session_rewind(v->a->g, pos);
    return rc;
}

static int keep_rows(struct pass_rows *p, const struct pass_rows *one, struct error *e)
{
    double time = p->round_ns / one->round_ns,
           reads = (double)p->round_bytes / (double)one->round_bytes;

    if (series_add(&p->ms, p->round_ns * 1e-6) < 0 ||
        series_add(&p->bytes, (double)p->round_bytes) < 0 ||
        series_add(&p->gb_s, (double)p->round_bytes / p->round_ns) < 0 ||
        series_add(&p->time, time) < 0 || series_add(&p->reads, reads) < 0 ||
        series_add(&p->over, time / reads) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the samples");
    return 0;
}

/* Then advances the text by as many tokens as were tried. */
static int end_round(void *ctx, int round, struct error *e)
{
    struct verifying *v = ctx;
    int rc = 0;

    for (int i = 0; i < v->most && rc == 0 && round >= 0; i++)
        rc = keep_rows(&v->rows[i], &v->rows[0], e);
    if (rc == 0)
        rc = engine_eval(v->a->g, v->ids, v->most, NULL, false, e);
    return rc < 0 ? rc : signals_check(e);
}

static int fill_depth(struct verifying *v, struct error *e)
{
    int *ids = bench_tokens(v->b, v->a, 0, v->depth, 0, e), rc = 0;

    if (!ids)
        return ERR_MEMORY;
    if (v->depth)
        rc = engine_eval(v->a->g, ids, v->depth, NULL, false, e);
    mem_free(ids);
    return rc;
}

/* The first round does not count: its weights may not be in memory yet. */
static int measure(struct verifying *v, struct error *e)
{
    const struct turns turns = {.n_arms = (size_t)v->most,
                                .rounds = v->rounds,
                                .warm_ups = 1,
                                .order = TURNS_ROTATED,
                                .run = run_pass,
                                .round_done = end_round,
                                .ctx = v};
    int rc = bench_place(v->a, e);

    if (rc == 0)
        rc = fill_depth(v, e);
    engine_observe(v->a->g, count_rows, v);
    if (rc == 0)
        rc = turns_run(&turns, e);
    engine_observe(v->a->g, NULL, NULL);
    return rc;
}

static int summarise(const struct verifying *v, int i, struct verify_figures *f, struct error *e)
{
    const struct pass_rows *p = &v->rows[i];

    f->rows = i + 1;
    if (series_summarise(&p->ms, &f->ms) < 0 || series_summarise(&p->bytes, &f->bytes) < 0 ||
        series_summarise(&p->gb_s, &f->gb_s) < 0 || series_summarise(&p->time, &f->time) < 0 ||
        series_summarise(&p->reads, &f->reads) < 0 || series_summarise(&p->over, &f->over) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the results");
    return 0;
}

static int row_json(const void *ctx, size_t i, json_t **out, struct error *e)
{
    struct verify_figures f;
    int rc = summarise(ctx, (int)i, &f, e);

    if (rc == 0)
        *out = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "rows", f.rows, "pass_ms",
                         f.ms.median, "pass_sd_ms", f.ms.sd, "bytes", f.bytes.median,
                         "gb_per_second", f.gb_s.median, "time_of_one", f.time.median,
                         "bytes_of_one", f.reads.median, "time_by_bytes", f.over.median, "rounds",
                         (json_int_t)f.ms.n);
    return rc;
}

static int put_row(FILE *to, enum report_format format, const void *ctx, size_t i, struct error *e)
{
    struct verify_figures f;
    int rc = summarise(ctx, (int)i, &f, e);

    if (rc < 0)
        return rc;
    if (format == REPORT_MD)
        fprintf(to, "| %4d | %9.2f | %7.1f | %6.1f | %11.3f | %12.3f | %12.3f | %6zu |\n", f.rows,
                f.ms.median, f.bytes.median * 1e-6, f.gb_s.median, f.time.median, f.reads.median,
                f.over.median, f.ms.n);
    else
        fprintf(to, "%d,%.4f,%.4f,%.0f,%.3f,%.5f,%.5f,%.5f,%zu\n", f.rows, f.ms.median, f.ms.sd,
                f.bytes.median, f.gb_s.median, f.time.median, f.reads.median, f.over.median,
                f.ms.n);
    return 0;
}

static int report(const struct verifying *v, enum report_format format, struct error *e)
{
    const struct report_table table = {
        .option = "--bench-verify",
        .md = "| rows | ms a pass | MB read |   GB/s | time of one | bytes of one | time / bytes "
              "| rounds |\n| ---: | --------: | ------: | -----: | ----------: | -----------: "
              "| -----------: | -----: |\n",
        .csv = "rows,pass_ms,pass_sd_ms,bytes,gb_per_second,time_of_one,bytes_of_one,time_by_bytes,"
               "rounds\n",
        .n = (size_t)v->most,
        .indent = JSON_INDENT(1),
        .row = put_row,
        .json = row_json,
        .ctx = v};

    return report_table(stdout, format, &table, e);
}

static void release(struct verifying *v)
{
    for (int i = 0; v->rows && i < v->most; i++) {
        struct pass_rows *p = &v->rows[i];

        series_release(&p->ms);
        series_release(&p->bytes);
        series_release(&p->gb_s);
        series_release(&p->time);
        series_release(&p->reads);
        series_release(&p->over);
    }
    mem_free(v->rows);
    mem_free(v->logits);
    mem_free(v->ids);
}

int bench_verify_context(const struct options *o, int depth)
{
    return depth + (o->bench_repetitions + 2) * o->bench_verify;
}

int bench_verify(struct bench *b, int depth, struct error *e)
{
    const struct options *o = b->o;
    struct verifying v = {.b = b,
                          .a = b->arms,
                          .most = o->bench_verify,
                          .depth = depth,
                          .rounds = o->bench_repetitions};
    size_t n_vocab = (size_t)engine_info(v.a->g)->model->hp.n_vocab, most = (size_t)v.most;
    int rc;

    if (b->n_arms > 1)
        return error_set(e, ERR_USAGE,
                         "--bench-verify measures one setting: no --arms, and one "
                         "number of threads (-t)");
    v.rows = mem_alloc(most, sizeof *v.rows);
    v.logits = mem_alloc(most * n_vocab, sizeof *v.logits);
    v.ids = mem_alloc(most, sizeof *v.ids);
    rc = v.rows && v.logits && v.ids
             ? measure(&v, e)
             : error_set(e, ERR_MEMORY, "out of memory for passes of %d rows", v.most);
    if (rc == 0)
        rc = report(&v, (enum report_format)o->bench_format, e);
    release(&v);
    return rc;
}
