/* Embeddings: OpenAI's /v1/embeddings, Ollama's /api/embed and /api/embeddings. Every input is a
 * task, so that they share passes with each other and with answers. Reading: pool; writing:
 * dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/api/ollama_input.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/common/route.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"
#include "app/serve/request/text_prompt.h"
#include "app/setup/embedding.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

static void put_numbers(struct strbuf *out, const float *v, int n)
{
    strbuf_putc(out, '[');
    for (int i = 0; i < n; i++)
        strbuf_printf(out, i ? ",%.9g" : "%.9g", (double)v[i]);
    strbuf_putc(out, ']');
}

/* As little-endian F32. */
static void put_base64(struct strbuf *out, const float *v, int n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = (size_t)n * sizeof *v;
    const unsigned char *p = (const unsigned char *)v;

    strbuf_putc(out, '"');
    for (size_t i = 0; i < bytes; i += 3) {
        size_t have = bytes - i < 3 ? bytes - i : 3;
        unsigned bits = (unsigned)p[i] << 16 | (have > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                        (have > 2 ? (unsigned)p[i + 2] : 0);

        for (size_t k = 0; k < 4; k++)
            strbuf_putc(out, k <= have ? digits[bits >> (18 - 6 * k) & 63] : '=');
    }
    strbuf_putc(out, '"');
}

/* The answer's values of a task: cut to the dimensions asked for, and normalised. */
static int finish_values(const struct job *j, struct task *t, int normalize)
{
    int n = j->wish.dimensions ? (int)j->wish.dimensions : t->n_embedding;

    embedding_normalize(t->embedding, n, normalize);
    return n;
}

static void put_quoted(struct strbuf *out, const char *text)
{
    json_t *o = json_string(text);
    char *quoted = o ? json_dumps(o, JSON_ENCODE_ANY) : NULL;

    strbuf_puts(out, quoted ? quoted : "\"\"");
    free(quoted); /* allocated by jansson */
    json_decref(o);
}

static void openai_whole(struct job *j, struct strbuf *out)
{
    const char *format = json_string_value(field_get(j->body, "encoding_format"));
    struct usage u = job_usage(j);

    strbuf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < j->n_tasks; i++) {
        struct task *t = &j->tasks[i];
        int n = finish_values(j, t, j->server->embedding.normalize);

        strbuf_printf(out, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", i ? "," : "",
                      i);
        if (format && strcmp(format, "base64") == 0)
            put_base64(out, t->embedding, n);
        else
            put_numbers(out, t->embedding, n);
        strbuf_putc(out, '}');
    }
    strbuf_puts(out, "],\"model\":");
    put_quoted(out, j->server->model_id);
    strbuf_printf(out, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d}}", u.prompt,
                  u.prompt);
}

static void ollama_whole(struct job *j, struct strbuf *out)
{
    const char *name = json_string_value(field_get(j->body, "model"));

    strbuf_puts(out, "{\"model\":");
    put_quoted(out, name ? name : j->server->model_id);
    strbuf_puts(out, ",\"embeddings\":[");
    for (int i = 0; i < j->n_tasks; i++) {
        if (i)
            strbuf_putc(out, ',');
        put_numbers(out, j->tasks[i].embedding,
                    finish_values(j, &j->tasks[i], j->server->embedding.normalize));
    }
    strbuf_printf(out, "],\"total_duration\":%llu,\"load_duration\":%llu,\"prompt_eval_count\":%d}",
                  (unsigned long long)(clock_now() - j->x->begun_ns),
                  (unsigned long long)j->x->waited_ns, job_usage(j).prompt);
}

/* The earlier form, which is not normalised. */
static void ollama_old_whole(struct job *j, struct strbuf *out)
{
    strbuf_puts(out, "{\"embedding\":");
    put_numbers(out, j->tasks[0].embedding, finish_values(j, &j->tasks[0], -1));
    strbuf_putc(out, '}');
}

/* Of pooled embeddings a list of one list, since there may be one a token. */
static void llama_whole(struct job *j, struct strbuf *out)
{
    const json_t *normalize = field_get(j->body, "embd_normalize");
    int kind = normalize ? (int)json_integer_value(normalize) : j->server->embedding.normalize;

    strbuf_putc(out, '[');
    for (int i = 0; i < j->n_tasks; i++) {
        struct task *t = &j->tasks[i];

        strbuf_printf(out, "%s{\"index\":%d,\"embedding\":[", i ? "," : "", i);
        put_numbers(out, t->embedding, finish_values(j, t, kind));
        strbuf_puts(out, "]}");
    }
    strbuf_putc(out, ']');
}

static const struct dialect openai = {.whole_text = openai_whole},
                            llama = {.whole_text = llama_whole},
                            ollama = {.whole_text = ollama_whole},
                            ollama_old = {.whole_text = ollama_old_whole};

/* ---- reading ---- */

