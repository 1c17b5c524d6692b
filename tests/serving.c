/* See serving.h. */
#include "tests/serving.h"

#include "tests/support.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

char serving_binary[PATH_MAX + 32], log_path[300];
const char *serving_program = "moetop";
pid_t serving_pid;
int serving_port;

/* ---- the server ---- */

void serving_find_binary(void)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    ck_assert_int_gt(n, 0);
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    *strrchr(exe, '/') = 0;
    snprintf(serving_binary, sizeof serving_binary, "%s/%s", exe, serving_program);
    ck_assert_msg(access(serving_binary, X_OK) == 0, "%s is not built", serving_binary);
}

char *serving_log_text(void)
{
    static char text[1 << 20];
    FILE *f = fopen(log_path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

    text[n] = 0;
    if (f)
        fclose(f);
    return text;
}

/* Until the log says so; the test's own time limit ends it otherwise. */
char *serving_wait_for_log(const char *what)
{
    char *at;

    while (!(at = strstr(serving_log_text(), what))) {
        int status;

        ck_assert_msg(waitpid(serving_pid, &status, WNOHANG) == 0, "it ended: %s",
                      serving_log_text());
        usleep(5000);
    }
    return at;
}

/* In the child, before it becomes the server. */
void (*serving_prepare)(void);

void serving_start(const char *const *more)
{
    const char *argv[24] = {serving_binary, "--serve", "--port", "0", "-t", "2"};
    int n = 6;
    char *at;

    serving_find_binary();
    snprintf(log_path, sizeof log_path, "%s/serve.log", support_tmpdir());
    unlink(log_path);
    while (more && *more && n < 23)
        argv[n++] = *more++;
    serving_pid = fork();
    if (serving_pid == 0) {
        int fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600),
            null = open("/dev/null", O_RDONLY);

        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv("XDG_CACHE_HOME", support_tmpdir(), 1);
        setenv("XDG_CONFIG_HOME", support_tmpdir(), 1);
        if (serving_prepare)
            serving_prepare();
        execv(serving_binary, (char *const *)argv);
        _exit(127);
    }
    at = serving_wait_for_log(" is ready on ");
    at = strstr(at, "127.0.0.1:");
    serving_port = at ? atoi(at + strlen("127.0.0.1:")) : 0;
}

int serving_end(void)
{
    int status;

    kill(serving_pid, SIGTERM);
    ck_assert_int_eq(waitpid(serving_pid, &status, 0), serving_pid);
    serving_pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void serving_plain_server(void)
{
    serving_start(NULL);
}

void serving_end_well(void)
{
    int code = serving_pid ? serving_end() : 0;

    ck_assert_msg(code == 0, "exit status %d: %s", code, serving_log_text());
}

/* ---- requests ---- */

int serving_dial(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)serving_port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_msg(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "nobody listens on %d",
                  serving_port);
    return fd;
}

void serving_say(int fd, const char *text, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);

        if (sent <= 0)
            return; /* the server has hung up: what it said counts */
        text += sent;
        n -= (size_t)sent;
    }
}

char *serving_hear(int fd, size_t *n)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    ssize_t got;

    *n = 0;
    while ((got = recv(fd, text + *n, room - *n - 1, 0)) > 0) {
        *n += (size_t)got;
        if (room - *n < 4096)
            text = realloc(text, room *= 2);
    }
    text[*n] = 0;
    return text;
}

static void join_chunks(struct reply *r)
{
    char *from = r->body, *to = r->body;

    for (;;) {
        char *next;
        size_t n = strtoul(from, &next, 16);

        ck_assert_msg(next > from && next[0] == '\r' && next[1] == '\n', "a chunk begins: %.40s",
                      from);
        memmove(to, next + 2, n);
        to += n;
        from = next + 2 + n + 2;
        if (!n)
            break;
    }
    *to = 0;
    r->n = (size_t)(to - r->body);
}

struct reply serving_read_reply(int fd)
{
    struct reply r = {0};
    char *border;

    r.head = serving_hear(fd, &r.n);
    close(fd);
    if (!(border = strstr(r.head, "\r\n\r\n")))
        return r;
    r.status = atoi(r.head + strlen("HTTP/1.1 "));
    r.body = border + 4;
    r.n -= (size_t)(r.body - r.head);
    border[2] = 0;
    if (strcasestr(r.head, "transfer-encoding: chunked"))
        join_chunks(&r);
    return r;
}

/* headers: lines with their ends, or NULL: what a client sends. */
struct reply serving_ask(const char *method, const char *path, const char *headers,
                         const char *body)
{
    int fd = serving_dial();
    char head[4096];
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nConnection: close\r\n%s", method, path,
                     headers ? headers : "Host: localhost\r\nContent-Type: application/json\r\n");

    if (body)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %zu\r\n", strlen(body));
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    serving_say(fd, head, (size_t)n);
    if (body)
        serving_say(fd, body, strlen(body));
    return serving_read_reply(fd);
}

