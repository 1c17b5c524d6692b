/* The client of MCP servers: the protocol, and servers that are slow, wrong or hostile; names,
 * permissions, and what a model is told. The server is this binary. */
#include "app/mcp/calls.h"
#include "app/mcp/config.h"
#include "app/mcp/mcp.h"
#include "app/mcp/names.h"
#include "app/mcp/round.h"
#include "app/mcp/telling.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "tests/mcp_server.h"
#include "tests/support.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct error e;

/* ---- servers ---- */

static struct mcp *open_servers(const char *file, int seconds)
{
    struct mcp *m = NULL;

    ck_assert_msg(mcp_open(&m, file, seconds, NULL, 0, &e) == 0, "%s", e.text);
    ck_assert_int_eq(mcp_wait_started(m, NULL, &e), 0);
    mcp_refresh(m);
    return m;
}

static struct mcp_status status_of(struct mcp *m, size_t i)
{
    struct mcp_status s;

    mcp_status(m, i, &s);
    return s;
}

static struct mcp_result run(struct mcp *m, const char *name, const char *text)
{
    const struct mcp_tool *t = mcp_tool_find(m, name);
    struct mcp_result r;

    ck_assert_msg(t != NULL, "%s", name);
    ck_assert_int_eq(mcp_call(m, t, json_pack("{s:s}", "text", text), &e), 0);
    while (!mcp_take(m, &r))
        mcp_wait(m);
    return r;
}

static void expect(struct mcp *m, const char *name, const char *text, const char *result,
                   bool failed)
{
    struct mcp_result r = run(m, name, text);

    ck_assert_msg(strstr(r.text, result) && r.failed == failed, "%s: '%.300s', %s", name, r.text,
                  r.failed ? "failed" : "not failed");
    mem_free(r.text);
}

/* ---- the protocol ---- */

START_TEST(a_good_server)
{
    struct mcp *m = open_servers(SERVERS("good", _i ? "old" : "good"), 20);
    const json_t *offered = mcp_tools(m);

    ck_assert_msg(status_of(m, 0).state == MCP_READY, "%s", status_of(m, 0).why);
    ck_assert_str_eq(status_of(m, 0).about, "test\\e[2J 7");
    ck_assert_uint_eq(json_array_size(offered), 8); /* of two pages */
    ck_assert_str_eq(json_string_value(json_object_get(
                         json_object_get(json_array_get(offered, 0), "function"), "name")),
                     "echo");
    expect(m, "echo", "hi \xc3\xa4", "hi \xc3\xa4", false);
    expect(m, "asks", "", "well answered", false);
    expect(m, "refused", "", "no such \\e[2Jthing", true);
    expect(m, "echo", "again", "again", false);
    ck_assert_uint_eq(status_of(m, 0).calls, 4);
    ck_assert_uint_eq(status_of(m, 0).failures, 1);
    ck_assert_uint_eq(status_of(m, 0).starts, 1);
    mcp_close(m);
}
END_TEST

START_TEST(a_list_that_changes)
{
    struct mcp *m = open_servers(SERVERS("good", "good"), 20);
    uint64_t until = clock_now() + 20 * CLOCK_SECOND;

    ck_assert(!mcp_tool_find(m, "added"));
    expect(m, "changes", "", "changed", false);
    while (!mcp_refresh(m) && clock_now() < until)
        mcp_wait(m);
    ck_assert(mcp_tool_find(m, "added"));
    mcp_close(m);
}
END_TEST

START_TEST(what_a_server_can_reach)
{
    struct mcp *m;

    setenv("SECRET_KEY", "x", 1);
    m = open_servers(SERVERS("good", "good"), 20);
    expect(m, "around", "", "tty 0, fds 3, leader 1, secret 0, own hello", false);
    mcp_close(m);
    unsetenv("SECRET_KEY");
}
END_TEST

