/* See request_fields.h. */
#include "app/serve/request/request_fields.h"

#include "app/serve/common/model_registry.h"
#include "app/serve/request/constraint.h"
#include "app/serve/request/lora.h"
#include "app/setup/sampling_options.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static int no_memory(struct refusal *r)
{
    return refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
}

/* ---- the body ---- */

int request_model(struct job *j, struct refusal *r)
{
    const struct server *s = j->server;
    const json_t *v = field_get(j->body, "model");
    const char *name = json_string_value(v);
    bool several = registry_id(s->registry, 1) != NULL, none = !v || (name && !*name);
    int loaded = registry_loaded(s->registry), i = loaded;

    if (none && (!several || s->any_model))
        goto known;
    if (none)
        return refuse(r, 400, "missing_required_parameter", "model",
                      "'model' is missing; '%.200s' is loaded, GET /v1/models lists all",
                      s->model_id);
    if (!name)
        return refuse(r, 400, "invalid_type", "model", "'model' must be a string");
    i = registry_find(s->registry, name);
    if (i < 0 && s->any_model)
        i = loaded;
    if (i >= 0)
        goto known;
    return refuse(r, 404, "model_not_found", "model",
                  "the model '%.200s' does not exist here; this server's is '%.200s'%s", name,
                  s->model_id, several ? "; GET /v1/models lists all" : "");
known:
    if (i == loaded && !registry_asleep(s->registry))
        return 0;
    j->other_model = i;
    return -1;
}

json_t *request_json(const struct exchange *x, struct refusal *r)
{
    json_error_t where;
    json_t *o = json_load_wide(strbuf_text(&x->body), x->body.len, 0, &where);

    if (!o)
        refuse(r, 400, "invalid_json", NULL, "the body is no JSON (line %d, column %d): %.200s",
               where.line, where.column, where.text);
    if (!o || json_is_object(o))
        return o;
    json_decref(o);
    refuse(r, 400, "invalid_type", NULL, "the body must be a JSON object");
    return NULL;
}

int request_body(struct job *j, struct refusal *r)
{
    j->body = request_json(j->x, r);
    return j->body ? request_model(j, r) : -1;
}

bool request_waits(struct job *j, struct refusal *r)
{
    return !r->status && j->other_model >= 0 &&
           registry_want(j->server->registry, j->x, j->other_model, r) == 0;
}

/* ---- fields ---- */

#define AT(member) offsetof(struct wish, member)

