/* --perplexity: a text in chunks, as llama-perplexity cuts and scores it
 * (tools/perplexity/perplexity.cpp): the second half of each chunk counts, so that every token
 * counted has a context; with --ppl-stride windows that overlap, of which the last `stride` tokens
 * count. */
#include "app/quality/quality.h"

#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/quality/base_file.h"
#include "app/quality/log_probs.h"
#include "app/quality/score.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 512

bool perplexity_wanted(const struct options *o)
{
    return o->perplexity;
}

struct run {
    struct engine *g;
    struct base_file base; /* file NULL: none is written */
    int *ids, n, bos;
    int context, step, first, chunks;
    const int *chunk;
    double nll, nll2;
    size_t count;
};

static int add_row(void *ctx, int at, const float *logits, struct error *e)
{
    struct run *r = ctx;
    double v = log_probs_surprise(logits, engine_info(r->g)->model->hp.n_vocab, r->chunk[at + 1]);

    r->nll += v;
    r->nll2 += v * v;
    r->count++;
    return r->base.file ? base_file_write(&r->base, logits, e) : 0;
}

static int cut(struct run *r, const struct options *o, struct error *e)
{
    int stride = o->ppl_stride;

    r->context = engine_info(r->g)->context;
    r->step = stride ? stride : r->context;
    r->first = stride ? r->context - stride - 1 : r->context / 2;
    if (r->first < 1)
        return error_set(e, ERR_USAGE, "--ppl-stride %d leaves no context of %d tokens (-c)",
                         stride, r->context);
    r->chunks = stride ? (r->n - r->context + stride - 1) / stride : r->n / r->context;
    if (r->n < r->context)
        r->chunks = 0;
    return score_chunks(o, o->perplexity, r->n, r->context, &r->chunks, e);
}

static int compute(struct run *r, struct error *e)
{
    struct progress p;
    int rc = 0;

    progress_begin(&p, "perplexity");
    for (int i = 0; i < r->chunks && !rc; i++) {
        char so_far[40] = "";
        int kept = r->ids[i * r->step];

        if (r->count)
            snprintf(so_far, sizeof so_far, "%.4f so far", exp(r->nll / (double)r->count));
        progress_draw(&p, i, r->chunks, so_far[0] ? so_far : NULL);
        r->chunk = r->ids + i * r->step;
        if (r->bos >= 0 && r->step == r->context)
            r->ids[i * r->step] = r->bos;
        rc = score_text(r->g, r->chunk, r->context, r->first, add_row, r, e);
        r->ids[i * r->step] = kept;
    }
    progress_end(&p);
    return rc;
}

static int report(const struct run *r, const struct options *o, double seconds, struct error *e)
{
    struct estimate log_ppl = estimate_mean(r->nll, r->nll2, r->count), ppl = estimate_exp(log_ppl);

    printf("Final estimate: PPL = %.4f +/- %.5f\n", ppl.value, ppl.error);
    printf("%zu tokens of %d chunks of %d counted in %.1f s, %.1f tokens/s\n", r->count, r->chunks,
           r->context, seconds, seconds > 0.0 ? (double)r->chunks * r->context / seconds : 0.0);
    if (fflush(stdout))
        return output_failed("the perplexity", errno, e);
    return score_report(o, r->g,
                        json_pack("{s:f, s:f, s:I, s:i, s:i, s:i, s:f}", "perplexity", ppl.value,
                                  "error", ppl.error, "tokens", (json_int_t)r->count, "chunks",
                                  r->chunks, "context", r->context, "stride", o->ppl_stride,
                                  "seconds", seconds),
                        e);
}

int perplexity_run(struct options *o, struct error *e)
{
    struct run r = {0};
    uint64_t begun;
    int rc;

    if (o->kl_divergence_base && o->ppl_stride)
        return error_set(e, ERR_USAGE, "--kl-divergence-base takes chunks, not --ppl-stride");
    if (o->ctx_size)
        o->ctx_size += o->ppl_stride / 2;
    if ((rc = score_open(o, CHUNK + o->ppl_stride / 2, &r.g, e)) == 0 &&
        (rc = score_file(r.g, o->perplexity, o->parse_special, &r.bos, &r.ids, &r.n, e)) == 0 &&
        (rc = cut(&r, o, e)) == 0 && o->kl_divergence_base)
        rc = base_file_create(&r.base, o->kl_divergence_base, r.context,
                              engine_info(r.g)->model->hp.n_vocab, r.ids, r.chunks, e);
    begun = clock_now();
    if (rc == 0)
        rc = compute(&r, e);
    if (rc == 0 && r.base.file)
        rc = base_file_finish(&r.base, e);
    if (rc == 0)
        rc = report(&r, o, clock_seconds(clock_now() - begun), e);
    base_file_close(&r.base);
    mem_free(r.ids);
    engine_close(r.g);
    return rc;
}
