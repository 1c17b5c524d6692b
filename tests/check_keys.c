/* Keys: decoding whatever the split, pastes as one event, and the table behind help and manual. */
#include "tests/support.h"
#include "ui/keys.h"
#include "ui/panels/panel.h"
#include "ui/screen/key_help.h"

#include <stdlib.h>
#include <string.h>

static struct decode d;

static void fresh(void)
{
    decode_init(&d);
}

static void done(void)
{
    decode_release(&d);
}

static void expect_key(const char *bytes, uint32_t key, unsigned mods, bool late)
{
    struct input_event ev;

    decode_push(&d, bytes, strlen(bytes));
    ck_assert_msg(decode_next(&d, late, &ev) == 1, "nothing from %s", bytes + 1);
    ck_assert_int_eq(ev.kind, INPUT_KEY);
    ck_assert_uint_eq(ev.key, key);
    ck_assert_uint_eq(ev.mods, mods);
    ck_assert_int_eq(decode_next(&d, true, &ev), 0);
}

START_TEST(sequences)
{
    expect_key("a", 'a', 0, false);
    expect_key("\xc3\xa9", 0xe9, 0, false);
    expect_key("\003", 3, 0, false);
    expect_key("\033", 0x1b, 0, true);
    expect_key("\033[A", KEY_UP, 0, false);
    expect_key("\033OA", KEY_UP, 0, false);
    expect_key("\033[1;2A", KEY_UP, KEY_SHIFT, false);
    expect_key("\033[1;5H", KEY_HOME, KEY_CTRL, false);
    expect_key("\033[5~", KEY_PAGE_UP, 0, false);
    expect_key("\033OP", KEY_F1, 0, false);
    expect_key("\033[[A", KEY_F1, 0, false);
    expect_key("\033[11~", KEY_F1, 0, false);
    expect_key("\033[21~", KEY_F10, 0, false);
    expect_key("\033[Z", KEY_BACKTAB, 0, false);
    expect_key("\033b", 'b', KEY_ALT, false);
    expect_key("\0331", '1', KEY_ALT, false);
    expect_key("\033\r", '\r', KEY_ALT, false);
    expect_key("\033[13;2u", '\r', KEY_SHIFT, false);
    expect_key("\033\033[A", KEY_UP, KEY_ALT, false);
}
END_TEST

START_TEST(split_anywhere)
{
    static const char *const all[] = {"\033[1;5H", "\033[200~one\r\ntwo\033[x\033[201~",
                                      "\xe4\xb8\x96", "\033OQ", "\033[<64;10;5M"};
    size_t i, at;

    for (i = 0; i < sizeof all / sizeof all[0]; i++)
        for (at = 1; at < strlen(all[i]); at++) {
            struct input_event ev;
            int before, n;

            fresh();
            decode_push(&d, all[i], at);
            before = decode_next(&d, false, &ev);
            ck_assert_msg(before == 0, "an event from %zu bytes of number %zu", at, i);
            decode_push(&d, all[i] + at, strlen(all[i]) - at);
            n = decode_next(&d, false, &ev);
            ck_assert_msg(n == 1, "no event from number %zu cut at %zu", i, at);
            if (ev.kind == INPUT_PASTE)
                ck_assert_str_eq(ev.paste, "one\ntwo\033[x");
            ck_assert_int_eq(decode_next(&d, true, &ev), 0);
            done();
        }
    fresh();
}
END_TEST

START_TEST(mouse)
{
    struct input_event ev;

    decode_push(&d, "\033[<64;10;5M\033[<65;1;1M\033[<0;3;4M\033[<0;3;4m",
                strlen("\033[<64;10;5M\033[<65;1;1M\033[<0;3;4M\033[<0;3;4m"));
    ck_assert_int_eq(decode_next(&d, false, &ev), 1);
    ck_assert_int_eq(ev.kind, INPUT_WHEEL);
    ck_assert_int_lt(ev.amount, 0);
    ck_assert_int_eq(ev.x, 9);
    ck_assert_int_eq(decode_next(&d, false, &ev), 1);
    ck_assert_int_gt(ev.amount, 0);
    ck_assert_int_eq(decode_next(&d, false, &ev), 1);
    ck_assert_int_eq(ev.kind, INPUT_CLICK);
    ck_assert_int_eq(ev.y, 3);
}
END_TEST

