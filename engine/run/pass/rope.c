/* See rope.h. Computed in double precision and rounded once: the angles of late positions are
 * large. */
#include "engine/run/pass/rope.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define STEP 256 /* positions computed together */

/* Rows from .. end - 1 of one pair's column, `pairs` apart. */
static void fill_pair(float *cosines, float *sines, int pairs, double frequency, double mscale,
                      int from, int end)
{
    for (int p = from; p < end; p++) {
        size_t at = (size_t)p * (size_t)pairs;

        cosines[at] = (float)(cos(p * frequency) * mscale);
        sines[at] = (float)(sin(p * frequency) * mscale);
    }
}

/* Rows from .. end - 1 of one table. */
static void fill(const struct rope *r, enum rope_variant v, int from, int end)
{
    const struct hparams *hp = r->hp;
    const float *factors = v == ROPE_LONG ? hp->long_factor : hp->short_factor;
    double mscale = v == ROPE_LONG ? hp->long_mscale : hp->short_mscale;

    for (int i = 0; i < r->pairs; i++) {
        double factor = factors ? (double)factors[i] : 1.0;

        fill_pair(r->cos[v] + i, r->sin[v] + i, r->pairs,
                  1.0 / (factor * pow((double)hp->rope_theta, i / (double)r->pairs)), mscale, from,
                  end);
    }
}

static int second_pairs(const struct hparams *hp)
{
    return hp->second_rope.dims / 2;
}

static void fill_second(const struct rope *r, int from, int end)
{
    const struct hparams *hp = r->hp;
    int n = second_pairs(hp);

    for (int i = 0; i < n; i++)
        fill_pair(r->second_cos + i, r->second_sin + i, n,
                  pow((double)hp->second_rope.theta, -2.0 * i / hp->second_rope.of), 1.0, from,
                  end);
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
    fill_second(r, r->filled, to);
    r->filled = to;
}

/* None if no layer is rotated, where latent attention still has values apart. */
static int first_pairs(const struct hparams *hp)
{
    return hp->common.mixer.rope == ROPE_NONE ? 0 : hp->common.mixer.rope_dims / 2;
}

int rope_variants(const struct hparams *hp, int context)
{
    return hp->original_context && context > hp->original_context ? ROPE_VARIANTS : 1;
}

size_t rope_footprint(const struct hparams *hp, int context)
{
    return 2 * (size_t)context * sizeof(float) *
           ((size_t)rope_variants(hp, context) * (size_t)first_pairs(hp) +
            (size_t)second_pairs(hp));
}

static bool take(struct rope *r, float **table, int pairs)
{
    size_t bytes = (size_t)r->context * (size_t)pairs * sizeof(float);

    r->bytes += bytes;
    return (*table = mem_pages(bytes)) != NULL;
}

int rope_init(struct rope *r, const struct hparams *hp, int context, struct error *e)
{
    int variants = rope_variants(hp, context);
    bool there = true;

    assert(context > 0 && hp->common.mixer.rope_dims % 2 == 0);
    memset(r, 0, sizeof *r);
    r->hp = hp;
    r->context = context;
    r->pairs = first_pairs(hp);
    r->original_context = hp->original_context;
    for (int v = 0; v < variants && there; v++)
        there = take(r, &r->cos[v], r->pairs) && take(r, &r->sin[v], r->pairs);
    if (there && second_pairs(hp))
        there = take(r, &r->second_cos, second_pairs(hp)) &&
                take(r, &r->second_sin, second_pairs(hp));
    if (there)
        return 0;
    rope_release(r);
    return error_set(e, ERR_MEMORY,
                     "no memory for the rotary table of %d positions: try a smaller context (-c)",
                     context);
}

void rope_release(struct rope *r)
{
    size_t context = (size_t)r->context, bytes = context * (size_t)r->pairs * sizeof(float),
           second = r->hp ? context * (size_t)second_pairs(r->hp) * sizeof(float) : 0;

    for (int v = 0; v < ROPE_VARIANTS; v++) {
        mem_pages_free(r->cos[v], bytes);
        mem_pages_free(r->sin[v], bytes);
    }
    mem_pages_free(r->second_cos, second);
    mem_pages_free(r->second_sin, second);
    memset(r, 0, sizeof *r);
}

enum rope_variant rope_choose(const struct rope *r, int tokens)
{
    assert(tokens >= 0);
    return r->cos[ROPE_LONG] && tokens > r->original_context ? ROPE_LONG : ROPE_SHORT;
}
