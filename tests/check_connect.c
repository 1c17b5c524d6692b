/* --connect: the real program against its own server, and against one in this process that says
 * what a test scripts, broken streams among it. */
#include "app/common/engine_state.h"
#include "app/connect/figures.h"
#include "app/connect/http.h"
#include "app/connect/remote.h"
#include "app/connect/sse.h"
#include "engine/base/json.h"
#include "engine/placement/plan.h"
#include "tests/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE(text) \
    "data: {\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"" text "\"}}]}\n\n"
#define THOUGHT(text) \
    "data: {\"choices\": [{\"index\": 0, \"delta\": {\"reasoning_content\": \"" text "\"}}]}\n\n"
#define STOP "data: {\"choices\": [{\"index\": 0, \"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n"
#define DONE "data: [DONE]\n\n"
#define ONE_MODEL "{\"data\": [{\"id\": \"big-model\", \"owned_by\": \"vllm\"}]}"

/* What the server does; each test sets it, its thread reads it. */
static struct {
    const char *models, *stream, *type, *key, *metrics;
    unsigned status;            /* of an answer, 0: 200 */
    const char *body;           /* of such an answer */
    int loading, busy;          /* so many times 503 on /health, on a request */
    bool cut, silent;           /* the stream ends with an error; never ends */
    const char *header, *value; /* of every answer to a request, a list of models and /health */
    size_t packed;              /* bytes of models, where they hold a NUL */
} script;
static struct MHD_Daemon *daemon_;
static int port, asked;
static char request[1 << 16], said[1 << 16], answer[1 << 16], log_path[PATH_MAX];
static pid_t server;

/* ---- the scripted server ---- */

static enum MHD_Result reply_bytes(struct MHD_Connection *c, unsigned status, const char *type,
                                   const char *text, size_t n)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)text,
                                                             MHD_RESPMEM_MUST_COPY);
    enum MHD_Result rc;

    MHD_add_response_header(r, "Content-Type", type);
    if (script.header && (!script.packed || text == script.models))
        MHD_add_response_header(r, script.header, script.value);
    rc = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *type,
                             const char *text)
{
    return reply_bytes(c, status, type, text, strlen(text));
}

static ssize_t send_some(void *ctx, uint64_t at, char *to, size_t most)
{
    size_t n = strlen(script.stream) - (size_t)at;

    if (n == 0 && script.silent) {
        usleep(20000);
        return 0;
    }
    if (n == 0)
        return script.cut ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    n = n < most ? n : most;
    n = n > 7 ? 7 : n; /* in small pieces */
    memcpy(to, script.stream + at, n);
    return (ssize_t)n;
}

static enum MHD_Result stream(struct MHD_Connection *c)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, send_some,
                                                               NULL, NULL);
    enum MHD_Result rc;

    MHD_add_response_header(r, "Content-Type", script.type ? script.type : "text/event-stream");
    rc = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result serve(void *ctx, struct MHD_Connection *c, const char *url,
                             const char *method, const char *version, const char *data, size_t *n,
                             void **state)
{
    static int begun;
    const char *bearer = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    char wanted[80];

    if (!*state) {
        *state = &begun;
        if (!strcmp(method, "POST"))
            request[0] = 0;
        return MHD_YES;
    }
    if (*n) {
        strncat(request, data,
                *n < sizeof request - strlen(request) - 1 ? *n
                                                          : sizeof request - strlen(request) - 1);
        *n = 0;
        return MHD_YES;
    }
    if (strcmp(url, "/health") == 0) {
        if (script.loading) {
            script.loading--;
            return reply(c, 503, "application/json", "{\"status\": \"loading\"}");
        }
        return reply(c, 200, "application/json", "{}");
    }
    snprintf(wanted, sizeof wanted, "Bearer %s", script.key ? script.key : "");
    if (script.key && (!bearer || strcmp(bearer, wanted)))
        return reply(c, 401, "application/json", "{\"error\": {\"message\": \"no key\"}}");
    if (strcmp(url, "/metrics") == 0 && script.metrics)
        return reply(c, 200, "text/plain", script.metrics);
    if (strcmp(url, "/v1/models") == 0 && script.packed)
        return reply_bytes(c, 200, "application/json", script.models, script.packed);
    if (strcmp(url, "/v1/models") == 0)
        return reply(c, 200, "application/json", script.models ? script.models : ONE_MODEL);
    if (strcmp(method, "POST"))
        return reply(c, 404, "application/json", "{}");
    asked++;
    if (script.busy) {
        script.busy--;
        return reply(c, 503, "text/plain", "busy");
    }
    if (script.body)
        return reply(c, script.status ? script.status : 200,
                     script.type ? script.type : "application/json", script.body);
    return stream(c);
}

static void set_up(void)
{
    memset(&script, 0, sizeof script);
    script.stream = PIECE("Hello") PIECE(" there") STOP DONE;
    daemon_ = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, serve, NULL,
                               MHD_OPTION_END);
    ck_assert_ptr_nonnull(daemon_);
    port = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port;
}

static void tear_down(void)
{
    MHD_stop_daemon(daemon_);
}

/* ---- the program ---- */

static void slurp(const char *path, char *to, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(to, 1, size - 1, f) : 0;

    to[n] = 0;
    if (f)
        fclose(f);
}

static const char *binary(void)
{
    static char path[PATH_MAX + 16], exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    ck_assert_int_gt(n, 0);
    exe[n] = 0;
    *strrchr(exe, '/') = 0;
    *strrchr(exe, '/') = 0;
    snprintf(path, sizeof path, "%s/moetop", exe);
    return path;
}

