/* See data.h. */
#include "engine/train/data.h"

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST ((size_t)4 << 30)

struct reader {
    struct train_data *d;
    const struct model *m;
    int context, room;
    struct tokenizer *tokenizer; /* loaded at the first line that needs it */
    struct chat_template *template;
    const struct stop *stop;
};

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the training data");
}

static int need_tokenizer(struct reader *r, struct error *e)
{
    return r->tokenizer ? 0 : tokenizer_load(&r->tokenizer, r->m->file, e);
}

static int need_template(struct reader *r, struct error *e)
{
    struct chat_template_options o = {.stop = r->stop};
    int rc = need_tokenizer(r, e);

    return rc < 0 || r->template
               ? rc
               : chat_template_load(&r->template, r->m->file, r->tokenizer, &o, e);
}

/* ---- ids ---- */

static int read_ids(const json_t *list, const json_t *mask, struct train_line *l, struct error *e)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || !json_is_array(mask) || json_array_size(mask) != n || !n)
        return error_set(e, ERR_INPUT,
                         "'input_ids' and 'loss_mask' must be lists of the same length");
    if (n > INT_MAX / 2 || !(l->ids = mem_alloc(n, sizeof *l->ids)) || !(l->mask = mem_alloc(n, 1)))
        return no_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i), *of = json_array_get(mask, i);
        json_int_t v = json_integer_value(id), bit = json_integer_value(of);

        if (!json_is_integer(id) || v < 0 || v > INT_MAX)
            return error_set(e, ERR_INPUT, "element %zu of 'input_ids' is no id", i);
        if (!json_is_integer(of) || (bit != 0 && bit != 1))
            return error_set(e, ERR_INPUT, "element %zu of 'loss_mask' must be 0 or 1", i);
        l->ids[i] = (int)v;
        l->mask[i] = (uint8_t)bit;
    }
    l->n = (int)n;
    return 0;
}

/* ---- texts ---- */

static int encode(struct reader *r, const char *text, size_t n, int **ids, int *count,
                  struct error *e)
{
    return tokenizer_encode_masked(r->tokenizer, text, n, false, NULL, r->stop, ids, count, NULL,
                                   e);
}

static int lay_out(const struct reader *r, const int *whole, int n, int from, struct train_line *l,
                   struct error *e)
{
    bool add;
    int bos = tokenizer_bos(r->tokenizer, &add), head = bos >= 0 && add,
        tail = r->m->hp.n_stops > 0;

    l->n = head + n + tail;
    if (!(l->ids = mem_alloc((size_t)l->n, sizeof *l->ids)) ||
        !(l->mask = mem_alloc((size_t)l->n, 1)))
        return no_memory(e);
    if (head)
        l->ids[0] = bos;
    memcpy(l->ids + head, whole, (size_t)n * sizeof *whole);
    if (tail)
        l->ids[l->n - 1] = r->m->hp.stops[0];
    memset(l->mask + head + from, 1, (size_t)(l->n - head - from));
    return 0;
}

/* Both are tokenized together; targets start where the ids differ from the prompt's own. */
static int read_completion(struct reader *r, const json_t *prompt, const json_t *completion,
                           struct train_line *l, struct error *e)
{
    size_t a = json_string_length(prompt), b = json_string_length(completion);
    int *whole = NULL, *first = NULL, n = 0, n_first = 0, from = 0, rc;
    char *text;

    if (!json_is_string(prompt) || !json_is_string(completion))
        return error_set(e, ERR_INPUT, "'prompt' and 'completion' must be strings");
    if ((rc = need_tokenizer(r, e)) < 0)
        return rc;
    if (!(text = mem_alloc(a + b + 1, 1)))
        return no_memory(e);
    memcpy(text, json_string_value(prompt), a);
    memcpy(text + a, json_string_value(completion), b);
    if ((rc = encode(r, text, a + b, &whole, &n, e)) == 0 &&
        (rc = encode(r, text, a, &first, &n_first, e)) == 0) {
        while (from < n && from < n_first && whole[from] == first[from])
            from++;
        rc = lay_out(r, whole, n, from, l, e);
    }
    mem_free(text);
    mem_free(whole);
    mem_free(first);
    return rc;
}

/* ---- conversations ---- */

