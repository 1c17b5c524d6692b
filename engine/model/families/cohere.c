/* Family cohere2_moe (Cohere's North Code, 30B-A3B, and Command A+): attention and experts beside
 * each other behind one norm; windows in most layers, which alone are rotated, but for the first,
 * dense ones; the shared expert's output and the routed ones' may be averaged. Names and sums after
 * modeling_cohere2_moe.py (Hugging Face) and llama.cpp's src/models/cohere2moe.cpp and
 * conversion/command_r.py, which alone know the block that predicts further tokens. Constant data.
 */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("intermediate_size"),
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     0, 0, 1 << 27},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, {HF "input_layernorm.weight"}},
    TENSORS_ATTENTION,
    TENSORS_EXPERTS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_MTP,
    TENSORS_END,
};
/* clang-format on */

#define DENSE_PATTERN "prefix_dense_sliding_window_pattern"

static const struct family_rename renamed[] = {
    RENAMED_WINDOWS,
    {"logit_scale", "logit_scale"},
    {"expert_gating_func", "expert_gating_func"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {NULL, NULL},
};

static const char *const stops[] = {"<|END_OF_TURN_TOKEN|>", "<|END_RESPONSE|>", NULL};

#define GATING_SOFTMAX 1 /* of llama.cpp's expert_gating_func; 2 is sigmoid */

static void read_router(struct router_shape *r, struct describer *d)
{
    static const char *const words[] = {"softmax", "sigmoid", NULL};
    bool sigmoid = describe_is_gguf(d)
                       ? describe_int(d, "expert_gating_func", 2, 0, 16) != GATING_SOFTMAX
                       : describe_is(d, "expert_selection_fn", "sigmoid");

    describe_only(d, "expert_selection_fn", words);
    r->kind = sigmoid ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    if (!sigmoid) /* over the chosen ones */
        r->normalised = true;
}

/* GGUF files have no other strategy than the average. */
static void read_shared(struct ffn_shape *s, struct describer *d)
{
    static const char *const words[] = {"average", "sum", NULL};

    describe_only(d, "shared_expert_combination_strategy", words);
    if (!s->shared || describe_is(d, "shared_expert_combination_strategy", "sum"))
        return;
    s->shared_factor = s->router.factor = 0.5f;
}

/* Layers with a list of their types, or a pattern of the dense ones, and another one of those
 * behind them. */
static bool is_windowed(struct describer *d, int layer, int dense)
{
    int pattern = describe_int(d, DENSE_PATTERN, 1, 1, 1024);

    if (!describe_is_gguf(d) && family_config(d->f, "layer_types").type != META_ARRAY)
        return layer < dense
                   ? (layer + 1) % pattern != 0
                   : (layer - dense + 1) % describe_int(d, "sliding_window_pattern", 4, 1, 1024) !=
                         0;
    return describe_windowed(d, layer, 4, false);
}

static void layers(struct hparams *hp, struct describer *d)
{
    float scale = describe_float(d, "logit_scale", 0.0625f);
    int dense = describe_int(d, "first_k_dense_replace", 0, 0, 1024),
        window = hp->common.mixer.window;
    bool forced = describe_int(d, DENSE_PATTERN, 1, 1, 1024) == 1;

    if (scale == 0.0f)
        describe_refuse(d, "logit_scale is 0: all logits would be");
    else
        hp->logit_divisor = 1.0f / scale;
    hp->common.norms.kind = describe_float(d, "rms_norm_eps", 0.0f) > 0.0f ? NORM_RMS : NORM_LAYER;
    (void)describe_per_layer(d, hp, "layer_types");
    (void)describe_per_layer(d, hp, "mlp_layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];
        bool windowed = is_windowed(d, l, dense);

        s->norms.kind = hp->common.norms.kind;
        if (windowed && !window)
            describe_refuse(d, "layer %d has a window, but its config.json no sliding_window", l);
        s->mixer.window = windowed ? window : 0;
        if (!windowed && !(forced && s->ffn.kind == FFN_DENSE)) {
            s->mixer.rope = ROPE_NONE;
            s->mixer.rope_dims = 0;
        }
        if (s->ffn.kind == FFN_ROUTED) {
            read_router(&s->ffn.router, d);
            read_shared(&s->ffn, d);
        } else if (!describe_has(d, TENSOR_ATTENTION_NORM, l)) {
            describe_dense(&s->ffn, describe_int(d, "prefix_dense_intermediate_size",
                                                 s->ffn.shared_width, 1, 1 << 20));
        }
    }
}

const struct family family_cohere2_moe = {
    .name = "cohere2_moe",
    .gguf = {"cohere2moe"},
    .exported = true,
    .json = {"Cohere2MoeForCausalLM", "cohere2_moe"},
    .shape = {.mixer = {.rope = ROPE_PAIRS},
              .ffn = {.router = {.kind = ROUTER_SIGMOID, .normalised = true}},
              .norms = {.kind = NORM_LAYER, .before = true},
              .parallel = true},
    .gguf_rope = ROPE_PAIRS,
    .gguf_eps = true,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .renamed = renamed,
    .extra_layers = true,
    .mtp_normed = true,
    .mtp_last_norm = true,
    .mtp_sees_all = true,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .tied_unsaid = true,
    .stops = stops,
};
