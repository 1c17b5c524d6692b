/* Hyperparameters: metadata first, then the shapes of the tensors, which win where the metadata is
 * silent and must agree where it is not. Real Phi-tiny GGUF files need that: they lack key_length,
 * and hidden / heads is not the head size. Thread: the one that loads. */
#include "engine/model/hparams_read.h"

#include "engine/base/mem.h"
#include "engine/model/describe.h"
#include "engine/model/hparams_keys.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A size the metadata gave must be the one that was measured; a silent one takes it. */
static int settle(int *size, int64_t measured, const char *what, const char *where,
                  const struct weight_file *f, struct error *e)
{
    if (*size && *size != measured)
        return error_set(e, ERR_MODEL, "%s: %s is %d by the metadata, %lld by the shape of %s",
                         weight_file_path(f), what, *size, (long long)measured, where);
    if (measured < 1 || measured > 1 << 24)
        return error_set(e, ERR_MODEL, "%s: %s is %lld by the shape of %s", weight_file_path(f),
                         what, (long long)measured, where);
    *size = (int)measured;
    return 0;
}

static int missing(const struct family *family, const struct weight_file *f, enum tensor_role role,
                   int layer, struct error *e)
{
    char name[128];

    family_tensor_name(family, f, role, layer, 0, name, sizeof name);
    return error_set(e, ERR_MODEL, "%s: tensor %s is missing", weight_file_path(f), name);
}

/* Whether the heads that metadata gives for most layers make this one's projection. */
static bool has_common_heads(const struct hparams *hp, const struct tensor_view *o)
{
    const struct mixer_shape *m = &hp->common.mixer;

    return !m->heads || !m->key_dim || !o || o->n_dims != 2 ||
           o->dims[1] == (int64_t)m->heads * shape_value_dim(m);
}

/* The first layer that has keys, if possible of the usual heads: others may have a mixer without
 * any, or heads of their own. 0: none has. */
static int layer_with_keys(const struct hparams *hp, const struct family *family,
                           const struct weight_file *f)
{
    int first = -1;

    for (int l = 0; family->layers && l < hp->n_layers; l++)
        if (family_tensor(family, f, TENSOR_K, l, 0, false)) {
            first = first < 0 ? l : first;
            if (has_common_heads(hp, family_tensor(family, f, TENSOR_O, l, 0, false)))
                return l;
        }
    return first < 0 ? 0 : first;
}

/* Latent attention: its widths are metadata alone, since projections hold several of them in one. A
 * head of config.json's is what is not rotated, and what is. */
static int infer_latent(struct hparams *hp, const struct weight_file *f, struct error *e)
{
    struct mixer_shape *m = &hp->common.mixer;
    struct meta_value nope = family_config(f, "qk_nope_head_dim");

    if (weight_file_format(f) != WEIGHT_GGUF)
        m->key_dim = nope.type == META_INT && nope.i > 0 && nope.i <= 4096
                         ? (int)nope.i + m->rope_dims
                         : 0;
    m->kv_heads = 1;
    if (!m->heads || !m->kv_rank || !m->value_dim || !m->rope_dims || m->key_dim <= m->rope_dims)
        return error_set(
            e, ERR_MODEL,
            "%s: latent attention of %d heads of %d values, a row of %d, keys of %d of "
            "which %d are rotated: the metadata must give them all",
            weight_file_path(f), m->heads, m->value_dim, m->kv_rank, m->key_dim, m->rope_dims);
    if (m->rope_dims % 2 || (m->kv_rank + m->rope_dims) % 16 || m->kv_rank % 16)
        return error_set(e, ERR_MODEL,
                         "%s: a latent row of %d and %d rotated values is not computed: both must "
                         "be multiples of 16",
                         weight_file_path(f), m->kv_rank, m->rope_dims);
    return 0;
}

