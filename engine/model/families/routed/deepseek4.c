/* Family deepseek_v4 (DeepSeek-V4): attention to a window and to compressed keys, experts that in
 * the first layers follow from the token, several residual streams. By modeling_deepseek_v4.py and
 * configuration_deepseek_v4.py (transformers); names also as its authors' checkpoints have them
 * (transformers' conversion_mapping.py), and of llama.cpp's src/models/deepseek4.cpp. Constant
 * data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#define OWN "layers.%l."         /* the authors' checkpoints */
#define SAVED "model.layers.%l." /* transformers' save_pretrained, with the authors' words */
#define FURTHER "mtp.%l."        /* the authors' block that predicts further tokens */

/* clang-format off */
static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_hidden_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"},
     64, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"},
     1, 1, 1},
    {FIELD(common.mixer.key_dim), KEY_INT, {"attention.key_length"}, {"head_dim"}, 512, 2, 1024},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    {FIELD(context_max), KEY_INT, {"context_length"}, {"max_position_embeddings"},
     1048576, 1, 1 << 27},
    {FIELD(common.mixer.rope_dims), KEY_INT, {"rope.dimension_count"}, {"qk_rope_head_dim"},
     0, 2, 1024},
    {FIELD(rope_theta), KEY_FLOAT, {"attention.compress_rope_freq_base"},
     {"rope_parameters.compress.rope_theta", "compress_rope_theta"}, 160000.0, 1.0, 1e12},
    {FIELD(second_rope.theta), KEY_FLOAT, {"rope.freq_base"},
     {"rope_parameters.main.rope_theta", "rope_theta"}, 10000.0, 1.0, 1e12},
    {FIELD(common.norms.eps), KEY_FLOAT, {"attention.layer_norm_rms_epsilon"}, {"rms_norm_eps"},
     1e-6, 1e-30, 1.0},
    {FIELD(common.mixer.window), KEY_INT, {"attention.sliding_window"}, {"sliding_window"},
     128, 1, 1 << 27},
    {FIELD(common.mixer.q_rank), KEY_INT, {"attention.q_lora_rank"}, {"q_lora_rank"},
     1024, 1, 1 << 20},
    {FIELD(common.mixer.out_groups), KEY_INT, {"attention.output_group_count"}, {"o_groups"},
     8, 1, 4096},
    {FIELD(common.mixer.out_rank), KEY_INT, {"attention.output_lora_rank"}, {"o_lora_rank"},
     1024, 1, 1 << 20},
    {FIELD(common.mixer.index_heads), KEY_INT, {"attention.indexer.head_count"},
     {"index_n_heads"}, 64, 1, 4096},
    {FIELD(common.mixer.index_dim), KEY_INT, {"attention.indexer.key_length"},
     {"index_head_dim"}, 128, 2, 1024},
    {FIELD(common.mixer.index_top), KEY_INT, {"attention.indexer.top_k"}, {"index_topk"},
     512, 1, 1 << 27},
    {FIELD(streams), KEY_INT, {"hyper_connection.count"}, {"hc_mult"},
     4, 2, HPARAMS_STREAMS_MOST},
    {FIELD(stream_rounds), KEY_INT, {"hyper_connection.sinkhorn_iterations"},
     {"hc_sinkhorn_iters"}, 20, 1, 1000},
    {FIELD(stream_eps), KEY_FLOAT, {"hyper_connection.epsilon"}, {"hc_eps"}, 1e-6, 0.0, 1.0},
    KEYS_EXPERTS("moe_intermediate_size"),
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"routed_scaling_factor"}, 1.5, 1e-6, 1e6},
    KEYS_END,
};

#define RATIOS "compress_ratios"
#define CLAMPS "swiglu_clamp_exp"

static const struct family_rename renamed[] = {
    {RATIOS, "attention.compress_ratios"},
    {CLAMPS, CLAMPS},
    {"num_hash_layers", "hash_layer_count"},
    {"expert_gating_func", "expert_gating_func"},
    {NULL, NULL},
};

#define ATTENTION(name, theirs, ours) \
    {name}, {HF "self_attn." ours, OWN "attn." theirs, SAVED "attn." theirs}

#define STREAMS(role, part, of) \
    {TENSOR_HYPER_##role##_MIX, false, {"blk.%l.hc_" part "_fn.weight"}, \
     {HF of ".fn", OWN "hc_" part "_fn", SAVED "hc_" part "_fn"}}, \
    {TENSOR_HYPER_##role##_BASE, false, {"blk.%l.hc_" part "_base.weight"}, \
     {HF of ".base", OWN "hc_" part "_base", SAVED "hc_" part "_base"}}, \
    {TENSOR_HYPER_##role##_SCALE, false, {"blk.%l.hc_" part "_scale.weight"}, \
     {HF of ".scale", OWN "hc_" part "_scale", SAVED "hc_" part "_scale"}}

