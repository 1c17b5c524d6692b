/* See export_layers.h. Names after llama.cpp's gguf-py/gguf/constants.py, their use by kind of
 * layer after its conversion/. */
#include "engine/convert/export_layers.h"

#include "engine/convert/export_keys.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const struct mixer_shape *mixer_of(const struct model *m, int layer)
{
    return &hparams_layer(&m->hp, layer)->mixer;
}

/* The first layer with recurrent state; NULL: none. */
static const struct mixer_shape *recurrent_of(const struct model *m)
{
    for (int l = 0; l < m->hp.n_layers; l++)
        if (shape_recurrent(mixer_of(m, l)))
            return mixer_of(m, l);
    return NULL;
}

/* A layer with heads of its own, a part of them rotated; NULL: none. */
static const struct mixer_shape *whole_of(const struct model *m)
{
    for (int l = 0; l < m->hp.n_layers; l++)
        if (mixer_of(m, l)->second_rope && mixer_of(m, l)->rope == ROPE_PROPORTIONAL)
            return mixer_of(m, l);
    return NULL;
}

/* Names in GGUF of what `renamed` says; NULL: the family has no such key. */
static const char *renamed_key(const struct family *family, const char *json)
{
    const struct family_rename *r = family->renamed;

    while (r && r->json && strcmp(r->json, json) != 0)
        r++;
    return r ? r->gguf : NULL;
}

bool export_two_heads(const struct model *m)
{
    return whole_of(m) != NULL;
}

bool export_heads_listed(const struct model *m, const struct family *family)
{
    const struct mixer_shape *s = recurrent_of(m);

    return export_two_heads(m) || renamed_key(family, "swa_num_key_value_heads") ||
           (s && s->kind != MIXER_DELTA_NET);
}

bool export_widths_listed(const struct model *m, const struct family *family)
{
    bool differ = family->one_operator;
    int width = 0;

    for (int l = 0; l < m->hp.n_layers && export_two_heads(m); l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;

        if (s->kind == FFN_DENSE && width && s->shared_width != width)
            differ = true;
        if (s->kind == FFN_DENSE)
            width = s->shared_width;
    }
    return differ;
}

/* Readers want an entry of the MTP block in lists of the layers. */
static size_t listed_layers(const struct model *m, const struct model *mtp)
{
    return (size_t)m->hp.n_layers + (mtp != NULL);
}

static void put_heads(struct gguf_writer *w, const struct model *m, const struct family *family,
                      const struct model *mtp)
{
    char key[EXPORT_KEY];

    gguf_put_array(w, export_key(family, "attention.head_count_kv", key), GGUF_I32,
                   listed_layers(m, mtp));
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct mixer_shape *s = mixer_of(m, l);

        gguf_add_i32(w, s->kind == MIXER_MLA ? 1 : s->kind == MIXER_ATTENTION ? s->kv_heads : 0);
    }
    if (mtp)
        gguf_add_i32(w, mixer_of(mtp, 0)->kv_heads);
}

/* For families whose layers may differ in it. */
static void put_queries(struct gguf_writer *w, const struct model *m, const struct family *family,
                        const struct model *mtp)
{
    char key[EXPORT_KEY];

    if (!renamed_key(family, "num_attention_heads_per_layer"))
        return;
    gguf_put_array(w, export_key(family, "attention.head_count", key), GGUF_I32,
                   listed_layers(m, mtp));
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_i32(w, mixer_of(m, l)->heads);
    if (mtp)
        gguf_add_i32(w, mixer_of(mtp, 0)->heads);
}

static void put_widths(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    char key[EXPORT_KEY];

    gguf_put_array(w, export_key(family, "feed_forward_length", key), GGUF_I32,
                   (size_t)m->hp.n_layers);
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;

        gguf_add_i32(w, s->kind == FFN_NONE    ? 0
                        : s->kind == FFN_DENSE ? s->shared_width
                                               : s->width);
    }
}

