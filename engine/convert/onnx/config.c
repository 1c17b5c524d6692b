/* See config.h. */
#include "engine/convert/onnx/config.h"

#include "engine/base/json.h"

#include <stdio.h>
#include <string.h>

/* Model types that onnxruntime-genai supports by name and runs alike; any other is exported as
 * "llama": the graph defines the computation. */
static const char *const genai_types[] = {"phimoe", "qwen3", "granite", "olmo", "mistral", "llama"};

bool onnx_config_possible(const struct hparams *hp)
{
    const struct mixer_shape *a = &hparams_layer(hp, 0)->mixer;

    for (int l = 1; l < hp->n_layers; l++) {
        const struct mixer_shape *b = &hparams_layer(hp, l)->mixer;

        if (b->kv_heads != a->kv_heads || b->key_dim != a->key_dim ||
            shape_value_dim(b) != a->key_dim)
            return false;
    }
    return true;
}

static json_t *stops_of(const struct hparams *hp)
{
    json_t *list = json_array();

    for (int i = 0; i < hp->n_stops; i++)
        json_array_append_new(list, json_integer(hp->stops[i]));
    if (!hp->n_stops)
        json_array_append_new(list, json_integer(hp->n_vocab - 1));
    return list;
}

static json_t *decoder(const struct hparams *hp)
{
    const struct mixer_shape *s = &hparams_layer(hp, 0)->mixer;

    /* clang-format off */
    return json_pack(
        "{s:{s:s, s:[]}, s:s, s:i, s:i, s:i, s:i, s:i,"
        " s:{s:s, s:s, s:s, s:s, s:s}, s:{s:s, s:s, s:s}}",
        "session_options", "log_id", "onnxruntime-genai", "provider_options", "filename",
        "model.onnx", "head_size", s->key_dim, "hidden_size", hp->hidden, "num_attention_heads",
        s->heads, "num_hidden_layers", hp->n_layers, "num_key_value_heads", s->kv_heads, "inputs",
        "input_ids", "input_ids", "attention_mask", "attention_mask", "position_ids",
        "position_ids", "past_key_names", "past_key_values.%d.key", "past_value_names",
        "past_key_values.%d.value", "outputs", "logits", "logits", "present_key_names",
        "present.%d.key", "present_value_names", "present.%d.value");
    /* clang-format on */
}

/* The source's model_type if genai supports it. */
static const char *genai_type(const struct model *m)
{
    for (size_t i = 0; i < sizeof genai_types / sizeof *genai_types; i++)
        if (strcmp(m->family, genai_types[i]) == 0)
            return genai_types[i];
    return "llama";
}

int onnx_config_genai(const struct model *m, const char *path, struct error *e)
{
    const struct hparams *hp = &m->hp;
    int stop = hp->n_stops ? hp->stops[0] : hp->n_vocab - 1;

    /* past_present_share_buffer is for com.microsoft.GroupQueryAttention alone */
    return json_write_file(json_pack("{s:{s:s, s:i, s:o, s:i, s:i, s:i, s:o},"
                                     " s:{s:b, s:i, s:i, s:b, s:i}}",
                                     "model", "type", genai_type(m), "bos_token_id",
                                     hp->bos >= 0 ? hp->bos : stop, "eos_token_id", stops_of(hp),
                                     "pad_token_id", stop, "context_length", hp->context_max,
                                     "vocab_size", hp->n_vocab, "decoder", decoder(hp), "search",
                                     "do_sample", 0, "max_length", hp->context_max, "num_beams", 1,
                                     "past_present_share_buffer", 0, "batch_size", 1),
                           path, JSON_INDENT(2), e);
}

int onnx_config_plain(const struct model *m, const char *path, struct error *e)
{
    const struct hparams *hp = &m->hp;
    const struct mixer_shape *s = &hparams_layer(hp, 0)->mixer;

    return json_write_file(json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:o}", "model_type",
                                     m->family, "vocab_size", hp->n_vocab, "hidden_size",
                                     hp->hidden, "num_hidden_layers", hp->n_layers,
                                     "num_attention_heads", s->heads, "num_key_value_heads",
                                     s->kv_heads, "head_dim", s->key_dim, "max_position_embeddings",
                                     hp->context_max, "eos_token_id", stops_of(hp)),
                           path, JSON_INDENT(2), e);
}
