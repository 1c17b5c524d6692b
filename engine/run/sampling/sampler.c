/* The chain: the order of the samplers, and whether they act on logits or on candidates. One
 * thread, no allocation after init. */
#include "engine/run/sampling/sampler.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* PCG32 (O'Neill 2014, pcg-random.org): small, and the same on every machine. */
static uint32_t draw(struct sampler *s)
{
    uint64_t old = s->state;
    uint32_t x = (uint32_t)((old >> 18 ^ old) >> 27), turn = (uint32_t)(old >> 59);

    s->state = old * 6364136223846793005u + s->increment;
    return x >> turn | x << (-turn & 31);
}

void sampler_seed(struct sampler *s, uint64_t seed)
{
    s->sampling.seed = seed;
    s->increment = 0xda3e39cb94b95bdbu | 1;
    s->state = 0;
    draw(s);
    s->state += seed;
    draw(s);
}

int sampler_init(struct sampler *s, int n_vocab, const struct sampling *values, struct error *e)
{
    struct candidates *c = &s->candidates;

    assert(n_vocab > 0);
    *s = (struct sampler){.sampling = *values, .n_vocab = n_vocab};
    c->c = mem_alloc((size_t)n_vocab, sizeof *c->c);
    c->spare = mem_alloc((size_t)n_vocab, sizeof *c->spare);
    c->aside = mem_alloc((size_t)n_vocab, sizeof *c->aside);
    s->adjusted = mem_alloc((size_t)n_vocab, sizeof *s->adjusted);
    if (!c->c || !c->spare || !c->aside || !s->adjusted ||
        penalties_init(&s->penalties, n_vocab, e) < 0) {
        sampler_release(s);
        return error_set(e, ERR_MEMORY, "out of memory for the sampler");
    }
    sampler_seed(s, values->seed);
    return 0;
}

void sampler_release(struct sampler *s)
{
    mem_free(s->candidates.c);
    mem_free(s->candidates.spare);
    mem_free(s->candidates.aside);
    mem_free(s->adjusted);
    penalties_release(&s->penalties);
    *s = (struct sampler){0};
}

size_t sampler_footprint(int n_vocab)
{
    return (size_t)n_vocab * 2 * (sizeof(struct sampler_candidate) + sizeof(float)) +
           penalties_footprint(n_vocab);
}

void sampler_set(struct sampler *s, const struct sampling *values)
{
    uint64_t seed = s->sampling.seed;

    assert(s->n_vocab > 0);
    s->sampling = *values;
    if (values->seed != seed)
        sampler_seed(s, values->seed);
}

int sampler_prepare(struct sampler *s, const struct tokenizer *t, int context, struct error *e)
{
    for (int i = 0; i < s->sampling.n_bias; i++)
        if (s->sampling.bias[i].id >= s->n_vocab)
            return error_set(e, ERR_USAGE, "logit_bias: there is no token %d; the model has %d",
                             s->sampling.bias[i].id, s->n_vocab);
    return penalties_prepare(&s->penalties, &s->sampling, t, context, e);
}

void sampler_mask(struct sampler *s, const uint32_t *mask)
{
    s->mask = mask;
}

/* ---- the order ---- */

/* Whether a sampler has any effect with these values. */
static bool active(const struct sampling *v, int step)
{
    switch (step) {
    case SAMPLING_PENALTIES:
        return v->repeat_penalty != 1.0f || v->presence_penalty != 0.0f ||
               v->frequency_penalty != 0.0f;
    case SAMPLING_DRY: return v->dry_multiplier > 0.0f;
    case SAMPLING_TOP_N_SIGMA: return v->top_n_sigma > 0.0f;
    case SAMPLING_TOP_K: return v->top_k > 0;
    case SAMPLING_TYPICAL: return v->typical_p > 0.0f && v->typical_p < 1.0f;
    case SAMPLING_TOP_P: return v->top_p < 1.0f;
    case SAMPLING_MIN_P: return v->min_p > 0.0f;
    case SAMPLING_XTC: return v->xtc_probability > 0.0f && v->xtc_threshold <= 0.5f;
    default: return true; /* the temperature */
    }
}

/* The effective samplers, in order. */
static int chain_of(const struct sampling *v, uint8_t *steps)
{
    int n = 0;

    for (int i = 0; i < (v->n_order ? v->n_order : SAMPLING_STEP_COUNT); i++) {
        int step = v->n_order ? v->order[i] : i;

        if (active(v, step))
            steps[n++] = (uint8_t)step;
    }
    return n;
}

static bool on_logits(int step)
{
    return step == SAMPLING_PENALTIES || step == SAMPLING_DRY;
}

/* Whether the rest of a chain always selects the best token. */
static bool takes_best(const struct sampling *v, const uint8_t *steps, int n)
{
    bool cold = false;

    for (int i = 0; i < n; i++) {
        if (on_logits(steps[i]) || steps[i] == SAMPLING_TYPICAL || steps[i] == SAMPLING_XTC)
            return false;
        cold |= steps[i] == SAMPLING_TEMPERATURE && v->temperature <= 0.0f;
    }
    return cold;
}

/* ---- one token ---- */

/* State of sampling one token. */
struct way {
    struct sampler *s;
    const float *logits; /* adjusted so far */
    const int *recent;
    size_t n_recent;
    float temperature; /* of the draw */
    bool cold;         /* greedy */
};

/* A copy of the logits that may be changed. */
static float *own_logits(struct way *w)
{
    struct sampler *s = w->s;

    if (w->logits != s->adjusted)
        memcpy(s->adjusted, w->logits, (size_t)s->n_vocab * sizeof *s->adjusted);
    w->logits = s->adjusted;
    return s->adjusted;
}

