/* See describe.h. Thread: the one that loads. Names of keys after configuration_*.py of Hugging
 * Face transformers. */
#include "engine/model/describe.h"

#include "engine/base/mem.h"
#include "engine/model/hparams_keys.h"
#include "engine/model/model.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool is_word(const struct meta_value *v, const char *word)
{
    return v->type == META_STRING && v->len == strlen(word) && memcmp(v->s, word, v->len) == 0;
}

void describe_refuse(struct describer *d, const char *format, ...)
{
    char what[240];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!d->rc)
        d->rc = error_set(d->e, ERR_MODEL, "%s: %s", weight_file_path(d->f), what);
}

/* A value by its name in config.json. spelled: its name in this file's format. */
static struct meta_value asked(const struct describer *d, const char *name, char *spelled,
                               size_t size)
{
    snprintf(spelled, size, "%s of its config.json", name);
    if (weight_file_format(d->f) != WEIGHT_GGUF)
        return family_config(d->f, name);
    for (const struct family_rename *r = d->family->renamed; r && r->json; r++)
        if (strcmp(r->json, name) == 0) {
            snprintf(spelled, size, "%s.%s", family_architecture(d->family, d->f), r->gguf);
            return weight_file_meta(d->f, spelled);
        }
    return (struct meta_value){0};
}

int describe_int(struct describer *d, const char *name, int missing, int least, int most)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if (v.type == META_NONE)
        return missing;
    if (v.type == META_INT && v.i >= least && v.i <= most)
        return (int)v.i;
    describe_refuse(d, "%s must be an integer from %d to %d", spelled, least, most);
    return missing;
}

int describe_int_at(struct describer *d, const char *name, int i, int missing)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if (v.type == META_ARRAY)
        v = (size_t)i < v.len ? meta_at(&v, (size_t)i) : (struct meta_value){0};
    return (v.type == META_INT && v.i >= 0 && v.i <= 1 << 24) || v.type == META_BOOL ? (int)v.i
                                                                                     : missing;
}

double describe_number_at(struct describer *d, const char *name, int i, double missing)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if (v.type == META_ARRAY)
        v = (size_t)i < v.len ? meta_at(&v, (size_t)i) : (struct meta_value){0};
    return v.type == META_INT || v.type == META_FLOAT ? v.f
           : v.type == META_BOOL                      ? (double)v.i
                                                      : missing;
}

void describe_only(struct describer *d, const char *name, const char *const *words)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if (v.type != META_STRING)
        return;
    for (const char *const *w = words; *w; w++)
        if (is_word(&v, *w))
            return;
    describe_refuse(d, "%s is \"%.*s\", which is not computed for %s; \"%s\" is", spelled,
                    (int)(v.len < 40 ? v.len : 40), v.s, d->family->name, words[0]);
}

void describe_never(struct describer *d, const char *name)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if ((v.type != META_BOOL && v.type != META_INT && v.type != META_FLOAT) ||
        (v.type == META_FLOAT ? v.f == 0.0 : !v.i))
        return;
    describe_refuse(d, "%s is set, which is not computed for %s", spelled, d->family->name);
}

void describe_only_number(struct describer *d, const char *name, double value)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if ((v.type != META_INT && v.type != META_FLOAT) || fabs(v.f - value) <= 1e-6)
        return;
    describe_refuse(d, "%s is %g, which is not computed for %s; %g is", spelled, v.f,
                    d->family->name, value);
}

float describe_float(struct describer *d, const char *name, float missing)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    if (v.type == META_NONE)
        return missing;
    if ((v.type == META_INT || v.type == META_FLOAT) && isfinite(v.f) && fabs(v.f) < 1e30)
        return (float)v.f;
    describe_refuse(d, "%s must be a number", spelled);
    return missing;
}

bool describe_flag(struct describer *d, const char *name, bool missing)
{
    char spelled[160];
    struct meta_value v = asked(d, name, spelled, sizeof spelled);

    return v.type == META_BOOL ? v.i != 0 : missing;
}

bool describe_is(struct describer *d, const char *name, const char *word)
{
    struct meta_value v = family_config(d->f, name);

    return is_word(&v, word);
}

bool describe_listed(struct describer *d, const char *name, int i, const char *word)
{
    struct meta_value v = family_config(d->f, name), one;

    if (v.type != META_ARRAY || (size_t)i >= v.len)
        return false;
    one = meta_at(&v, (size_t)i);
    return is_word(&one, word);
}

