/* Family dots1: rednote's dots.llm1 (142B-A14B). Sigmoid scores with a bias for the choice, from
 * the best groups where there are any; shared experts, the first layers dense; some layers may have
 * a window. Names and sums after modeling_dots1.py (Hugging Face) and llama.cpp's
 * src/models/dots1.cpp. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    {FIELD(common.mixer.window), KEY_INT, {NULL}, {"sliding_window"}, 0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    TENSORS_ROUTER_BIAS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|endofresponse|>", NULL};

/* Files of llama.cpp's converter have no windows, and may lack the bias. */
static void layers(struct hparams *hp, struct describer *d)
{
    bool listed = describe_per_layer(d, hp, "layer_types");
    int first = describe_int(d, "max_window_layers", 62, 0, 1024);

    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (listed ? !describe_listed(d, "layer_types", l, "sliding_attention") : l < first)
            s->mixer.window = 0;
        if (describe_is_gguf(d) && s->ffn.kind == FFN_ROUTED)
            s->ffn.router.choice_bias = describe_has(d, TENSOR_ROUTER_BIAS, l);
    }
}

const struct family family_dots1 = {
    .name = "dots1",
    .gguf = {"dots1"},
    .exported = true,
    .json = {"Dots1ForCausalLM", "dots1"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .stops = stops,
};
