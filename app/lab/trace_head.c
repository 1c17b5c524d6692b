/* See routing_trace.h. */
#include "app/lab/routing_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const trace_by_words[] = {"router", "replay", "edited"};
const char *const trace_class_words[] = {"special", "space",  "word",
                                         "piece",   "number", "punctuation"};
const char *const trace_role_words[] = {"system", "user", "assistant", "tool", "text"};

const char *const trace_script_words[] = {"none",   "latin",  "greek",      "cyrillic",
                                          "hebrew", "arabic", "devanagari", "thai",
                                          "hangul", "kana",   "han",        "other"};
const char *const trace_stopword_words[] = {"none", "en", "de", "fr", "es", "it", "pt", "nl"};

struct trace_columns trace_columns(const struct trace_head *h)
{
    struct trace_columns c = {0};
    size_t at = 0;

#define X(NAME, word, kind, size, values)               \
    c.name[COLUMN_##NAME] = word;                       \
    c.type[COLUMN_##NAME] = kind;                       \
    c.bytes[COLUMN_##NAME] = (size_t)(size) * (values); \
    c.at[COLUMN_##NAME] = at;                           \
    at += c.bytes[COLUMN_##NAME];
    TRACE_COLUMNS(X)
#undef X
    c.record = (at + 7) / 8 * 8;
    return c;
}

json_t *trace_column_shape(const struct trace_head *h, enum trace_column c, uint64_t n)
{
    switch (c) {
    case COLUMN_WEIGHTS:
    case COLUMN_EXPERTS: return json_pack("[I, i, i]", (json_int_t)n, h->layers, h->slots);
    case COLUMN_BY:
        return h->version < 2 ? json_pack("[I]", (json_int_t)n)
                              : json_pack("[I, i]", (json_int_t)n, h->layers);
    case COLUMN_SCORES: return json_pack("[I, i, i]", (json_int_t)n, h->layers, h->experts);
    default: return json_pack("[I]", (json_int_t)n);
    }
}

static json_t *list_of(const uint16_t *v, int n)
{
    json_t *a = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_integer(v[i]));
    return a;
}

json_t *trace_head_json(const struct trace_head *h)
{
    char hash[20];

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)h->hash);
    return json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:b, s:b}", "moetop_routing",
                     h->version, "model", h->model, "model_hash", hash, "layers", h->layers,
                     "experts", h->experts, "slots", h->slots, "routed",
                     list_of(h->routed, h->layers), "used", list_of(h->used, h->layers), "scores",
                     h->scores, "logprobs", h->logprobs);
}

static int int_of(const json_t *o, const char *key, int most)
{
    const json_t *v = json_object_get(o, key);

    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= most
               ? (int)json_integer_value(v)
               : 0;
}

static bool read_list(const json_t *o, const char *key, uint16_t *out, int n, int most)
{
    const json_t *a = json_object_get(o, key);

    if (json_array_size(a) != (size_t)n)
        return false;
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);

        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > most)
            return false;
        out[i] = (uint16_t)json_integer_value(v);
    }
    return true;
}

int trace_head_read(struct trace_head *h, const json_t *o, const char *name, struct error *e)
{
    const char *model = json_string_value(json_object_get(o, "model")),
               *hash = json_string_value(json_object_get(o, "model_hash"));
    const json_t *version = json_object_get(o, "moetop_routing");

    memset(h, 0, sizeof *h);
    if (!json_is_integer(version))
        return error_set(e, ERR_INPUT, "%s: no routing trace: --routing-trace writes them", name);
    if (json_integer_value(version) < 1 || json_integer_value(version) > TRACE_VERSION)
        return error_set(e, ERR_INPUT,
                         "%s: a routing trace of version %lld; this program reads 1 to %d", name,
                         (long long)json_integer_value(version), TRACE_VERSION);
    h->version = (int)json_integer_value(version);
    h->layers = int_of(o, "layers", TRACE_LAYERS);
    h->experts = int_of(o, "experts", TRACE_EXPERTS);
    h->slots = int_of(o, "slots", TRACE_SLOTS);
    h->scores = json_is_true(json_object_get(o, "scores"));
    h->logprobs = h->version > 1 && json_is_true(json_object_get(o, "logprobs"));
    snprintf(h->model, sizeof h->model, "%s", model ? model : "");
    h->hash = hash ? strtoull(hash, NULL, 16) : 0;
    if (!h->layers || !h->experts || !h->slots ||
        !read_list(o, "routed", h->routed, h->layers, h->experts) ||
        !read_list(o, "used", h->used, h->layers, h->slots))
        return error_set(e, ERR_INPUT,
                         "%s: damaged: its head has no sizes of a model that make sense", name);
    for (int l = 0; l < h->layers; l++)
        if (h->used[l] > h->routed[l])
            return error_set(e, ERR_INPUT, "%s: damaged: layer %d uses %d of %d experts", name, l,
                             h->used[l], h->routed[l]);
    return 0;
}

int trace_head_match(const struct trace_head *a, const char *a_name, const struct trace_head *b,
                     const char *b_name, struct error *e)
{
    if (a->layers != b->layers || a->experts != b->experts)
        return error_set(e, ERR_INPUT, "%s is of %d layers of %d experts, %s of %d of %d", a_name,
                         a->layers, a->experts, b_name, b->layers, b->experts);
    for (int l = 0; l < a->layers; l++)
        if (a->used[l] != b->used[l] || a->routed[l] != b->routed[l])
            return error_set(e, ERR_INPUT, "%s uses %d of %d experts in layer %d, %s %d of %d",
                             a_name, a->used[l], a->routed[l], l, b_name, b->used[l], b->routed[l]);
    return 0;
}