/* The interval of attention layers, and which layers are recurrent. */
static void put_nets(struct gguf_writer *w, const struct model *m, const struct family *family,
                     bool mtp)
{
    char key[EXPORT_KEY];
    int first = 0;

    gguf_put_array(w, export_key(family, "attention.recurrent_layers", key), GGUF_BOOL,
                   (size_t)m->hp.n_layers + mtp);
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_bool(w, shape_recurrent(mixer_of(m, l)));
    if (mtp)
        gguf_add_bool(w, false);
    while (first < m->hp.n_layers && shape_recurrent(mixer_of(m, first)))
        first++;
    export_put_u32(w, family, "full_attention_interval", (uint32_t)first + 1);
}

static bool any_rotated(const struct model *m)
{
    for (int l = 0; l < m->hp.n_layers; l++)
        if (mixer_of(m, l)->kind == MIXER_ATTENTION && mixer_of(m, l)->rope != ROPE_NONE)
            return true;
    return false;
}

static void put_state(struct gguf_writer *w, const struct family *family,
                      const struct mixer_shape *s)
{
    export_put_u32(w, family, "ssm.conv_kernel", (uint32_t)s->taps);
    export_put_u32(w, family, "ssm.state_size", (uint32_t)shape_state_keys(s));
    export_put_u32(w, family, "ssm.group_count", (uint32_t)shape_key_heads(s));
    export_put_u32(w, family, "ssm.time_step_rank", (uint32_t)s->heads);
    export_put_u32(w, family, "ssm.inner_size", (uint32_t)(s->heads * s->value_dim));
}

static void put_recurrent(struct gguf_writer *w, const struct model *m, const struct family *family,
                          const struct mixer_shape *s, bool mtp)
{
    switch (s->kind) {
    case MIXER_DELTA_NET:
        put_state(w, family, s);
        put_nets(w, m, family, mtp);
        break;
    case MIXER_MAMBA1:
        export_put_u32(w, family, "ssm.conv_kernel", (uint32_t)s->taps);
        export_put_u32(w, family, "ssm.inner_size", (uint32_t)s->value_dim);
        export_put_u32(w, family, "ssm.state_size", (uint32_t)s->state);
        export_put_u32(w, family, "ssm.time_step_rank", (uint32_t)s->a_rank);
        break;
    case MIXER_MAMBA2:
        put_state(w, family, s);
        export_put_bool(w, family, "rope.scaling.finetuned", any_rotated(m));
        break;
    case MIXER_KIMI_DELTA:
        export_put_u32(w, family, "ssm.conv_kernel", (uint32_t)s->taps);
        export_put_u32(w, family, "kda.head_dim", (uint32_t)s->key_dim);
        export_put_bool(w, family, "kda.safe_gate", s->decay_bound != 0.0f);
        if (s->decay_bound != 0.0f)
            export_put_f32(w, family, "kda.gate_lower_bound", s->decay_bound);
        break;
    case MIXER_SHORT_CONVOLUTION:
        export_put_u32(w, family, "shortconv.l_cache", (uint32_t)s->taps);
        break;
    default: break;
    }
}

static void put_inputs(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    uint32_t reading = 0;

    for (int l = 0; l < m->hp.n_layers; l++)
        reading += mixer_of(m, l)->keys_of > 0;
    export_put_u32(w, family, "attention.shared_kv_layers", reading);
    export_put_u32(w, family, "embedding_length_per_layer_input",
                   (uint32_t)hparams_layer(&m->hp, 0)->inputs);
}

/* Keys of layers with a window end in _swa. */
static void put_two_heads(struct gguf_writer *w, const struct model *m, const struct family *family,
                          const struct mixer_shape *whole)
{
    char key[EXPORT_KEY];

    export_put_u32(w, family, "attention.key_length", (uint32_t)whole->key_dim);
    export_put_u32(w, family, "attention.value_length", (uint32_t)whole->key_dim);
    export_put_u32(w, family, "attention.value_length_swa", (uint32_t)m->hp.common.mixer.key_dim);
    export_put_u32(w, family, "rope.dimension_count", (uint32_t)whole->key_dim);
    export_put_f32(w, family, "rope.freq_base", m->hp.second_rope.theta);
    put_inputs(w, m, family);
    gguf_put_array(w, export_key(family, "attention.sliding_window_pattern", key), GGUF_BOOL,
                   (size_t)m->hp.n_layers);
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_bool(w, mixer_of(m, l)->window > 0);
}

