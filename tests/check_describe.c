/* What layers are, for every family that is known, against config.json as this file reads it:
 * kinds, sizes and state. Nothing is computed here, so config.json is enough
 * (tests/golden/describe); whole checkpoints lie in tests/golden/families and beside the project.
 */
#include "app/setup/fit_layers.h"
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"
#include "tests/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const folders[] = {
    "bailing_hybrid",
    "deepseek_v2",
    "deepseek_v2-group",
    "deepseek_v3",
    "deepseek_v3-ct-int4",
    "deepseek_v3-fp8",
    "ernie4_5_moe",
    "gemma4",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt2",
    "gpt_oss",
    "gpt_oss-mxfp4",
    "granitemoe",
    "granitemoehybrid",
    "lfm2_moe",
    "llama",
    "mixtral",
    "nemotron_h",
    "olmoe",
    "opt",
    "opt-350m",
    "qwen2_moe",
    "qwen2_moe-step2",
    "qwen3",
    "qwen3_5_moe",
    "qwen3_5_moe-text",
    "qwen3_moe",
    "qwen3_moe-awq-g128",
    "qwen3_moe-awq-g32",
    "qwen3_moe-ct-fp8",
    "qwen3_moe-fp8",
    "qwen3_moe-gptq-g128",
    "qwen3_moe-gptq-g32-act",
    "qwen3_moe-gptq-g32-asym",
    "qwen3_moe-yarn",
    "qwen3_next",
};
#define FOLDERS ((int)(sizeof folders / sizeof *folders))

static struct error e;

/* NULL: it is nowhere, the skip is said. */
static const char *find_folder(const char *name)
{
    static const char *const inside[] = {"golden/families", "golden/describe"};
    char below[200];

    for (size_t i = 0; i < 2; i++) {
        snprintf(below, sizeof below, "%s/%s", inside[i], name);
        if (access(support_path(below), R_OK) == 0)
            return support_path(below);
    }
    snprintf(below, sizeof below, "families/%s", name);
    return support_shared(below);
}

/* config.json, read anew. */
struct config {
    json_t *root;
    const json_t *text; /* of a model that sees */
    const char *type;
    int layers, hidden;
};

static const json_t *value(const struct config *c, const char *name)
{
    const json_t *v = json_object_get(c->text, name);

    return json_is_null(v) ? NULL : v;
}

static int number(const struct config *c, const char *name, int missing)
{
    const json_t *v = value(c, name);

    return v ? (int)json_integer_value(v) : missing;
}

static bool is(const struct config *c, const char *type)
{
    return strcmp(c->type, type) == 0;
}

static bool begins(const struct config *c, const char *type)
{
    return strncmp(c->type, type, strlen(type)) == 0;
}

static const char *listed(const struct config *c, const char *name, int i)
{
    const char *word = json_string_value(json_array_get(value(c, name), (size_t)i));

    return word ? word : "";
}

static void config_read(struct config *c, const char *folder)
{
    char path[4200];
    json_error_t why;

    snprintf(path, sizeof path, "%s/config.json", folder);
    c->root = json_load_file(path, 0, &why);
    ck_assert_msg(c->root != NULL, "%s: %s", path, why.text);
    c->text = json_object_get(c->root, "text_config");
    c->text = c->text ? c->text : c->root;
    c->type = json_string_value(json_object_get(c->root, "model_type"));
    c->layers = number(c, is(c, "gpt2") ? "n_layer" : "num_hidden_layers", 0);
    c->hidden = number(c, is(c, "gpt2") ? "n_embd" : "hidden_size", 0);
}

static enum mixer_kind nemotron_mixer(char letter)
{
    return letter == 'M' ? MIXER_MAMBA2 : letter == '*' ? MIXER_ATTENTION : MIXER_NONE;
}

static enum mixer_kind wanted_mixer(const struct config *c, int l)
{
    if (begins(c, "deepseek") || is(c, "glm4_moe_lite"))
        return MIXER_MLA;
    if (is(c, "bailing_hybrid"))
        return l % number(c, "layer_group_size", 0) == number(c, "layer_group_size", 0) - 1
                   ? MIXER_MLA
                   : MIXER_KIMI_DELTA;
    if (is(c, "granitemoehybrid"))
        return strcmp(listed(c, "layer_types", l), "mamba") ? MIXER_ATTENTION : MIXER_MAMBA2;
    if (is(c, "lfm2_moe"))
        return strcmp(listed(c, "layer_types", l), "conv") ? MIXER_ATTENTION
                                                           : MIXER_SHORT_CONVOLUTION;
    if (is(c, "nemotron_h"))
        return nemotron_mixer(json_string_value(value(c, "hybrid_override_pattern"))[l]);
    if (is(c, "qwen3_next") || begins(c, "qwen3_5"))
        return l % number(c, "full_attention_interval", 0) ==
                       number(c, "full_attention_interval", 0) - 1
                   ? MIXER_ATTENTION
                   : MIXER_DELTA_NET;
    return MIXER_ATTENTION;
}

