/* Reads vocab.json and merges.txt of folders without a tokenizer.json, by converting them to an
 * equivalent one. How text is split is in no file there; it is defined by the class that
 * tokenizer_config.json names. One thread. */
#include "engine/text/tokenizer_build.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Classes of transformers and the row of pre_tokenizers.h that splits alike. */
static const struct {
    const char *name, *pre;
} classes[] = {
    {"GPT2Tokenizer", "gpt-2"},
    {"GPT2TokenizerFast", "gpt-2"},
    {"Qwen2Tokenizer", "qwen2"},
    {"Qwen2TokenizerFast", "qwen2"},
};

static json_t *parse(const struct weight_file *f, const char *name, struct error *e)
{
    size_t size;
    const void *data = weight_file_aux(f, name, &size);

    return data ? json_read(data, size, name, e) : NULL;
}

/* One merge per line; the first line may be a version. NULL: no memory, or invalid UTF-8. */
static json_t *read_merge_lines(const char *text, size_t len)
{
    json_t *list = json_array();

    for (size_t i = 0, n; list && i < len; i += n + 1) {
        const char *end = memchr(text + i, '\n', len - i);
        size_t line;

        n = end ? (size_t)(end - text) - i : len - i;
        line = n && text[i + n - 1] == '\r' ? n - 1 : n;
        if (line == 0 || (i == 0 && line > 8 && memcmp(text, "#version", 8) == 0))
            continue;
        if (json_array_append_new(list, json_stringn(text + i, line)) < 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

/* "added_tokens_decoder": {"151643": {"content": ..., "special": true, ...}} as tokenizer.json
 * lists it. */
static json_t *read_added_tokens(const json_t *config)
{
    json_t *list = json_array(), *value;
    const char *key;

    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, value)
    {
        char *end;
        long id = strtol(key, &end, 10);
        json_t *token = json_copy(value);

        if (*end || id < 0 || id >= TOKENIZER_MAX_IDS ||
            json_object_set_new(token, "id", json_integer(id)) < 0 ||
            json_array_append(list, token) < 0) {
            json_decref(token);
            json_decref(list);
            return NULL;
        }
        json_decref(token);
    }
    return list;
}

static int set_class(struct tokenizer *t, const json_t *config, unsigned *flags, struct error *e)
{
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));

    for (size_t i = 0; name && i < sizeof classes / sizeof *classes; i++)
        if (strcmp(name, classes[i].name) == 0) {
            t->byte_level = true;
            return pre_tokenizer_add_named(&t->pre, classes[i].pre, strlen(classes[i].pre), flags,
                                           e);
        }
    return error_set(e, ERR_MODEL,
                     "vocab.json and merges.txt do not say how the class '%.40s' cuts text; copy "
                     "tokenizer.json from where the model came from",
                     name ? name : "(none is named)");
}

int tokenizer_load_vocab(struct tokenizer *t, const struct weight_file *f, struct error *e)
{
    struct error why = {0};
    size_t size;
    const char *merges = weight_file_aux(f, "merges.txt", &size);
    json_t *config = parse(f, "tokenizer_config.json", &why), *root = NULL;
    json_t *vocab = parse(f, "vocab.json", e);
    unsigned flags = 0;
    int status = vocab ? set_class(t, config, &flags, e) : ERR_MODEL;

    if (status == 0) {
        json_t *list = read_merge_lines(merges, size), *added = read_added_tokens(config);

        if (list && added)
            root = json_pack("{s:{s:s, s:O, s:O}, s:O}", "model", "type", "BPE", "vocab", vocab,
                             "merges", list, "added_tokens", added);
        json_decref(list);
        json_decref(added);
        status = root ? tokenizer_load_root(t, root, e)
                      : error_set(e, ERR_MODEL,
                                  "merges.txt or added_tokens_decoder (tokenizer_config.json) is "
                                  "damaged");
    }
    if (status == 0 && (flags & PRE_NFC))
        status = build_step(t, NORMALIZE_NFC, "", "", e);
    json_decref(root);
    json_decref(vocab);
    json_decref(config);
    return status;
}
