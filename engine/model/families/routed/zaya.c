/* Family zaya (Zyphra's ZAYA1): convolved attention in every layer, a router by a row that goes
 * from layer to layer and may choose nothing, and a weighted stream. Names and sums after
 * modeling_zaya.py (Hugging Face), arXiv:2510.04476 and arXiv:2511.17127. llama.cpp does not know
 * it: names of GGUF files are ours, in its style. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
#define ROPE "rope_parameters.hybrid."
#define ROPE_WINDOW "rope_parameters.hybrid_sliding."
#define CCA HF "self_attn.qkv_proj."
#define GATE HF "mlp.gate."

static const struct family_key keys[] = {
    KEYS_SIZES,
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     131072, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"}, {ROPE "rope_theta"}, 5e6, 1.0, 1e12},
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base_swa"}, {ROPE_WINDOW "rope_theta"},
     10000.0, 1.0, 1e12},
    {FIELD(second_rope.dims), KEY_INT, {"rope.dimension_count_swa"}, {NULL}, 0, 2, 4096},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_EPS,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.mixer.taps), KEY_INT, {"attention.conv_kernel"}, {"cca_time0"}, 2, 1, 16},
    {FIELD(common.mixer.head_taps), KEY_INT, {"attention.head_conv_kernel"}, {"cca_time1"},
     2, 1, 16},
    {FIELD(common.ffn.router.row), KEY_INT, {"expert_router_length"}, {"router_hidden_size"},
     256, 1, 1024},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    RENAMED_WINDOWS,
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    {TENSOR_EMBEDDINGS_SCALE, false, {"token_embd_scale.weight"},
     {"model.input_hidden_states_scale"}},
    {TENSOR_EMBEDDINGS_SHIFT, false, {"token_embd_shift.weight"},
     {"model.input_hidden_states_bias"}},
    {TENSOR_Q, true, {"blk.%l.attn_q.weight"}, {CCA "q_proj.weight"}},
    {TENSOR_K, true, {"blk.%l.attn_k.weight"}, {CCA "k_proj.weight"}},
    {TENSOR_V, true, {"blk.%l.attn_v.weight"}, {CCA "v_proj_current.weight"}},
    {TENSOR_V_BEFORE, true, {"blk.%l.attn_v_prev.weight"}, {CCA "v_proj_delayed.weight"}},
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, {HF "self_attn.o_proj.weight"}},
    {TENSOR_CONV, true, {"blk.%l.attn_conv1d.weight"}, {CCA "conv_qk_depthwise.weight"}},
    {TENSOR_CONV_HEADS, true, {"blk.%l.attn_head_conv1d.weight"}, {CCA "conv_qk_grouped.weight"}},
    {TENSOR_KEY_SCALE, false, {"blk.%l.attn_k_scale.weight"}, {HF "self_attn.qk_norm.temp"}},
    {TENSOR_MIXED_SCALE, false, {"blk.%l.attn_out_scale.weight"},
     {HF "post_attention_residual_scale.hidden_states_scale"}},
    {TENSOR_MIXED_SHIFT, false, {"blk.%l.attn_out_shift.weight"},
     {HF "post_attention_residual_scale.hidden_states_bias"}},
    {TENSOR_BEFORE_MIXED_SCALE, false, {"blk.%l.attn_res_scale.weight"},
     {HF "post_attention_residual_scale.residual_scale"}},
    {TENSOR_BEFORE_MIXED_SHIFT, false, {"blk.%l.attn_res_shift.weight"},
     {HF "post_attention_residual_scale.residual_bias"}},
    {TENSOR_EXPERTS_SCALE, false, {"blk.%l.ffn_out_scale.weight"},
     {HF "post_mlp_residual_scale.hidden_states_scale"}},
    {TENSOR_EXPERTS_SHIFT, false, {"blk.%l.ffn_out_shift.weight"},
     {HF "post_mlp_residual_scale.hidden_states_bias"}},
    {TENSOR_BEFORE_EXPERTS_SCALE, false, {"blk.%l.ffn_res_scale.weight"},
     {HF "post_mlp_residual_scale.residual_scale"}},
    {TENSOR_BEFORE_EXPERTS_SHIFT, false, {"blk.%l.ffn_res_shift.weight"},
     {HF "post_mlp_residual_scale.residual_bias"}},
    {TENSOR_ROUTER_IN, true, {"blk.%l.ffn_router_down.weight"}, {GATE "down_proj.weight"}},
    {TENSOR_ROUTER_CARRY, false, {"blk.%l.ffn_router_carry.weight"}, {GATE "router_states_scale"}},
    {TENSOR_ROUTER_ROW_NORM, false, {"blk.%l.ffn_router_norm.weight"},
     {GATE "router_mlp.norm.weight"}},
    {TENSOR_ROUTER_FIRST, true, {"blk.%l.ffn_router_fc1.weight"}, {GATE "router_mlp.fc1.weight"}},
    {TENSOR_ROUTER_SECOND, true, {"blk.%l.ffn_router_fc2.weight"}, {GATE "router_mlp.fc2.weight"}},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {GATE "router_mlp.out_proj.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias"}, {GATE "balancing_biases"}},
    {TENSOR_GATE, false, {NULL}, {HF "mlp.experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {NULL}, {HF "mlp.experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {NULL}, {HF "mlp.experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {HF "mlp.switch_mlp.gate_proj.weight"}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {HF "mlp.switch_mlp.up_proj.weight"}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"},
     {HF "mlp.experts.down_proj", HF "mlp.switch_mlp.down_proj.weight"}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, {HF "mlp.experts.gate_up_proj"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|im_end|>", "<end_of_turn>", NULL};

/* The rotated part of a head where config.json tells it by kind of layer; without rope_parameters
 * it is half a head. */
