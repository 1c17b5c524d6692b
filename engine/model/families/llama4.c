/* Family llama4 (Llama 4 Scout and Maverick, text): experts whose inputs are weighted by a sigmoid,
 * beside a shared one, in every or every other layer; attention within chunks where heads are
 * rotated, and normed behind that without weights; every fourth layer sees all, is not rotated, and
 * its queries grow with their position. Names and sums after modeling_llama4.py (Hugging Face) and
 * llama.cpp's src/models/llama4.cpp and conversion/llama.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_SIZES,
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     131072, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"},
     {"rope_parameters.rope_theta", "rope_theta"}, 500000.0, 1.0, 1e12},
    KEYS_EPS,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"attention_chunk_size"},
     8192, 0, 1 << 27},
    {FIELD(common.mixer.scale_growth), KEY_FLOAT, {"attention.temperature_scale"}, {"attn_scale"},
     0.1, 0.0, 1e3},
    {FIELD(common.mixer.scale_period), KEY_INT, {"attention.temperature_length"}, {"floor_scale"},
     8192, 1, 1 << 27},
    KEYS_END,
};

#define FFN HF "feed_forward."

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {FFN "router.weight"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {FFN "experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {FFN "experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {FFN "experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, TENSOR_TRANSPOSED, {"blk.%l.ffn_down_exps.weight"}, {FFN "experts.down_proj"}},
    {TENSOR_GATE_UPS, TENSOR_TRANSPOSED, {NULL}, {FFN "experts.gate_up_proj"}},
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"},
     {FFN "shared_expert.gate_proj.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     {FFN "shared_expert.up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     {FFN "shared_expert.down_proj.weight"}},
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, {FFN "gate_proj.weight"}},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, {FFN "up_proj.weight"}},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, {FFN "down_proj.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"*vision_model.*", "*multi_modal_projector.*",
                                      "model.layers.*.self_attn.rotary_emb.inv_freq", NULL};
static const char *const stops[] = {"<|eot|>", "<|eom|>", "<|end_of_text|>", NULL};

#define INTERVAL 4 /* of layers without rotation, where nothing says */
/* Experts of Maverick, which alone has no norms of q and k; its GGUF files say it by this number
 * (llama.cpp's use_kq_norm). */
#define EXPERTS_MAVERICK 128

static bool is_rotated(struct describer *d, int layer)
{
    int interval = describe_is_gguf(d)
                       ? INTERVAL
                       : describe_int(d, "no_rope_layer_interval", INTERVAL, 1, 1024);
    int missing = (layer + 1) % interval != 0;

    return (describe_is_gguf(d) ? missing : describe_int_at(d, "no_rope_layers", layer, missing)) !=
           0;
}

/* By the list of types, or where it is rotated. */
static bool is_chunked(struct describer *d, int layer, bool rotated)
{
    if (describe_is_gguf(d) || family_config(d->f, "layer_types").type != META_ARRAY)
        return rotated;
    return describe_listed(d, "layer_types", layer, "chunked_attention");
}

static bool has_experts(struct describer *d, int layer)
{
    if (family_config(d->f, "moe_layers").type == META_ARRAY)
        return describe_numbered(d, "moe_layers", layer);
    return (layer + 1) % describe_int(d, "interleave_moe_layer_step", 1, 1, 1024) == 0;
}

static bool grows(struct describer *d)
{
    return describe_is_gguf(d) || describe_int_at(d, "attn_temperature_tuning", 0, 1) != 0;
}

static bool has_head_norms(const struct hparams *hp, struct describer *d)
{
    return describe_is_gguf(d) ? hp->common.ffn.experts != EXPERTS_MAVERICK
                               : describe_flag(d, "use_qk_norm", true);
}

/* Nothing tells a missing size (8192 in the official code) from none. */
static void check_chunks(const struct hparams *hp, struct describer *d)
{
    bool listed = describe_per_layer(d, hp, "layer_types"), chunked = !listed;

    for (int l = 0; l < hp->n_layers; l++)
        chunked |= describe_listed(d, "layer_types", l, "chunked_attention");
    if (describe_is_gguf(d) && !hp->common.mixer.window)
        describe_refuse(d, "its attention has no chunks (attention.sliding_window is 0), which is "
                           "not computed for llama4");
    if (!describe_is_gguf(d) && chunked &&
        family_config(d->f, "attention_chunk_size").type == META_NONE)
        describe_refuse(d, "its config.json has no attention_chunk_size");
}

static void layers(struct hparams *hp, struct describer *d)
{
    struct mixer_shape *common = &hp->common.mixer;
    bool normed = has_head_norms(hp, d), growing = grows(d);

    check_chunks(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;
        bool rotated = is_rotated(d, l);

        m->chunked = common->window && is_chunked(d, l, rotated);
        m->window = m->chunked ? common->window : 0;
        m->qk_norm = normed && rotated ? QK_NORM_HEAD : QK_NORM_NONE;
        m->qk_norm_turned = m->qk_norm == QK_NORM_HEAD;
        if (rotated || !growing)
            m->scale_growth = 0.0f;
        m->scale_ahead = m->scale_growth != 0.0f;
        if (!rotated) {
            m->rope = ROPE_NONE;
            m->rope_dims = 0;
        }
        if (describe_has(d, TENSOR_ATTENTION_NORM, l))
            continue;
        if (has_experts(d, l))
            describe_shared(&hp->layers[l].ffn, hp->layers[l].ffn.width);
        else
            describe_dense(&hp->layers[l].ffn,
                           describe_int(d, "intermediate_size_mlp", 16384, 1, 1 << 20));
    }
}

const struct family family_llama4 = {
    .name = "llama4",
    .gguf = {"llama4"},
    .exported = true,
    .json = {"Llama4ForConditionalGeneration", "Llama4ForCausalLM", "llama4", "llama4_text"},
    .shape = {.mixer = {.rope = ROPE_PAIRS,
                        .qk_norm = QK_NORM_HEAD,
                        .qk_norm_turned = true,
                        .q_norm_unsaid = 1.0f},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .on_input = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .theta_unsaid = 500000.0f,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
