/* What programs ask of a server, replayed: tests/agents/NAME.json are the requests that
 * tests/tools/agents/run.py kept of each, with the grammar that scripted the answer. Each answer
 * must say that text, or make that call, in the form of its API. */
#include "tests/serving.h"
#include "tests/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CALL "<tool_call>\n{\"name\": \""

/* What was said by an answer. */
struct said {
    char text[8192], name[64], arguments[2048];
    char id[100]; /* of a response */
    int cached;   /* tokens of the prompt that were in the cache; of messages and responses */
};

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

static void add(char *to, size_t size, const char *more)
{
    size_t n = strlen(to);

    ck_assert_uint_lt(n + strlen(more), size);
    strcpy(to + n, more);
}

static void add_call(struct said *s, const json_t *function)
{
    json_t *arguments = json_object_get(function, "arguments");
    char *text = json_is_object(arguments) ? json_dumps(arguments, 0) : NULL;

    if (!s->name[0])
        add(s->name, sizeof s->name, string_of(function, "name"));
    add(s->arguments, sizeof s->arguments,
        text                        ? text
        : json_is_string(arguments) ? json_string_value(arguments)
                                    : "");
    free(text);
}

/* Of /v1/chat/completions: a message or a delta; of /api/chat. */
static void read_message(struct said *s, const json_t *m)
{
    json_t *call;
    size_t i;

    add(s->text, sizeof s->text, string_of(m, "content"));
    json_array_foreach(json_object_get(m, "tool_calls"), i, call)
        add_call(s, json_object_get(call, "function"));
}

/* Of /v1/messages, whole. */
static void read_blocks(struct said *s, const json_t *list)
{
    json_t *block;
    size_t i;

    json_array_foreach(list, i, block)
    {
        char *input = json_dumps(json_object_get(block, "input"), 0);

        add(s->text, sizeof s->text, string_of(block, "text"));
        add(s->name, sizeof s->name, string_of(block, "name"));
        add(s->arguments, sizeof s->arguments, input ? input : "");
        free(input);
    }
}

static void read_cached(struct said *s, const json_t *message)
{
    const json_t *usage = json_object_get(message, "usage");

    s->cached = (int)json_integer_value(json_object_get(usage, "cache_read_input_tokens"));
}

static void read_items(struct said *s, const json_t *response)
{
    json_t *item, *part;
    size_t i, k;

    snprintf(s->id, sizeof s->id, "%s", string_of(response, "id"));
    s->cached = (int)json_integer_value(
        json_object_get(json_object_get(json_object_get(response, "usage"), "input_tokens_details"),
                        "cached_tokens"));
    json_array_foreach(json_object_get(response, "output"), i, item)
    {
        if (json_object_get(item, "namespace")) {
            add(s->name, sizeof s->name, string_of(item, "namespace"));
            add(s->name, sizeof s->name, "__");
        }
        add(s->name, sizeof s->name, string_of(item, "name"));
        add(s->arguments, sizeof s->arguments, string_of(item, "arguments"));
        json_array_foreach(json_object_get(item, "content"), k, part)
            add(s->text, sizeof s->text, string_of(part, "text"));
    }
}

/* One JSON value of an answer: all of it, an event, or a line. */
static void read_value(struct said *s, const json_t *o)
{
    const char *type = string_of(o, "type");
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0),
                 *delta = json_object_get(o, "delta");

    ck_assert_msg(!json_object_get(o, "error") || json_is_null(json_object_get(o, "error")),
                  "an error: %s", json_dumps(o, 0));
    if (choice)
        read_message(s, json_object_get(choice, "delta") ? json_object_get(choice, "delta")
                                                         : json_object_get(choice, "message"));
    else if (json_object_get(o, "done")) {
        read_message(s, json_object_get(o, "message"));
        add(s->text, sizeof s->text, string_of(o, "response"));
    } else if (json_object_get(o, "stop"))
        add(s->text, sizeof s->text, string_of(o, "content"));
    else if (strcmp(type, "message") == 0) {
        read_blocks(s, json_object_get(o, "content"));
        read_cached(s, o);
    } else if (strcmp(type, "message_start") == 0)
        read_cached(s, json_object_get(o, "message"));
    else if (strcmp(type, "content_block_start") == 0)
        add(s->name, sizeof s->name, string_of(json_object_get(o, "content_block"), "name"));
    else if (strcmp(type, "content_block_delta") == 0) {
        add(s->text, sizeof s->text, string_of(delta, "text"));
        add(s->arguments, sizeof s->arguments, string_of(delta, "partial_json"));
    } else if (strcmp(type, "response.completed") == 0)
        read_items(s, json_object_get(o, "response"));
    else if (strcmp(string_of(o, "object"), "response") == 0)
        read_items(s, o);
}