START_TEST(unknown_sequences_vanish)
{
    static const char answers[] = "\033]11;rgb:ffff/ffff/ffff\033\\"
                                  "a\033P1$r0m\033\\"
                                  "b\033]4;1;x\a"
                                  "c\033_Gi=1\033\\"
                                  "d"
                                  "\033[5$"
                                  "e\033O5P"
                                  "f\033Oa"
                                  "z";
    struct input_event ev;

    decode_push(&d, "\033[?1;2c\033[97;98;99qx", 19);
    ck_assert_int_eq(decode_next(&d, false, &ev), 1);
    ck_assert_uint_eq(ev.key, 'x');
    ck_assert_int_eq(decode_next(&d, true, &ev), 0);
    decode_push(&d, answers, sizeof answers - 1);
    for (const char *want = "abcdefz"; *want; want++) {
        /* keys of rxvt and old xterm are keys, not text */
        do
            ck_assert_int_eq(decode_next(&d, false, &ev), 1);
        while (ev.key >= 0x200000);
        ck_assert_msg(ev.key == (unsigned char)*want, "%c instead of %c", (int)ev.key, *want);
    }
    ck_assert_int_eq(decode_next(&d, true, &ev), 0);
    decode_push(&d, "\033[1;", 4); /* half a sequence that never ends */
    ck_assert_int_eq(decode_next(&d, true, &ev), 0);
    expect_key("y", 'y', 0, false);
}
END_TEST

START_TEST(large_paste)
{
    size_t n = 300000, i;
    char *text = malloc(n);
    struct input_event ev;
    int got = 0;

    memset(text, 'p', n);
    decode_push(&d, "\033[200~", 6);
    for (i = 0; i < n; i += 4000) {
        decode_push(&d, text + i, n - i < 4000 ? n - i : 4000);
        ck_assert_int_eq(decode_next(&d, false, &ev), 0);
    }
    decode_push(&d, "\033[20", 4);
    ck_assert_int_eq(decode_next(&d, true, &ev), 0);
    decode_push(&d, "1~q", 3);
    while (decode_next(&d, false, &ev) == 1)
        if (got++ == 0) {
            ck_assert_int_eq(ev.kind, INPUT_PASTE);
            ck_assert_uint_eq(ev.paste_len, n);
        } else {
            ck_assert_uint_eq(ev.key, 'q');
        }
    ck_assert_int_eq(got, 2);
    free(text);
}
END_TEST

START_TEST(random_bytes)
{
    unsigned char bytes[64];
    struct input_event ev;
    int round, i;

    srand(7);
    for (round = 0; round < 20000; round++) {
        int n = 1 + rand() % (int)sizeof bytes;

        for (i = 0; i < n; i++)
            bytes[i] = rand() % 3 == 0   ? 0x1b
                       : rand() % 3 == 0 ? '['
                                         : (unsigned char)(rand() >> 7);
        decode_push(&d, bytes, (size_t)n);
        while (decode_next(&d, round % 2, &ev) == 1)
            ck_assert_int_ge(ev.n_bytes, 0);
        ck_assert(d.used < 4096 || d.pasting);
    }
}
END_TEST

