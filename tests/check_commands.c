/* The chat's commands on a conversation with the bundled model: what they say, what they write, and that nothing is lost by them. */
#include "app/conversation.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "tests/support.h"

#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A chat and all that it told since it was last forgotten. */
struct talk {
    struct options o;
    struct conversation *c;
    struct strbuf said;          /* every line of the program, each with a line end */
    struct strbuf edited;        /* what /edit put into the input line */
    struct strbuf copied;        /* what /copy gave to the clipboard */
    int changed, plans;
};

static void hear(void *ctx, enum conversation_say kind, const char *text)
{
    struct talk *t = ctx;

    strbuf_printf(&t->said, "%s\n", text);
}

static void hear_event(void *ctx, const struct event *ev)
{
    struct talk *t = ctx;

    t->plans += ev->kind == EVENT_PLAN;
    if (ev->kind == EVENT_ERROR || ev->kind == EVENT_NOTICE)
        strbuf_printf(&t->said, "%s\n", ev->text ? ev->text : "");
}

static void hear_edit(void *ctx, const char *text)
{
    struct talk *t = ctx;

    strbuf_clear(&t->edited);
    strbuf_puts(&t->edited, text);
}

static bool hear_copy(void *ctx, const char *text, size_t len)
{
    struct talk *t = ctx;

    strbuf_clear(&t->copied);
    strbuf_put(&t->copied, text, len);
    return true;
}

static void hear_changed(void *ctx)
{
    ((struct talk *)ctx)->changed++;
}

static void hear_nothing(void *ctx, const struct transcript_entry *entry)
{
}

static void pump(struct talk *t)
{
    struct pollfd p = {.fd = conversation_fd(t->c), .events = POLLIN};

    poll(&p, 1, 100);
    conversation_pump(t->c);
}

