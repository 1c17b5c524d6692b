/* Family smollm3 (SmolLM3-3B, dense): Llama whose every fourth layer has no positions. Names after
 * modeling_smollm3.py (Hugging Face) and llama.cpp's src/models/smollm3.cpp, whose converter has
 * moved the rows of q and k so that pairs of neighbours are rotated. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const stops[] = {"<|im_end|>", NULL};

static void layers(struct hparams *hp, struct describer *d)
{
    int period = describe_int(d, "no_rope_layer_interval", 4, 1, 1024);

    describe_never(d, "use_sliding_window");
    (void)describe_per_layer(d, hp, "no_rope_layers");
    for (int l = 0; l < hp->n_layers; l++) {
        struct mixer_shape *m = &hp->layers[l].mixer;

        /* a list of those that have positions, whatever its name says */
        if (describe_int_at(d, "no_rope_layers", l, (l + 1) % period != 0))
            continue;
        m->rope = ROPE_NONE;
        m->rope_dims = 0;
    }
}

const struct family family_smollm3 = {
    .name = "smollm3",
    .gguf = {"smollm3"},
    .exported = true,
    .json = {"SmolLM3ForCausalLM", "smollm3"},
    .shape = {.norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .theta_unsaid = 2e6f,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    ROPE_NAMES,
    .tied_unsaid = true,
    .stops = stops,
};