static bool in_list(const struct config *c, const char *name, int number)
{
    const json_t *list = value(c, name), *one;
    size_t i;

    json_array_foreach(list, i, one)
    {
        if (json_integer_value(one) == number)
            return true;
    }
    return false;
}

static enum ffn_kind wanted_ffn(const struct config *c, int l)
{
    if (is(c, "nemotron_h"))
        switch (json_string_value(value(c, "hybrid_override_pattern"))[l]) {
        case 'E': return FFN_ROUTED;
        case '-': return FFN_DENSE;
        default: return FFN_NONE;
        }
    if (is(c, "gemma4"))
        return FFN_DENSE_AND_ROUTED;
    if (is(c, "llama") || is(c, "qwen3") || is(c, "gpt2") || is(c, "opt"))
        return FFN_DENSE;
    return l < number(c, "first_k_dense_replace", 0) || l < number(c, "num_dense_layers", 0) ||
                   l < number(c, "moe_layer_start_index", 0) || in_list(c, "mlp_only_layers", l) ||
                   (l + 1) % number(c, "decoder_sparse_step", 1)
               ? FFN_DENSE
               : FFN_ROUTED;
}

static bool sees_all(const struct config *c, int l)
{
    return strcmp(listed(c, "layer_types", l), "full_attention") == 0;
}

static double part_rotated(const struct config *c)
{
    const json_t *v = value(c, "partial_rotary_factor");

    return v ? json_number_value(v) : 1.0;
}

static void check_attention(const struct config *c, const struct mixer_shape *m, int l)
{
    int heads = number(c, is(c, "gpt2") ? "n_head" : "num_attention_heads", 0),
        kv = number(c, "num_key_value_heads", heads),
        dim = number(c, "head_dim", c->hidden / heads);
    bool whole = is(c, "gemma4") && sees_all(c, l),
         still = is(c, "gpt2") || is(c, "opt") || is(c, "nemotron_h") || is(c, "granitemoehybrid");

    if (whole) {
        kv = number(c, "num_global_key_value_heads", 0);
        dim = number(c, "global_head_dim", 0);
    }
    ck_assert_int_eq(m->heads, heads);
    ck_assert_int_eq(m->kv_heads, kv);
    ck_assert_int_eq(m->key_dim, dim);
    ck_assert_int_eq(m->value_dim ? m->value_dim : m->key_dim, dim);
    ck_assert_int_eq(m->values_are_keys, whole);
    ck_assert_int_eq(m->learned_positions, is(c, "gpt2") || is(c, "opt"));
    ck_assert_int_eq(m->sinks, is(c, "gpt_oss"));
    ck_assert_int_eq(m->gated, is(c, "qwen3_next") || begins(c, "qwen3_5"));
    ck_assert_int_eq(m->rope == ROPE_NONE, still);
    if (!still)
        ck_assert_int_eq(m->rope_dims, whole ? dim / 4 : (int)(dim * part_rotated(c)));
    if (is(c, "gpt_oss") || is(c, "gemma4"))
        ck_assert_int_eq(m->window, sees_all(c, l) ? 0 : number(c, "sliding_window", 0));
    else
        ck_assert_int_eq(m->window, 0);
}

static void check_latent(const struct config *c, const struct mixer_shape *m)
{
    ck_assert_int_eq(m->heads, number(c, "num_attention_heads", 0));
    ck_assert_int_eq(m->key_dim,
                     number(c, "qk_nope_head_dim", 0) + number(c, "qk_rope_head_dim", 0));
    ck_assert_int_eq(m->value_dim, number(c, "v_head_dim", 0));
    ck_assert_int_eq(m->rope_dims, number(c, "qk_rope_head_dim", 0));
    ck_assert_int_eq(m->kv_rank, number(c, "kv_lora_rank", 0));
    ck_assert_int_eq(m->q_rank, number(c, "q_lora_rank", 0));
    ck_assert_int_eq(m->rope, ROPE_PAIRS);
    ck_assert_int_eq(m->gated, is(c, "bailing_hybrid"));
}

static void check_mamba(const struct config *c, const struct mixer_shape *m)
{
    bool granite = is(c, "granitemoehybrid");

    ck_assert_int_eq(m->heads, number(c, granite ? "mamba_n_heads" : "mamba_num_heads", 0));
    ck_assert_int_eq(m->value_dim, number(c, granite ? "mamba_d_head" : "mamba_head_dim", 0));
    ck_assert_int_eq(m->state, number(c, granite ? "mamba_d_state" : "ssm_state_size", 0));
    ck_assert_int_eq(m->groups, number(c, granite ? "mamba_n_groups" : "n_groups", 0));
    ck_assert_int_eq(m->taps, number(c, granite ? "mamba_d_conv" : "conv_kernel", 0));
}

static void check_delta(const struct config *c, const struct mixer_shape *m)
{
    bool kimi = m->kind == MIXER_KIMI_DELTA;

    ck_assert_int_eq(m->heads,
                     number(c, kimi ? "num_attention_heads" : "linear_num_value_heads", 0));
    ck_assert_int_eq(m->kv_heads,
                     number(c, kimi ? "num_attention_heads" : "linear_num_key_heads", 0));
    ck_assert_int_eq(m->key_dim, number(c, kimi ? "head_dim" : "linear_key_head_dim", 0));
    ck_assert_int_eq(m->value_dim, number(c, kimi ? "head_dim" : "linear_value_head_dim", 0));
    ck_assert_int_eq(m->taps,
                     number(c, kimi ? "short_conv_kernel_size" : "linear_conv_kernel_dim", 0));
}