/* Its exit status; stdout in answer, stderr in said. */
static int shell(const char *format, const char *arguments)
{
    static char command[8 * PATH_MAX], path[PATH_MAX + 8];
    const char *tmp = support_tmpdir();
    int status, n;

    n = snprintf(
        command, sizeof command,
        "export XDG_CACHE_HOME=%s XDG_CONFIG_HOME=%s XDG_STATE_HOME=%s NO_PROXY=127.0.0.1;", tmp,
        tmp, tmp);
    n += snprintf(command + n, sizeof command - (size_t)n, format, binary(), arguments);
    snprintf(command + n, sizeof command - (size_t)n, " >%s/out 2>%s/err", tmp, tmp);
    status = system(command);
    snprintf(path, sizeof path, "%s/out", tmp);
    slurp(path, answer, sizeof answer);
    snprintf(path, sizeof path, "%s/err", tmp);
    slurp(path, said, sizeof said);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int moetop(const char *arguments)
{
    return shell("%s %s </dev/null", arguments);
}

static int ask(const char *more)
{
    static char arguments[5 * PATH_MAX];
    int n = snprintf(arguments, sizeof arguments, "--connect http://127.0.0.1:%d/v1/ ", port);

    ck_assert_uint_lt((size_t)n + strlen(more), sizeof arguments);
    strcpy(arguments + n, more);
    return moetop(arguments);
}

#define SAYS(text) ck_assert_msg(strstr(said, text) != NULL, "it says: %s", said)
#define IS(text) ck_assert_msg(strcmp(answer, text) == 0, "it answers %s (%s)", answer, said)

START_TEST(an_answer_comes_from_a_server)
{
    json_t *body;

    ck_assert_msg(ask("-p hi --temp 0.5 -n 9 --seed 3 -r END") == 0, "%s", said);
    IS("Hello there");
    body = json_loads(request, 0, NULL);
    ck_assert_ptr_nonnull(body);
    ck_assert_str_eq(json_string_value(json_object_get(body, "model")), "big-model");
    ck_assert_int_eq(json_integer_value(json_object_get(body, "max_tokens")), 9);
    ck_assert_int_eq(json_integer_value(json_object_get(body, "seed")), 3);
    ck_assert(json_number_value(json_object_get(body, "temperature")) == 0.5);
    ck_assert_uint_eq(json_array_size(json_object_get(body, "stop")), 1);
    ck_assert_ptr_null(json_object_get(body, "top_k")); /* the server's to choose */
    json_decref(body);
}
END_TEST

START_TEST(thoughts_are_told_apart)
{
    script.stream = THOUGHT("hmm") PIECE("yes") STOP DONE;
    ck_assert_int_eq(ask("-p hi"), 0);
    IS("yes");
    SAYS("hmm");
}
END_TEST

START_TEST(every_way_to_end_well)
{
    /* comments, CRLF, no [DONE], no finish reason, usage, an answer that does not stream */
    script.stream =
        ": ping\r\n\r\ndata: {\"choices\": [{\"delta\": {\"content\": \"a\"}}]}\r\n\r\n" STOP;
    ck_assert_msg(ask("-p hi") == 0, "%s", said);
    IS("a");
    script.stream = PIECE("b") DONE;
    ck_assert_int_eq(ask("-p hi"), 0);
    IS("b");
    script.stream = PIECE("c") STOP "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 5, "
                                    "\"completion_tokens\": 77}}\n\n" DONE;
    ck_assert_int_eq(ask("-p hi --stats"), 0);
    SAYS("5 prompt (0 from the cache, 0 recomputed) + 77 generated");
    script.body =
        "{\"choices\": [{\"message\": {\"content\": \"whole\"}, \"finish_reason\": \"stop\"}]}";
    ck_assert_int_eq(ask("-p hi"), 0);
    IS("whole");
}
END_TEST

START_TEST(a_broken_stream_keeps_what_came)
{
    script.stream = PIECE("Once upon") PIECE(" a time");
    script.cut = true;
    ck_assert_int_eq(ask("-p hi"), 5);
    IS("Once upon a time");
    SAYS("the stream broke after 2 pieces (the connection was cut); what came is kept");
    ck_assert_int_eq(asked, 1); /* nobody is asked twice for half an answer */
    script.cut = false;         /* ended, not cut: as bad */
    ck_assert_int_eq(ask("-p hi"), 5);
    IS("Once upon a time");
    SAYS("the stream ended in the middle, after 2 pieces; what came is kept");
}
END_TEST

START_TEST(errors_inside_a_stream_are_said)
{
    script.stream = PIECE("x") "data: {\"error\": {\"message\": \"out of\\u001b[31m steam\"}}\n\n";
    ck_assert_int_eq(ask("-p hi"), 5);
    IS("x");
    SAYS("out of\\e[31m steam; what came before is kept");
    script.stream = PIECE("x") "data: {broken\n\n";
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("a piece of its stream is no JSON");
}
END_TEST

#define DELTA(members) "data: {\"choices\": [{\"index\": 0, \"delta\": {" members "}}]}\n\n"
#define CALL(members) DELTA("\"tool_calls\": [{" members "}]")

START_TEST(streams_of_all_servers_are_read)
{
    static const struct {
        const char *stream, *answer, *thought;
    } cases[] = {
        /* events without a text, blanks behind [DONE], a byte order mark, an error that is none */
        {"data: \n\n" PIECE("a") "data\n\ndata:\n\n" STOP DONE, "a", ""},
        {PIECE("b") "data: [DONE] \n\n", "b", ""},
        {"\xef\xbb\xbf" PIECE("c") DONE, "c", ""},
        {"data: {\"error\": null, \"choices\": [{\"delta\": {\"content\": \"d\"}}]}\n\n" DONE, "d",
         ""},
        /* characters that a server cut in two; what looks like it and is not */
        {PIECE("a\xe6\x97z") PIECE("\\ud83d") PIECE("\\ude00\\\\ud83d\\ud83d\\ude00") STOP DONE,
         "a\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\\ud83d\xf0\x9f\x98\x80", ""},
        /* thoughts under all their names */
        {DELTA("\"reasoning_content\": null, \"reasoning\": \"hmm\"") PIECE("e") STOP DONE, "e",
         "hmm"},
        {DELTA("\"reasoning_content\": \"hmm\", \"reasoning\": \"hmm\"") PIECE("f") STOP DONE, "f",
         "hmm"},
        {DELTA("\"content\": [{\"type\": \"thinking\", \"thinking\": [{\"text\": \"hm\"}]}]")
             DELTA("\"content\": [{\"type\": \"text\", \"text\": \"g\"}]") STOP DONE,
         "g", "hm"},
        {DELTA("\"refusal\": \"I will not.\"") STOP DONE, "I will not.", ""},
        /* calls of tools: in pieces, two of them, one without arguments, one that came whole */
        {PIECE("I look.") CALL(
             "\"index\": 0, \"id\": \"x\", \"function\": {\"name\": \"look\", \"arguments\": \"\"}")
             CALL("\"index\": 0, \"function\": {\"arguments\": \"{\\\"at\\\": \"}")
                 CALL("\"index\": 0, \"function\": {\"arguments\": \"1}\"}")
                     CALL("\"index\": 1, \"function\": {\"name\": \"now\"}") STOP DONE,
         "I look.\n```tool call\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n"
         "{\"name\": \"now\", \"arguments\": {}}",
         ""},
        {CALL("\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}") DONE,
         "\n```tool call\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}", ""},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        script.stream = cases[i].stream;
        ck_assert_msg(ask("-p hi") == 0, "%zu: %s", i, said);
        ck_assert_msg(strcmp(answer, cases[i].answer) == 0, "%zu: %s", i, answer);
        ck_assert_msg(strstr(said, cases[i].thought) != NULL, "%zu: %s", i, said);
    }
    script.type = "text/plain"; /* events all the same */
    ck_assert_msg(ask("-p hi") == 0, "%s", said);
}
END_TEST

START_TEST(failures_are_told_in_every_servers_words)
{
    static const struct {
        const char *stream, *says;
    } cases[] = {
        {PIECE("x") "data: {\"object\": \"error\", \"message\": \"too long\"}\n\n" DONE,
         "too long; what came before is kept"},
        {PIECE("x") "error: {\"code\": 500, \"message\": \"no slot\"}\n\n", "no slot; what"},
        {PIECE("x") "event: error\ndata: {\"message\": \"overloaded\"}\n\n", "overloaded; what"},
        {PIECE("x") "data: {\"error\": true}\n\n", "it says that it failed; what"},
        {PIECE("x") "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"abort\"}]}\n\n" DONE,
         "it ended the answer before its end; what"},
        {PIECE("x") "data: {\"choices\": [{\"finish_reason\": \"content_filter\"}]}\n\n" DONE,
         "its content filter ended the answer; what"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        script.stream = cases[i].stream;
        ck_assert_msg(ask("-p hi") == 5, "%zu: %s", i, said);
        IS("x");
        SAYS(cases[i].says);
    }
    script.body = "<html>Who are you?</html>";
    script.type = "text/html";
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("what it answers is text/html, no answer of a model");
    script.type = NULL;
    script.status = 422;
    script.body = "{\"detail\": [{\"loc\": [\"body\"], \"msg\": \"top_k is no integer\"}]}";
    ck_assert_int_eq(ask("-p hi"), 1);
    SAYS("HTTP 422: top_k is no integer");
}
END_TEST

START_TEST(what_never_comes_is_not_waited_for)
{
    char arguments[100];

    script.stream = PIECE("Hello") STOP; /* no [DONE], and the connection stays open */
    script.silent = true;
    snprintf(arguments, sizeof arguments, "--connect 127.0.0.1:%d -p hi", port);
    ck_assert_msg(shell("timeout 60 %s %s </dev/null", arguments) == 0, "%s", said);
    IS("Hello");
}
END_TEST

START_TEST(a_server_says_when_to_come_again)
{
    script.header = "Retry-After";
    script.value = "2";
    script.status = 429;
    script.busy = 1;
    ck_assert_msg(ask("-p hi") == 0, "%s", said);
    IS("Hello there");
    SAYS("is busy (HTTP 503): asking again in 2 s");
    asked = 0;
    script.value = "3600";
    script.busy = 9;
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("it asks to come again in 3600 s");
    ck_assert_int_eq(asked, 1);
}
END_TEST

START_TEST(nothing_goes_to_another_place)
{
    char arguments[200];

    script.header = "Location";
    script.value = "http://elsewhere.invalid/api/v1/chat/completions";
    script.status = 307;
    script.body = "";
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("it is somewhere else; if you trust that place, give its address: --connect "
         "http://elsewhere.invalid/api\n");
    ck_assert_int_eq(asked, 1);
    /* a proxy of the network has nothing to do with this machine */
    script.body = NULL;
    snprintf(arguments, sizeof arguments, "--connect http://me:pass%%40word@127.0.0.1:%d -p hi",
             port);
    ck_assert_msg(shell("unset NO_PROXY; http_proxy=http://127.0.0.1:1 %s %s", arguments) == 0,
                  "%s", said);
    IS("Hello there");
    /* what is secret in an address is not shown */
    ck_assert_int_eq(moetop("--connect http://me:pass@127.0.0.1:1 -p hi"), 5);
    SAYS("http://127.0.0.1:1: nobody listens there");
    ck_assert_ptr_null(strstr(said, "pass"));
    ck_assert_int_eq(moetop("--connect http://me:pass@ -p hi"), 2);
    ck_assert_ptr_null(strstr(said, "pass"));
}
END_TEST

/* {"data": [{"id": "packed"}]} through gzip */
START_TEST(what_comes_packed_is_unpacked)
{
    static const char models[] =
        "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xab\x56\x4a\x49\x2c\x49\x54\xb2\x8a\xae\x56\xca"
        "\x4c\x51\xb2\x52\x2a\x48\x4c\xce\x4e\x4d\x51\xaa\x8d\xad\x05\x00\x8e\xc1\x57\x64\x1a\x00"
        "\x00\x00";

    script.header = "Content-Encoding";
    script.value = "gzip";
    script.models = models;
    script.packed = sizeof models - 1;
    ck_assert_msg(ask("-p hi") == 0, "%s", said);
    ck_assert_ptr_nonnull(strstr(request, "\"packed\""));
}
END_TEST

START_TEST(a_text_that_is_no_utf8_arrives)
{
    json_t *body;

    ck_assert_msg(ask("-p \"$(printf 'caf\\351 ol')\"") == 0, "%s", said);
    body = json_loads(request, 0, NULL);
    ck_assert_str_eq(json_string_value(json_walk(body, "messages.0.content")),
                     "caf\xef\xbf\xbd ol");
    json_decref(body);
}
END_TEST

/* Without a certificate that is known here nothing is said to a server, and the line names a way.
 */
START_TEST(certificates_are_checked)
{
    static char key[1 << 14], certificate[1 << 14];
    char arguments[2 * PATH_MAX], path[PATH_MAX + 40];
    struct MHD_Daemon *safe;
    int at;

    snprintf(arguments, sizeof arguments,
             "cd '%s' && openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 9 "
             "-subj /CN=x -addext subjectAltName=IP:127.0.0.1 >/dev/null 2>&1",
             support_tmpdir());
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES || system(arguments)) {
        printf("skipped: certificates_are_checked: no openssl, or no TLS in libmicrohttpd\n");
        return;
    }
    snprintf(path, sizeof path, "%s/key", support_tmpdir());
    slurp(path, key, sizeof key);
    snprintf(path, sizeof path, "%s/cert", support_tmpdir());
    slurp(path, certificate, sizeof certificate);
    safe = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_TLS, 0, NULL, NULL, serve,
                            NULL, MHD_OPTION_HTTPS_MEM_KEY, key, MHD_OPTION_HTTPS_MEM_CERT,
                            certificate, MHD_OPTION_END);
    ck_assert_ptr_nonnull(safe);
    at = MHD_get_daemon_info(safe, MHD_DAEMON_INFO_BIND_PORT)->port;
    snprintf(arguments, sizeof arguments, "--connect https://127.0.0.1:%d -p hi", at);
    ck_assert_int_eq(moetop(arguments), 5);
    SAYS("nobody known here signed its certificate: name a file of its authority's in "
         "SSL_CERT_FILE");
    ck_assert_ptr_null(strstr(said, "again")); /* in vain */
    ck_assert_int_eq(asked, 0);
    snprintf(path, sizeof path, "unset CURL_CA_BUNDLE; SSL_CERT_FILE=%s/cert %%s %%s",
             support_tmpdir());
    ck_assert_msg(shell(path, arguments) == 0, "%s", said);
    IS("Hello there");
    MHD_stop_daemon(safe);
}
END_TEST

