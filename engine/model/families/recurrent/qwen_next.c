/* Families qwen3_next, qwen3_5_moe and qwen3_5 (dense; alone, or within a model that sees): gated
 * delta nets, every few layers gated attention; qwen4_exp (Qwen3.8-Flash-Next): the same between
 * hyper-connections. Names after modeling_qwen3_next.py, modeling_qwen3_5_moe.py and
 * modeling_qwen4_exp.py (Hugging Face) and llama.cpp's gguf-py/gguf/constants.py. Constant data.
 */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_END,
};

#define NET HF "linear_attn."

#define MTP_TENSORS \
    TENSORS_MTP_NAMED("mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", \
                      "mtp.fc.weight", "mtp.norm.weight", "mtp.embed_tokens.weight", \
                      "mtp.lm_head.weight")

/* qwen3_next has z with q, k and v and a with b, a key head at a time */
#define TENSORS_OPERATORS(in, z, beta, old_beta, json_beta, a) \
    TENSORS_Q_K_V, \
    {TENSOR_O, TENSOR_BIAS | TENSOR_BY_MIXER, \
     {"blk.%l.attn_output.weight", "blk.%l.ssm_out.weight"}, \
     {HF "self_attn.o_proj.weight", NET "out_proj.weight"}}, \
    TENSORS_QK_NORM, \
    {TENSOR_MIX_IN, false, {"blk.%l.attn_qkv.weight", "blk.%l.ssm_in.weight"}, {in}}, \
    {TENSOR_MIX_Z, false, {"blk.%l.attn_gate.weight"}, {z}}, \
    {TENSOR_MIX_B, false, {beta, old_beta}, {json_beta}}, \
    {TENSOR_MIX_A, false, {"blk.%l.ssm_alpha.weight"}, {a}}, \
    {TENSOR_CONV, false, {"blk.%l.ssm_conv1d.weight"}, {NET "conv1d.weight"}}, \
    {TENSOR_DECAY, false, {"blk.%l.ssm_a"}, {NET "A_log"}}, \
    {TENSOR_DT_BIAS, false, {"blk.%l.ssm_dt.bias"}, {NET "dt_bias"}}, \
    {TENSOR_MIX_NORM, false, {"blk.%l.ssm_norm.weight"}, {NET "norm.weight"}}, \
    TENSORS_EXPERTS, \
    TENSORS_SHARED

#define TENSORS(...) \
    { \
        TENSORS_ENDS, \
        {TENSOR_ATTENTION_NORM, false, {"blk.%l.attn_norm.weight"}, \
         {HF "input_layernorm.weight"}}, \
        {TENSOR_EXPERT_NORM, false, {"blk.%l.post_attention_norm.weight"}, \
         {HF "post_attention_layernorm.weight"}}, \
        TENSORS_OPERATORS(__VA_ARGS__), \
        TENSORS_DENSE, \
        MTP_TENSORS, \
        TENSORS_END \
    }

static const struct family_key keys_4[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(streams), KEY_INT, {"hyper_connection.count"}, {"hc_count"}, 4, 2, HPARAMS_STREAMS_MOST},
    {FIELD(common.mixer.index_heads), KEY_INT, {"attention.indexer.head_count"},
     {"indexer_n_heads"}, 0, 1, 4096},
    {FIELD(common.mixer.index_dim), KEY_INT, {"attention.indexer.key_length"},
     {"indexer_head_dim"}, 0, 2, 4096},
    {FIELD(common.mixer.index_top), KEY_INT, {"attention.indexer.top_k"}, {"indexer_budget"},
     0, 1, 1 << 27},
    {FIELD(stream_rank), KEY_INT, {"hyper_connection.low_rank"}, {"hc_lowrank"}, 320, 1, 1 << 20},
    KEYS_END,
};

