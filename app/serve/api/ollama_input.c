/* See ollama_input.h. */
#include "app/serve/api/ollama_input.h"

#include "app/serve/request/request_fields.h"

#include "engine/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

/* Those that have an effect here; all others of Ollama's are about its runner. */
static const struct {
    const char *ollama, *ours;
} options[] = {
    {"num_predict", "max_tokens"},
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"repeat_penalty", "repeat_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"mirostat", "mirostat"},
    {"mirostat_tau", "mirostat_tau"},
    {"mirostat_eta", "mirostat_eta"},
    {"seed", "seed"},
    {"stop", "stop"},
};

static int read_options(struct job *j, struct refusal *r)
{
    const json_t *given = field_get(j->body, "options");

    if (given && !json_is_object(given))
        return refuse(r, 400, "invalid_type", "options", "'options' must be an object");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        json_t *v = json_object_get(given, options[i].ollama);

        json_object_del(j->body, options[i].ours); /* only its options count */
        if (v && !json_is_null(v))
            json_object_set(j->body, options[i].ours, v);
    }
    /* -1: without a limit, -2: as the context allows, which is the same here */
    if (json_integer_value(json_object_get(j->body, "max_tokens")) < 0) {
        json_object_del(j->body, "max_tokens");
        j->wish.max_tokens = -1;
    }
    return 0;
}

/* "json", or a schema. */
static int read_format(struct job *j, struct refusal *r)
{
    const json_t *format = field_get(j->body, "format");
    const char *word = json_string_value(format);

    j->format_name = "format";
    json_object_del(j->body, "response_format");
    if (!format || (word && !*word))
        return 0;
    if (json_is_object(format))
        json_object_set_new(j->body, "response_format",
                            json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema",
                                      "schema", format));
    else if (word && strcmp(word, "json") == 0)
        json_object_set_new(j->body, "response_format", json_pack("{s:s}", "type", "json_object"));
    else
        return refuse(r, 400, "invalid_value", "format",
                      "'format' must be \"json\" or a JSON schema");
    return 0;
}

/* true, false, or how much: the template's variables. */
static int read_think(struct job *j, struct refusal *r)
{
    const json_t *think = field_get(j->body, "think");
    bool on = json_is_true(think) || json_is_string(think);
    json_t *kwargs;

    if (!think)
        return 0;
    if (!json_is_boolean(think) && !json_is_string(think))
        return refuse(r, 400, "invalid_type", "think",
                      "'think' must be true, false, \"low\", \"medium\" or \"high\"");
    kwargs = json_pack("{s:b, s:b}", "enable_thinking", on, "thinking", on);
    if (json_is_string(think))
        json_object_set(kwargs, "reasoning_effort", (json_t *)(uintptr_t)think);
    json_object_set_new(j->body, "chat_template_kwargs", kwargs);
    return 0;
}

#define KEEP_MOST_S 3e9 /* a century */

/* As Go writes it: "5m", "1h30m", "-1ms", or a number of seconds alone. */
static bool read_duration(const char *p, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    double sign = *p == '-' ? -1 : 1;

    *seconds = 0;
    p += *p == '-' || *p == '+';
    if (*p && strspn(p, "0123456789") == strlen(p)) {
        *seconds = sign * strtod(p, NULL);
        return true;
    }
    do {
        size_t digits = strspn(p, "0123456789."), n = strcspn(p + digits, "0123456789."), i = 0;

        while (i < sizeof units / sizeof *units &&
               (strlen(units[i].name) != n || strncmp(units[i].name, p + digits, n) != 0))
            i++;
        if (!digits || i == sizeof units / sizeof *units)
            return false;
        *seconds += sign * strtod(p, NULL) * units[i].seconds;
        p += digits + n;
    } while (*p);
    return true;
}

int ollama_keep_alive(const struct job *j, int64_t *ns, struct refusal *r)
{
    const json_t *v = field_get(j->body, "keep_alive");
    double seconds = json_number_value(v);

    *ns = -1;
    if (!v)
        return 0;
    if (!json_is_number(v) && !(json_is_string(v) && read_duration(json_string_value(v), &seconds)))
        return refuse(r, 400, "invalid_value", "keep_alive",
                      "'keep_alive' must be a number of seconds or a duration such as \"5m\"");
    if (seconds >= 0 && seconds < KEEP_MOST_S)
        *ns = (int64_t)(seconds * (double)CLOCK_SECOND);
    return 0;
}

int ollama_fields(struct job *j, struct refusal *r)
{
    if (!field_get(j->body, "stream"))
        json_object_set_new(j->body, "stream", json_true());
    return read_options(j, r) < 0 || read_format(j, r) < 0 || read_think(j, r) < 0 ||
                   request_common(j, r) < 0
               ? -1
               : request_stops(j, "stop", r);
}

/* ---- messages ---- */

int ollama_no_images(const json_t *o, const char *param, struct refusal *r)
{
    const json_t *images = field_get(o, "images");

    return images && (!json_is_array(images) || json_array_size(images))
               ? refuse(r, 400, "unsupported_content", param,
                        "'%s' has images; this model reads text alone", param)
               : 0;
}

/* Copies a member under OpenAI's name. */
static void take(json_t *to, const char *name, const json_t *from, const char *ollama)
{
    const json_t *v = field_get(from, ollama);

    if (v)
        json_object_set(to, name, (json_t *)(uintptr_t)v);
}

json_t *ollama_messages(const json_t *list, struct refusal *r)
{
    json_t *all = json_array();

    if (list && !json_is_array(list))
        refuse(r, 400, "invalid_type", "messages", "'messages' must be a list");
    for (size_t i = 0; i < json_array_size(list) && !r->status; i++) {
        const json_t *m = json_array_get(list, i);
        json_t *to = json_pack("{s:s}", "content", "");
        char param[32];

        snprintf(param, sizeof param, "messages[%zu]", i);
        if (!json_is_object(m))
            refuse(r, 400, "invalid_type", param, "'%s' must be an object", param);
        else
            ollama_no_images(m, param, r);
        take(to, "role", m, "role");
        take(to, "content", m, "content");
        take(to, "reasoning_content", m, "thinking");
        take(to, "tool_calls", m, "tool_calls");
        take(to, "tool_call_id", m, "tool_call_id");
        take(to, "name", m, "tool_name");
        json_array_append_new(all, to);
    }
    if (!r->status)
        return all;
    json_decref(all);
    return NULL;
}
