/* Families deepseek_v2, deepseek_v3 (Kimi-K2 too) and glm4_moe_lite (GLM-4.7-Flash): latent
 * attention, the first layers dense; and deepseek (DeepSeekMoE 16B), whose attention is Llama's,
 * by its own modeling_deepseek.py and llama.cpp's src/models/deepseek.cpp. Names after
 * modeling_deepseek_v2.py, modeling_deepseek_v3.py and modeling_glm4_moe_lite.py (Hugging Face) and
 * llama.cpp's gguf-py/gguf/constants.py, where all of them are deepseek2. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_LATENT,
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_LATENT,
    TENSORS_EXPERTS,
    TENSORS_ROUTER_BIAS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_MTP,
    TENSORS_END,
};
/* clang-format on */

/* clang-format off */
static const struct family_key first_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_END,
};

static const struct family_tensor first_tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.layers.*.self_attn.rotary_emb.inv_freq", NULL};
static const char *const stops[] = {NULL};
static const char *const glm_stops[] = {"<|endoftext|>", "<|user|>", "<|observation|>", NULL};
/* Kimi-K2 ends a turn with <|im_end|>. */
static const char *const gguf_stops[] = {"<|endoftext|>", "<|user|>", "<|observation|>",
                                         "<|im_end|>", NULL};

/* Weights never sum to 1, whatever norm_topk_prob says: its code ignores it. */
static void v2_layers(struct hparams *hp, struct describer *d)
{
    bool groups = describe_is(d, "topk_method", "group_limited_greedy");

    describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++)
        if (!groups)
            hp->layers[l].ffn.router.groups = hp->layers[l].ffn.router.groups_used = 0;
}

#define GATING_SIGMOID 2 /* of llama.cpp's expert_gating_func; 1 is softmax */

/* Determines the family by its router. Files from before expert_gating_func are softmax, except
 * GLM-4.7-Flash (llama.cpp, src/models/deepseek2.cpp). A score bias exists if its tensor does. */
static void gguf_layers(struct hparams *hp, struct describer *d)
{
    struct meta_value gating = weight_file_meta(d->f, "deepseek2.expert_gating_func");
    bool flash = (hp->n_layers == 47 || hp->n_layers == 48) && hp->n_vocab == 154880;

    for (int l = 0; l < hp->n_layers; l++) {
        struct router_shape *r = &hp->layers[l].ffn.router;

        if (gating.type == META_INT ? gating.i == GATING_SIGMOID : flash)
            r->kind = ROUTER_SIGMOID;
        r->choice_bias = family_tensor(d->family, d->f, TENSOR_ROUTER_BIAS, l, 0, false) != NULL;
    }
}

/* The arguments: how experts are chosen. */
#define OF_ALL(...)                                                                  \
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS, .latent_eps = 1e-6f}, \
              .ffn = {.router = {__VA_ARGS__}},                                      \
              .norms = {.kind = NORM_RMS, .before = true}},                          \
    .keys = keys, .tensors = tensors, ROPE_NAMES, .ignored = ignored

#define OF_FOLDERS .exported = true, .exported_as = &family_deepseek2

#define OF_V3                                                                            \
    OF_ALL(.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true), OF_FOLDERS, \
        .extra_layers = true, .layers = describe_latent, .normalised = "norm_topk_prob"

const struct family family_deepseek_v2 = {
    .name = "deepseek_v2",
    .json = {"DeepseekV2ForCausalLM", "deepseek_v2"},
    OF_ALL(.kind = ROUTER_SOFTMAX),
    OF_FOLDERS,
    .layers = v2_layers,
    .stops = stops,
};

const struct family family_deepseek_v3 = {
    .name = "deepseek_v3",
    .json = {"DeepseekV3ForCausalLM", "deepseek_v3"},
    OF_V3,
    .stops = stops,
};

const struct family family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .json = {"Glm4MoeLiteForCausalLM", "glm4_moe_lite"},
    OF_V3,
    .stops = glm_stops,
};

const struct family family_deepseek2 = {
    .name = "deepseek2",
    .gguf = {"deepseek2"},
    OF_ALL(.kind = ROUTER_SOFTMAX),
    .gguf_rope = ROPE_PAIRS,
    .extra_layers = true,
    .layers = gguf_layers,
    .stops = gguf_stops,
};

/* Its converter has moved the rows of q and k so that pairs of neighbours are rotated. */
const struct family family_deepseek = {
    .name = "deepseek",
    .gguf = {"deepseek"},
    .exported = true,
    .json = {"DeepseekForCausalLM", "deepseek"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = first_keys,
    .tensors = first_tensors,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