static bool allowed(const uint32_t *mask, int id)
{
    return !mask || (mask[id >> 5] >> (id & 31) & 1);
}

static void keep_out(struct way *w)
{
    const uint32_t *mask = w->s->mask;
    float *x;

    if (!mask)
        return;
    x = own_logits(w);
    for (int id = 0; id < w->s->n_vocab; id++)
        if (!allowed(mask, id))
            x[id] = -INFINITY;
}

/* If no allowed token has a finite logit, or a bias has excluded them all: the first allowed
 * one. */
static int allowed_id(const struct way *w, int id)
{
    if (allowed(w->s->mask, id))
        return id;
    for (id = 0; id < w->s->n_vocab - 1 && !allowed(w->s->mask, id); id++)
        ;
    return id;
}

static void add_bias(struct way *w)
{
    const struct sampling *v = &w->s->sampling;
    float *x;

    if (!v->n_bias)
        return;
    x = own_logits(w);
    for (int i = 0; i < v->n_bias; i++)
        if (v->bias[i].id >= 0 && v->bias[i].id < w->s->n_vocab)
            x[v->bias[i].id] += v->bias[i].bias;
}

static bool mark(struct way *w, int step)
{
    struct sampler *s = w->s;

    return step == SAMPLING_DRY
               ? penalties_mark_dry(&s->penalties, &s->sampling, w->recent, w->n_recent)
               : penalties_mark(&s->penalties, &s->sampling, w->recent, w->n_recent);
}

static float apply(const struct sampler *s, int step, float logit, int id)
{
    return step == SAMPLING_DRY ? penalties_apply_dry(&s->penalties, &s->sampling, logit, id)
                                : penalties_apply(&s->penalties, &s->sampling, logit, id);
}

/* A penalty on the logits, before candidates are selected. */
static void adjust(struct way *w, int step)
{
    float *x;

    if (!mark(w, step))
        return;
    x = own_logits(w);
    for (int id = 0; id < w->s->n_vocab; id++)
        x[id] = apply(w->s, step, x[id], id);
}

/* A penalty on the candidates. */
static void adjust_candidates(struct way *w, int step)
{
    struct candidates *c = &w->s->candidates;

    if (!mark(w, step))
        return;
    for (int i = 0; i < c->n; i++)
        c->c[i].logit = apply(w->s, step, c->c[i].logit, c->c[i].id);
    candidates_changed(c);
}

static void cut(struct way *w, int step, bool last)
{
    const struct sampling *v = &w->s->sampling;
    struct candidates *c = &w->s->candidates;

    switch (step) {
    case SAMPLING_TOP_N_SIGMA: candidates_top_n_sigma(c, v->top_n_sigma); break;
    case SAMPLING_TOP_K: candidates_top_k(c, v->top_k); break;
    case SAMPLING_TYPICAL: candidates_typical(c, v->typical_p); break;
    case SAMPLING_TOP_P: candidates_top_p(c, v->top_p); break;
    case SAMPLING_MIN_P: candidates_min_p(c, v->min_p); break;
    case SAMPLING_XTC:
        if (c->n > 1 && (double)draw(w->s) * 0x1p-32 <= (double)v->xtc_probability)
            candidates_xtc(c, v->xtc_threshold);
        break;
    case SAMPLING_TEMPERATURE:
        if (v->temperature <= 0.0f) {
            candidates_keep_best(c);
            w->cold = true;
        } else if (last) /* applied in the draw */
            w->temperature = v->temperature;
        else
            candidates_heat(c, v->temperature);
        break;
    default: adjust_candidates(w, step);
    }
}

static int take_greedy(const struct way *w)
{
    int best = 0;
    float max = -INFINITY;

    for (int i = 0; i < w->s->n_vocab; i++)
        if (w->logits[i] > max) {
            max = w->logits[i];
            best = i;
        }
    return best;
}

/* Selects a token; *left: number of candidates it was drawn from; the sampler has their share. */
static int take(struct way *w, int *left)
{
    struct sampler *s = w->s;
    struct candidates *c = &s->candidates;
    uint8_t steps[SAMPLING_ORDER_MAX];
    int n = chain_of(&s->sampling, steps), at = 0;
    bool few;

    add_bias(w);
    keep_out(w);
    while (at < n && on_logits(steps[at]))
        adjust(w, steps[at++]);
    *left = 1;
    c->share = 1.0f;
    if (takes_best(&s->sampling, steps + at, n - at))
        return take_greedy(w);
    few = at < n && steps[at] == SAMPLING_TOP_K;
    candidates_gather(c, w->logits, s->n_vocab, few ? s->sampling.top_k : 0);
    if (!candidates_comparable(c))
        return take_greedy(w);
    for (at += few; at < n; at++)
        cut(w, steps[at], at == n - 1);
    *left = c->n;
    if (w->cold || !(c->max > -INFINITY && c->max < INFINITY)) {
        candidates_keep_best(c);
        return c->c[0].id;
    }
    return candidates_draw(c, w->temperature, draw(s));
}

int sampler_sample(struct sampler *s, const float *logits, const int *recent, size_t n_recent,
                   struct sampler_draw *out)
{
    struct way w = {s, logits, recent, n_recent, 1.0f, false};
    int left, id = allowed_id(&w, take(&w, &left));

    assert(s->n_vocab > 0 && logits && (recent || n_recent == 0));
    if (out)
        *out = (struct sampler_draw){logits_probability(logits, s->n_vocab, id),
                                     s->candidates.share, left,
                                     s->mask ? logits_outside(logits, s->n_vocab, s->mask) : 0.0f};
    s->mask = NULL;
    return id;
}
