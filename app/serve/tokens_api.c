/* llama-server's /tokenize and /detokenize. Desk. */
#include "app/serve/apis.h"
#include "app/serve/ask.h"
#include "app/serve/exchange.h"
#include "app/serve/logprobs_json.h"
#include "app/serve/server.h"
#include "app/serve/text_json.h"

#include "engine/base/mem.h"

#include <string.h>

/* The body of x, and the tokenizer when the model is loaded. */
static json_t *read_body(struct exchange *x, const struct tokenizer **t, struct refusal *r)
{
    if (server_ready(x->server, r) < 0)
        return NULL;
    *t = server_info(x->server)->tokenizer;
    return ask_json(x, r);
}

struct wanted {
    bool special, parse, pieces;
};

#define AT(member) offsetof(struct wanted, member)

static json_t *ids_json(const struct tokenizer *t, const int *ids, int n, bool pieces)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, pieces ? json_pack("{s:i, s:o}", "id", ids[i], "piece",
                                                       token_json(t, ids[i], i == 0))
                                           : json_integer(ids[i]));
    return list;
}

static json_t *tokenize(struct exchange *x, struct refusal *r)
{
    static const struct field own[] = {
        {"add_special", FIELD_BOOL, 0, 0, AT(special)},
        {"parse_special", FIELD_BOOL, 0, 0, AT(parse)},
        {"with_pieces", FIELD_BOOL, 0, 0, AT(pieces)},
    };
    struct wanted w = {.parse = true};
    const struct tokenizer *t;
    json_t *body = read_body(x, &t, r), *list = NULL;
    const json_t *content = field_get(body, "content");
    struct error e = {0};
    int *ids = NULL, n = 0, bos;
    bool add;

    if (!body)
        return NULL;
    if (fields_read(body, own, 3, &w, r) < 0)
        goto out;
    if (!json_is_string(content)) {
        refuse(r, 400, content ? "invalid_type" : "missing_required_parameter", "content",
               "'content' must be a string");
        goto out;
    }
    if (tokenizer_encode(t, json_string_value(content), json_string_length(content), w.parse, &ids,
                         &n, &e) < 0) {
        refuse_error(r, &e);
        goto out;
    }
    list = ids_json(t, ids, n, w.pieces);
    bos = tokenizer_bos(t, &add);
    if (w.special && add && bos >= 0) {
        json_t *first = ids_json(t, &bos, 1, w.pieces);

        json_array_extend(first, list);
        json_decref(list);
        list = first;
    }
out:
    mem_free(ids);
    json_decref(body);
    return list ? json_pack("{s:o}", "tokens", list) : NULL;
}

static int read_id(const struct tokenizer *t, const json_t *v, int *id)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) >= tokenizer_size(t) ||
        !tokenizer_piece(t, (int)json_integer_value(v), NULL, NULL))
        return -1;
    *id = (int)json_integer_value(v);
    return 0;
}

static json_t *detokenize(struct exchange *x, struct refusal *r)
{
    const struct tokenizer *t;
    json_t *body = read_body(x, &t, r), *text = NULL;
    const json_t *list = field_get(body, "tokens");
    size_t n = json_array_size(list), len = 0, i;
    struct error e = {0};
    char *bytes = NULL;
    int *ids = NULL;

    if (!body)
        return NULL;
    if (!json_is_array(list))
        refuse(r, 400, list ? "invalid_type" : "missing_required_parameter", "tokens",
               "'tokens' must be a list of ids");
    else if (!(ids = mem_alloc(n + 1, sizeof *ids)))
        refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
    for (i = 0; ids && i < n && read_id(t, json_array_get(list, i), &ids[i]) == 0;)
        i++;
    if (ids && i < n)
        refuse(r, 400, "invalid_value", "tokens", "tokens[%zu] is no id of this tokenizer", i);
    else if (ids && tokenizer_decode(t, ids, (int)n, false, &bytes, &len, &e) < 0)
        refuse_error(r, &e);
    if (bytes)
        text = text_json(bytes, len);
    mem_free(bytes);
    mem_free(ids);
    json_decref(body);
    return text ? json_pack("{s:o}", "content", text) : NULL;
}

static void answer(struct exchange *x, json_t *(*make)(struct exchange *x, struct refusal *r))
{
    struct refusal why = {0};
    json_t *o = make(x, &why);

    if (why.status)
        reply_refusal(x, &why);
    else
        reply_json(x, 200, o);
}

void api_tokenize(struct exchange *x)
{
    answer(x, tokenize);
}

void api_detokenize(struct exchange *x)
{
    answer(x, detokenize);
}