/* one place of hyper-connections, without what its output is weighted by */
#define TENSORS_GATED_STREAMS(role, gguf, json) \
    {role##_NORM, false, {gguf "norm.weight"}, {json "hc_norm.weight"}}, \
    {role##_DOWN, false, {gguf "down.weight"}, {json "input_mix_weight_down.weight"}}, \
    {role##_UP, false, {gguf "up.weight"}, {json "input_mix_weight_up.weight"}}

static const struct family_tensor tensors_4[] = {
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"}, {"model.embed_tokens.weight"}},
    {TENSOR_HEAD, true, {"output.weight"}, {"lm_head.weight"}},
    TENSORS_GATED_STREAMS(TENSOR_HYPER_MIXER, "blk.%l.hc_attn_", HF "attn_hyper_connection."),
    {TENSOR_HYPER_MIXER_MIX, false, {"blk.%l.hc_attn_inject.weight"},
     {HF "attn_hyper_connection.block_inject_weight.weight"}},
    TENSORS_GATED_STREAMS(TENSOR_HYPER_FFN, "blk.%l.hc_ffn_", HF "mlp_hyper_connection."),
    {TENSOR_HYPER_FFN_MIX, false, {"blk.%l.hc_ffn_inject.weight"},
     {HF "mlp_hyper_connection.block_inject_weight.weight"}},
    TENSORS_GATED_STREAMS(TENSOR_HYPER_END, "output_hc_", "model.hyper_connection_mixer."),
    TENSORS_OPERATORS(NET "in_proj_qkv.weight", NET "in_proj_z.weight", "blk.%l.ssm_beta.weight",
                      "blk.%l.ssm_ba.weight", NET "in_proj_b.weight", NET "in_proj_a.weight"),
    {TENSOR_NGRAM_TABLE, false, {"per_layer_token_embd.weight"},
     {HF "ple.ple_embedding.ngram_embedding.weight",
      HF "ple.ple_embedding.ngram_embedding.shard_%e.weight"}},
    {TENSOR_NGRAM_KEY, false, {"blk.%l.ple_key.weight"}, {HF "ple.key_proj.weight"}},
    {TENSOR_NGRAM_VALUE, false, {"blk.%l.ple_value.weight"}, {HF "ple.value_proj.weight"}},
    {TENSOR_NGRAM_KEY_NORM, false, {"blk.%l.ple_norm_key.weight"}, {HF "ple.norm_key.weight"}},
    {TENSOR_NGRAM_QUERY_NORM, false, {"blk.%l.ple_norm_query.weight"},
     {HF "ple.norm_query.weight"}},
    {TENSOR_NGRAM_CONV_NORM, false, {"blk.%l.ple_norm_conv.weight"}, {HF "ple.norm_conv.weight"}},
    {TENSOR_NGRAM_CONV, false, {"blk.%l.ple_conv1d.weight"}, {HF "ple.conv1d.weight"}},
    {TENSOR_NGRAM_MULTIPLIERS, false, {NULL}, {HF "ple.ple_embedding.layer_multipliers"}},
    {TENSOR_NGRAM_SIZES, false, {NULL}, {HF "ple.ple_embedding.ngram_heads_vocab_sizes"}},
    {TENSOR_NGRAM_OFFSETS, false, {NULL}, {HF "ple.ple_embedding.ngram_heads_offsets"}},
    {TENSOR_INDEX_QK, false, {NULL}, {HF "self_attn.indexer.index_qk_proj.weight"}},
    {TENSOR_INDEX_Q, false, {"blk.%l.indexer.q_proj.weight"}, {NULL}},
    {TENSOR_INDEX_K, false, {"blk.%l.indexer.k_proj.weight"}, {NULL}},
    {TENSOR_INDEX_Q_NORM, false, {"blk.%l.indexer.q_norm.weight"},
     {HF "self_attn.indexer.q_layernorm.weight"}},
    {TENSOR_INDEX_NORM, false, {"blk.%l.indexer.k_norm.weight"},
     {HF "self_attn.indexer.k_layernorm.weight"}},
    TENSORS_END,
};

static const struct family_tensor next_tensors[] =
    TENSORS(NET "in_proj_qkvz.weight", NULL, "blk.%l.ssm_ba.weight", "blk.%l.ssm_beta.weight",
            NET "in_proj_ba.weight", NULL);
static const struct family_tensor tensors[] =
    TENSORS(NET "in_proj_qkv.weight", NET "in_proj_z.weight", "blk.%l.ssm_beta.weight",
            "blk.%l.ssm_ba.weight", NET "in_proj_b.weight", NET "in_proj_a.weight");
/* clang-format on */

/* clang-format off */
#define RENAMED_NETS \
    {"linear_num_value_heads", "ssm.time_step_rank"}, \
    {"linear_num_key_heads", "ssm.group_count"}, \
    {"linear_key_head_dim", "ssm.state_size"}, \
    {"linear_conv_kernel_dim", "ssm.conv_kernel"}, \
    {"inner_size", "ssm.inner_size"}, \
    {"full_attention_interval", "full_attention_interval"}, \
    {"recurrent_layers", "attention.recurrent_layers"}
/* clang-format on */

static const struct family_rename renamed[] = {RENAMED_NETS, {NULL, NULL}};
static const struct family_rename renamed_4[] = {RENAMED_NETS,
                                                 {"indexer_compress_ratio",
                                                  "attention.compress_ratios"},
                                                 {"ple_layer_ids", "ple.layers"},
                                                 {"ngram_size", "ple.ngram_size"},
                                                 {"heads_per_ngram", "ple.heads_per_ngram"},
                                                 {"ple_conv_kernel_size", "ple.conv_kernel"},
                                                 {"ple_row", "embedding_length_per_layer_input"},
                                                 {"eos_token_id", "ple.eos_token_id"},
                                                 {NULL, NULL}};

static const char *const ignored[] = {"mtp.*", "model.visual.*", NULL};
static const char *const stops[] = {"<|im_end|>", "<|endoftext|>", NULL};

/* gguf_tiled: llama.cpp's converter reorders value heads (conversion/qwen.py, _reorder_v_heads). */
static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape net = {.kind = MIXER_DELTA_NET,
                                    .rope = ROPE_NONE,
                                    .heads = describe_int(d, "linear_num_value_heads", 0, 1, 4096),
                                    .kv_heads = describe_int(d, "linear_num_key_heads", 0, 1, 4096),
                                    .key_dim = describe_int(d, "linear_key_head_dim", 0, 1, 4096),
                                    .value_dim = describe_inner_dim(d, "linear_num_value_heads",
                                                                    "linear_value_head_dim"),
                                    .tiled = d->family->gguf_tiled && describe_is_gguf(d),
                                    .gated = true,
                                    .taps = describe_int(d, "linear_conv_kernel_dim", 4, 1, 16)};
    int interval = describe_int(d, "full_attention_interval", 4, 1, 1024);
    bool listed = describe_per_layer(d, hp, "layer_types");

    for (int l = 0; l < hp->n_layers; l++)
        if (listed ? describe_listed(d, "layer_types", l, "linear_attention")
                   : describe_int_at(d, "recurrent_layers", l, (l + 1) % interval != 0))
            hp->layers[l].mixer = net;
}

/* _QWEN35_DEFAULT_MROPE_SECTION of conversion/qwen.py; not used in computing here: all parts of a
 * text's position are the same. */
static const int sections[4] = {11, 11, 10, 0};

/* The n-grams of layers that have some; the end of a text is the first of its list. */
static struct ngram_shape ngrams(const struct hparams *hp, struct describer *d)
{
    struct ngram_shape s = {.size = describe_int(d, "ngram_size", 3, 2, NGRAM_SIZE_MOST),
                            .each = describe_int(d, "heads_per_ngram", 8, 1, NGRAM_HASHES_MOST),
                            .taps = describe_int(d, "ple_conv_kernel_size", 4, 1, NGRAM_TAPS_MOST),
                            .channels = hp->streams * hp->hidden,
                            .end = describe_int_at(d, "text_config.eos_token_id", 0, -1)};
    int n = ngram_hashes(&s);

    if (s.end < 0)
        s.end = describe_int_at(d, "eos_token_id", 0, -1);
    s.width = describe_is_gguf(d) ? n * describe_int(d, "ple_row", 0, 1, 1 << 16)
                                  : describe_int(d, "ple_embed_dim", hp->hidden, 1, 1 << 20);
    if (n > NGRAM_HASHES_MOST || s.width < n || s.width % n || s.width % 16)
        describe_refuse(d,
                        "%d hashes of its n-grams that give %d values (ple_embed_dim) are not "
                        "computed: up to %d are, of a multiple of their number and of 16",
                        n, s.width, NGRAM_HASHES_MOST);
    if (s.end < 0 || s.end >= hp->n_vocab)
        describe_refuse(d, "its n-grams need an end of text (eos_token_id) in its vocabulary");
    return s;
}

/* Counted from 1 in folders. */
static void set_ngrams(struct hparams *hp, struct describer *d)
{
    int from = describe_is_gguf(d) ? 0 : 1, layer, n = 0;

    while ((layer = describe_int_at(d, "ple_layer_ids", n, -1)) >= 0) {
        layer -= from;
        if (layer < 0) {
            describe_refuse(d, "ple_layer_ids of its config.json has a 0; it counts layers from 1");
            return;
        }
        if (layer >= hp->n_layers || !shape_recurrent(&hp->layers[layer].mixer)) {
            describe_refuse(d, "layer %d has n-grams (ple_layer_ids) and no delta net", layer);
            return;
        }
        hp->layers[layer].mixer.ngrams = ngrams(hp, d);
        n++;
    }
    if (n > 1 && describe_is_gguf(d))
        describe_refuse(d, "its file has one table for n-grams of %d layers (ple.layers)", n);
}

/* Of attention over chosen blocks of keys. */
static void set_blocks(struct mixer_shape *m, int layer, struct describer *d)
{
    m->index_ratio = describe_int_at(d, "indexer_compress_ratio", layer, 0);
    if (m->index_ratio < 1 || m->index_top % m->index_ratio)
        describe_refuse(d,
                        "blocks of %d keys (indexer_compress_ratio) do not divide the %d that a "
                        "token of layer %d sees (indexer_budget)",
                        m->index_ratio, m->index_top, layer);
    if (m->index_dim % 16 || m->index_dim > m->key_dim || m->index_dim < m->rope_dims)
        describe_refuse(d,
                        "heads of %d values of its indexer (indexer_head_dim), %d of them rotated, "
                        "are not computed: a multiple of 16 up to head_dim is, not below what is "
                        "rotated",
                        m->index_dim, m->rope_dims);
}

static void layers_4(struct hparams *hp, struct describer *d)
{
    static const char *const gates[] = {"sigmoid", "silu", NULL};
    bool sigmoid = describe_is_gguf(d) || describe_is(d, "output_gate_type", "sigmoid");

    layers(hp, d);
    describe_only(d, "output_gate_type", gates);
    if (hp->stream_rank % 16)
        describe_refuse(d, "hc_lowrank of %d is not computed: multiples of 16 are",
                        hp->stream_rank);
    for (int l = 0; l < hp->n_layers; l++)
        if (shape_recurrent(&hp->layers[l].mixer))
            hp->layers[l].mixer.gate_sigmoid = sigmoid;
        else
            set_blocks(&hp->layers[l].mixer, l, d);
    hp->stream_kind = STREAMS_GATED;
    set_ngrams(hp, d);
}

#define OF_ALL(normed)                                                         \
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .gated = true},               \
              .ffn = {.shared_gate = SHARED_SIGMOID,                           \
                      .router = {.kind = ROUTER_SOFTMAX, .normalised = true}}, \
              .norms = {.kind = NORM_RMS_ONE, .before = normed}},              \
    .part_unsaid = 0.25f, ROPE_NAMES, .ignored = ignored, .stops = stops

