/* See ask.h. */
#include "app/serve/ask.h"

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/run/prompt.h"

#include <limits.h>
#include <string.h>

static int no_memory(struct refusal *r)
{
    return refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
}

/* ---- the body ---- */

static int check_model(const struct server *s, const json_t *body, struct refusal *r)
{
    const json_t *v = json_object_get(body, "model");
    const char *name = json_string_value(v);

    if (!v)
        return refuse(r, 400, "missing_required_parameter", "model",
                      "'model' is missing; this server's is '%.200s'", s->model_id);
    if (!name)
        return refuse(r, 400, "invalid_type", "model", "'model' must be a string");
    if (strcmp(name, s->model_id) == 0 || strcmp(name, s->model_file) == 0 ||
        strcmp(name, s->model_path) == 0)
        return 0;
    return refuse(r, 404, "model_not_found", "model",
                  "the model '%.200s' does not exist here; this server's is '%.200s'", name,
                  s->model_id);
}

int ask_body(struct job *j, struct refusal *r)
{
    const struct strbuf *text = &j->x->body;
    json_error_t where;

    j->body = json_load_wide(text->data ? text->data : "", text->len, 0, &where);
    if (!j->body)
        return refuse(r, 400, "invalid_json", NULL,
                      "the body is no JSON (line %d, column %d): %.200s", where.line, where.column,
                      where.text);
    if (!json_is_object(j->body))
        return refuse(r, 400, "invalid_type", NULL, "the body must be a JSON object");
    return check_model(j->server, j->body, r);
}

/* ---- fields ---- */

#define AT(member) offsetof(struct wish, member)

static const struct field common[] = {
    {"stream", FIELD_BOOL, 0, 0, AT(stream)},
    {"n", FIELD_INT, 1, SERVE_CHOICES, AT(n)},
    {"seed", FIELD_INT, (double)INT64_MIN, (double)INT64_MAX, AT(seed)},
    {"temperature", FIELD_REAL, 0, 2, AT(temperature)},
    {"top_p", FIELD_REAL, 0, 1, AT(top_p)},
    {"min_p", FIELD_REAL, 0, 1, AT(min_p)},
    {"top_k", FIELD_INT, -1, 1 << 24, AT(top_k)},
    {"repeat_penalty", FIELD_REAL, 0.01, 100, AT(repeat_penalty)},
    {"repetition_penalty", FIELD_REAL, 0.01, 100, AT(repeat_penalty)},
    {"repeat_last_n", FIELD_INT, -1, 1 << 24, AT(repeat_last_n)},
    {"presence_penalty", FIELD_REAL, -2, 2, AT(presence_penalty)},
    {"frequency_penalty", FIELD_REAL, -2, 2, AT(frequency_penalty)},
    {"max_tokens", FIELD_INT, 0, INT_MAX, AT(max_tokens)},
    {"max_completion_tokens", FIELD_INT, 0, INT_MAX, AT(max_tokens)},
    {"max_output_tokens", FIELD_INT, 0, INT_MAX, AT(max_tokens)},
    {"ignore_eos", FIELD_BOOL, 0, 0, AT(ignore_eos)},
};

static int add_stop(struct job *j, const json_t *v, const char *name, struct refusal *r)
{
    const char *text = json_string_value(v);

    if (!text)
        return refuse(r, 400, "invalid_type", name, "'%s' must be a string or a list of strings",
                      name);
    if (!*text || json_string_length(v) > SERVE_STOP_BYTES)
        return refuse(r, 400, "invalid_value", name,
                      "a text of '%s' has %zu bytes; 1 to %d are "
                      "possible",
                      name, json_string_length(v), SERVE_STOP_BYTES);
    if (!(j->stops[j->n_stops] = mem_string(text)))
        return no_memory(r);
    j->n_stops++;
    return 0;
}

int ask_stops(struct job *j, const char *name, struct refusal *r)
{
    const json_t *v = field_get(j->body, name);
    size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;
    int rc = 0;

    if (n > SERVE_STOPS)
        return refuse(r, 400, "invalid_value", name, "'%s' has %zu texts; at most %d are possible",
                      name, n, SERVE_STOPS);
    if (!n)
        return 0;
    if (!(j->stops = mem_alloc(n, sizeof *j->stops)))
        return no_memory(r);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = add_stop(j, json_is_array(v) ? json_array_get(v, i) : v, name, r);
    return rc;
}