static const struct field common[] = {
    {"stream", FIELD_BOOL, 0, 0, AT(stream)},
    {"n", FIELD_INT, 1, SERVE_CHOICES, AT(n)},
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

int request_stops(struct job *j, const char *name, struct refusal *r)
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

/* OpenAI's ranges, and other servers' names for the same fields; the values themselves are read by
 * sampling_read_json, whose names are llama-server's. */
struct sampling_fields {
    double temperature, top_p, min_p, presence, frequency, repetition;
    int64_t seed, top_k;
};

#define IN(member) offsetof(struct sampling_fields, member)

static const struct field sampling_fields[] = {
    {"temperature", FIELD_REAL, 0, 2, IN(temperature)},
    {"top_p", FIELD_REAL, 0, 1, IN(top_p)},
    {"min_p", FIELD_REAL, 0, 1, IN(min_p)},
    {"presence_penalty", FIELD_REAL, -2, 2, IN(presence)},
    {"frequency_penalty", FIELD_REAL, -2, 2, IN(frequency)},
    {"repetition_penalty", FIELD_REAL, 0.01, 100, IN(repetition)},
    {"seed", FIELD_INT, (double)INT64_MIN, (double)INT64_MAX, IN(seed)},
    {"top_k", FIELD_INT, -1, 1 << 24, IN(top_k)},
};

/* The biases of a request: valid token ids, -100 to 100. */
static int check_bias(const struct job *j, struct refusal *r)
{
    const struct sampling *s = &j->wish.sampling;
    int n_vocab = server_info(j->server)->model->hp.n_vocab;

    for (int i = 0; i < s->n_bias; i++)
        if (isfinite(s->bias[i].bias) && fabsf(s->bias[i].bias) > 100.0f)
            return refuse(r, 400, "invalid_value", "logit_bias",
                          "'logit_bias' is %g; -100 to 100 is possible, or false for never",
                          (double)s->bias[i].bias);
        else if (s->bias[i].id < 0 || s->bias[i].id >= n_vocab)
            return refuse(r, 400, "invalid_value", "logit_bias",
                          "'logit_bias' names token %d; this model's are 0 to %d", s->bias[i].id,
                          n_vocab - 1);
    return 0;
}

static int read_sampling(struct job *j, struct refusal *r)
{
    struct sampling *s = &j->wish.sampling;
    struct sampling_fields f = {.seed = -1, .repetition = (double)s->repeat_penalty};
    json_t *rest;
    const char *param = NULL;
    struct error e = {0};
    int rc;

    if (fields_read(j->body, sampling_fields, sizeof sampling_fields / sizeof *sampling_fields, &f,
                    r) < 0)
        return -1;
    s->repeat_penalty = (float)f.repetition;
    if (f.seed != -1) /* llama.cpp's value for a random seed */
        s->seed = (uint64_t)f.seed;
    rest = json_copy(j->body);
    json_object_del(rest, "seed");
    if (f.top_k == -1) /* vLLM's value for all */
        json_object_set_new(rest, "top_k", json_integer(0));
    rc = sampling_read_json(s, rest, &param, &e);
    json_decref(rest);
    if (rc < 0)
        return refuse(r, 400, "invalid_value", param, "%s", e.text);
    return check_bias(j, r);
}

#define EDITS_MOST 256 /* lines of a request, and bytes of one */
#define EDIT_BYTES 4096

/* "expert_edits": ["off L17/E9", ...], in the place of those of --expert-edit */
static int edits_read(struct job *j, const json_t *list, struct refusal *r)
{
    const struct engine_info *info = server_info(j->server);
    const char *lines[EDITS_MOST];
    size_t n = list ? json_array_size(list) : 0;
    struct error e = {0};
    int rc;

    if (!list) {
        j->edits = expert_edits_share(info->edits);
        return 0;
    }
    if (!json_is_array(list) || n > EDITS_MOST)
        return refuse(r, 400, "invalid_type", "expert_edits",
                      "'expert_edits' must be a list of at most %d strings such as \"off L17/E9\"",
                      EDITS_MOST);
    for (size_t i = 0; i < n; i++) {
        const json_t *line = json_array_get(list, i);

        lines[i] = json_string_value(line);
        if (!lines[i] || json_string_length(line) > EDIT_BYTES ||
            strlen(lines[i]) != json_string_length(line))
            return refuse(r, 400, "invalid_type", "expert_edits",
                          "'expert_edits'[%zu] must be a string such as \"off L17/E9\"", i);
    }
    rc = expert_edits_read(&j->edits, NULL, &info->model->hp, lines, (int)n, &e);
    if (rc == 0)
        return 0;
    return rc == ERR_USAGE ? refuse(r, 400, "invalid_value", "expert_edits", "%s", e.text)
                           : refuse_error(r, &e);
}

int request_common(struct job *j, struct refusal *r)
{
    if (fields_read(j->body, common, sizeof common / sizeof *common, &j->wish, r) < 0 ||
        read_stream_options(j, r) < 0 || read_sampling(j, r) < 0 ||
        lora_read(j->server, field_get(j->body, "lora"), j->wish.strengths, r) < 0 ||
        edits_read(j, field_get(j->body, "expert_edits"), r) < 0)
        return -1;
    return constraint_read(j, r);
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

char *request_content(const json_t *v, bool optional, const char *param, struct refusal *r)
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
