/* Families laguna (Poolside's Laguna XS, S and M) and mellum (JetBrains' Mellum 2): layers with a
 * window have rotary embeddings of their own. laguna: heads a layer, gates behind softplus, sigmoid
 * scores with a bias, a shared expert. Names and sums after modeling_laguna.py and
 * modeling_mellum.py (Hugging Face) and llama.cpp's src/models/laguna.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
#define HEADS "num_attention_heads_per_layer"

/* The heads are those of layer 0 until `layers` knows each one's. */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"},
     0, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 128, 2, 4096},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    KEYS_POSITIONS_TWO(500000.0),
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"moe_routed_scaling_factor"}, 1.0, 1e-6, 1e6},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {HEADS, "attention.head_count"},
    RENAMED_WINDOWS,
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    {TENSOR_MIX_Z, false, {"blk.%l.attn_gate.weight"}, {HF "self_attn.g_proj.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "mlp.experts.e_score_correction_bias", HF "mlp.gate.e_score_correction_bias"}},
    TENSORS_EXPERTS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

/* clang-format off */
static const struct family_key mellum_keys[] = {
    KEYS_SIZES,
    KEYS_POSITIONS_TWO(500000.0),
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_END,
};

static const struct family_rename mellum_renamed[] = {
    RENAMED_WINDOWS,
    {NULL, NULL},
};

static const struct family_tensor mellum_tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

/* as its official code does */
static const char *const mellum_ignored[] = {"mtp.*", NULL};
static const char *const mellum_stops[] = {"<|endoftext|>", "<|im_end|>", NULL};
static const char *const stops[] = {"</assistant>", NULL};

/* One gate a head, or one for each value: config.json's word, or in GGUF the matrix's rows. */
static enum gate_form gates(struct describer *d, const struct mixer_shape *m, int layer)
{
    static const char *const words[] = {"per-head", "per-element", NULL};
    const struct tensor_view *t = family_tensor(d->family, d->f, TENSOR_MIX_Z, layer, 0, false);

    if (describe_is_gguf(d))
        return t && t->n_dims == 2 && t->dims[0] == m->heads ? GATE_HEADS : GATE_APART;
    describe_only(d, "gating", words);
    return describe_is(d, "gating", "per-head") || describe_flag(d, "gating", false) ? GATE_HEADS
                                                                                     : GATE_APART;
}

static int heads_of(struct describer *d, int layer, int common)
{
    int all = describe_int(d, "num_attention_heads", common, 1, 4096);

    return describe_int_at(d, HEADS, layer, all);
}

static void refuse_one_rope(struct describer *d)
{
    if (!describe_is_gguf(d) &&
        family_config(d->f, "rope_parameters.full_attention.rope_theta").type == META_NONE)
        describe_refuse(d, "its config.json has no rope_parameters.full_attention.rope_theta");
}

/* Without layer_types every layer of config.json sees all. */
static bool unlisted(const struct hparams *hp, struct describer *d)
{
    return !describe_is_gguf(d) && !describe_per_layer(d, hp, "layer_types");
}

static void layers(struct hparams *hp, struct describer *d)
{
    describe_never(d, "moe_router_logit_softcapping");
    describe_never(d, "moe_apply_router_weight_on_input");
    refuse_one_rope(d);
    for (int l = 0; l < hp->n_layers && unlisted(hp, d); l++)
        hp->layers[l].mixer.window = 0;
    (void)describe_per_layer(d, hp, HEADS);
    describe_two_ropes(hp, d, 4, true);
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        m->heads = heads_of(d, l, m->heads);
        if (m->heads < 1 || m->heads > 4096 || m->kv_heads < 1 || m->heads % m->kv_heads)
            describe_refuse(d, "layer %d has %d heads that share %d of keys and values", l,
                            m->heads, m->kv_heads);
        m->gate = gates(d, m, l);
    }
}

/* Files of llama.cpp have the window in three of four layers, those of its config.json alone in
 * none. */
static void mellum_layers(struct hparams *hp, struct describer *d)
{
    refuse_one_rope(d);
    for (int l = 0; l < hp->n_layers && unlisted(hp, d); l++)
        hp->layers[l].mixer.window = 0;
    describe_two_ropes(hp, d, 4, false);
}

const struct family family_mellum = {
    .name = "mellum",
    .gguf = {"mellum"},
    .exported = true,
    .json = {"MellumForCausalLM", "mellum"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = mellum_keys,
    .tensors = mellum_tensors,
    .layers = mellum_layers,
    .renamed = mellum_renamed,
    .normalised = "norm_topk_prob",
    ROPE_NAMES_TWO,
    .ignored = mellum_ignored,
    .stops = mellum_stops,
};

const struct family family_laguna = {
    .name = "laguna",
    .gguf = {"laguna"},
    .exported = true,
    .json = {"LagunaForCausalLM", "laguna"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .gated = true, .gate_softplus = true},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    ROPE_NAMES_TWO,
    .stops = stops,
};