START_TEST(results_of_every_kind)
{
    struct mcp *m = open_servers(SERVERS("good", "good"), 20);
    struct mcp_result r = run(m, "huge", "");
    const char *note = "\n[cut here: 65536 of 1048576 bytes]";

    ck_assert_uint_eq(strlen(r.text), MCP_RESULT_MOST + strlen(note));
    ck_assert_str_eq(r.text + MCP_RESULT_MOST, note);
    ck_assert(utf8_valid(r.text, strlen(r.text)));
    mem_free(r.text);
    r = run(m, "mixed", "");
    ck_assert_str_eq(r.text, "a\xef\xbf\xbd"
                             "b\n[image image/png, 4 bytes in base64, left out]\n[n: file:///x]\n"
                             "inside\n7");
    ck_assert(r.failed);
    mem_free(r.text);
    mcp_close(m);
}
END_TEST

/* ---- bad servers ---- */

static const struct {
    const char *mode, *why;
} unusable[] = {
    {"silent", "no answer within 1 s"},
    {"leaves", "the server has ended: exit status 0"},
    {"newer", "2999-01-01"},
    {"pages", "its list of tools has no end"},
};

START_TEST(servers_of_no_use)
{
    struct mcp *m = open_servers(SERVERS("bad", unusable[_i].mode, "good", "good"), 1);

    ck_assert_int_eq(status_of(m, 0).state, MCP_FAILED);
    ck_assert_msg(strstr(status_of(m, 0).why, unusable[_i].why), "%s", status_of(m, 0).why);
    ck_assert_msg(status_of(m, 1).state == MCP_READY, "%s", status_of(m, 1).why);
    mcp_close(m);
}
END_TEST

static const struct {
    const char *mode, *result;
    bool failed;
} hostile[] = {
    {"garbage", "hi", false},
    {"wrong", "hi", false},
    {"mute", "Error: no answer within 1 s", true},
    {"endless", "Error: it wrote a line of more than 4 MiB", true},
    {"dies", "Error: the server has ended: exit status 3", true},
};

START_TEST(hostile_servers)
{
    struct mcp *m = open_servers(SERVERS("bad", hostile[_i].mode), 1);

    expect(m, "echo", "hi", hostile[_i].result, hostile[_i].failed);
    /* once more, with a server that is started again if it had to be ended */
    expect(m, "echo", "hi", hostile[_i].result, hostile[_i].failed);
    ck_assert_uint_eq(status_of(m, 0).starts, hostile[_i].failed ? 2 : 1);
    mcp_close(m);
}
END_TEST

START_TEST(ten_thousand_tools)
{
    struct mcp *m = open_servers(SERVERS("many", "many", "more", "many"), 20);

    ck_assert_uint_eq(json_array_size(mcp_tools(m)), 2 * MCP_TOOLS_MOST);
    ck_assert_uint_eq(status_of(m, 0).left_out, 10000 - MCP_TOOLS_MOST);
    ck_assert(mcp_tool_find(m, "many__tool_0") && mcp_tool_find(m, "more__tool_255"));
    mcp_close(m);
}
END_TEST

/* How many processes run this binary as a server of this mode. */
static int count_processes(const char *mode)
{
    char line[200], path[64], text[PATH_MAX + 64];
    DIR *dir = opendir("/proc");
    struct dirent *d;
    int found = 0;

    snprintf(line, sizeof line, "serve %s", mode);
    while ((d = readdir(dir))) {
        size_t n = 0;
        FILE *f;

        if (atoi(d->d_name) <= 0)
            continue;
        snprintf(path, sizeof path, "/proc/%d/cmdline", atoi(d->d_name));
        if ((f = fopen(path, "r"))) {
            n = fread(text, 1, sizeof text - 1, f);
            fclose(f);
        }
        text[n] = 0;
        for (size_t i = 0; i + 1 < n; i++)
            text[i] = text[i] ? text[i] : ' ';
        found += strncmp(text, self, strlen(self)) == 0 && strstr(text, line) != NULL;
    }
    closedir(dir);
    return found;
}

START_TEST(a_stubborn_server_and_its_child_are_killed)
{
    struct mcp *m = open_servers(SERVERS("bad", "stubborn"), 20);
    uint64_t begun = clock_now();

    ck_assert_int_eq(count_processes("stubborn"), 2);
    mcp_close(m);
    ck_assert_uint_lt(clock_now() - begun, 6 * CLOCK_SECOND);
    /* the child is not ours to wait for: it was sent a signal that nobody survives */
    for (int i = 0; i < 200 && count_processes("stubborn"); i++)
        clock_sleep(10 * CLOCK_MILLI);
    ck_assert_int_eq(count_processes("stubborn"), 0);
}
END_TEST

