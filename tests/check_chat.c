/* The program as people talk to it, scripted through a pseudo terminal, line by line and on the
 * screen: settings typed while the model loads and while it answers, work asked for and given up,
 * quitting at awkward moments. Meant for TSan (the terminal's thread, the engine's and those that
 * compute meet here as nowhere else); under any build no run may hang, crash or end with a wrong
 * status. */
#include "app/chat/autosave.h"
#include "engine/base/clock.h"
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define PATIENCE (150 * CLOCK_SECOND) /* a sanitizer on a busy machine; a hang is for ever */

static const char *program(void)
{
    static char path[4200];
    const char *build = getenv("CHECK_BUILD");

    snprintf(path, sizeof path, "%s/%s/moetop", support_root(), build ? build : "build/release");
    return path;
}

/* A chat under way: what came from its terminal so far. */
struct talk {
    pid_t pid;
    int fd, status;
    bool over;
    char out[1 << 20];
    size_t n, seen;
};

static struct talk *begin(const char *home, const char *term, const char *const *arguments)
{
    static struct talk t;
    struct winsize size = {.ws_row = 40, .ws_col = 120};
    struct termios quiet;
    const char *argv[24] = {program(), "-t", "2", "--device", "none", "-c", "512"};
    /* Check's handlers are the child's until it is another program, and would end this test */
    sigset_t theirs, before;
    int n = 7;

