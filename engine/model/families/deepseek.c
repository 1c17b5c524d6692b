/* Families deepseek_v2, deepseek_v3 (Kimi-K2 too) and glm4_moe_lite (GLM-4.7-Flash): latent
 * attention, the first layers dense; deepseek_v32 and glm_moe_dsa (GLM 5): the same over keys that
 * an indexer chooses, by modeling_deepseek_v32.py and modeling_glm_moe_dsa.py, whose layers may
 * share a choice; mistral4 (Mistral Small 4, 119B-A6B, text): the same with
 * softmax and queries that grow with their position, by modeling_mistral4.py; and deepseek
 * (DeepSeekMoE 16B), whose attention is Llama's, by its own modeling_deepseek.py and llama.cpp's
 * src/models/deepseek.cpp. Names after modeling_deepseek_v2.py, modeling_deepseek_v3.py and
 * modeling_glm4_moe_lite.py (Hugging Face) and llama.cpp's gguf-py/gguf/constants.py, where all of
 * them but mistral4 are deepseek2. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

#include <string.h>

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_LATENT,
    KEYS_END,
};

static const struct family_key v32_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_LATENT,
    KEYS_INDEXER(64),
    KEYS_END,
};

static const struct family_key glm_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_LATENT,
    KEYS_INDEXER(32),
    KEYS_END,
};

#define TYPES "indexer_types"

static const struct family_rename glm_renamed[] = {
    {TYPES, "attention.indexer.types"},
    {NULL, NULL},
};

#define PERIOD "rope_parameters.original_max_position_embeddings"

static const struct family_key mistral4_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_GROUPS,
    KEYS_LATENT,
    {FIELD(common.mixer.scale_growth), KEY_FLOAT, {"attention.temperature_scale"},
     {"rope_parameters.llama_4_scaling_beta"}, 0.0, 0.0, 1e3},
    KEYS_END,
};

static const struct family_rename mistral4_renamed[] = {
    {PERIOD, "rope.scaling.original_context_length"},
    {NULL, NULL},
};

static const struct family_tensor tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_LATENT,
    TENSORS_EXPERTS,
    TENSORS_ROUTER_BIAS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_MTP,
    TENSORS_END,
};

static const struct family_tensor sparse_tensors[] = {
    TENSORS_ENDS,
    TENSORS_NORMS,
    TENSORS_LATENT,
    TENSORS_INDEXER,
    TENSORS_EXPERTS,
    TENSORS_ROUTER_BIAS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_MTP,
    TENSORS_END,
};
/* clang-format on */

/* clang-format off */
static const struct family_key first_keys[] = {
    KEYS_COMMON,
    KEYS_EXPERTS("moe_intermediate_size"),
    KEYS_END,
};

static const struct family_tensor first_tensors[] = {
    TENSORS_ENDS,
    {TENSOR_ROPE_SHORT, false, {"rope_freqs.weight"}, {NULL}},
    TENSORS_NORMS,
    TENSORS_ATTENTION,
    TENSORS_EXPERTS,
    TENSORS_SHARED,
    TENSORS_DENSE,
    TENSORS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.layers.*.self_attn.rotary_emb.inv_freq", NULL};
static const char *const stops[] = {NULL};
static const char *const glm_stops[] = {"<|endoftext|>", "<|user|>", "<|observation|>", NULL};
/* Kimi-K2 ends a turn with <|im_end|>. */
static const char *const gguf_stops[] = {"<|endoftext|>", "<|user|>", "<|observation|>",
                                         "<|im_end|>", NULL};

/* Weights never sum to 1, whatever norm_topk_prob says: its code ignores it. */
static void v2_layers(struct hparams *hp, struct describer *d)
{
    bool groups = describe_is(d, "topk_method", "group_limited_greedy");

    describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++)
        if (!groups)
            hp->layers[l].ffn.router.groups = hp->layers[l].ffn.router.groups_used = 0;
}

#define GATING_SIGMOID 2 /* of llama.cpp's expert_gating_func; 1 is softmax */

/* Determines the family by its router. Files from before expert_gating_func are softmax, except
 * GLM-4.7-Flash (llama.cpp, src/models/deepseek2.cpp). A score bias exists if its tensor does. */
static void gguf_layers(struct hparams *hp, struct describer *d)
{
    struct meta_value gating = weight_file_meta(d->f, "deepseek2.expert_gating_func");
    bool flash = (hp->n_layers == 47 || hp->n_layers == 48) && hp->n_vocab == 154880;

    for (int l = 0; l < hp->n_layers; l++) {
        struct router_shape *r = &hp->layers[l].ffn.router;

        if (gating.type == META_INT ? gating.i == GATING_SIGMOID : flash)
            r->kind = ROUTER_SIGMOID;
        r->choice_bias = family_tensor(d->family, d->f, TENSOR_ROUTER_BIAS, l, 0, false) != NULL;
    }
}

/* Queries of the indexer come from the latent row of MLA's, and what is rotated of them has its
 * width. */