static int read_message(const json_t *o, size_t i, struct message *m, struct error *e)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = json_string_value(json_object_get(o, "role")),
               *text = json_string_value(json_object_get(o, "content"));
    const json_t *thought = json_object_get(o, "reasoning_content");
    int k = 0;

    while (role && k < 3 && strcmp(role, roles[k]) != 0)
        k++;
    if (!role || k == 3)
        return error_set(e, ERR_INPUT, "message %zu: 'role' must be system, user or assistant",
                         i + 1);
    if (!text || (thought && !json_is_string(thought)))
        return error_set(e, ERR_INPUT, "message %zu: '%s' must be a string", i + 1,
                         text ? "reasoning_content" : "content");
    *m = (struct message){.role = (enum role)k,
                          .text = mem_string(text),
                          .reasoning = thought ? mem_string(json_string_value(thought)) : NULL};
    return m->text && (!thought || m->reasoning) ? 0 : no_memory(e);
}

/* Finds an assistant's message after the ids of the preceding messages and the generation prompt;
 * it ends at its first stop token, or at the next message. */
static int learn_message(struct reader *r, const struct message *m, size_t i, int end,
                         struct train_line *l, struct error *e)
{
    int *before = NULL, n = 0, at,
        rc = chat_template_encode(r->template, m, i, NULL, true, r->stop, &before, &n, NULL, e);

    if (rc < 0)
        return rc;
    if (n >= l->n || memcmp(before, l->ids, (size_t)n * sizeof *before) != 0)
        rc = error_set(e, ERR_INPUT,
                       "message %zu: the chat template writes what comes before it otherwise once "
                       "it is there; give ids ('input_ids', 'loss_mask')",
                       i + 1);
    for (at = n; !rc && at < end; at++) {
        l->mask[at] = 1;
        if (hparams_is_stop(&r->m->hp, l->ids[at]))
            break;
    }
    mem_free(before);
    return rc;
}

static int learn_messages(struct reader *r, const struct message *m, size_t n, struct train_line *l,
                          struct error *e)
{
    int *starts = mem_alloc(n + 1, sizeof *starts), rc;

    if (!starts)
        return no_memory(e);
    rc = chat_template_encode(r->template, m, n, NULL, false, r->stop, &l->ids, &l->n, starts, e);
    if (rc == 0 && !(l->mask = mem_alloc((size_t)(l->n > 0 ? l->n : 1), 1)))
        rc = no_memory(e);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (m[i].role == ROLE_ASSISTANT)
            rc = learn_message(r, m, i, i + 1 < n ? starts[i + 1] : l->n, l, e);
    mem_free(starts);
    return rc;
}

static int read_messages(struct reader *r, const json_t *list, struct train_line *l,
                         struct error *e)
{
    size_t n = json_array_size(list);
    struct message *m;
    int rc;