json_t *serving_read_json(const struct reply *r, int status)
{
    json_t *o = r->body ? json_loads(r->body, 0, NULL) : NULL;

    ck_assert_msg(r->status == status, "status %d: %.300s", r->status,
                  r->body ? r->body : "nothing");
    ck_assert_msg(o != NULL, "no JSON: %.300s", r->body);
    return o;
}

json_t *serving_post(const char *path, const char *body, int status)
{
    struct reply r = serving_ask("POST", path, NULL, body);
    json_t *o = serving_read_json(&r, status);

    free(r.head);
    return o;
}

const char *serving_text_at(json_t *o, const char *first, const char *second)
{
    json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    json_t *v = json_object_get(choice, first);

    return json_string_value(second ? json_object_get(v, second) : v);
}

/* The texts of a stream's deltas, one after the other; *events: how many there were. */
char *serving_stream_text(const struct reply *r, int *events)
{
    char *all = calloc(1, r->n + 1), *at = r->body;

    *events = 0;
    while ((at = strstr(at, "data: {"))) {
        json_t *o = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL), *choice;
        const char *text;

        ck_assert_msg(o != NULL, "an event is no JSON: %.80s", at);
        choice = json_array_get(json_object_get(o, "choices"), 0);
        text = json_string_value(json_object_get(json_object_get(choice, "delta"), "content"));
        if (!text)
            text = json_string_value(json_object_get(choice, "text"));
        strcat(all, text ? text : "");
        json_decref(o);
        ++*events;
        at += 7;
    }
    return all;
}

/* In the manner of those that know tools: Hermes' calls, or (after "bare") Llama 3's. */
const char serving_tools[] =
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>"
    "{% if m.role == 'tool' %}[{{ m.name }} {{ m.tool_call_id }}] {% endif %}"
    "{{ m.content if m.content is string }}"
    "{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}{{ mood }}";

void serving_start_with_template(const char *text)
{
    static char path[300];
    const char *const more[] = {"--chat-template-file", path, "--plain", NULL};
    FILE *f;

    snprintf(path, sizeof path, "%s/template.jinja", support_tmpdir());
    ck_assert((f = fopen(path, "w")) != NULL);
    fputs(text, f);
    fclose(f);
    serving_start(more);
}

/* Adds a delta's part of a call to the calls, by its index. */
static void join_call(json_t *calls, const json_t *part)
{
    json_t *index = json_object_get(part, "index"), *f = json_object_get(part, "function"), *call;
    const json_t *name = json_object_get(f, "name");
    const char *more = json_string_value(json_object_get(f, "arguments")), *had;
    char *all = NULL;

    ck_assert(json_is_integer(index) && more);
    call = json_array_get(calls, (size_t)json_integer_value(index));
    if (!call) { /* calls begin in order, with id and name */
        ck_assert_int_eq(json_integer_value(index), (int)json_array_size(calls));
        ck_assert(json_is_string(json_object_get(part, "id")) && json_is_string(name));
        call = json_pack("{s:O, s:s}", "name", name, "arguments", "");
        json_array_append_new(calls, call);
    }
    had = json_string_value(json_object_get(call, "arguments"));
    ck_assert(asprintf(&all, "%s%s", had, more) >= 0);
    json_object_set_new(call, "arguments", json_string(all));
    free(all);
}

char *serving_stream_calls(const struct reply *r, char finish[16])
{
    char *all = calloc(1, r->n + 1), *at = r->body;
    json_t *calls = json_array(), *call;
    size_t i;

    finish[0] = 0;
    while ((at = strstr(at, "data: {"))) {
        json_t *o = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL), *choice;
        const char *word;

        choice = json_array_get(json_object_get(o, "choices"), 0);
        json_array_foreach(json_object_get(json_object_get(choice, "delta"), "tool_calls"), i, call)
            join_call(calls, call);
        if ((word = json_string_value(json_object_get(choice, "finish_reason"))))
            snprintf(finish, 16, "%s", word);
        json_decref(o);
        at += 7;
    }
    json_array_foreach(calls, i, call)
        sprintf(all + strlen(all), "%s %s\n", json_string_value(json_object_get(call, "name")),
                json_string_value(json_object_get(call, "arguments")));
    json_decref(calls);
    return all;
}

/* A chat's request whose answer is this text, for a grammar says so. */
json_t *serving_made_to_say(const char *text)
{
    json_t *o = json_loads(ASK "\"Where is the fox?\"}], " FIND ", \"temperature\": 0}", 0, NULL);
    char root[600] = "root ::= \"";
    size_t n = strlen(root);

    for (; *text; text++)
        n += (size_t)snprintf(root + n, sizeof root - n, "%s%c",
                              strchr("\\\"\n", *text) ? "\\" : "", *text == '\n' ? 'n' : *text);
    snprintf(root + n, sizeof root - n, "\"");
    json_object_set_new(o, "grammar", json_string(root));
    return o;
}

json_t *serving_post_json(const char *path, const json_t *body, int status)
{
    char *text = json_dumps(body, 0);
    json_t *o = serving_post(path, text, status);

    free(text);
    return o;
}