static void check_indexer(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape *m = &hp->common.mixer;

    if (!m->q_rank)
        describe_refuse(d, "it has no q_lora_rank, which its indexer's queries come from");
    if (m->index_dim % 16 || m->index_dim > 1024 || m->index_dim < m->rope_dims)
        describe_refuse(d,
                        "heads of %d values of its indexer (index_head_dim), %d of them rotated, "
                        "are not computed: a multiple of 16 up to 1024 is, not below what is "
                        "rotated",
                        m->index_dim, m->rope_dims);
    if (describe_flag(d, "indexer_rope_interleave", m->index_rope == ROPE_PAIRS) !=
        (m->index_rope == ROPE_PAIRS))
        describe_refuse(d, "indexer_rope_interleave of its config.json is not what its official "
                           "code computes");
}

/* Every layer has an indexer. GGUF files may lack the routing bias. */
static void v32_layers(struct hparams *hp, struct describer *d)
{
    check_indexer(hp, d);
    if (!describe_is_gguf(d))
        describe_latent(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        s->mixer.rope = ROPE_PAIRS; /* whatever config.json says: see describe_settings */
        if (describe_is_gguf(d) && s->ffn.kind == FFN_ROUTED)
            s->ffn.router.choice_bias = describe_has(d, TENSOR_ROUTER_BIAS, l);
    }
    hp->common.mixer.rope = ROPE_PAIRS;
}

/* Letter i of index_topk_pattern, "FSSS": a text, or a list of the words that indexer_types has.
 * 0: there is none. */
static char pattern_at(const struct describer *d, int i)
{
    struct meta_value v = family_config(d->f, "index_topk_pattern");

    if (v.type == META_ARRAY) {
        if ((size_t)i >= v.len)
            return '?';
        v = meta_at(&v, (size_t)i);
        return v.type != META_STRING                             ? '?'
               : v.len == 4 && memcmp(v.s, "full", v.len) == 0   ? 'F'
               : v.len == 6 && memcmp(v.s, "shared", v.len) == 0 ? 'S'
                                                                 : '?';
    }
    return v.type != META_STRING ? 0 : (size_t)i < v.len ? v.s[i] : '?';
}

/* Whether a layer has an indexer of its own: 'F', or 'S'; '?': config.json says neither. By a list,
 * a pattern, or every so often; in GGUF files without a list by its tensors. */
static char indexer_of(struct describer *d, int l)
{
    int every = describe_int(d, "index_topk_freq", 1, 0, 1024),
        from = l + 1 - describe_int(d, "index_skip_topk_offset", 2, 0, 1024);

    if (describe_is_gguf(d))
        return describe_int_at(d, TYPES, l, describe_has(d, TENSOR_INDEX_K, l)) ? 'F' : 'S';
    if (family_config(d->f, TYPES).type != META_NONE)
        return describe_listed(d, TYPES, l, "full")     ? 'F'
               : describe_listed(d, TYPES, l, "shared") ? 'S'
                                                        : '?';
    if (pattern_at(d, 0))
        return pattern_at(d, l);
    return from <= 0 || every <= 1 || from % every == 0 ? 'F' : 'S';
}

static void glm_layers(struct hparams *hp, struct describer *d)
{
    v32_layers(hp, d);
    for (int l = 0; l < hp->n_layers; l++) {
        char has = indexer_of(d, l);

        if (has != 'F' && has != 'S')
            describe_refuse(d,
                            "indexer_types or index_topk_pattern does not say whether layer %d "
                            "chooses keys of its own (full) or not (shared)",
                            l);
        if (has != 'S')
            continue;
        if (!l)
            describe_refuse(d, "layer 0 sees the keys that an earlier layer chooses "
                               "(indexer_types), and there is none");
        hp->layers[l].mixer.index_heads = hp->layers[l].mixer.index_dim = 0;
    }
}

/* Blocks for further tokens choose their keys themselves. */
static int glm_mtp_like(const struct hparams *hp, struct describer *d)
{
    int l = hp->n_layers - 1;

    while (l > 0 && !hp->layers[l].mixer.index_heads)
        l--;
    return l;
}

static void mistral4_layers(struct hparams *hp, struct describer *d)
{
    int period = describe_int(d, PERIOD, 0, 1, 1 << 27);

    if (!describe_is_gguf(d)) {
        describe_latent(hp, d);
        if (family_config(d->f, "rope_parameters.rope_theta").type == META_NONE)
            describe_refuse(d, "its config.json has no rope_parameters.rope_theta");
    }
    if (hp->common.mixer.scale_growth != 0.0f && !period)
        describe_refuse(d, "its queries grow with their position, but it does not say within how "
                           "many tokens (original_max_position_embeddings)");
    for (int l = 0; l < hp->n_layers; l++) {
        hp->layers[l].mixer.scale_period = period ? period : 1;
        if (hp->layers[l].ffn.router.groups > 1)
            describe_refuse(d,
                            "experts are chosen from groups (n_group), which is not computed for "
                            "mistral4");
    }
}