/* No layer of a family with several mixers has keys: nothing measures its heads. */
static bool has_no_keys(const struct hparams *hp, const struct family *family,
                        const struct weight_file *f)
{
    bool recurrent = false;

    for (int l = 0; l < hp->n_layers; l++) {
        if (!family->layers || family_tensor(family, f, TENSOR_K, l, 0, false))
            return false;
        recurrent |= family_tensor(family, f, TENSOR_CONV, l, 0, false) != NULL;
    }
    return recurrent;
}

/* Rows of keys among those of keys and values. */
static int64_t key_rows(const struct mixer_shape *m, int64_t rows)
{
    return m->key_dim && m->value_dim ? rows / (m->key_dim + m->value_dim) * m->key_dim : rows / 2;
}

static int infer_heads(struct hparams *hp, const struct family *family, const struct weight_file *f,
                       struct error *e)
{
    int l = layer_with_keys(hp, family, f);
    const struct tensor_view *o = family_tensor(family, f, TENSOR_O, l, 0, false),
                             *k = family_tensor(family, f, TENSOR_K, l, 0, false);
    const struct tensor_view *qkv = family_tensor(family, f, TENSOR_QKV, l, 0, false),
                             *kv = qkv ? qkv : k;
    int64_t q_rows, k_rows;

    if (has_no_keys(hp, family, f)) {
        hp->common.mixer = (struct mixer_shape){.kind = MIXER_NONE, .rope = ROPE_NONE};
        return 0;
    }
    if (family_tensor(family, f, TENSOR_HEADS_Q, l, 0, false)) { /* its family has said them all */
        hp->common.mixer.rope_dims = hp->common.mixer.key_dim;
        hp->common.mixer.heads = hp->common.mixer.kv_heads * hp->common.mixer.experts;
        return 0;
    }
    if (!o || o->n_dims != 2)
        return missing(family, f, TENSOR_O, 0, e);
    if (!kv || kv->n_dims != 2)
        return missing(family, f, TENSOR_K, 0, e);
    q_rows = o->dims[!family_tensor_turned(family, f, TENSOR_O, o)];
    if (hp->common.mixer.key_dim)
        q_rows = q_rows / shape_value_dim(&hp->common.mixer) * hp->common.mixer.key_dim;
    k_rows = qkv ? key_rows(&hp->common.mixer,
                            qkv->dims[family_tensor_turned(family, f, TENSOR_QKV, qkv)] - q_rows)
                 : k->dims[0];
    if (!hp->common.mixer.heads && !hp->common.mixer.key_dim)
        return error_set(
            e, ERR_MODEL,
            "%s: the metadata gives neither the number of attention heads nor their size",
            weight_file_path(f));
    if (!hp->common.mixer.heads)
        hp->common.mixer.heads = (int)(q_rows / hp->common.mixer.key_dim);
    if (!hp->common.mixer.key_dim)
        hp->common.mixer.key_dim = (int)(q_rows / hp->common.mixer.heads);
    if ((int64_t)hp->common.mixer.heads * hp->common.mixer.key_dim != q_rows ||
        hp->common.mixer.heads < 1 || hp->common.mixer.key_dim < 2 || hp->common.mixer.key_dim % 2)
        return error_set(e, ERR_MODEL,
                         "%s: %d attention heads of %d do not make the %lld columns of %s",
                         weight_file_path(f), hp->common.mixer.heads, hp->common.mixer.key_dim,
                         (long long)q_rows, o->name);
    if (!hp->common.mixer.kv_heads)
        hp->common.mixer.kv_heads = (int)(k_rows / hp->common.mixer.key_dim);
    if ((int64_t)hp->common.mixer.kv_heads * hp->common.mixer.key_dim != k_rows ||
        hp->common.mixer.kv_heads < 1 || hp->common.mixer.heads % hp->common.mixer.kv_heads)
        return error_set(e, ERR_MODEL,
                         "%s: %d key-value heads of %d do not fit %d heads and the %lld rows of %s",
                         weight_file_path(f), hp->common.mixer.kv_heads, hp->common.mixer.key_dim,
                         hp->common.mixer.heads, (long long)k_rows, kv->name);
    if (hp->common.mixer.rope == ROPE_NONE) {
        hp->common.mixer.rope_dims = 0;
        return 0;
    }
    if (!hp->common.mixer.rope_dims)
        hp->common.mixer.rope_dims = hparams_partial_rotary(hp->common.mixer.key_dim, family, f);
    /* Converters that assume hidden / heads write a rope dimension larger than the head. */
    if (!hp->common.mixer.rope_dims || hp->common.mixer.rope_dims > hp->common.mixer.key_dim)
        hp->common.mixer.rope_dims = hp->common.mixer.key_dim;
    if (hp->common.mixer.rope_dims % 2)
        return error_set(e, ERR_MODEL,
                         "%s: %d rotated dimensions of a head; the number must be even",
                         weight_file_path(f), hp->common.mixer.rope_dims);
    return 0;
}