bool describe_per_layer(struct describer *d, const struct hparams *hp, const char *name)
{
    struct meta_value v = family_config(d->f, name);

    if (v.type != META_ARRAY)
        return false;
    if (v.len != (size_t)hp->n_layers) {
        describe_refuse(d, "%s of its config.json lists %zu layers; it has %d", name, v.len,
                        hp->n_layers);
    }
    return true;
}

bool describe_windowed(struct describer *d, int layer, int period, bool first_sees_all)
{
    char spelled[160];
    struct meta_value v = asked(d, "sliding_window_pattern", spelled, sizeof spelled),
                      types = family_config(d->f, "layer_types");

    if (types.type == META_ARRAY)
        return describe_listed(d, "layer_types", layer, "sliding_attention");
    if (v.type == META_ARRAY)
        return describe_int_at(d, "sliding_window_pattern", layer, 0) != 0;
    if (v.type == META_INT && v.i >= 0 && v.i <= 1024)
        period = (int)v.i;
    return !period || layer % period != (first_sees_all ? 0 : period - 1);
}

void describe_layer_inputs(struct hparams *hp, struct describer *d)
{
    const struct tensor_view *t =
        d->family->tensors ? family_tensor(d->family, d->f, TENSOR_INPUT_NORM, 0, 0, false) : NULL;
    int has = t && t->n_dims == 1 && t->dims[0] > 0 && t->dims[0] <= 1 << 16 ? (int)t->dims[0] : 0,
        n = describe_int(d, "hidden_size_per_layer_input", has, 0, 1 << 16);

    if (n > 0 && hp->n_layers > (1 << 24) / n)
        describe_refuse(d, "%d layers with %d inputs of their own are too many", hp->n_layers, n);
    for (int l = 0; l < hp->n_layers && !d->rc; l++)
        hp->layers[l].inputs = n;
}

/* The last layer before `first` that sees as much as layer l, and has as wide keys and values; -1.
 */
static int keys_of(const struct hparams *hp, int l, int first)
{
    const struct mixer_shape *m = &hp->layers[l].mixer;

    while (--first >= 0) {
        const struct mixer_shape *k = &hp->layers[first].mixer;

        if (k->window == m->window && k->second_rope == m->second_rope)
            return k->kv_heads == m->kv_heads && k->key_dim == m->key_dim &&
                           shape_value_dim(k) == shape_value_dim(m)
                       ? first
                       : -1;
    }
    return -1;
}

void describe_shared_keys(struct hparams *hp, struct describer *d)
{
    int first = hp->n_layers - describe_int(d, "num_kv_shared_layers", 0, 0, hp->n_layers);

    for (int l = first; l < hp->n_layers && !d->rc; l++) {
        int of = keys_of(hp, l, first);

        if (of < 0) {
            describe_refuse(d,
                            "layer %d reads the keys of a layer like it before layer %d, and there "
                            "is none",
                            l, first);
            return;
        }
        hp->layers[l].mixer.keys_of = of + 1;
        hp->layers[l].mixer.values_are_keys = false;
        hp->layers[of].mixer.lends = true;
    }
}

/* Rotated values of a head in a layer with a window. */
static int windowed_dims(const struct hparams *hp, struct describer *d)
{
    const struct mixer_shape *m = &hp->common.mixer;
    float part = describe_float(d, "rope_parameters.sliding_attention.partial_rotary_factor", 1.0f);
    int dims = hp->second_rope.dims ? hp->second_rope.dims : m->rope_dims;

    if (!describe_is_gguf(d))
        dims = part > 0.0f && part <= 1.0f ? (int)((double)m->key_dim * (double)part) : 0;
    if (dims < 2 || dims % 2 || dims > m->key_dim)
        describe_refuse(d,
                        "%d of %d values of a head are rotated in layers with a window; the "
                        "number must be even, and not larger",
                        dims, m->key_dim);
    return dims;
}