    sigemptyset(&theirs);
    sigaddset(&theirs, SIGINT);
    sigaddset(&theirs, SIGTERM);
    memset(&t, 0, sizeof t);
    while (*arguments)
        argv[n++] = *arguments++;
    fflush(stdout);
    sigprocmask(SIG_BLOCK, &theirs, &before);
    t.pid = forkpty(&t.fd, NULL, NULL, &size);
    if (t.pid == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        tcgetattr(0, &quiet);
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(0, TCSANOW, &quiet);
        setenv("HOME", home, 1);
        setenv("TERM", term, 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        unsetenv("XDG_CONFIG_HOME");
        unsetenv("XDG_STATE_HOME");
        unsetenv("XDG_DATA_HOME");
        unsetenv("XDG_CACHE_HOME");
        execv(argv[0], (char **)argv);
        _exit(127);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    ck_assert_int_ge(t.pid, 0);
    fcntl(t.fd, F_SETFL, O_NONBLOCK);
    return &t;
}

/* Takes what has come, for at most so many milliseconds; a terminal whose program ended reads as an
 * error. */
static void take(struct talk *t, int ms)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    ssize_t n;

    if (t->over || poll(&p, 1, ms) <= 0)
        return;
    /* pictures: the newest are enough */
    if (t->n > sizeof t->out - 8192) {
        memmove(t->out, t->out + t->n / 2, t->n - t->n / 2);
        t->n -= t->n / 2;
        t->seen = 0;
    }
    n = read(t->fd, t->out + t->n, 4096);
    t->over = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    t->n += n > 0 ? (size_t)n : 0;
    t->out[t->n] = 0;
    for (size_t i = t->n - (n > 0 ? (size_t)n : 0); i < t->n; i++)
        t->out[i] = t->out[i] ? t->out[i] : ' ';
}

/* The end of what came, for a message. */
static const char *newest(struct talk *t)
{
    char *from = t->out + (t->n > 1500 ? t->n - 1500 : 0);

    for (char *p = from; *p; p++)
        *p = *p == '\033' ? '^' : *p;
    return from;
}

/* Like a terminal, it takes what comes while what is typed has to wait: a program that writes and
 * one that types would wait for each other otherwise. */
static void say(struct talk *t, const char *text)
{
    uint64_t until = clock_now() + PATIENCE;

    while (*text && !t->over && clock_now() < until) {
        ssize_t n = write(t->fd, text, strlen(text));

        text += n > 0 ? n : 0;
        if (*text)
            take(t, 20);
    }
    ck_assert_msg(!*text, "'%s' could not be typed; there was:\n%s", text, newest(t));
}

/* Waits for a text that comes after the one seen before. */
static void see(struct talk *t, const char *text)
{
    uint64_t until = clock_now() + PATIENCE;
    const char *at;

    while (!(at = strstr(t->out + t->seen, text)) && !t->over && clock_now() < until)
        take(t, 100);
    ck_assert_msg(at != NULL, "'%s' never came; there was:\n%s", text, newest(t));
    t->seen = (size_t)(at - t->out) + strlen(text);
}

static void pause_for(struct talk *t, int ms)
{
    for (uint64_t until = clock_now() + (uint64_t)ms * CLOCK_MILLI; clock_now() < until;)
        take(t, 5);
}

/* The program ends by itself with this code, and no sanitizer has complained. */
static void ended(struct talk *t, int code)
{
    uint64_t until = clock_now() + PATIENCE;
    pid_t done = 0;

    while (clock_now() < until && !done) {
        if (t->over)
            usleep(5000);
        take(t, 20);
        done = waitpid(t->pid, &t->status, WNOHANG);
    }
    if (!done) {
        kill(t->pid, SIGKILL);
        waitpid(t->pid, &t->status, 0);
    }
    while (!t->over)
        take(t, 1000);
    close(t->fd);
    ck_assert_msg(done == t->pid, "it had to be killed; there was:\n%s", newest(t));
    ck_assert_msg(!strstr(t->out, "Sanitizer") && !strstr(t->out, "runtime error:"), "%s",
                  newest(t));
    if (code == 130 && WIFSIGNALED(t->status) && WTERMSIG(t->status) != SIGKILL)
        return; /* it came before main had begun */
    ck_assert_msg(WIFEXITED(t->status) && WEXITSTATUS(t->status) == code,
                  "status %x, not exit %d; there was:\n%s", t->status, code, newest(t));
}

static const char *const plain[] = {"--plain", "--place", "balanced", NULL}, *const screen[] = {
                                                                                 "--place",
                                                                                 "balanced", NULL};

/* Everything is typed before the program has read a byte: the first of it is taken up while the
 * model loads. */
START_TEST(settings_while_it_loads)
{
    struct talk *t = begin(support_tmpdir(), "dumb", plain);
    uint64_t until = clock_now() + PATIENCE;

    say(t, "/set place cpu\n/set temp 0.5\n/place half\n/set pace 200\n/set seed 7\n/set theme "
           "mono\n/show\n");
    see(t, "the model is still loading");
    see(t, "temp is 0.5 now");
    see(t, "there is no theme mono");
    /* all the while: somewhere in there the engine's thread looks */
    while (!strstr(t->out + t->seen, "> ") && !t->over && clock_now() < until) {
        say(t, "/set place half\n/set place cpu\n");
        take(t, 4);
    }
    see(t, "> ");
    say(t, "Tell me a story.\n");
    see(t, "moetop: ");
    say(t, "/quit\n");
    ended(t, 0);
    ck_assert_ptr_null(strstr(t->out, "place is cpu")); /* it was not */
}
END_TEST

START_TEST(settings_while_it_answers)
{
    struct talk *t = begin(support_tmpdir(), "dumb", plain);

    see(t, "> ");
    say(t, "Tell me a story.\n");
    see(t, "moetop: ");
    say(t, "/set temp 0.7\n/set place cpu\n/set top-k 3\n/set pace 100\n/place half\n/set min-p "
           "0.1\n/expert 0:1\n");
    see(t, "min-p is 0.1 now");
    say(t, "/set pace off\n");
    see(t, "> ");
    say(t, "/regen\n");
    see(t, "moetop: ");
    say(t, "/undo\n/set temp 0\n");
    see(t, "> ");
    say(t, "/undo\n/compare cpu,half\n");
    pause_for(t, 200);
    say(t, "/quit\n");
    ended(t, 0);
}
END_TEST

/* What the engine tells while a line is being typed neither takes nor tears it. */
START_TEST(a_half_typed_line_is_kept)
{
    struct talk *t = begin(support_tmpdir(), "dumb", plain);

    see(t, "> ");
    say(t, "/set place cpu\n/set temp 0.");
    see(t, "the placement is cpu now");
    see(t, "> "); /* the terminal echoes nothing */
    say(t, "25\n");
    see(t, "temp is 0.25 now");
    say(t, "/quit\n");
    ended(t, 0);
}
END_TEST

/* A value that the engine refuses is not set. */
START_TEST(a_refused_placement_is_not_set)
{
    struct talk *t = begin(support_tmpdir(), "dumb", plain);

    see(t, "> ");
    say(t, "/set place nonsense\n");
    see(t, "nonsense");
    say(t, "/show place\n");
    see(t, "balanced");
    say(t, "/set place cpu\n");
    see(t, "switching the placement to cpu");
    say(t, "/quit\n");
    ended(t, 0);
    ck_assert_ptr_null(strstr(t->out, "place is nonsense"));
}
END_TEST

START_TEST(the_screen_while_it_loads_and_answers)
{
    struct talk *t = begin(support_tmpdir(), "xterm-256color", screen);

    see(t, "\033[?1049h"); /* opening the screen drops what was typed before */
    say(t, "/set place cpu\r/set temp 0.5\r/set theme mono\r");
    pause_for(t, 100);
    say(t, "Tell me a story.\r");
    pause_for(t, 1500);
    say(t, "/set temp 0.7\r/set place half\r/set theme dark\r/set pace 50\r");
    /* F5, F6: panels and placements */
    say(t, "\033[15~\033[17~\033[17~");
    pause_for(t, 500);
    /* On a busy machine Esc and what follows it, however much later, may be read as one key: a
     * Ctrl-U goes with it then, and one more empties the line. */
    say(t, "\033");
    pause_for(t, 200);
    say(t, "\025\025/regen\r");
    pause_for(t, 500);
    say(t, "/undo\r/set pace off\r");
    pause_for(t, 300);
    say(t, "/compare cpu,half\r");
    pause_for(t, 300);
    say(t, "\033");
    pause_for(t, 200);
    say(t, "\025\025/quit\r");
    ended(t, 0);
}
END_TEST

static bool in_file(const char *path, const char *text)
{
    static char all[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(all, 1, sizeof all - 1, f) : 0;

    if (f)
        fclose(f);
    all[n] = 0;
    return strstr(all, text) != NULL;
}

/* Two chats of one home: what was typed in either is in the history of both kinds, the moment it is
 * sent. */
START_TEST(two_chats_keep_one_history)
{
    static struct talk first;
    const char *home = support_tmpdir();
    struct talk *second;
    char path[512];

    snprintf(path, sizeof path, "%s/.local/state/moetop/history", home);
    first = *begin(home, "dumb", plain);
    see(&first, "> ");
    second = begin(home, "dumb", plain);
    see(second, "> ");
    say(second, "/set temp 0.25\n");
    see(second, "temp is 0.25 now");
    ck_assert(in_file(path, "/set temp 0.25\n"));
    say(&first, "/set temp 0.75\n");
    see(&first, "temp is 0.75 now");
    say(&first, "/quit\n");
    ended(&first, 0);
    kill(second->pid, SIGKILL); /* nothing is written at the end */
    waitpid(second->pid, &second->status, 0);
    close(second->fd);
    ck_assert(in_file(path, "\n/set temp 0.25\n#") && in_file(path, "\n/set temp 0.75\n"));
    ck_assert(!in_file(path, "##"));
}
END_TEST

/* A message to the chat "fox", in a process of its own; what came until the next one may be typed.
 */
static struct talk *told(const char *home, const char *message, const char *warm)
{
    const char *arguments[] = {"--plain", "--chat", "fox",          "--temp", "0",
                               "--pace",  "0",      "--warm-chats", warm,     NULL};
    struct talk *t = begin(home, "dumb", arguments);

    see(t, "> ");
    say(t, message);
    see(t, "> ");
    return t;
}

/* What was computed in one process is not computed in the next one. */
START_TEST(a_saved_chat_is_warm)
{
    const char *home = support_tmpdir();
    int stored, all, read;
    char folder[512];
    struct stat st;
    struct talk *t = told(home, "Tell me a story about a fox.\n", "8192");

    say(t, "And one about a bear.\n");
    see(t, "> ");
    say(t, "/quit\n");
    ended(t, 0);
    ck_assert(!strstr(t->out, "came from the disk"));
    snprintf(folder, sizeof folder, "%s/.local/state/moetop/warm", home);
    ck_assert_int_eq(stat(folder, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0700);

    t = told(home, "One about a hen.\n", "8192");
    ck_assert_msg(strstr(t->out, "warm: ") && sscanf(strstr(t->out, "warm: "),
                                                     "warm: %d of %d tokens came from the disk, %d",
                                                     &stored, &all, &read) == 3,
                  "%s", newest(t));
    ck_assert_msg(stored >= 64 && read <= 32 && stored + read >= all, "%d of %d, %d", stored, all,
                  read);
    say(t, "/cache\n");
    see(t, "came from the disk\r\n");
    see(t, "on the disk: ");
    say(t, "/quit\n");
    ended(t, 0);

    /* not where it is not wanted */
    t = told(home, "One about a dog.\n", "0");
    say(t, "/quit\n");
    ended(t, 0);
    ck_assert(!strstr(t->out, "came from the disk"));
}
END_TEST

static const struct {
    const char *typed;
    int signal, code;
    bool screen;
} leavings[] = {
    {"/quit\n", 0, 0, false}, {NULL, SIGINT, 130, false}, {NULL, SIGTERM, 130, false},
    {"\004", 0, 0, false},    {"/quit\r", 0, 0, true},    {"\003\003", 0, 0, true},
    {"\004", 0, 0, true},     {NULL, SIGTERM, 130, true},
};

START_TEST(leaving_while_it_loads)
{
    struct talk *t = begin(support_tmpdir(), leavings[_i].screen ? "xterm-256color" : "dumb",
                           leavings[_i].screen ? screen : plain);

    if (leavings[_i].screen) /* opening the screen drops what was typed before */
        see(t, "\033[?1049h");
    if (leavings[_i].typed)
        say(t, leavings[_i].typed);
    pause_for(t, leavings[_i].screen ? 0 : 30);
    /* a Ctrl-C that comes when the model is there asks for a second one */
    for (int times = 0; leavings[_i].signal && times < (leavings[_i].screen ? 1 : 2); times++) {
        kill(t->pid, leavings[_i].signal);
        pause_for(t, 200);
    }
    ended(t, leavings[_i].code);
}
END_TEST

/* Chats that begin in the same second, in one home: each keeps its own file. */
START_TEST(chats_of_one_second_keep_their_own_files)
{
    struct autosave f[3];
    struct transcript t;
    struct error e = {0};

    setenv("HOME", support_tmpdir(), 1);
    unsetenv("XDG_STATE_HOME");
    for (int i = 0; i < 3; i++) {
        autosave_init(&f[i]);
        ck_assert_msg(autosave_name(&f[i], &e) >= 0, "%s", e.text);
    }
    for (int i = 0; i < 3; i++) {
        transcript_init(&t);
        ck_assert_int_ge(transcript_append(&t, ROLE_USER, i ? "two" : "one", &e), 0);
        ck_assert_msg(autosave_write(&f[i], &t, &e) >= 0, "%s", e.text);
        ck_assert_msg(autosave_write(&f[i], &t, &e) >= 0, "%s", e.text); /* its own again */
        transcript_release(&t);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_str_ne(f[i].path, f[(i + 1) % 3].path);
        ck_assert_int_eq(access(f[i].path, R_OK), 0);
        autosave_release(&f[i], true);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("chat");
    TCase *t = tcase_create("chat");

    tcase_set_timeout(t, 900); /* each wait has its own end, which says what it waited for */
    tcase_add_test(t, settings_while_it_loads);
    tcase_add_test(t, settings_while_it_answers);
    tcase_add_test(t, a_half_typed_line_is_kept);
    tcase_add_test(t, a_refused_placement_is_not_set);
    tcase_add_test(t, the_screen_while_it_loads_and_answers);
    tcase_add_test(t, two_chats_keep_one_history);
    tcase_add_test(t, a_saved_chat_is_warm);
    tcase_add_test(t, chats_of_one_second_keep_their_own_files);
    tcase_add_loop_test(t, leaving_while_it_loads, 0, (int)(sizeof leavings / sizeof *leavings));
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
