/* OpenAI's /v1/completions: the model continues a text, or ids; with "echo" and "logprobs" also the
 * log-probability of each token of the prompt, which programs use to score choices. Reading: pool;
 * writing: dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/api/logprobs_json.h"
#include "app/serve/api/text_json.h"
#include "app/serve/api/usage.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"
#include "app/serve/request/text_prompt.h"

#include "engine/base/mem.h"

#include <string.h>

#define MAX_TOKENS 16 /* OpenAI's default */

static const struct tokenizer *tokenizer_of(const struct job *j)
{
    return server_info(j->server)->tokenizer;
}

/* ---- writing ---- */

static size_t characters(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* The lists of OpenAI's older format, from the entries of logprobs_text. *offset: characters before
 * the first one, then before the next. */
static json_t *logprobs_lists(const json_t *entries, size_t *offset)
{
    json_t *tokens = json_array(), *values = json_array(), *top = json_array(),
           *offsets = json_array();
    size_t i;
    json_t *each;

    json_array_foreach(entries, i, each)
    {
        json_t *token = json_object_get(each, "token");

        json_array_append(tokens, token);
        json_array_append(values, json_object_get(each, "logprob"));
        json_array_append(top, json_object_get(each, "top"));
        json_array_append_new(offsets, json_integer((json_int_t)*offset));
        *offset += characters(json_string_value(token));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", top, "text_offset", offsets);
}

/* The part of the prompt that `echo` repeats; NULL: none. */
static json_t *echo(const struct task *t)
{
    char *text = NULL;
    size_t n = 0;
    json_t *o;

    if (!t->prompt ||
        tokenizer_decode(tokenizer_of(t->job), t->prompt, t->n_prompt, true, &text, &n, NULL) < 0)
        return NULL;
    o = text_json(text, n);
    mem_free(text);
    return o;
}

static json_t *body(const struct job *j, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", j->id, "object", "text_completion",
                     "created", (json_int_t)j->created, "model", j->server->model_id,
                     "system_fingerprint", SYSTEM_FINGERPRINT, "choices", choices);
}

/* Takes text. Sent with the probabilities of the new tokens. */
static void put_choice(struct job *j, struct task *t, json_t *text, const char *finish)
{
    json_t *logprobs = NULL;

    if (t->fresh && json_array_size(t->fresh)) {
        logprobs = logprobs_lists(t->fresh, &t->offset);
        json_array_clear(t->fresh);
    }
    job_event(j, NULL,
              body(j, json_pack("[{s:i, s:o, s:o?, s:s?}]", "index", t->index, "text", text,
                                "logprobs", logprobs, "finish_reason", finish)));
}

/* Sends the prompt with the first text after it, when all of it is scored. */
static void put_echo(struct job *j, struct task *t)
{
    json_t *text = t->echoed ? NULL : echo(t);

    t->echoed = true;
    if (text)
        put_choice(j, t, text, NULL);
}

static void completion_piece(struct job *j, struct task *t, enum answer_part part, const char *text,
                             size_t n)
{
    put_echo(j, t);
    put_choice(j, t, json_stringn(text, n), NULL);
}

static void completion_task_end(struct job *j, struct task *t)
{
    put_echo(j, t);
    put_choice(j, t, json_string(""), t->finish);
}

static void completion_end(struct job *j)
{
    if (j->wish.include_usage) {
        json_t *o = body(j, json_array());

        json_object_set_new(o, "usage", usage_openai(j));
        job_event(j, NULL, o);
    }
    strbuf_puts(&j->line, "data: [DONE]\n\n");
}

static void completion_failure(struct job *j, const struct refusal *r)
{
    job_event(j, NULL, refusal_json(r, API_OPENAI));
}

static json_t *whole_text(const struct task *t)
{
    json_t *before = echo(t), *o;
    struct strbuf b = {0};

    if (before)
        strbuf_put(&b, json_string_value(before), json_string_length(before));
    strbuf_put(&b, strbuf_text(&t->text), t->text.len);
    o = json_stringn(strbuf_text(&b), b.len);
    json_decref(before);
    strbuf_release(&b);
    return o;
}

static json_t *completion_whole(struct job *j)
{
    json_t *choices = json_array(), *o;

    for (int i = 0; i < j->n_tasks; i++) {
        const struct task *t = &j->tasks[i];
        size_t offset = 0;

        json_array_append_new(choices,
                              json_pack("{s:i, s:o, s:o?, s:s}", "index", t->index, "text",
                                        whole_text(t), "logprobs",
                                        t->logprobs ? logprobs_lists(t->logprobs, &offset) : NULL,
                                        "finish_reason", t->finish));
    }
    o = body(j, choices);
    json_object_set_new(o, "usage", usage_openai(j));
    return o;
}

static const struct dialect completions = {.piece = completion_piece,
                                           .task_end = completion_task_end,
                                           .end = completion_end,
                                           .failure = completion_failure,
                                           .whole = completion_whole,
                                           .entry = logprobs_text};

/* ---- reading ---- */

#define AT(member) offsetof(struct wish, member)

static int read_own(struct job *j, struct refusal *r)
{
    static const struct field own[] = {
        {"echo", FIELD_BOOL, 0, 0, AT(echo)},
        {"logprobs", FIELD_INT, 0, LOGPROBS_MOST, AT(top_logprobs)},
    };
    const json_t *best = field_get(j->body, "best_of"), *suffix = field_get(j->body, "suffix");

    if (fields_read(j->body, own, 2, &j->wish, r) < 0)
        return -1;
    j->wish.logprobs = field_get(j->body, "logprobs") != NULL;
    if (best && (!json_is_integer(best) || json_integer_value(best) != j->wish.n))
        return refuse(r, 400, "unsupported_value", "best_of",
                      "'best_of' may be what 'n' is: all choices are told");
    if (suffix && (!json_is_string(suffix) || json_string_length(suffix)))
        return refuse(r, 400, "unsupported_value", "suffix",
                      "'suffix' is not supported: texts are continued at their end");
    return 0;
}

static int read_completion(struct job *j, struct refusal *r)
{
    const json_t *v;

    if (j->wish.max_tokens < 0)
        j->wish.max_tokens = MAX_TOKENS;
    if (request_body(j, r) < 0 || request_common(j, r) < 0 || request_stops(j, "stop", r) < 0 ||
        read_own(j, r) < 0)
        return -1;
    v = field_get(j->body, "prompt");
    return text_prompts(j, v, text_prompt_is_list(v), "prompt", text_prompt_whole, NULL, r);
}

void api_completions(struct exchange *x)
{
    dispatcher_answer(x, &completions, "cmpl-", read_completion);
}
