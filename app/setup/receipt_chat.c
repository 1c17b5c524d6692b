/* See receipt_chat.h. */
#include "app/setup/receipt_chat.h"

#include "app/setup/receipt.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the receipts of the chat");
}

void receipt_ids_release(struct receipt_ids *l)
{
    mem_free(l->ids);
    *l = (struct receipt_ids){0};
}

static bool add(struct receipt_ids *l, int id)
{
    if (!MEM_ROOM(l->ids, l->n, l->room, 256))
        return false;
    l->ids[l->n++] = id;
    return true;
}

/* ---- writing ---- */

static json_t *text_of(const json_t *ids, size_t from)
{
    struct strbuf b = {0};
    json_t *text;

    for (size_t i = from; i < json_array_size(ids); i++)
        strbuf_printf(&b, "%s%lld", i > from ? " " : "",
                      (long long)json_integer_value(json_array_get(ids, i)));
    text = b.failed ? NULL : json_string(strbuf_text(&b));
    strbuf_release(&b);
    return text;
}

int receipt_chat_pack(json_t *receipt, const struct receipt_ids *before, struct error *e)
{
    const json_t *prompt = json_object_get(receipt, "prompt_tokens");
    size_t kept = 0;

    while (kept < before->n && kept < json_array_size(prompt) &&
           json_integer_value(json_array_get(prompt, kept)) == before->ids[kept])
        kept++;
    json_object_del(receipt, "request");
    if (json_object_set_new(receipt, "prompt_tokens", text_of(prompt, kept)) < 0 ||
        json_object_set_new(receipt, "prompt_kept", json_integer((json_int_t)kept)) < 0 ||
        json_object_set_new(receipt, "tokens", text_of(json_object_get(receipt, "tokens"), 0)) < 0)
        return no_memory(e);
    return 0;
}

/* ---- reading ---- */

static int add_text(struct receipt_ids *l, const json_t *text, const char *key, struct error *e)
{
    const char *at = json_string_value(text);

    if (!at)
        return error_set(e, ERR_INPUT, "the receipt lacks %s", key);
    while (*at) {
        char *end;
        long id;

        errno = 0;
        id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT_MAX || (*end && *end != ' '))
            return error_set(e, ERR_INPUT, "%s of the receipt are no ids at '%.20s'", key, at);
        if (!add(l, (int)id))
            return no_memory(e);
        at = end + (*end == ' ');
    }
    return 0;
}

/* The session's ids become the receipt's prompt, n_prompt ids, and its answer. */
static int follow(struct receipt_ids *l, const json_t *receipt, size_t *n_prompt, struct error *e)
{
    json_int_t kept = json_integer_value(json_object_get(receipt, "prompt_kept"));
    int rc;

    if (kept < 0 || (uint64_t)kept > l->n)
        return error_set(e, ERR_INPUT,
                         "the receipt begins with %lld tokens of the answers before it, which have "
                         "%zu",
                         (long long)kept, l->n);
    l->n = (size_t)kept;
    if ((rc = add_text(l, json_object_get(receipt, "prompt_tokens"), "prompt_tokens", e)) < 0)
        return rc;
    *n_prompt = l->n;
    return add_text(l, json_object_get(receipt, "tokens"), "tokens", e);
}

static bool is_none(const json_t *receipt)
{
    return json_is_string(json_object_get(receipt, "none"));
}

int receipt_chat_before(const struct transcript_entry *path, size_t n, struct receipt_ids *out,
                        struct error *e)
{
    size_t n_prompt;
    int rc = 0;

    *out = (struct receipt_ids){0};
    for (size_t i = 0; i < n && rc == 0; i++)
        for (size_t k = 0; k < json_array_size(path[i].receipts) && rc == 0; k++)
            if (!is_none(json_array_get(path[i].receipts, k)))
                rc = follow(out, json_array_get(path[i].receipts, k), &n_prompt, e);
    if (rc < 0)
        receipt_ids_release(out);
    return rc;
}

/* Bytes of an answer before its receipt k; its length for receipts that do not exist. */
static size_t begun_of(const struct transcript_entry *x, size_t k)
{
    const json_t *receipt = json_array_get(x->receipts, k);
    json_int_t at = json_integer_value(json_object_get(receipt, "begun"));
    size_t n = strlen(x->text);

    return !receipt || (uint64_t)at > n ? n : (size_t)at;
}

/* The request: the path before the answer, and the part of the answer to be continued. */
static json_t *request_of(const struct transcript_entry *path, size_t at, size_t begun,
                          struct error *e)
{
    const struct transcript view = {.entries = (struct transcript_entry *)(uintptr_t)path, .n = at};
    struct dialogue said = {0};
    json_t *messages = NULL, *last;