/* The body as the values that it is made of. */
static void read_answer(struct said *s, const struct reply *r)
{
    const char *at = r->body, *end = r->body + r->n;
    bool events = strcasestr(r->head, "text/event-stream") != NULL;

    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t n = line ? (size_t)(line - at) : (size_t)(end - at);
        const char *data = events ? "data: " : "";
        json_t *o;

        if (n > strlen(data) && strncmp(at, data, strlen(data)) == 0 &&
            (at[strlen(data)] == '{' || !events)) {
            o = json_loadb(at + strlen(data), n - strlen(data), 0, NULL);
            ck_assert_msg(o != NULL, "no JSON: %.*s", (int)n, at);
            read_value(s, o);
            json_decref(o);
        }
        at += n + 1;
    }
}

/* The text that the grammar of a request allows; NULL: it has none. malloc'd. */
static char *scripted(const json_t *body)
{
    const char *at = strchr(string_of(body, "grammar"), '"');
    char *out = at ? calloc(1, strlen(at) + 1) : NULL, *to = out;

    for (at = at ? at + 1 : ""; *at && *at != '"'; at++)
        if (*at == '\\')
            *to++ = *++at == 'n' ? '\n' : *at;
        else
            *to++ = *at;
    return out;
}

/* The blanks of arguments are the model's in a stream, and JSON's in a whole object. */
static void check_said(const char *file, const struct said *s, const char *want)
{
    json_t *call, *arguments;
    char *object;

    if (strncmp(want, CALL, strlen(CALL)) != 0) {
        ck_assert_msg(strstr(s->text, want) != NULL, "%s: %s, not %s", file, s->text, want);
        return;
    }
    object = strndup(want + 12, strstr(want, "\n</tool_call>") - want - 12);
    call = json_loads(object, 0, NULL);
    arguments = json_loads(s->arguments, 0, NULL);
    ck_assert_msg(call && strcmp(s->name, string_of(call, "name")) == 0, "%s: %s", file, s->name);
    ck_assert_msg(json_equal(arguments, json_object_get(call, "arguments")), "%s: %s", file,
                  s->arguments);
    json_decref(arguments);
    json_decref(call);
    free(object);
}

/* Requests of an API that tells of its cache, by a program that goes on with its conversation. */
static bool continues(const json_t *request, const json_t *before)
{
    const char *path = string_of(request, "path");

    return strcmp(path, string_of(before, "path")) == 0 &&
           (strcmp(path, "/v1/messages") == 0 || strcmp(path, "/v1/responses") == 0);
}

static void replay(const char *file)
{
    json_t *requests = json_load_file(file, 0, NULL), *request;
    struct said s = {0};
    size_t i;

    ck_assert_msg(json_array_size(requests) > 0, "%s is empty", file);
    json_array_foreach(requests, i, request)
    {
        json_t *body = json_object_get(request, "body");
        char *text, *want = scripted(body);
        struct reply r;

        if (json_object_get(body, "previous_response_id"))
            json_object_set_new(body, "previous_response_id", json_string(s.id));
        text = json_dumps(body, 0);
        r = serving_ask("POST", string_of(request, "path"), NULL, text);
        ck_assert_msg(r.status == 200, "%s, request %zu: %d %.300s", file, i, r.status, r.body);
        s = (struct said){0};
        read_answer(&s, &r);
        if (want)
            check_said(file, &s, want);
        if (i && continues(request, json_array_get(requests, i - 1)))
            ck_assert_msg(s.cached > 0, "%s, request %zu: the prompt was read anew", file, i);
        free(want);
        free(text);
        free(r.head);
    }
    json_decref(requests);
}

static void start(void)
{
    static const char *const more[] = {"-c", "8192", NULL};

    serving_start(more);
}

START_TEST(programs_get_what_they_need)
{
    DIR *d = opendir(support_path("agents"));
    struct dirent *each;
    int n = 0;

    ck_assert(d != NULL);
    while ((each = readdir(d))) {
        char path[512];
        struct stat st;

        if (!strstr(each->d_name, ".json"))
            continue;
        snprintf(path, sizeof path, "%s/%s", support_path("agents"), each->d_name);
        n++;
        /* the longest prompts take minutes under a sanitizer, and no other way */
        if (stat(path, &st) == 0 && (st.st_size < 8000 || support_turn(1, 2)))
            replay(path);
    }
    closedir(d);
    ck_assert_int_ge(n, 24);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve_agents");
    TCase *t = tcase_create("agents");

    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, start, serving_end_well);
    tcase_add_test(t, programs_get_what_they_need);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
