/* Families gpt2 and opt: dense, learned positions, layer norms, biases everywhere. Names after
 * modeling_gpt2.py and modeling_opt.py (Hugging Face). Described, not computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key gpt2_keys[] = {
    {FIELD(n_layers), KEY_INT, {NULL}, {"n_layer"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {NULL}, {"n_embd"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.heads), KEY_INT, {NULL}, {"n_head"}, 0, 1, 4096},
    {FIELD(n_vocab), KEY_INT, {NULL}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(context_max), KEY_INT, {NULL}, {"n_positions", "n_ctx"}, 1024, 1, 1 << 27},
    {FIELD(common.norms.eps), KEY_FLOAT, {NULL}, {"layer_norm_epsilon"}, 1e-5, 1e-12, 1.0},
    KEYS_END,
};

static const struct family_key opt_keys[] = {
    KEYS_COMMON,
    KEYS_END,
};
/* clang-format on */

static const char *const gpt2_ignored[] = {"h.*.attn.bias", "h.*.attn.masked_bias", NULL};
static const char *const none[] = {NULL};
static const char *const gpt2_stops[] = {"<|endoftext|>", NULL};

static void all_dense(struct hparams *hp, int width)
{
    for (int l = 0; l < hp->n_layers; l++)
        describe_dense(&hp->layers[l].ffn, width);
}

static void gpt2_layers(struct hparams *hp, struct describer *d)
{
    all_dense(hp, describe_int(d, "n_inner", 4 * hp->hidden, 1, 1 << 22));
}

/* One size has its norms behind the sums. */
static void opt_layers(struct hparams *hp, struct describer *d)
{
    bool before = describe_flag(d, "do_layer_norm_before", true);

    all_dense(hp, describe_int(d, "ffn_dim", 4 * hp->hidden, 1, 1 << 22));
    for (int l = 0; l < hp->n_layers; l++) {
        hp->layers[l].norms.before = before;
        hp->layers[l].norms.after = !before;
    }
}

#define SHAPE(function)                                                              \
    .shape = {.mixer = {.rope = ROPE_NONE, .bias = true, .learned_positions = true}, \
              .ffn = {.activation = function, .bias = true},                         \
              .norms = {.kind = NORM_LAYER, .before = true}}

const struct family family_gpt2 = {
    .name = "gpt2",
    .json = {"GPT2LMHeadModel", "gpt2"},
    SHAPE(ACTIVATION_GELU_PLAIN),
    .keys = gpt2_keys,
    .layers = gpt2_layers,
    ROPE_NAMES,
    .ignored = gpt2_ignored,
    .stops = gpt2_stops,
};

const struct family family_opt = {
    .name = "opt",
    .json = {"OPTForCausalLM", "opt"},
    SHAPE(ACTIVATION_RELU),
    .keys = opt_keys,
    .layers = opt_layers,
    ROPE_NAMES,
    .ignored = none,
    .stops = none,
};
