/* Loads a tokenizer: tokenizer.json of a folder, its vocab.json and merges.txt if there is none, or
 * the tokenizer.ggml.* keys of a GGUF. One thread; the result is immutable. */
#include "engine/text/tokenizer.h"

#include "engine/base/mem.h"
#include "engine/text/tokenizer_build.h"

#include <string.h>

const char *tokenizer_notice(const struct tokenizer *t)
{
    return t->notice.text[0] ? t->notice.text : NULL;
}

int tokenizer_gguf_names(const struct tokenizer *t, const char **model, const char **pre,
                         size_t *pre_len, struct error *e)
{
    bool composed = t->n_steps == 1 && t->steps[0].op == NORMALIZE_NFC;
    unsigned flags = (composed ? PRE_NFC : 0) | (t->ignore_merges ? PRE_WHOLE : 0);

    if (t->scores)
        return error_set(
            e, ERR_MODEL,
            "a unigram tokenizer of tokenizer.json is not written to GGUF, which has no "
            "name for how it changes text");
    *model = t->byte_level ? "gpt2" : "llama";
    if (!t->byte_level) {
        *pre = PRE_TOKENIZER_DEFAULT;
        *pre_len = strlen(*pre);
        return 0;
    }
    *pre = t->prefix_space || t->n_steps > composed ? NULL
                                                    : pre_tokenizer_name(t->pre, flags, pre_len);
    return *pre ? 0
                : error_set(e, ERR_MODEL,
                            "GGUF has no name for how this tokenizer cuts text, so that a file "
                            "of it would be read otherwise");
}

int tokenizer_load(struct tokenizer **out, const struct weight_file *f, struct error *e)
{
    struct tokenizer *t = mem_alloc(1, sizeof *t);
    size_t size = 0;
    const void *json;
    int status;

    *out = NULL;
    if (!t)
        return build_no_memory(e);
    t->last = -1;
    if (weight_file_format(f) == WEIGHT_GGUF)
        status = tokenizer_load_gguf(t, f, e);
    else if ((json = weight_file_aux(f, TOKENIZER_JSON, &size)) != NULL) {
        status = tokenizer_load_json(t, json, size, e);
        if (status < 0)
            error_prefix(e, "%s", weight_file_path(f));
    } else if (weight_file_aux(f, "vocab.json", &size) && weight_file_aux(f, "merges.txt", &size)) {
        status = tokenizer_load_vocab(t, f, e);
        if (status < 0)
            error_prefix(e, "%s", weight_file_path(f));
    } else
        status = error_set(e, ERR_MODEL,
                           "%s: no " TOKENIZER_JSON
                           " there, so text cannot be read; copy it from where the model came from",
                           weight_file_path(f));
    if (status == 0)
        status = build_finish(t, e);
    if (status < 0) {
        tokenizer_free(t);
        return status;
    }
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    mem_free(t->pieces);
    mem_free(t->pool);
    mem_free(t->index);
    mem_free(t->merges);
    mem_free(t->added);
    mem_free(t->raw.nodes);
    mem_free(t->normal.nodes);
    for (int i = 0; i < t->n_steps; i++)
        pre_tokenizer_free(t->steps[i].pattern);
    mem_free(t->steps);
    charsmap_release(&t->charsmap);
    mem_free(t->scores);
    mem_free(t->words.nodes);
    pre_tokenizer_free(t->pre);
    mem_free(t);
}
