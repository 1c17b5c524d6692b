/* Families granitemoe (IBM Granite 3 MoE, also with a shared expert) and granite (the same, dense).
 * Names after modeling_granitemoe.py, modeling_granitemoeshared.py and modeling_granite.py (Hugging
 * Face) and llama.cpp's gguf-py/gguf/constants.py. Four multipliers: of embeddings, of scores, of
 * what each operator adds, and under the logits. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"num_local_experts"}, 0, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"num_experts_per_tok"}, 0, 1, 16},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length", "feed_forward_length"},
     {"intermediate_size"}, 0, 1, 1 << 20},
    KEYS_MULTIPLIERS,
    KEYS_END,
};

static const struct family_key dense_keys[] = {
    KEYS_COMMON,
    KEYS_MULTIPLIERS,
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS_GRANITE,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|end_of_text|>", NULL};

/* Without tensors, config.json tells whether there is a shared expert. */
static void layers(struct hparams *hp, struct describer *d)
{
    int shared = describe_int(d, "shared_intermediate_size", 0, 0, 1 << 20);

    for (int l = 0; l < hp->n_layers; l++)
        if (hp->layers[l].ffn.kind == FFN_ROUTED && !hp->layers[l].ffn.shared)
            describe_shared(&hp->layers[l].ffn, shared);
}

const struct family family_granitemoe = {
    .name = "granitemoe",
    .gguf = {"granitemoe"},
    .exported = true,
    .json = {"GraniteMoeForCausalLM", "granitemoe", "GraniteMoeSharedForCausalLM",
             "granitemoeshared"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .stops = stops,
};

const struct family family_granite = {
    .name = "granite",
    .gguf = {"granite"},
    .exported = true,
    .json = {"GraniteForCausalLM", "granite"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = dense_keys,
    .tensors = tensors,
    ROPE_NAMES,
    .stops = stops,
};
