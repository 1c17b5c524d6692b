/* Family grovemoe (Ant Group's GroveMoE, 33B-A3B): Qwen3-30B-A3B with adjugate experts, each of
 * which a group of routed experts has in common. Names after llama.cpp's conversion/grovemoe.py;
 * sums after the report (arXiv:2508.07785) as three ports of the authors' code have them (PyTorch,
 * MLX, chatllm.cpp), which was not at hand. llama.cpp's own graph feeds adjugate experts the routed
 * ones' output instead. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* of the published code; config.json does not state them */
#define GROUP 2
#define FACTOR 0.05
#define WIDTH 128

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.grouped), KEY_INT, {"experts_per_group"}, {NULL}, GROUP, 1, 512},
    {FIELD(common.ffn.shared_factor), KEY_FLOAT, {"expert_group_scale"}, {NULL}, FACTOR, 1e-6, 1e6},
    {FIELD(common.ffn.shared_width), KEY_INT, {"expert_chunk_feed_forward_length"}, {NULL},
     0, 1, 1 << 20},
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_QK_NORM,
    TENSORS_EXPERTS,
    {TENSOR_ADJUGATE_GATE, false, {"blk.%l.ffn_gate_chexps.weight"},
     {HF "mlp.chunk_experts.%e.gate_proj.weight"}},
    {TENSOR_ADJUGATE_UP, false, {"blk.%l.ffn_up_chexps.weight"},
     {HF "mlp.chunk_experts.%e.up_proj.weight"}},
    {TENSOR_ADJUGATE_DOWN, false, {"blk.%l.ffn_down_chexps.weight"},
     {HF "mlp.chunk_experts.%e.down_proj.weight"}},
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

/* a buffer that the published code does not read */
static const char *const ignored[] = {"model.layers.*.mlp.expert_bias", NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    describe_never(d, "use_sliding_window");
    for (int l = 0; l < hp->n_layers; l++) {
        struct ffn_shape *s = &hp->layers[l].ffn;

        if (!s->experts) {
            s->grouped = 0;
            s->shared_factor = 0.0f;
            continue;
        }
        s->shared = 0;
        s->shared_width = s->shared_width ? s->shared_width : WIDTH;
        if (s->experts % s->grouped)
            describe_refuse(d, "its %d experts are not whole groups of %d, which grovemoe needs",
                            s->experts, s->grouped);
    }
}

const struct family family_grovemoe = {
    .name = "grovemoe",
    .gguf = {"grovemoe"},
    .exported = true,
    .json = {"GroveMoeForCausalLM", "grove_moe"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