static const struct family_tensor tensors[] = {
    STREAMS(MIXER, "attn", "attn_hc"),
    STREAMS(FFN, "ffn", "ffn_hc"),
    {TENSOR_HYPER_END_MIX, false, {"output_hc_fn.weight"}, {"model.hc_head.hc_fn", "hc_head_fn"}},
    {TENSOR_HYPER_END_BASE, false, {"output_hc_base.weight"},
     {"model.hc_head.hc_base", "hc_head_base"}},
    {TENSOR_HYPER_END_SCALE, false, {"output_hc_scale.weight"},
     {"model.hc_head.hc_scale", "hc_head_scale"}},
    {TENSOR_EMBEDDINGS, false, {"token_embd.weight"},
     {"model.embed_tokens.weight", "embed.weight"}},
    {TENSOR_OUTPUT_NORM, true, {"output_norm.weight"}, {"model.norm.weight", "norm.weight"}},
    {TENSOR_HEAD, true, {"output.weight"}, {"lm_head.weight", "head.weight"}},
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"},
     {HF "input_layernorm.weight", OWN "attn_norm.weight", SAVED "attn_norm.weight"}},
    {TENSOR_EXPERT_NORM, true, {"blk.%l.ffn_norm.weight"},
     {HF "post_attention_layernorm.weight", OWN "ffn_norm.weight", SAVED "ffn_norm.weight"}},
    {TENSOR_Q_A, false, ATTENTION("blk.%l.attn_q_a.weight", "wq_a.weight", "q_a_proj.weight")},
    {TENSOR_Q_A_NORM, false,
     ATTENTION("blk.%l.attn_q_a_norm.weight", "q_norm.weight", "q_a_norm.weight")},
    {TENSOR_Q_B, false, ATTENTION("blk.%l.attn_q_b.weight", "wq_b.weight", "q_b_proj.weight")},
    {TENSOR_KV_A, false, ATTENTION("blk.%l.attn_kv.weight", "wkv.weight", "kv_proj.weight")},
    {TENSOR_KV_A_NORM, false, {"blk.%l.attn_kv_a_norm.weight"},
     {HF "self_attn.kv_norm.weight", OWN "attn.kv_norm.weight", SAVED "attn.norm.weight",
      SAVED "attn.kv_norm.weight"}},
    {TENSOR_O_A, false, ATTENTION("blk.%l.attn_output_a.weight", "wo_a.weight", "o_a_proj.weight")},
    {TENSOR_O, false, ATTENTION("blk.%l.attn_output_b.weight", "wo_b.weight", "o_b_proj.weight")},
    {TENSOR_SINKS, false, ATTENTION("blk.%l.attn_sinks.weight", "attn_sink", "sinks")},
    {TENSOR_COMPRESS_KEYS, false,
     ATTENTION("blk.%l.attn_compressor_kv.weight", "compressor.wkv.weight",
               "compressor.kv_proj.weight")},
    {TENSOR_COMPRESS_GATES, false,
     ATTENTION("blk.%l.attn_compressor_gate.weight", "compressor.wgate.weight",
               "compressor.gate_proj.weight")},
    {TENSOR_COMPRESS_BIAS, false,
     ATTENTION("blk.%l.attn_compressor_ape.weight", "compressor.ape", "compressor.position_bias")},
    {TENSOR_COMPRESS_NORM, false,
     ATTENTION("blk.%l.attn_compressor_norm.weight", "compressor.norm.weight",
               "compressor.kv_norm.weight")},
    {TENSOR_INDEX_Q, false,
     ATTENTION("blk.%l.indexer.attn_q_b.weight", "indexer.wq_b.weight",
               "compressor.indexer.q_b_proj.weight")},
    {TENSOR_INDEX_WEIGHTS, false,
     ATTENTION("blk.%l.indexer.proj.weight", "indexer.weights_proj.weight",
               "compressor.indexer.scorer.weights_proj.weight")},
    {TENSOR_INDEX_K, false,
     ATTENTION("blk.%l.indexer_compressor_kv.weight", "indexer.compressor.wkv.weight",
               "compressor.indexer.kv_proj.weight")},
    {TENSOR_INDEX_GATE, false,
     ATTENTION("blk.%l.indexer_compressor_gate.weight", "indexer.compressor.wgate.weight",
               "compressor.indexer.gate_proj.weight")},
    {TENSOR_INDEX_BIAS, false,
     ATTENTION("blk.%l.indexer_compressor_ape.weight", "indexer.compressor.ape",
               "compressor.indexer.position_bias")},
    {TENSOR_INDEX_NORM, false,
     ATTENTION("blk.%l.indexer_compressor_norm.weight", "indexer.compressor.norm.weight",
               "compressor.indexer.kv_norm.weight")},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"},
     {HF "mlp.gate.weight", OWN "ffn.gate.weight", SAVED "ffn.gate.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {HF "mlp.gate.e_score_correction_bias", OWN "ffn.gate.bias", SAVED "ffn.gate.bias"}},
    {TENSOR_TOKEN_EXPERTS, false, {"blk.%l.ffn_gate_tid2eid.weight"},
     {HF "mlp.gate.tid2eid", OWN "ffn.gate.tid2eid", SAVED "ffn.gate.tid2eid"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"},
     {OWN "ffn.experts.%e.w1.weight", SAVED "ffn.experts.%e.w1.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"},
     {OWN "ffn.experts.%e.w3.weight", SAVED "ffn.experts.%e.w3.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"},
     {OWN "ffn.experts.%e.w2.weight", SAVED "ffn.experts.%e.w2.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"}, {NULL}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {NULL}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"}, {HF "mlp.experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {"blk.%l.ffn_gate_up_exps.weight"}, {HF "mlp.experts.gate_up_proj"}},
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate_shexp.weight"},
     {HF "mlp.shared_experts.gate_proj.weight", OWN "ffn.shared_experts.w1.weight",
      SAVED "ffn.shared_experts.w1.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up_shexp.weight"},
     {HF "mlp.shared_experts.up_proj.weight", OWN "ffn.shared_experts.w3.weight",
      SAVED "ffn.shared_experts.w3.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down_shexp.weight"},
     {HF "mlp.shared_experts.down_proj.weight", OWN "ffn.shared_experts.w2.weight",
      SAVED "ffn.shared_experts.w2.weight"}},
    {TENSOR_MTP_EMBEDDING_NORM, false, {"blk.%l.nextn.enorm.weight"}, {FURTHER "enorm.weight"}},
    {TENSOR_MTP_HIDDEN_NORM, false, {"blk.%l.nextn.hnorm.weight"}, {FURTHER "hnorm.weight"}},
    {TENSOR_MTP_JOIN, false, {"blk.%l.nextn.eh_proj.weight"}, {NULL}},
    {TENSOR_MTP_JOIN_EMBEDDING, false, {NULL}, {FURTHER "e_proj.weight"}},
    {TENSOR_MTP_JOIN_STATE, false, {NULL}, {FURTHER "h_proj.weight"}},
    {TENSOR_MTP_NORM, false, {"blk.%l.nextn.shared_head_norm.weight"}, {FURTHER "norm.weight"}},
    {TENSOR_MTP_EMBEDDINGS, false, {"blk.%l.nextn.embed_tokens.weight"}, {NULL}},
    {TENSOR_MTP_HEAD, false, {"blk.%l.nextn.shared_head_head.weight"}, {NULL}},
    /* llama.cpp has no names for these: in its own files of such a block they are the model's */
    {TENSOR_MTP_END_MIX, false, {"blk.%l.nextn.hc_head_fn.weight"}, {FURTHER "hc_head_fn"}},
    {TENSOR_MTP_END_BASE, false, {"blk.%l.nextn.hc_head_base.weight"}, {FURTHER "hc_head_base"}},
    {TENSOR_MTP_END_SCALE, false, {"blk.%l.nextn.hc_head_scale.weight"},
     {FURTHER "hc_head_scale"}},
    TENSORS_END,
};
/* clang-format on */

