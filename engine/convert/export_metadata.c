/* Metadata of an exported file: a GGUF source's entries unchanged (except those affected by the new
 * types), a Hugging Face folder's translated: hyperparameters by the family's table, the tokenizer
 * from tokenizer.json. Thread: the one that exports. */
#include "engine/convert/export_metadata.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/export_keys.h"
#include "engine/convert/export_layers.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ggml's kinds of tokens. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED, TOKEN_BYTE };

static bool replaced(const char *key, size_t bytes)
{
    static const char *const ours[] = {"general.file_type", "general.quantization_version",
                                       "general.alignment", "split.no",
                                       "split.count",       "split.tensors.count"};

    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strlen(ours[i]) == bytes && memcmp(ours[i], key, bytes) == 0)
            return true;
    return false;
}

static void put_field(struct gguf_writer *w, const struct family *family, const struct hparams *hp,
                      size_t field)
{
    char key[128];
    bool is_float;
    int i;
    float f;

    if (!family_gguf_key(family, field, key, sizeof key, &is_float))
        return;
    memcpy(&i, (const char *)hp + field, sizeof i);
    memcpy(&f, (const char *)hp + field, sizeof f);
    if (is_float)
        gguf_put_f32(w, key, f);
    else if (i) /* a model without experts has no width of them */
        gguf_put_u32(w, key, (uint32_t)i);
}

/* Fields written for every family: with their defaults if a folder lacks them. */
static const size_t always[] = {offsetof(struct hparams, n_layers),
                                offsetof(struct hparams, hidden),
                                offsetof(struct hparams, common.mixer.heads),
                                offsetof(struct hparams, common.mixer.kv_heads),
                                offsetof(struct hparams, common.mixer.key_dim),
                                offsetof(struct hparams, n_vocab),
                                offsetof(struct hparams, common.ffn.experts),
                                offsetof(struct hparams, common.ffn.used),
                                offsetof(struct hparams, common.ffn.width),
                                offsetof(struct hparams, context_max),
                                offsetof(struct hparams, common.mixer.rope_dims),
                                offsetof(struct hparams, rope_theta),
                                offsetof(struct hparams, common.norms.eps),
                                offsetof(struct hparams, common.ffn.router.jitter)};
/* Fields of longrope, which belong together. */
static const size_t longrope[] = {offsetof(struct hparams, original_context),
                                  offsetof(struct hparams, short_mscale),
                                  offsetof(struct hparams, long_mscale)};

static bool is_among(size_t field, const size_t *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == field)
            return true;
    return false;
}

/* Other keys of the family's table, if set. */
static void put_rest(struct gguf_writer *w, const struct hparams *hp, const struct family *family)
{
    for (const struct family_key *k = family->keys; k->gguf[0] || k->json[0]; k++) {
        int bits;

        memcpy(&bits, (const char *)hp + k->field, sizeof bits);
        if (bits && k->gguf[0] && !is_among(k->field, always, sizeof always / sizeof *always) &&
            !is_among(k->field, longrope, sizeof longrope / sizeof *longrope))
            put_field(w, family, hp, k->field);
    }
}

/* The width of dense layers; if there are none, config.json's value, or an expert's width. */
static uint32_t dense_width(const struct model *m)
{
    struct meta_value v = family_config(m->file, "intermediate_size");

    for (int l = 0; l < m->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&m->hp, l)->ffn;

        if (s->kind == FFN_DENSE || s->kind == FFN_DENSE_AND_ROUTED)
            return (uint32_t)s->shared_width;
    }
    return v.type == META_INT && v.i > 0 && v.i < 1 << 24 ? (uint32_t)v.i
                                                          : (uint32_t)m->hp.common.ffn.width;
}

#define GATING_SIGMOID 2 /* llama.cpp's expert_gating_func; 1 is softmax */
#define GATING_ROOT 4

/* Feed-forward of the first layer with routed experts; NULL: none. */
static const struct ffn_shape *routed_of(const struct hparams *hp)
{
    for (int l = 0; l < hp->n_layers; l++)
        if (hparams_layer(hp, l)->ffn.experts)
            return &hparams_layer(hp, l)->ffn;
    return NULL;
}

/* Number of shared experts in config.json's count; they are one here. */
static uint32_t shared_count(const struct model *m, const struct ffn_shape *s)
{
    static const char *const names[] = {"n_shared_experts", "num_shared_experts",
                                        "moe_num_shared_experts"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct meta_value v = family_config(m->file, names[i]);

        if (v.type == META_INT && v.i > 0 && v.i < 1 << 16)
            return (uint32_t)v.i;
    }
    return s->shared_width % s->width ? 1U : (uint32_t)(s->shared_width / s->width);
}

