/* Family longcat_flash (LongCat-Flash, 560B-A27B): latent attention whose rows are scaled,
 * identities among the experts, and shortcut-connected experts. A layer of its folders is two of
 * ours: each has latent attention and a dense part, and the first one's routed experts enter the
 * stream at the end of the second one. By modeling_longcat_flash.py (transformers) and
 * arXiv:2509.01322. GGUF files number layers as we do, with the names of llama.cpp's deepseek2 and
 * expert_zero_count, as in the open llama.cpp pull request 19182. The block that predicts further
 * tokens, a layer without experts, is read as vLLM's longcat_flash_mtp.py and SGLang's
 * longcat_flash_nextn.py read it, who give it the model's own embeddings and head. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <math.h>

#define PARTS 2
#define FIRST "model.layers.%f."
#define EACH "model.layers.%p."

/* clang-format off */
/* of each part, and of the block that predicts further tokens, which has one */
#define NORM_OF(name) {EACH name ".%s.weight", HF name ".weight"}
#define ATTENTION_OF(name) {EACH "self_attn.%s." name ".weight", HF "self_attn." name ".weight"}
#define DENSE_OF(name) \
    {EACH "mlps.%s." name ".weight", HF "transformer_layer.mlp." name ".weight"}

static const struct family_key keys[] = {
    {FIELD(n_layers), KEY_INT, {"block_count"}, {"num_layers"}, 0, 1, 1024},
    {FIELD(hidden), KEY_INT, {"embedding_length"}, {"hidden_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.heads), KEY_INT, {"attention.head_count"}, {"num_attention_heads"},
     0, 1, 4096},
    {FIELD(common.mixer.kv_heads), KEY_INT, {"attention.head_count_kv"}, {"num_key_value_heads"},
     0, 1, 4096},
    {FIELD(n_vocab), KEY_INT, {"vocab_size"}, {"vocab_size"}, 0, 1, 1 << 24},
    KEYS_POSITIONS,
    KEYS_EPS,
    {FIELD(common.ffn.experts), KEY_INT, {"expert_count"}, {"n_routed_experts"}, 0, 1, 512},
    {FIELD(common.ffn.used), KEY_INT, {"expert_used_count"}, {"moe_topk"}, 0, 1, 15},
    {FIELD(common.ffn.width), KEY_INT, {"expert_feed_forward_length"}, {"expert_ffn_hidden_size"},
     0, 1, 1 << 20},
    {FIELD(common.ffn.router.identities), KEY_INT, {"expert_zero_count"}, {"zero_expert_num"},
     0, 0, 512},
    {FIELD(common.ffn.router.factor), KEY_FLOAT, {"expert_weights_scale"},
     {"routed_scaling_factor"}, 1.0, 1e-6, 1e6},
    KEYS_LATENT,
    KEYS_END,
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ATTENTION_NORM, true, {"blk.%l.attn_norm.weight"}, NORM_OF("input_layernorm")},
    {TENSOR_EXPERT_NORM, true, {"blk.%l.ffn_norm.weight"},
     NORM_OF("post_attention_layernorm")},
    {TENSOR_Q_A, true, {"blk.%l.attn_q_a.weight"}, ATTENTION_OF("q_a_proj")},
    {TENSOR_Q_A_NORM, false, {"blk.%l.attn_q_a_norm.weight"},
     ATTENTION_OF("q_a_layernorm")},
    {TENSOR_Q_B, false, {"blk.%l.attn_q_b.weight"}, ATTENTION_OF("q_b_proj")},
    {TENSOR_KV_A, true, {"blk.%l.attn_kv_a_mqa.weight"},
     ATTENTION_OF("kv_a_proj_with_mqa")},
    {TENSOR_KV_A_NORM, false, {"blk.%l.attn_kv_a_norm.weight"},
     ATTENTION_OF("kv_a_layernorm")},
    {TENSOR_KV_B, false, {"blk.%l.attn_kv_b.weight"}, ATTENTION_OF("kv_b_proj")},
    {TENSOR_K_B, false, {"blk.%l.attn_k_b.weight"}, {NULL}},
    {TENSOR_V_B, false, {"blk.%l.attn_v_b.weight"}, {NULL}},
    {TENSOR_O, true, {"blk.%l.attn_output.weight"}, ATTENTION_OF("o_proj")},
    {TENSOR_ROUTER, false, {"blk.%l.ffn_gate_inp.weight"}, {FIRST "mlp.router.classifier.weight"}},
    {TENSOR_ROUTER_BIAS, false, {"blk.%l.exp_probs_b.bias", "blk.%l.exp_probs_b"},
     {FIRST "mlp.router.e_score_correction_bias"}},
    {TENSOR_GATE, false, {"blk.%l.ffn_gate.%e.weight"}, {FIRST "mlp.experts.%e.gate_proj.weight"}},
    {TENSOR_UP, false, {"blk.%l.ffn_up.%e.weight"}, {FIRST "mlp.experts.%e.up_proj.weight"}},
    {TENSOR_DOWN, false, {"blk.%l.ffn_down.%e.weight"}, {FIRST "mlp.experts.%e.down_proj.weight"}},
    {TENSOR_GATES, false, {"blk.%l.ffn_gate_exps.weight"},
     {FIRST "mlp.switch_mlp.gate_proj.weight"}},
    {TENSOR_UPS, false, {"blk.%l.ffn_up_exps.weight"}, {FIRST "mlp.switch_mlp.up_proj.weight"}},
    {TENSOR_DOWNS, false, {"blk.%l.ffn_down_exps.weight"},
     {FIRST "mlp.switch_mlp.down_proj.weight", FIRST "mlp.experts.down_proj"}},
    {TENSOR_GATE_UPS, false, {NULL}, {FIRST "mlp.experts.gate_up_proj"}},
    /* the dense part: where there are experts, the one that is always used */
    {TENSOR_SHARED_GATE, false, {"blk.%l.ffn_gate.weight"}, {FIRST "mlps.%s.gate_proj.weight"}},
    {TENSOR_SHARED_UP, false, {"blk.%l.ffn_up.weight"}, {FIRST "mlps.%s.up_proj.weight"}},
    {TENSOR_SHARED_DOWN, false, {"blk.%l.ffn_down.weight"}, {FIRST "mlps.%s.down_proj.weight"}},
    {TENSOR_DENSE_GATE, false, {"blk.%l.ffn_gate.weight"}, DENSE_OF("gate_proj")},
    {TENSOR_DENSE_UP, false, {"blk.%l.ffn_up.weight"}, DENSE_OF("up_proj")},
    {TENSOR_DENSE_DOWN, false, {"blk.%l.ffn_down.weight"}, DENSE_OF("down_proj")},
    {TENSOR_MTP_EMBEDDING_NORM, false, {"blk.%l.nextn.enorm.weight"}, {HF "enorm.m.weight"}},
    {TENSOR_MTP_HIDDEN_NORM, false, {"blk.%l.nextn.hnorm.weight"}, {HF "hnorm.m.weight"}},
    {TENSOR_MTP_JOIN, false, {"blk.%l.nextn.eh_proj.weight"}, {HF "eh_proj.weight"}},
    {TENSOR_MTP_NORM, false, {"blk.%l.nextn.shared_head_norm.weight"}, {"model.mtp.norm.weight"}},
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.mtp.*", NULL};
static const char *const stops[] = {"</longcat_s>", NULL};
/* of LongCat-Flash-Lite, whose embeddings are sums with those of hashed n-grams */
static const char *const unsupported[] = {"ngram_vocab_size_ratio", "emb_neighbor_num",
                                          "emb_split_num", NULL};

/* Settings of the published config.json that the official code does not read: as published. */
static void check_settings(const struct hparams *hp, struct describer *d)
{
    static const char *const identity[] = {"identity", NULL}, *const silu[] = {"silu", NULL},
                             *const latent[] = {"MLA", NULL};
    static const char *const scales[] = {"mla_scale_q_lora", "mla_scale_kv_lora"};
    const struct mixer_shape *m = &hp->common.mixer;

    describe_only(d, "zero_expert_type", identity);
    describe_only(d, "attention_method", latent);
    describe_only(d, "hidden_act", silu);
    describe_never(d, "router_bias");
    describe_never(d, "norm_topk_prob");
    describe_only_number(d, "head_dim", m->rope_dims);
    describe_only_number(d, "qk_head_dim", m->key_dim);
    describe_only_number(d, "num_key_value_heads", m->heads);
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        if (!describe_flag(d, scales[i], true))
            describe_refuse(d, "%s of its config.json is false, which is not computed", scales[i]);
}

/* The latent rows are multiplied by the root of how much narrower they are than the stream. What q
 * is multiplied by, scores are. */
static void scale_latents(const struct hparams *hp, struct mixer_shape *m)
{
    double scale = m->scale > 0.0f ? (double)m->scale : 1.0 / sqrt((double)m->key_dim);

    m->scale = (float)(scale * sqrt((double)hp->hidden / m->q_rank));
    m->latent_factor = (float)sqrt((double)hp->hidden / m->kv_rank);
}

static void layers(struct hparams *hp, struct describer *d)
{
    int width = describe_int(d, "ffn_hidden_size", 0, 1, 1 << 20);

    if (!describe_is_gguf(d))
        describe_latent(hp, d);
    if (!hp->common.mixer.q_rank)
        describe_refuse(d, "its metadata does not give q_lora_rank");
    if (hp->n_layers % PARTS)
        describe_refuse(d,
                        "%d layers do not make pairs, of which the second adds what the first "
                        "one's experts give",
                        hp->n_layers);
    if (d->rc)
        return;
    check_settings(hp, d);
    for (int l = 0; l < hp->n_layers && !d->rc; l++) {
        struct layer_shape *s = &hp->layers[l];
        bool first = l % PARTS == 0;

        scale_latents(hp, &s->mixer);
        if (!describe_has(d, TENSOR_ATTENTION_NORM, l)) {
            if (first)
                describe_shared(&s->ffn, width);
            else
                describe_dense(&s->ffn, width);
        }
        if ((s->ffn.kind == FFN_ROUTED) != first || s->ffn.shared != 1)
            describe_refuse(d, "layer %d has %s experts beside its dense part", l,
                            first ? "no" : "routed");
        s->shortcut = first ? SHORTCUT_LEAVES : SHORTCUT_ENTERS;
        if (!first)
            s->ffn.router = (struct router_shape){0};
    }
    hp->common.mixer = hp->layers[0].mixer;
}

const struct family family_longcat_flash = {
    .name = "longcat_flash",
    .gguf = {"longcat-flash"},
    .exported = true,
    .json = {"LongcatFlashForCausalLM", "longcat_flash", "LongcatFlashNgramForCausalLM",
             "longcat_flash_ngram"},
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS, .latent_eps = 1e-6f},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .choice_bias = true}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .parts = PARTS,
    .extra_layers = true,
    .mtp = "model.mtp.layers.%l.",
    .mtp_normed = true,
    .keys = keys,
    .tensors = tensors,
    .layers = layers,
    .theta_unsaid = 1e7f,
    ROPE_NAMES,
    .unsupported = unsupported,
    .ignored = ignored,
    .stops = stops,
};
