/* llama-server's own forms of a text that the model writes: /completion, what follows a prompt, and
 * /infill, what stands between two texts, for editors. Reading: pool; writing: dispatcher. */
#include "app/serve/api/apis.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/request/infill_prompt.h"
#include "app/serve/request/job.h"
#include "app/serve/request/request_fields.h"
#include "app/serve/request/text_prompt.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <limits.h>
#include <string.h>

#define PREDICT 128 /* tokens left for an answer without n_predict */

/* ---- writing ---- */

static void llama_piece(struct job *j, struct task *t, enum answer_part part, const char *text,
                        size_t n)
{
    job_event(j, NULL,
              json_pack("{s:i, s:s%, s:b, s:i, s:i}", "index", t->index, "content", text, n, "stop",
                        0, "tokens_predicted", t->done.completion_tokens, "tokens_evaluated",
                        t->n_prompt));
}

/* kind: "prompt", "predicted": NAME_n, NAME_ms and so on. */
static void put_times(json_t *o, const char *kind, int n, uint64_t ns)
{
    double ms = 1000.0 * clock_seconds(ns);
    char key[40];

    snprintf(key, sizeof key, "%s_n", kind);
    json_object_set_new(o, key, json_integer(n));
    snprintf(key, sizeof key, "%s_ms", kind);
    json_object_set_new(o, key, json_real(ms));
    snprintf(key, sizeof key, "%s_per_token_ms", kind);
    json_object_set_new(o, key, json_real(n ? ms / n : 0.0));
    snprintf(key, sizeof key, "%s_per_second", kind);
    json_object_set_new(o, key, json_real(ns ? clock_rate(n, ns) : 0.0));
}

static json_t *times_json(const struct turn_done_event *d)
{
    json_t *o = json_object();

    json_object_set_new(o, "cache_n", json_integer(d->cached_tokens));
    put_times(o, "prompt", d->prompt_tokens - d->cached_tokens, d->prefill_ns);
    put_times(o, "predicted", d->completion_tokens, d->decode_ns);
    return o;
}

/* streamed: the text was sent before. */
static json_t *last_json(const struct job *j, const struct task *t, bool streamed)
{
    const struct turn_done_event *d = &t->done;
    enum stop_reason why = d->reason;

    return json_pack("{s:i, s:s%, s:b, s:s, s:i, s:i, s:i, s:b, s:s, s:s, s:o}", "index", t->index,
                     "content", streamed ? "" : strbuf_text(&t->text),
                     streamed ? (size_t)0 : t->text.len, "stop", 1, "model", j->server->model_id,
                     "tokens_predicted", d->completion_tokens, "tokens_evaluated", t->n_prompt,
                     "tokens_cached", t->n_prompt + d->completion_tokens, "truncated", 0,
                     "stop_type",
                     why == STOP_TOKEN    ? "eos"
                     : why == STOP_STRING ? "word"
                                          : "limit",
                     "stopping_word", why == STOP_STRING ? j->stops[d->stop] : "", "timings",
                     times_json(d));
}

/* Only the members that "response_fields" names; a/b: b of a, under that name. Takes o. */
static json_t *selected(const struct job *j, json_t *o)
{
    const json_t *names = field_get(j->body, "response_fields");
    json_t *out, *each;
    size_t i;

    if (!names)
        return o;
    out = json_object();
    json_array_foreach(names, i, each)
    {
        const char *name = json_string_value(each), *slash = strchr(name, '/');
        json_t *v = json_object_get(o, name);

        if (slash) {
            char *outer = mem_string_n(name, (size_t)(slash - name));

            v = outer ? json_object_get(json_object_get(o, outer), slash + 1) : NULL;
            mem_free(outer);
        }
        if (v)
            json_object_set(out, name, v);
    }
    json_decref(o);
    return out;
}

static void llama_task_end(struct job *j, struct task *t)
{
    job_event(j, NULL, selected(j, last_json(j, t, true)));
}

static void llama_end(struct job *j)
{
    /* the last event says that it is */
}

static void llama_failure(struct job *j, const struct refusal *r)
{
    job_event(j, NULL, refusal_json(r, API_OPENAI));
}

static json_t *llama_whole(struct job *j)
{
    json_t *all = json_array(), *one;

    for (int i = 0; i < j->n_tasks; i++)
        json_array_append_new(all, selected(j, last_json(j, &j->tasks[i], false)));
    if (j->n_tasks > 1)
        return all;
    one = json_incref(json_array_get(all, 0));
    json_decref(all);
    return one;
}

static const struct dialect llama = {.piece = llama_piece,
                                     .task_end = llama_task_end,
                                     .end = llama_end,
                                     .failure = llama_failure,
                                     .whole = llama_whole};

/* ---- reading ---- */

static int check_string(const json_t *v, const char *name, bool optional, struct refusal *r)
{
    if (!v && !optional)
        return refuse(r, 400, "missing_required_parameter", name, "'%s' is missing", name);
    if (v && !json_is_string(v))
        return refuse(r, 400, "invalid_type", name, "'%s' must be a string", name);
    return 0;
}

