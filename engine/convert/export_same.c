/* See export_same.h. */
#include "engine/convert/export_same.h"

#include <math.h>
#include <string.h>

/* For numbers that were written as sums of others. */
static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(a);
}

static double scale_of(const struct mixer_shape *m)
{
    return m->scale != 0.0f ? (double)m->scale : 1.0 / sqrt((double)m->key_dim);
}

static const char *other_mixer(const struct mixer_shape *a, const struct mixer_shape *b)
{
    return a->kind != b->kind                                   ? "mixer"
           : a->window != b->window || a->chunked != b->chunked ? "window"
           : a->heads != b->heads || a->kv_heads != b->kv_heads || a->key_dim != b->key_dim ||
                   a->q_rank != b->q_rank || a->kv_rank != b->kv_rank
               ? "heads"
           : a->rope_dims != b->rope_dims || (a->rope == ROPE_NONE) != (b->rope == ROPE_NONE) ||
                   a->second_rope != b->second_rope || (a->kind == MIXER_MLA && a->rope != b->rope)
               ? "rotation"
           : memcmp(&a->ngrams, &b->ngrams, sizeof a->ngrams) != 0 ? "n-grams"
           : a->value_dim != b->value_dim || a->taps != b->taps || a->groups != b->groups ||
                   a->state != b->state || !near(a->decay_bound, b->decay_bound) ||
                   a->a_rank != b->a_rank || a->z_rank != b->z_rank || a->head_taps != b->head_taps
               ? "recurrence"
           : a->index_heads != b->index_heads || a->index_dim != b->index_dim ||
                   a->index_top != b->index_top || a->index_rope != b->index_rope ||
                   a->index_ratio != b->index_ratio
               ? "choice of keys"
           : a->block != b->block || a->overlap != b->overlap || a->out_groups != b->out_groups ||
                   a->out_rank != b->out_rank
               ? "compressed keys"
           : (a->kind == MIXER_ATTENTION || a->kind == MIXER_MLA) && !near(scale_of(a), scale_of(b))
               ? "scale of scores"
           : !near(a->scale_growth, b->scale_growth) ||
                   (a->scale_growth != 0.0f && a->scale_period != b->scale_period)
               ? "growth of scores"
           : a->keys_of != b->keys_of ? "shared keys"
           : !near(a->value_factor, b->value_factor) || !near(a->latent_factor, b->latent_factor)
               ? "factor of values"
           : a->sinks != b->sinks || a->gated != b->gated || a->gate != b->gate ||
                   a->experts != b->experts || a->used != b->used || a->qk_norm != b->qk_norm
               ? "attention"
               : NULL;
}

/* One group counts as none. */
static int groups_of(const struct router_shape *r)
{
    return r->groups > 1 ? r->groups : 0;
}

static double factor_of(const struct router_shape *r)
{
    return r->factor != 0.0f ? (double)r->factor : 1.0;
}

static const char *other_ffn(const struct ffn_shape *a, const struct ffn_shape *b)
{
    const struct router_shape *r = &a->router, *s = &b->router;

    return a->kind != b->kind || a->experts != b->experts || a->used != b->used ||
                   a->shared != b->shared || a->shared_width != b->shared_width ||
                   a->shared_gate != b->shared_gate || a->grouped != b->grouped ||
                   !near(shape_shared_factor(a), shape_shared_factor(b))
               ? "feed-forward"
           : a->activation != b->activation || !near(shape_limit(a, 0), shape_limit(b, 0)) ||
                   !near(shape_limit(a, a->experts), shape_limit(b, b->experts))
               ? "activation"
           : !a->experts ? NULL
           : r->kind != s->kind || r->normalised != s->normalised ||
                   r->choice_bias != s->choice_bias || groups_of(r) != groups_of(s) ||
                   (groups_of(r) && r->groups_used != s->groups_used) ||
                   !near(factor_of(r), factor_of(s)) || !near(r->floor, s->floor) ||
                   r->identities != s->identities || r->nothing != s->nothing || r->row != s->row ||
                   r->by_token != s->by_token
               ? "router"
               : NULL;
}

/* Compares the rotation of a pair by each table. */
static bool other_rotations(const struct hparams *a, const struct hparams *b)
{
    int n = a->common.mixer.rope_dims / 2;

    if (a->second_rope.dims != b->second_rope.dims || a->second_rope.of != b->second_rope.of ||
        !near(a->second_rope.theta, b->second_rope.theta))
        return true;
    if (a->original_context != b->original_context || !near(a->rope_theta, b->rope_theta) ||
        !near(a->short_mscale, b->short_mscale) || !near(a->long_mscale, b->long_mscale))
        return true;
    for (int i = 0; i < n; i++)
        if (!near(a->short_factor ? a->short_factor[i] : 1.0f,
                  b->short_factor ? b->short_factor[i] : 1.0f))
            return true;
    return false;
}

int export_same(const struct model *read, const struct model *written, const struct family *family,
                struct error *e)
{
    const struct hparams *a = &read->hp, *b = &written->hp;
    const char *path = weight_file_path(read->file), *what = NULL;

    if (a->n_layers != b->n_layers)
        return error_set(e, ERR_MODEL, "%s: GGUF files of the family %s would have %d layers of %d",
                         path, family->name, b->n_layers, a->n_layers);
    for (int l = 0; l < a->n_layers; l++) {
        const struct layer_shape *x = hparams_layer(a, l), *y = hparams_layer(b, l);

        if ((what = other_mixer(&x->mixer, &y->mixer)) || (what = other_ffn(&x->ffn, &y->ffn)) ||
            (what = x->norms.kind != y->norms.kind ||
                            !near(norms_behind(&x->norms).eps, norms_behind(&y->norms).eps)
                        ? "norms"
                        : NULL) ||
            (what = x->shortcut != y->shortcut ? "shortcut" : NULL) ||
            (what = x->weighted != y->weighted ? "weights of the stream" : NULL) ||
            (what = x->inputs != y->inputs ? "inputs" : NULL))
            return error_set(e, ERR_MODEL,
                             "%s: GGUF files of the family %s cannot say the %s of layer %d", path,
                             family->name, what, l);
    }
    return other_rotations(a, b)
               ? error_set(e, ERR_MODEL,
                           "%s: GGUF files of the family %s cannot say how it scales rotations",
                           path, family->name)
               : 0;
}