/* `step`, if every step-th layer has experts and no other; else 1. */
static int routed_step(const struct hparams *hp, int step)
{
    for (int l = 0; l < hp->n_layers; l++)
        if ((hparams_layer(hp, l)->ffn.experts > 0) != ((l + 1) % step == 0))
            return 1;
    return step;
}

/* Metadata of experts besides the family's keys: leading dense layers, shared experts, scoring. */
static void put_experts(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    const struct hparams *hp = &m->hp;
    const struct ffn_shape *s = routed_of(hp);
    int dense = 0;

    if (!s || s->kind == FFN_DENSE_AND_ROUTED || s->router.kind == ROUTER_SPARSEMIXER)
        return;
    while (dense < hp->n_layers && hparams_layer(hp, dense)->ffn.kind == FFN_DENSE)
        dense++;
    export_put_u32(w, family, "leading_dense_block_count", (uint32_t)dense);
    export_put_u32(w, family, "interleave_moe_layer_step", (uint32_t)routed_step(hp, dense + 1));
    export_put_u32(w, family, "expert_gating_func",
                   s->router.kind == ROUTER_SIGMOID ? GATING_SIGMOID
                   : s->router.kind == ROUTER_ROOT  ? GATING_ROOT
                                                    : 1);
    export_put_bool(w, family, "expert_weights_norm", s->router.normalised);
    if (s->shared) {
        export_put_u32(w, family, "expert_shared_count", shared_count(m, s));
        export_put_u32(w, family, "expert_shared_feed_forward_length", (uint32_t)s->shared_width);
    }
}

static struct meta_value scaling(const struct model *m, const char *name)
{
    static const char *const places[] = {"rope_scaling", "rope_parameters",
                                         "rope_parameters.full_attention",
                                         "rope_parameters.compress"};
    struct meta_value v = {0};
    char path[128];

    for (int i = 0; i < 4 && v.type == META_NONE; i++) {
        snprintf(path, sizeof path, "%s.%s", places[i], name);
        v = family_config(m->file, path);
    }
    return v;
}

static bool scaled_by(const struct model *m, const char *word)
{
    struct meta_value v = scaling(m, "rope_type");

    if (v.type == META_NONE)
        v = scaling(m, "type");
    return v.type == META_STRING && v.len == strlen(word) && memcmp(v.s, word, v.len) == 0;
}

bool export_rope_is_tensor(const struct model *m)
{
    return scaled_by(m, "llama3");
}

/* Linear scaling and YaRN, in llama.cpp's keys; its attn_factor multiplies YaRN's own. */
static void put_scaling(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    static const struct {
        const char *json, *gguf;
    } numbers[] = {{"factor", "rope.scaling.factor"},
                   {"beta_fast", "rope.scaling.yarn_beta_fast"},
                   {"beta_slow", "rope.scaling.yarn_beta_slow"}};
    const char *word = scaled_by(m, "yarn") ? "yarn" : scaled_by(m, "linear") ? "linear" : NULL;
    struct meta_value v = scaling(m, "original_max_position_embeddings");
    char key[128];
    double factor = scaling(m, "factor").f;

    if (!word)
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.type", family->gguf[0]);
    gguf_put_string(w, key, word, strlen(word));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct meta_value n = scaling(m, numbers[i].json);

        if (n.type == META_INT || n.type == META_FLOAT)
            export_put_f32(w, family, numbers[i].gguf, (float)n.f);
    }
    export_put_u32(w, family, "rope.scaling.original_context_length",
                   v.type == META_INT ? (uint32_t)v.i : (uint32_t)m->hp.context_max);
    if (word[0] == 'y' && m->hp.common.mixer.kind != MIXER_MLA && m->hp.short_mscale == 1.0f &&
        scaling(m, "mscale_all_dim").f > 0.0) /* conversion/mistral3.py */
        export_put_f32(w, family, "rope.scaling.yarn_log_multiplier",
                       (float)scaling(m, "mscale_all_dim").f);
    else if (word[0] == 'y' && factor > 1.0 && m->hp.common.mixer.kind != MIXER_MLA)
        export_put_f32(w, family, "rope.scaling.attn_factor",
                       m->hp.short_mscale / (float)(1.0 + 0.1 * log(factor)));
}

/* Latent attention: readers expect the cached row as key and value of a single head (llama.cpp,
 * conversion/deepseek.py). */