static void check_mixer(const struct config *c, const struct mixer_shape *m, int l)
{
    ck_assert_int_eq(m->kind, wanted_mixer(c, l));
    switch (m->kind) {
    case MIXER_ATTENTION: check_attention(c, m, l); break;
    case MIXER_MLA: check_latent(c, m); break;
    case MIXER_MAMBA2: check_mamba(c, m); break;
    case MIXER_DELTA_NET:
    case MIXER_KIMI_DELTA: check_delta(c, m); break;
    case MIXER_SHORT_CONVOLUTION:
        ck_assert_int_eq(m->heads * m->value_dim, c->hidden);
        ck_assert_int_eq(m->taps, number(c, "conv_L_cache", 0));
        break;
    default: ck_assert_int_eq(m->kind, MIXER_NONE);
    }
}

static int first_of(const struct config *c, const char *const *names)
{
    for (; *names; names++)
        if (value(c, *names))
            return (int)json_integer_value(value(c, *names));
    return 0;
}

static int wanted_dense(const struct config *c)
{
    if (is(c, "gpt2"))
        return 4 * c->hidden;
    return number(c, is(c, "opt") ? "ffn_dim" : "intermediate_size", 0);
}

static int wanted_shared(const struct config *c, int width)
{
    static const char *const whole[] = {"shared_expert_intermediate_size",
                                        "shared_intermediate_size",
                                        "moe_shared_expert_intermediate_size", NULL};
    static const char *const numbers[] = {"n_shared_experts", "moe_num_shared_experts", NULL};
    int each = first_of(c, whole);

    return each ? each : first_of(c, numbers) * width;
}

static void check_router(const struct config *c, const struct router_shape *r)
{
    static const char *const by_sigmoid[] = {"deepseek_v3", "glm4_moe",   "glm4_moe_lite",
                                             "lfm2_moe",    "nemotron_h", "bailing_hybrid"};
    bool sigmoid = false, groups = number(c, "n_group", 1) > 1;
    const json_t *norm = value(c, "norm_topk_prob"), *factor = value(c, "routed_scaling_factor");

    for (size_t i = 0; i < sizeof by_sigmoid / sizeof *by_sigmoid; i++)
        sigmoid |= is(c, by_sigmoid[i]);
    ck_assert_int_eq(r->kind, sigmoid ? ROUTER_SIGMOID : ROUTER_SOFTMAX);
    ck_assert_int_eq(r->choice_bias, sigmoid || is(c, "ernie4_5_moe"));
    ck_assert_int_eq(r->normalised, norm ? json_is_true(norm) : true);
    ck_assert_float_eq(r->factor == 0.0f ? 1.0f : r->factor,
                       factor ? (float)json_number_value(factor) : 1.0f);
    ck_assert_int_eq(r->groups > 1 ? r->groups : 0, groups ? number(c, "n_group", 0) : 0);
    if (groups)
        ck_assert_int_eq(r->groups_used, number(c, "topk_group", 0));
}

static void check_routed(const struct config *c, const struct ffn_shape *f)
{
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                          "moe_num_experts", NULL};
    static const char *const used[] = {"num_experts_per_tok", "top_k_experts", "moe_k", NULL};
    static const char *const width[] = {"moe_intermediate_size", "intermediate_size", NULL};
    bool gate = begins(c, "qwen2") || is(c, "qwen3_next") || begins(c, "qwen3_5");

    ck_assert_int_eq(f->experts, first_of(c, experts));
    ck_assert_int_eq(f->used, first_of(c, used));
    ck_assert_int_eq(f->width, first_of(c, width));
    ck_assert_int_eq(f->shared_width, f->kind == FFN_ROUTED ? wanted_shared(c, f->width)
                                                            : number(c, "intermediate_size", 0));
    ck_assert_int_eq(f->shared, f->shared_width > 0);
    if (f->shared)
        ck_assert_int_eq(f->shared_gate, gate ? SHARED_SIGMOID : SHARED_PLAIN);
    check_router(c, &f->router);
}

static enum activation wanted_activation(const struct config *c)
{
    return is(c, "gpt2")         ? ACTIVATION_GELU_PLAIN
           : is(c, "opt")        ? ACTIVATION_RELU
           : is(c, "nemotron_h") ? ACTIVATION_RELU2
           : is(c, "gpt_oss")    ? ACTIVATION_CLAMPED_SWIGLU
           : is(c, "gemma4")     ? ACTIVATION_GELU
                                 : ACTIVATION_SILU;
}