START_TEST(refusals_have_the_servers_words)
{
    script.status = 400;
    script.body = "{\"error\": {\"message\": \"the context is too small\"}}";
    ck_assert_int_eq(ask("-p hi"), 1);
    SAYS("answers HTTP 400: the context is too small");
    script.status = 500;
    script.body = "<html>";
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("answers HTTP 500");
    script.status = 404;
    script.body = "{\"error\": \"no such model\"}";
    ck_assert_int_eq(ask("-p hi"), 3);
    SAYS("HTTP 404: no such model");
}
END_TEST

START_TEST(a_server_that_loads_or_is_busy_is_waited_for)
{
    script.loading = 2;
    script.busy = 2;
    ck_assert_msg(ask("-p hi") == 0, "%s", said);
    IS("Hello there");
    SAYS("is loading its model: waiting");
    ck_assert_int_eq(asked, 3);
}
END_TEST

START_TEST(the_key_is_asked_for_and_sent)
{
    char arguments[PATH_MAX + 60];

    script.key = "sk-right";
    ck_assert_int_eq(ask("-p hi"), 2);
    SAYS("refuses (HTTP 401): no key: give its key with --api-key-file");
    snprintf(arguments, sizeof arguments, "-p hi --api-key-file %s",
             support_put(support_tmpdir(), "keys", "# mine\n\n  sk-right \nsk-other\n"));
    ck_assert_msg(ask(arguments) == 0, "%s", said);
    script.key = "sk-else";
    ck_assert_int_eq(ask(arguments), 2);
    SAYS("the key in --api-key-file is not accepted");
    ck_assert_ptr_null(strstr(said, "sk-right"));
}
END_TEST

