/* Families gpt2 and opt: dense, learned positions, layer norms, biases everywhere. Names after
 * modeling_gpt2.py, whose matrices lie transposed, and modeling_opt.py (Hugging Face), and
 * llama.cpp's gguf-py/gguf/constants.py (MODEL_ARCH.GPT2). Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#define BARE "h.%l."
#define FULL "transformer.h.%l."
#define OPT "model.decoder."
#define OPT_BARE "decoder."
#define TURNED (TENSOR_BIAS | TENSOR_TRANSPOSED)

/* clang-format off */
static const struct family_key gpt2_keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"n_layer"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"n_embd"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"n_head"}, 0, 1, 4096},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"n_positions", "n_ctx"}, 1024, 1, 1 << 27},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_epsilon"}, {"layer_norm_epsilon"},
     1e-5, 1e-12, 1.0},
    KEYS_END,
};

static const struct family_key opt_keys[] = {
    KEYS_COMMON,
    KEYS_END,
};

static const struct family_rename gpt2_renamed[] = {
    {"n_inner", "feed_forward_length"},
    {NULL, NULL},
};

static const struct family_tensor gpt2_tensors[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"wte.weight", "transformer.wte.weight"}},
    {TENSOR_POSITIONS, false, {"position_embd.weight"}, {"wpe.weight", "transformer.wpe.weight"}},
    {TENSOR_OUTPUT_NORM, true, {"output_norm.weight"}, {"ln_f.weight", "transformer.ln_f.weight"}},
    {TENSOR_HEAD, false, {"output.weight"}, {"lm_head.weight"}},
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"},
     {BARE "ln_1.weight", FULL "ln_1.weight"}},
    {TENSOR_QKV, TURNED, {"blk.%l.attn_qkv.weight"},
     {BARE "attn.c_attn.weight", FULL "attn.c_attn.weight"}},
    {TENSOR_O, TURNED, {"blk.%l.attn_output.weight"},
     {BARE "attn.c_proj.weight", FULL "attn.c_proj.weight"}},
    {TENSOR_EXPERT_NORM, true, {"blk.%l.ffn_norm.weight"},
     {BARE "ln_2.weight", FULL "ln_2.weight"}},
    {TENSOR_DENSE_UP, TURNED, {"blk.%l.ffn_up.weight"},
     {BARE "mlp.c_fc.weight", FULL "mlp.c_fc.weight"}},
    {TENSOR_DENSE_DOWN, TURNED, {"blk.%l.ffn_down.weight"},
     {BARE "mlp.c_proj.weight", FULL "mlp.c_proj.weight"}},
    TENSORS_END,
};

/* A tensor of a layer, with and without the prefix "model.". */
#define OPT_LAYER(role, name) \
    {role, TENSOR_BIAS, {NULL}, {OPT "layers.%l." name, OPT_BARE "layers.%l." name}}
#define OPT_END(role, flags, name) {role, flags, {NULL}, {OPT name, OPT_BARE name}}

static const struct family_tensor opt_tensors[] = {
    /* some converted files have only the head */
    {TENSOR_EMBEDDINGS, false, {NULL},
     {OPT "embed_tokens.weight", OPT_BARE "embed_tokens.weight", "lm_head.weight"}},
    OPT_END(TENSOR_POSITIONS, false, "embed_positions.weight"),
    OPT_END(TENSOR_PROJECT_IN, false, "project_in.weight"),
    OPT_END(TENSOR_PROJECT_OUT, false, "project_out.weight"),
    OPT_END(TENSOR_OUTPUT_NORM, TENSOR_BIAS, "final_layer_norm.weight"),
    {TENSOR_HEAD, false, {NULL}, {"lm_head.weight"}},
    OPT_LAYER(TENSOR_ATTENTION_NORM, "self_attn_layer_norm.weight"),
    OPT_LAYER(TENSOR_Q, "self_attn.q_proj.weight"),
    OPT_LAYER(TENSOR_K, "self_attn.k_proj.weight"),
    OPT_LAYER(TENSOR_V, "self_attn.v_proj.weight"),
    OPT_LAYER(TENSOR_O, "self_attn.out_proj.weight"),
    OPT_LAYER(TENSOR_EXPERT_NORM, "final_layer_norm.weight"),
    OPT_LAYER(TENSOR_DENSE_UP, "fc1.weight"),
    OPT_LAYER(TENSOR_DENSE_DOWN, "fc2.weight"),
    TENSORS_END,
};
/* clang-format on */