START_TEST(a_call_is_cancelled)
{
    struct mcp *m = open_servers(SERVERS("good", "good"), 60);
    uint64_t begun = clock_now();
    struct mcp_result r;

    ck_assert_int_eq(mcp_call(m, mcp_tool_find(m, "never"), json_object(), &e), 0);
    mcp_wait(m);
    mcp_cancel(m);
    while (!mcp_take(m, &r))
        mcp_wait(m);
    ck_assert(r.stopped && clock_now() - begun < 10 * CLOCK_SECOND);
    mem_free(r.text);
    /* the server goes on */
    expect(m, "echo", "still", "still", false);
    ck_assert_uint_eq(status_of(m, 0).starts, 1);
    mcp_close(m);
}
END_TEST

START_TEST(closing_waits_for_nobody)
{
    struct mcp *m = NULL;
    uint64_t begun = clock_now();

    ck_assert_int_eq(mcp_open(&m, SERVERS("bad", "silent", "good", "good"), 60, NULL, 0, &e), 0);
    mcp_close(m);
    ck_assert_uint_lt(clock_now() - begun, 10 * CLOCK_SECOND);
}
END_TEST

/* ---- the file ---- */

static const struct {
    const char *text, *why;
} files[] = {
    {"{", "mcp.json"},
    {"[]", "no object \"mcpServers\""},
    {"{\"mcpServers\": {\"a b\": {\"command\": \"x\"}}}", "server a b: a server's name has"},
    {"{\"mcpServers\": {\"a\": {}}}", "server a: either \"command\" or \"url\""},
    {"{\"mcpServers\": {\"a\": {\"command\": \"x\", \"url\": \"http://h\"}}}", "either"},
    {"{\"mcpServers\": {\"a\": {\"command\": 7}}}", "\"command\" must be a text"},
    {"{\"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [1]}}}", "\"args\""},
    {"{\"mcpServers\": {\"a\": {\"command\": \"x\", \"env\": {\"A=B\": \"\"}}}}", "\"env\""},
    {"{\"mcpServers\": {\"a\": {\"command\": \"${NO_SUCH_VARIABLE}\"}}}", "is not set"},
    {"{\"mcpServers\": {\"a\": {\"url\": \"ftp://h\"}}}", "http://"},
    {"{\"mcpServers\": {\"a\": {\"url\": \"http://h\", \"type\": \"sse\"}}}", "sse"},
    {"{\"mcpServers\": {\"a\": {\"url\": \"http://h\", \"headers\": {\"A\": \"b\\nc\"}}}}",
     "line end"},
};

START_TEST(wrong_files)
{
    const char *path = support_put(support_tmpdir(), "mcp.json", files[_i].text);
    struct mcp_config c;

    ck_assert_int_eq(mcp_config_read(&c, path, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, files[_i].why) && strncmp(e.text, "--mcp", 5) == 0, "%s", e.text);
}
END_TEST

