/* Family jamba (AI21's Jamba, 3B dense to 398B): Mamba 1, every few layers attention without
 * positions; every other feed-forward is of experts, whose weights are not normed. Names and sums
 * after modeling_jamba.py (Hugging Face) and llama.cpp's src/models/jamba.cpp and
 * conversion/jamba.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_SIZES,
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     262144, 1, 1 << 27},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_experts", "num_local_experts"},
     16, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 2, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"intermediate_size"}, 0, 1, 1 << 20},
    KEYS_END,
};

#define MAMBA(name) {HF "mamba." name}
#define FF HF "feed_forward."

static const struct family_tensor tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.embed_tokens.weight"}},
    {TENSOR_OUTPUT_NORM, false, {"output_norm.weight"}, {"model.final_layernorm.weight"}},
    {TENSOR_HEAD, false, {"output.weight"}, {"lm_head.weight"}},
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, false, {"blk.%l.ffn_norm.weight"}, {HF "pre_ff_layernorm.weight"}},
    TENSORS_Q_K_V,
    {TENSOR_O, TENSOR_BIAS | TENSOR_BY_MIXER,
     {"blk.%l.attn_output.weight", "blk.%l.ssm_out.weight"},
     {HF "self_attn.o_proj.weight", HF "mamba.out_proj.weight"}},
    TENSORS_MAMBA1(MAMBA),
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {FF "router.weight"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {FF "experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {FF "experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {FF "experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {FF "experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {NULL}, {FF "experts.gate_up_proj"}},
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, {FF "gate_proj.weight"}},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, {FF "up_proj.weight"}},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, {FF "down_proj.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const struct family_rename renamed[] = {
    {"mamba_d_state", "ssm.state_size"},
    {"mamba_d_conv", "ssm.conv_kernel"},
    {"mamba_dt_rank", "ssm.time_step_rank"},
    {"inner_size", "ssm.inner_size"},
    {NULL, NULL},
};

static const char *const stops[] = {"<|endoftext|>", "<|im_end|>", "<|eom|>", NULL};

/* Once in `period` layers, from `offset` on. */
struct every {
    int period, offset;
};

static struct every every(struct describer *d, const char *period, const char *offset, int periods,
                          int offsets)
{
    struct every e = {describe_int(d, period, periods, 1, 1 << 16),
                      describe_int(d, offset, offsets, 0, 1 << 16)};

    if (e.offset >= e.period)
        describe_refuse(d, "%s of its config.json must be below its %s", offset, period);
    return e;
}

static bool falls(const struct every *e, int layer)
{
    return layer % e->period == e->offset;
}

static struct mixer_shape mamba(const struct hparams *hp, struct describer *d)
{
    int rank = (hp->hidden + 15) / 16,
        inner = hp->hidden * describe_int(d, "mamba_expand", 2, 1, 256);

    if (!describe_is(d, "mamba_dt_rank", "auto"))
        rank = describe_int(d, "mamba_dt_rank", rank, 1, 1 << 16);
    return (struct mixer_shape){.kind = MIXER_MAMBA1,
                                .rope = ROPE_NONE,
                                .heads = 1,
                                .groups = 1,
                                .value_dim = describe_int(d, "inner_size", inner, 1, 1 << 24),
                                .state = describe_int(d, "mamba_d_state", 16, 1, 256),
                                .taps = describe_int(d, "mamba_d_conv", 4, 1, 16),
                                .a_rank = rank};
}

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape selective = mamba(hp, d);
    const struct every attention = every(d, "attn_layer_period", "attn_layer_offset", 8, 4),
                       routed = every(d, "expert_layer_period", "expert_layer_offset", 2, 1);

    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];
        bool stored = describe_has(d, TENSOR_ATTENTION_NORM, l);

        if (stored ? describe_has(d, TENSOR_MIX_IN, l) : !falls(&attention, l))
            s->mixer = selective;
        if (!stored && (!falls(&routed, l) || hp->common.ffn.experts < 2))
            describe_dense(&s->ffn, hp->common.ffn.width);
    }
}

const struct family family_jamba = {
    .name = "jamba",
    .gguf = {"jamba"},
    .exported = true,
    .json = {"JambaForCausalLM", "jamba"},
    .shape = {.mixer = {.rope = ROPE_NONE},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_NONE,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .tied = "tie_word_embeddings",
    .stops = stops,
};
