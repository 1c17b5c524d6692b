/* llama-server's /tokenize and /detokenize. Request thread. */
#include "app/serve/api/apis.h"
#include "app/serve/api/logprobs_json.h"
#include "app/serve/api/text_json.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"
#include "app/serve/request/request_fields.h"

#include "engine/base/mem.h"

#define UNTIL_ASKED 4096 /* ids between two checks for a disconnect */
/* Maximum size of an answer: more than the ids of any text that fits into a request. */
#define ANSWER_MOST ((size_t)64 << 20)

/* The body of x, and the tokenizer, if the model is loaded. */
static json_t *read_body(struct exchange *x, const struct tokenizer **t, struct refusal *r)
{
    if (server_ready(x->server, r) < 0)
        return NULL;
    *t = server_info(x->server)->tokenizer;
    return request_json(x, r);
}

struct wanted {
    bool special, parse, pieces;
};

#define AT(member) offsetof(struct wanted, member)

/* first: at the start of the text. */
static void put_id(struct strbuf *out, const struct tokenizer *t, int id, bool first, bool piece)
{
    if (!piece) {
        strbuf_printf(out, "%d", id);
        return;
    }
    strbuf_printf(out, "{\"id\":%d,\"piece\":", id);
    token_put(out, t, id, first);
    strbuf_putc(out, '}');
}

/* Writes ids as they are found: as json_t values, millions of ids would take gigabytes. bos: -1,
 * none. -1: the client has disconnected, or out->failed. */
static int put_ids(struct exchange *x, const struct tokenizer *t, int bos, const int *ids, int n,
                   bool pieces, struct strbuf *out)
{
    strbuf_puts(out, "{\"tokens\":[");
    if (bos >= 0)
        put_id(out, t, bos, true, pieces);
    for (int i = 0; i < n; i++) {
        if (i % UNTIL_ASKED == UNTIL_ASKED - 1 && (out->failed || exchange_gone(x)))
            return -1;
        if (i || bos >= 0)
            strbuf_putc(out, ',');
        put_id(out, t, ids[i], i == 0, pieces);
    }
    strbuf_puts(out, "]}");
    return out->failed ? -1 : 0;
}

static int tokenize(struct exchange *x, struct strbuf *out, struct refusal *r)
{
    static const struct field own[] = {
        {"add_special", FIELD_BOOL, 0, 0, AT(special)},
        {"parse_special", FIELD_BOOL, 0, 0, AT(parse)},
        {"with_pieces", FIELD_BOOL, 0, 0, AT(pieces)},
    };
    struct wanted w = {.parse = true};
    const struct tokenizer *t;
    json_t *body = read_body(x, &t, r);
    const json_t *content = field_get(body, "content");
    struct stop stop = exchange_stop(x);
    struct error e = {0};
    int *ids = NULL, n = 0, bos, rc = -1;
    bool add;

    if (!body)
        return -1;
    if (fields_read(body, own, 3, &w, r) < 0)
        goto out;
    if (!json_is_string(content)) {
        refuse(r, 400, content ? "invalid_type" : "missing_required_parameter", "content",
               "'content' must be a string");
        goto out;
    }
    if (tokenizer_encode_masked(t, json_string_value(content), json_string_length(content), w.parse,
                                NULL, &stop, &ids, &n, NULL, &e) < 0) {
        refuse_error(r, &e);
        goto out;
    }
    bos = tokenizer_bos(t, &add);
    out->limit = ANSWER_MOST;
    rc = put_ids(x, t, w.special && add ? bos : -1, ids, n, w.pieces, out);
    if (rc < 0 && out->failed)
        refuse(r, 400, "answer_too_large", "content",
               "the answer would be larger than %zu MiB: send the text in parts%s",
               ANSWER_MOST >> 20, w.pieces ? ", or without with_pieces" : "");
    else if (rc < 0)
        refuse_error(r, &(struct error){.code = ERR_CANCELLED});
out:
    mem_free(ids);
    json_decref(body);
    return rc;
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

/* The ids of a list; NULL with r. */
static int *read_ids(const struct tokenizer *t, const json_t *list, size_t *n, struct refusal *r)
{
    int *ids;

    if (!json_is_array(list)) {
        refuse(r, 400, list ? "invalid_type" : "missing_required_parameter", "tokens",
               "'tokens' must be a list of ids");
        return NULL;
    }
    *n = json_array_size(list);
    if (!(ids = mem_alloc(*n + 1, sizeof *ids))) {
        refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
        return NULL;
    }
    for (size_t i = 0; i < *n; i++)
        if (read_id(t, json_array_get(list, i), &ids[i]) < 0) {
            refuse(r, 400, "invalid_value", "tokens", "tokens[%zu] is no id of this tokenizer", i);
            mem_free(ids);
            return NULL;
        }
    return ids;
}

static int detokenize(struct exchange *x, struct strbuf *out, struct refusal *r)
{
    const struct tokenizer *t;
    json_t *body = read_body(x, &t, r);
    size_t n = 0, len = 0;
    struct error e = {0};
    char *bytes = NULL;
    int *ids = body ? read_ids(t, field_get(body, "tokens"), &n, r) : NULL;

    json_decref(body);
    if (!ids)
        return -1;
    if (tokenizer_decode(t, ids, (int)n, false, &bytes, &len, &e) < 0)
        refuse_error(r, &e);
    mem_free(ids);
    if (!bytes)
        return -1;
    strbuf_puts(out, "{\"content\":");
    text_json_put(out, bytes, len);
    strbuf_putc(out, '}');
    mem_free(bytes);
    return 0;
}

static void answer(struct exchange *x,
                   int (*put)(struct exchange *x, struct strbuf *out, struct refusal *r))
{
    struct strbuf out = {0};
    struct refusal why = {0};

    if (put(x, &out, &why) < 0)
        reply_refusal(x, &why);
    else
        reply_long_json(x, &out);
    strbuf_release(&out);
}

void api_tokenize(struct exchange *x)
{
    answer(x, tokenize);
}

void api_detokenize(struct exchange *x)
{
    answer(x, detokenize);
}