/* The arguments: how experts are chosen. */
#define OF_ALL(...)                                                                  \
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS, .latent_eps = 1e-6f}, \
              .ffn = {.router = {__VA_ARGS__}},                                      \
              .norms = {.kind = NORM_RMS, .before = true}},                          \
    .keys = keys, .tensors = tensors, ROPE_NAMES, .ignored = ignored

#define OF_FOLDERS .exported = true, .exported_as = &family_deepseek2

#define OF_V3                                                                            \
    OF_ALL(.kind = ROUTER_SIGMOID, .normalised = true, .choice_bias = true), OF_FOLDERS, \
        .extra_layers = true, .layers = describe_latent, .normalised = "norm_topk_prob"

const struct family family_deepseek_v2 = {
    .name = "deepseek_v2",
    .json = {"DeepseekV2ForCausalLM", "deepseek_v2"},
    OF_ALL(.kind = ROUTER_SOFTMAX),
    OF_FOLDERS,
    .layers = v2_layers,
    .stops = stops,
};

const struct family family_deepseek_v3 = {
    .name = "deepseek_v3",
    .json = {"DeepseekV3ForCausalLM", "deepseek_v3"},
    OF_V3,
    .stops = stops,
};

const struct family family_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .json = {"Glm4MoeLiteForCausalLM", "glm4_moe_lite"},
    OF_V3,
    .stops = glm_stops,
};

const struct family family_deepseek2 = {
    .name = "deepseek2",
    .gguf = {"deepseek2"},
    OF_ALL(.kind = ROUTER_SOFTMAX),
    .gguf_rope = ROPE_PAIRS,
    .extra_layers = true,
    .layers = gguf_layers,
    .stops = gguf_stops,
};

#define OF_SPARSE(turned)                                                                      \
    .shape = {.mixer = {.kind = MIXER_MLA,                                                     \
                        .rope = ROPE_PAIRS,                                                    \
                        .index_rope = turned,                                                  \
                        .latent_eps = 1e-6f},                                                  \
              .ffn = {.router = {.kind = ROUTER_SIGMOID,                                       \
                                 .normalised = true,                                           \
                                 .floor = 1e-20f,                                              \
                                 .choice_bias = true}},                                        \
              .norms = {.kind = NORM_RMS, .before = true}},                                    \
    .exported = true, .gguf_rope = ROPE_PAIRS, .tensors = sparse_tensors, .part_unsaid = 1.0f, \
    .extra_layers = true, .normalised = "norm_topk_prob", ROPE_NAMES, .ignored = ignored

const struct family family_deepseek_v32 = {
    .name = "deepseek_v32",
    .gguf = {"deepseek32"},
    .json = {"DeepseekV32ForCausalLM", "deepseek_v32"},
    OF_SPARSE(ROPE_HALVES),
    .keys = v32_keys,
    .layers = v32_layers,
    .stops = stops,
};

const struct family family_glm_moe_dsa = {
    .name = "glm_moe_dsa",
    .gguf = {"glm-dsa"},
    .json = {"GlmMoeDsaForCausalLM", "glm_moe_dsa"},
    OF_SPARSE(ROPE_PAIRS),
    .keys = glm_keys,
    .layers = glm_layers,
    .renamed = glm_renamed,
    .mtp_like = glm_mtp_like,
    .stops = glm_stops,
};

static const char *const towers[] = {"*vision_tower.*", "*multi_modal_projector.*", NULL};

const struct family family_mistral4 = {
    .name = "mistral4",
    .gguf = {"mistral4"},
    .exported = true,
    .gguf_fused = true,
    .json = {"Mistral4ForCausalLM", "mistral4"},
    .nested = "model.language_model.",
    .shape = {.mixer = {.kind = MIXER_MLA, .rope = ROPE_PAIRS, .latent_eps = 1e-6f},
              .ffn = {.router = {.kind = ROUTER_SOFTMAX, .normalised = true, .floor = 1e-20f}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = mistral4_keys,
    .tensors = tensors,
    .layers = mistral4_layers,
    .renamed = mistral4_renamed,
    .normalised = "norm_topk_prob",
    .part_unsaid =
        1.0f, /* config.json states which part of a head is rotated, as qk_rope_head_dim */
    ROPE_NAMES,
    .ignored = towers,
    .stops = stops,
};

/* Its converter has moved the rows of q and k so that pairs of neighbours are rotated. */
const struct family family_deepseek = {
    .name = "deepseek",
    .gguf = {"deepseek"},
    .exported = true,
    .json = {"DeepseekForCausalLM", "deepseek"},
    .shape = {.ffn = {.router = {.kind = ROUTER_SOFTMAX}},
              .norms = {.kind = NORM_RMS, .before = true}},
    .gguf_rope = ROPE_PAIRS,
    .keys = first_keys,
    .tensors = first_tensors,
    .normalised = "norm_topk_prob",
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
