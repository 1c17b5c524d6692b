/* What the terminal is sent, on a pseudo-terminal: links as OSC 8 sequences, where they are read,
 * with nothing in an address that could end them. */
#include "tests/support.h"
#include "ui/chatview.h"
#include "ui/model.h"
#include "ui/terminal.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct screen {
    int master, slave;
    struct terminal *terminal;
    struct canvas canvas;
    struct ui_model m;
    char sent[1 << 16];
};

static void screen_open(struct screen *s, const char *type)
{
    struct terminal_options o = {.type = type, .colour = true, .utf8 = true};
    struct winsize size = {.ws_row = 10, .ws_col = 60};
    struct error e = {0};

    setlocale(LC_CTYPE, "C.UTF-8");
    s->master = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(s->master, 0);
    ck_assert_int_eq(grantpt(s->master), 0);
    ck_assert_int_eq(unlockpt(s->master), 0);
    s->slave = open(ptsname(s->master), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(s->slave, 0);
    ck_assert_int_eq(ioctl(s->slave, TIOCSWINSZ, &size), 0);
    ck_assert_int_eq(fcntl(s->master, F_SETFL, O_NONBLOCK), 0);
    ck_assert_msg(terminal_open(&s->terminal, s->slave, s->slave, &o, &e) == 0, "%s", e.text);
    ck_assert_int_eq(canvas_init(&s->canvas, 60, 10), 0);
    ck_assert_int_eq(ui_model_init(&s->m), 0);
}

static void screen_close(struct screen *s)
{
    terminal_close(s->terminal);
    canvas_release(&s->canvas);
    ui_model_release(&s->m);
    close(s->slave);
    close(s->master);
    free(s);
}

/* What the next picture sends. */
static const char *drawn(struct screen *s)
{
    ssize_t n;
    size_t all = 0;

    while (read(s->master, s->sent, sizeof s->sent) > 0)
        ;
    canvas_clear(&s->canvas);
    chatview_draw(&s->canvas, (struct rect){0, 0, 60, 10}, &s->m);
    terminal_draw(s->terminal, &s->canvas);
    while ((n = read(s->master, s->sent + all, sizeof s->sent - 1 - all)) > 0)
        all += (size_t)n;
    s->sent[all] = 0;
    return s->sent;
}

START_TEST(links_are_told_to_terminals)
{
    static const char hostile[] = "[b](https://e.org/\033]0;x\a\xe2\x80\xae y) and "
                                  "[c](javascript:alert(1)) and [d](file:///etc/passwd)";
    struct screen *s = calloc(1, sizeof *s);
    const char *sent;

    screen_open(s, "xterm-256color");
    ui_block_add(&s->m, UI_ASSISTANT, "see [the fox](https://example.org/fox?a=1;b) here");
    sent = drawn(s);
    ck_assert_ptr_nonnull(strstr(sent, "\033]8;;https://example.org/fox?a=1;b\033\\"));
    ck_assert_ptr_nonnull(strstr(sent, "\033]8;;\033\\"));
    ck_assert_ptr_nonnull(strstr(sent, "https://example.org/fox")); /* and to be read */
    /* a row that stays keeps its link without being told again */
    ck_assert_ptr_null(strstr(drawn(s), "\033]8;;h"));
    terminal_redraw(s->terminal);
    ck_assert_ptr_nonnull(strstr(drawn(s), "\033]8;;https://example.org/fox"));
    ui_block_truncate(&s->m, 0);
    ui_block_add(&s->m, UI_ASSISTANT, hostile);
    sent = drawn(s);
    ck_assert_ptr_nonnull(strstr(sent, "\033]8;;https://e.org/%1B]0;x%07%E2%80%AE%20y\033\\"));
    ck_assert_ptr_null(strstr(sent, "\033]0;x"));
    ck_assert_ptr_null(strstr(sent, "\033]8;;javascript"));
    ck_assert_ptr_null(strstr(sent, "\033]8;;file"));
    screen_close(s);
}
END_TEST

/* These would show the sequence. */
START_TEST(old_terminals_are_sent_none)
{
    static const char *const types[] = {"vt100", "linux"};
    struct screen *s = calloc(1, sizeof *s);
    const char *sent;

    screen_open(s, types[_i]);
    ui_block_add(&s->m, UI_ASSISTANT, "see [the fox](https://example.org/fox) here");
    sent = drawn(s);
    ck_assert_ptr_nonnull(strstr(sent, "fox"));
    ck_assert_ptr_null(strstr(sent, "\033]8"));
    screen_close(s);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("terminal");
    TCase *c = tcase_create("terminal");

    tcase_add_test(c, links_are_told_to_terminals);
    tcase_add_loop_test(c, old_terminals_are_sent_none, 0, 2);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