#define OF_NORMED                                                                         \
    OF_ALL(true), .exported = true, .keys = keys, .layers = layers, .extra_layers = true, \
                  .renamed = renamed, .mtp = "mtp.layers.%l.", .mtp_normed = true

#define OF_TILED .gguf_tiled = true, .gguf_sections = sections, .nested = "model.language_model."

#define OF_3_5 OF_NORMED, OF_TILED, .tensors = tensors

const struct family family_qwen3_next = {
    .name = "qwen3_next",
    .gguf = {"qwen3next"},
    .json = {"Qwen3NextForCausalLM", "qwen3_next"},
    .tensors = next_tensors,
    .normalised = "norm_topk_prob",
    OF_NORMED,
};

const struct family family_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .gguf = {"qwen35moe"},
    .json = {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM", "qwen3_5_moe",
             "qwen3_5_moe_text"},
    OF_3_5,
};

const struct family family_qwen3_5 = {
    .name = "qwen3_5",
    .gguf = {"qwen35"},
    .json = {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM", "qwen3_5", "qwen3_5_text"},
    OF_3_5,
};

const struct family family_qwen4_exp = {
    .name = "qwen4_exp",
    .gguf = {"qwen4exp"},
    .json = {"Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM", "qwen4_exp",
             "qwen4_exp_text"},
    OF_ALL(false),
    OF_TILED,
    .keys = keys_4,
    .tensors = tensors_4,
    .exported = true,
    .renamed = renamed_4,
    .layers = layers_4,
    .normalised = "norm_topk_prob",
};