static void put_latent(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    const struct mixer_shape *s = &m->hp.common.mixer;
    struct meta_value all = scaling(m, "mscale_all_dim");

    if (!export_heads_listed(m, family))
        export_put_u32(w, family, "attention.head_count_kv", 1);
    export_put_u32(w, family, "attention.key_length", (uint32_t)(s->kv_rank + s->rope_dims));
    export_put_u32(w, family, "attention.value_length",
                   (uint32_t)(export_heads_listed(m, family) ? s->value_dim : s->kv_rank));
    export_put_u32(w, family, "attention.key_length_mla", (uint32_t)s->key_dim);
    if (all.type == META_INT || all.type == META_FLOAT)
        export_put_f32(w, family, "rope.scaling.yarn_log_multiplier", (float)(0.1 * all.f));
}

/* Readers of some families expect the folder's key (conversion/base.py). */
static void put_layer_norm_eps(struct gguf_writer *w, const struct model *m,
                               const struct family *family)
{
    struct meta_value v = family_config(m->file, "layer_norm_epsilon");

    if (v.type == META_FLOAT)
        export_put_f32(w, family, "attention.layer_norm_epsilon", (float)v.f);
}

/* Of families that tell the kind of norm by which of the two there is; and the factor of logits
 * where it is one. */
static void put_eps(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    const struct norms_shape *s = &m->hp.common.norms;

    export_put_f32(w, family,
                   s->kind == NORM_LAYER ? "attention.layer_norm_epsilon"
                                         : "attention.layer_norm_rms_epsilon",
                   s->eps);
    if (m->hp.logit_divisor != 0.0f)
        export_put_f32(w, family, "logit_scale", (float)(1.0 / (double)m->hp.logit_divisor));
}

/* The MTP block counts as a layer. */
static void put_mtp(struct gguf_writer *w, const struct model *m, const struct family *family)
{
    export_put_u32(w, family, "block_count", (uint32_t)m->hp.n_layers + 1);
    export_put_u32(w, family, "nextn_predict_layers", 1);
}

static void put_hparams(struct gguf_writer *w, const struct model *m, const struct family *family,
                        const struct model *mtp)
{
    char key[128];
    static const size_t heads[] = {offsetof(struct hparams, common.mixer.kv_heads),
                                   offsetof(struct hparams, common.mixer.key_dim)};
    bool latent = m->hp.common.mixer.kind == MIXER_MLA, listed = export_heads_listed(m, family);
    bool is_float;

    gguf_put_string(w, "general.architecture", family->gguf[0], strlen(family->gguf[0]));
    gguf_put_string(w, "general.name", m->name, strlen(m->name));
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if ((!latent || !is_among(always[i], heads, sizeof heads / sizeof *heads)) &&
            (!listed || always[i] != heads[0]) &&
            (!family->gguf_half_rope ||
             always[i] != offsetof(struct hparams, common.mixer.rope_dims)) &&
            (!family->gguf_eps || always[i] != offsetof(struct hparams, common.norms.eps)) &&
            (!mtp || always[i] != offsetof(struct hparams, n_layers)))
            put_field(w, family, &m->hp, always[i]);
    if (mtp)
        put_mtp(w, m, family);
    if (family->gguf_half_rope)
        export_put_u32(w, family, "rope.dimension_count",
                       2 * (uint32_t)m->hp.common.mixer.rope_dims);
    put_rest(w, &m->hp, family);
    export_put_layers(w, m, family, mtp);
    if (!export_widths_listed(m, family))
        export_put_u32(w, family, "feed_forward_length", dense_width(m));
    if (latent)
        put_latent(w, m, family);
    else if (!export_two_heads(m) &&
             !family_gguf_key(family, offsetof(struct hparams, common.mixer.value_dim), key,
                              sizeof key, &is_float))
        export_put_u32(w, family, "attention.value_length",
                       (uint32_t)shape_value_dim(&m->hp.common.mixer));
    if (family->gguf_eps)
        put_eps(w, m, family);
    else if (!family_gguf_key(family, offsetof(struct hparams, common.norms.eps), key, sizeof key,
                              &is_float) ||
             !strstr(key, "rms_epsilon")) /* expected by other readers */
        export_put_f32(w, family, "attention.layer_norm_rms_epsilon", m->hp.common.norms.eps);
    else
        put_layer_norm_eps(w, m, family);
    put_experts(w, m, family);
    put_scaling(w, m, family);
    if (m->hp.original_context) {
        for (size_t i = 0; i < sizeof longrope / sizeof *longrope; i++)
            put_field(w, family, &m->hp, longrope[i]);
        export_put_f32(w, family, "rope.scaling.attn_factor", m->hp.long_mscale);
        snprintf(key, sizeof key, "%s.rope.scaling.type", family->gguf[0]);
        gguf_put_string(w, key, "longrope", 8);
    }
}