/* In a folder and a home of its own. more: options after the usual ones, NULL-terminated. */
static void talk_open(struct talk *t, const char *const *more)
{
    struct conversation_hooks hooks = {.ctx = t, .event = hear_event, .say = hear, .added = hear_nothing, .changed = hear_changed, .edit = hear_edit,
                                        .copy = hear_copy};
    char *argv[24] = {"moetop", "-t", "1", "--tune", "off", "--pace", "off", "-n", "6", "--temp", "0", "--place", "cpu"};
    char model[4096];
    struct error e = {0};
    int argc = 13;

    memset(t, 0, sizeof *t);
    snprintf(model, sizeof model, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    argv[argc++] = "-m";
    argv[argc++] = model;
    while (more && *more)
        argv[argc++] = (char *)*more++;
    setenv("XDG_STATE_HOME", support_tmpdir(), 1);
    setenv("XDG_CONFIG_HOME", support_tmpdir(), 1);
    setenv("XDG_CACHE_HOME", support_tmpdir(), 1);
    ck_assert_msg(options_init(&t->o, &e) == 0 && options_parse(&t->o, argc, argv, &e) == 0, "%s", e.text);
    ck_assert_msg(conversation_open(&t->c, &t->o, &hooks, &e) == 0, "%s", e.text);
    ck_assert_int_eq(chdir(support_tmpdir()), 0);
    while (!conversation_ready(t->c))
        pump(t);
}

static void talk_close(struct talk *t)
{
    struct error e = {0};

    ck_assert_msg(conversation_close(t->c, &e) == 0, "%s", e.text);
    options_release(&t->o);
    strbuf_release(&t->said);
    strbuf_release(&t->edited);
    strbuf_release(&t->copied);
}

/* Types a line and waits until nothing is going on any more; what the program says to it is t->said. */
static const char *type(struct talk *t, const char *line)
{
    strbuf_clear(&t->said);
    conversation_submit(t->c, line);
    do
        pump(t);
    while (conversation_working(t->c));
    return t->said.data ? t->said.data : "";
}

static void expect(struct talk *t, const char *line, const char *says)
{
    const char *said = type(t, line);

    ck_assert_msg(strstr(said, says) != NULL, "%s: '%s' instead of '%s'", line, said, says);
}

static const struct transcript *chat(const struct talk *t)
{
    return conversation_transcript(t->c);
}

static void put_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");

    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static const char *file_text(const char *name)
{
    static char text[1 << 16];
    FILE *f = fopen(name, "r");

    ck_assert_msg(f != NULL, "%s is not there", name);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void file_begins(const char *name, const char *begin)
{
    ck_assert_msg(strncmp(file_text(name), begin, strlen(begin)) == 0, "%s: %.80s", name, file_text(name));
}

/* ---- /save ---- */

START_TEST(save_replaces_no_file_of_others)
{
    static const char *const names[] = {"notes.md", "notes.json", "./notes.txt"};
    struct talk t;
    char line[64];

    talk_open(&t, NULL);
    type(&t, "hi");
    for (int i = 0; i < 3; i++) {
        put_file(names[i], "keep me\n");
        snprintf(line, sizeof line, "/save %s", names[i]);
        expect(&t, line, "/save! replaces it");
        file_begins(names[i], "keep me\n");
        snprintf(line, sizeof line, "/save! %s", names[i]);
        expect(&t, line, "saved in ");
        file_begins(names[i], i ? "{" : "# Conversation of ");
    }
    put_file("request.json", "{\"messages\": [], \"precious\": 1}");     /* reads as a chat that says nothing, but no chat of ours */
    expect(&t, "/save request.json", "/save! replaces it");
    ck_assert_ptr_nonnull(strstr(file_text("request.json"), "precious"));
    ck_assert_int_eq(symlink("nowhere", "link.md"), 0);
    expect(&t, "/save link.md", "/save! replaces it");
    ck_assert_int_lt(access("nowhere", F_OK), 0);
    ck_assert_int_eq(mkfifo("pipe.md", 0600), 0);
    expect(&t, "/save! pipe.md", "is no file");
    talk_close(&t);
}
END_TEST

START_TEST(save_goes_on_with_its_own_copies)
{
    struct talk t;

    talk_open(&t, NULL);
    type(&t, "hi");
    expect(&t, "/save a.md", "saved in a.md");
    expect(&t, "/save a.json", "saved in a.json");
    expect(&t, "/save fox", "/moetop/chats/fox.json");
    type(&t, "more");
    expect(&t, "/save a.md", "saved in a.md");
    ck_assert_ptr_nonnull(strstr(file_text("a.md"), "more"));
    expect(&t, "/save a.json", "saved in a.json");
    type(&t, "/undo");
    expect(&t, "/save a.json", "saved in a.json");               /* nobody touched it since */
    put_file("a.md", "edited by hand\n");
    expect(&t, "/save a.md", "/save! replaces it");
    type(&t, "/clear");
    type(&t, "another chat");
    expect(&t, "/save fox", "/save! replaces it");
    expect(&t, "/save a.json", "/save! replaces it");
    type(&t, "/load fox");
    type(&t, "more");
    expect(&t, "/save fox", "saved in ");                        /* it says all that the file says, and more */
    type(&t, "/load fox");
    type(&t, "/undo");
    expect(&t, "/save fox", "/save! replaces it");               /* that would lose the last message */
    talk_close(&t);
}
END_TEST

START_TEST(a_name_with_an_ending_is_a_file_here)
{
    struct talk t;
    struct stat st;

    talk_open(&t, NULL);
    type(&t, "hi");
    expect(&t, "/save story.md", "saved in story.md");
    file_begins("story.md", "# Conversation of ");
    ck_assert_ptr_nonnull(strstr(file_text("story.md"), "## You\n\nhi\n"));
    ck_assert_int_eq(stat("story.md", &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    expect(&t, "/save st2.json", "saved in st2.json");
    file_begins("st2.json", "{");
    put_file("fox", "no chat");
    expect(&t, "/save fox", "/moetop/chats/fox.json");           /* whatever lies here */
    file_begins("fox", "no chat");
    type(&t, "/clear");
    expect(&t, "/load st2.json", "");
    ck_assert_uint_eq(chat(&t)->n, 2);
    ck_assert_str_eq(chat(&t)->entries[0].text, "hi");
    talk_close(&t);
}
END_TEST

START_TEST(a_folder_that_is_missing_is_refused)
{
    struct talk t;

    talk_open(&t, NULL);
    type(&t, "hi");
    expect(&t, "/save none/x.json", "there is no such folder; make it first");
    expect(&t, "/save! none/x.md", "there is no such folder; make it first");
    expect(&t, "/profile none/x.json", "none/x.json: ");
    ck_assert_int_lt(access("none", F_OK), 0);
    talk_close(&t);
}
END_TEST

/* ---- /copy ---- */

START_TEST(copies_carry_nothing_that_acts)
{
    struct talk t;

    talk_open(&t, NULL);
    put_file("hostile.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": "
             "\"a\\u001b[?1049hb\\u0007\\tc\\nd\\u202e\\n```\\nls\\u001b[201~\\n```\"}]}");
    type(&t, "/load hostile.json");
    expect(&t, "/copy", "given to the terminal's clipboard");
    ck_assert_str_eq(t.copied.data, "ab\tc\nd\n```\nls\n```");
    expect(&t, "/copy code", "3 bytes given");
    ck_assert_str_eq(t.copied.data, "ls\n");
    type(&t, "/copy all");
    ck_assert(!strchr(t.copied.data, 27) && !strchr(t.copied.data, 7) && strstr(t.copied.data, "ab\tc\nd"));
    talk_close(&t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("commands");
    TCase *c = tcase_create("commands");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, save_replaces_no_file_of_others);
    tcase_add_test(c, save_goes_on_with_its_own_copies);
    tcase_add_test(c, a_name_with_an_ending_is_a_file_here);
    tcase_add_test(c, a_folder_that_is_missing_is_refused);
    tcase_add_test(c, copies_carry_nothing_that_acts);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