    if (transcript_messages(&view, &said.messages, &said.n_messages, e) < 0)
        return NULL;
    messages = receipt_messages(said.messages, said.n_messages);
    dialogue_release(&said);
    if (begun) {
        last = json_pack("{s:s, s:s%, s:s*}", "role", "assistant", "content", path[at].text, begun,
                         "reasoning_content", path[at].reasoning);
        if (json_array_append_new(messages, last) < 0) {
            json_decref(messages);
            messages = NULL;
        }
    }
    if (!messages)
        error_set(e, ERR_MEMORY, "out of memory for the receipts of the chat");
    return messages ? json_pack("{s:o}", "messages", messages) : NULL;
}

/* Receipt k of the answer at the path's end, completed. */
static int whole(const struct transcript_entry *path, size_t at, size_t k, struct receipt_ids *ids,
                 json_t **out, struct error *e)
{
    const struct transcript_entry *x = &path[at];
    json_t *o = json_copy(json_array_get(x->receipts, k)), *request;
    size_t begun = begun_of(x, k), end = begun_of(x, k + 1), n_prompt = 0;
    int rc = 0;

    *out = o;
    if (!json_is_object(o))
        return error_set(e, ERR_INPUT, "its receipt is no object");
    if (is_none(o))
        return 0;
    if ((rc = follow(ids, o, &n_prompt, e)) < 0)
        return rc;
    if (!(request = request_of(path, at, begun, e)))
        return e ? e->code : ERR_MEMORY;
    json_object_set_new(o, "request", request);
    json_object_set_new(o, "said", json_stringn(x->text + begun, end > begun ? end - begun : 0));
    json_object_set_new(o, "tokens", receipt_ids(ids->ids + n_prompt, (int)(ids->n - n_prompt)));
    return json_object_set_new(o, "prompt_tokens", receipt_ids(ids->ids, (int)n_prompt)) < 0
               ? no_memory(e)
               : 0;
}

/* The path to the current position in a walk through the chat. */
struct walk {
    struct transcript_entry *path; /* copies that own nothing */
    size_t n, room;
    json_t *list;
    int aside; /* depth of branches */
};

static int add_entry(struct walk *w, const struct transcript_entry *x, struct error *e)
{
    if (!MEM_ROOM(w->path, w->n, w->room, 16))
        return no_memory(e);
    w->path[w->n++] = *x;
    return 0;
}

static int add_receipts(struct walk *w, struct error *e)
{
    const struct transcript_entry *x = &w->path[w->n - 1];
    struct receipt_ids ids = {0};
    char where[64];
    json_t *o;
    int rc;

    if (!json_array_size(x->receipts))
        return 0;
    snprintf(where, sizeof where, "message %zu%s", w->n, w->aside ? ", in a branch" : "");
    rc = receipt_chat_before(w->path, w->n - 1, &ids, e);
    for (size_t k = 0; k < json_array_size(x->receipts) && rc == 0; k++) {
        if ((rc = whole(w->path, w->n - 1, k, &ids, &o, e)) == 0)
            json_object_set_new(o, "where", json_string(where));
        if (rc == 0)
            json_array_append(w->list, o);
        json_decref(o);
    }
    if (rc < 0)
        error_prefix(e, "%s", where);
    receipt_ids_release(&ids);
    return rc;
}

static int walk_on(struct walk *w, const struct transcript_entry *entries, size_t n,
                   struct error *e);

static int walk_tails(struct walk *w, const struct transcript_tails *l, struct error *e)
{
    int rc = 0;

    w->aside++;
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = walk_on(w, l->tails[i].entries, l->tails[i].n, e);
    w->aside--;
    return rc;
}

/* Walks these entries; then restores the path. */
static int walk_on(struct walk *w, const struct transcript_entry *entries, size_t n,
                   struct error *e)
{
    size_t before = w->n;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        if ((rc = walk_tails(w, &entries[i].others, e)) == 0 &&
            (rc = add_entry(w, &entries[i], e)) == 0)
            rc = add_receipts(w, e);
    w->n = before;
    return rc;
}

int receipt_chat_all(const struct transcript *t, json_t *list, struct error *e)
{
    struct walk w = {.list = list};
    int rc = walk_on(&w, t->entries, t->n, e);

    if (rc == 0) {
        for (size_t i = 0; i < t->waiting_at && i < t->n && rc == 0; i++)
            rc = add_entry(&w, &t->entries[i], e);
        if (rc == 0)
            rc = walk_tails(&w, &t->waiting, e);
    }
    mem_free(w.path);
    return rc;
}