/* GGUF counts the layers that predict further tokens among its blocks. */
static int extra_layers(const struct family *family, const struct weight_file *f)
{
    static const char *const gguf[FAMILY_NAMES] = {"nextn_predict_layers"};
    char name[128];
    struct meta_value v = family_meta(family, f, gguf, NULL, name, sizeof name);

    return v.type == META_INT && v.i > 0 && v.i < 64 ? (int)v.i : 0;
}

/* llama.cpp's converter writes the MTP block of some families into a file of its own. */
static bool is_block_alone(const struct family *family, const struct weight_file *f, int n_layers)
{
    struct family block;

    return !family_tensor(family, f, TENSOR_ATTENTION_NORM, 0, 0, false) &&
           !family_tensor(family, f, TENSOR_EXPERT_NORM, 0, 0, false) &&
           family_mtp(family, f, n_layers, &block);
}

static int infer_sizes(struct hparams *hp, const struct family *family, const struct weight_file *f,
                       struct error *e)
{
    const struct tensor_view *t = family_tensor(family, f, TENSOR_EMBEDDINGS, 0, 0, false),
                             *in = family_tensor(family, f, TENSOR_PROJECT_IN, 0, 0, false);
    int rc;

    if (!t || t->n_dims != 2)
        return missing(family, f, TENSOR_EMBEDDINGS, 0, e);
    if (in && in->n_dims == 2 && in->dims[1] == t->dims[1] && in->dims[1] <= HPARAMS_EMBEDDING_MOST)
        hp->embedding_width = (int)in->dims[1];
    if ((rc = settle(&hp->hidden, hp->embedding_width ? in->dims[0] : t->dims[1], "the hidden size",
                     t->name, f, e)) ||
        (rc = settle(&hp->n_vocab, t->dims[0], "the vocabulary", t->name, f, e)))
        return rc;
    if (family->extra_layers && hp->n_layers > extra_layers(family, f) &&
        weight_file_format(f) == WEIGHT_GGUF)
        hp->n_layers -= extra_layers(family, f);
    if (hp->n_layers && is_block_alone(family, f, hp->n_layers))
        return error_set(e, ERR_MODEL,
                         "%s: it holds nothing but a block that predicts further tokens, which is "
                         "read only from the file of its model",
                         weight_file_path(f));
    while (!hp->n_layers ||
           (!family->extra_layers &&
            family_tensor(family, f, TENSOR_ATTENTION_NORM, hp->n_layers, 0, false))) {
        if (!family_tensor(family, f, TENSOR_ATTENTION_NORM, hp->n_layers, 0, false) ||
            hp->n_layers >= 1024)
            return missing(family, f, TENSOR_ATTENTION_NORM, 0, e);
        hp->n_layers++;
    }
    if (hp->common.mixer.kind == MIXER_COMPRESSED) { /* all of it is metadata */
        if (!hp->common.mixer.rope_dims)
            hp->common.mixer.rope_dims = hparams_partial_rotary(hp->common.mixer.key_dim, family,
                                                                f);
        return 0;
    }
    return hp->common.mixer.kind == MIXER_MLA ? infer_latent(hp, f, e)
                                              : infer_heads(hp, family, f, e);
}