static bool is_byte(const char *text)
{
    return strlen(text) == 6 && strncmp(text, "<0x", 3) == 0 && text[5] == '>';
}

struct vocabulary {
    int n;
    const char **text; /* NULL: an id no token has */
    size_t *bytes;
    uint8_t *kind;
};

static void place(struct vocabulary *v, const json_t *id, const char *text, size_t bytes,
                  uint8_t kind)
{
    json_int_t i = json_integer_value(id);

    if (!json_is_integer(id) || i < 0 || i >= v->n)
        return;
    v->text[i] = text;
    v->bytes[i] = bytes;
    v->kind[i] = kind;
}

/* byte_level: a text that looks like a byte token is an ordinary one. */
static void read_vocabulary(struct vocabulary *v, json_t *root, bool byte_level)
{
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab"),
           *added = json_object_get(root, "added_tokens"), *value;
    const char *unknown = json_string_value(json_object_get(model, "unk_token")), *text;
    size_t i;

    json_object_foreach(vocab, text, value)
        place(v, value, text, strlen(text),
              !byte_level && is_byte(text) ? TOKEN_BYTE : TOKEN_NORMAL);
    json_array_foreach(added, i, value)
    {
        const json_t *content = json_object_get(value, "content");

        if (json_is_string(content))
            place(v, json_object_get(value, "id"), json_string_value(content),
                  json_string_length(content),
                  json_is_true(json_object_get(value, "special")) ? TOKEN_CONTROL : TOKEN_USER);
    }
    for (int k = 0; unknown && k < v->n; k++)
        if (v->text[k] && strcmp(v->text[k], unknown) == 0)
            v->kind[k] = TOKEN_UNKNOWN;
}

static void put_vocabulary(struct gguf_writer *w, const struct vocabulary *v)
{
    float rank = 0.0f;
    char pad[32];

    gguf_put_array(w, "tokenizer.ggml.tokens", GGUF_STRING, (size_t)v->n);
    for (int i = 0; i < v->n; i++) {
        snprintf(pad, sizeof pad, "[PAD%d]", i);
        gguf_add_string(w, v->text[i] ? v->text[i] : pad, v->text[i] ? v->bytes[i] : strlen(pad));
    }
    /* Pieces are in the order in which they were learnt: earlier ones merge first. */
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, (size_t)v->n);
    for (int i = 0; i < v->n; i++) {
        gguf_add_f32(w, v->kind[i] == TOKEN_NORMAL ? -rank : 0.0f);
        rank += v->kind[i] == TOKEN_NORMAL ? 1.0f : 0.0f;
    }
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, (size_t)v->n);
    for (int i = 0; i < v->n; i++)
        gguf_add_i32(w, v->text[i] ? v->kind[i] : TOKEN_UNUSED);
}

/* "a b" or ["a", "b"]: both spellings of tokenizer.json. */
static void put_merges(struct gguf_writer *w, const json_t *merges)
{
    char joined[2048];

    gguf_put_array(w, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *m = json_array_get(merges, i);
        const char *a = json_string_value(json_array_get(m, 0)),
                   *b = json_string_value(json_array_get(m, 1));

        if (json_is_string(m)) {
            gguf_add_string(w, json_string_value(m), json_string_length(m));
        } else {
            snprintf(joined, sizeof joined, "%s %s", a ? a : "", b ? b : "");
            gguf_add_string(w, joined, strlen(joined));
        }
    }
}

static void put_id(struct gguf_writer *w, const struct weight_file *f, const char *json,
                   const char *key)
{
    struct meta_value v = weight_file_meta(f, json);

    if (v.type == META_ARRAY)
        v = meta_at(&v, 0);
    if (v.type == META_INT && v.i >= 0)
        gguf_put_u32(w, key, (uint32_t)v.i);
}

