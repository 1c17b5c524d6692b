/* Family exaone_moe (LG's K-EXAONE, 30B-A3B and 236B-A23B): windows in three of four layers, which
 * alone are rotated; norms of q and k; sigmoid scores with a bias, from the best groups where there
 * are any; a shared expert, the first layers dense. Names and sums after modeling_exaone_moe.py and
 * modeling_exaone4.py (Hugging Face), which leaves the block that predicts further tokens out, and
 * llama.cpp's src/models/exaone-moe.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"routed_scaling_factor"}, 2.5, 1e-6, 1e6},
    {FIELD(common.ffn.router.groups), KEY_INT, {"expert_group_count"}, {"n_group"}, 1, 1, 512},
    {FIELD(common.ffn.router.groups_used), KEY_INT, {"expert_group_used_count"}, {"topk_group"},
     1, 1, 512},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    RENAMED_WINDOWS,
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "mlp.e_score_correction_bias", HF "mlp.gate.e_score_correction_bias"}},
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"mtp.*", NULL};
static const char *const stops[] = {"[|endofturn|]", "<|endofturn|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    static const char *const words[] = {"LLLG", NULL};
    int window = hp->common.mixer.window;

    describe_only(d, "sliding_window_pattern", words);
    (void)describe_per_layer(d, hp, "layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        if (!window && describe_listed(d, "layer_types", l, "sliding_attention"))
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
        if (!window || describe_windowed(d, l, 4, false))
            continue;
        m->window = m->rope_dims = 0;
        m->rope = ROPE_NONE;
    }
}

const struct family family_exaone_moe = {
    .name = "exaone_moe",
    .gguf = {"exaone-moe"},
    .exported = true,
    .json = {"ExaoneMoeForCausalLM", "exaone_moe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .extra_layers = true,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
