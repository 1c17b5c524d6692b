/* See receipt.h. */
#include "app/setup/receipt.h"

#include "app/common/paths.h"
#include "app/common/signals.h"
#include "engine/base/mem.h"
#include "engine/file/weights_digest.h"
#include "engine/model/model.h"

#include <string.h>

/* Options that affect the text, besides all of the sampling. Threads, placement, kernels, chunks
 * and drafts do not. */
static const enum option_id decisive[] = {
    OPTION_ID_dtype,
    OPTION_ID_exact,
    OPTION_ID_float_gemm,
    OPTION_ID_cache_type_k,
    OPTION_ID_cache_type_v,
    OPTION_ID_override_kv,
    OPTION_ID_rope_scaling,
    OPTION_ID_rope_scale,
    OPTION_ID_rope_freq_scale,
    OPTION_ID_rope_freq_base,
    OPTION_ID_yarn_orig_ctx,
    OPTION_ID_yarn_beta_slow,
    OPTION_ID_yarn_beta_fast,
    OPTION_ID_lora,
    OPTION_ID_lora_scaled,
    OPTION_ID_expert_edit,
    OPTION_ID_control_vector,
    OPTION_ID_control_vector_scaled,
    OPTION_ID_control_vector_layer_range,
    OPTION_ID_defer_experts,
    OPTION_ID_experts_used,
    OPTION_ID_experts_weight,
    OPTION_ID_spec_accept,
    OPTION_ID_spec_synth_rates,
    OPTION_ID_chat_template,
    OPTION_ID_chat_template_file,
    OPTION_ID_chat_template_kwargs,
    OPTION_ID_reasoning,
    OPTION_ID_grammar,
    OPTION_ID_grammar_file,
    OPTION_ID_json_schema,
    OPTION_ID_json_schema_file,
    OPTION_ID_n_predict,
    OPTION_ID_ignore_eos,
    OPTION_ID_stop,
};

/* Those of them that are set anew for each answer, besides all of the sampling. */
static const enum option_id of_turn[] = {
    OPTION_ID_n_predict,        OPTION_ID_ignore_eos,   OPTION_ID_stop,
    OPTION_ID_grammar,          OPTION_ID_grammar_file, OPTION_ID_json_schema,
    OPTION_ID_json_schema_file,
};

static bool listed(const struct option *option, const enum option_id *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (option == &option_table[ids[i]])
            return true;
    return option->group == GROUP_SAMPLING;
}

static bool decides(const struct option *option)
{
    return listed(option, decisive, sizeof decisive / sizeof *decisive);
}

/* ---- collecting ---- */

void receipt_text_note(struct receipt_text *t, const struct event *ev)
{
    if (ev->kind != EVENT_TOKEN)
        return;
    strbuf_put(&t->text, ev->token.text, ev->token.len);
    t->failed |= t->text.failed;
    if (ev->token.id < 0)
        return;
    if (!MEM_ROOM(t->ids, t->n, t->room, 256)) {
        t->failed = true;
        return;
    }
    t->ids[t->n++] = ev->token.id;
}

void receipt_text_clear(struct receipt_text *t)
{
    strbuf_clear(&t->text);
    t->n = 0;
    t->failed = false;
}

void receipt_text_release(struct receipt_text *t)
{
    mem_free(t->ids);
    strbuf_release(&t->text);
    *t = (struct receipt_text){0};
}

/* ---- hashes ---- */

void receipt_hash_text(const char *text, size_t n, char hex[DIGEST_HEX])
{
    struct digest d;

    digest_init(&d, DIGEST_SHA256, n);
    digest_add(&d, text, n);
    digest_end(&d, hex);
    digest_release(&d);
}

void receipt_hash_ids(const int *ids, int n, char hex[DIGEST_HEX])
{
    struct digest d;

    digest_init(&d, DIGEST_SHA256, 4 * (uint64_t)n);
    for (int i = 0; i < n; i++) {
        uint32_t id = (uint32_t)ids[i];
        uint8_t bytes[4] = {(uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16),
                            (uint8_t)(id >> 24)};

        digest_add(&d, bytes, sizeof bytes);
    }
    digest_end(&d, hex);
    digest_release(&d);
}

#define TOLD ((uint64_t)256 << 20) /* smaller weights are hashed quickly: no note */

static void tell_hashing(void *ctx)
{
    (void)ctx;
    fprintf(stderr, "moetop: the model's bytes are hashed for the receipt, once\n");
}

static bool interrupted(void *ctx)
{
    (void)ctx;
    return signals_last() != 0;
}

int receipt_model(const struct options *o, const struct engine_info *info, char hex[DIGEST_HEX],
                  struct error *e)
{
    const struct stop stop = {interrupted, NULL};
    const struct model *m = info->model;
    bool told = m->packed_bytes + m->mapped_bytes >= TOLD;

    return weights_digest(m->file, paths_cache(o->cache_dir), told ? tell_hashing : NULL, NULL,
                          &stop, hex, e);
}

/* ---- writing ---- */

static json_t *option_json(const struct options *o, const struct option *option)
{
    const void *field = (const char *)o + option->offset;
    json_t *list;
    char value[4096];

    if (option->type == OPTION_TEXT || option->type == OPTION_PATH)
        return json_string(*(char *const *)field);
    if (option->type != OPTION_LIST) {
        option_value(o, option, value, sizeof value);
        return json_string(value);
    }
    list = json_array();
    for (size_t i = 0; i < ((const struct option_list *)field)->n; i++)
        json_array_append_new(list, json_string(((const struct option_list *)field)->items[i]));
    return list;
}

