/* See fit_layers.h. Each layer is described in words; neighbours with the same words are merged. */
#include "app/setup/fit_layers.h"

#include "engine/base/strbuf.h"
#include "engine/device/state.h"

#include <string.h>

static void put_heads(struct strbuf *b, const struct mixer_shape *m)
{
    int value_dim = shape_value_dim(m);

    if (m->key_dim && m->key_dim != value_dim)
        strbuf_printf(b, ": %d heads, keys of %d, values of %d", m->heads, m->key_dim, value_dim);
    else
        strbuf_printf(b, ": %d heads of %d", m->heads, value_dim);
    if (m->kv_heads && m->kv_heads != m->heads)
        strbuf_printf(b, ", %d of keys%s", m->kv_heads, m->kind == MIXER_MLA ? "" : " and values");
}

static void put_positions(struct strbuf *b, const struct mixer_shape *m)
{
    if (m->rope == ROPE_NONE)
        strbuf_puts(b, m->learned_positions ? ", learned positions" : ", no positions");
    else
        strbuf_printf(b, ", rotary %d (%s)", m->rope_dims, shape_rope_word(m->rope));
    if (m->window)
        strbuf_printf(b, ", window %d", m->window);
}

static void put_attention(struct strbuf *b, const struct mixer_shape *m)
{
    put_heads(b, m);
    if (m->kv_rank)
        strbuf_printf(b, ", latent %d", m->kv_rank);
    if (m->q_rank)
        strbuf_printf(b, ", queries through %d", m->q_rank);
    put_positions(b, m);
    if (m->scale != 0.0f)
        strbuf_printf(b, ", scores times %g", (double)m->scale);
    strbuf_puts(b, m->qk_norm == QK_NORM_HEAD    ? ", q and k normed a head"
                   : m->qk_norm == QK_NORM_WHOLE ? ", q and k normed whole"
                                                 : "");
    strbuf_puts(b, m->bias ? ", biases" : "");
    strbuf_puts(b, m->sinks ? ", sinks" : "");
    strbuf_puts(b, m->gated && !m->experts ? ", gated" : "");
    if (m->experts)
        strbuf_printf(b, ", those of %d of %d experts", m->used, m->experts);
    strbuf_puts(b, m->values_are_keys ? ", values are keys" : "");
    if (m->keys_of)
        strbuf_printf(b, ", keys and values of layer %d", m->keys_of - 1);
    if (m->block)
        strbuf_printf(b, ", a key for %d tokens", m->block);
    if (m->index_heads)
        strbuf_printf(b, ", %d keys chosen by %d heads of %d", m->index_top, m->index_heads,
                      m->index_dim);
    else if (m->index_top)
        strbuf_printf(b, ", %d keys, those of an earlier layer", m->index_top);
    strbuf_puts(b, m->lends ? ", read by later layers" : "");
}

static void put_mixer(struct strbuf *b, const struct mixer_shape *m)
{
    strbuf_puts(b, shape_mixer_word(m->kind));
    switch (m->kind) {
    case MIXER_ATTENTION:
    case MIXER_MLA:
    case MIXER_COMPRESSED: put_attention(b, m); break;
    case MIXER_CONVOLVED:
        put_attention(b, m);
        strbuf_printf(b, ", %d taps, then %d of each head", m->taps, m->head_taps);
        break;
    case MIXER_SHORT_CONVOLUTION:
        strbuf_printf(b, ": %d channels, %d taps", m->heads * m->value_dim, m->taps);
        break;
    case MIXER_DELTA_NET:
    case MIXER_KIMI_DELTA:
    case MIXER_LIGHTNING:
        put_heads(b, m);
        strbuf_printf(b, ", %d taps", m->taps);
        if (m->ngrams.size)
            strbuf_printf(b, "; before it n-grams of 2 to %d tokens: %d rows of %d", m->ngrams.size,
                          ngram_hashes(&m->ngrams), m->ngrams.width / ngram_hashes(&m->ngrams));
        break;
    case MIXER_MAMBA1:
        strbuf_printf(b, ": %d channels, states of %d, steps of rank %d, %d taps", m->value_dim,
                      m->state, m->a_rank, m->taps);
        break;
    case MIXER_MAMBA2:
        put_heads(b, m);
        strbuf_printf(b, ", states of %d, %d group%s, %d taps", m->state, m->groups,
                      m->groups == 1 ? "" : "s", m->taps);
        break;
    case MIXER_NONE:
    case MIXER_KINDS: break;
    }
}

