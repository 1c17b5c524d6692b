/* --bench-verify: what it costs to verify drafts. Every round begins at the same place of the text
 * and computes 1, 2 .. K of its next tokens in one pass, logits of every row included, each from
 * the same cache; the order turns with every round. A pass is held against the one of one row in
 * its own round: its time against that time, and its bytes (the experts that its rows really chose,
 * each once) against those bytes, so that the machine's moods meet both. Main thread. */
#include "app/bench/internal.h"
#include "app/common/signals.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <jansson.h>
#include <string.h>

/* Of passes of so many rows, a value a round. */
struct pass_rows {
    struct series ms, bytes, gb_s;
    struct series time, reads, over; /* in those of one row; time / reads */
    double round_ns;                 /* of the round under way */
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

/* A report's line: medians. */
struct verify_figures {
    int rows;
    struct series_figures ms, bytes, gb_s, time, reads, over;
};

static void count_rows(void *ctx, const struct routing *r)
{
    struct verifying *v = ctx;

    v->read += roofline_rows_bytes(&v->a->roofline, engine_info(v->a->g)->model, r->experts,
                                   r->rows, r->pos);
}

/* A pass of n rows; the session is as before. */
static int pass(struct verifying *v, int pos, int n, struct error *e)
{
    struct pass_rows *p = &v->rows[n - 1];
    uint64_t start;
    int rc;

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

/* Then the text goes on by as many tokens as were tried. */
static int one_round(struct verifying *v, int round, bool counted, struct error *e)
{
    int pos = v->depth + round * v->most, rc = 0;

    for (int i = 0; i < v->most; i++)
        v->ids[i] = bench_token_at(v->b, v->a, pos + i, 0);
    for (int i = 0; i < v->most && rc == 0; i++)
        rc = pass(v, pos, 1 + (i + round) % v->most, e);
    for (int i = 0; i < v->most && rc == 0 && counted; i++)
        rc = keep_rows(&v->rows[i], &v->rows[0], e);
    if (rc == 0)
        rc = engine_eval(v->a->g, v->ids, v->most, NULL, false, e);
    return rc == 0 && signals_last() ? error_set(e, ERR_CANCELLED, "interrupted") : rc;
}

static int fill_depth(struct verifying *v, struct error *e)
{
    int *ids = mem_alloc((size_t)v->depth + 1, sizeof *ids), rc = 0;

    if (!ids)
        return error_set(e, ERR_MEMORY, "out of memory for %d tokens", v->depth);
    for (int i = 0; i < v->depth; i++)
        ids[i] = bench_token_at(v->b, v->a, i, 0);
    if (v->depth)
        rc = engine_eval(v->a->g, ids, v->depth, NULL, false, e);
    mem_free(ids);
    return rc;
}

/* A first round does not count: it meets weights that are not in memory yet. */
static int measure(struct verifying *v, struct error *e)
{
    int rc = bench_place(v->a, e);

    if (rc == 0)
        rc = fill_depth(v, e);
    engine_observe(v->a->g, count_rows, v);
    for (int round = 0; round <= v->rounds && rc == 0; round++)
        rc = one_round(v, round, round > 0, e);
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

static json_t *row_json(const struct verify_figures *f)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "rows", f->rows, "pass_ms",
                     f->ms.median, "pass_sd_ms", f->ms.sd, "bytes", f->bytes.median,
                     "gb_per_second", f->gb_s.median, "time_of_one", f->time.median, "bytes_of_one",
                     f->reads.median, "time_by_bytes", f->over.median, "rounds",
                     (json_int_t)f->ms.n);
}

static void put_markdown(const struct verify_figures *f, int n)
{
    printf("| rows | ms a pass | MB read |   GB/s | time of one | bytes of one | time / bytes "
           "| rounds |\n| ---: | --------: | ------: | -----: | ----------: | -----------: "
           "| -----------: | -----: |\n");
    for (; n-- > 0; f++)
        printf("| %4d | %9.2f | %7.1f | %6.1f | %11.3f | %12.3f | %12.3f | %6zu |\n", f->rows,
               f->ms.median, f->bytes.median * 1e-6, f->gb_s.median, f->time.median,
               f->reads.median, f->over.median, f->ms.n);
}

static void put_csv(const struct verify_figures *f, int n)
{
    printf("rows,pass_ms,pass_sd_ms,bytes,gb_per_second,time_of_one,bytes_of_one,time_by_bytes,"
           "rounds\n");
    for (; n-- > 0; f++)
        printf("%d,%.4f,%.4f,%.0f,%.3f,%.5f,%.5f,%.5f,%zu\n", f->rows, f->ms.median, f->ms.sd,
               f->bytes.median, f->gb_s.median, f->time.median, f->reads.median, f->over.median,
               f->ms.n);
}

static int put_json(const struct verify_figures *f, int n, struct error *e)
{
    json_t *all = json_array();

    for (; n-- > 0; f++)
        json_array_append_new(all, row_json(f));
    return report_json(stdout, all, JSON_INDENT(1), e);
}

static int put(enum report_format format, const struct verify_figures *f, int n, struct error *e)
{
    int rc = 0;

    switch (format) {
    case REPORT_MD: put_markdown(f, n); return 0;
    case REPORT_CSV: put_csv(f, n); return 0;
    case REPORT_JSON: return put_json(f, n, e);
    case REPORT_JSONL:
        for (; n-- > 0 && rc == 0; f++)
            rc = report_json(stdout, row_json(f), JSON_COMPACT, e);
        return rc;
    case REPORT_SQL:
    default: return error_set(e, ERR_USAGE, "--bench-verify writes md, csv, json or jsonl (-o)");
    }
}

static int report(const struct verifying *v, enum report_format format, struct error *e)
{
    struct verify_figures *f = mem_alloc((size_t)v->most, sizeof *f);
    int rc = f ? 0 : error_set(e, ERR_MEMORY, "out of memory for the results");

    for (int i = 0; i < v->most && rc == 0; i++)
        rc = summarise(v, i, &f[i], e);
    if (rc == 0)
        rc = put(format, f, v->most, e);
    mem_free(f);
    return rc;
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