static int rotated(struct describer *d, const char *name, const char *base, int key_dim)
{
    bool told = family_config(d->f, base).type != META_NONE;
    float part = describe_float(d, name, told ? 1.0f : 0.5f);
    int dims = part > 0.0f && part <= 1.0f ? (int)((float)key_dim * part) : 0;

    if (!d->rc && (dims < 2 || dims % 2))
        describe_refuse(d,
                        "%s of its config.json rotates %d of %d dimensions of a head; the number "
                        "must be even, and not larger",
                        name, dims, key_dim);
    return dims;
}

/* What config.json says of layers with a window, and of both kinds' rotation. */
static void read_kinds(struct hparams *hp, struct describer *d)
{
    static const char *const plain[] = {"default", NULL};
    bool told = family_config(d->f, ROPE "rope_theta").type != META_NONE;
    int dims = rotated(d, ROPE "partial_rotary_factor", ROPE "rope_theta",
                       hp->common.mixer.key_dim),
        windowed = rotated(d, ROPE_WINDOW "partial_rotary_factor", ROPE_WINDOW "rope_theta",
                           hp->common.mixer.key_dim);

    describe_only(d, ROPE "rope_type", plain);
    describe_only(d, ROPE_WINDOW "rope_type", plain);
    describe_only(d, "rope_parameters.rope_type", plain);
    describe_never(d, "rope_parameters.rope_theta");
    (void)describe_per_layer(d, hp, "layer_types");
    hp->common.mixer.rope_dims = dims;
    hp->second_rope.dims = 0;
    for (int l = 0; l < hp->n_layers && !d->rc; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;
        bool window = describe_listed(d, "layer_types", l, "hybrid_sliding");

        if (!window && !describe_listed(d, "layer_types", l, "hybrid") &&
            family_config(d->f, "layer_types").type != META_NONE)
            describe_refuse(d, "layer %d is neither hybrid nor hybrid_sliding by layer_types", l);
        if (window && !m->window)
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
        if (window && told && family_config(d->f, ROPE_WINDOW "rope_theta").type == META_NONE)
            describe_refuse(d, "its config.json has no " ROPE_WINDOW "rope_theta");
        m->rope_dims = window ? windowed : dims;
        m->second_rope = window;
        m->window = window ? m->window : 0;
        if (window)
            hp->second_rope.dims = hp->second_rope.of = windowed;
    }
    if (!hp->second_rope.dims)
        hp->second_rope.theta = 0.0f;
}

static void layers(struct hparams *hp, struct describer *d)
{
    static const char *const silu[] = {"silu", NULL};

    describe_only(d, "hidden_act", silu);
    if (hp->common.ffn.used != 1)
        describe_refuse(d, "%d experts a token, which is not computed: only 1",
                        hp->common.ffn.used);
    if (hp->common.mixer.key_dim % 4)
        describe_refuse(d, "heads of %d, which is not computed: only multiples of 4",
                        hp->common.mixer.key_dim);
    if (describe_is_gguf(d))
        describe_two_ropes(hp, d, 0, false);
    else
        read_kinds(hp, d);
    hp->embedding_weighted = true;
}

const struct family family_zaya = {
    .name = "zaya",
    .gguf = {"zaya"},
    .exported = true,
    .json = {"ZayaForCausalLM", "zaya"},
    .shape = {.mixer = {.kind = MIXER_CONVOLVED},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX,
                                 .choice_bias = true,
                                 .identities = 1,
                                 .nothing = true}},
              .norms = {.kind = NORM_RMS, .before = true},
              .weighted = true},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .part_unsaid = 0.5f,
    .tied = "tie_word_embeddings",
    .tied_unsaid = true,
    .stops = stops,
};