/* The width of a routed expert by its tensors, in whichever of their forms. */
static int64_t expert_width(const struct family *family, const struct weight_file *f, int layer,
                            const char **where)
{
    static const struct {
        enum tensor_role role;
        int dims, at, parts;
    } forms[] = {{TENSOR_GATE, 2, 0, 1},
                 {TENSOR_GATES, 3, 1, 1},
                 {TENSOR_UP, 2, 0, 1},
                 {TENSOR_UPS, 3, 1, 1},
                 {TENSOR_GATE_UPS, 3, 1, 2}};

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct tensor_view *t = family_tensor(family, f, forms[i].role, layer, 0, false);

        if (t && t->n_dims == forms[i].dims) {
            bool turned = family_tensor_turned(family, f, forms[i].role, t);

            *where = t->name;
            return t->dims[turned ? t->n_dims - 1 : forms[i].at] / forms[i].parts;
        }
    }
    return 0;
}

/* The width of a dense layer or of a shared expert; 0: there is none. */
static int down_width(const struct family *family, const struct weight_file *f,
                      enum tensor_role down, int layer)
{
    const struct tensor_view *t = family_tensor(family, f, down, layer, 0, false);

    int at = !family_tensor_turned(family, f, down, t);

    return t && t->n_dims == 2 && t->dims[at] > 0 && t->dims[at] <= 1 << 24 ? (int)t->dims[at] : 0;
}

/* How many adjugate experts a layer has follows from the routed ones, their width from tensors. */
static int read_adjugates(struct ffn_shape *ffn, const struct family *family,
                          const struct weight_file *f, int layer, struct error *e)
{
    const struct tensor_view *t = family_tensor(family, f, TENSOR_ADJUGATE_UP, layer, 0, false);

    if (!t || t->n_dims < 2)
        return missing(family, f, TENSOR_ADJUGATE_UP, layer, e);
    if (ffn->experts % ffn->grouped || ffn->experts / ffn->grouped + ffn->experts > 512)
        return error_set(e, ERR_MODEL,
                         "%s: %d experts in groups of %d, which is not computed: groups must be "
                         "whole, and at most 512 experts are possible, adjugate ones included",
                         weight_file_path(f), ffn->experts, ffn->grouped);
    return settle(&ffn->shared_width, t->dims[t->n_dims - 2], "the width of an adjugate expert",
                  t->name, f, e);
}

/* A layer with a router is routed, with whatever shared expert it has; one without is dense, or has
 * none where it may be a mixer alone. */
static int read_ffn(struct ffn_shape *ffn, const struct ffn_shape *common,
                    const struct family *family, const struct weight_file *f, int layer,
                    struct error *e)
{
    const struct tensor_view *router = family_tensor(family, f, TENSOR_ROUTER, layer, 0, false);
    const char *where = "";
    int64_t width;
    int rc;