/* Absent texts and empty lists are omitted. */
json_t *receipt_settings_now(const struct options *o, const struct engine_info *info, uint64_t seed)
{
    json_t *all = json_object();
    char text[32];

    for (int i = 0; i < OPTION_COUNT; i++) {
        json_t *v = decides(&option_table[i]) ? option_json(o, &option_table[i]) : NULL;

        if (v && (!json_is_array(v) || json_array_size(v)))
            json_object_set(all, option_table[i].name, v);
        json_decref(v);
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    json_object_set_new(all, option_table[OPTION_ID_seed].name, json_string(text));
    snprintf(text, sizeof text, "%d", info->context);
    json_object_set_new(all, option_table[OPTION_ID_ctx_size].name, json_string(text));
    return all;
}

json_t *receipt_messages(const struct message *messages, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++) {
        const struct message *m = &messages[i];
        json_t *x = json_pack("{s:s, s:s}", "role", role_word(m->role), "content", m->text);

        if (m->reasoning)
            json_object_set_new(x, "reasoning_content", json_string(m->reasoning));
        json_array_append_new(all, x);
    }
    return all;
}

static json_t *request_json(const struct receipt_of *r)
{
    static const char *const said[] = {"id", "prompt", "messages", "system", "raw"};
    json_t *all = r->line ? json_copy((json_t *)(uintptr_t)r->line) : json_object();

    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        json_object_del(all, said[i]);
    if (!r->said)
        return all;
    if (r->said->raw) {
        json_object_set_new(all, "prompt",
                            json_string(r->said->messages[r->said->n_messages - 1].text));
        json_object_set_new(all, "raw", json_true());
    } else {
        json_object_set_new(all, "messages",
                            receipt_messages(r->said->messages, r->said->n_messages));
    }
    return all;
}

json_t *receipt_ids(const int *ids, int n)
{
    json_t *all = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(all, json_integer(ids[i]));
    return all;
}

int receipt_make(const struct receipt_of *r, json_t **out, struct error *e)
{
    const struct engine_info *info = r->info;
    const struct receipt_text *a = r->answer;
    char ids[DIGEST_HEX], text[DIGEST_HEX];

    receipt_hash_ids(a->ids, a->n, ids);
    receipt_hash_text(strbuf_text(&a->text), a->text.len, text);
    *out =
        a->failed || !r->settings
            ? NULL
            : json_pack("{s:i, s:s, s:s, s:s*, s:O, s:o, s:o, s:o, s:s, s:s, s:s, s:i, s:s, s:i}",
                        "moetop_receipt", 1, "moetop", MOETOP_VERSION, "model",
                        weight_file_path(info->model->file), "model_sha256", r->model_sha256,
                        "settings", r->settings, "request", request_json(r), "prompt_tokens",
                        receipt_ids(r->prompt, r->n_prompt), "tokens", receipt_ids(a->ids, a->n),
                        "tokens_sha256", ids, "text_sha256", text, "plan", r->plan, "threads",
                        info->n_threads, "kernels", info->kernels, "sessions", r->sessions);
    return *out ? 0 : error_set(e, ERR_MEMORY, "out of memory for the receipt of the answer");
}

/* ---- reading ---- */

static int set_one(struct options *o, const struct option *option, const json_t *v,
                   const char *name, struct error *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        const char *text = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);

        rc = text ? options_set(o, option, text, ORIGIN_CHAT, name, e)
                  : error_set(e, ERR_INPUT, "%s: setting %s is no text", name, option->name);
    }
    if (rc < 0 && e)
        e->code = ERR_INPUT;
    return rc < 0 ? ERR_INPUT : 0;
}

int receipt_settings(struct options *o, const json_t *receipt, const char *name, struct error *e)
{
    json_t *settings = json_object_get(receipt, "settings"), *v;
    const char *key;
    int rc = 0;

    /* options missing from the receipt had their defaults */
    for (int i = 0; i < OPTION_COUNT && rc == 0; i++)
        if (decides(&option_table[i]))
            rc = options_unset(o, &option_table[i], e);
    json_object_foreach(settings, key, v)
    {
        const struct option *option = options_find(key);

        if (rc < 0)
            break;
        if (!option || !(decides(option) || option == &option_table[OPTION_ID_ctx_size]))
            rc = error_set(e, ERR_INPUT, "%s: '%.60s' is no setting of a receipt", name, key);
        else
            rc = set_one(o, option, v, name, e);
    }
    return rc;
}

/* The settings of a receipt that an engine is opened with. */
static json_t *engine_settings(const json_t *receipt)
{
    json_t *all = json_copy(json_object_get(receipt, "settings"));

    for (int i = 0; i < OPTION_COUNT; i++)
        if (listed(&option_table[i], of_turn, sizeof of_turn / sizeof *of_turn))
            json_object_del(all, option_table[i].name);
    return all;
}

bool receipt_same_engine(const json_t *a, const json_t *b)
{
    json_t *x = engine_settings(a), *y = engine_settings(b);
    bool same = json_equal(x, y) &&
                json_equal(json_object_get(a, "model"), json_object_get(b, "model"));

    json_decref(x);
    json_decref(y);
    return same;
}
