/* See rerank_prompt.h. */
#include "app/serve/request/rerank_prompt.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/file/weights.h"
#include "engine/model/model.h"

#include <string.h>

#define QUERY "{query}"
#define DOCUMENT "{document}"

bool rerank_template_is(const char *text, size_t n)
{
    return memmem(text, n, QUERY, strlen(QUERY)) && memmem(text, n, DOCUMENT, strlen(DOCUMENT));
}

/* The id of a word that is one token; -1: it is none. */
static int word(const struct tokenizer *t, const char *text)
{
    int *ids = NULL, n = 0, id = -1;

    if (tokenizer_encode(t, text, strlen(text), false, &ids, &n, NULL) == 0 && n == 1)
        id = ids[0];
    mem_free(ids);
    return id;
}

int rerank_of(const struct job *j, struct rerank *out, struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    struct meta_value v = weight_file_meta(info->model->file, "tokenizer.chat_template.rerank");
    const char *given = j->server->rerank_template;

    *out = (struct rerank){.text = given ? given : v.type == META_STRING ? v.s : NULL};
    out->n = given ? strlen(given) : v.len;
    if (!out->text || !rerank_template_is(out->text, out->n))
        return refuse(r, 400, "unsupported_model", "model",
                      "'%.200s' has no template for reranking (tokenizer.chat_template.rerank); "
                      "--rerank-template-file gives it one",
                      j->server->model_id);
    out->yes = word(info->tokenizer, "yes");
    out->no = word(info->tokenizer, "no");
    if (out->yes >= 0 && out->no >= 0 && out->yes < info->model->hp.n_vocab &&
        out->no < info->model->hp.n_vocab)
        return 0;
    return refuse(r, 400, "unsupported_model", "model",
                  "'%.200s' cannot rerank: \"yes\" and \"no\" are not one token each",
                  j->server->model_id);
}

/* The template with its texts, and a mask of what is theirs. */
struct filled {
    struct strbuf text, plain;
};

static void put(struct filled *f, const char *text, size_t n, bool plain)
{
    strbuf_put(&f->text, text, n);
    for (size_t i = 0; i < n; i++)
        strbuf_putc(&f->plain, (char)plain);
}

static void put_json(struct filled *f, const json_t *v)
{
    put(f, json_string_value(v), json_string_length(v), true);
}

static void fill(struct filled *f, const struct rerank *k, const json_t *query,
                 const json_t *document)
{
    const char *at = k->text, *end = k->text + k->n;

    while (at < end) {
        size_t left = (size_t)(end - at);

        if (left >= strlen(QUERY) && memcmp(at, QUERY, strlen(QUERY)) == 0) {
            put_json(f, query);
            at += strlen(QUERY);
        } else if (left >= strlen(DOCUMENT) && memcmp(at, DOCUMENT, strlen(DOCUMENT)) == 0) {
            put_json(f, document);
            at += strlen(DOCUMENT);
        } else {
            put(f, at++, 1, false);
        }
    }
}

int rerank_prompt(const struct job *j, const struct rerank *k, const json_t *query,
                  const json_t *document, struct prompt *p, struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    struct stop stop = exchange_stop(j->x);
    struct error e = {0};
    struct filled f = {0};
    int rc = 0;

    fill(&f, k, query, document);
    if (f.text.failed || f.plain.failed)
        rc = refuse(r, 503, "out_of_memory", NULL, "out of memory for the prompt");
    else if (tokenizer_encode_masked(info->tokenizer, f.text.data, f.text.len, true,
                                     (const unsigned char *)f.plain.data, &stop, &p->ids, &p->n,
                                     NULL, &e) < 0)
        rc = refuse_error(r, &e);
    else if (p->n >= info->context)
        rc = refuse(r, 400, "context_length_exceeded", "documents",
                    "this model's maximum context length is exceeded: with the query a document "
                    "has %d tokens, the context %d",
                    p->n, info->context);
    strbuf_release(&f.text);
    strbuf_release(&f.plain);
    return rc;
}
