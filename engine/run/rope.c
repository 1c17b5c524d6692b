/* See rope.h. Computed in double precision and rounded once: the angles of late positions are
 * large. */
#include "engine/run/rope.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define STEP 256 /* positions that are computed together */

/* Rows from .. end - 1 of one table. */
static void fill(const struct rope *r, enum rope_variant v, int from, int end)
{
    const struct hparams *hp = r->hp;
    const float *factors = v == ROPE_LONG ? hp->long_factor : hp->short_factor;
    double mscale = v == ROPE_LONG ? hp->long_mscale : hp->short_mscale;

    for (int i = 0; i < r->pairs; i++) {
        double factor = factors ? (double)factors[i] : 1.0;
        double frequency = 1.0 / (factor * pow((double)hp->rope_theta, i / (double)r->pairs));

        for (int p = from; p < end; p++) {
            size_t at = (size_t)p * (size_t)r->pairs + (size_t)i;

            r->cos[v][at] = (float)(cos(p * frequency) * mscale);
            r->sin[v][at] = (float)(sin(p * frequency) * mscale);
        }
    }
}

void rope_reach(struct rope *r, int end)
{
    int to = (end + STEP - 1) / STEP * STEP;

    assert(end <= r->context);
    if (end <= r->filled)
        return;
    to = to < r->context ? to : r->context;
    for (int v = 0; v < ROPE_VARIANTS && r->cos[v]; v++)
        fill(r, (enum rope_variant)v, r->filled, to);
    r->filled = to;
}

int rope_variants(const struct hparams *hp, int context)
{
    return hp->original_context && context > hp->original_context ? ROPE_VARIANTS : 1;
}

size_t rope_footprint(const struct hparams *hp, int context)
{
    return 2 * (size_t)rope_variants(hp, context) * (size_t)context *
           (size_t)(hp->common.mixer.rope_dims / 2) * sizeof(float);
}

int rope_init(struct rope *r, const struct hparams *hp, int context, struct error *e)
{
    size_t n = (size_t)context * (size_t)(hp->common.mixer.rope_dims / 2);
    int variants = rope_variants(hp, context);

    assert(context > 0 && hp->common.mixer.rope_dims % 2 == 0);
    memset(r, 0, sizeof *r);
    r->hp = hp;
    r->context = context;
    r->pairs = hp->common.mixer.rope_dims / 2;
    r->original_context = hp->original_context;
    for (int v = 0; v < variants; v++) {
        r->cos[v] = mem_pages(n * sizeof(float));
        r->sin[v] = mem_pages(n * sizeof(float));
        if (!r->cos[v] || !r->sin[v]) {
            rope_release(r);
            return error_set(
                e, ERR_MEMORY,
                "no memory for the rotary table of %d positions: try a smaller context (-c)",
                context);
        }
        r->bytes += 2 * n * sizeof(float);
    }
    return 0;
}

void rope_release(struct rope *r)
{
    size_t bytes = (size_t)r->context * (size_t)r->pairs * sizeof(float);

    for (int v = 0; v < ROPE_VARIANTS; v++) {
        mem_pages_free(r->cos[v], bytes);
        mem_pages_free(r->sin[v], bytes);
    }
    memset(r, 0, sizeof *r);
}

enum rope_variant rope_choose(const struct rope *r, int tokens)
{
    assert(tokens >= 0);
    return r->cos[ROPE_LONG] && tokens > r->original_context ? ROPE_LONG : ROPE_SHORT;
}