START_TEST(a_model_is_chosen)
{
    script.models = "{\"data\": [{\"id\": \"org/Alpha-7B\"}, {\"id\": \"org/Beta-7B\"}]}";
    ck_assert_int_eq(ask("-p hi"), 3);
    SAYS("serves 2 models; choose one with -m: org/Alpha-7B, org/Beta-7B");
    ck_assert_int_eq(ask("-p hi -m 7b"), 3);
    SAYS("-m 7b names 2 of its models: org/Alpha-7B, org/Beta-7B");
    ck_assert_int_eq(ask("-p hi -m gamma"), 3);
    SAYS("serves no model that -m gamma names; it serves org/Alpha-7B, org/Beta-7B");
    ck_assert_msg(ask("-p hi -m beta") == 0, "%s", said);
    ck_assert_ptr_nonnull(strstr(request, "org/Beta-7B"));
    script.models = "{\"data\": []}";
    ck_assert_int_eq(ask("-p hi"), 3);
    script.models = "{\"data\": null}"; /* Ollama without any */
    ck_assert_int_eq(ask("-p hi"), 3);
    SAYS("serves no model\n");
    script.models = "{\"data\": [7, {\"id\": 5}, {\"id\": \"\"}, {\"id\": \"one\"}]}";
    ck_assert_msg(ask("-p hi") == 0, "%s", said);
    script.models = "<html>";
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("/v1/models lists no models: what comes is application/json");
    script.models = "[]";
    ck_assert_int_eq(ask("-p hi"), 5);
    SAYS("/v1/models lists no models");
}
END_TEST