/* Which layers have a window, for families whose files may say so. */
static void put_windows(struct gguf_writer *w, const struct model *m, const struct family *family,
                        const struct model *mtp)
{
    const char *name = renamed_key(family, "sliding_window_pattern");
    char key[EXPORT_KEY];

    if (!name || !m->hp.common.mixer.window)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_BOOL, listed_layers(m, mtp));
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_bool(w, mixer_of(m, l)->window > 0);
    if (mtp)
        gguf_add_bool(w, mixer_of(mtp, 0)->window > 0);
}

/* Limits of clamped activations, of routed experts or of those that are always used; 0: none. */
static void put_limits(struct gguf_writer *w, const struct model *m, const struct family *family,
                       const struct model *mtp, bool shared)
{
    const char *name = renamed_key(family, shared ? "swiglu_limits_shared" : "swiglu_limits");
    char key[EXPORT_KEY];

    if (!name)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_F32, listed_layers(m, mtp));
    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;
        float limit = shape_limit(s, shared ? s->experts : 0);
        bool has = s->activation == ACTIVATION_BOUNDED_SILU && limit < FLT_MAX &&
                   (shared ? s->shared : s->experts);

        gguf_add_f32(w, has ? limit : 0.0f);
    }
    if (mtp)
        gguf_add_f32(w, 0.0f);
}

/* Which layers are rotated, for families whose files say so. */
static void put_rotated(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    const char *name = renamed_key(family, "layer_rope_theta");
    char key[EXPORT_KEY];

    if (!name)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_I32, (size_t)m->hp.n_layers);
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_i32(w, mixer_of(m, l)->rope != ROPE_NONE);
}

/* Sections of a position, of which a text has one. */
static void put_sections(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    struct meta_value list = family_config(m->file, "rope_parameters.mrope_section");
    char key[EXPORT_KEY];

    gguf_put_array(w, export_key(family, "rope.dimension_sections", key), GGUF_I32, 4);
    for (size_t i = 0; i < 4; i++) {
        struct meta_value v = {0};

        if (list.type == META_ARRAY && i < list.len)
            v = meta_at(&list, i);
        gguf_add_i32(w, list.type != META_ARRAY ? family->gguf_sections[i]
                        : v.type == META_INT    ? (int32_t)v.i
                                                : 0);
    }
}

/* Inputs of single layers; the first stream is the one that layers see; deviations above the mean
 * that gates must reach, -infinity: all count, as the converter writes the quantile of 0. */
static void put_streams(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    char key[EXPORT_KEY];

    if (hparams_hyper(&m->hp))
        return; /* their numbers are keys of every family's kind */
    put_inputs(w, m, family);
    export_put_u32(w, family, "altup.active_idx", 0);
    gguf_put_array(w, export_key(family, "activation_sparsity_scale", key), GGUF_F32,
                   (size_t)m->hp.n_layers);
    for (int l = 0; l < m->hp.n_layers; l++) {
        float by = hparams_layer(&m->hp, l)->ffn.limit;

        gguf_add_f32(w, by != 0.0f ? by : -INFINITY);
    }
}

/* The clamp of each layer's experts, for families whose files say it. */
static void put_clamps(struct gguf_writer *w, const struct model *m, const struct family *family,
                       const struct model *mtp)
{
    const char *name = renamed_key(family, "swiglu_clamp_exp");
    char key[EXPORT_KEY];

    if (!name)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_F32, listed_layers(m, mtp));
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_f32(w, hparams_layer(&m->hp, l)->ffn.limit);
    if (mtp)
        gguf_add_f32(w, hparams_layer(&mtp->hp, 0)->ffn.limit);
}

/* Which layers choose keys themselves, for families whose files say so. */
static void put_indexers(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    const char *name = renamed_key(family, "indexer_types");
    char key[EXPORT_KEY];

    if (!name)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_BOOL, (size_t)m->hp.n_layers);
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_bool(w, mixer_of(m, l)->index_heads > 0);
}

