/* MCP servers at an address (streamable HTTP), good and hostile: a small server of our own, whose
 * path says how it behaves. */
#include "app/mcp/mcp.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct error e;

/* ---- the server ---- */

struct request {
    char head[8192], mode[40];
    const char *body;
    bool post, removal;
};

/* Reads one request; false: there was none. */
static bool read_request(int fd, struct request *r)
{
    static char text[1 << 20];
    size_t n = 0, length = 0;
    char *end = NULL, *at;
    ssize_t got;

    while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) > 0) {
        n += (size_t)got;
        text[n] = 0;
        if (!end && (end = strstr(text, "\r\n\r\n"))) {
            at = strcasestr(text, "content-length:");
            length = at && at < end ? (size_t)atoi(at + 15) : 0;
        }
        if (end && n >= (size_t)(end + 4 - text) + length)
            break;
    }
    if (!end)
        return false;
    snprintf(r->head, sizeof r->head, "%.*s", (int)(end - text), text);
    r->body = end + 4;
    r->post = strncmp(text, "POST", 4) == 0;
    r->removal = strncmp(text, "DELETE", 6) == 0;
    at = strchr(text, '/') + 1;
    snprintf(r->mode, sizeof r->mode, "%.*s", (int)strcspn(at, " ?"), at);
    return true;
}

static void put(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0)
        return;
}

static void put_status(int fd, const char *status, const char *headers, const char *body)
{
    char text[4096];

    snprintf(text, sizeof text,
             "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n%s", status,
             strlen(body), headers, body);
    put(fd, text);
}

static bool is(const struct request *r, const char *mode)
{
    return strcmp(r->mode, mode) == 0;
}

/* What the request is answered with; NULL: nothing. */
static const char *result_of(const char *method)
{
    return strcmp(method, "initialize") == 0
               ? "{\"protocolVersion\": \"2025-06-18\", \"capabilities\": {\"tools\": {}}}"
           : strcmp(method, "tools/list") == 0
               ? "{\"tools\": [{\"name\": \"echo\", \"inputSchema\": {\"type\": \"object\"}}]}"
           : strcmp(method, "tools/call") == 0
               ? "{\"content\": [{\"type\": \"text\", \"text\": \"here\"}]}"
               : NULL;
}

static void answer_call(int fd, const struct request *r, int calls)
{
    if (is(r, "refuses"))
        put_status(fd, "401 No", "", "{\"error\": {\"message\": \"no key\"}}");
    else if (is(r, "breaks"))
        put(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
    else if (is(r, "endless"))
        for (put(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ");
             send(fd, "xxxxxxxxxxxxxxxx", 16, MSG_NOSIGNAL) > 0;)
            ;
    else if (is(r, "hangs"))
        for (;;)
            pause();
    else if (is(r, "forgets") && calls == 1)
        put_status(fd, "404 Not Found", "", "");
    else if (is(r, "forgets"))
        put_status(fd, "200 OK", "Content-Type: application/json\r\n",
                   "{\"jsonrpc\": \"2.0\", \"id\": 6, \"result\": {\"content\": [{\"type\": "
                   "\"text\", \"text\": \"again\"}]}}");
    else
        put_status(fd, "302 Found", "Location: http://127.0.0.1:1/\r\n", "");
}

static void answer(int fd, const struct request *r)
{
    static int calls;
    json_t *o = json_loads(r->body, 0, NULL), *id = json_object_get(o, "id");
    const char *method = json_string_value(json_object_get(o, "method")),
               *result = method ? result_of(method) : NULL;
    bool plain = is(r, "plain"), session = strcasestr(r->head, "mcp-session-id: s1") != NULL,
         first = method && strcmp(method, "initialize") == 0;
    char body[1024], headers[200];

    if (!r->post)
        put_status(fd, r->removal ? "200 OK" : "405 No", "", "");
    else if (!strcasestr(r->head, "x-key: k") || (!first && !session) ||
             (!first && !strcasestr(r->head, "mcp-protocol-version: 2025-06-18")))
        put_status(fd, "400 Bad", "", "{\"message\": \"headers are missing\"}");
    else if (!result)
        put_status(fd, "202 Accepted", "", "");
    else if (strcmp(method, "tools/call") == 0 && !plain && !is(r, "stream")) {
        answer_call(fd, r, ++calls);
    } else {
        snprintf(body, sizeof body, "%s{\"jsonrpc\": \"2.0\", \"id\": %d, \"result\": %s}%s",
                 plain ? "" : ": hello\n\nevent: message\ndata: ", (int)json_integer_value(id),
                 result, plain ? "" : "\n\n");
        snprintf(headers, sizeof headers, "Content-Type: %s\r\n%s",
                 plain ? "application/json" : "text/event-stream; charset=utf-8",
                 first ? "Mcp-Session-Id: s1\r\n" : "");
        put_status(fd, "200 OK", headers, body);
    }
    json_decref(o);
}

static void serve(int listening)
{
    static struct request r;
    int fd;

    signal(SIGPIPE, SIG_IGN);
    while ((fd = accept(listening, NULL, NULL)) >= 0) {
        if (read_request(fd, &r))
            answer(fd, &r);
        close(fd);
    }
    _exit(0);
}

static pid_t server;
static int port;

static void start_server(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 8) == 0);
    getsockname(fd, (struct sockaddr *)&a, &size);
    port = ntohs(a.sin_port);
    fflush(stdout);
    if ((server = fork()) == 0)
        serve(fd);
    close(fd);
}