/* as its official code does */
static const char *const ignored[] = {"mtp.*", "model.mtp.*", NULL};
static const char *const stops[] = {NULL};

#define GATING_ROOT 4 /* llama.cpp's expert_gating_func; 2 is sigmoid */

#define CSA "compressed_sparse_attention"
#define HCA "heavily_compressed_attention"

/* Whether config.json has this list, of as many layers at least: there may be MTP's. */
static bool lists(struct describer *d, const struct hparams *hp, const char *name)
{
    struct meta_value v = family_config(d->f, name);

    if (v.type == META_NONE)
        return false;
    if (v.type != META_ARRAY)
        describe_refuse(d, "%s of its config.json is not a list", name);
    else if (v.len < (size_t)hp->n_layers)
        describe_refuse(d, "%s of its config.json lists %zu layers; it has %d", name, v.len,
                        hp->n_layers);
    return true;
}

/* Tokens of a block, of either kind of layer. */
static int rate(struct describer *d, bool overlap)
{
    int n = describe_int(d, overlap ? "compress_rates." CSA : "compress_rates." HCA,
                         overlap ? 4 : 128, 2, 1024);

    if (family_config(d->f, "compress_rates").type != META_NONE)
        describe_refuse(d, "compress_rates of its config.json does not name kinds of layers");
    return describe_int(d, overlap ? "compress_rate_csa" : "compress_rate_hca", n, 2, 1024);
}

