/* See rope.h. Computed in double precision and rounded once: the angles of late positions are
 * large. */
#include "engine/run/rope.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void fill(float *cosines, float *sines, const struct hparams *hp, int context,
                 const float *factors, double mscale)
{
    int pairs = hp->common.mixer.rope_dims / 2;

    for (int i = 0; i < pairs; i++) {
        double factor = factors ? (double)factors[i] : 1.0;
        double frequency = 1.0 / (factor * pow((double)hp->rope_theta,
                                               2.0 * i / hp->common.mixer.rope_dims));

        for (int p = 0; p < context; p++) {
            cosines[(size_t)p * (size_t)pairs + (size_t)i] = (float)(cos(p * frequency) * mscale);
            sines[(size_t)p * (size_t)pairs + (size_t)i] = (float)(sin(p * frequency) * mscale);
        }
    }
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
    r->context = context;
    r->pairs = hp->common.mixer.rope_dims / 2;
    r->original_context = hp->original_context;
    for (int v = 0; v < variants; v++) {
        const float *factors = v == ROPE_LONG ? hp->long_factor : hp->short_factor;
        double mscale = v == ROPE_LONG ? hp->long_mscale : hp->short_mscale;

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
        fill(r->cos[v], r->sin[v], hp, context, factors, mscale);
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