    *ffn = *common;
    if (!router) {
        ffn->shared_width = down_width(family, f, TENSOR_DENSE_DOWN, layer);
        if (!ffn->shared_width && family->one_operator) {
            describe_no_ffn(ffn);
            return 0;
        }
        if (!ffn->shared_width)
            return missing(family, f, TENSOR_ROUTER, layer, e);
        ffn->kind = FFN_DENSE;
        ffn->experts = ffn->used = ffn->width = 0;
        ffn->shared = 1;
        ffn->shared_gate = SHARED_PLAIN;
        return 0;
    }
    if (router->n_dims != 2)
        return missing(family, f, TENSOR_ROUTER, layer, e);
    if ((rc = settle(&ffn->experts, router->dims[0] - ffn->router.identities,
                     "the number of experts", router->name, f, e)))
        return rc;
    if (ffn->experts > 512 || ffn->used > ffn->experts || ffn->used < 1)
        return error_set(e, ERR_MODEL,
                         "%s: %d of %d experts a token; at most 512 experts are possible",
                         weight_file_path(f), ffn->used, ffn->experts);
    if (!(width = expert_width(family, f, layer, &where)))
        return missing(family, f, weight_file_format(f) == WEIGHT_GGUF ? TENSOR_GATES : TENSOR_GATE,
                       layer, e);
    if ((rc = settle(&ffn->width, width, "the width of an expert", where, f, e)))
        return rc;
    if (ffn->grouped)
        return read_adjugates(ffn, family, f, layer, e);
    ffn->shared_width = down_width(family, f, TENSOR_SHARED_DOWN, layer);
    ffn->shared = ffn->shared_width > 0;
    return 0;
}

/* What the layers are, one by one, by what the file holds of each. */
static int read_layers(struct hparams *hp, const struct family *family, const struct weight_file *f,
                       struct error *e)
{
    struct ffn_shape routed = {.kind = FFN_DENSE};
    int rc;

    if (!(hp->layers = mem_alloc((size_t)hp->n_layers, sizeof *hp->layers)))
        return error_set(e, ERR_MEMORY, "%s: out of memory", weight_file_path(f));
    for (int l = 0; l < hp->n_layers; l++) {
        hp->layers[l] = hp->common;
        if (family->qk_norm_optional && !family_tensor(family, f, TENSOR_Q_NORM, l, 0, false))
            hp->layers[l].mixer.qk_norm = QK_NORM_NONE;
        if ((rc = read_ffn(&hp->layers[l].ffn, &hp->common.ffn, family, f, l, e)))
            return rc;
        if (routed.kind == FFN_DENSE && hp->layers[l].ffn.kind != FFN_NONE)
            routed = hp->layers[l].ffn;
    }
    hp->common.ffn = routed;
    return 0;
}

static void read_router(struct hparams *hp, const struct family *family,
                        const struct weight_file *f)
{
    static const char *const gguf[FAMILY_NAMES] = {"expert_weights_norm"};
    const char *const json[FAMILY_NAMES] = {family->normalised};
    char name[128];
    struct meta_value v = family_meta(family, f, gguf, json, name, sizeof name);

    if (v.type == META_BOOL)
        hp->common.ffn.router.normalised = v.i != 0;
}

static void add_stop(struct hparams *hp, const struct meta_value *v)
{
    if (v->type == META_ARRAY) {
        for (size_t i = 0; i < v->len && i < HPARAMS_STOPS; i++) {
            struct meta_value one = meta_at(v, i);

            if (one.type == META_INT)
                add_stop(hp, &one);
        }
        return;
    }
    if (v->type != META_INT || v->i < 0 || v->i >= hp->n_vocab || hp->n_stops == HPARAMS_STOPS)
        return;
    for (int i = 0; i < hp->n_stops; i++)
        if (hp->stops[i] == v->i)
            return;
    hp->stops[hp->n_stops++] = (int)v->i;
}

/* The id of a special token by its text, or META_NONE. */
static struct meta_value token_id(const struct weight_file *f, const char *text, size_t len,
                                  int n_vocab)
{
    struct meta_value v, none = {0};
    char key[160];

    if (weight_file_format(f) == WEIGHT_GGUF) {
        v = weight_file_meta(f, "tokenizer.ggml.tokens");
        for (size_t i = 0; v.type == META_ARRAY && i < v.len; i++) {
            struct meta_value token = meta_at(&v, i);

            if (token.type == META_STRING && token.len == len && memcmp(token.s, text, len) == 0)
                return (struct meta_value){.type = META_INT, .i = (int64_t)i};
        }
        return none;
    }
    if (len > 100)
        return none;
    snprintf(key, sizeof key, "added_tokens.json:%.*s", (int)len, text);
    v = weight_file_meta(f, key);
    if (v.type == META_INT || !weight_file_aux(f, "tokenizer_config.json", &(size_t){0}))
        return v;
    for (int i = 0; i < n_vocab; i++) {
        snprintf(key, sizeof key, "tokenizer_config.json:added_tokens_decoder.%d.content", i);
        v = weight_file_meta(f, key);
        if (v.type == META_STRING && v.len == len && memcmp(v.s, text, len) == 0)
            return (struct meta_value){.type = META_INT, .i = i};
    }
    return none;
}

