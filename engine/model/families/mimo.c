/* Family mimo_v2_flash (Xiaomi's MiMo-V2-Flash, 309B-A15B): values narrower than keys, and scaled;
 * windows in five of six layers, which have more heads of keys, a rotary base of their own and
 * sinks; sigmoid scores with a bias. Names and sums after modeling_mimo_v2_flash.py and
 * configuration_mimo_v2_flash.py (Hugging Face) and llama.cpp's src/models/mimo2.cpp and
 * conversion/mimo.py; of its blocks for further tokens, which those leave out, after SGLang's
 * models/mimo_v2_flash_nextn.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
#define FULL "rope_parameters.full_attention."
#define WINDOWED "rope_parameters.sliding_attention."
#define KEY_HEADS "swa_num_key_value_heads"

/* The heads of keys are those of layer 0 until `layers` knows each one's. */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"},
     0, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {NULL}, {"num_key_value_heads"}, 0, 1, 4096},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 192, 2, 4096},
    {FIELD(common.mixer.value_dim), KEY_INT, {"attention.value_length"}, {"v_head_dim"},
     128, 1, 4096},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     4096, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {NULL}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"}, {FULL "rope_theta", "rope_theta"},
     5e6, 1.0, 1e12},
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base_swa"},
     {WINDOWED "rope_theta", "swa_rope_theta"}, 10000.0, 1.0, 1e12},
    {FIELD(second_rope.dims), KEY_INT, {"rope.dimension_count_swa"}, {NULL}, 0, 2, 4096},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     129, 0, 1 << 27},
    {FIELD(common.mixer.value_factor), KEY_FLOAT, {"attention.value_scale"},
     {"attention_value_scale"}, 1.0, 1e-6, 1e6},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"},
     {"rms_norm_eps", "layernorm_epsilon"}, 1e-5, 1e-12, 1.0},
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_END,
};

