/* Tools of MCP servers in the real program: a call runs only where it was allowed or asked for, and
 * nothing typed ahead of the question answers it. A grammar makes the bundled model call. */
#include "engine/base/clock.h"
#include "tests/mcp_server.h"
#include "tests/serving.h"
#include "tests/support.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define PATIENCE (100 * CLOCK_SECOND)

#define CALL(name, text)                                                            \
    "root ::= \"<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": " \
    "{\\\"text\\\": \\\"" text "\\\"}}\\n</tool_call>\""

static const char *program(void)
{
    static char path[4200];
    const char *build = getenv("CHECK_BUILD");

    snprintf(path, sizeof path, "%s/%s/moetop", support_root(), build ? build : "build/release");
    return path;
}

static void own_home(void)
{
    static const char *const variables[] = {"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
                                            "XDG_CACHE_HOME"};

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        setenv(variables[i], support_tmpdir(), 1);
    setenv("LC_ALL", "C.UTF-8", 1);
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* ---- without a screen ---- */

static char out[1 << 16], err[1 << 16];

static void read_back(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n;

    ck_assert(f != NULL);
    n = fread(text, 1, size - 1, f);
    text[n] = 0;
    fclose(f);
}

/* Runs a shell command in which $M is the program with the servers and this grammar; fills out and
 * err; returns the exit status. */
static int run(const char *servers, const char *grammar, const char *command)
{
    char line[4 * PATH_MAX], o[PATH_MAX], r[PATH_MAX];
    int status;

    own_home();
    setenv("G", grammar, 1);
    snprintf(o, sizeof o, "%s/out", support_tmpdir());
    snprintf(r, sizeof r, "%s/err", support_tmpdir());
    snprintf(line, sizeof line,
             "M='%s -t 2 --device none --mcp %s'; T='%s'; ( %s ) >%s 2>%s </dev/null", program(),
             servers, support_tmpdir(), command, o, r);
    status = system(line);
    read_back(o, out, sizeof out);
    read_back(r, err, sizeof err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

START_TEST(nothing_runs_without_permission)
{
    const char *servers = SERVERS("good", "good");

    ck_assert_int_eq(
        run(servers, CALL("echo", "hi"), "$M -p Hi -n 100 --grammar \"$G\" --mcp-rounds 1"), 0);
    ck_assert_str_eq(calls_made(), "");
    ck_assert_msg(strstr(err, "tool echo is not run: --mcp-allow does not name it"), "%s", err);
    ck_assert_int_eq(run(servers, CALL("echo", "hi"),
                         "$M -p Hi -n 100 --grammar \"$G\" --mcp-rounds 1 --mcp-allow huge"),
                     0);
    ck_assert_str_eq(calls_made(), "");
    ck_assert_int_eq(run(servers, CALL("echo", "hi"),
                         "printf 'Hi\\n/quit\\n' | $M -n 100 --grammar \"$G\" --mcp-rounds 1"),
                     0);
    ck_assert_str_eq(calls_made(), "");
    ck_assert_msg(strstr(err, "tool echo is not run: --mcp-allow does not name it"), "%s", err);
}
END_TEST

START_TEST(what_is_allowed_runs)
{
    const char *servers = SERVERS("good", "good");

    ck_assert_int_eq(run(servers, CALL("echo", "hi"),
                         "$M -p Hi -n 100 --grammar \"$G\" --mcp-rounds 2 --mcp-allow echo"),
                     0);
    ck_assert_str_eq(calls_made(), "echo hi\necho hi\n");
    ck_assert_msg(strstr(err, "--mcp-rounds is 2"), "%s", err);
    ck_assert_str_eq(out, "");
    ck_assert_int_eq(run(servers, CALL("echo", "b"),
                         "printf 'Hi\\n/quit\\n' | $M -n 100 --grammar \"$G\" --mcp-rounds 1 "
                         "--mcp-allow good"),
                     0);
    ck_assert_str_eq(calls_made(), "echo hi\necho hi\necho b\n");
    ck_assert_msg(strstr(err, "tool echo of good"), "%s", err);
}
END_TEST

START_TEST(a_batch_runs_what_is_allowed)
{
    const char *servers = SERVERS("good", "good");

    ck_assert_int_eq(run(servers, CALL("echo", "hi"),
                         "printf 'Hi\\nHo\\n' | $M --batch - -n 100 --grammar \"$G\" "
                         "--parallel 2 --mcp-rounds 1"),
                     0);
    ck_assert_str_eq(calls_made(), "");
    ck_assert_int_eq(count(out, "\"verdict\":\"refused\""), 2);
    ck_assert_int_eq(run(servers, CALL("echo", "hi"),
                         "printf 'Hi\\nHo\\n' | $M --batch - -n 100 --grammar \"$G\" "
                         "--parallel 2 --mcp-rounds 2 --mcp-allow good"),
                     0);
    ck_assert_int_eq(count(calls_made(), "echo hi\n"), 4);
    ck_assert_int_eq(count(out, "\"verdict\":\"ran\",\"result\":\"hi\""), 4);
}
END_TEST

START_TEST(an_answer_with_tools_is_not_derived_again)
{
    ck_assert_int_eq(run(SERVERS("good", "good"), CALL("echo", "hi"),
                         "printf \"Hi\\n/save $T/said.json\\n/quit\\n\" | $M -n 100 --grammar "
                         "\"$G\" --mcp-rounds 1 --mcp-allow good && $M --replay $T/said.json"),
                     0);
    ck_assert_int_eq(count(out, "cannot be derived again: the model was given tools"), 2);
}
END_TEST

START_TEST(tools_for_a_model_elsewhere)
{
    const char *servers = SERVERS("good", "good");
    char command[300];

    own_home();
    serving_start(NULL);
    snprintf(command, sizeof command,
             "$M --connect http://127.0.0.1:%d -p Hi -n 100 --grammar \"$G\" --mcp-rounds 1 "
             "--mcp-allow echo",
             serving_port);
    ck_assert_int_eq(run(servers, CALL("echo", "far"), command), 0);
    ck_assert_str_eq(calls_made(), "echo far\n");
    snprintf(command, sizeof command,
             "echo Hi | $M --connect http://127.0.0.1:%d -n 100 --grammar \"$G\" --mcp-rounds 1",
             serving_port);
    ck_assert_int_eq(run(servers, CALL("echo", "far"), command), 0);
    ck_assert_msg(strstr(err, "tool echo is not run"), "%s", err);
    ck_assert_str_eq(calls_made(), "echo far\n");
    serving_end_well();
}
END_TEST

START_TEST(an_answer_without_calls)
{
    ck_assert_int_eq(run(SERVERS("good", "good"), "root ::= \"Plain words.\"",
                         "$M -p Hi -n 100 --grammar \"$G\" --mcp-allow '*'"),
                     0);
    ck_assert_str_eq(out, "Plain words.");
    ck_assert_str_eq(err, "");
}
END_TEST

START_TEST(wrong_uses)
{
    const char *servers = SERVERS("bad", "leaves");

    ck_assert_int_eq(run(servers, "", "$M -p Hi -n 2"), 5);
    ck_assert_msg(strstr(err, "no tool server could be started"), "%s", err);
    ck_assert_int_eq(run("/no/such/file", "", "$M -p Hi -n 2"), 5);
    ck_assert_int_eq(run(SERVERS("good", "good"), "", "$M -p Hi -n 2 --raw"), 2);
}
END_TEST

/* ---- on the screen ---- */

struct talk {
    pid_t pid;
    int fd;
    bool over;
    char out[1 << 20];
    size_t n, seen;
};

static struct talk *begin(const char *servers, const char *grammar, const char *more)
{
    static struct talk t;
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    /* Greedy: drawn by chance, one text has 66 to 76 tokens, and two of them with the tools fill
     * the context of 1024 now and then: an answer cut short calls nothing. */
    const char *argv[] = {program(),   "-t",     "2",     "--device", "none",
                          "-n",        "100",    "--mcp", servers,    "--mcp-rounds",
                          "3",         "--pace", "0",     "--temp",   "0",
                          "--grammar", grammar,  more,    NULL};

    own_home();
    memset(&t, 0, sizeof t);
    fflush(stdout);
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    if (t.pid == 0) {
        setenv("TERM", "xterm-256color", 1);
        execv(argv[0], (char **)argv);
        _exit(127);
    }
    ck_assert_int_ge(t.pid, 0);
    return &t;
}

/* Takes what comes within so many milliseconds. */
static void take(struct talk *t, int ms)
{
    uint64_t until = clock_now() + (uint64_t)ms * CLOCK_MILLI;

    do {
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        ssize_t n;

        if (poll(&p, 1, 10) <= 0)
            continue;
        if (t->n > sizeof t->out - 8192) {
            memmove(t->out, t->out + t->n / 2, t->n - t->n / 2);
            t->n -= t->n / 2;
            t->seen = 0;
        }
        n = read(t->fd, t->out + t->n, 4096);
        if (n <= 0) {
            t->over = errno != EINTR;
            return;
        }
        for (size_t i = t->n; i < t->n + (size_t)n; i++)
            t->out[i] = t->out[i] ? t->out[i] : ' ';
        t->n += (size_t)n;
        t->out[t->n] = 0;
    } while (clock_now() < until);
}

/* A question where one stood before may change no cell: then a new size has all drawn again. */
static void draw_again(struct talk *t)
{
    struct winsize size;

    if (ioctl(t->fd, TIOCGWINSZ, &size) < 0)
        return;
    size.ws_row = size.ws_row == 40 ? 41 : 40;
    ioctl(t->fd, TIOCSWINSZ, &size);
}

static void see(struct talk *t, const char *text)
{
    uint64_t until = clock_now() + PATIENCE;
    const char *at;

    while (!(at = strstr(t->out + t->seen, text)) && !t->over && clock_now() < until)
        take(t, 20);
    ck_assert_msg(at != NULL, "'%s' did not come; there was:\n%.3000s", text,
                  t->out + (t->n > 3000 ? t->n - 3000 : 0));
    t->seen = (size_t)(at - t->out) + strlen(text);
}

static void type(struct talk *t, const char *text)
{
    ck_assert_int_eq((int)write(t->fd, text, strlen(text)), (int)strlen(text));
}

/* Until the servers' calls are these. */
static void see_calls(struct talk *t, const char *calls)
{
    uint64_t until = clock_now() + PATIENCE;

    while (strcmp(calls_made(), calls) != 0 && clock_now() < until)
        take(t, 20);
    ck_assert_str_eq(calls_made(), calls);
}

/* Until a saved chat has this; on the screen an answer comes in pieces. */
static void see_saved(struct talk *t, const char *pattern)
{
    uint64_t until = clock_now() + PATIENCE;
    char command[PATH_MAX + 100];

    snprintf(command, sizeof command, "grep -qs '\"content\": \"%s' %s/moetop/chats/*.json",
             pattern, support_tmpdir());
    while (system(command) != 0 && !t->over && clock_now() < until)
        take(t, 100);
    ck_assert_msg(system(command) == 0, "no saved chat has %s", pattern);
}

static void quit(struct talk *t)
{
    uint64_t until = clock_now() + PATIENCE;
    int status = 0;

    type(t, "\025/quit\r"); /* in place of what the line holds */
    while (!t->over && clock_now() < until)
        take(t, 20);
    if (!t->over)
        kill(t->pid, SIGKILL);
    ck_assert_int_eq(waitpid(t->pid, &status, 0), t->pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    close(t->fd);
}

#define ASKED "The model calls the tool echo of the server good"
#define MAY "Enter: once" /* of a frame only the changes are written */

static void see_question(struct talk *t)
{
    uint64_t until = clock_now() + PATIENCE;

    do {
        draw_again(t);
        take(t, 2000);
    } while (!strstr(t->out + t->seen, MAY) && !t->over && clock_now() < until);
    see(t, MAY);
}

START_TEST(what_is_typed_ahead_answers_nothing)
{
    struct talk *t = begin(SERVERS("good", "good"), CALL("echo", "hi"), NULL);

    see(t, "moetop");
    type(t, "go\r\r\ra\r"); /* while the model is loaded, and while it answers */
    see(t, ASKED);
    for (int i = 0; i < 10; i++) { /* and while it cannot have been read yet */
        type(t, i % 2 ? "\r" : "a");
        take(t, 200);
    }
    ck_assert_str_eq(calls_made(), "");
    ck_assert_ptr_null(strstr(t->out + t->seen, MAY));
    see(t, MAY); /* the keys rest */
    type(t, "x\t \177");
    take(t, 300); /* keys that mean nothing here */
    ck_assert_str_eq(calls_made(), "");
    type(t, "\033[200~\r\033[201~"); /* nor does what is pasted */
    take(t, 300);
    ck_assert_str_eq(calls_made(), "");
    type(t, "\r");
    see_calls(t, "echo hi\n");
    see(t, ASKED); /* once: it is asked again */
    see_question(t);
    type(t, "n");
    see(t, ", refused");
    see_question(t);
    ck_assert_str_eq(calls_made(), "echo hi\n");
    type(t, "\003"); /* Ctrl-C: the end of it */
    see(t, "stopped");
    take(t, 500);
    quit(t);
    ck_assert_str_eq(calls_made(), "echo hi\n");
}
END_TEST

START_TEST(always_is_for_this_chat)
{
    struct talk *t = begin(SERVERS("good", "good"), CALL("echo", "hi"), NULL);

    see(t, "moetop");
    type(t, "go\r");
    see(t, MAY);
    type(t, "a");
    see_calls(t, "echo hi\necho hi\necho hi\n");
    see(t, "--mcp-rounds"); /* the fourth is not run */
    type(t, "/clear\r");
    take(t, 300);
    type(t, "go\r");
    see(t, MAY);
    type(t, "\033");
    see(t, "refused");
    see(t, MAY);
    type(t, "\003");
    take(t, 500);
    quit(t);
    ck_assert_int_eq(count(calls_made(), "echo"), 3);
}
END_TEST

START_TEST(a_call_can_be_given_up)
{
    struct talk *t = begin(SERVERS("good", "good"), CALL("never", "hi"), NULL);

    see(t, "moetop");
    type(t, "go\r");
    see(t, MAY);
    type(t, "\r");
    see(t, "never of good runs");
    type(t, "\033");
    see(t, "stopped");
    take(t, 300);
    quit(t);
}
END_TEST

START_TEST(a_chat_with_calls_is_continued)
{
    struct talk *t = begin(SERVERS("good", "good"), CALL("echo", "hi\\\\u001b[2Jho"), NULL);

    see(t, "moetop");
    type(t, "go\r");
    see(t, MAY);
    type(t, "\r");
    see(t, "tool echo of good");
    see_question(t);
    type(t, "\003");
    take(t, 500);
    quit(t);
    t = begin(SERVERS("good", "good"), "root ::= \"Fine.\"", "--continue");
    see(t, "tool echo of good");
    see(t, "moetop");
    type(t, "and?\r");
    see_saved(t, "Fine\\.");
    quit(t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mcp_chat");
    TCase *t = tcase_create("program");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, nothing_runs_without_permission);
    tcase_add_test(t, what_is_allowed_runs);
    tcase_add_test(t, a_batch_runs_what_is_allowed);
    tcase_add_test(t, an_answer_with_tools_is_not_derived_again);
    tcase_add_test(t, tools_for_a_model_elsewhere);
    tcase_add_test(t, an_answer_without_calls);
    tcase_add_test(t, wrong_uses);
    tcase_add_test(t, what_is_typed_ahead_answers_nothing);
    tcase_add_test(t, always_is_for_this_chat);
    tcase_add_test(t, a_call_can_be_given_up);
    tcase_add_test(t, a_chat_with_calls_is_continued);
    suite_add_tcase(s, t);
    return s;
}

int main(int argc, char **argv)
{
    mcp_server_main(argc, argv);
    return support_run(suite());
}