static void end_server(void)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

/* ---- the tests ---- */

static struct mcp *open_server(const char *mode, int seconds)
{
    struct mcp *m = NULL;
    char text[400];

    snprintf(text, sizeof text,
             "{\"mcpServers\": {\"web\": {\"url\": \"http://127.0.0.1:%d/%s\", \"headers\": "
             "{\"X-Key\": \"k\"}}}}",
             port, mode);
    ck_assert_msg(mcp_open(&m, support_put(support_tmpdir(), "mcp.json", text), seconds, NULL, 0,
                           &e) == 0,
                  "%s", e.text);
    ck_assert_int_eq(mcp_wait_started(m, NULL, &e), 0);
    mcp_refresh(m);
    return m;
}

static const struct {
    const char *mode, *result;
    bool failed;
    unsigned starts; /* after two calls */
} servers[] = {
    {"plain", "here", false, 1},
    {"stream", "here", false, 1},
    {"forgets", "again", false, 2},
    {"refuses", "Error: it refuses (HTTP 401): no key; \"headers\" may hold a key", true, 2},
    {"redirects", "Error: it answers HTTP 302", true, 2},
    {"breaks", "Error: ", true, 2},
    {"endless", "Error: it answers more than 4 MiB", true, 2},
    {"hangs", "Error: no answer within 1 s", true, 1},
};

START_TEST(servers_at_an_address)
{
    struct mcp *m = open_server(servers[_i].mode, strcmp(servers[_i].mode, "hangs") ? 20 : 1);
    struct mcp_status s;

    mcp_status(m, 0, &s);
    ck_assert_msg(s.state == MCP_READY, "%s", s.why);
    for (int i = 0; i < (servers[_i].starts > 1 && servers[_i].failed ? 2 : 1); i++) {
        struct mcp_result r;

        ck_assert_int_eq(mcp_call(m, mcp_tool_find(m, "echo"), json_object(), &e), 0);
        while (!mcp_take(m, &r))
            mcp_wait(m);
        ck_assert_msg(strstr(r.text, servers[_i].result) && r.failed == servers[_i].failed,
                      "%s: %s", servers[_i].mode, r.text);
        mem_free(r.text);
    }
    mcp_status(m, 0, &s);
    ck_assert_uint_eq(s.starts, servers[_i].starts);
    mcp_close(m);
}
END_TEST

START_TEST(nobody_listens)
{
    struct mcp_status s;
    struct mcp *m;

    end_server();
    m = open_server("plain", 5);
    mcp_status(m, 0, &s);
    ck_assert(s.state == MCP_FAILED && strstr(s.why, "nobody listens there"));
    mcp_close(m);
    start_server();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mcp_http");
    TCase *t = tcase_create("servers");

    tcase_add_checked_fixture(t, start_server, end_server);
    tcase_add_loop_test(t, servers_at_an_address, 0, sizeof servers / sizeof *servers);
    tcase_add_test(t, nobody_listens);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
