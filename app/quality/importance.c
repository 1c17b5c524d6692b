/* --imatrix-text: runs a text in chunks, as llama-imatrix does (tools/imatrix/imatrix.cpp), through
 * the model that --quantize reads, on the CPU; saves the squared activations of its matrices for
 * --imatrix. */
#include "app/quality/quality.h"

#include "app/common/progress.h"
#include "app/common/signals.h"
#include "app/quality/score.h"
#include "app/setup/test_text.h"
#include "engine/base/mem.h"
#include "engine/convert/importance_gather.h"

#include <stdio.h>

#define CHUNK 512

struct run {
    struct engine *g;
    struct importance_gather *gather;
    int *ids, n, bos, chunk, chunks;
};

/* Opens the model on the CPU only, with passes that can be observed. */
static int open_model(const struct options *o, const char *model, struct run *r, struct error *e)
{
    struct options own = *o;

    own.model = (char *)(uintptr_t)model;
    own.place = own.place_prompt = NULL;
    own.ubatch_size = DEVICE_OBSERVED;
    return score_open(&own, o->ctx_size ? o->ctx_size : CHUNK, &r->g, e);
}

static int read_text(struct run *r, const struct options *o, struct error *e)
{
    char *text = NULL;
    size_t size;
    int rc;

    if ((rc = score_bos(r->g, &r->bos, e)) == 0 &&
        (rc = test_text_read(o->imatrix_text, &text, &size, e)) == 0)
        rc = score_encode(r->g, r->bos, text, size, o->parse_special, &r->ids, &r->n, e);
    mem_free(text);
    if (rc < 0)
        return rc;
    r->chunk = engine_info(r->g)->context;
    r->chunk = r->chunk < r->n ? r->chunk : r->n;
    if (r->chunk < 2)
        return error_set(e, ERR_INPUT, "%s: %d tokens say nothing of what a model meets",
                         o->imatrix_text, r->n);
    r->chunks = r->n / r->chunk;
    if (o->chunks > 0 && o->chunks < r->chunks)
        r->chunks = o->chunks;
    return score_check(r->g, r->ids, r->n, e);
}

static int compute(struct run *r, struct error *e)
{
    const struct device_observer observer = {importance_squares, r->gather};
    struct progress p;
    int rc = 0;

    progress_begin(&p, "imatrix");
    engine_observe_matrices(r->g, &observer);
    for (int i = 0; i < r->chunks && !rc; i++) {
        int *chunk = r->ids + i * r->chunk;

        progress_draw(&p, i, r->chunks, NULL);
        if (r->bos >= 0)
            chunk[0] = r->bos;
        engine_session_clear(r->g);
        /* only passes of several rows are observed: a last one of one row is skipped */
        for (int at = 0; at + 1 < r->chunk && !rc; at += DEVICE_OBSERVED) {
            int n = r->chunk - at < DEVICE_OBSERVED ? r->chunk - at : DEVICE_OBSERVED;

            rc = engine_eval(r->g, chunk + at, n, NULL, false, e);
            if (rc == 0 && signals_last())
                rc = error_set(e, ERR_CANCELLED, "interrupted; nothing was written");
        }
    }
    engine_observe_matrices(r->g, NULL);
    progress_end(&p);
    return rc;
}

int importance_from_text(const struct options *o, const char *model, const char *out,
                         struct error *e)
{
    struct run r = {0};
    struct importance_about about = {.text = o->imatrix_text};
    int experts, unmet, rc;

    if ((rc = open_model(o, model, &r, e)) == 0 && (rc = read_text(&r, o, e)) == 0 &&
        (rc = importance_gather_new(&r.gather, engine_info(r.g)->model, e)) == 0 &&
        (rc = compute(&r, e)) == 0) {
        about.chunks = r.chunks;
        about.chunk_tokens = r.chunk;
        rc = importance_gather_write(r.gather, out, &about, &experts, &unmet, e);
    }
    if (rc == 0) {
        fprintf(stderr, "moetop: %s: what %d chunks of %d tokens met", out, r.chunks, r.chunk);
        if (experts)
            fprintf(stderr, "; %d of %d experts were never chosen", unmet, experts);
        fputs("\n", stderr);
    }
    importance_gather_free(r.gather);
    mem_free(r.ids);
    engine_close(r.g);
    return rc;
}