void describe_two_ropes(struct hparams *hp, struct describer *d, int period, bool first_sees_all)
{
    static const char *const plain[] = {"default", NULL}, *const scaled[] = {"default", "yarn",
                                                                             "linear", "llama3",
                                                                             NULL};
    int dims = windowed_dims(hp, d);

    describe_only(d, "rope_parameters.sliding_attention.rope_type", plain);
    describe_only(d, "rope_parameters.full_attention.rope_type", scaled);
    describe_only(d, "rope_scaling.rope_type", scaled);
    describe_only(d, "rope_scaling.type", scaled);
    /* official codes read neither where the layers' own are expected */
    describe_only(d, "rope_parameters.rope_type", plain);
    describe_never(d, "rope_parameters.rope_theta");
    (void)describe_per_layer(d, hp, "layer_types");
    hp->second_rope.theta = hp->second_rope.theta > 0.0f ? hp->second_rope.theta : hp->rope_theta;
    hp->second_rope.dims = 0;
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        if (!m->window && describe_listed(d, "layer_types", l, "sliding_attention"))
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
        if (!m->window || !describe_windowed(d, l, period, first_sees_all)) {
            m->window = 0;
            continue;
        }
        m->second_rope = true;
        m->rope_dims = hp->second_rope.dims = hp->second_rope.of = dims;
    }
    if (!hp->second_rope.dims)
        hp->second_rope.theta = 0.0f;
}

bool describe_is_gguf(const struct describer *d)
{
    return weight_file_format(d->f) == WEIGHT_GGUF;
}

bool describe_has(const struct describer *d, enum tensor_role role, int layer)
{
    return family_tensor(d->family, d->f, role, layer, 0, false) != NULL;
}

bool describe_numbered(const struct describer *d, const char *name, int number)
{
    struct meta_value v = family_config(d->f, name);

    for (size_t i = 0; v.type == META_ARRAY && i < v.len; i++) {
        struct meta_value one = meta_at(&v, i);

        if (one.type == META_INT && one.i == number)
            return true;
    }
    return false;
}

void describe_latent(struct hparams *hp, struct describer *d)
{
    struct mixer_shape *m = &hp->common.mixer;

    m->key_dim = describe_int(d, "qk_nope_head_dim", 0, 1, 4096) + m->rope_dims;
    if (m->rope == ROPE_PAIRS && !describe_flag(d, "rope_interleave", true))
        m->rope = ROPE_HALVES;
    if (!m->kv_rank)
        describe_refuse(d, "its config.json does not give kv_lora_rank");
    for (int l = 0; l < hp->n_layers; l++)
        hp->layers[l].mixer = *m;
}

int describe_inner_dim(struct describer *d, const char *heads, const char *dim)
{
    int n = describe_int(d, heads, 1, 1, 4096);

    return describe_is_gguf(d) ? describe_int(d, "inner_size", 0, 1, 1 << 20) / n
                               : describe_int(d, dim, 0, 1, 4096);
}

void describe_dense(struct ffn_shape *ffn, int width)
{
    ffn->kind = FFN_DENSE;
    ffn->experts = ffn->used = ffn->width = 0;
    ffn->shared = 1;
    ffn->shared_width = width;
    ffn->shared_gate = SHARED_PLAIN;
    ffn->router = (struct router_shape){0};
}

void describe_no_ffn(struct ffn_shape *ffn)
{
    *ffn = (struct ffn_shape){.kind = FFN_NONE};
}

void describe_shared(struct ffn_shape *ffn, int width)
{
    ffn->shared = width > 0;
    ffn->shared_width = width;
}

/* Sets what the keys left open in the layers' common mixer. */
static void describe_mixer(struct hparams *hp, struct describer *d)
{
    struct mixer_shape *m = &hp->common.mixer;

    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (!m->key_dim && m->heads)
        m->key_dim = hp->hidden / m->heads;
    if (!m->value_dim)
        m->value_dim = m->key_dim;
    m->bias = describe_flag(d, "attention_bias", m->bias);
    if (m->rope != ROPE_NONE && !m->rope_dims)
        m->rope_dims = hparams_partial_rotary(m->key_dim, d->family, d->f);
    if (m->rope != ROPE_NONE && !m->rope_dims)
        m->rope_dims = m->key_dim;
}

static void describe_router(struct router_shape *r, struct describer *d)
{
    int groups = describe_int(d, "n_group", 1, 1, 512);

    groups = describe_int(d, "num_expert_group", groups, 1, 512);
    if (d->family->normalised)
        r->normalised = describe_flag(d, d->family->normalised, r->normalised);
    r->factor = describe_float(d, "routed_scaling_factor", r->factor);
    r->groups = groups > 1 ? groups : 0;
    r->groups_used = groups > 1 ? describe_int(d, "topk_group", 1, 1, groups) : 0;
}

