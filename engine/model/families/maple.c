/* Family maple (deepgrove's Maple, 20B): windows, which alone are rotated, in part; heads of q and
 * k are normed; gate and up of experts are clamped. Names and sums after llama.cpp's
 * src/models/maple.cpp and conversion/maple.py, which quote modeling_maple.py. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_rename renamed[] = {
    RENAMED_WINDOWS,
    {"swiglu_clamp_exp", "swiglu_clamp_exp"},
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

#define CLAMP 7.0 /* modeling_maple.py's; config.json does not state it */

static void layers(struct hparams *hp, struct describer *d)
{
    if (!describe_is_gguf(d) && !describe_flag(d, "nope_on_global_attention", false))
        describe_refuse(d, "nope_on_global_attention of its config.json is not set, which is not "
                           "computed for maple");
    if (!describe_is_gguf(d) && !describe_flag(d, "norm_topk_prob", true))
        describe_refuse(d, "norm_topk_prob of its config.json is false, which is not computed for "
                           "maple");
    describe_never(d, "num_shared_experts");
    if (!describe_is_gguf(d) && !describe_per_layer(d, hp, "layer_types"))
        describe_refuse(d, "its config.json has no layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];
        bool windowed = describe_windowed(d, l, 1, false);

        if (windowed && !hp->common.mixer.window)
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
        s->mixer.window = windowed ? hp->common.mixer.window : 0;
        if (!windowed) {
            s->mixer.rope = ROPE_NONE;
            s->mixer.rope_dims = 0;
        }
        s->ffn.limit = (float)describe_number_at(d, "swiglu_clamp_exp", l, CLAMP);
        if (!(s->ffn.limit > 0.0f && s->ffn.limit < 1e6f))
            describe_refuse(d, "the clamp of layer %d's experts is not above 0", l);
    }
}

const struct family family_maple = {
    .name = "maple",
    .gguf = {"maple"},
    .exported = true,
    .json = {"MapleForCausalLM", "maple"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.activation = ACTIVATION_CLAMPED_SILU,
                      .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .part_unsaid = 1.0f,
    ROPE_NAMES,
    .stops = stops,
};
