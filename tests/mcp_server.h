/* A server of the Model Context Protocol for tests, good or hostile: the suite's own binary,
 * started as `check_mcp serve MODE`. Speaks over standard input and output. */
#ifndef TESTS_MCP_SERVER_H
#define TESTS_MCP_SERVER_H

#include "tests/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_mode(const char *mode, const char *name)
{
    return strcmp(mode, name) == 0;
}

static void write_json(json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);

    printf("%s\n", text);
    fflush(stdout);
    free(text);
    json_decref(o);
}

static void write_result(json_t *id, json_t *result)
{
    write_json(json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result));
}

static json_t *text_result(const char *text)
{
    return json_pack("{s:[{s:s, s:s}]}", "content", "type", "text", "text", text);
}

static json_t *tool(const char *name, const char *described)
{
    return json_pack("{s:s, s:s, s:{s:s, s:{s:{s:s}}}}", "name", name, "description", described,
                     "inputSchema", "type", "object", "properties", "text", "type", "string");
}

/* What the process can reach: "tty 0, fds 3, leader 1, secret 0, own hello". */
static json_t *surroundings(void)
{
    const char *own = getenv("OWN");
    char text[200];
    int n = 0, fd = open("/dev/tty", O_RDONLY);
    DIR *dir = opendir("/proc/self/fd");

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    snprintf(text, sizeof text, "tty %d, fds %d, leader %d, secret %d, own %s", fd >= 0,
             n - 3 - (fd >= 0), getsid(0) == getpid() && getpgid(0) == getpid(),
             getenv("SECRET_KEY") != NULL, own ? own : "");
    if (fd >= 0)
        close(fd);
    return text_result(text);
}

static json_t *huge(void)
{
    size_t n = 1 << 20;
    char *text = malloc(n + 1);
    json_t *o;

    for (size_t i = 0; i < n; i++)
        text[i] = "\xc3\xa4"[i % 2];
    text[n] = 0;
    o = text_result(text);
    free(text);
    return o;
}

/* Content of every kind. */
static json_t *mixed(void)
{
    return json_loads("{\"content\": [{\"type\": \"text\", \"text\": \"a\\u0000b\"}, {\"type\": "
                      "\"image\", \"mimeType\": \"image/png\", \"data\": \"AAAA\"}, {\"type\": "
                      "\"resource_link\", \"name\": \"n\", \"uri\": \"file:///x\"}, {\"type\": "
                      "\"resource\", \"resource\": {\"uri\": \"u\", \"text\": \"inside\"}}, 7], "
                      "\"isError\": true}",
                      JSON_ALLOW_NUL, NULL);
}

/* The request of the server's that the client must refuse; its answer is read here. */
static bool asks_client(const char *method, int code)
{
    static char line[1 << 16];
    json_t *o, *got;
    bool good;

    write_json(json_pack("{s:s, s:s, s:s}", "jsonrpc", "2.0", "id", "mine", "method", method));
    if (!fgets(line, sizeof line, stdin))
        return false;
    o = json_loads(line, 0, NULL);
    got = json_object_get(o, "error");
    good = json_equal(json_object_get(o, "id"), json_string("mine")) &&
           (code ? json_integer_value(json_object_get(got, "code")) == code
                 : json_is_object(json_object_get(o, "result")));
    json_decref(o);
    return good;
}

static void call_tool(const char *mode, json_t *id, const char *name, json_t *arguments)
{
    const char *text = json_string_value(json_object_get(arguments, "text"));
    FILE *f = getenv("CALLS") ? fopen(getenv("CALLS"), "a") : NULL;

    if (f) {
        fprintf(f, "%s %s\n", name, text ? text : "");
        fclose(f);
    }
    if (is_mode(mode, "dies")) {
        fprintf(stderr, "dying\n");
        exit(3);
    }
    if (is_mode(mode, "mute") || strcmp(name, "never") == 0)
        return;
    if (is_mode(mode, "endless"))
        for (;;)
            if (fwrite("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 32, 1, stdout) != 1)
                exit(0);
    if (is_mode(mode, "wrong")) { /* answers to what nobody asked, and no result */
        json_t *other = json_integer(json_integer_value(id) + 1000), *word = json_string("1");

        write_result(other, text_result("not this"));
        write_result(word, text_result("nor this"));
        printf("{\"jsonrpc\": \"2.0\", \"result\": {}}\n[]\n[7, {}]\nnull\n{\"id\": {}}\n");
        json_decref(other);
        json_decref(word);
    }
    if (strcmp(name, "around") == 0)
        write_result(id, surroundings());
    else if (strcmp(name, "huge") == 0)
        write_result(id, huge());
    else if (strcmp(name, "mixed") == 0)
        write_result(id, mixed());
    else if (strcmp(name, "asks") == 0)
        write_result(id, text_result(asks_client("ping", 0) &&
                                             asks_client("sampling/createMessage", -32601) &&
                                             asks_client("roots/list", -32601)
                                         ? "well answered"
                                         : "badly answered"));
    else if (strcmp(name, "refused") == 0)
        write_json(json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id, "error",
                             "code", -32602, "message", "no such \033[2Jthing"));
    else if (strcmp(name, "changes") == 0) {
        setenv("CHANGED", "1", 1);
        write_json(json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method",
                             "notifications/tools/list_changed"));
        write_result(id, text_result("changed"));
    } else {
        write_result(id, text_result(text ? text : "nothing"));
    }
}

