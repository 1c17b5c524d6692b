/* See hparams_digest.h. New fields of a structure must be added here; the sizes below fail the
 * build until that was considered. */
#include "engine/model/hparams_digest.h"

#include <assert.h>

#define FIELD(f) digest_add(d, &(f), sizeof(f))

static_assert(sizeof(struct mixer_shape) == 212, "a field of mixer_shape is not hashed");
static_assert(sizeof(struct router_shape) == 48, "a field of router_shape is not hashed");
static_assert(sizeof(struct ffn_shape) == 100, "a field of ffn_shape is not hashed");
static_assert(sizeof(struct norms_shape) == 16, "a field of norms_shape is not hashed");

static void add_flag(struct digest *d, bool flag)
{
    unsigned char byte = flag;

    digest_add(d, &byte, 1);
}

static void add_mixer(struct digest *d, const struct mixer_shape *s)
{
    FIELD(s->kind);
    FIELD(s->heads);
    FIELD(s->kv_heads);
    FIELD(s->key_dim);
    FIELD(s->value_dim);
    FIELD(s->rope_dims);
    FIELD(s->rope);
    add_flag(d, s->second_rope);
    FIELD(s->window);
    FIELD(s->scale);
    add_flag(d, s->bias);
    FIELD(s->qk_norm);
    add_flag(d, s->sinks);
    add_flag(d, s->gated);
    add_flag(d, s->values_are_keys);
    add_flag(d, s->value_norm);
    add_flag(d, s->learned_positions);
    FIELD(s->q_rank);
    FIELD(s->kv_rank);
    FIELD(s->latent_eps);
    FIELD(s->taps);
    FIELD(s->groups);
    FIELD(s->state);
    add_flag(d, s->tiled);
    FIELD(s->decay_bound);
    if (s->gate != GATE_WITHIN || s->gate_softplus) { /* no other model's digest changes */
        FIELD(s->gate);
        add_flag(d, s->gate_softplus);
    }
    if (s->gate_sigmoid)
        FIELD(s->gate_sigmoid);
    if (s->gate == GATE_ROUTED) {
        FIELD(s->experts);
        FIELD(s->used);
    }
    if (s->qk_norm_turned)
        add_flag(d, true);
    if (s->a_rank || s->z_rank) {
        FIELD(s->a_rank);
        FIELD(s->z_rank);
    }
    if (s->value_factor != 0.0f)
        FIELD(s->value_factor);
    if (s->keys_of)
        FIELD(s->keys_of);
    if (s->scale_growth != 0.0f) {
        FIELD(s->scale_growth);
        FIELD(s->scale_period);
    }
    if (s->scale_ahead)
        FIELD(s->scale_ahead);
    if (s->index_top) {
        FIELD(s->index_heads);
        FIELD(s->index_dim);
        FIELD(s->index_top);
        FIELD(s->index_rope);
        if (s->index_ratio)
            FIELD(s->index_ratio);
    }
    if (s->chunked || s->q_norm_unsaid != 0.0f) {
        add_flag(d, s->chunked);
        FIELD(s->q_norm_unsaid);
    }
    if (s->latent_factor != 0.0f)
        FIELD(s->latent_factor);
    if (s->kind == MIXER_COMPRESSED) {
        FIELD(s->block);
        FIELD(s->out_groups);
        FIELD(s->out_rank);
        add_flag(d, s->overlap);
    }
    if (s->head_taps)
        FIELD(s->head_taps);
    if (s->ngrams.size) { /* so that other models keep their numbers */
        FIELD(s->ngrams.size);
        FIELD(s->ngrams.each);
        FIELD(s->ngrams.width);
        FIELD(s->ngrams.taps);
        FIELD(s->ngrams.end);
    }
}

