/* The input line: readline behind a queue of bytes. */
#include "engine/base/mem.h"
#include "tests/support.h"
#include "ui/input_history.h"
#include "ui/input_line.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct decode d;

static enum input_result type(const char *bytes)
{
    struct input_event ev;
    enum input_result last = INPUT_NOTHING;

    decode_push(&d, bytes, strlen(bytes));
    while (decode_next(&d, true, &ev) == 1)
        last = ev.kind == INPUT_KEY && ev.key == '\r' && !ev.mods ? input_enter() : input_key(&ev);
    return last;
}

static void expect(const char *text, size_t cursor)
{
    size_t len, at;
    const char *got = input_text(&len, &at);

    ck_assert_uint_eq(len, strlen(text));
    ck_assert_msg(memcmp(got, text, len) == 0, "\"%.*s\" instead of \"%s\"", (int)len, got, text);
    ck_assert_uint_eq(at, cursor);
}

static void expect_line(const char *keys, const char *line)
{
    char *got;

    ck_assert_int_eq(type(keys), INPUT_LINE);
    got = input_take();
    ck_assert_str_eq(got, line);
    mem_free(got);
    expect("", 0);
}

static char **words(void *ctx, const char *line, int start, int end)
{
    static const char *const all[] = {"/help", "/set", "/show", "/stats"};
    char **out = mem_alloc(5, sizeof *out);
    size_t i, n = 0;

    ck_assert(start <= end && ctx == NULL);
    for (i = 0; i < 4 && start == 0; i++)
        if (strncmp(all[i], line, (size_t)end) == 0)
            out[n++] = mem_string(all[i]);
    return out;
}

static void open_line_with(const char *inputrc)
{
    struct input_options o = {.complete = words};
    struct error e;

    setenv("INPUTRC", inputrc, 1);
    setlocale(LC_CTYPE, "C.UTF-8");
    decode_init(&d);
    ck_assert_int_eq(input_open(&o, &e), 0);
}

static void open_line(void)
{
    open_line_with("/dev/null");
}

static void close_line(void)
{
    input_close();
    decode_release(&d);
}

START_TEST(editing)
{
    type("hello wrld");
    expect("hello wrld", 10);
    type("\033[D\033[D\033[Do");
    expect("hello world", 8);
    type("\001X\005!"); /* Ctrl-A, Ctrl-E */
    expect("Xhello world!", 13);
    type("\027"); /* Ctrl-W */
    expect("Xhello ", 7);
    type("\033b\033d"); /* Alt-b, Alt-d */
    expect(" ", 0);
    /* wide characters, backspace takes a whole one */
    type("\005\xe4\xb8\x96\xe7\x95\x8c\177");
    expect(" \xe4\xb8\x96", 4);
    expect_line("\r", " \xe4\xb8\x96");
}
END_TEST

/* Readline typed the tail of a sequence it did not know: "~" for F12, "D" for Shift-Left. Insert
 * quoted the next key where inputrc says so. */
START_TEST(unknown_keys_type_nothing)
{
    static const char *const keys[] = {
        "\033[23~",   "\033[24~",   "\033[1;2D", "\033[1;2C", "\033[1;2R",
        "\033[1;6D",  "\033[5;2~",  "\033[6;5~", "\033[5;3~", "\033[15;2~",
        "\033[15;5~", "\033[15;3~", "\033[2~",   "\033O2P",   "\033[25~",
        "\033[5$",    "\033[97;5u", "\033[1;5P", "\033[E",
    };
    char file[] = "/tmp/moetop-inputrc-XXXXXX";
    int fd = mkstemp(file);

    ck_assert_int_ge(fd, 0);
    ck_assert(write(fd, "\"\\e[2~\": quoted-insert\n", 24) == 24 && close(fd) == 0);
    close_line();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        open_line_with(file);
        type("ab");
        type(keys[i]);
        type("c");
        expect("abc", 3);
        type("\025"); /* Ctrl-U does what it does */
        expect("", 0);
        close_line();
    }
    unlink(file);
    open_line();
}
END_TEST