static void put_router(struct strbuf *b, const struct router_shape *r)
{
    strbuf_printf(b, "; %s router", shape_router_word(r->kind));
    if (r->groups > 1)
        strbuf_printf(b, ", the best %d of %d groups", r->groups_used, r->groups);
    strbuf_puts(b, r->by_token ? ", experts by token" : "");
    strbuf_puts(b, r->choice_bias ? ", a bias of choice" : "");
    strbuf_puts(b, r->normalised ? ", weights sum to 1" : "");
    if (r->factor != 0.0f && r->factor != 1.0f)
        strbuf_printf(b, ", times %g", (double)r->factor);
}

static void put_ffn(struct strbuf *b, const struct ffn_shape *f)
{
    strbuf_puts(b, shape_ffn_word(f->kind));
    if (f->kind == FFN_NONE)
        return;
    if (f->kind == FFN_DENSE)
        strbuf_printf(b, ": width %d", f->shared_width);
    else
        strbuf_printf(b, ": %d of %d, width %d", f->used, f->experts, f->width);
    if (f->kind == FFN_DENSE_AND_ROUTED)
        strbuf_printf(b, ", the dense one %d", f->shared_width);
    else if (f->kind == FFN_ROUTED && f->shared)
        strbuf_printf(b, ", a shared one of %d%s", f->shared_width,
                      f->shared_gate == SHARED_SIGMOID ? " behind a gate" : "");
    if (f->grouped)
        strbuf_printf(b, ", %d adjugate ones of %d", shape_further(f), f->shared_width);
    if (f->shared_factor != 0.0f)
        strbuf_printf(b, " times %g", (double)f->shared_factor);
    strbuf_printf(b, ", %s", shape_activation_word(f->activation));
    strbuf_puts(b, f->bias ? ", biases" : "");
    if (f->experts)
        put_router(b, &f->router);
}

static void put_state(struct strbuf *b, const struct state_size *s)
{
    if (s->token_bytes)
        strbuf_printf(b, "; keeps %zu bytes a token", s->token_bytes);
    if (s->ring)
        strbuf_printf(b, ", the last %d seen", s->ring);
    if (s->fixed_bytes)
        strbuf_printf(b, "; keeps %zu bytes at any length", s->fixed_bytes);
    if (!s->token_bytes && !s->fixed_bytes)
        strbuf_puts(b, "; keeps nothing");
}

#define INDENT \
    "\n"       \
    "                             "

static void put_layer(struct strbuf *b, const struct layer_shape *s, enum kv_type kv_k,
                      enum kv_type kv_v)
{
    struct state_size state = state_size(&s->mixer, kv_k, kv_v);

    put_mixer(b, &s->mixer);
    strbuf_puts(b, INDENT);
    put_ffn(b, &s->ffn);
    if (s->inputs)
        strbuf_printf(b, ", then %d values that each token brings", s->inputs);
    strbuf_printf(b, INDENT "%s %s", shape_norm_word(s->norms.kind),
                  !s->norms.after        ? "before"
                  : s->norms.before      ? "before and after"
                  : norms_sum(&s->norms) ? "after"
                                         : "after, of outputs");
    if (s->parallel)
        strbuf_puts(b, ", of both operators: they are parallel");
    put_state(b, &state);
}

static void print_entry(FILE *out, int first, int last, const char *words)
{
    char label[40];

    if (first == last)
        snprintf(label, sizeof label, "layer %d", first);
    else
        snprintf(label, sizeof label, "layers %d-%d", first, last);
    fprintf(out, "  %-26s %s\n", label, words);
}

int fit_layers_print(const struct hparams *hp, enum kv_type kv_k, enum kv_type kv_v, FILE *out,
                     struct error *e)
{
    struct strbuf words[2] = {{0}, {0}};
    int first = 0, rc = 0;

    for (int l = 0; l <= hp->n_layers && !rc; l++) {
        struct strbuf *now = &words[l & 1], *before = &words[~l & 1];

        strbuf_clear(now);
        if (l < hp->n_layers)
            put_layer(now, hparams_layer(hp, l), kv_k, kv_v);
        if (now->failed)
            rc = error_set(e, ERR_MEMORY, "out of memory for the list of layers");
        if (rc || !l || (l < hp->n_layers && !strcmp(now->data, before->data)))
            continue;
        print_entry(out, first, l - 1, before->data);
        first = l;
    }
    strbuf_release(&words[0]);
    strbuf_release(&words[1]);
    return rc;
}
