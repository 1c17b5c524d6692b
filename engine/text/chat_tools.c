/* See chat_tools.h. Any thread. */
#include "engine/text/chat_tools.h"

#include "engine/base/mem.h"

#include <string.h>

#define NAME "probe_tool"
#define KEY "probe_key"
#define VALUE "probe_value"
#define RESULT "probe_result"

static const char tools_text[] =
    "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"" NAME "\", \"description\": "
    "\"d\", \"parameters\": {\"type\": \"object\", \"properties\": {\"" KEY "\": {\"type\": "
    "\"string\", \"description\": \"d\"}}, \"required\": [\"" KEY "\"]}}}]}";

/* Ways of writing a call; the first that is rendered completely is used. */
struct way {
    bool system, short_id, empty, text;
    bool results; /* the call's result follows */
    bool twice;   /* two calls at once */
};
#define WAYS 16

static struct way way_of(int i, bool results)
{
    return (struct way){
        .system = !(i & 8), .short_id = i & 4, .empty = i & 2, .text = i & 1, .results = results};
}

/* Parameters of a search. */
struct probe {
    chat_tools_render *render;
    void *ctx;
    const json_t *given;
};

/* Defects of a rendering; smaller is better. */
enum { WRITTEN = 0, ODD_CONTENT = 1, ODD_ARGUMENTS = 2, NO_RESULT = 4, NO_CALL = 8 };

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

static json_t *call_of(const struct way *w)
{
    json_t *arguments = json_pack("{s:s}", KEY, VALUE);

    if (w->text) {
        json_decref(arguments);
        arguments = json_string("{\"" KEY "\": \"" VALUE "\"}");
    }
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id",
                     w->short_id ? "abcdefgh1" : "call_0123456789", "type", "function", "function",
                     "name", NAME, "arguments", arguments);
}

static json_t *calls_of(const struct way *w)
{
    json_t *calls = json_pack("[o]", call_of(w));

    if (w->twice)
        json_array_append_new(calls, call_of(w));
    return json_pack("{s:o, s:o}", "content", w->empty ? json_string("") : json_null(),
                     "tool_calls", calls);
}

/* *text: mem_*; NULL: rendering failed. */
static int render(const struct probe *p, const struct message *m, size_t n, char **text,
                  struct error *e)
{
    struct error why = {0};
    int rc = p->render(p->ctx, m, n, p->given, m[n - 1].role != ROLE_ASSISTANT, text, &why);

    if (rc == 0)
        return 0;
    *text = NULL;
    if (rc != ERR_MEMORY && rc != ERR_CANCELLED)
        return 0;
    *e = why;
    return rc;
}

static int try_way(const struct probe *p, const struct way *w, char **text, struct error *e)
{
    char be[] = "Be kind.", hello[] = "Hi", none[] = "", result[] = RESULT;
    struct message m[] = {{.role = ROLE_SYSTEM, .text = be},
                          {.role = ROLE_USER, .text = hello},
                          {.role = ROLE_ASSISTANT, .text = none, .members = calls_of(w)},
                          {.role = ROLE_TOOL, .text = result}};
    size_t skip = w->system ? 0 : 1;
    int rc;

    *text = NULL;
    m[3].members = json_pack("{s:s, s:s}", "tool_call_id",
                             w->short_id ? "abcdefgh1" : "call_0123456789", "name", NAME);
    if (!m[2].members || !m[3].members)
        rc = error_set(e, ERR_MEMORY, "out of memory for the chat template");
    else
        rc = render(p, m + skip, (w->results ? 4 : 3) - skip, text, e);
    json_decref(m[2].members);
    json_decref(m[3].members);
    return rc;
}

static int faults_of(const char *text, bool results)
{
    int faults = WRITTEN;

    if (!text || !strstr(text, VALUE))
        return NO_CALL;
    if (results && !strstr(text, RESULT))
        faults |= NO_RESULT;
    /* a mapping as Python prints it, or JSON within JSON */
    if (strstr(text, "{'" KEY "'") || strstr(text, "{\\\"" KEY))
        faults |= ODD_ARGUMENTS;
    return faults;
}

/* Null printed as a word: "None" occurs more often than with "". */
static int odd_content(const struct probe *p, struct way w, const char *text, struct error *e)
{
    char *other;
    int rc;

    w.empty = true;
    if ((rc = try_way(p, &w, &other, e)) < 0)
        return rc;
    rc = other && count(other, "None") < count(text, "None") ? ODD_CONTENT : WRITTEN;
    mem_free(other);
    return rc;
}