START_TEST(table)
{
    const struct key_binding *t;
    int n, i, j, index;

    t = keys_table(&n);
    for (i = 0; i < n; i++) {
        if (i == 0 || t[i].label)
            ck_assert(t[i].label && t[i].help);
        if (t[i].key) {
            ck_assert_int_eq(keys_lookup(t[i].context, t[i].key, t[i].mods, &index), t[i].action);
            ck_assert_int_eq(index, t[i].index);
        }
        for (j = 0; j < i; j++)
            ck_assert_msg(!t[i].key || t[i].key != t[j].key || t[i].mods != t[j].mods ||
                              t[i].context != t[j].context,
                          "%s is bound twice", t[i].label ? t[i].label : "?");
    }
    ck_assert_int_eq(keys_lookup(KEYS_CHAT, 'z', 0, &index), ACTION_NONE);
    ck_assert_int_eq(keys_lookup(KEYS_PANEL, 'z', 0, &index), ACTION_ZOOM);
    ck_assert_int_eq(keys_lookup(KEYS_PANEL, KEY_F1, 0, &index), ACTION_HELP);
    ck_assert_int_eq(keys_lookup(KEYS_PANEL, 'q', 0, &index), ACTION_NONE);
    /* a server's dashboard has no line to type into, and no chat */
    ck_assert_int_eq(keys_lookup(KEYS_SERVER, 'q', 0, &index), ACTION_QUIT);
    ck_assert_int_eq(keys_lookup(KEYS_SERVER, 'd' & 0x1f, 0, &index), ACTION_NONE);
    ck_assert_int_eq(keys_lookup(KEYS_SERVER, '\r', 0, &index), ACTION_NONE);
    ck_assert_int_eq(keys_lookup(KEYS_SERVER, KEY_F2, 0, &index), ACTION_NONE);
    ck_assert_int_eq(keys_lookup(KEYS_SERVER, KEY_F7, 0, &index), ACTION_PLACE);
    ck_assert_str_eq(keys_plans[index], "hot");
    /* a training run has no placement either */
    ck_assert_int_eq(keys_lookup(KEYS_TRAINING, 'q', 0, &index), ACTION_QUIT);
    ck_assert_int_eq(keys_lookup(KEYS_TRAINING, 'c' & 0x1f, 0, &index), ACTION_QUIT);
    ck_assert_int_eq(keys_lookup(KEYS_TRAINING, KEY_F1, 0, &index), ACTION_HELP);
    ck_assert_int_eq(keys_lookup(KEYS_TRAINING, KEY_F4, 0, &index), ACTION_ZOOM_EXPERTS);
    ck_assert_int_eq(keys_lookup(KEYS_TRAINING, KEY_F7, 0, &index), ACTION_NONE);
    ck_assert_int_eq(keys_lookup(KEYS_TRAINING, '\r', 0, &index), ACTION_NONE);
}
END_TEST

START_TEST(documents)
{
    const struct key_binding *t;
    char *help = NULL, *man = NULL;
    size_t size;
    FILE *f;
    int n, i;

    f = open_memstream(&help, &size);
    keys_print_help(f, KEYS_CHAT);
    fclose(f);
    f = open_memstream(&man, &size);
    keys_print_man(f);
    fclose(f);
    t = keys_table(&n);
    for (i = 0; i < n; i++)
        if (t[i].help)
            ck_assert_msg(strstr(help, t[i].help) != NULL, "the help lacks: %s", t[i].help);
    /* every panel is named where its key is, in the order of the keys */
    for (i = 0; i < panel_toggles(); i++)
        ck_assert_msg(strstr(help, panels[i]->name) != NULL, "the help lacks the panel %s",
                      panels[i]->name);
    ck_assert_ptr_nonnull(strstr(man, ".SH KEYS"));
    ck_assert_ptr_nonnull(strstr(man, "Ctrl\\-C"));
    free(help);
    free(man);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("keys");
    TCase *t = tcase_create("keys");

    tcase_add_checked_fixture(t, fresh, done);
    tcase_add_test(t, sequences);
    tcase_add_test(t, split_anywhere);
    tcase_add_test(t, mouse);
    tcase_add_test(t, unknown_sequences_vanish);
    tcase_add_test(t, large_paste);
    tcase_add_test(t, random_bytes);
    tcase_add_test(t, table);
    tcase_add_test(t, documents);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