    if (!json_is_array(list) || !n)
        return error_set(e, ERR_INPUT, "'messages' must be a list of at least one message");
    if ((rc = need_template(r, e)) < 0)
        return rc;
    if (!(m = mem_alloc(n, sizeof *m)))
        return no_memory(e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_message(json_array_get(list, i), i, &m[i], e);
    if (rc == 0)
        rc = learn_messages(r, m, n, l, e);
    for (size_t i = 0; i < n; i++) {
        mem_free(m[i].text);
        mem_free(m[i].reasoning);
    }
    mem_free(m);
    return rc;
}

/* ---- lines ---- */

static int check(const struct reader *r, struct train_line *l, struct error *e)
{
    for (int i = 0; i < l->n; i++) {
        if (l->ids[i] >= r->m->hp.n_vocab)
            return error_set(e, ERR_INPUT, "id %d is past the model's %d", l->ids[i],
                             r->m->hp.n_vocab);
        if (i == 0)
            l->mask[0] = 0; /* there is nothing before it to predict it from */
        l->learned += l->mask[i];
    }
    if (!l->learned)
        return error_set(e, ERR_INPUT, "there is nothing to learn in it");
    if (l->n > r->context)
        return error_set(e, ERR_INPUT, "%d tokens are more than the context of %d (-c)", l->n,
                         r->context);
    return 0;
}

static int read_kind(struct reader *r, const json_t *o, struct train_line *l, struct error *e)
{
    const json_t *messages = json_object_get(o, "messages"), *ids = json_object_get(o, "input_ids"),
                 *prompt = json_object_get(o, "prompt"),
                 *completion = json_object_get(o, "completion");

    if (!!messages + !!ids + (prompt || completion) != 1)
        return error_set(e, ERR_INPUT,
                         "one of 'messages', 'prompt' with 'completion', and 'input_ids' with "
                         "'loss_mask' is expected");
    if (messages)
        return read_messages(r, messages, l, e);
    if (ids)
        return read_ids(ids, json_object_get(o, "loss_mask"), l, e);
    return read_completion(r, prompt, completion, l, e);
}

static int read_line(struct reader *r, const char *text, size_t n, int number, struct error *e)
{
    struct train_line *l;
    struct error why = {0};
    json_t *o;
    int rc;

    if (!MEM_ROOM(r->d->lines, r->d->n, r->room, 64))
        return no_memory(e);
    l = &r->d->lines[r->d->n++];
    *l = (struct train_line){.number = number};
    if (!(o = json_read(text, n, "JSON", &why)))
        rc = error_set(e, ERR_INPUT, "%.200s", why.text);
    else if (!json_is_object(o))
        rc = error_set(e, ERR_INPUT, "a JSON object is expected");
    else if ((rc = read_kind(r, o, l, e)) == 0)
        rc = check(r, l, e);
    json_decref(o);
    if (rc < 0)
        return error_prefix(e, "%s:%d", r->d->path, number);
    r->d->hash = hash_bytes(r->d->hash, l->ids, (size_t)l->n * sizeof *l->ids);
    r->d->hash = hash_bytes(r->d->hash, l->mask, (size_t)l->n);
    r->d->longest = l->n > r->d->longest ? l->n : r->d->longest;
    return 0;
}

static bool is_blank(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", p[i]))
            return false;
    return true;
}

static int read_lines(struct reader *r, const char *text, size_t n, struct error *e)
{
    int number = 1, rc = 0;

    for (size_t at = 0, len; at < n && rc == 0; at += len + 1, number++) {
        const char *end = memchr(text + at, '\n', n - at);

        len = end ? (size_t)(end - text) - at : n - at;
        if (r->stop && r->stop->asked(r->stop->ctx))
            return error_set(e, ERR_CANCELLED, "interrupted while the data was read");
        if (!is_blank(text + at, len))
            rc = read_line(r, text + at, len, number, e);
    }
    return rc < 0 || r->d->n ? rc
                             : error_set(e, ERR_INPUT, "%s: there is no line in it", r->d->path);
}

int train_data_read(struct train_data *out, const char *path, const struct model *m, int context,
                    const struct stop *stop, struct error *e)
{
    static const struct file_kind kind = {"file of training data (JSON Lines)", FILE_MOST,
                                          ERR_INPUT};
    struct reader r = {.d = out, .m = m, .context = context, .stop = stop};
    char *text = NULL;
    size_t n;
    int rc;

    *out = (struct train_data){.path = mem_string(path), .hash = HASH_START};
    rc = out->path ? file_read(path, &kind, &text, &n, e) : no_memory(e);
    if (rc == 0)
        rc = read_lines(&r, text, n, e);
    mem_free(text);
    tokenizer_free(r.tokenizer);
    chat_template_free(r.template);
    if (rc < 0)
        train_data_release(out);
    return rc;
}

void train_data_release(struct train_data *d)
{
    for (int i = 0; i < d->n; i++) {
        mem_free(d->lines[i].ids);
        mem_free(d->lines[i].mask);
    }
    mem_free(d->lines);
    mem_free(d->path);
    *d = (struct train_data){0};
}

static int longer(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

int train_data_most(const struct train_data *d, int batch)
{
    int *n = mem_alloc((size_t)(d->n > 0 ? d->n : 1), sizeof *n);
    int64_t sum = 0;

    for (int i = 0; n && i < d->n; i++)
        n[i] = d->lines[i].n;
    if (n)
        qsort(n, (size_t)d->n, sizeof *n, longer);
    for (int i = 0; i < batch; i++)
        sum += n && i < d->n ? n[i] : d->longest;
    mem_free(n);
    return sum < INT_MAX ? (int)sum : INT_MAX;
}