static void read_tokens(struct hparams *hp, const struct family *family,
                        const struct weight_file *f)
{
    static const char *const gguf_stops[] = {"tokenizer.ggml.eos_token_id",
                                             "tokenizer.ggml.eot_token_id",
                                             "tokenizer.ggml.eom_token_id",
                                             "tokenizer.ggml.eos_token_ids", NULL};
    static const char *const json_stops[] = {"eos_token_id", "generation_config.json:eos_token_id",
                                             NULL};
    int gguf = weight_file_format(f) == WEIGHT_GGUF;
    struct meta_value v;

    for (const char *const *p = gguf ? gguf_stops : json_stops; *p; p++) {
        v = family_config(f, *p);
        add_stop(hp, &v);
    }
    for (const char *const *p = family->stops; *p; p++) {
        v = token_id(f, *p, strlen(*p), hp->n_vocab);
        add_stop(hp, &v);
    }
    v = family_config(f, gguf ? "tokenizer.ggml.bos_token_id" : "bos_token_id");
    hp->bos = v.type == META_INT && v.i >= 0 && v.i < hp->n_vocab ? (int)v.i : -1;
    v = weight_file_meta(f, gguf ? "tokenizer.ggml.unknown_token_id"
                                 : "tokenizer_config.json:unk_token");
    if (v.type == META_STRING)
        v = token_id(f, v.s, v.len, hp->n_vocab);
    hp->unk = v.type == META_INT && v.i >= 0 && v.i < hp->n_vocab ? (int)v.i : -1;
    v = weight_file_meta(f, gguf ? "tokenizer.ggml.add_bos_token"
                                 : "tokenizer_config.json:add_bos_token");
    hp->add_bos = v.type == META_BOOL && v.i && hp->bos >= 0;
}

int hparams_read(struct hparams *hp, const struct family *family, const struct weight_file *f,
                 struct error *e)
{
    struct meta_value tied = family_config(f, family->tied);
    struct describer d = {.f = f, .family = family, .e = e};
    int rc;

    *hp = (struct hparams){.common = family->shape};
    if (weight_file_format(f) == WEIGHT_GGUF)
        hp->common.mixer.rope = family->gguf_rope;
    if ((rc = hparams_read_keys(hp, family, f, e)) || (rc = infer_sizes(hp, family, f, e)) ||
        (rc = rope_scaling_read(hp, family, f, e)))
        return rc;
    read_router(hp, family, f);
    hp->common.mixer.bias = family_tensor(family, f, TENSOR_Q, layer_with_keys(hp, family, f), 0,
                                          true) ||
                            family_tensor(family, f, TENSOR_QKV, 0, 0, true);
    hp->head_bias = family_tensor(family, f, TENSOR_HEAD, 0, 0, true) != NULL;
    if (!family_tensor(family, f, TENSOR_HEAD, 0, 0, false)) {
        if (weight_file_format(f) != WEIGHT_GGUF &&
            !(tied.type == META_BOOL ? tied.i != 0 : family->tied_unsaid))
            return missing(family, f, TENSOR_HEAD, 0, e);
        hp->tied_embeddings = true;
    }
    read_tokens(hp, family, f);
    if ((rc = read_layers(hp, family, f, e)))
        return rc;
    if (family->layers)
        family->layers(hp, &d);
    describe_settings(hp, &d);
    hparams_count(hp);
    return d.rc;
}