static json_t *list_tools(const char *mode, json_t *params)
{
    const char *cursor = json_string_value(json_object_get(params, "cursor"));
    json_t *tools = json_array();

    if (is_mode(mode, "many")) {
        for (int i = 0; i < 10000; i++) {
            char name[40];

            snprintf(name, sizeof name, "tool %d", i);
            json_array_append_new(tools, tool(name, "one of many"));
        }
        return json_pack("{s:o}", "tools", tools);
    }
    if (is_mode(mode, "pages"))
        return json_pack("{s:o, s:s}", "tools", tools, "nextCursor", "again");
    if (!cursor) {
        json_array_append_new(tools, tool("echo", "Says it.\nReally."));
        json_array_append_new(tools, tool("around", "Looks around."));
        return json_pack("{s:o, s:s}", "tools", tools, "nextCursor", "2");
    }
    for (const char *const *name =
             (const char *const[]){"huge", "mixed", "asks", "refused", "changes", "never", NULL};
         *name; name++)
        json_array_append_new(tools, tool(*name, *name));
    if (getenv("CHANGED"))
        json_array_append_new(tools, tool("added", "It was not there before."));
    return json_pack("{s:o}", "tools", tools);
}

static void answer(const char *mode, json_t *o)
{
    const char *method = json_string_value(json_object_get(o, "method"));
    json_t *id = json_object_get(o, "id"), *params = json_object_get(o, "params");
    static bool greeted;

    if (!method)
        return;
    if (strcmp(method, "notifications/initialized") == 0)
        greeted = true;
    if (strcmp(method, "notifications/cancelled") == 0)
        fprintf(stderr, "cancelled\n");
    if (strcmp(method, "initialize") == 0)
        write_result(id, json_pack("{s:s, s:{s:{}}, s:{s:s, s:s}}", "protocolVersion",
                                   is_mode(mode, "old")     ? "2024-11-05"
                                   : is_mode(mode, "newer") ? "2999-01-01"
                                                            : "2025-06-18",
                                   "capabilities", "tools", "serverInfo", "name", "test\033[2J",
                                   "version", "7"));
    else if (strcmp(method, "tools/list") == 0 && greeted)
        write_result(id, list_tools(mode, params));
    else if (strcmp(method, "tools/call") == 0)
        call_tool(mode, id, json_string_value(json_object_get(params, "name")),
                  json_object_get(params, "arguments"));
}

/* Never returns. */
static void mcp_serve(const char *mode)
{
    static char line[8 << 20];

    fprintf(stderr, "serving %s\033[2J\n", mode);
    if (is_mode(mode, "stubborn")) {
        signal(SIGTERM, SIG_IGN);
        if (fork() == 0)
            for (;;)
                pause();
    }
    if (is_mode(mode, "garbage"))
        printf("Welcome!\n{\"jsonrpc\": \n\xff\xfe\n\n[[[[[[\n{}\n");
    if (is_mode(mode, "leaves"))
        exit(0);
    while (!is_mode(mode, "silent") && fgets(line, sizeof line, stdin)) {
        json_t *o = json_loads(line, 0, NULL);

        answer(mode, o);
        json_decref(o);
    }
    if (is_mode(mode, "silent") || is_mode(mode, "stubborn"))
        for (;;)
            pause();
    exit(0);
}

/* ---- for the tests ---- */

static char self[PATH_MAX]; /* this binary */

/* First of main: becomes the server if that is asked for. */
static void mcp_server_main(int argc, char **argv)
{
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    self[n > 0 ? n : 0] = 0;
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        mcp_serve(argv[2]);
}

/* A file of --mcp with servers of this binary: names and modes in turn. CALLS: where calls are
 * noted. */
static const char *file_of(const char *const *servers)
{
    json_t *all = json_object();
    char calls[PATH_MAX], *text;
    const char *path;

    snprintf(calls, sizeof calls, "%s/calls", support_tmpdir());
    for (; *servers; servers += 2)
        json_object_set_new(all, servers[0],
                            json_pack("{s:s, s:[s, s], s:{s:s, s:s}}", "command", self, "args",
                                      "serve", servers[1], "env", "OWN", "${OWN_WORD:-hello}",
                                      "CALLS", calls));
    all = json_pack("{s:o}", "mcpServers", all);
    text = json_dumps(all, JSON_INDENT(1));
    path = support_put(support_tmpdir(), "mcp.json", text);
    free(text);
    json_decref(all);
    return path;
}

#define SERVERS(...) file_of((const char *const[]){__VA_ARGS__, NULL})

/* What the servers were called with, "NAME TEXT\n" each. */
static const char *calls_made(void)
{
    static char text[1 << 16];
    char path[PATH_MAX];
    FILE *f;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/calls", support_tmpdir());
    if ((f = fopen(path, "r"))) {
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
    }
    text[n] = 0;
    return text;
}

#endif