static void check_ffn(const struct config *c, const struct ffn_shape *f, int l)
{
    ck_assert_int_eq(f->kind, wanted_ffn(c, l));
    if (f->kind == FFN_NONE)
        return;
    ck_assert_int_eq(f->activation, wanted_activation(c));
    if (f->kind != FFN_DENSE) {
        check_routed(c, f);
        return;
    }
    ck_assert(f->experts == 0 && f->used == 0 && f->shared == 1);
    ck_assert_int_eq(f->shared_width, wanted_dense(c));
}

static void check_norms(const struct config *c, const struct norms_shape *n)
{
    bool one = is(c, "qwen3_next") || begins(c, "qwen3_5"),
         behind = json_is_false(value(c, "do_layer_norm_before"));

    ck_assert_int_eq(n->kind, is(c, "gpt2") || is(c, "opt") ? NORM_LAYER
                              : one                         ? NORM_RMS_ONE
                                                            : NORM_RMS);
    ck_assert_int_eq(n->before, !behind);
    ck_assert_int_eq(n->after, behind || is(c, "gemma4"));
}

START_TEST(layers_are_what_config_json_says)
{
    const char *folder = find_folder(folders[_i]);
    struct config c;
    struct model *m;

    if (!folder)
        return;
    config_read(&c, folder);
    ck_assert_msg(model_describe(&m, folder, NULL, &e) == 0, "%s", e.text);
    ck_assert_int_eq(m->hp.n_layers, c.layers);
    ck_assert_int_eq(m->hp.hidden, c.hidden);
    ck_assert_int_eq(m->hp.n_vocab, number(&c, "vocab_size", 0));
    for (int l = 0; l < c.layers; l++) {
        const struct layer_shape *s = hparams_layer(&m->hp, l);

        check_mixer(&c, &s->mixer, l);
        check_ffn(&c, &s->ffn, l);
        check_norms(&c, &s->norms);
    }
    model_free(m);
    json_decref(c.root);
}
END_TEST

static bool has_weights(const char *folder)
{
    char path[4300];

    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return access(path, F_OK) == 0;
}

/* A packing that is not read is refused by its name, kinds without a kernel by layer and kind.
 */
START_TEST(what_is_not_computed_is_refused)
{
    const char *folder = find_folder(folders[_i]), *method;
    bool unread;
    struct model_options o = {.convert = -1, .width = 8};
    struct config c;
    struct error why = {0};
    struct model *m, *none;
    int rc, kinds;

    if (!folder)
        return;
    config_read(&c, folder);
    ck_assert_msg(model_describe(&m, folder, NULL, &e) == 0, "%s", e.text);
    kinds = model_computable(&m->hp, &why);
    rc = model_inspect(&none, folder, &o, NULL, &e);
    method = json_string_value(
        json_object_get(json_object_get(c.root, "quantization_config"), "quant_method"));
    unread = method && weight_file_packing(m->file)->refused[0];
    ck_assert_msg(strstr(m->packing_method, method ? method : "") != NULL, "%s", m->packing_method);
    if (unread) {
        ck_assert_int_eq(rc, ERR_MODEL);
        ck_assert_msg(strstr(e.text, method) != NULL, "%s", e.text);
    } else if (kinds) {
        ck_assert_int_eq(rc, ERR_MODEL);
        ck_assert_msg(strstr(e.text, why.text) && strstr(e.text, "layer "), "%s", e.text);
    } else if (!has_weights(folder)) {
        ck_assert_int_eq(rc, ERR_MODEL);
        ck_assert_msg(strstr(e.text, "holds no model") || strstr(e.text, "are described"), "%s",
                      e.text);
    } else {
        ck_assert_msg(rc == 0, "%s", e.text);
        ck_assert(method || !m->packing_method[0]);
    }
    model_free(none);
    model_free(m);
    json_decref(c.root);
}
END_TEST

/* Floats of one layer of a state that the official code kept. */
static size_t kept(const struct weight_file *f, const char *name)
{
    const struct tensor_view *t = weight_file_find(f, name);
    size_t n = t ? 1 : 0;

    for (int i = 1; t && i < t->n_dims; i++)
        n *= (size_t)t->dims[i];
    return n;
}

static bool keeps_state(const struct weight_file *f, int layer)
{
    const struct tensor_view *t = weight_file_find(f, "state_layers");

    for (int64_t i = 0; t && i < t->dims[0]; i++) {
        int64_t wide = 0;
        int32_t narrow;

        memcpy(&narrow, (const char *)t->data + 4 * i, 4);
        if (t->type == DTYPE_I64)
            memcpy(&wide, (const char *)t->data + 8 * i, 8);
        if ((t->type == DTYPE_I64 ? wide : narrow) == layer)
            return true;
    }
    return false;
}

static const char *const recurrent[] = {"bailing_hybrid", "granitemoehybrid", "lfm2_moe",
                                        "nemotron_h",     "qwen3_5_moe",      "qwen3_5_moe-text",
                                        "qwen3_next"};

