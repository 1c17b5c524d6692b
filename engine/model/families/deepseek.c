/* Families deepseek_v2, deepseek_v3 (Kimi-K2 too) and glm4_moe_lite (GLM-4.7-Flash): latent
 * attention, the first layers dense. Names after modeling_deepseek_v2.py, modeling_deepseek_v3.py
 * and modeling_glm4_moe_lite.py (Hugging Face). Described, not computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_LATENT,
    KEYS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.layers.*.self_attn.rotary_emb.inv_freq", NULL};
static const char *const stops[] = {NULL};
static const char *const glm_stops[] = {"<|user|>", "<|observation|>", NULL};

/* Weights never sum to 1, whatever norm_topk_prob says: its code does not read it. */
static void v2_layers(struct hparams *hp, struct describer *d)
{
    bool groups = describe_is(d, "topk_method", "group_limited_greedy");

    describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++)
        if (!groups)
            hp->layers[l].ffn.router.groups = hp->layers[l].ffn.router.groups_used = 0;
}

#define SHAPE(...)                                              \
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS}, \
              .ffn = {.router = {__VA_ARGS__}},                 \
              .norms = {.kind = NORM_RMS, .before = true}}

const struct family family_deepseek_v2 = {
    .name = "deepseek_v2",
    .json = {"DeepseekV2ForCausalLM", "deepseek_v2"},
    SHAPE(.kind = ROUTER_SOFTMAX),
    .keys = keys,
    .layers = v2_layers,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};

const struct family family_deepseek_v3 = {
    .name = "deepseek_v3",
    .json = {"DeepseekV3ForCausalLM", "deepseek_v3"},
    SHAPE(.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true),
    .keys = keys,
    .layers = describe_latent,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};

const struct family family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .json = {"Glm4MoeLiteForCausalLM", "glm4_moe_lite"},
    SHAPE(.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true),
    .keys = keys,
    .layers = describe_latent,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = ignored,
    .stops = glm_stops,
};