START_TEST(an_interrupt_ends_an_answer_that_hangs)
{
    char arguments[100];

    script.stream = PIECE("wait");
    script.silent = true;
    snprintf(arguments, sizeof arguments, "--connect 127.0.0.1:%d -p hi", port);
    ck_assert_int_eq(shell("timeout -s INT 2 %s %s </dev/null", arguments), 124);
    IS("wait");
    SAYS("interrupted");
}
END_TEST

START_TEST(bad_use_is_one_line)
{
    static const char *const urls[] = {
        "ftp://x", "http://", "''", "http://127.0.0.1:99999", "'http://a b'", "file:///etc/passwd"};
    char arguments[100];

    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        snprintf(arguments, sizeof arguments, "--connect %s -p hi", urls[i]);
        ck_assert_msg(moetop(arguments) == 2, "%s: %s", urls[i], said);
        SAYS("give it as http://HOST:PORT");
    }
    ck_assert_int_eq(ask("--perplexity x"), 2);
    SAYS("--connect: --perplexity computes with a model on this machine");
    ck_assert_int_eq(ask("-p hi --json-schema '{'"), 2);
    ck_assert_int_eq(ask("-p hi --chat-template-kwargs '{'"), 2);
    ck_assert_int_eq(moetop("--connect 127.0.0.1:1 -p hi"), 5);
    SAYS("http://127.0.0.1:1: nobody listens there");
}
END_TEST

/* ---- the chat ---- */

/* A chat by lines; what is typed comes from a pipe. */
static int chat(const char *lines)
{
    char format[1000], arguments[100];

    snprintf(arguments, sizeof arguments, "--connect 127.0.0.1:%d --plain", port);
    snprintf(format, sizeof format, "printf '%s' | %%s %%s", lines);
    return shell(format, arguments);
}

static bool answered(const char *text)
{
    return strstr(answer, text) != NULL;
}

START_TEST(a_chat_talks_to_a_server)
{
    json_t *body, *messages;

    ck_assert_msg(chat("one\\ntwo\\n") == 0, "%s", said);
    ck_assert_msg(answered("Hello there"), "%s", answer);
    ck_assert_int_eq(asked, 2);
    body = json_loads(request, 0, NULL);
    messages = json_object_get(body, "messages");
    ck_assert_uint_eq(json_array_size(messages), 3); /* what was said is said again */
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(messages, 1), "content")),
                     "Hello there");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(messages, 2), "content")),
                     "two");
    json_decref(body);
}
END_TEST

START_TEST(a_chat_survives_a_broken_stream)
{
    script.stream = PIECE("half of it");
    script.cut = true;
    ck_assert_msg(chat("one\\n") == 0, "%s", said);
    ck_assert_msg(answered("half of it"), "%s", answer);
    ck_assert_msg(answered("what came is kept") || strstr(said, "what came is kept"), "%s|%s",
                  answer, said);
}
END_TEST

START_TEST(what_needs_the_engine_says_so)
{
    ck_assert_int_eq(chat("/place gpu\\n/model x\\n/stats\\nhi\\n"), 0);
    ck_assert_msg(answered("N/A: the model") || strstr(said, "N/A: the model"), "%s|%s", answer,
                  said);
    ck_assert_msg(answered("Hello there"), "%s", answer);
}
END_TEST

START_TEST(a_chat_without_a_server_ends_with_one_line)
{
    char arguments[] = "--connect 127.0.0.1:1 --plain";

    ck_assert_int_eq(shell("echo hi | %s %s", arguments), 5);
    ck_assert_msg(strstr(said, "http://127.0.0.1:1: nobody listens there") ||
                      answered("nobody listens there"),
                  "%s|%s", answer, said);
}
END_TEST

START_TEST(figures_of_all_servers_are_read)
{
    static const struct {
        const char *text;
        double running, waiting, kv, cached;
    } cases[] = {
        {"# HELP x y\nvllm:num_requests_running{model=\"a}\",e=\"0\"} 2.0\n"
         "vllm:num_requests_running{engine=\"1\"} 1.0\nvllm:num_requests_waiting 4\n"
         "vllm:kv_cache_usage_perc 0.25\nvllm:prefix_cache_hits_total 30\n"
         "vllm:prefix_cache_queries_total 120\n",
         3, 4, 0.25, 0.25},
        {"llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
         "llamacpp:kv_cache_usage_ratio 0.5\n",
         1, 2, 0.5, NAN},
        {"sglang:num_running_reqs 5\nsglang:num_queue_reqs 6\nsglang:token_usage 0.75\n"
         "sglang:cache_hit_rate 0.125",
         5, 6, 0.75, 0.125},
        {"moetop_sessions_busy 1\nllamacpp:requests_processing 1\nmoetop_queue "
         "0\nmoetop_kv_cache_usage_ratio 0.1\n"
         "moetop_prompt_tokens_total 10\nmoetop_cached_tokens_total 5\n",
         1, 0, 0.1, 0.5},
        /* two replicas, blanks, times and exemplars, quoted braces, shares beyond all */
        {"vllm:num_requests_running{e=\"0\"}\t2 1700000000\r\n"
         "vllm:num_requests_running{e=\"{\\\"}1\"} 1 # {t=\"x\"} 9\n"
         "vllm:num_requests_waiting -4\nvllm:num_requests_waiting 5\n"
         "vllm:kv_cache_usage_perc{e=\"0\"} 0.75\nvllm:kv_cache_usage_perc{e=\"1\"} 0.5\n"
         "vllm:prefix_cache_hits_total 300\nvllm:prefix_cache_queries_total 120\n",
         3, 5, 0.625, 1},
    };
    static const char strange[] = "other 1\nvllm:num_requests_running nan\n{} \n",
                      slots[] = "[{\"is_processing\": true}, {\"is_processing\": false}]";
    struct figures f;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        figures_init(&f);
        ck_assert(figures_read_metrics(&f, cases[i].text, strlen(cases[i].text)));
        ck_assert_msg(f.running == cases[i].running && f.waiting == cases[i].waiting &&
                          f.kv == cases[i].kv,
                      "%zu", i);
        ck_assert(isnan(cases[i].cached) ? isnan(f.cached) : f.cached == cases[i].cached);
    }
    figures_init(&f);
    ck_assert(!figures_read_metrics(&f, strange, strlen(strange)));
    ck_assert(isnan(f.running));
    ck_assert(figures_read_slots(&f, slots, strlen(slots)));
    ck_assert(f.running == 1);
}
END_TEST

