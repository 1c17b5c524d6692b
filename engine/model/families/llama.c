/* Families llama (Llama 2 and 3, and what is like them), mistral (Mistral 7B, Nemo, Small: GGUF
 * calls it llama), mistral3 (Mistral Small 3.1, Ministral 3, text: queries grow with their
 * position), mixtral (experts) and minimax_m2 (MiniMax-M2, 230B-A10B: Mixtral with sigmoid scores
 * and a bias, norms of whole q and k, a part of each head rotated). Names after modeling_llama.py,
 * modeling_mistral.py, modeling_ministral3.py, modeling_mixtral.py and modeling_minimax_m2.py
 * (Hugging Face) and llama.cpp's gguf-py/gguf/constants.py and src/models/mistral3.cpp; where it is
 * "llama" the converter has moved the rows of q and k so that pairs of neighbours are rotated.
 * Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key llama_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {NULL}, 0, 0, 1 << 27},
    KEYS_END,
};

#define GROWTH \
    {FIELD(common.mixer.scale_growth), KEY_FLOAT, {"attention.temperature_scale"}, \
     {"rope_parameters.llama_4_scaling_beta", "rope_scaling.llama_4_scaling_beta"}, 0.0, 0.0, 1e3}
#define PERIOD "rope_parameters.original_max_position_embeddings"

static const struct family_key mistral3_keys[] = {
    KEYS_COMMON,
    GROWTH,
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_rename mistral3_renamed[] = {
    {PERIOD, "rope.scaling.original_context_length"},
    {NULL, NULL},
};

static const struct family_key mixtral_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_key minimax_keys[] = {
    KEYS_SIZES,
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     4096, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {"rotary_dim"}, 0, 2, 4096},
    {FIELD(rope_theta), KEY_FLOAT, {"rope.freq_base"},
     {"rope_scaling.rope_theta", "rope_parameters.rope_theta", "rope_theta"}, 10000.0, 1.0, 1e12},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-12, 1.0},
    KEYS_EXPERTS("intermediate_size"),
    KEYS_END,
};

static const struct family_tensor minimax_tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS_BLOCK,
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "block_sparse_moe.e_score_correction_bias", HF "mlp.e_score_correction_bias"}},
    TENSORS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS_BLOCK,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.layers.*.self_attn.rotary_emb.inv_freq", NULL};
static const char *const stops[] = {"<|eot_id|>", "<|eom_id|>", NULL};

#define OF_BOTH                                                                \
    .gguf = {"llama"}, .exported = true,                                       \
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}}, \
              .norms = {.kind = NORM_RMS, .before = true}},                    \
    .gguf_rope = ROPE_PAIRS, .tensors = tensors, ROPE_NAMES, .ignored = ignored, .stops = stops

const struct family family_llama = {
    .name = "llama",
    .json = {"LlamaForCausalLM", "llama"},
    .keys = llama_keys,
    OF_BOTH,
};

const struct family family_mixtral = {
    .name = "mixtral",
    .json = {"MixtralForCausalLM", "mixtral"},
    .theta_unsaid = 1e6f,
    .keys = mixtral_keys,
    OF_BOTH,
};

static const char *const minimax_stops[] = {"[e~[", NULL};

/* Of the published config.json. */
static void minimax_layers(struct hparams *hp, struct describer *d)
{
    static const char *const whole[] = {"per_layer", NULL};
    float part = describe_float(d, "rope_parameters.partial_rotary_factor", 0.0f);
    int dims = (int)((double)hp->common.mixer.key_dim * (double)part);

    if (!describe_is_gguf(d) && part > 0.0f && dims != hp->common.mixer.rope_dims)
        describe_refuse(d,
                        "rotary_dim of its config.json is %d, but its partial_rotary_factor "
                        "rotates %d values of a head",
                        hp->common.mixer.rope_dims, dims);
    describe_only(d, "qk_norm_type", whole);
    if (!describe_flag(d, "use_qk_norm", true) || !describe_flag(d, "use_routing_bias", true))
        describe_refuse(d, "use_qk_norm or use_routing_bias of its config.json is false, which is "
                           "not computed for minimax_m2");
    describe_never(d, "shared_intermediate_size");
}

const struct family family_minimax_m2 = {
    .name = "minimax_m2",
    .gguf = {"minimax-m2"},
    .exported = true,
    .json = {"MiniMaxM2ForCausalLM", "minimax_m2"},
    .shape = {.mixer = {.qk_norm = QK_NORM_WHOLE},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .theta_unsaid = 5e6f,
    .part_unsaid = 1.0f,
    .keys = minimax_keys,
    .tensors = minimax_tensors,
    .layers = minimax_layers,
    ROPE_NAMES,
    .stops = minimax_stops,
};

static const char *const mistral_stops[] = {NULL};
static const char *const mistral_towers[] = {"*vision_tower.*", "*multi_modal_projector.*", NULL};

/* config.json alone: GGUF's llama is read above. */
const struct family family_mistral = {
    .name = "mistral",
    .exported = true,
    .exported_as = &family_llama,
    .json = {"MistralForCausalLM", "mistral"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .keys = mixtral_keys,
    .tensors = tensors,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = mistral_stops,
};

static void mistral3_layers(struct hparams *hp, struct describer *d)
{
    int period = describe_int(d, PERIOD, 0, 1, 1 << 27);

    period = period
                 ? period
                 : describe_int(d, "rope_scaling.original_max_position_embeddings", 0, 1, 1 << 27);
    if (hp->common.mixer.scale_growth != 0.0f && !period)
        describe_refuse(d, "its queries grow with their position, but it does not say within how "
                           "many tokens (original_max_position_embeddings)");
    for (int l = 0; l < hp->n_layers; l++)
        hp->layers[l].mixer.scale_period = period ? period : 1;
}

const struct family family_mistral3 = {
    .name = "mistral3",
    .gguf = {"mistral3"},
    .exported = true,
    .json = {"Mistral3ForConditionalGeneration", "Ministral3ForCausalLM", "mistral3", "ministral3"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .nested = "model.language_model.",
    .gguf_rope = ROPE_PAIRS,
    .keys = mistral3_keys,
    .tensors = tensors,
    .layers = mistral3_layers,
    .renamed = mistral3_renamed,
    ROPE_NAMES,
    .ignored = mistral_towers,
    .stops = mistral_stops,
};