START_TEST(a_file_with_everything)
{
    const char *path = support_put(
        support_tmpdir(), "mcp.json",
        "{\"other\": 1, \"mcpServers\": {\"a\": {\"command\": \"x${M_A}\", \"args\": "
        "[\"${M_B:-b c}\", \"$5\"], \"env\": {\"K\": \"${M_A}\", \"N\": 3, \"T\": true}, \"cwd\": "
        "\"/tmp\"}, \"b\": {\"type\": \"http\", \"url\": \"https://h/mcp\", \"headers\": "
        "{\"Authorization\": \"Bearer ${M_A}\"}}, \"c\": {\"disabled\": true, \"command\": 1}}}");
    struct mcp_config c;

    setenv("M_A", "y", 1);
    ck_assert_msg(mcp_config_read(&c, path, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(c.n, 2);
    ck_assert_str_eq(c.servers[0].argv[0], "xy");
    ck_assert_str_eq(c.servers[0].argv[1], "b c");
    ck_assert_str_eq(c.servers[0].argv[2], "$5");
    ck_assert_ptr_null(c.servers[0].argv[3]);
    ck_assert_str_eq(c.servers[0].env[0], "K=y");
    ck_assert_str_eq(c.servers[0].env[1], "N=3");
    ck_assert_str_eq(c.servers[0].env[2], "T=true");
    ck_assert_str_eq(c.servers[1].url, "https://h/mcp");
    ck_assert_str_eq(c.servers[1].headers[1], "Bearer y");
    mcp_config_release(&c);
    unsetenv("M_A");
}
END_TEST

/* ---- names and permissions ---- */

START_TEST(names)
{
    struct named list[] = {{.server = "a", .own = "read"},      {.server = "a", .own = "only/one"},
                           {.server = "a", .own = "only one"},  {.server = "b", .own = "read"},
                           {.server = "b", .own = "a__delete"}, {.server = "b", .own = "b__own"},
                           {.server = "b", .own = "b__b__own"}, {.server = "b", .own = "fine"}};
    const char *const expected[] = {"a__read",      "a__only_one", "a__only_one_2", "b__read",
                                    "b__a__delete", "b__own",      "b__b__own",     "fine"};

    names_give(list, 8);
    for (int i = 0; i < 8; i++)
        ck_assert_str_eq(list[i].name, expected[i]);
}
END_TEST

static bool allowed_by(const char *name, const char *file, const char *tool)
{
    char *allow[] = {(char *)name};
    struct mcp *m = NULL;
    bool may;

    ck_assert_int_eq(mcp_open(&m, file, 20, allow, 1, &e), 0);
    ck_assert_int_eq(mcp_wait_started(m, NULL, &e), 0);
    mcp_refresh(m);
    ck_assert(mcp_tool_find(m, tool));
    may = mcp_may_run(m, mcp_tool_find(m, tool));
    mcp_close(m);
    return may;
}

START_TEST(what_is_allowed)
{
    const char *one = SERVERS("one", "good");

    ck_assert(allowed_by("*", one, "echo"));
    ck_assert(allowed_by("one", one, "echo"));
    ck_assert(allowed_by("echo", one, "echo"));
    ck_assert(!allowed_by("huge", one, "echo"));
    /* a server's name never means a tool, and a shared name none of them */
    ck_assert(!allowed_by("echo", SERVERS("echo", "many", "one", "good"), "echo"));
    ck_assert(!allowed_by("echo", SERVERS("one", "good", "two", "good"), "two__echo"));
    ck_assert(allowed_by("two__echo", SERVERS("one", "good", "two", "good"), "two__echo"));
}
END_TEST

START_TEST(always_lasts_while_the_tool_is_the_same)
{
    struct mcp *m = open_servers(SERVERS("good", "good"), 20);

    ck_assert(!mcp_may_run(m, mcp_tool_find(m, "echo")));
    mcp_always(m, mcp_tool_find(m, "echo"));
    ck_assert(mcp_may_run(m, mcp_tool_find(m, "echo")));
    ck_assert(!mcp_may_run(m, mcp_tool_find(m, "around")));
    json_object_set_new((json_t *)(uintptr_t)mcp_tool_find(m, "echo")->described, "description",
                        json_string("Deletes everything."));
    ck_assert(!mcp_may_run(m, mcp_tool_find(m, "echo")));
    mcp_close(m);
}
END_TEST

/* ---- rounds ---- */

static json_t *call_of(const char *id, const char *name, const char *arguments)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function", "name",
                     name, "arguments", arguments);
}

