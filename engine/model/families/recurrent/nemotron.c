/* Family nemotron_h (Nemotron 3): every layer is one operator, Mamba 2, attention without
 * positions, routed experts or a dense feed-forward, with one norm. Names after
 * modeling_nemotron_h.py (Hugging Face) and llama.cpp's gguf-py/gguf/constants.py. Constant
 * data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_END,
};

/* files of the Hub call the model "backbone", transformers 5 "model" */
#define BOTH(name) {"backbone.layers.%l." name, HF name}
#define MIX(name) BOTH("mixer." name)

static const struct family_tensor tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"},
     {"backbone.embeddings.weight", "model.embeddings.weight"}},
    {TENSOR_OUTPUT_NORM, false, {"output_norm.weight"},
     {"backbone.norm_f.weight", "model.norm_f.weight"}},
    {TENSOR_HEAD, false, {"output.weight"}, {"lm_head.weight"}},
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, BOTH("norm.weight")},
    {TENSOR_EXPERT_NORM, false, {"blk.%l.attn_norm.weight"}, BOTH("norm.weight")},
    {TENSOR_Q, true, {"blk.%l.attn_q.weight"}, MIX("q_proj.weight")},
    {TENSOR_K, true, {"blk.%l.attn_k.weight"}, MIX("k_proj.weight")},
    {TENSOR_V, true, {"blk.%l.attn_v.weight"}, MIX("v_proj.weight")},
    {TENSOR_O, TENSOR_BIAS | TENSOR_BY_MIXER,
     {"blk.%l.attn_output.weight", "blk.%l.ssm_out.weight"},
     {"backbone.layers.%l.mixer.o_proj.weight", "backbone.layers.%l.mixer.out_proj.weight",
      HF "mixer.o_proj.weight", HF "mixer.out_proj.weight"}},
    TENSORS_MAMBA2(MIX),
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, MIX("gate.weight")},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     MIX("gate.e_score_correction_bias")},
    {TENSOR_UP, false, {NULL}, MIX("experts.%e.up_proj.weight")},
    {TENSOR_DOWN, false, {NULL}, MIX("experts.%e.down_proj.weight")},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, MIX("experts.up_proj")},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, MIX("experts.down_proj")},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"}, MIX("shared_experts.up_proj.weight")},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     MIX("shared_experts.down_proj.weight")},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, MIX("up_proj.weight")},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, MIX("down_proj.weight")},
    TENSORS_END,
};
/* clang-format on */

static const struct family_rename renamed[] = {
    RENAMED_MAMBA2("mamba_num_heads", "ssm_state_size", "n_groups", "conv_kernel"), {NULL, NULL}};

/* experts in a latent space (Nemotron 3 Super) */
static const char *const unsupported[] = {"moe_latent_size", "nemotron_h_moe.moe_latent_size",
                                          NULL};
static const char *const ignored[] = {"mtp.*", NULL};
static const char *const stops[] = {"<|im_end|>", NULL};

/* The operator of a layer: its letter in the pattern, or its word in transformers 5's list, which
 * has two for each mixer; in GGUF files by the existing tensors. */
static char operator_of(struct describer *d, const struct meta_value *pattern, int layer)
{
    static const struct {
        const char *word;
        char letter;
    } words[] = {{"mamba", 'M'},     {"linear_attention", 'M'},
                 {"attention", '*'}, {"full_attention", '*'},
                 {"moe", 'E'},       {"mlp", '-'}};

    if (describe_is_gguf(d))
        return describe_has(d, TENSOR_MIX_IN, layer)   ? 'M'
               : describe_has(d, TENSOR_Q, layer)      ? '*'
               : describe_has(d, TENSOR_ROUTER, layer) ? 'E'
                                                       : '-';
    if (pattern->type == META_STRING)
        return pattern->s[layer];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (describe_listed(d, "layers_block_type", layer, words[i].word))
            return words[i].letter;
    return 0;
}

static void one_operator(struct hparams *hp, int layer, char kind, const struct mixer_shape *mamba,
                         int width, struct describer *d)
{
    struct layer_shape *s = &hp->layers[layer];
    const struct mixer_shape none = {.kind = MIXER_NONE, .rope = ROPE_NONE};

    switch (kind) {
    case 'M':
        s->mixer = *mamba;
        describe_no_ffn(&s->ffn);
        break;
    case '*': describe_no_ffn(&s->ffn); break;
    case 'E':
        s->mixer = none;
        if (s->ffn.kind != FFN_ROUTED)
            s->ffn = hp->common.ffn;
        break;
    case '-':
        s->mixer = none;
        if (s->ffn.kind != FFN_DENSE) {
            s->ffn = hp->common.ffn;
            describe_dense(&s->ffn, width);
        }
        break;
    default:
        describe_refuse(d, "hybrid_override_pattern or layers_block_type of its config.json has a "
                           "layer other than mamba (M), attention (*), moe (E) and mlp (-)");
    }
}

/* Two unsupported variants of its code that no known model uses. */
static void check_activations(struct describer *d)
{
    if (family_config(d->f, "mlp_hidden_act").type == META_STRING &&
        !describe_is(d, "mlp_hidden_act", "relu2"))
        describe_refuse(d, "mlp_hidden_act of its config.json is not relu2");
    if (family_config(d->f, "mamba_hidden_act").type == META_STRING &&
        !describe_is(d, "mamba_hidden_act", "silu"))
        describe_refuse(d, "mamba_hidden_act of its config.json is not silu");
}

static void layers(struct hparams *hp, struct describer *d)
{
    struct meta_value pattern = family_config(d->f, "hybrid_override_pattern");
    const struct mixer_shape mamba = {.kind = MIXER_MAMBA2,
                                      .rope = ROPE_NONE,
                                      .heads = describe_int(d, "mamba_num_heads", 0, 1, 4096),
                                      .value_dim = describe_inner_dim(d, "mamba_num_heads",
                                                                      "mamba_head_dim"),
                                      .state = describe_int(d, "ssm_state_size", 0, 1, 4096),
                                      .groups = describe_int(d, "n_groups", 1, 1, 4096),
                                      .taps = describe_int(d, "conv_kernel", 4, 1, 16)};
    int width = describe_int(d, "intermediate_size", 0, 1, 1 << 20);

    check_activations(d);
    if (pattern.type == META_STRING
            ? pattern.len != (size_t)hp->n_layers
            : !describe_is_gguf(d) && !describe_per_layer(d, hp, "layers_block_type")) {
        describe_refuse(d, "hybrid_override_pattern of its config.json is not a letter a layer");
        return;
    }
    for (int l = 0; l < hp->n_layers; l++)
        one_operator(hp, l, operator_of(d, &pattern, l), &mamba, width, d);
}

const struct family family_nemotron_h = {
    .name = "nemotron_h",
    .gguf = {"nemotron_h_moe", "nemotron_h"},
    .exported = true,
    .json = {"NemotronHForCausalLM", "nemotron_h"},
    .shape = {.mixer = {.rope = ROPE_NONE},
              .ffn = {.activation = ACTIVATION_RELU2,
                      .router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_NONE,
    .one_operator = true,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .unsupported = unsupported,
    .ignored = ignored,
    .stops = stops,
};