/* attention masks */
static const char *const gpt2_ignored[] = {"h.*.attn.bias", "h.*.attn.masked_bias",
                                           "transformer.h.*.attn.bias",
                                           "transformer.h.*.attn.masked_bias", NULL};
static const char *const no_stops[] = {NULL};
static const char *const gpt2_stops[] = {"<|endoftext|>", NULL};

static void all_dense(struct hparams *hp, int width)
{
    for (int l = 0; l < hp->n_layers; l++)
        describe_dense(&hp->layers[l].ffn, width);
}

static void gpt2_layers(struct hparams *hp, struct describer *d)
{
    describe_never(d, "scale_attn_by_inverse_layer_idx");
    describe_never(d, "add_cross_attention");
    if (!describe_flag(d, "scale_attn_weights", true))
        describe_refuse(d, "scale_attn_weights of its config.json is false, which is not computed");
    all_dense(hp, describe_int(d, "n_inner", 4 * hp->hidden, 1, 1 << 22));
}

/* One size has its norms after the sums, and narrower embeddings. The table of positions starts
 * with two rows for padding. */
static void opt_layers(struct hparams *hp, struct describer *d)
{
    bool before = describe_flag(d, "do_layer_norm_before", true);
    int width = describe_int(d, "word_embed_proj_dim", hp->hidden, 1, HPARAMS_EMBEDDING_MOST);

    describe_never(d, "_remove_final_layer_norm");
    if (!describe_flag(d, "enable_bias", true) ||
        !describe_flag(d, "layer_norm_elementwise_affine", true))
        describe_refuse(d,
                        "enable_bias or layer_norm_elementwise_affine of its config.json is false, "
                        "which is not computed");
    hp->embedding_width = width != hp->hidden ? width : 0;
    hp->position_offset = 2;
    hp->common.norms.before = before;
    hp->common.norms.after = !before;
    all_dense(hp, describe_int(d, "ffn_dim", 4 * hp->hidden, 1, 1 << 22));
    for (int l = 0; l < hp->n_layers; l++)
        hp->layers[l].norms = hp->common.norms;
}

#define SHAPE(function)                                                              \
    .shape = {.mixer = {.rope = ROPE_NONE, .bias = true, .learned_positions = true}, \
              .ffn = {.activation = function, .bias = true},                         \
              .norms = {.kind = NORM_LAYER, .before = true}}

const struct family family_gpt2 = {
    .name = "gpt2",
    .gguf = {"gpt2"},
    .json = {"GPT2LMHeadModel", "gpt2"},
    SHAPE(ACTIVATION_GELU_PLAIN),
    .gguf_rope = ROPE_NONE,
    .keys = gpt2_keys,
    .tensors = gpt2_tensors,
    .layers = gpt2_layers,
    .renamed = gpt2_renamed,
    ROPE_NAMES,
    .tied_unsaid = true,
    .ignored = gpt2_ignored,
    .stops = gpt2_stops,
};

const struct family family_opt = {
    .name = "opt",
    .json = {"OPTForCausalLM", "opt"},
    SHAPE(ACTIVATION_RELU),
    .keys = opt_keys,
    .tensors = opt_tensors,
    .layers = opt_layers,
    ROPE_NAMES,
    .tied_unsaid = true,
    .stops = no_stops,
};