/* ---- what a moetop tells of its engine ---- */

static void fill_state(struct telemetry *t)
{
    ck_assert_int_eq(telemetry_init(t, 3, 4, 2), 0);
    snprintf(t->plan, sizeof t->plan, "hot");
    t->weights_packed = (uint64_t)5 << 30;
    t->disk.slots = 7;
    t->disk_rate = 0.25;
    t->bandwidth_on = true;
    t->n_devices = 2;
    t->devices[1].busy_ns = 99;
    t->n_plans = 1;
    snprintf(t->plans[0].name, sizeof t->plans[0].name, "cpu");
    t->plans[0].mean_tok_s = 12.5;
    t->blocks[2] = TELEMETRY_MIXER;
    t->routed[1] = 3;
    t->answer[11] = 42;
    t->now[5] = 1.5f;
    t->ran_on[2] = 1;
    t->newest[3] = 2;
}

START_TEST(a_state_is_read_as_it_was_told)
{
    struct telemetry from, to = {0}, copy = {0};
    json_t *o;

    fill_state(&from);
    ck_assert_ptr_nonnull(o = engine_state_json(&from));
    ck_assert_int_eq(engine_state_read(&to, o, NULL), 0);
    ck_assert_int_eq(engine_state_copy(&copy, &to), 0);
    ck_assert_str_eq(copy.plan, "hot");
    ck_assert(copy.weights_packed == from.weights_packed && copy.disk.slots == 7 &&
              copy.disk_rate == 0.25 && copy.bandwidth_on);
    ck_assert(copy.n_devices == 2 && copy.devices[1].busy_ns == 99);
    ck_assert(copy.n_plans == 1 && strcmp(copy.plans[0].name, "cpu") == 0 &&
              copy.plans[0].mean_tok_s == 12.5);
    ck_assert(copy.blocks[2] == TELEMETRY_MIXER && copy.routed[1] == 3);
    ck_assert(copy.answer[11] == 42 && copy.now[5] == 1.5f && copy.ran_on[2] == 1 &&
              copy.ran_on[0] == PLAN_NO_DEVICE && copy.newest[3] == 2);
    json_decref(o);
    telemetry_release(&from);
    telemetry_release(&to);
    telemetry_release(&copy);
}
END_TEST

/* A stranger's: nothing of it leads out of the arrays. */
START_TEST(a_wrong_state_is_refused)
{
    static const char *const wrong[] = {
        "[]",
        "{}",
        "{\"layers\": -1}",
        "{\"layers\": 3, \"experts\": 4, \"experts_used\": 2}",
        "{\"layers\": 1024, \"experts\": 65536, \"experts_used\": 2}",
        ("{\"layers\": 1, \"experts\": 1, \"experts_used\": 1, \"routed\": [1], \"blocks\": [1], "
         "\"cells\": {\"answer\": [1, 2]}}")};
    struct telemetry from, t = {0};
    json_t *o, *cells;
    struct error e;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = json_loads(wrong[i], 0, NULL);
        ck_assert_int_eq(engine_state_read(&t, o, &e), ERR_INPUT);
        json_decref(o);
    }
    fill_state(&from);
    o = engine_state_json(&from);
    cells = json_object_get(o, "cells");
    json_array_set_new(json_object_get(cells, "planned"), 0, json_integer(200));
    json_array_set_new(json_object_get(cells, "newest"), 0, json_integer(9));
    json_array_set_new(json_object_get(cells, "session"), 0, json_string("x"));
    json_array_set_new(json_object_get(o, "blocks"), 0, json_integer(5000));
    json_object_set_new(o, "plan", json_string("\x1b[31m"));
    ck_assert_int_eq(engine_state_read(&t, o, &e), 0);
    ck_assert(t.planned[0] == 0 && t.newest[0] == 0 && t.session[0] == 0 && t.blocks[0] == 0);
    ck_assert(!strchr(t.plan, 0x1b));
    json_decref(o);
    telemetry_release(&from);
    telemetry_release(&t);
}
END_TEST

/* ---- our own server ---- */

static void start_own(void)
{
    char *at = NULL;

    snprintf(log_path, sizeof log_path, "%s/serve.log", support_tmpdir());
    server = fork();
    if (server == 0) {
        int fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600),
            null = open("/dev/null", O_RDONLY);

        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv("XDG_CACHE_HOME", support_tmpdir(), 1);
        setenv("XDG_CONFIG_HOME", support_tmpdir(), 1);
        execl(binary(), "moetop", "--serve", "--port", "0", "-t", "2", (char *)NULL);
        _exit(127);
    }
    while (!at || !strstr(said, " is ready on ")) {
        ck_assert_int_eq(waitpid(server, NULL, WNOHANG), 0);
        usleep(5000);
        slurp(log_path, said, sizeof said);
        at = strstr(said, "127.0.0.1:");
    }
    port = atoi(at + strlen("127.0.0.1:"));
}

static void end_own(void)
{
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
}

START_TEST(a_moetop_server_answers_as_the_model_does_here)
{
    static const char *const how[] = {
        "-p 'Tell me a story about a fox.' -n 40 --temp 0",
        "-p 'Tell me a story.' -n 40 --temp 0.8 --seed 7",
        "-p Hi -sys 'You are brief.' -n 20 --temp 1 --seed 11 --top-k 5"};
    static char here[sizeof answer];

    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        ck_assert_msg(moetop(how[i]) == 0, "%s", said);
        strcpy(here, answer);
        ck_assert_uint_gt(strlen(here), 10);
        ck_assert_msg(ask(how[i]) == 0, "%s", said);
        ck_assert_str_eq(answer, here);
    }
}
END_TEST