START_TEST(several_rows)
{
    type("one\ntwo\nthree");
    expect("one\ntwo\nthree", 13);
    type("\033[A");
    expect("one\ntwo\nthree", 7);
    /* from the first row: the history, which is empty */
    type("\033[A\033[A");
    type("\033[B");
    expect("one\ntwo\nthree", 7);
    expect_line("\r", "one\ntwo\nthree");
    ck_assert_int_eq(type("\"\"\"\rfirst\rsecond"), INPUT_NOTHING);
    expect_line("\"\"\"\r", "first\nsecond");
    ck_assert_int_eq(type("a \\\rb"), INPUT_NOTHING);
    expect_line("\r", "a \nb");
    ck_assert_int_eq(type("x\033\ry\033[13;2uz"), INPUT_NOTHING); /* Alt-Enter, Shift-Enter */
    expect_line("\r", "x\ny\nz");
}
END_TEST

START_TEST(paste_is_one_message)
{
    ck_assert_int_eq(type("\033[200~first\r\nsecond\033[31m red\tx\001\r\n\033[201~"),
                     INPUT_NOTHING);
    expect("first\nsecond red\tx\n", 19);
    type("\037"); /* Ctrl-_: the paste is undone as one */
    expect("", 0);
}
END_TEST

START_TEST(history)
{
    expect_line("alpha\r", "alpha");
    expect_line("beta\nbeta\r", "beta\nbeta");
    expect_line("gamma\r", "gamma");
    type("draft\033[A");
    expect("gamma", 5);
    type("\033[A");
    expect("beta\nbeta", 9);
    type("\033[A"); /* first within the rows */
    expect("beta\nbeta", 4);
    type("\033[A");
    expect("alpha", 5);
    type("\033[B\033[B\033[B");
    expect("draft", 5);
    type("\025\022al"); /* Ctrl-U, Ctrl-R */
    ck_assert(input_busy());
    ck_assert_ptr_nonnull(strstr(input_prompt("> "), "al"));
    expect_line("\r", "alpha");
    ck_assert(!input_busy());
    ck_assert_str_eq(input_prompt("> "), "> ");
}
END_TEST

/* Chats of one home write at the same time: every line stays whole. */
START_TEST(one_history_many_writers)
{
    enum { CHATS = 4, LINES = 300 };
    char path[300], line[64];
    static char all[CHATS * LINES * 64];
    pid_t pids[CHATS];
    FILE *f;

    snprintf(path, sizeof path, "%s/together", support_tmpdir());
    for (int k = 0; k < CHATS; k++) {
        if ((pids[k] = fork()) == 0) {
            input_history_open(path);
            for (int i = 0; i < LINES; i++) {
                snprintf(line, sizeof line, "chat %d says %d", k, i);
                input_history_add(line);
            }
            _exit(0);
        }
    }
    for (int k = 0; k < CHATS; k++)
        waitpid(pids[k], NULL, 0);
    ck_assert_ptr_nonnull(f = fopen(path, "r"));
    all[fread(all, 1, sizeof all - 1, f)] = 0;
    fclose(f);
    for (int k = 0; k < CHATS; k++)
        for (int i = 0; i < LINES; i++) {
            snprintf(line, sizeof line, "\nchat %d says %d\n", k, i);
            ck_assert_msg(strstr(all, line) != NULL, "'%s' is lost", line + 1);
        }
}
END_TEST

START_TEST(history_across_runs)
{
    char path[200];
    struct input_options o = {.history_file = path};
    struct error e;

    snprintf(path, sizeof path, "%s/history", support_tmpdir());
    input_close();
    input_open(&o, &e);
    expect_line("kept\r", "kept");
    expect_line("two\nrows\r", "two\nrows");
    /* the file was written at once, closing adds nothing */
    input_close();
    input_open(&o, &e);
    type("\033[A");
    expect("two\nrows", 8);
    type("\033[A\033[A");
    expect("kept", 4);
}
END_TEST

