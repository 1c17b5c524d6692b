/* See logprobs_json.h. */
#include "app/serve/api/logprobs_json.h"

#include "app/serve/api/text_json.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <string.h>

/* JSON has no infinity: the minimum that is written. */
#define LEAST (-9999.0)

char *token_bytes(const struct tokenizer *t, int id, bool first, size_t *n)
{
    int twice[2] = {id, id};
    char *one = NULL, *two = NULL;
    size_t n_one = 0, n_two = 0;

    *n = 0;
    if (tokenizer_decode(t, twice, 1, false, &one, &n_one, NULL) < 0)
        return NULL;
    if (first) {
        *n = n_one;
        return one;
    }
    if (tokenizer_decode(t, twice, 2, false, &two, &n_two, NULL) == 0 && n_two >= n_one) {
        *n = n_two - n_one;
        memmove(two, two + n_one, *n + 1);
    }
    mem_free(one);
    return two;
}

/* Marks b as failed if out of memory. */
static void token_text(struct strbuf *b, const struct tokenizer *t, int id, bool first)
{
    size_t n;
    char *bytes = token_bytes(t, id, first, &n);

    b->failed |= !bytes;
    if (bytes && utf8_valid(bytes, n)) {
        strbuf_put(b, bytes, n);
    } else if (bytes) {
        strbuf_puts(b, "bytes:");
        for (size_t i = 0; i < n; i++)
            strbuf_printf(b, "\\x%02x", (unsigned char)bytes[i]);
    }
    mem_free(bytes);
}

json_t *token_json(const struct tokenizer *t, int id, bool first)
{
    struct strbuf b = {0};
    json_t *o;

    token_text(&b, t, id, first);
    o = b.failed ? NULL : json_stringn(strbuf_text(&b), b.len);
    strbuf_release(&b);
    return o;
}

void token_put(struct strbuf *out, const struct tokenizer *t, int id, bool first)
{
    struct strbuf b = {0};

    token_text(&b, t, id, first);
    text_json_put(out, b.data, b.len);
    out->failed |= b.failed;
    strbuf_release(&b);
}

static json_t *value(float logprob)
{
    return json_real(isfinite(logprob) ? (double)logprob : LEAST);
}

static json_t *entry(const struct tokenizer *t, int id, float logprob, bool first)
{
    json_t *o = json_object(), *list = json_array();
    size_t n = 0;
    char *bytes = token_bytes(t, id, first, &n);

    for (size_t i = 0; bytes && i < n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    json_object_set_new(o, "token", token_json(t, id, false));
    json_object_set_new(o, "logprob", value(logprob));
    json_object_set_new(o, "bytes", list);
    mem_free(bytes);
    return o;
}

json_t *logprobs_chat(const struct tokenizer *t, const struct logprobs_event *p, bool first)
{
    json_t *o = entry(t, p->id, p->logprob, first), *top = json_array();

    for (int i = 0; i < p->n; i++)
        json_array_append_new(top, entry(t, p->ids[i], p->logprobs[i], first));
    json_object_set_new(o, "top_logprobs", top);
    return o;
}

json_t *logprobs_text(const struct tokenizer *t, const struct logprobs_event *p, bool first)
{
    json_t *token = token_json(t, p->id, first), *top;

    if (isnan(p->logprob))
        return json_pack("{s:o, s:n, s:n}", "token", token, "logprob", "top");
    top = json_object();
    for (int i = 0; i < p->n; i++) {
        json_t *name = token_json(t, p->ids[i], first);

        if (!json_object_get(top, json_string_value(name))) /* keeps the likelier spelling */
            json_object_setn_new(top, json_string_value(name), json_string_length(name),
                                 value(p->logprobs[i]));
        json_decref(name);
    }
    if (!json_object_getn(top, json_string_value(token), json_string_length(token)))
        json_object_setn_new(top, json_string_value(token), json_string_length(token),
                             value(p->logprob));
    return json_pack("{s:o, s:o, s:o}", "token", token, "logprob", value(p->logprob), "top", top);
}