static const struct family_rename renamed[] = {
    {KEY_HEADS, "attention.head_count_kv"},
    RENAMED_WINDOWS,
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    {TENSOR_EXPERT_NORM, true, {"blk.%l.ffn_norm.weight"},
     {HF "post_attention_layernorm.weight", HF "pre_mlp_layernorm.weight"}},
    TENSORS_Q_K_V,
    {TENSOR_O, false, {"blk.%l.attn_output.weight"}, {HF "self_attn.o_proj.weight"}},
    {TENSOR_QKV, false, {"blk.%l.attn_qkv.weight"}, {NULL}},
    {TENSOR_SINKS, false, {"blk.%l.attn_sinks.weight", "blk.%l.attn_sinks"},
     {HF "self_attn.attention_sink_bias", HF "self_attn.sinks"}},
    TENSORS_ROUTER_BIAS,
    TENSORS_EXPERTS,
    TENSORS_DENSE,
    {TENSOR_MTP_EMBEDDING_NORM, false, {"blk.%l.nextn.enorm.weight"}, {HF "enorm.weight"}},
    {TENSOR_MTP_HIDDEN_NORM, false, {"blk.%l.nextn.hnorm.weight"}, {HF "hnorm.weight"}},
    {TENSOR_MTP_JOIN, false, {"blk.%l.nextn.eh_proj.weight"}, {HF "eh_proj.weight"}},
    {TENSOR_MTP_NORM, false,
     {"blk.%l.layer_output_norm.weight", "blk.%l.nextn.shared_head_norm.weight"},
     {HF "final_layernorm.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.mtp.*", NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

/* What the published config.json gives apart for layers with a window must be what all have. */
static void check_variants(const struct hparams *hp, struct describer *d)
{
    static const char *const noaux[] = {"noaux_tc", NULL};
    const struct mixer_shape *m = &hp->common.mixer;

    describe_only(d, "topk_method", noaux);
    if (describe_is_gguf(d))
        return;
    describe_only_number(d, "swa_num_attention_heads", m->heads);
    describe_only_number(d, "swa_head_dim", m->key_dim);
    describe_only_number(d, "swa_v_head_dim", m->value_dim);
    (void)describe_per_layer(d, hp, "layer_types");
    (void)describe_per_layer(d, hp, "mlp_layer_types");
    (void)describe_per_layer(d, hp, "hybrid_layer_pattern");
}

/* By any of the lists; without one the first layer and the last of six see all. */
static bool windowed(struct describer *d, int l)
{
    int usual = l && (l + 1) % 6;

    if (describe_is_gguf(d))
        return describe_int_at(d, "sliding_window_pattern", l, usual) != 0;
    if (family_config(d->f, "layer_types").type == META_ARRAY)
        return describe_listed(d, "layer_types", l, "sliding_attention");
    return describe_int_at(d, "hybrid_layer_pattern", l, usual) != 0;
}

/* SGLang's reference sees sliding_window_size tokens before the query's own. GGUF's number is read
 * as llama.cpp reads it, its own one included. */
static int window_of(const struct hparams *hp, struct describer *d)
{
    int before = describe_int(d, "sliding_window_size", 0, 0, 1 << 26);

    return before && !describe_is_gguf(d) ? before + 1 : hp->common.mixer.window;
}

static void read_ropes(struct hparams *hp, struct describer *d)
{
    static const char *const plain[] = {"default", NULL}, *const scaled[] = {"default", "yarn",
                                                                             "linear", "llama3",
                                                                             NULL};
    struct mixer_shape *m = &hp->common.mixer;
    float part = describe_float(d, WINDOWED "partial_rotary_factor",
                                describe_float(d, "partial_rotary_factor", d->family->part_unsaid));
    int dims = hp->second_rope.dims ? hp->second_rope.dims : m->rope_dims;

    describe_only(d, WINDOWED "rope_type", plain);
    describe_only(d, FULL "rope_type", scaled);
    if (!describe_is_gguf(d))
        dims = part > 0.0f && part <= 1.0f ? (int)((double)m->key_dim * (double)part) : 0;
    if (m->rope_dims < 2 || m->rope_dims % 2 || dims < 2 || dims % 2 || dims > m->key_dim)
        describe_refuse(d,
                        "%d and %d of %d values of a head are rotated; the numbers must be even, "
                        "and not larger",
                        m->rope_dims, dims, m->key_dim);
    hp->second_rope.dims = dims;
    if (hp->second_rope.theta == 0.0f)
        hp->second_rope.theta = hp->rope_theta;
}

static void shape_mixer(struct hparams *hp, struct describer *d, int l)
{
    struct mixer_shape *m = &hp->layers[l].mixer;
    bool window = windowed(d, l), with_tensors = describe_has(d, TENSOR_ATTENTION_NORM, l),
         sinks = describe_flag(
             d, window ? "add_swa_attention_sink_bias" : "add_full_attention_sink_bias", window);
    int all = hp->common.mixer.kv_heads;

    m->window = window ? window_of(hp, d) : 0;
    if (window && !m->window)
        describe_refuse(d, "layer %d has a window, but the metadata gives no size", l);
    m->kv_heads = describe_is_gguf(d) ? describe_int_at(d, KEY_HEADS, l, all)
                  : window            ? describe_int(d, KEY_HEADS, 2 * all, 1, 4096)
                                      : all;
    if (m->kv_heads < 1 || m->kv_heads > 4096 || m->heads % m->kv_heads)
        describe_refuse(d, "layer %d has %d heads that share %d of keys and values", l, m->heads,
                        m->kv_heads);
    m->sinks = describe_is_gguf(d) && with_tensors ? describe_has(d, TENSOR_SINKS, l) : sinks;
    m->rope_dims = hp->common.mixer.rope_dims;
    m->value_factor = hp->common.mixer.value_factor;
    if (!window)
        return;
    m->second_rope = true;
    m->rope_dims = hp->second_rope.of = hp->second_rope.dims;
}

static void layers(struct hparams *hp, struct describer *d)
{
    bool listed = family_config(d->f, "mlp_layer_types").type == META_ARRAY ||
                  family_config(d->f, "moe_layer_freq").type == META_ARRAY;

    check_variants(hp, d);
    if (hp->common.mixer.value_factor == 1.0f)
        hp->common.mixer.value_factor = 0.0f;
    read_ropes(hp, d);
    for (int l = 0; l < hp->n_layers && !d->rc; l++) {
        shape_mixer(hp, d, l);
        if (!describe_is_gguf(d) && !listed && !l && !describe_has(d, TENSOR_ATTENTION_NORM, 0))
            describe_dense(&hp->layers[0].ffn, describe_int(d, "intermediate_size", 0, 1, 1 << 20));
    }
    if (!hp->second_rope.of) {
        hp->second_rope.theta = 0.0f;
        hp->second_rope.dims = 0;
    }
}

/* Blocks for further tokens have a window. */
static int mtp_like(const struct hparams *hp, struct describer *d)
{
    int l = hp->n_layers - 1;

    while (l >= 0 && !hp->layers[l].mixer.window)
        l--;
    if (l < 0)
        describe_refuse(d, "its block for further tokens has a window, and no layer is like it");
    return l;
}

const struct family family_mimo_v2_flash = {
    .name = "mimo_v2_flash",
    .gguf = {"mimo2"},
    .exported = true,
    .json = {"MiMoV2FlashForCausalLM", "mimo_v2_flash"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .normalised = "norm_topk_prob",
    .extra_layers = true,
    .mtp = "model.mtp.layers.%l.",
    .mtp_like = mtp_like,
    .rope_kind = {FULL "rope_type", "rope_parameters.rope_type", "rope_scaling.rope_type",
                  "rope_scaling.type"},
    .part_unsaid = 0.334f,
    .tied = "tie_word_embeddings",
    .ignored = ignored,
    .stops = stops,
};