/* The next event of a kind that says so; others are passed over. */
static void expect_event(struct remote *r, enum event_kind kind, uint64_t wishes, const char *says)
{
    for (;;) {
        struct event ev;
        bool meant;

        while (remote_next_event(r, &ev) != 1)
            usleep(2000); /* the test's own time limit ends it */
        ck_assert_msg(ev.kind != EVENT_ERROR, "%s", ev.text);
        meant = ev.kind == kind && (kind != EVENT_PLAN || ev.wishes == wishes) &&
                (!says || (ev.text && strstr(ev.text, says)));
        event_release(&ev);
        if (meant)
            return;
    }
}

/* Layers, experts, devices and plans of the server's engine; its placement switched from here. */
START_TEST(a_moetop_server_is_watched)
{
    struct remote_engine engine;
    struct figures f;
    const struct telemetry *t;
    struct remote *r;
    char url[64];
    const struct server_address at = {.url = url};

    snprintf(url, sizeof url, "127.0.0.1:%d", port);
    ck_assert_int_eq(remote_start(&r, &at, NULL), 0);
    expect_event(r, EVENT_READY, 0, NULL);
    expect_event(r, EVENT_PLAN, 0, "cpu");
    ck_assert(remote_engine(r, &engine));
    ck_assert_str_eq(engine.model, "tiny-storyteller-Q8_0");
    ck_assert_str_eq(engine.type, "q8_0");
    t = remote_telemetry(r);
    ck_assert(t->n_layers == 8 && t->n_experts == 16 && t->n_devices >= 1);
    ck_assert(t->weights_packed > 1 << 20 && t->devices[0].weight_bytes > 1 << 20);
    ck_assert_int_eq(remote_place(r, "cpu"), 0);
    expect_event(r, EVENT_PLAN, 1, "cpu");
    ck_assert_int_eq(remote_place(r, "sideways"), 0);
    expect_event(r, EVENT_NOTICE, 0, "no such strategy");
    expect_event(r, EVENT_PLAN, 2, "cpu");
    ck_assert_msg(ask("-p 'Tell me a story about a fox.' -n 20") == 0, "%s", said);
    for (uint32_t sum = 0; !sum; usleep(20000)) { /* it tells of what others ask too */
        t = remote_telemetry(r);
        for (int i = 0; i < t->n_layers * t->n_experts; i++)
            sum += t->session[i];
    }
    do { /* its own figures, by its own names */
        usleep(20000);
        remote_figures(r, &f);
    } while (isnan(f.decode_tok_s));
    ck_assert(f.running >= 0 && f.waiting == 0 && f.kv > 0 && f.prompt_tok_s >= 0 &&
              f.cached >= 0);
    remote_stop(r);
}
END_TEST

/* The texts of a batch's output, a line each; "-": an error. */
static char *texts_of(char *output)
{
    char *all = calloc(1, strlen(output) + 100);

    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *o = json_loads(line, 0, NULL);
        const char *text = json_string_value(json_object_get(o, "text"));

        ck_assert_msg(o != NULL, "%s", line);
        ck_assert(json_object_get(o, "index") && json_object_get(o, "input"));
        strcat(strcat(all, text ? text : "-"), "\n");
        json_decref(o);
    }
    return all;
}

/* In the order of the input, each line with its own values, a wrong one told. */
START_TEST(a_batch_is_answered_by_a_server)
{
    static const char lines[] =
        "Tell me about a fox.\n"
        "{\"id\": 7, \"prompt\": \"Tell me a story.\", \"temperature\": 0.9, \"seed\": 3}\n"
        "{\"promt\": 1}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 3}\n"
        "{\"prompt\": \"Once\", \"raw\": true, \"stop\": [\"time\"]}\n";
    char arguments[PATH_MAX + 80], *here, *there;

    snprintf(arguments, sizeof arguments, "--batch %s -n 12 --temp 0 --parallel 2",
             support_put(support_tmpdir(), "lines", lines));
    ck_assert_int_ne(moetop(arguments), 0); /* one line is wrong */
    here = texts_of(answer);
    ck_assert_int_ne(ask(arguments), 0);
    ck_assert_msg(strstr(said, "1 of 5 lines failed"), "%s", said);
    there = texts_of(answer);
    ck_assert_str_eq(here, there);
    ck_assert_msg(strstr(there, "fox") && strstr(there, "\n-\n"), "%s", there);
    free(here);
    free(there);
    strcat(arguments, " --receipts");
    ck_assert_int_eq(ask(arguments), 2);
    ck_assert_msg(strstr(said, "--receipts needs the model here"), "%s", said);
}
END_TEST

START_TEST(figures_are_those_that_were_measured_here)
{
    char path[PATH_MAX + 16], arguments[PATH_MAX + 60];
    json_t *root;

    snprintf(path, sizeof path, "%s/run.json", support_tmpdir());
    snprintf(arguments, sizeof arguments, "-p Hello -n 12 --temp 0 --stats-json %s", path);
    ck_assert_int_eq(ask(arguments), 0);
    root = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(root, "server")), "127.0.0.1"));
    ck_assert_int_eq(
        json_integer_value(json_object_get(json_object_get(root, "tokens"), "generated")), 12);
    ck_assert(json_number_value(json_object_get(json_object_get(root, "time"), "ttft_ms")) > 0);
    json_decref(root);
}
END_TEST

/* ---- a load ---- */

static double mean_of(const json_t *row, const char *name)
{
    return json_number_value(json_object_get(json_object_get(row, name), "mean"));
}