enum sight { SEES_WINDOW, SEES_CHOSEN, SEES_ALL };

/* What a layer of a folder sees. config.json names its kind, or, where layer_types is not there,
 * gives numbers that stand for kinds, 4 and 128; by default two of the latter, and then both in
 * turn. */
static enum sight sight(struct describer *d, const struct hparams *hp, int l)
{
    static const char *const kinds[] = {"sliding_attention", CSA, HCA};
    static const int ratios[] = {0, 4, 128};
    bool named = lists(d, hp, "layer_types"), numbered = !named && lists(d, hp, RATIOS);
    int ratio = describe_int_at(d, RATIOS, l, -1);

    if (!named && !numbered)
        return l >= 2 && l % 2 ? SEES_CHOSEN : SEES_ALL;
    for (int i = SEES_WINDOW; i <= SEES_ALL; i++)
        if (named ? describe_listed(d, "layer_types", l, kinds[i]) : ratio == ratios[i])
            return (enum sight)i;
    describe_refuse(d, "%s of its config.json does not say what layer %d sees: %s",
                    named ? "layer_types" : RATIOS, l,
                    named ? "sliding_attention, " CSA " or " HCA : "0, 4 or 128");
    return SEES_WINDOW;
}

/* The same of a GGUF file, which has the tokens of a block. */
static enum sight sight_of_file(struct describer *d, int l, int ratio)
{
    if (ratio < 0)
        describe_refuse(d, "its attention.compress_ratios does not say what layer %d sees", l);
    return ratio <= 0 ? SEES_WINDOW : describe_has(d, TENSOR_INDEX_K, l) ? SEES_CHOSEN : SEES_ALL;
}

/* Sets what a layer sees besides its window. */
static void compress(struct mixer_shape *m, const struct hparams *hp, struct describer *d, int l)
{
    bool gguf = describe_is_gguf(d);
    int ratio = describe_int_at(d, RATIOS, l, -1);
    enum sight sees = gguf ? sight_of_file(d, l, ratio) : sight(d, hp, l);

    m->overlap = sees == SEES_CHOSEN;
    m->second_rope = sees == SEES_WINDOW;
    m->block = m->second_rope ? 0 : gguf ? ratio : rate(d, m->overlap);
    if (m->block == 1 || m->block > 1024)
        describe_refuse(d, "layer %d has a key for %d tokens, which is not computed", l, m->block);
    if (!m->overlap)
        m->index_heads = m->index_dim = m->index_top = 0;
}

/* Whether a layer's experts follow from the token: GGUF by its tensors. */
static bool by_token(struct describer *d, const struct hparams *hp, int l)
{
    if (describe_is_gguf(d))
        return describe_has(d, TENSOR_TOKEN_EXPERTS, l);
    if (!lists(d, hp, "mlp_layer_types"))
        return l < describe_int(d, "num_hash_layers", 3, 0, 1024);
    if (describe_listed(d, "mlp_layer_types", l, "hash_moe"))
        return true;
    if (!describe_listed(d, "mlp_layer_types", l, "moe"))
        describe_refuse(d,
                        "mlp_layer_types of its config.json does not say how layer %d's experts "
                        "are chosen: hash_moe or moe",
                        l);
    return false;
}

/* What a layer sees of a window alone. */
static void see_window(struct mixer_shape *m)
{
    m->overlap = false;
    m->second_rope = true;
    m->block = m->index_heads = m->index_dim = m->index_top = 0;
}

static float clamp_of(struct describer *d, int l)
{
    float limit = (float)describe_number_at(d, CLAMPS, l,
                                            (double)describe_float(d, "swiglu_limit", 10.0f));

    if (!(limit > 0.0f && limit < 1e6f))
        describe_refuse(d, "the clamp of layer %d's experts is not above 0", l);
    return limit;
}

/* The block that predicts further tokens (llama.cpp, graph_mtp): lists of numbers have it after the
 * layers. */