struct input {
    const char *name; /* of its field */
    bool truncate;    /* a longer one is cut, not refused */
};

static int read_input(const struct job *j, const json_t *v, const void *with, struct prompt *p,
                      struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    struct embedding_settings s = embedding_settings(j->server->embedding, info);
    const struct input *in = with;
    struct stop stop = exchange_stop(j->x);
    struct error e = {0};

    if (!json_is_string(v)) {
        if (text_prompt_any(j, v, in->name, p, r) < 0)
            return -1;
    } else if (embedding_ids(&s, info, json_string_value(v), json_string_length(v), &stop, &p->ids,
                             &p->n, &e) < 0 &&
               e.code != ERR_INPUT) { /* ERR_INPUT: empty */
        return refuse_error(r, &e);
    }
    if (!p->n)
        return refuse(r, 400, "invalid_value", in->name, "'%s' is empty", in->name);
    if (p->n > info->context && in->truncate) {
        p->n = info->context;
        if (json_is_string(v) && s.end >= 0) /* it may be the one that is pooled */
            p->ids[p->n - 1] = s.end;
    }
    if (p->n <= info->context)
        return 0;
    return refuse(r, 400, "context_length_exceeded", in->name,
                  "this model's maximum context length is exceeded: an input has %d tokens, the "
                  "context %d",
                  p->n, info->context);
}

/* One input, or a list of them. */
static int read_inputs(struct job *j, const char *name, bool truncate, struct refusal *r)
{
    const json_t *v = field_get(j->body, name);
    struct input in = {name, truncate};

    return text_prompts(j, v, text_prompt_is_list(v), name, read_input, &in, r);
}

/* The model, and what does not depend on the API. */
static int read_common(struct job *j, struct refusal *r)
{
    static const struct field own[] = {
        {"dimensions", FIELD_INT, 0, 1 << 20, offsetof(struct wish, dimensions)}};
    int most;

    if (request_body(j, r) < 0 || fields_read(j->body, own, 1, &j->wish, r) < 0)
        return -1;
    most = server_info(j->server)->model->hp.hidden;
    if (j->wish.dimensions > most)
        return refuse(r, 400, "invalid_value", "dimensions",
                      "'dimensions' is %d; this model's embeddings have %d",
                      (int)j->wish.dimensions, most);
    j->wish.embed = embedding_settings(j->server->embedding, server_info(j->server)).pooling;
    j->wish.max_tokens = 0;
    return 0;
}

static int read_openai(struct job *j, struct refusal *r)
{
    const json_t *format;
    const char *word;

    if (read_common(j, r) < 0)
        return -1;
    format = field_get(j->body, "encoding_format");
    word = json_string_value(format);
    if (format && (!word || (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0)))
        return refuse(r, 400, "invalid_value", "encoding_format",
                      "'encoding_format' must be float or base64");
    return read_inputs(j, "input", false, r);
}

static int read_llama(struct job *j, struct refusal *r)
{
    const json_t *normalize;

    if (read_common(j, r) < 0)
        return -1;
    normalize = field_get(j->body, "embd_normalize");
    if (normalize && (!json_is_integer(normalize) || json_integer_value(normalize) < -1 ||
                      json_integer_value(normalize) > option_table[OPTION_ID_embd_normalize].max))
        return refuse(r, 400, "invalid_value", "embd_normalize",
                      "'embd_normalize' must be a whole number from -1 to %g",
                      option_table[OPTION_ID_embd_normalize].max);
    return read_inputs(j, field_get(j->body, "content") ? "content" : "input", false, r);
}

/* While a request thread reads a request, its model is not unloaded. */
static int read_kept(struct job *j, const char *name, bool truncate, struct refusal *r)
{
    int64_t keep_ns;

    if (ollama_keep_alive(j, &keep_ns, r) < 0 || read_inputs(j, name, truncate, r) < 0)
        return -1;
    registry_keep(j->server->registry, keep_ns);
    return 0;
}

static int read_ollama(struct job *j, struct refusal *r)
{
    return read_common(j, r) < 0
               ? -1
               : read_kept(j, "input", !json_is_false(field_get(j->body, "truncate")), r);
}

static int read_ollama_old(struct job *j, struct refusal *r)
{
    if (read_common(j, r) < 0)
        return -1;
    if (!json_is_string(field_get(j->body, "prompt")))
        return refuse(r, 400, "invalid_type", "prompt", "'prompt' must be a string");
    return read_kept(j, "prompt", true, r);
}

void api_embeddings(struct exchange *x)
{
    dispatcher_answer(x, &openai, "", read_openai);
}

void api_embedding(struct exchange *x)
{
    dispatcher_answer(x, &llama, "", read_llama);
}

void api_ollama_embed(struct exchange *x)
{
    dispatcher_answer(x, &ollama, "", read_ollama);
}

void api_ollama_embeddings(struct exchange *x)
{
    dispatcher_answer(x, &ollama_old, "", read_ollama_old);
}