static int read_stream_options(struct job *j, struct refusal *r)
{
    static const struct field own[] = {{"include_usage", FIELD_BOOL, 0, 0, AT(include_usage)}};
    const json_t *v = field_get(j->body, "stream_options");

    if (!v)
        return 0;
    if (!json_is_object(v))
        return refuse(r, 400, "invalid_type", "stream_options",
                      "'stream_options' must be an object");
    return fields_read(v, own, 1, &j->wish, r);
}

/* What is not done is refused, never passed over in silence. */
static int check_unsupported(const struct job *j, struct refusal *r)
{
    const json_t *bias = field_get(j->body, "logit_bias"),
                 *format = field_get(j->body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));

    if (bias && !json_is_object(bias))
        return refuse(r, 400, "invalid_type", "logit_bias", "'logit_bias' must be an object");
    if (json_object_size(bias))
        return refuse(r, 400, "unsupported_value", "logit_bias",
                      "'logit_bias' is not supported yet");
    if (format && !type)
        return refuse(r, 400, "invalid_type", "response_format",
                      "'response_format' must be an object with a 'type'");
    if (format && strcmp(type, "text") != 0)
        return refuse(r, 400, "unsupported_value", "response_format",
                      "'response_format' may be text: answers cannot be constrained yet");
    if (j->wish.presence_penalty != 0.0 || j->wish.frequency_penalty != 0.0)
        return refuse(
            r, 400, "unsupported_value",
            j->wish.presence_penalty != 0.0 ? "presence_penalty" : "frequency_penalty",
            "presence and frequency penalties are not supported yet; 'repeat_penalty' is");
    return 0;
}

int ask_common(struct job *j, struct refusal *r)
{
    int64_t given = j->wish.seed;

    if (fields_read(j->body, common, sizeof common / sizeof *common, &j->wish, r) < 0 ||
        read_stream_options(j, r) < 0 || check_unsupported(j, r) < 0)
        return -1;
    if (j->wish.seed == -1) /* llama.cpp's word for a new one */
        j->wish.seed = given;
    return 0;
}

/* ---- texts ---- */

static int add_part(struct strbuf *b, const json_t *part, const char *param, struct refusal *r)
{
    const json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");
    const char *word = json_string_value(type);

    if (!json_is_object(part) || !word)
        return refuse(r, 400, "invalid_type", param,
                      "a part of '%s' must be an object with a 'type'", param);
    if (strcmp(word, "text") != 0 && strcmp(word, "input_text") != 0 &&
        strcmp(word, "output_text") != 0)
        return refuse(r, 400, "unsupported_content", param,
                      "a part of '%s' is of type '%.40s'; this model reads text alone", param,
                      word);
    if (!json_is_string(text))
        return refuse(r, 400, "invalid_type", param, "a part of '%s' has no 'text'", param);
    strbuf_put(b, json_string_value(text), json_string_length(text));
    return 0;
}

char *ask_content(const json_t *v, bool optional, const char *param, struct refusal *r)
{
    struct strbuf b = {0};
    char *text = NULL;
    int rc = 0;

    strbuf_puts(&b, "");
    if (json_is_string(v))
        strbuf_put(&b, json_string_value(v), json_string_length(v));
    else if (json_is_array(v))
        for (size_t i = 0; i < json_array_size(v) && rc == 0; i++)
            rc = add_part(&b, json_array_get(v, i), param, r);
    else if (!optional || (v && !json_is_null(v)))
        rc = refuse(r, 400, v ? "invalid_type" : "missing_required_parameter", param,
                    "'%s' must be a string or a list of parts", param);
    if (rc == 0 && !(text = b.len ? strbuf_take(&b, NULL) : mem_string("")))
        no_memory(r);
    strbuf_release(&b);
    return text;
}

int ask_prompt(const struct server *s, const struct dialogue *d, struct prompt *out,
               struct refusal *r)
{
    struct error e = {0};

    if (prompt_make(worker_info(s->worker), NULL, d, -1, NULL, out, &e) == 0)
        return 0;
    return refuse_error(r, &e);
}