/* Lists of strings, and of objects with a "text". */
static int check_lists(const json_t *fields, const json_t *extra, struct refusal *r)
{
    size_t i;
    json_t *each;

    if ((fields && !json_is_array(fields)) || (extra && !json_is_array(extra)))
        return refuse(r, 400, "invalid_type",
                      fields && !json_is_array(fields) ? "response_fields" : "input_extra",
                      "'response_fields' and 'input_extra' must be lists");
    json_array_foreach(fields, i, each) if (!json_is_string(each)) return refuse(
        r, 400, "invalid_type", "response_fields", "'response_fields' must be a list of names");
    json_array_foreach(extra, i, each) if (
        !json_is_string(
            json_object_get(each, "text"))) return refuse(r, 400, "invalid_type", "input_extra",
                                                          "'input_extra' must be a list of "
                                                          "{\"filename\": NAME, \"text\": TEXT}");
    return 0;
}

/* Editors name llama-server's sampler for infilling, which there is none of here. */
static void leave_out_sampler(json_t *samplers)
{
    for (size_t i = json_array_size(samplers); i-- > 0;) {
        const char *name = json_string_value(json_array_get(samplers, i));

        if (name && strcmp(name, "infill") == 0)
            json_array_remove(samplers, i);
    }
}

static int read_own(struct job *j, struct refusal *r)
{
    static const struct field own[] = {
        {"n_predict", FIELD_INT, -1, INT_MAX, offsetof(struct wish, max_tokens)},
        {"t_max_predict_ms", FIELD_INT, -1, INT_MAX, offsetof(struct wish, most_ms)}};

    leave_out_sampler(json_object_get(j->body, "samplers"));
    if (request_common(j, r) < 0 || request_stops(j, "stop", r) < 0 ||
        fields_read(j->body, own, 2, &j->wish, r) < 0)
        return -1;
    if (j->wish.most_ms < 0) /* without a limit */
        j->wish.most_ms = 0;
    if (j->wish.n != 1)
        return refuse(r, 400, "unsupported_value", "n", "'n' must be 1");
    return 0;
}

/* Tokens of the answer: those that begin another file end it. */
static void end_at(struct turn *turn, const struct infill_tokens *t)
{
    const int ends[] = {t->rep, t->sep, t->pad};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends[i] >= 0)
            turn->ends[turn->n_ends++] = ends[i];
}

/* Of a very long one a part: it is cut at the end of the context. */
static int room_for_answer(const struct job *j)
{
    int64_t most = server_info(j->server)->context / 4,
            wanted = j->wish.max_tokens < 0 ? PREDICT : j->wish.max_tokens;

    return (int)(wanted < most ? wanted : most);
}

static int read_infill(struct job *j, struct refusal *r)
{
    struct infill_tokens tokens;
    struct prompt p = {0};
    struct infill in;

    if (request_body(j, r) < 0)
        return -1;
    if (!infill_tokens(server_info(j->server), &tokens))
        return refuse(r, 400, "unsupported_model", "model",
                      "'%.200s' has no tokens for infilling (fim_pre, fim_suf, fim_mid)",
                      j->server->model_id);
    in = (struct infill){.prefix = field_get(j->body, "input_prefix"),
                         .suffix = field_get(j->body, "input_suffix"),
                         .prompt = field_get(j->body, "prompt"),
                         .extra = field_get(j->body, "input_extra")};
    if (check_string(in.prefix, "input_prefix", false, r) < 0 ||
        check_string(in.suffix, "input_suffix", false, r) < 0 ||
        check_string(in.prompt, "prompt", true, r) < 0 ||
        check_lists(field_get(j->body, "response_fields"), in.extra, r) < 0 || read_own(j, r) < 0)
        return -1;
    in.predict = room_for_answer(j);
    if (infill_prompt(j, &tokens, &in, &p, r) < 0) {
        mem_free(p.ids);
        return -1;
    }
    if (job_tasks(j, &p, 1, r) < 0)
        return -1;
    end_at(&j->tasks[0].turn, &tokens);
    return 0;
}

static int read_completion(struct job *j, struct refusal *r)
{
    const json_t *v, *scores;

    if (request_body(j, r) < 0 || check_lists(field_get(j->body, "response_fields"), NULL, r) < 0 ||
        read_own(j, r) < 0)
        return -1;
    scores = field_get(j->body, "n_probs");
    if (scores && json_integer_value(scores) != 0)
        return refuse(r, 400, "unsupported_value", "n_probs",
                      "'n_probs' is not supported here: use 'logprobs' of /v1/completions");
    v = field_get(j->body, "prompt");
    return text_prompts(j, v, text_prompt_is_list(v), "prompt", text_prompt_whole, NULL, r);
}

void api_completion(struct exchange *x)
{
    dispatcher_answer(x, &llama, "", read_completion);
}

void api_infill(struct exchange *x)
{
    dispatcher_answer(x, &llama, "infill-", read_infill);
}