START_TEST(a_round)
{
    struct mcp *m = open_servers(SERVERS("good", "good"), 20);
    struct round r;
    json_t *calls = json_pack("[o, o, o, o]", call_of("1", "echo", "{\"text\": \"one\"}"),
                              call_of("2", "none", "{}"), call_of("3", "echo", "[1"),
                              call_of("4", "around", ""));

    mcp_always(m, mcp_tool_find(m, "echo"));
    ck_assert_int_eq(round_begin(&r, m, calls, &e), 0);
    while (round_step(&r) == ROUND_RUNS)
        mcp_wait(m);
    ck_assert_int_eq(round_step(&r), ROUND_ASKS);
    ck_assert_str_eq(r.tool->name, "around");
    round_permit(&r, false, "refused");
    ck_assert_int_eq(round_step(&r), ROUND_OVER);
    ck_assert_str_eq(r.outcomes[0].text, "one");
    ck_assert(strstr(r.outcomes[1].text, "no tool none. There are: echo, around"));
    ck_assert(strstr(r.outcomes[2].text, "not a JSON object"));
    ck_assert_str_eq(r.outcomes[3].text, "refused");
    ck_assert_int_eq(r.outcomes[3].verdict, ROUND_REFUSED);
    round_release(&r);
    mcp_close(m);
}
END_TEST

START_TEST(a_round_is_stopped)
{
    struct mcp *m = open_servers(SERVERS("good", "good"), 60);
    struct round r;
    json_t *calls = json_pack("[o, o]", call_of("1", "never", ""), call_of("2", "echo", ""));

    mcp_always(m, mcp_tool_find(m, "never"));
    mcp_always(m, mcp_tool_find(m, "echo"));
    ck_assert_int_eq(round_begin(&r, m, calls, &e), 0);
    ck_assert_int_eq(round_step(&r), ROUND_RUNS);
    round_stop(&r, "stopped");
    while (round_step(&r) == ROUND_RUNS)
        mcp_wait(m);
    ck_assert_int_eq(r.outcomes[0].verdict, ROUND_STOPPED);
    ck_assert_str_eq(r.outcomes[1].text, "stopped");
    round_release(&r);
    ck_assert_ptr_null(strstr(calls_made(), "echo"));
    mcp_close(m);
}
END_TEST

/* ---- calls in answers, and back into prompts ---- */

static void note(struct calls_text *t, enum answer_part part, const char *text)
{
    struct token_event ev = {.part = part, .len = (uint16_t)strlen(text)};

    snprintf(ev.text, sizeof ev.text, "%s", text);
    calls_text_note(t, &ev);
}

START_TEST(calls_of_an_answer)
{
    json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "echo"), *calls;
    struct calls_text t = {0};

    note(&t, PART_ANSWER, "I look. ");
    note(&t, PART_TOOL_CALL, "{\"name\": \"echo\", \"arguments\": {\"a\": 1}}");
    calls = calls_read(&t, tools, 5);
    ck_assert_uint_eq(json_array_size(calls), 1);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(calls, 0), "id")),
                     "call_5_1");
    ck_assert_str_eq(t.plain.data, "I look. ");
    json_decref(calls);
    /* without a marker only a known tool is called */
    calls_text_clear(&t);
    note(&t, PART_ANSWER, "{\"name\": \"echo\", \"parameters\": {\"a\": 1}}");
    calls = calls_read(&t, tools, 5);
    ck_assert_uint_eq(json_array_size(calls), 1);
    ck_assert_str_eq(strbuf_text(&t.plain), "");
    json_decref(calls);
    calls_text_clear(&t);
    note(&t, PART_ANSWER, "{\"name\": \"Ann\", \"parameters\": {\"a\": 1}}");
    ck_assert_ptr_null(calls_read(&t, tools, 5));
    ck_assert(t.plain.len);
    calls_text_release(&t);
    json_decref(tools);
}
END_TEST

/* A dialogue: a user's message, two calls, the result of the second, a message. */
static struct dialogue spoken(void)
{
    struct dialogue d = {.messages = mem_alloc(4, sizeof *d.messages), .n_messages = 4};

    d.messages[0] = (struct message){.role = ROLE_USER, .text = mem_string("Hi")};
    d.messages[1] = (struct message){.role = ROLE_ASSISTANT, .text = mem_string("Look")};
    d.messages[1].members = json_pack("{s:[o, o]}", "tool_calls",
                                      call_of("call_1", "echo", "{\"text\": \"x\"}"),
                                      call_of("call_2", "echo", "{}"));
    d.messages[2] = (struct message){.role = ROLE_TOOL, .text = mem_string("Result")};
    d.messages[2].members = json_pack("{s:s, s:s}", "tool_call_id", "call_2", "name", "echo");
    d.messages[3] = (struct message){.role = ROLE_USER, .text = mem_string("And?")};
    return d;
}