/* *best: how calls are written, if *least is less than NO_CALL. */
static int find_way(struct chat_tools *out, const struct probe *p, bool results, struct way *best,
                    int *least, struct error *e)
{
    for (int i = 0; i < WAYS && *least != WRITTEN; i++) {
        struct way w = way_of(i, results);
        int faults, odd = WRITTEN;
        char *text;

        if (try_way(p, &w, &text, e) < 0)
            return e->code;
        faults = faults_of(text, results);
        if (faults < *least && !w.empty && strstr(text, "None"))
            odd = odd_content(p, w, text, e);
        if (odd >= 0 && (faults | odd) < *least) {
            *least = faults | odd;
            *best = w;
            out->hermes = strstr(text, "<tool_call>\n{\"name\": \"" NAME
                                       "\", \"arguments\": {\"") != NULL;
            out->deepseek = strstr(text, "<｜tool▁call▁begin｜>" NAME "<｜tool▁sep｜>{\"") != NULL;
        }
        mem_free(text);
        if (odd < 0)
            return odd;
    }
    return 0;
}

static int find_calls(struct chat_tools *out, const struct probe *p, struct error *e)
{
    struct way best = {0};
    int least = NO_CALL, rc = find_way(out, p, true, &best, &least, e);
    char *text;

    if (rc == 0 && least == NO_CALL) /* calls without results */
        rc = find_way(out, p, false, &best, &least, e);
    if (rc < 0 || least == NO_CALL)
        return rc;
    out->calls = true;
    out->results = best.results && !(least & NO_RESULT);
    out->text_arguments = best.text;
    out->empty_content = best.empty;
    out->short_ids = best.short_id;
    best.twice = true;
    best.results = false;
    if ((rc = try_way(p, &best, &text, e)) < 0)
        return rc;
    out->single = !text || count(text, VALUE) < 2;
    mem_free(text);
    return 0;
}

/* Whether tools, or a result, are rendered, without calls. */
static int find_word(const struct probe *p, const char *word, bool result, bool *found,
                     struct error *e)
{
    char be[] = "Be kind.", hello[] = "Hi", yes[] = "Yes.", said[] = RESULT, *text;
    struct message m[] = {{.role = ROLE_SYSTEM, .text = be},
                          {.role = ROLE_USER, .text = hello},
                          {.role = ROLE_ASSISTANT, .text = yes},
                          {.role = ROLE_TOOL, .text = said}};

    *found = false;
    for (size_t skip = 0; skip < 2 && !*found; skip++) {
        if (render(p, m + skip, (result ? 4 : 2) - skip, &text, e) < 0)
            return e->code;
        *found = text && strstr(text, word);
        mem_free(text);
    }
    return 0;
}

static int find_system(const struct probe *p, bool *refused, struct error *e)
{
    char be[] = "Be kind.", hello[] = "Hi", *text;
    struct message m[] = {{.role = ROLE_SYSTEM, .text = be}, {.role = ROLE_USER, .text = hello}};
    int rc = render(p, m, 2, &text, e);

    *refused = !text;
    mem_free(text);
    return rc;
}

/* *out: the tools are listed only if each has a description. */
static int find_described(const struct probe *p, bool *out, struct error *e)
{
    json_t *given = json_deep_copy(p->given);
    json_t *tool = json_array_get(json_object_get(given, "tools"), 0);
    struct probe bare = {p->render, p->ctx, given};
    bool found;
    int rc;

    if (!given)
        return error_set(e, ERR_MEMORY, "out of memory for the chat template");
    json_object_del(json_object_get(tool, "function"), "description");
    rc = find_word(&bare, NAME, false, &found, e);
    *out = !found;
    json_decref(given);
    return rc;
}

int chat_tools_find(struct chat_tools *out, chat_tools_render *rendering, void *ctx,
                    struct error *e)
{
    json_t *given = json_loads(tools_text, 0, NULL);
    struct probe p = {rendering, ctx, NULL};
    int rc;

    *out = (struct chat_tools){0};
    if (!given)
        return error_set(e, ERR_MEMORY, "out of memory for the chat template");
    rc = find_system(&p, &out->no_system, e);
    p.given = given;
    if (rc == 0)
        rc = find_word(&p, NAME, false, &out->tools, e);
    if (rc == 0 && out->tools)
        rc = find_described(&p, &out->described, e);
    if (!out->tools)
        p.given = NULL;
    if (rc == 0)
        rc = find_calls(out, &p, e);
    if (rc == 0 && out->tools && !out->calls)
        rc = find_word(&p, RESULT, true, &out->results, e);
    json_decref(given);
    return rc;
}