START_TEST(state_is_what_the_official_code_keeps)
{
    const char *folder, *golden;
    struct weight_file *f;
    struct model *m;
    char below[200];

    snprintf(below, sizeof below, "families/%s", recurrent[_i]);
    if (!(folder = support_shared(below)))
        return;
    snprintf(below, sizeof below, "families/%s/golden-40.safetensors", recurrent[_i]);
    if (!(golden = support_shared(below)))
        return;
    ck_assert_msg(weight_file_open(&f, golden, false, &e) == 0, "%s", e.text);
    ck_assert_msg(model_describe(&m, folder, NULL, &e) == 0, "%s", e.text);
    ck_assert_uint_gt(kept(f, "conv_state"), 0);
    for (int l = 0; l < m->hp.n_layers; l++) {
        struct state_size s = state_size(&hparams_layer(&m->hp, l)->mixer, KV_F16, KV_F16);

        ck_assert_uint_eq(s.fixed_bytes, keeps_state(f, l) ? 4 * (kept(f, "conv_state") +
                                                                  kept(f, "recurrent_state"))
                                                           : 0);
        if (keeps_state(f, l))
            ck_assert_uint_eq(s.token_bytes, 0);
    }
    model_free(m);
    weight_file_close(f);
}
END_TEST

START_TEST(growing_state_is_counted_by_type)
{
    const struct mixer_shape plain = {.heads = 8, .kv_heads = 2, .key_dim = 32, .window = 16},
                             uneven = {.heads = 4, .kv_heads = 4, .key_dim = 32, .value_dim = 64},
                             latent = {.kind = MIXER_MLA,
                                       .heads = 4,
                                       .kv_heads = 4,
                                       .key_dim = 192,
                                       .value_dim = 128,
                                       .kv_rank = 512,
                                       .rope_dims = 64},
                             none = {.kind = MIXER_NONE};

    ck_assert_uint_eq(state_size(&plain, KV_F16, KV_F16).token_bytes, 2 * 2 * 32 * 2);
    ck_assert_uint_eq(state_size(&plain, KV_F32, KV_Q8_0).token_bytes, 2 * 32 * 4 + 2 * 34);
    ck_assert_int_eq(state_size(&plain, KV_F16, KV_F16).ring, 16);
    ck_assert_uint_eq(state_size(&uneven, KV_F16, KV_F32).token_bytes, 4 * 32 * 2 + 4 * 64 * 4);
    ck_assert_uint_eq(state_size(&latent, KV_F16, KV_F16).token_bytes, 576 * 2);
    ck_assert_uint_eq(state_size(&none, KV_F16, KV_F16).token_bytes, 0);
    ck_assert_uint_eq(state_size(&none, KV_F16, KV_F16).fixed_bytes, 0);
}
END_TEST