START_TEST(completion)
{
    type("/he\t");
    expect("/help ", 6);
    type("\025/s\t");
    expect("/s", 2);
    ck_assert_ptr_nonnull(strstr(input_matches(), "/show"));
    type("h\t");
    expect("/show ", 6);
    ck_assert_ptr_null(input_matches());
}
END_TEST

START_TEST(editor_key)
{
    type("some text");
    ck_assert_int_eq(type("\030\005"), INPUT_EDITOR);
    input_set("from the editor\nwith \033[2Ja second row");
    expect("from the editor\nwith a second row", 33);
}
END_TEST

START_TEST(random_keys)
{
    static const char *const keys[] = {
        "a",         " ",
        "b\xc3\xa9", "\xe4\xb8\x96",
        "\r",        "\t",
        "\n",        "\001",
        "\005",      "\027",
        "\025",      "\013",
        "\031",      "\177",
        "\004",      "\022a",
        "\007",      "\033[A",
        "\033[B",    "\033[C",
        "\033[D",    "\033[H",
        "\033[F",    "\033[3~",
        "\033b",     "\033f",
        "\033d",     "\037",
        "\024",      "\030\005",
        "\"\"\"",    "\\",
        "/",         "\033[200~x\ny\033[201~",
        "\033\r",
    };
    int round;

    srand(3);
    for (round = 0; round < 60000; round++)
        if (type(keys[(size_t)rand() % (sizeof keys / sizeof keys[0])]) == INPUT_LINE)
            mem_free(input_take());
}
END_TEST

/* Whatever bytes come, in whatever mode of editing: nothing crashes, and the cursor stays inside
 * the text. */
START_TEST(random_bytes)
{
    /* "FROM TO": a longer hunt, by hand */
    const char *many = getenv("CHECK_SEEDS");
    int seed = _i, last = _i, round;

    if (many && sscanf(many, "%d %d", &seed, &last) != 2)
        seed = last = _i;
    for (; seed <= last; seed++) {
        uint64_t state = 88172645463325252u + (uint64_t)seed * 2654435761u;

        if (seed % 3 == 2)
            type("\033\n"), input_set("");
        for (round = 0; round < 2000; round++) {
            char bytes[9];
            size_t len, cursor, n, i;

            for (i = 0; i < 8; i++) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                bytes[i] = (char)(state >> 32);
                if (seed % 2 && state % 5) /* mostly controls and escapes */
                    bytes[i] = (char)(state % 3 == 0 ? 0x1b : (state >> 40) % 0x20);
                if (!bytes[i])
                    bytes[i] = 1;
            }
            n = 1 + state % 8;
            bytes[n] = 0;
            if (type(bytes) == INPUT_LINE)
                mem_free(input_take());
            input_text(&len, &cursor);
            ck_assert_msg(cursor <= len, "seed %d, round %d: cursor %zu of %zu", seed, round,
                          cursor, len);
            if (state % 97 == 0)
                input_set("set\nfrom outside");
            if (len > 4000)
                input_set("");
        }
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("input");
    TCase *t = tcase_create("input");

    tcase_add_checked_fixture(t, open_line, close_line);
    tcase_add_test(t, editing);
    tcase_add_test(t, unknown_keys_type_nothing);
    tcase_add_test(t, several_rows);
    tcase_add_test(t, paste_is_one_message);
    tcase_add_test(t, history);
    tcase_add_test(t, history_across_runs);
    tcase_add_test(t, one_history_many_writers);
    tcase_add_test(t, completion);
    tcase_add_test(t, editor_key);
    tcase_add_test(t, random_keys);
    tcase_add_loop_test(t, random_bytes, 0, 18);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