static void put_specials(struct gguf_writer *w, const struct model *m, const struct vocabulary *v,
                         bool add_bos)
{
    const struct weight_file *f = m->file;
    struct meta_value text = weight_file_meta(f, "tokenizer_config.json:chat_template");
    size_t bytes;
    const void *file = weight_file_aux(f, "chat_template.jinja", &bytes);

    put_id(w, f, "bos_token_id", "tokenizer.ggml.bos_token_id");
    put_id(w, f, "eos_token_id", "tokenizer.ggml.eos_token_id");
    put_id(w, f, "pad_token_id", "tokenizer.ggml.padding_token_id");
    for (int i = 0; i < v->n; i++) {
        if (v->text[i] && strcmp(v->text[i], "<|end|>") == 0)
            gguf_put_u32(w, "tokenizer.ggml.eot_token_id", (uint32_t)i);
        if (v->text[i] && v->kind[i] == TOKEN_UNKNOWN)
            gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", (uint32_t)i);
    }
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", add_bos);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token", false);
    if (file)
        gguf_put_string(w, "tokenizer.chat_template", file, bytes);
    else if (text.type == META_STRING)
        gguf_put_string(w, "tokenizer.chat_template", text.s, text.len);
}

/* tokenizer.ggml.model and .pre, so that the file's reader tokenizes as this tokenizer does. */
static int put_kind(struct gguf_writer *w, const struct model *m, bool *byte_level, bool *add_bos,
                    struct error *e)
{
    struct meta_value flag = weight_file_meta(m->file, "tokenizer_config.json:add_bos_token");
    struct tokenizer *t;
    const char *kind, *pre;
    size_t len;
    int rc = tokenizer_load(&t, m->file, e);

    if (rc < 0)
        return rc;
    if ((rc = tokenizer_gguf_names(t, &kind, &pre, &len, e)) == 0) {
        gguf_put_string(w, "tokenizer.ggml.model", kind, strlen(kind));
        gguf_put_string(w, "tokenizer.ggml.pre", pre, len);
        *byte_level = strcmp(kind, "gpt2") == 0;
        *add_bos = flag.type == META_BOOL && flag.i;
        if (*byte_level)
            tokenizer_bos(t, add_bos);
    } else
        error_prefix(e, "%s", weight_file_path(m->file));
    tokenizer_free(t);
    return rc;
}

/* No tokenizer.json: nothing to translate, which is no error (test checkpoints have none). */
static int put_tokenizer(struct gguf_writer *w, const struct model *m, bool *there, struct error *e)
{
    size_t bytes, n = (size_t)m->hp.n_vocab;
    const void *data = weight_file_aux(m->file, "tokenizer.json", &bytes);
    struct vocabulary v = {.n = m->hp.n_vocab};
    json_t *root;
    const char *type;
    bool byte_level = false, add_bos = false;
    int rc = 0;

    *there = false;
    if (!data)
        return 0;
    if (!(root = json_read(data, bytes, "tokenizer.json", e)))
        return ERR_MODEL;
    type = json_string_value(json_object_get(json_object_get(root, "model"), "type"));
    if (!type || strcmp(type, "BPE")) {
        rc = error_set(e, ERR_MODEL,
                       "%s: tokenizer.json: the model '%.20s' is not supported; BPE is",
                       weight_file_path(m->file), type ? type : "?");
        goto out;
    }
    v.text = mem_alloc(n, sizeof *v.text);
    v.bytes = mem_alloc(n, sizeof *v.bytes);
    v.kind = mem_alloc(n, 1);
    if (!v.text || !v.bytes || !v.kind) {
        rc = error_set(e, ERR_MEMORY, "%s: out of memory for the vocabulary",
                       weight_file_path(m->file));
        goto out;
    }
    if ((rc = put_kind(w, m, &byte_level, &add_bos, e)) < 0)
        goto out;
    read_vocabulary(&v, root, byte_level);
    put_vocabulary(w, &v);
    put_merges(w, json_object_get(json_object_get(root, "model"), "merges"));
    put_specials(w, m, &v, add_bos);
    *there = true;
out:
    mem_free(v.text);
    mem_free(v.bytes);
    mem_free(v.kind);
    json_decref(root);
    return rc;
}

int export_metadata(struct gguf_writer *w, const struct model *m, const struct family *family,
                    const struct model *mtp, int file_type, bool *tokenizer, struct error *e)
{
    const char *key;
    const void *entry;
    size_t key_bytes, bytes;
    int rc = 0;

    if (weight_file_format(m->file) == WEIGHT_GGUF) {
        for (size_t i = 0; weight_file_entry(m->file, i, &key, &key_bytes, &entry, &bytes); i++)
            if (!replaced(key, key_bytes))
                gguf_put_raw(w, entry, bytes);
        *tokenizer = weight_file_meta(m->file, "tokenizer.ggml.tokens").type == META_ARRAY;
    } else {
        put_hparams(w, m, family, mtp);
        rc = put_tokenizer(w, m, tokenizer, e);
    }
    gguf_put_u32(w, "general.file_type", (uint32_t)file_type);
    gguf_put_u32(w, "general.quantization_version", 2);
    return rc;
}