static void add_router(struct digest *d, const struct router_shape *s)
{
    FIELD(s->kind);
    FIELD(s->jitter);
    add_flag(d, s->normalised);
    FIELD(s->factor);
    FIELD(s->floor);
    add_flag(d, s->choice_bias);
    add_flag(d, s->expert_scales);
    FIELD(s->groups);
    FIELD(s->groups_used);
    if (s->early || s->on_input) { /* so that other models keep their numbers */
        add_flag(d, s->early);
        add_flag(d, s->on_input);
    }
    if (s->identities)
        FIELD(s->identities);
    if (s->by_token)
        add_flag(d, true);
    if (s->row) { /* so that other models keep their numbers */
        FIELD(s->row);
        add_flag(d, s->nothing);
    }
}

static void add_ffn(struct digest *d, const struct ffn_shape *s)
{
    FIELD(s->kind);
    FIELD(s->experts);
    FIELD(s->used);
    FIELD(s->shared);
    FIELD(s->width);
    FIELD(s->shared_width);
    FIELD(s->shared_gate);
    FIELD(s->activation);
    FIELD(s->limit);
    add_flag(d, s->bias);
    if (s->shared_factor != 0.0f) /* so that other models keep their numbers */
        FIELD(s->shared_factor);
    if (s->shared_limit != 0.0f)
        FIELD(s->shared_limit);
    if (s->grouped)
        FIELD(s->grouped);
    add_router(d, &s->router);
}

static void add_layer(struct digest *d, const struct layer_shape *s)
{
    add_mixer(d, &s->mixer);
    add_ffn(d, &s->ffn);
    FIELD(s->norms.kind);
    FIELD(s->norms.eps);
    add_flag(d, s->norms.before);
    add_flag(d, s->norms.after);
    if (s->norms.eps_after != 0.0f)
        FIELD(s->norms.eps_after);
    if (s->norms.outputs) /* so that other models keep their numbers */
        add_flag(d, true);
    add_flag(d, s->scaled);
    if (s->parallel)
        add_flag(d, true);
    if (s->inputs)
        FIELD(s->inputs);
    if (s->shortcut != SHORTCUT_NONE)
        FIELD(s->shortcut);
    if (s->weighted)
        add_flag(d, true);
}

/* Divisors of rotary frequencies. */
static void add_factors(struct digest *d, const float *factors, int pairs)
{
    add_flag(d, factors != NULL);
    if (factors)
        digest_add(d, factors, (size_t)pairs * sizeof *factors);
}

static void add_rotary(struct digest *d, const struct hparams *hp)
{
    int pairs = hp->common.mixer.rope_dims / 2;

    FIELD(hp->rope_theta);
    FIELD(hp->original_context);
    FIELD(hp->second_rope.theta);
    FIELD(hp->second_rope.dims);
    FIELD(hp->second_rope.of);
    add_factors(d, hp->short_factor, pairs);
    add_factors(d, hp->long_factor, pairs);
    FIELD(hp->short_mscale);
    FIELD(hp->long_mscale);
}

void hparams_digest(struct digest *d, const struct hparams *hp)
{
    FIELD(hp->n_layers);
    FIELD(hp->hidden);
    FIELD(hp->n_vocab);
    FIELD(hp->embedding_scale);
    FIELD(hp->residual_scale);
    FIELD(hp->logit_divisor);
    FIELD(hp->logit_cap);
    if (hp->embedding_normed)
        add_flag(d, true);
    add_flag(d, hp->head_bias);
    add_flag(d, hp->tied_embeddings);
    FIELD(hp->embedding_width);
    FIELD(hp->position_offset);
    if (hp->streams) { /* no other model's digest changes */
        FIELD(hp->streams);
        add_flag(d, hp->streams_scaled);
    }
    if (hparams_hyper(hp)) {
        FIELD(hp->stream_kind);
        FIELD(hp->stream_rank);
        FIELD(hp->stream_rounds);
        FIELD(hp->stream_eps);
    }
    if (hp->laurel)
        FIELD(hp->laurel);
    if (hp->embedding_weighted)
        add_flag(d, true);
    add_rotary(d, hp);
    for (int l = 0; l < hp->n_layers; l++)
        add_layer(d, hparams_layer(hp, l));
}