/* Tokens of a block that have a row of their own, and how many layers' experts follow from the
 * token, for families whose files say so. */
static void put_blocks(struct gguf_writer *w, const struct model *m, const struct family *family,
                       const struct model *mtp)
{
    const char *name = renamed_key(family, "compress_ratios");
    char key[EXPORT_KEY];
    uint32_t by_token = 0;

    if (!name)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_I32, listed_layers(m, mtp));
    for (int l = 0; l < m->hp.n_layers; l++) {
        gguf_add_i32(w, mixer_of(m, l)->block);
        by_token += hparams_layer(&m->hp, l)->ffn.router.by_token;
    }
    if (mtp)
        gguf_add_i32(w, mixer_of(mtp, 0)->block);
    export_put_u32(w, family, renamed_key(family, "num_hash_layers"), by_token);
}

/* Positions that a key of each layer's indexer stands for; 0: it has none. */
static void put_ratios(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    const char *name = renamed_key(family, "indexer_compress_ratio");
    char key[EXPORT_KEY];

    if (!name)
        return;
    gguf_put_array(w, export_key(family, name, key), GGUF_I32, (size_t)m->hp.n_layers);
    for (int l = 0; l < m->hp.n_layers; l++)
        gguf_add_i32(w, mixer_of(m, l)->index_ratio);
}

static void put_numbers(struct gguf_writer *w, const struct family *family, const char *name,
                        const int64_t *v, int n)
{
    char key[EXPORT_KEY];

    gguf_put_array(w, export_key(family, name, key), GGUF_U64, (size_t)n);
    for (int i = 0; i < n; i++)
        gguf_add_u64(w, (uint64_t)v[i]);
}

/* A layer's n-grams; files have at most one such layer (export_same refuses others). */
static void put_ngrams(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    char key[EXPORT_KEY];

    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ngram_shape *s = &mixer_of(m, l)->ngrams;
        const struct ngram_weights *g = &m->layers[l].ngrams;
        int n = ngram_hashes(s);

        if (!s->size)
            continue;
        gguf_put_array(w, export_key(family, "ple.layers", key), GGUF_I32, 1);
        gguf_add_i32(w, l);
        export_put_u32(w, family, "ple.ngram_size", (uint32_t)s->size);
        export_put_u32(w, family, "ple.heads_per_ngram", (uint32_t)s->each);
        export_put_u32(w, family, "ple.conv_kernel", (uint32_t)s->taps);
        export_put_u32(w, family, "ple.eos_token_id", (uint32_t)s->end);
        export_put_u32(w, family, "embedding_length_per_layer_input", (uint32_t)(s->width / n));
        put_numbers(w, family, "ple.layer_multipliers", g->multipliers, s->size);
        put_numbers(w, family, "ple.head_offsets", g->offsets, n);
        put_numbers(w, family, "ple.head_vocab_sizes", g->sizes, n);
        return;
    }
}

void export_put_layers(struct gguf_writer *w, const struct model *m, const struct family *family,
                       const struct model *mtp)
{
    const struct mixer_shape *recurrent = recurrent_of(m), *whole = whole_of(m);

    if (export_heads_listed(m, family))
        put_heads(w, m, family, mtp);
    put_queries(w, m, family, mtp);
    if (export_widths_listed(m, family))
        put_widths(w, m, family);
    if (recurrent)
        put_recurrent(w, m, family, recurrent, mtp != NULL);
    if (whole)
        put_two_heads(w, m, family, whole);
    else
        put_windows(w, m, family, mtp);
    put_limits(w, m, family, mtp, false);
    put_limits(w, m, family, mtp, true);
    put_rotated(w, m, family);
    put_clamps(w, m, family, mtp);
    put_blocks(w, m, family, mtp);
    put_indexers(w, m, family);
    put_ratios(w, m, family);
    put_ngrams(w, m, family);
    if (m->hp.streams)
        put_streams(w, m, family);
    if (family->gguf_sections)
        put_sections(w, m, family);
}