START_TEST(a_load_on_a_server_stands_beside_one_here)
{
    const char *path =
        support_put(support_tmpdir(), "requests",
                    "# comment\nTell me a story.\n{\"prompt\": \"Hi\", \"max_tokens\": 5}\n"
                    "{\"messages\": [{\"role\": \"user\", \"content\": \"Who?\"}]}\n");
    char arguments[3 * PATH_MAX];
    json_t *rows, *row;
    size_t i;

    snprintf(arguments, sizeof arguments,
             "--bench --bench-prompts %s -n 8 -r 2 --parallel 1,3 -o json --bench-beside %s", path,
             support_demo());
    ck_assert_msg(ask(arguments) == 0, "%s", said);
    rows = json_loads(answer, 0, NULL);
    ck_assert_uint_eq(json_array_size(rows), 4);
    json_array_foreach(rows, i, row)
    {
        ck_assert_int_eq(json_integer_value(json_object_get(row, "clients")), i < 2 ? 1 : 3);
        ck_assert_int_eq(json_integer_value(json_object_get(row, "requests")), 6);
        ck_assert_int_eq(json_integer_value(json_object_get(row, "failed")), 0);
        ck_assert_int_eq(json_integer_value(json_object_get(row, "completion_tokens")), 2 * 21);
        ck_assert(mean_of(row, "ttft_ms") > 0 && mean_of(row, "inter_token_ms") > 0 &&
                  mean_of(row, "tokens_per_second") > 0);
        ck_assert((strcmp(json_string_value(json_object_get(row, "where")), "here") == 0) ==
                  (i % 2));
    }
    json_decref(rows);
    snprintf(arguments, sizeof arguments, "--bench --bench-prompts %s -n 4 -r 1 -o csv", path);
    ck_assert_int_eq(ask(arguments), 0);
    ck_assert_ptr_nonnull(strstr(answer, "where,model,clients,requests,failed,"));
    snprintf(arguments, sizeof arguments, "--bench --bench-prompts %s -o sql", path);
    ck_assert_int_eq(ask(arguments), 2);
    support_put(support_tmpdir(), "requests", "fine\n{\"prompt\": 5}\n");
    snprintf(arguments, sizeof arguments, "--bench --bench-prompts %s", path);
    ck_assert_int_eq(ask(arguments), 1);
    SAYS("requests:2: it needs a prompt or messages");
}
END_TEST

START_TEST(requests_that_fail_are_counted)
{
    script.stream = PIECE("a") PIECE("b"); /* no end */
    ck_assert_int_eq(ask("--bench --no-warmup -n 4 -r 1"), 5);
    SAYS("requests failed; the first: ");
    SAYS("the stream ended in the middle");
    ck_assert_int_eq(ask("--bench -n 4 -r 1"), 5); /* the first one says enough */
    ck_assert_str_eq(answer, "");
}
END_TEST

/* ---- events ---- */

static int collect(void *ctx, const char *text, size_t n)
{
    strbuf_put(ctx, text, n);
    strbuf_puts(ctx, "|");
    return 0;
}

START_TEST(events_are_the_same_in_whatever_pieces_they_come)
{
    static const char text[] = ": comment\ndata: one\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\n"
                               "id: 7\rdata: three\r\rdata: unfinished";

    for (size_t step = 1; step <= sizeof text; step++) {
        struct strbuf all = {0};
        struct sse s;

        sse_init(&s);
        for (size_t at = 0; at < sizeof text - 1; at += step)
            ck_assert_int_eq(sse_feed(&s, text + at,
                                      at + step < sizeof text - 1 ? step : sizeof text - 1 - at,
                                      collect, &all),
                             0);
        ck_assert_str_eq(all.data, "one|two\nlines|three|");
        sse_release(&s);
        strbuf_release(&all);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("connect");
    TCase *t = tcase_create("scripted"), *own = tcase_create("own"),
          *events = tcase_create("events");

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, an_answer_comes_from_a_server);
    tcase_add_test(t, thoughts_are_told_apart);
    tcase_add_test(t, every_way_to_end_well);
    tcase_add_test(t, a_broken_stream_keeps_what_came);
    tcase_add_test(t, errors_inside_a_stream_are_said);
    tcase_add_test(t, refusals_have_the_servers_words);
    tcase_add_test(t, streams_of_all_servers_are_read);
    tcase_add_test(t, failures_are_told_in_every_servers_words);
    tcase_add_test(t, what_never_comes_is_not_waited_for);
    tcase_add_test(t, a_server_says_when_to_come_again);
    tcase_add_test(t, nothing_goes_to_another_place);
    tcase_add_test(t, what_comes_packed_is_unpacked);
    tcase_add_test(t, a_text_that_is_no_utf8_arrives);
    tcase_add_test(t, certificates_are_checked);
    tcase_add_test(t, a_server_that_loads_or_is_busy_is_waited_for);
    tcase_add_test(t, the_key_is_asked_for_and_sent);
    tcase_add_test(t, a_model_is_chosen);
    tcase_add_test(t, an_interrupt_ends_an_answer_that_hangs);
    tcase_add_test(t, bad_use_is_one_line);
    tcase_add_test(t, requests_that_fail_are_counted);
    tcase_add_test(t, a_chat_talks_to_a_server);
    tcase_add_test(t, a_chat_survives_a_broken_stream);
    tcase_add_test(t, what_needs_the_engine_says_so);
    tcase_add_test(t, a_chat_without_a_server_ends_with_one_line);
    suite_add_tcase(s, t);
    tcase_add_checked_fixture(own, start_own, end_own);
    tcase_add_test(own, a_moetop_server_answers_as_the_model_does_here);
    tcase_add_test(own, a_load_on_a_server_stands_beside_one_here);
    tcase_add_test(own, a_moetop_server_is_watched);
    tcase_add_test(own, a_batch_is_answered_by_a_server);
    tcase_add_test(own, figures_are_those_that_were_measured_here);
    suite_add_tcase(s, own);
    tcase_add_test(events, figures_of_all_servers_are_read);
    tcase_add_test(events, a_state_is_read_as_it_was_told);
    tcase_add_test(events, a_wrong_state_is_refused);
    tcase_add_test(events, events_are_the_same_in_whatever_pieces_they_come);
    suite_add_tcase(s, events);
    return s;
}

int main(void)
{
    return support_run(suite());
}
