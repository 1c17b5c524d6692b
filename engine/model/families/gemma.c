/* Family gemma4 (26B-A4B): windows, some layers that see all with heads of their own, a dense
 * feed-forward beside the experts, norms before and after. Names after modeling_gemma4.py (Hugging
 * Face). Described, not computed. Constant data. */
#include "engine/model/describe.h"
#include "engine/model/families/families.h"
#include "engine/model/families/rows.h"

/* clang-format off */
static const struct family_key keys[] = {
    KEYS_COMMON,
    {FIELD(common.ffn.experts), KEY_INT, {NULL}, {"num_experts"}, 0, 0, 512},
    {FIELD(common.ffn.used), KEY_INT, {NULL}, {"top_k_experts"}, 0, 0, 16},
    {FIELD(common.ffn.width), KEY_INT, {NULL}, {"moe_intermediate_size"}, 0, 1, 1 << 20},
    {FIELD(common.mixer.window), KEY_INT, {NULL}, {"sliding_window"}, 0, 0, 1 << 27},
    {FIELD(rope_theta), KEY_FLOAT, {NULL}, {"rope_parameters.sliding_attention.rope_theta"},
     10000.0, 1.0, 1e12},
    KEYS_END,
};
/* clang-format on */

static const char *const ignored[] = {"model.visual.*",       "model.vision_tower.*",
                                      "model.embed_vision.*", "model.audio_tower.*",
                                      "model.embed_audio.*",  NULL};
static const char *const stops[] = {"<turn|>", NULL};

/* A layer that sees all: its own heads, and a part of their pairs rotated. */
static struct mixer_shape whole(const struct hparams *hp, struct describer *d)
{
    struct mixer_shape m = hp->common.mixer;
    float part = describe_float(d, "rope_parameters.full_attention.partial_rotary_factor", 1.0f);

    m.window = 0;
    m.key_dim = m.value_dim = describe_int(d, "global_head_dim", m.key_dim, 2, 4096);
    m.values_are_keys = describe_flag(d, "attention_k_eq_v", false);
    if (m.values_are_keys)
        m.kv_heads = describe_int(d, "num_global_key_value_heads", m.kv_heads, 1, 4096);
    m.rope = ROPE_PROPORTIONAL;
    m.rope_dims = part > 0.0f && part <= 1.0f ? (int)((float)m.key_dim * part) : m.key_dim;
    return m;
}

static void layers(struct hparams *hp, struct describer *d)
{
    const struct mixer_shape all = whole(hp, d);
    int dense = describe_int(d, "intermediate_size", 0, 1, 1 << 20);

    if (!describe_per_layer(d, hp, "layer_types"))
        describe_refuse(d, "its config.json has no layer_types");
    for (int l = 0; l < hp->n_layers; l++) {
        struct layer_shape *s = &hp->layers[l];

        if (describe_listed(d, "layer_types", l, "full_attention"))
            s->mixer = all;
        if (s->ffn.kind != FFN_ROUTED)
            continue;
        s->ffn.kind = FFN_DENSE_AND_ROUTED;
        describe_shared(&s->ffn, dense);
    }
}

const struct family family_gemma4 = {
    .name = "gemma4",
    .json = {"Gemma4ForConditionalGeneration", "Gemma4ForCausalLM", "gemma4", "gemma4_text"},
    .shape = {.mixer = {.qk_norm = QK_NORM_HEAD, .scale = 1.0f},
              .ffn = {.activation = ACTIVATION_GELU,
                      .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
              .norms = {.kind = NORM_RMS, .before = true, .after = true}},
    .keys = keys,
    .layers = layers,
    ROPE_NAMES,
    .ignored = ignored,
    .stops = stops,
};