static int shared_width(struct describer *d, int width)
{
    int each = describe_int(d, "moe_shared_expert_intermediate_size", width, 1, 1 << 20),
        n = describe_int(d, "n_shared_experts", 0, 0, 64);

    n = describe_int(d, "num_shared_experts", n, 0, 64);
    n = describe_int(d, "moe_num_shared_experts", n, 0, 64);
    return describe_int(d, "shared_expert_intermediate_size", n * each, 0, 1 << 20);
}

/* Layers without a router: the first ones, those of a list, and all but every n-th, counted from
 * the first or from the last of n. */
static bool is_dense(struct describer *d, int layer, int first, int step)
{
    if (family_config(d->f, "moe_layer_freq").type == META_ARRAY)
        return !describe_int_at(d, "moe_layer_freq", layer, 1);
    return layer < first || (layer + 1) % step ||
           describe_listed(d, "mlp_layer_types", layer, "dense") ||
           layer % describe_int(d, "moe_layer_freq", 1, 1, 1024) ||
           describe_numbered(d, "mlp_only_layers", layer);
}

static void describe_ffns(struct hparams *hp, struct describer *d)
{
    struct ffn_shape *common = &hp->common.ffn;
    int dense = describe_int(d, "intermediate_size", 0, 1, 1 << 20),
        first = describe_int(d, "first_k_dense_replace", 0, 0, 1024),
        step = describe_int(d, "decoder_sparse_step", 1, 1, 1024);

    first = describe_int(d, "num_dense_layers", first, 0, 1024);
    first = describe_int(d, "moe_layer_start_index", first, 0, 1024);
    step = describe_int(d, "moe_layer_interval", step, 1, 1024);
    if (common->experts) {
        describe_router(&common->router, d);
        describe_shared(common, shared_width(d, common->width));
    }
    for (int l = 0; l < hp->n_layers; l++) {
        hp->layers[l].ffn = *common;
        if (!common->experts || is_dense(d, l, first, step))
            describe_dense(&hp->layers[l].ffn, dense);
    }
}

static const char *nonsense(const struct layer_shape *s)
{
    const struct mixer_shape *m = &s->mixer;
    const struct ffn_shape *f = &s->ffn;

    if (m->kind != MIXER_NONE && (m->heads < 1 || m->value_dim < 1))
        return "how large its heads are";
    if ((m->kind == MIXER_ATTENTION || m->kind == MIXER_MLA || m->kind == MIXER_CONVOLVED) &&
        (m->key_dim < 1 || m->kv_heads < 1))
        return "how large its keys are";
    if (f->experts && (f->width < 1 || f->used < 1 || f->used > f->experts))
        return "how many experts of what width a token meets";
    if (!f->experts && f->kind != FFN_NONE && f->shared_width < 1)
        return "how wide its feed-forward is";
    return NULL;
}

static void check_layers(const struct hparams *hp, struct describer *d)
{
    for (int l = 0; l < hp->n_layers && !d->rc; l++) {
        const char *gap = nonsense(&hp->layers[l]);

        if (gap)
            describe_refuse(d, "its config.json does not say of layer %d %s", l, gap);
    }
}

int hparams_describe(struct hparams *hp, const struct family *family, const struct weight_file *f,
                     struct error *e)
{
    struct describer d = {.f = f, .family = family, .e = e};
    int rc;

    *hp = (struct hparams){.common = family->shape};
    if ((rc = hparams_read_keys(hp, family, f, e)))
        return rc;
    if (!hp->n_layers || !hp->hidden || !hp->n_vocab)
        return error_set(e, ERR_MODEL, "%s: its config.json does not give %s", weight_file_path(f),
                         !hp->n_layers ? "the number of layers"
                         : !hp->hidden ? "the hidden size"
                                       : "the size of the vocabulary");
    describe_mixer(hp, &d);
    if (!(hp->layers = mem_alloc((size_t)hp->n_layers, sizeof *hp->layers)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", weight_file_path(f));
    for (int l = 0; l < hp->n_layers; l++)
        hp->layers[l] = hp->common;
    describe_ffns(hp, &d);
    if (family->layers)
        family->layers(hp, &d);
    describe_settings(hp, &d);
    check_layers(hp, &d);
    hparams_count(hp);
    return d.rc;
}

int model_computable(const struct hparams *hp, struct error *e)
{
    for (int l = 0; l < hp->n_layers; l++) {
        const char *why = shape_unsupported(hparams_layer(hp, l));

        if (why)
            return error_set(e, ERR_MODEL, "layer %d has %s, which no kernel here computes", l,
                             why);
    }
    return 0;
}