static void mtp_layer(const struct hparams *hp, struct layer_shape *s, struct describer *d)
{
    bool numbered = describe_is_gguf(d) || family_config(d->f, "layer_types").type == META_NONE;

    if (numbered && describe_int_at(d, RATIOS, hp->n_layers, 0))
        describe_refuse(d, "its block that predicts further tokens has compressed keys, which is "
                           "not computed");
    see_window(&s->mixer);
    s->ffn.router.by_token = false;
    s->ffn.router.choice_bias = true;
    s->ffn.limit = clamp_of(d, hp->n_layers);
}

static void check_heads(const struct hparams *hp, struct describer *d)
{
    const struct mixer_shape *m = &hp->common.mixer;

    if (m->key_dim % 16 || m->rope_dims < 2 || m->rope_dims % 2 || m->rope_dims > m->key_dim)
        describe_refuse(d,
                        "heads of %d values, %d of them rotated, are not computed: a multiple of "
                        "16, and an even number of them",
                        m->key_dim, m->rope_dims);
    if (m->index_dim % 16 || m->index_dim < m->rope_dims)
        describe_refuse(d,
                        "heads of %d values of its indexer (index_head_dim), %d of them rotated, "
                        "are not computed: a multiple of 16 is, not below what is rotated",
                        m->index_dim, m->rope_dims);
    if (m->heads % m->out_groups)
        describe_refuse(d, "%d heads make no %d groups (o_groups)", m->heads, m->out_groups);
}

#define MAIN_TYPE "rope_parameters.main.rope_type"

/* Cosines and sines of YaRN are as they are unless config.json says otherwise: GGUF files mean the
 * same and say nothing. */
static void settle_rope(struct hparams *hp, struct describer *d)
{
    bool nested = family_config(d->f, "rope_parameters.compress.rope_theta").type != META_NONE;
    float part = describe_float(d, "rope_parameters.compress.partial_rotary_factor", 0.0f);

    if (describe_is_gguf(d) || !nested)
        hp->short_mscale = hp->long_mscale =
            describe_float(d, "rope_parameters.attention_factor",
                           describe_float(d, "rope_scaling.attention_factor", 1.0f));
    if (part != 0.0f && (int)((float)hp->common.mixer.key_dim * part) != hp->common.mixer.rope_dims)
        describe_refuse(d, "rope_parameters.compress rotates another part of a head than the rest "
                           "of its config.json says");
    if (family_config(d->f, MAIN_TYPE).type != META_NONE && !describe_is(d, MAIN_TYPE, "default"))
        describe_refuse(d, MAIN_TYPE " of its config.json is not \"default\", which layers without "
                                     "compressed keys are computed with");
    hp->second_rope.dims = hp->second_rope.of = hp->common.mixer.rope_dims;
}

static void layers(struct hparams *hp, struct describer *d)
{
    bool sigmoid = describe_is(d, "scoring_func", "sigmoid") ||
                   describe_int(d, "expert_gating_func", GATING_ROOT, 2, GATING_ROOT) == 2;

    check_heads(hp, d);
    settle_rope(hp, d);
    hp->stream_kind = STREAMS_MIXED;
    hp->common.mixer.latent_eps = hp->common.norms.eps;
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];
        struct router_shape *r = &s->ffn.router;

        s->mixer = hp->common.mixer;
        compress(&s->mixer, hp, d, l);
        r->kind = sigmoid ? ROUTER_SIGMOID : ROUTER_ROOT;
        r->normalised = true;
        r->by_token = by_token(d, hp, l);
        r->choice_bias = !r->by_token;
        s->ffn.limit = clamp_of(d, l);
    }
}

const struct family family_deepseek_v4 = {
    .name = "deepseek_v4",
    .gguf = {"deepseek4"},
    .exported = true,
    .json = {"DeepseekV4ForCausalLM", "deepseek_v4"},
    .shape = {.mixer = {.kind = MIXER_COMPRESSED,
                        .rope = ROPE_PAIRS,
                        .index_rope = ROPE_PAIRS,
                        .sinks = true},
              .ffn = {.activation = ACTIVATION_CLAMPED_SILU,
                      .router = {.kind = ROUTER_ROOT, .normalised = true, .floor = 1e-20f}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .extra_layers = true,
    .mtp = FURTHER,
    .mtp_spelt_last = true,
    .mtp_layer = mtp_layer,
    .renamed = renamed,
    .part_unsaid = 0.125f,
    .rope_kind = {"rope_parameters.compress.rope_type", "rope_scaling.rope_type",
                  "rope_scaling.type", "rope_parameters.rope_type"},
    .tied = "tie_word_embeddings",
    .ignored = ignored,
    .stops = stops,
};