/* A copy of a config.json with one piece of its text replaced. */
static const char *changed(const char *folder, const char *from, const char *to)
{
    static char dir[4200];
    char path[4300], source[4300], text[20000], *at;
    size_t n;
    FILE *f;

    snprintf(source, sizeof source, "%s/config.json",
             support_path(folder)); /* tests/golden/describe */
    f = fopen(source, "r");
    ck_assert_ptr_nonnull(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    ck_assert_msg((at = strstr(text, from)) != NULL, "%s: no %s", source, from);
    snprintf(dir, sizeof dir, "%s", support_tmpdir());
    snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(f);
    return dir;
}

static const struct {
    const char *folder, *from, *to, *said;
} wrong[] = {
    {"golden/describe/granitemoehybrid", "\"layer_types\"", "\"types\": [], \"layer_types\"", NULL},
    {"golden/describe/granitemoehybrid", "\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5",
     "layer_types"},
    {"golden/describe/granitemoehybrid", "\"mamba_d_state\": 16", "\"mamba_d_state\": -1",
     "mamba_d_state"},
    {"golden/describe/granitemoehybrid", "\"mamba_n_heads\": 8", "\"mamba_n_heads\": null",
     "layer 0"},
    {"golden/describe/lfm2_moe", "\"layer_types\"", "\"no_types\"", "layer_types"},
    {"golden/describe/nemotron_h", "MEM*E-ME", "MEM*E-MX", "hybrid_override_pattern"},
    {"golden/describe/nemotron_h", "MEM*E-ME", "MEM*E-M", "hybrid_override_pattern"},
    {"golden/families/nemotron_h", "\"hybrid_override_pattern\": \"MEM*E-ME\"",
     "\"layers_block_type\": [\"mamba\", \"moe\", \"mamba\", \"attention\", \"moe\", \"mlp\", "
     "\"mamba\", \"moe\"]",
     NULL},
    {"golden/families/nemotron_h", "\"mlp_hidden_act\": \"relu2\"", "\"mlp_hidden_act\": \"silu\"",
     "mlp_hidden_act"},
    {"golden/families/nemotron_h", "\"expand\": 2", "\"moe_latent_size\": 16", "moe_latent_size"},
    {"golden/families/bailing_hybrid", "\"no_kda_lora\": true", "\"no_kda_lora\": false",
     "no_kda_lora"},
    {"golden/families/bailing_hybrid", "\"head_wise\"", "\"element_wise\"",
     "gated_attention_proj_granularity_type"},
    {"golden/families/bailing_hybrid", "\"kda_lower_bound\": -5.0", "\"kda_lower_bound\": \"-5\"",
     "kda_lower_bound"},
    {"golden/families/granite_swa", "0,\n  5000.0", "500.0,\n  5000.0", "layer_rope_theta"},
    {"golden/families/phi3", "\"longrope\"", "\"yarn\"", "rope_parameters.rope_type"},
    {"golden/families/minimax_m2", "\"rotary_dim\": 4", "\"use_qk_norm\": false", "use_qk_norm"},
    {"golden/families/hy_v3", "\"route_norm\": true", "\"qk_norm\": false", "qk_norm"},
    {"golden/families/hy_v3", "\"route_norm\": true", "\"route_norm\": false", "route_norm"},
    {"golden/families/minimax_m2", "\"rotary_dim\": 4", "\"rotary_dim\": 6", "rotary_dim"},
    {"golden/families/dots1", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 4",
     "uses 4 experts"},
    {"golden/families/cohere2_moe", "\"sigmoid\"", "\"top\"", "expert_selection_fn"},
    {"golden/families/cohere2_moe", "\"logit_scale\": 0.5", "\"logit_scale\": 0", "logit_scale"},
    {"golden/families/kimi_linear", "\"mla_use_nope\": true", "\"mla_use_nope\": false",
     "mla_use_nope"},
    {"golden/families/kimi_linear", "\"sigmoid\"", "\"softmax\"", "moe_router_activation_func"},
    {"golden/families/hunyuan_v1_moe", "\"num_shared_expert\": 1", "\"use_cla\": true", "use_cla"},
    {"golden/families/smallthinker", "\"moe_ffn_hidden_size\": 8",
     "\"moe_ffn_hidden_size\": 8, \"moe_enable_early_router\": false", "moe_enable_early_router"},
    {"golden/families/smallthinker", "\"moe_ffn_hidden_size\": 8",
     "\"moe_ffn_hidden_size\": 8, \"moe_enable_secondary_experts\": true",
     "moe_enable_secondary_experts"},
    {"golden/families/smallthinker", "\"moe_ffn_hidden_size\": 8",
     "\"moe_ffn_hidden_size\": 8, \"moe_layer_layout\": [0, 1, 1]", "moe_layer_layout"},
    {"golden/families/smallthinker", "\"sliding_window_size\": 6", "\"sliding_window_size\": 0",
     "sliding_window_size"},
    {"golden/families/llama4", "\"attention_chunk_size\": 7", "\"attention_chunk_size\": -1",
     "attention_chunk_size"},
    {"golden/families/muse_glimmer", "\"output_multiplier\": 0.5", "\"output_multiplier\": 0",
     "output_multiplier"},
    {"golden/families/maple", "\"nope_on_global_attention\": true",
     "\"nope_on_global_attention\": false", "nope_on_global_attention"},
    {"golden/families/maple", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false",
     "norm_topk_prob"},
    {"golden/families/grovemoe", "\"use_sliding_window\": false", "\"use_sliding_window\": true",
     "use_sliding_window"},
    {"golden/families/grovemoe", "\"num_experts\": 6", "\"num_experts\": 7", "whole groups"},
    {"golden/families/gemma3n", "\"altup_num_inputs\": 3", "\"altup_num_inputs\": 9",
     "altup_num_inputs"},
    {"golden/families/gemma3n", "\"altup_num_inputs\": 3", "\"altup_active_idx\": 1",
     "altup_active_idx"},
    {"golden/families/gemma3n", "0.8,", "1.0,", "activation_sparsity_pattern"},
    {"golden/families/jamba", "\"attn_layer_offset\": 1", "\"attn_layer_offset\": 2",
     "attn_layer_offset"},
    {"golden/families/jamba", "\"mamba_d_state\": 6", "\"mamba_d_state\": 512", "mamba_d_state"},
    {"golden/families/step3p5", "\"gating\": true", "\"gating\": false", "gating"},
    {"golden/families/step3p5", "\"norm_expert_weight\": true", "\"norm_expert_weight\": false",
     "norm_expert_weight"},
    {"golden/families/mimo_v2_flash", "\"v_head_dim\": 8", "\"swa_v_head_dim\": 16",
     "swa_v_head_dim"},
    {"golden/families/mimo_v2_flash", "\"v_head_dim\": 8", "\"topk_method\": \"greedy\"",
     "topk_method"},
    {"golden/families/longcat_flash", "\"v_head_dim\": 16", "\"mla_scale_q_lora\": false",
     "mla_scale_q_lora"},
    {"golden/families/longcat_flash", "\"v_head_dim\": 16", "\"zero_expert_type\": \"copy\"",
     "zero_expert_type"},
    {"golden/families/longcat_flash", "\"v_head_dim\": 16", "\"ngram_vocab_size_ratio\": 78",
     "ngram_vocab_size_ratio"},
    {"golden/families/deepseek_v4", "\"rope_theta\": 500.0",
     "\"rope_parameters\": {\"main\": {\"rope_type\": \"linear\"}, \"compress\": {}}",
     "rope_parameters.main.rope_type"},
    {"golden/families/deepseek_v4", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-20", NULL},
    {"golden/families/mistral3", "\"original_max_position_embeddings\": 5", "\"old\": 5",
     "original_max_position_embeddings"},
    {"golden/families/deepseek_v3", "\"kv_lora_rank\": 32", "\"kv_lora_rank\": null",
     "kv_lora_rank"},
    {"golden/families/deepseek_v3", "\"num_experts_per_tok\": 4", "\"num_experts_per_tok\": 0",
     "layer 1"},
    {"golden/describe/gemma4", "\"global_head_dim\": 32", "\"global_head_dim\": \"32\"",
     "global_head_dim"},
    {"golden/describe/gpt2", "\"n_layer\": 3", "\"n_layers\": 3", "number of layers"},
    {"golden/describe/opt", "\"ffn_dim\": 192", "\"ffn_dim\": 0", "ffn_dim"},
    /* what is not computed */
    {"golden/describe/opt", "\"relu\"", "\"gelu\"",
     "activation_function of its config.json is \"gelu\""},
    {"golden/describe/opt", "\"dropout\": 0.1", "\"enable_bias\": false", "enable_bias"},
    {"golden/describe/gpt2", "gelu_new", "gelu", "activation_function"},
    {"golden/describe/gpt2", "\"n_head\": 4",
     "\"n_head\": 4, \"scale_attn_by_inverse_layer_idx\": true", "scale_attn_by_inverse_layer_idx"},
    {"golden/describe/gemma4", "\"gelu_pytorch_tanh\"", "\"silu\"", "hidden_activation"},
    {"golden/describe/gemma4", "\"num_kv_shared_layers\": 0", "\"num_kv_shared_layers\": 4",
     "layer 1 reads the keys of a layer like it"},
    {"golden/describe/gemma4", "\"num_kv_shared_layers\": 0", "\"num_kv_shared_layers\": 6",
     "num_kv_shared_layers"},
    {"golden/describe/gemma4", "\"hidden_size_per_layer_input\": 0",
     "\"hidden_size_per_layer_input\": -1", "hidden_size_per_layer_input"},
    {"golden/families/mistral4", "\"original_max_position_embeddings\": 5", "\"old\": 5",
     "original_max_position_embeddings"},
    {"golden/describe/gemma4", "\"rope_type\": \"proportional\"", "\"rope_type\": \"linear\"",
     "full_attention.rope_type"},
    {"golden/describe/qwen3_next", "\"silu\"", "\"relu\"", "hidden_act"},
    {"golden/families/deepseek_v3", "\"scoring_func\": \"sigmoid\"",
     "\"scoring_func\": \"softmax\"", "scoring_func"},
    {"golden/families/deepseek_v3", "\"ep_size\": 1", "\"rope_interleave\": false", NULL},
    {"golden/families/ernie4_5_moe", "\"moe_gate\": \"topk\"", "\"rope_interleave\": false",
     "rope_interleave"},
    {"golden/describe/qwen3_next", "\"rms_norm_eps\"",
     "\"attn_logit_softcapping\": 50.0, \"rms_norm_eps\"", "attn_logit_softcapping"},
    {"golden/describe/qwen3_next", "\"rms_norm_eps\"",
     "\"final_logit_softcapping\": 30.0, \"rms_norm_eps\"", "final_logit_softcapping"},
};

START_TEST(nonsense_is_refused_by_name)
{
    const char *dir = changed(wrong[_i].folder, wrong[_i].from, wrong[_i].to);
    struct model *m;
    int rc = model_describe(&m, dir, NULL, &e);

    ck_assert_msg(rc == (wrong[_i].said ? ERR_MODEL : 0), "%d %s", rc, rc ? e.text : "");
    ck_assert_msg(!wrong[_i].said || strstr(e.text, wrong[_i].said), "%s", e.text);
    model_free(m);
}
END_TEST

/* Every layer of a kind that is computed, and nothing to compute it with. */
START_TEST(a_folder_without_weights_is_refused)
{
    struct model_options o = {.convert = -1, .width = 8};
    char dir[300];
    struct model *m;

    snprintf(dir, sizeof dir, "%s", support_path("golden/describe/granitemoehybrid"));
    ck_assert_msg(model_describe(&m, dir, NULL, &e) == 0, "%s", e.text);
    ck_assert_msg(model_computable(&m->hp, &e) == 0, "%s", e.text);
    model_free(m);
    ck_assert_int_eq(model_inspect(&m, dir, &o, NULL, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "holds no model"), "%s", e.text);
}
END_TEST

static const struct {
    const char *folder, *words[6];
} lists[] = {
    {"granitemoehybrid",
     {"layers 0-1 ", "layer 2 ", "layer 3 ", "a Mamba 2 mixer: 8 heads of 16", "no positions",
      "keeps 10112 bytes at any length"}},
    {"gpt_oss",
     {"layer 0 ", "layer 3 ", "window 8", "sinks", "128 bytes a token, the last 8 seen",
      "clamped SwiGLU, biases"}},
    {"deepseek_v3",
     {"layer 0 ", "layers 1-2 ", "latent 32, queries through 40, rotary 16 (pairs)",
      "4 of 8, width 12, a shared one of 12", "the best 2 of 4 groups", "keeps 96 bytes a token"}},
    {"nemotron_h",
     {"layer 7 ", "no mixer", "no feed-forward", "keeps nothing", "squared ReLU",
      "a Mamba 2 mixer"}},
    {"opt-350m", {"layers 0-2 ", "learned positions", "layer norm after", "ReLU", "of 8", "96"}},
};

START_TEST(the_list_says_it)
{
    const char *folder = find_folder(lists[_i].folder);
    struct model *m;
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    ck_assert_msg(model_describe(&m, folder, NULL, &e) == 0, "%s", e.text);
    ck_assert_int_eq(fit_layers_print(&m->hp, KV_F16, KV_F16, out, &e), 0);
    fclose(out);
    for (size_t i = 0; i < 6; i++)
        ck_assert_msg(strstr(text, lists[_i].words[i]), "no '%s' in\n%s", lists[_i].words[i], text);
    free(text);
    model_free(m);
}
END_TEST

/* Metadata given in place of the file's: the last one of a key counts. */
START_TEST(metadata_is_overridden)
{
    static const char *const texts[] = {"num_experts_per_tok=int:3", "num_experts_per_tok=int:2",
                                        "rope_scaling.rope_type=str:yarn",
                                        "rope_scaling.factor=float:4",
                                        "rope_scaling.original_max_position_embeddings=int:64"};
    static const char *const bad[] = {
        "a", "a=1", "=int:1", "a=int:", "a=int:1x", "a=float:nan", "a=bool:1", "a=long:1"};
    struct overrides o = {texts, 5};
    struct model *m;

    ck_assert_msg(model_describe(&m, support_path("golden/families/qwen3_moe"), &o, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(m->hp.layers[0].ffn.used, 2);
    ck_assert_double_eq_tol(m->hp.short_mscale, 0.1 * log(4) + 1, 1e-6);
    ck_assert_double_eq(m->hp.short_factor[m->hp.common.mixer.rope_dims / 2 - 1], 4);
    model_free(m);
    {
        static const char *const factor[] = {"rope_scaling.factor=float:2"};

        o = (struct overrides){factor, 1}; /* of no kind: linear */
        ck_assert_int_eq(model_describe(&m, support_path("golden/families/qwen3_moe"), &o, &e), 0);
        for (int i = 0; i < m->hp.common.mixer.rope_dims / 2; i++)
            ck_assert_double_eq(m->hp.short_factor[i], 2);
        model_free(m);
    }
    {
        char *gone = strdup("num_experts_per_tok=int:5"); /* who gave it may go */

        o = (struct overrides){(const char *const[]){gone}, 1};
        ck_assert_int_eq(model_describe(&m, support_path("golden/families/qwen3_moe"), &o, &e), 0);
        memset(gone, 0, strlen(gone));
        free(gone);
        ck_assert_int_eq(weight_file_meta(m->file, "num_experts_per_tok").i, 5);
        model_free(m);
    }
    o.n = 1;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.texts = &bad[i];
        ck_assert_int_eq(overrides_check(&o, &e), ERR_USAGE);
        ck_assert_msg(strstr(e.text, "KEY=TYPE:VALUE") != NULL, "%s", e.text);
    }
    o = (struct overrides){(const char *const[]){"*.b.c=int:7"}, 1};
    ck_assert_int_eq(overrides_find(&o, "qwen3moe.b.c").i, 7);
    ck_assert_int_eq(overrides_find(&o, "b.c").type, META_NONE);
    ck_assert_int_eq(overrides_find(&o, "qwen3moe.b.cd").type, META_NONE);
    ck_assert_int_eq(overrides_find(&o, "none").type, META_NONE);
}
END_TEST

/* Every allocation on the way may fail: an error, no leak, no crash. */
START_TEST(out_of_memory)
{
    const char *at = support_path("golden/describe/qwen3_5_moe");
    struct model *m;
    long n = 0;
    int rc;

    do {
        mem_fail_after(n++);
        rc = model_describe(&m, at, NULL, &e);
        mem_fail_after(-1);
        ck_assert_msg(rc == 0 || rc == ERR_MEMORY, "allocation %ld: %d %s", n, rc, e.text);
        ck_assert_int_eq(rc == 0, m != NULL);
    } while (rc);
    ck_assert_int_gt(n, 4);
    model_free(m);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("describe");
    TCase *c = tcase_create("layers");

    tcase_add_loop_test(c, layers_are_what_config_json_says, 0, FOLDERS);
    tcase_add_loop_test(c, what_is_not_computed_is_refused, 0, FOLDERS);
    tcase_add_loop_test(c, state_is_what_the_official_code_keeps, 0,
                        (int)(sizeof recurrent / sizeof *recurrent));
    tcase_add_test(c, growing_state_is_counted_by_type);
    tcase_add_loop_test(c, nonsense_is_refused_by_name, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(c, a_folder_without_weights_is_refused);
    tcase_add_test(c, metadata_is_overridden);
    tcase_add_test(c, out_of_memory);
    tcase_add_loop_test(c, the_list_says_it, 0, (int)(sizeof lists / sizeof *lists));
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