START_TEST(telling_a_template)
{
    json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "echo");
    const struct chat_tools knows = {.tools = true,
                                     .calls = true,
                                     .results = true,
                                     .short_ids = true,
                                     .single = true,
                                     .described = true};
    struct dialogue d = spoken();
    const json_t *call;

    ck_assert_int_eq(telling_apply(&d, tools, &knows, &e), 0);
    ck_assert_uint_eq(d.n_messages, 6);
    ck_assert(d.hermes);
    ck_assert_str_eq(d.messages[1].text, "Look");
    call = json_array_get(json_object_get(d.messages[1].members, "tool_calls"), 0);
    ck_assert(json_is_object(json_object_get(json_object_get(call, "function"), "arguments")));
    ck_assert_uint_eq(json_string_length(json_object_get(call, "id")), 9);
    ck_assert(strstr(d.messages[2].text, "no result") && d.messages[2].role == ROLE_TOOL);
    ck_assert_str_eq(d.messages[4].text, "Result");
    ck_assert(json_equal(
        json_object_get(d.messages[4].members, "tool_call_id"),
        json_object_get(json_array_get(json_object_get(d.messages[3].members, "tool_calls"), 0),
                        "id")));
    ck_assert_str_eq(
        json_string_value(json_object_get(
            json_object_get(json_array_get(json_object_get(d.given, "tools"), 0), "function"),
            "description")),
        "");
    dialogue_release(&d);
    json_decref(tools);
}
END_TEST

START_TEST(telling_without_a_template)
{
    json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "echo");
    const struct chat_tools knows = {.no_system = _i};
    struct dialogue d = spoken();
    const struct message *m;

    ck_assert_int_eq(telling_apply(&d, tools, &knows, &e), 0);
    ck_assert_uint_eq(d.n_messages, _i ? 3 : 4);
    m = d.messages + !_i;
    ck_assert(strstr(d.messages[0].text, "<tools>\n{\"function\":{\"name\":\"echo\"}}\n</tools>"));
    ck_assert_str_eq(m[1].text,
                     "Look\n<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"text\": \"x\"}}\n"
                     "</tool_call>\n<tool_call>\n{\"name\": \"echo\", \"arguments\": {}}\n"
                     "</tool_call>");
    ck_assert_ptr_null(m[1].members);
    ck_assert_int_eq(m[2].role, ROLE_USER);
    ck_assert(strstr(m[2].text, "\nResult\n</tool_response>\n\nAnd?"));
    dialogue_release(&d);
    json_decref(tools);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mcp");
    TCase *t = tcase_create("protocol");

    tcase_add_loop_test(t, a_good_server, 0, 2);
    tcase_add_test(t, a_list_that_changes);
    tcase_add_test(t, what_a_server_can_reach);
    tcase_add_test(t, results_of_every_kind);
    tcase_add_loop_test(t, servers_of_no_use, 0, sizeof unusable / sizeof *unusable);
    tcase_add_loop_test(t, hostile_servers, 0, sizeof hostile / sizeof *hostile);
    tcase_add_test(t, ten_thousand_tools);
    tcase_add_test(t, a_stubborn_server_and_its_child_are_killed);
    tcase_add_test(t, a_call_is_cancelled);
    tcase_add_test(t, closing_waits_for_nobody);
    suite_add_tcase(s, t);
    t = tcase_create("around it");
    tcase_add_loop_test(t, wrong_files, 0, sizeof files / sizeof *files);
    tcase_add_test(t, a_file_with_everything);
    tcase_add_test(t, names);
    tcase_add_test(t, what_is_allowed);
    tcase_add_test(t, always_lasts_while_the_tool_is_the_same);
    tcase_add_test(t, a_round);
    tcase_add_test(t, a_round_is_stopped);
    tcase_add_test(t, calls_of_an_answer);
    tcase_add_test(t, telling_a_template);
    tcase_add_loop_test(t, telling_without_a_template, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

int main(int argc, char **argv)
{
    mcp_server_main(argc, argv);
    return support_run(suite());
}
