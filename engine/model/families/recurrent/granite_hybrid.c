/* Family granitemoehybrid (Granite 4): Mamba 2, a few layers of attention, most without positions;
 * a shared expert. Names after modeling_granitemoehybrid.py (Hugging Face) and llama.cpp's
 * gguf-py/gguf/constants.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_local_experts"}, 0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 0, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"intermediate_size"}, 0, 1, 1 << 20},
    KEYS_MULTIPLIERS,
    KEYS_END,
};

#define MAMBA(name) {HF "mamba." name}

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_Q_K_V,
    {TENSOR_O, TENSOR_BIAS | TENSOR_BY_MIXER,
     {"blk.%l.attn_output.weight", "blk.%l.ssm_out.weight"},
     {HF "self_attn.o_proj.weight", HF "mamba.out_proj.weight"}},
    TENSORS_MAMBA2(MAMBA),
    TENSORS_EXPERTS_GRANITE,
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, {NULL}},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, {NULL}},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"},
     {HF "shared_mlp.output_linear.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const struct family_rename renamed[] = {RENAMED_MAMBA2("mamba_n_heads", "mamba_d_state",
                                                              "mamba_n_groups", "mamba_d_conv"),
                                               {"rotated", "rope.scaling.finetuned"},
                                               {NULL, NULL}};

static const char *const stops[] = {"<|end_of_text|>", NULL};

/* "mamba" on the Hub, "linear_attention" in what transformers 5 saves. */
static bool is_mamba(struct describer *d, bool listed, int layer)
{
    return listed ? describe_listed(d, "layer_types", layer, "mamba") ||
                        describe_listed(d, "layer_types", layer, "linear_attention")
                  : describe_has(d, TENSOR_MIX_IN, layer);
}

/* A shared expert, or without others a dense feed-forward, by config.json; with tensors these
 * decide. */
static void describe_ffn(struct ffn_shape *s, int shared)
{
    if (s->shared && s->shared_width)
        return;
    if (s->kind == FFN_ROUTED)
        describe_shared(s, shared);
    else
        describe_dense(s, shared);
}

/* Unsupported: steps of the recurrence limited to a range. */
static void check_settings(struct describer *d)
{
    float least = describe_float(d, "time_step_limit.0", 0.0f),
          most = describe_float(d, "time_step_limit.1", HUGE_VALF);

    if (least > 0.0f || most < HUGE_VALF)
        describe_refuse(d, "time_step_limit of its config.json is not 0 to infinity, which is not "
                           "computed");
}

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape mamba = {.kind = MIXER_MAMBA2,
                                      .rope = ROPE_NONE,
                                      .heads = describe_int(d, "mamba_n_heads", 0, 1, 4096),
                                      .value_dim = describe_inner_dim(d, "mamba_n_heads",
                                                                      "mamba_d_head"),
                                      .state = describe_int(d, "mamba_d_state", 0, 1, 4096),
                                      .groups = describe_int(d, "mamba_n_groups", 1, 1, 4096),
                                      .taps = describe_int(d, "mamba_d_conv", 4, 1, 16)};
    bool listed = describe_per_layer(d, hp, "layer_types"),
         rotated = describe_is_gguf(d) ? describe_flag(d, "rotated", false)
                                       : describe_is(d, "position_embedding_type", "rope");
    int shared = describe_int(d, "shared_intermediate_size", 0, 0, 1 << 20);

    check_settings(d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (is_mamba(d, listed, l)) {
            s->mixer = mamba;
        } else if (!rotated) {
            s->mixer.rope = ROPE_NONE;
            s->mixer.rope_dims = 0;
        }
        describe_ffn(&s->ffn, shared);
    }
}

const struct family family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .gguf = {"granitehybrid"},
    .exported = true,
    .json = {"GraniteMoeHybridForCausalLM", "granitemoehybrid"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    ROPE_NAMES,
    .stops = stops,
};
