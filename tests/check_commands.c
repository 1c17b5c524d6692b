/* The chat's commands on a conversation with the bundled model: what they say, what they write, and
 * that nothing is lost by them. */
#include "app/chat/commands/commands.h"
#include "app/chat/conversation.h"
#include "app/chat/prompter.h"
#include "app/options/config.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/run/engine.h"
#include "tests/golden_lora.h"
#include "tests/support.h"

#include <dirent.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A chat and all that it told since it was last forgotten. */
struct talk {
    struct options o;
    struct conversation *c;
    struct strbuf said;   /* every line of the program, each with a line end */
    struct strbuf edited; /* what /edit put into the input line */
    struct strbuf copied; /* what /copy gave to the clipboard */
    int changed, plans;
    int prompt, cached; /* tokens of the newest turn */
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
    if (ev->kind == EVENT_TURN_DONE) {
        t->prompt = ev->done_turn.prompt_tokens;
        t->cached = ev->done_turn.cached_tokens;
    }
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

static const char *talk_vendors; /* where drivers are looked for; NULL: nowhere */

/* In a folder and a home of its own. more: options after the usual ones, NULL-terminated. */
static void talk_open(struct talk *t, const char *const *more)
{
    struct conversation_hooks hooks = {.ctx = t,
                                       .event = hear_event,
                                       .say = hear,
                                       .added = hear_nothing,
                                       .changed = hear_changed,
                                       .edit = hear_edit,
                                       .copy = hear_copy};
    char *argv[24] = {"moetop", "-t", "1",      "--tune", "off",     "--pace", "off",
                      "-n",     "6",  "--temp", "0",      "--place", "cpu"};
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
    /* plans have their names without a device too */
    setenv("OCL_ICD_VENDORS", talk_vendors ? talk_vendors : "/nonexistent", 1);
    ck_assert_msg(options_init(&t->o, &e) == 0 && options_parse(&t->o, argc, argv, &e) == 0, "%s",
                  e.text);
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

/* Types a line and waits until nothing is going on any more; what the program says to it is
 * t->said. */
static const char *type(struct talk *t, const char *line)
{
    strbuf_clear(&t->said);
    chat_submit(t->c, line);
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

/* Waits until it has been said; the limit only ends a test that fails. */
static void hear_out(struct talk *t, const char *says)
{
    uint64_t end = clock_now() + 60 * CLOCK_SECOND;

    while (!(t->said.data && strstr(t->said.data, says)) && clock_now() < end)
        pump(t);
    ck_assert_msg(t->said.data && strstr(t->said.data, says), "'%s' instead of '%s'", t->said.data,
                  says);
}

/* As expect, but it may come later than the line's own words. */
static void expect_later(struct talk *t, const char *line, const char *says)
{
    type(t, line);
    hear_out(t, says);
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
    ck_assert_msg(strncmp(file_text(name), begin, strlen(begin)) == 0, "%s: %.80s", name,
                  file_text(name));
}

/* ---- /set! ---- */

START_TEST(a_kept_setting_is_there_next_time)
{
    const char *file = "config.yaml"; /* below $XDG_CONFIG_HOME/moetop */
    struct talk t;
    char path[4096];

    talk_open(&t, NULL);
    snprintf(path, sizeof path, "%s/moetop", support_tmpdir());
    ck_assert(chdir(path) == 0 || (mkdir(path, 0700) == 0 && chdir(path) == 0));
    expect(&t, "/set! temp 0.5", "temp is kept in ");
    ck_assert_str_eq(file_text(file), "temp: 0.5\n");
    /* what stands there stays, and a value is replaced with all its lines */
    put_file(file, "# mine\ntheme:\n  dark\n# temp: 3\ntop-k: 7 # few");
    expect(&t, "/set! theme light", "theme is light now");
    expect(&t, "/set! temp", "temp is kept in ");
    ck_assert_str_eq(file_text(file),
                     "# mine\ntheme: \"light\"\n# temp: 3\ntop-k: 7 # few\ntemp: 0.5\n");
    {
        struct options o;
        struct error e = {0};

        ck_assert_int_eq(options_init(&o, &e), 0);
        ck_assert_int_eq(config_read_all(&o, &e), 0);
        ck_assert(o.temp == 0.5 && o.top_k == 7);
        ck_assert_str_eq(o.theme, "light");
        options_release(&o);
    }
    /* a file that is wrong is not touched */
    put_file(file, "top-k: many\n");
    expect(&t, "/set! temp 0.6", "top-k");
    ck_assert_str_eq(file_text(file), "top-k: many\n");
    expect(&t, "/set!", "which setting");
    expect(&t, "/set! tempp 1", "did you mean temp?");
    expect(&t, "/set! temp 1000", "out of range");
    ck_assert_str_eq(file_text(file), "top-k: many\n");
    talk_close(&t);
}
END_TEST

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
    /* reads as a chat that says nothing, but no chat of ours */
    put_file("request.json", "{\"messages\": [], \"precious\": 1}");
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
    expect(&t, "/save a.json", "saved in a.json"); /* nobody touched it since */
    put_file("a.md", "edited by hand\n");
    expect(&t, "/save a.md", "/save! replaces it");
    type(&t, "/clear");
    type(&t, "another chat");
    expect(&t, "/save fox", "/save! replaces it");
    expect(&t, "/save a.json", "/save! replaces it");
    type(&t, "/load fox");
    type(&t, "more");
    /* it says all that the file says, and more */
    expect(&t, "/save fox", "saved in ");
    type(&t, "/load fox");
    type(&t, "/undo");
    /* that would lose the last message */
    expect(&t, "/save fox", "/save! replaces it");
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
    expect(&t, "/save page.html", "saved in page.html");
    file_begins("page.html", "<!DOCTYPE html>");
    ck_assert_ptr_nonnull(strstr(file_text("page.html"), "<svg"));
    put_file("other.html", "keep me");
    expect(&t, "/save other.html", "/save! replaces it");
    file_begins("other.html", "keep me");
    put_file("fox", "no chat");
    expect(&t, "/save fox", "/moetop/chats/fox.json"); /* whatever lies here */
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
    put_file("hostile.json",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", "
             "\"content\": "
             "\"a\\u001b[?1049hb\\u0007\\tc\\nd\\u202e\\n```\\nls\\u001b[201~\\n```\"}]}");
    type(&t, "/load hostile.json");
    expect(&t, "/copy", "given to the terminal's clipboard");
    ck_assert_str_eq(t.copied.data, "ab\tc\nd\n```\nls\n```");
    expect(&t, "/copy code", "3 bytes given");
    ck_assert_str_eq(t.copied.data, "ls\n");
    type(&t, "/copy all");
    ck_assert(!strchr(t.copied.data, 27) && !strchr(t.copied.data, 7) &&
              strstr(t.copied.data, "ab\tc\nd"));
    talk_close(&t);
}
END_TEST

/* ---- what is said ---- */

static void same_chat(const struct talk *t, size_t n, const char *last)
{
    ck_assert_uint_eq(chat(t)->n, n);
    ck_assert_str_eq(chat(t)->entries[n - 1].text, last);
}

START_TEST(an_edit_cuts_when_it_is_sent)
{
    struct talk t;
    char answer[512];

    talk_open(&t, NULL);
    expect(&t, "/edit", "there is no message to edit");
    ck_assert(!conversation_edit_end(t.c));
    type(&t, "one");
    type(&t, "two");
    snprintf(answer, sizeof answer, "%s", chat(&t)->entries[3].text);
    expect(&t, "/edit", "Ctrl-C leaves everything as it is");
    ck_assert_str_eq(t.edited.data, "two");
    same_chat(&t, 4, answer); /* nothing yet */
    ck_assert(conversation_edit_end(t.c));
    type(&t, "three");
    ck_assert_uint_eq(chat(&t)->n, 6);
    type(&t, "/edit");
    type(&t, "drei");
    ck_assert_uint_eq(chat(&t)->n, 6);
    ck_assert_str_eq(chat(&t)->entries[4].text, "drei");
    type(&t, "/edit");
    /* what was edited is gone: the next message is a new one */
    type(&t, "/undo");
    type(&t, "four");
    ck_assert_uint_eq(chat(&t)->n, 6);
    ck_assert_str_eq(chat(&t)->entries[2].text, "two");
    ck_assert_str_eq(chat(&t)->entries[4].text, "four");
    type(&t, "/edit");
    /* and at the end everything is in the file */
    talk_close(&t);
}
END_TEST

START_TEST(a_finished_answer_has_nothing_to_continue)
{
    struct talk t;
    struct transcript_entry *x;

    talk_open(&t, (const char *const[]){"-n", "400", NULL});
    type(&t, "hi");
    x = &chat(&t)->entries[1];
    ck_assert_str_eq(x->stop, "stop");
    x->seconds = 1.5;
    expect(&t, "/continue", "the model had finished: there is nothing to add");
    ck_assert(chat(&t)->entries[1].seconds == 1.5);
    talk_close(&t);
}
END_TEST

/* What /continue adds is counted with what stood there. */
START_TEST(a_continued_answer_is_measured_whole)
{
    struct talk t;

    talk_open(&t, (const char *const[]){"-n", "5", "--ignore-eos", NULL});
    type(&t, "Tell me a story.");
    ck_assert_int_eq(chat(&t)->entries[1].tokens, 5);
    chat(&t)->entries[1].seconds = 100;
    type(&t, "/continue");
    ck_assert_int_eq(chat(&t)->entries[1].tokens, 10);
    ck_assert(chat(&t)->entries[1].seconds > 100 && !chat(&t)->entries[1].paced);
    talk_close(&t);
}
END_TEST

START_TEST(an_answer_names_every_plan_it_ran_under)
{
    struct talk t;
    const struct transcript_entry *x;

    talk_open(&t, (const char *const[]){"-n", "12", "--ignore-eos", "--place-script",
                                        "3:hot,5:cpu,8:balanced", NULL});
    type(&t, "Tell me a story.");
    x = &chat(&t)->entries[1];
    ck_assert_str_eq(x->plan, "cpu+hot+balanced");
    ck_assert_uint_eq(x->n_plans, 4);
    ck_assert(x->plans[0].first_token == 1 && x->plans[1].first_token == 4 &&
              x->plans[2].first_token == 6 && x->plans[3].first_token == 9);
    expect(&t, "/save plans.json", "saved");
    type(&t, "/load plans.json");
    x = &chat(&t)->entries[1];
    ck_assert_str_eq(x->plan, "cpu+hot+balanced");
    ck_assert(x->n_plans == 4 && x->plans[3].first_token == 9 &&
              strcmp(x->plans[2].name, "cpu") == 0);
    /* one plan from its first token on */
    type(&t, "again");
    ck_assert_str_eq(chat(&t)->entries[3].plan, "balanced");
    ck_assert_uint_eq(chat(&t)->entries[3].n_plans, 1);
    talk_close(&t);
}
END_TEST

static void note_thread(void *ctx)
{
    *(pthread_t *)ctx = pthread_self();
}

/* A long text becomes ids on a thread of its own, and is given up there. */
START_TEST(a_long_message_holds_up_nobody)
{
    static struct prompter p;
    struct talk t;
    size_t n = 1 << 18;
    char *text = mem_alloc(n + 1, 1);
    struct dialogue said = {.messages = mem_alloc(1, sizeof *said.messages), .n_messages = 1};
    struct turn turn = {.max_tokens = 4};
    pthread_t maker = pthread_self();
    const struct transcript *all;
    struct error e = {0};
    uint64_t start;
    int rc = 1;

    for (size_t i = 0; i < n; i++)
        text[i] = "a fox sang. "[i % 12];
    talk_open(&t, NULL);
    said.messages[0] = (struct message){.role = ROLE_USER, .text = mem_string("Hello.")};
    ck_assert_int_eq(
        prompter_start(&p, conversation_info(t.c), &said, &turn, note_thread, &maker, &e), 0);
    while (!prompter_take(&p, &turn, &rc, &start, &e))
        usleep(100);
    ck_assert_int_eq(rc, 0);
    ck_assert_int_gt(turn.prompt.n, 0);
    ck_assert(!pthread_equal(maker, pthread_self()));
    turn_release(&turn);
    prompter_release(&p);
    chat_submit(t.c, text);
    ck_assert(conversation_busy(t.c)); /* and Ctrl-C is heard */
    conversation_stop(t.c);
    while (conversation_working(t.c))
        pump(&t);
    all = chat(&t);
    ck_assert_str_eq(all->entries[all->n - 1].text, "");
    ck_assert_str_ne(all->entries[all->n - 1].stop, "");
    text[1 << 15] = 0;
    expect(&t, text, "(-c)");
    expect(&t, "/new", "");
    type(&t, "Tell me a story about a fox.");
    ck_assert_int_eq(all->entries[all->n - 1].tokens, 6);
    mem_free(text);
    talk_close(&t);
}
END_TEST

START_TEST(a_paced_answer_says_so)
{
    struct talk t;

    talk_open(&t, (const char *const[]){"--pace", "2", "-n", "3", "--ignore-eos", NULL});
    type(&t, "hi");
    ck_assert(chat(&t)->entries[1].paced && chat(&t)->entries[1].tok_s > 0);
    type(&t, "/save p.json");
    type(&t, "/set pace off");
    type(&t, "more");
    ck_assert(!chat(&t)->entries[3].paced);
    type(&t, "/load p.json");
    ck_assert(chat(&t)->entries[1].paced);
    talk_close(&t);
}
END_TEST

START_TEST(regen_tells_why_nothing_changes)
{
    struct talk t;

    talk_open(&t, NULL);
    type(&t, "hi");
    expect(&t, "/regen", "temp is 0, so the same settings give the same answer");
    type(&t, "/set temp 0.8");
    type(&t, "/set seed 3");
    expect(&t, "/regen", "answer 3, seed 5\n");
    type(&t, "/set seed -1");
    expect(&t, "/regen", "answer 4, seed ");
    talk_close(&t);
}
END_TEST

static char *answer_to(struct talk *t, const char *line)
{
    type(t, line);
    return mem_string(chat(t)->entries[chat(t)->n - 1].text);
}

/* What fewer experts cost is told after the next answer, and one command takes them back. */
START_TEST(fewer_experts_and_back)
{
    const char *const longer[] = {"-n", "24", "--temp", "0", NULL};
    struct talk t;
    char *with, *without, *plain;

    talk_open(&t, longer);
    expect(&t, "/experts-used", "all 2 experts a token\n");
    expect(&t, "/experts-used many", "/experts-used N");
    expect(&t, "/experts-used weight 2", "/experts-used N");
    expect(&t, "/experts-used 3", "a token of this model uses 2; 1 to 2");
    plain = answer_to(&t, "Tell me a story about a fox.");
    type(&t, "/clear");
    expect(&t, "/experts-used 1", "1 of the 2 experts a token from here on");
    with = answer_to(&t, "Tell me a story about a fox.");
    hear_out(&t, "1 of the 2 experts a token: ");
    hear_out(&t, "top tokens changed; /experts-used undo");
    ck_assert_str_ne(with, plain);
    type(&t, "/clear");
    expect(&t, "/experts-used undo", "all 2 experts a token again");
    without = answer_to(&t, "Tell me a story about a fox.");
    ck_assert_str_eq(without, plain);
    expect(&t, "/experts-used weight 0.9", "but none of less weight than 0.9 from here on");
    expect(&t, "/experts-used undo", "all 2 experts a token again");
    expect(&t, "/experts-used defer", "/experts-used N");
    expect(&t, "/experts-used defer 1", "up to 1 of a layer's a layer later from here on");
    type(&t, "Tell me a story about a dog.");
    hear_out(&t, "a layer later: ");
    expect(&t, "/experts-used undo", "all 2 experts a token again");
    expect(&t, "/experts-used", "all 2 experts a token\n");
    talk_close(&t);
    mem_free(with);
    mem_free(without);
    mem_free(plain);
}
END_TEST

/* The same of types of keys and values. */
START_TEST(other_types_of_keys_and_back)
{
    const char *const longer[] = {"-n", "24", "--temp", "0", NULL};
    struct talk t;
    char *plain, *back;

    talk_open(&t, longer);
    expect(&t, "/kv", "keys in f16, values in f16\n");
    expect(&t, "/kv q4_0", "/kv TYPE");
    expect(&t, "/kv undo now", "/kv TYPE");
    plain = answer_to(&t, "Tell me a story about a fox.");
    expect(&t, "/kv q8_0", "keys in q8_0, values in q8_0 from here on");
    type(&t, "Tell me a story about a dog.");
    hear_out(&t, "keys in q8_0, values in q8_0: ");
    hear_out(&t, "top tokens changed; /kv undo takes it back");
    type(&t, "/clear");
    expect(&t, "/kv undo", "keys in f16, values in f16 again");
    back = answer_to(&t, "Tell me a story about a fox.");
    ck_assert_str_eq(back, plain);
    expect(&t, "/kv q8_0 f32", "keys in q8_0, values in f32 from here on");
    talk_close(&t);
    mem_free(plain);
    mem_free(back);
}
END_TEST

/* The adapter's answer; with strength 0 the model's own, for which what was read is read again. */
START_TEST(adapters_have_strengths)
{
    char file[4200];
    const char *const longer[] = {"-n", "24", NULL}, *const more[] = {"-n", "24", "--lora", file,
                                                                      NULL};
    struct talk t;
    char *with, *without, *plain;

    snprintf(file, sizeof file, "%s/lora.gguf", support_tmpdir());
    ck_assert_int_eq(golden_lora_write(support_demo(), file, 3), 0);
    talk_open(&t, longer);
    expect(&t, "/lora", "no adapters");
    plain = answer_to(&t, "Tell me a story about a fox.");
    talk_close(&t);
    talk_open(&t, more);
    expect(&t, "/lora", " 0  1       lora.gguf, GGUF, rank 4, on ");
    expect(&t, "/lora 1 0.5", "there is no adapter 1");
    expect(&t, "/lora 0", "/lora N STRENGTH");
    expect(&t, "/lora 0 much", "/lora N STRENGTH");
    with = answer_to(&t, "Tell me a story about a fox.");
    ck_assert_str_ne(with, plain);
    expect(&t, "/lora 0 1", "lora.gguf counts with 1 from here on\n");
    expect(&t, "/lora 0 0", "were computed with another strength are computed again");
    expect(&t, "/lora", " 0  0       lora.gguf");
    type(&t, "/undo");
    without = answer_to(&t, "Tell me a story about a fox.");
    ck_assert_int_eq(t.cached, 0);
    ck_assert_str_eq(without, plain);
    talk_close(&t);
    mem_free(with);
    mem_free(without);
    mem_free(plain);
}
END_TEST

START_TEST(commands_say_what_they_did)
{
    struct talk t;

    talk_open(&t, NULL);
    type(&t, "hi");
    type(&t, "/save fox");
    expect(&t, "/load fox", "fox is loaded: 2 messages");
    expect_later(&t, "/place hot", "switching the placement to hot ...\n");
    expect_later(&t, "/place balanced", "the placement is balanced now");
    expect_later(&t, "/set place cpu", "the placement is cpu now");
    expect(&t, "/place nowhere", "nowhere");
    expect(&t, "/place prompt", "/place prompt NAME: which placement reads prompts?");
    expect(&t, "/place prompt nowhere", "nowhere");
    expect_later(&t, "/place prompt hot", "the placement is cpu, prompts hot now");
    /* its figures are published a little later than the event */
    for (int i = 0; i < 2000 && !strstr(type(&t, "/place"), "now: cpu, prompts hot\n"); i++)
        clock_sleep(CLOCK_MILLI);
    expect(&t, "/place", "now: cpu, prompts hot\n");
    expect_later(&t, "/place balanced", "the placement is balanced, prompts hot now");
    expect_later(&t, "/set place-prompt cpu", "the placement is balanced, prompts cpu now");
    expect_later(&t, "/place prompt same", "the placement is balanced now");
    expect_later(&t, "/place cpu", "the placement is cpu now");
    expect_later(&t, "/doctor", "Most worth typing here:");
    ck_assert_ptr_null(strstr(type(&t, "/help"), "F1")); /* there are no keys here */
    talk_close(&t);
}
END_TEST

/* auto is measured after the next answer, on a device named on the command line, and told. */
START_TEST(auto_is_measured_after_an_answer)
{
    const char *vendors = getenv("OCL_ICD_VENDORS");
    struct talk t;
    bool there = true;

    /* --device names it, for PoCL is not used otherwise */
    setenv("XDG_CACHE_HOME", support_tmpdir(), 1);
    talk_vendors = vendors ? vendors : "/etc/OpenCL/vendors";
    talk_open(&t, (const char *const[]){"--device", "opencl:0", NULL});
    talk_vendors = NULL;
    expect_later(&t, "/place experts:1", "the placement is experts:1 now");
    there = conversation_info(t.c)->n_devices > 1;
    expect_later(&t, "/place auto", "the placement is auto now");
    if (there) {
        chat_submit(t.c, "hi");
        hear_out(&t, "; measured in ");
        ck_assert_ptr_nonnull(strstr(t.said.data, "auto: tokens "));
        for (int i = 0; i < 2000 && !strstr(type(&t, "/stats"), "experts-gpu   expected: "); i++)
            clock_sleep(CLOCK_MILLI);
        expect(&t, "/stats", "experts-gpu   expected: a token ");
    }
    talk_close(&t);
}
END_TEST

/* The placement asked for is in force and told by then. */
static int settle(void *ctx, struct engine *g, char **text, struct error *e)
{
    int rc = engine_settle(g, e);

    atomic_store((atomic_bool *)ctx, true);
    return rc;
}

/* The answer to one wish waits unread while the next one is sent: it is not taken for the next
 * one's. */
START_TEST(each_placement_asked_for_is_told)
{
    struct talk t;
    atomic_bool settled = false;

    talk_open(&t, NULL);
    strbuf_clear(&t.said);
    chat_submit(t.c, "/place hot");
    ck_assert_int_eq(conversation_call(t.c, settle, &settled, NULL), 0);
    while (!atomic_load(&settled))
        clock_sleep(CLOCK_MILLI);
    chat_submit(t.c, "/place balanced");
    hear_out(&t, "the placement is balanced now");
    ck_assert_ptr_nonnull(strstr(t.said.data, "the placement is hot now"));
    /* two at once: at least the newest */
    chat_submit(t.c, "/place hot");
    chat_submit(t.c, "/place cpu");
    hear_out(&t, "the placement is cpu now");
    talk_close(&t);
}
END_TEST

/* Every description begins in one column, whatever bytes stand before it. */
START_TEST(help_is_aligned)
{
    struct talk t;
    char *line, *rest;
    size_t n = 0;

    talk_open(&t, NULL);
    type(&t, "/help");
    for (line = strtok_r(t.said.data, "\n", &rest); line && line[0] == '/';
         line = strtok_r(NULL, "\n", &rest), n++) {
        const char *gap = strstr(line, "  ");

        ck_assert_ptr_nonnull(gap);
        ck_assert_msg(utf8_width(line, (size_t)(gap - line) + strspn(gap, " ")) == 21, "%s", line);
    }
    ck_assert_uint_gt(n, 10);
    talk_close(&t);
}
END_TEST

START_TEST(settings_are_looked_at_before_they_are_kept)
{
    struct talk t;

    talk_open(&t, (const char *const[]){"-c", "4096", NULL});
    ck_assert_ptr_nonnull(
        strstr(t.said.data, "longer than the 1024 that the model was trained with"));
    expect(&t, "/set theme nosuch", "there is no theme nosuch; there are ");
    ck_assert(strstr(t.said.data, "dark") && strstr(t.said.data, "light") &&
              strstr(t.said.data, "contrast"));
    ck_assert_ptr_null(strstr(t.said.data, "theme is nosuch"));
    ck_assert_ptr_null(strstr(type(&t, "/show theme"), "nosuch"));
    expect(&t, "/set theme light", "theme is light now");
    expect(&t, "/set temp 99", "temp 99 draws nearly at random");
    expect(&t, "/set top-p 0", "always takes the most probable token");
    type(&t, "/set pace 25");
    ck_assert_ptr_null(strstr(type(&t, "/show pace"), "now"));
    conversation_pace_toggle(t.c);
    ck_assert_ptr_nonnull(strstr(type(&t, "/show pace"), "(now running free: F2)"));
    conversation_pace_toggle(t.c);
    ck_assert_ptr_null(strstr(type(&t, "/show pace"), "now"));
    ck_assert_str_eq(type(&t, "/set temp 0.7"), "temp is 0.7 now\n");
    talk_close(&t);
}
END_TEST

static void role_write(const char *name, const char *text)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof path, "%s/moetop", support_tmpdir());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/moetop/roles", support_tmpdir());
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/moetop/roles/%s", support_tmpdir(), name);
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

START_TEST(a_role_is_a_system_message_with_settings)
{
    struct talk t;

    talk_open(&t, NULL);
    expect(&t, "/role", "no roles yet: each is a file ");
    role_write("poet.md", "---\ntemp: 0.25\ntop-p: 0.5\n---\nYou speak in verse.\n\n");
    role_write("plain.md", "You are brief.\n");
    role_write("wrong.md", "---\nno setting at all\n---\nText\n");
    role_write("notes.txt", "no role");
    expect(&t, "/role", "plain\npoet\nwrong\n/role NAME");
    expect(&t, "/role poet", "temp is 0.25 now");
    ck_assert_ptr_nonnull(strstr(t.said.data, "the system message holds from your next message"));
    ck_assert_ptr_nonnull(strstr(type(&t, "/show system"), "You speak in verse."));
    ck_assert_double_eq(t.o.temp, 0.25);
    expect(&t, "/role plain", "the system message holds");
    ck_assert_ptr_nonnull(strstr(type(&t, "/show system"), "You are brief."));
    expect(&t, "/role wrong", "'no setting at all' is no setting of a role: KEY: VALUE");
    ck_assert_ptr_nonnull(strstr(type(&t, "/show system"), "You are brief."));
    expect(&t, "/role ../config", "there is no role ../config; /role lists them");
    expect(&t, "/role nosuch", "there is no role nosuch");
    expect(&t, "/role none", "no system message any more");
    expect(&t, "/set panels nosuch", "panels: there is no 'nosuch'; sets are all, chat");
    expect(&t, "/set panels experts,tokens", "panels is experts,tokens now");
    talk_close(&t);
}
END_TEST

/* The rows of /profile fit the chat's pane on 80 columns, and /experts counts what the map counts.
 */
START_TEST(tables_fit_and_agree)
{
    struct talk t;
    char *line, *rest;
    int rows = 0, n, tokens, chosen, choices;

    talk_open(&t, NULL);
    type(&t, "Tell me a story.");
    expect(&t, "/profile", "layer  of max");
    ck_assert_ptr_null(strstr(t.said.data, "--suggest"));
    for (line = strtok_r(t.said.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strncmp(line, "    ", 4) == 0 || strncmp(line, "layer ", 6) == 0) {
            ck_assert_msg(utf8_width(line, strlen(line)) <= 46, "%s", line);
            rows++;
        }
    ck_assert_int_eq(rows, 9); /* the heading and 8 layers */
    expect(&t, "/experts L0/E3", "(even 6.2)");
    ck_assert_int_eq(sscanf(t.said.data,
                            "layer 0, expert 3: chosen by %d of %d tokens in the cache: %d of the "
                            "layer's %d choices",
                            &n, &tokens, &chosen, &choices),
                     4);
    ck_assert(n == chosen && choices == 2 * tokens);
    talk_close(&t);
}
END_TEST

START_TEST(the_list_of_chats_is_short_and_numbered)
{
    struct talk t;

    talk_open(&t, NULL);
    expect(&t, "/load", "no saved chats yet");
    expect(&t, "/save", "nothing was said yet");
    type(&t, "first words that are so long that nobody wants to read all of them in a list");
    type(&t, "/save fox");
    type(&t, "/clear");
    type(&t, "second");
    type(&t, "/load");
    ck_assert_ptr_nonnull(strstr(t.said.data, "     used last messages  beginning\n  1  "));
    ck_assert_ptr_nonnull(strstr(t.said.data, "    2  fox: first"));
    ck_assert_ptr_nonnull(strstr(t.said.data, "fox: first words"));
    ck_assert_ptr_nonnull(strstr(t.said.data, "\u2026\n"));
    ck_assert_ptr_null(strstr(t.said.data, "second")); /* this chat is here already */
    expect(&t, "/load 2", "2 is loaded: 2 messages");
    ck_assert_ptr_nonnull(strstr(chat(&t)->entries[0].text, "first words"));
    /* the list that was shown still holds */
    expect(&t, "/load 1", "1 is loaded: 2 messages");
    expect(&t, "/load 9", "there is no chat number 9");
    expect(&t, "/save 3", "a number is a place in the list");
    talk_close(&t);
}
END_TEST

START_TEST(another_token_makes_a_branch)
{
    struct talk t;
    char first[512], piece[64];
    int id;
    size_t same;

    talk_open(&t, NULL);
    expect(&t, "/token 1", "the newest answer has 0 tokens");
    type(&t, "Tell me a story.");
    snprintf(first, sizeof first, "%s", chat(&t)->entries[1].text);
    ck_assert_uint_eq(conversation_tokens(t.c), 6);
    expect(&t, "/token 4", "token 4 of 6: ");
    ck_assert_ptr_nonnull(strstr(t.said.data, "\n 10  "));
    ck_assert_ptr_nonnull(strstr(t.said.data, "100.0 % after temperature and cuts"));
    expect_later(&t, "/token 6", "most weight first:\nL0 "); /* the last one waits uncomputed */
    /* greedy: the chosen one is the likeliest */
    id = conversation_token_alternative(t.c, 3, 1);
    conversation_token_text(t.c, id, piece, sizeof piece);
    expect(&t, "/token 4 11", "has no number 11");
    type(&t, "/token 4 2");
    ck_assert_uint_eq(chat(&t)->n, 2);
    ck_assert_uint_eq(transcript_siblings(chat(&t), 1), 2);
    ck_assert_str_eq(transcript_sibling(chat(&t), 1, 0)->text, first);
    for (same = 0; first[same] && first[same] == chat(&t)->entries[1].text[same]; same++)
        ;
    ck_assert_msg(strstr(chat(&t)->entries[1].text, piece) != NULL, "'%s' in '%s'", piece,
                  chat(&t)->entries[1].text);
    ck_assert_uint_gt(same, 3);
    ck_assert_int_ge(t.cached, t.prompt - 2); /* what was computed is not computed again */
    /* the answer before it is asked when it is shown again */
    type(&t, "/branches 1");
    ck_assert_str_eq(chat(&t)->entries[1].text, first);
    ck_assert_int_eq(conversation_token_alternative(t.c, 3, 1), id);
    expect(&t, "/token 4", "token 4 of 6: ");
    type(&t, "/token 4 3");
    ck_assert_uint_eq(transcript_siblings(chat(&t), 1), 3);
    ck_assert_uint_gt(strlen(chat(&t)->entries[1].text), 3);
    ck_assert_int_eq(strncmp(chat(&t)->entries[1].text, first, 3), 0);
    type(&t, "/undo");
    expect(&t, "/token 1 2", "only a token of the newest answer");
    talk_close(&t);
}
END_TEST

START_TEST(one_message_is_copied)
{
    struct talk t;

    talk_open(&t, NULL);
    type(&t, "hello there");
    type(&t, "/copy 2");
    ck_assert_str_eq(t.copied.data, "hello there");
    type(&t, "/copy 1");
    ck_assert_str_eq(t.copied.data, chat(&t)->entries[1].text);
    expect(&t, "/copy 3", "the chat has 2 messages");
    talk_close(&t);
}
END_TEST

START_TEST(a_file_goes_along)
{
    struct talk t;

    talk_open(&t, NULL);
    put_file("fox.txt", "The fox\nis red.\n");
    put_file("bytes.bin", "\xff\xfe");
    type(&t, "Read @fox.txt, please; not @nobody");
    ck_assert_str_eq(chat(&t)->entries[0].text,
                     "Read @fox.txt, please; not @nobody\n\nfox.txt:\n```\nThe fox\nis red.\n```");
    expect(&t, "what of @bytes.bin", "is no text in UTF-8");
    ck_assert_uint_eq(chat(&t)->n, 2);
    expect(&t, "/read fox.txt", "fox.txt: 2 lines, ");
    ck_assert_str_eq(t.edited.data, "The fox\nis red.\n");
    expect(&t, "/read nothing.txt", "nothing.txt");
    talk_close(&t);
}
END_TEST

START_TEST(nothing_said_is_lost)
{
    static const char *const named[] = {"--chat", "tree", NULL};
    struct talk t;
    char first[512];

    talk_open(&t, named);
    expect(&t, "/branches", "one way was gone so far");
    type(&t, "one");
    type(&t, "/set temp 1.5");
    snprintf(first, sizeof first, "%s", chat(&t)->entries[1].text);
    type(&t, "/regen");
    ck_assert_uint_eq(chat(&t)->n, 2);
    ck_assert_uint_eq(transcript_siblings(chat(&t), 1), 2);
    ck_assert_str_eq(transcript_sibling(chat(&t), 1, 0)->text, first);
    type(&t, "two");
    /* where nobody sees it, words say where the chat ends */
    expect(&t, "/undo", "the chat ends with your message \"one\" and the answer \"");
    expect(&t, "/redo", "the chat ends with your message \"two\" and the answer \"");
    ck_assert_uint_eq(chat(&t)->n, 4);
    type(&t, "/undo");
    expect(&t, "/undo", "nothing is said in the chat now");
    ck_assert_uint_eq(chat(&t)->n, 0);
    type(&t, "/redo");
    ck_assert_uint_eq(chat(&t)->n, 2);
    type(&t, "/redo");
    ck_assert_uint_eq(chat(&t)->n, 4);
    expect(&t, "/redo", "nothing was taken back");
    type(&t, "/edit");
    type(&t, "zwei");
    ck_assert_uint_eq(transcript_siblings(chat(&t), 2), 2);
    expect(&t, "/branches", "  3   1 of 2  you: two\n  3 > 2 of 2  you: zwei\n");
    expect(&t, "/branches 1 2", "alike: 0 of 3 and 4 bytes\n1: two\n2: zwei");
    expect(&t, "/branches 3", "there are 2 there");
    type(&t, "/undo"); /* what stands aside at the end is kept too */
    talk_close(&t);

    talk_open(&t, named);
    ck_assert_uint_eq(chat(&t)->n, 2);
    type(&t, "/redo");
    ck_assert_str_eq(chat(&t)->entries[2].text, "zwei");
    expect(&t, "/branches 1", "your message \"two\"");
    ck_assert_str_eq(chat(&t)->entries[2].text, "two");
    type(&t, "/undo");
    type(&t, "/branches 1");
    ck_assert_str_eq(chat(&t)->entries[1].text, first);
    ck_assert_uint_eq(chat(&t)->n, 2);
    type(&t, "/branches 2"); /* and what followed the other answer followed it along */
    ck_assert_uint_eq(chat(&t)->n, 4);
    talk_close(&t);
}
END_TEST

START_TEST(a_chat_goes_on_in_its_own_file)
{
    static const char *const again[] = {"--continue", NULL}, *const named[] = {"--chat", "fox",
                                                                               NULL};
    struct talk t, other;
    char path[4096], part[4200];

    talk_open(&t, again);
    ck_assert_ptr_nonnull(strstr(conversation_greeting(t.c), "no saved chats yet"));
    type(&t, "first words");
    snprintf(path, sizeof path, "%s", conversation_path(t.c));
    talk_close(&t);

    talk_open(&t, NULL); /* a fresh one is told of it */
    ck_assert_str_eq(conversation_greeting(t.c), "last chat: first words, just now \u00b7 /load 1");
    ck_assert_uint_eq(chat(&t)->n, 0);
    talk_close(&t);

    talk_open(&t, again);
    ck_assert_str_eq(conversation_path(t.c), path);
    ck_assert_uint_eq(chat(&t)->n, 2);
    ck_assert_ptr_nonnull(strstr(conversation_greeting(t.c), "goes on: 2 messages"));
    talk_open(&other, again); /* nobody writes into a file that another one writes */
    ck_assert_uint_eq(chat(&other)->n, 2);
    ck_assert_str_ne(conversation_path(other.c), path);
    hear_out(&other, "goes into a copy");
    talk_close(&other);
    type(&t, "second words");
    expect(&t, "/rename fox", "called fox now");
    expect(&t, "/rename fox", "a chat of that name already");
    expect(&t, "/rename ../fox", "is no name for a chat");
    talk_close(&t);

    /* killed while it answered: what was shown is there */
    ck_assert_ptr_nonnull(strrchr(path, '/'));
    snprintf(part, sizeof part, "%.*s/fox.json.part", (int)(strrchr(path, '/') - path), path);
    ck_assert_int_lt(access(path, F_OK), 0);
    put_file(part, "and the fox");
    talk_open(&t, named);
    ck_assert_uint_eq(chat(&t)->n, 4);
    ck_assert_str_eq(chat(&t)->entries[3].text, "and the fox");
    ck_assert_str_eq(chat(&t)->entries[3].stop, "cancelled");
    talk_close(&t);
}
END_TEST

START_TEST(chats_are_searched_named_and_deleted)
{
    struct talk t;

    talk_open(&t, NULL);
    type(&t, "a badger in the Wood");
    type(&t, "/clear");
    type(&t, "an otter in the river");
    type(&t, "/clear");
    expect(&t, "/chats wood", "  a badger in the Wood");
    ck_assert_ptr_null(strstr(t.said.data, "otter"));
    expect(&t, "/rename 1 badger", "that chat is called badger now");
    expect(&t, "/chats aardvark", "said in no saved chat");
    expect(&t, "/chats", "badger: a badger");
    expect(&t, "/delete badger", "a number of the list");
    expect(&t, "/chats badger", "  1  ");
    expect(&t, "/delete 1", "is deleted");
    expect(&t, "/chats badger", "said in no saved chat");
    talk_close(&t);
}
END_TEST

START_TEST(the_log_is_told)
{
    struct talk t;
    const char *said;

    talk_open(&t, NULL);
    type(&t, "hi");
    conversation_say(t.c, SAY_NOTICE, "a badger \033[31m");
    said = type(&t, "/log 1");
    ck_assert_msg(strstr(said, " s ago  a badger \\x1b[31m") != NULL, "%s", said);
    ck_assert_ptr_null(strstr(said, "answer: "));
    expect(&t, "/log", "answer: 6 tokens in ");
    expect(&t, "/log badger", "how many of the newest notes?");
    talk_close(&t);
}
END_TEST

/* Markup in what was said is text in the page. */
START_TEST(a_report_is_written_at_the_end)
{
    const char *more[] = {"--report", "end.html", NULL}, *marked[] = {"--report", "end.md", NULL};
    char *argv[] = {"moetop", "--report", "end.pdf"};
    struct conversation_hooks none = {0};
    struct conversation *c;
    struct options o;
    struct error e = {0};
    struct talk t;

    talk_open(&t, more);
    type(&t, "a <b>badger</b> & an otter \033[31m");
    talk_close(&t);
    ck_assert_ptr_nonnull(strstr(file_text("end.html"), "a &lt;b&gt;badger&lt;/b&gt; &amp; an"));
    ck_assert_ptr_null(strchr(file_text("end.html"), '\033'));
    ck_assert_ptr_nonnull(strstr(file_text("end.html"), "<p class=facts>cpu · "));
    ck_assert_ptr_nonnull(strstr(file_text("end.html"), "<h1>Figures</h1>"));
    ck_assert_ptr_nonnull(strstr(file_text("end.html"), "layer 0 expert 0: "));
    talk_open(&t, marked);
    type(&t, "hi");
    talk_close(&t);
    ck_assert_ptr_nonnull(strstr(file_text("end.md"), "![experts by layer](<end.svg>)"));
    file_begins("end.svg", "<svg ");
    ck_assert_int_eq(options_init(&o, &e), 0);
    ck_assert_int_eq(options_parse(&o, 3, argv, &e), 0);
    ck_assert_int_eq(conversation_open(&c, &o, &none, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, "ends in .html or .md") != NULL, "%s", e.text);
    options_release(&o);
}
END_TEST

static void note_summary(const struct talk *t, size_t at, const char *wanted)
{
    const char *got = chat(t)->entries[at].summary;

    ck_assert_msg(!wanted == !got && (!got || strcmp(got, wanted) == 0), "summary %s instead of %s",
                  got ? got : "none", wanted ? wanted : "none");
}

/* The model is given it in place of what was said before, which stays in the chat and its file. */
START_TEST(a_summary_stands_for_what_was_before)
{
    struct talk t;
    int said;
    int whole;

    talk_open(&t, NULL);
    expect(&t, "/compact", "nothing before your last message");
    type(&t, "a badger in the wood, whom everybody knows and likes, and who likes nobody");
    expect(&t, "/compact none", "there is no summary");
    type(&t, "an otter");
    whole = t.prompt;
    expect(&t, "/compact They spoke of a badger.", "a summary stands for 2 messages now");
    note_summary(&t, 2, "They spoke of a badger.");
    ck_assert_uint_eq(conversation_view(t.c), 2);
    type(&t, "/regen");
    ck_assert_int_lt(t.prompt, whole);
    ck_assert_uint_eq(chat(&t)->n, 4);
    /* what takes the message's place keeps it, and so does the file */
    type(&t, "/edit");
    type(&t, "a heron");
    note_summary(&t, 2, "They spoke of a badger.");
    expect(&t, "/save a.json", "saved");
    expect(&t, "/save a.md", "saved");
    ck_assert_ptr_nonnull(strstr(file_text("a.md"), "stands for all above:* They spoke of"));
    /* again: it is edited */
    type(&t, "/compact");
    ck_assert_str_eq(t.edited.data, "/compact They spoke of a badger.");
    type(&t, "/compact none");
    note_summary(&t, 2, NULL);
    ck_assert_uint_eq(conversation_view(t.c), 0);
    type(&t, "/load a.json");
    note_summary(&t, 2, "They spoke of a badger.");
    /* without one the model writes it, and its tokens are no answer */
    type(&t, "a crane");
    said = conversation_token_alternative(t.c, 0, 0);
    type(&t, "/compact");
    hear_out(&t, "a summary stands for 4 messages now");
    ck_assert_ptr_nonnull(chat(&t)->entries[4].summary);
    ck_assert_uint_eq(chat(&t)->n, 6);
    ck_assert_uint_eq(conversation_tokens(t.c), 6);
    ck_assert_int_eq(conversation_token_alternative(t.c, 0, 0), said);
    talk_close(&t);
}
END_TEST

/* A chat that has outgrown the context. */
START_TEST(the_view_of_a_long_chat_moves)
{
    const char *more[] = {"-c", "128", "-n", "40", NULL};
    struct talk t;

    talk_open(&t, more);
    type(&t, "a badger in the wood, whom everybody knows and likes, and who likes nobody at all");
    ck_assert_uint_eq(conversation_view(t.c), 0);
    for (int i = 0; i < 4 && !conversation_view(t.c); i++)
        type(&t, "an otter, a heron and a crane in the river, whom nobody knows but the badger");
    ck_assert_uint_gt(conversation_view(t.c), 0);
    ck_assert_ptr_nonnull(strstr(t.said.data, "oldest messages; /compact puts a summary"));
    type(&t, "/compact The badger likes nobody.");
    ck_assert_ptr_nonnull(chat(&t)->entries[conversation_view(t.c)].summary);
    talk_close(&t);
}
END_TEST

/* Copies the bundled model to a name below the folder of tests. */
static void put_model(const char *to)
{
    char line[8192];

    snprintf(line, sizeof line,
             "mkdir -p \"$(dirname '%s')\" && cp %s/configs/models/tiny-storyteller-Q8_0.gguf '%s'",
             to, support_root(), to);
    ck_assert_int_eq(system(line), 0);
}

/* The list is told when the engine's thread has looked at the files. */
static const char *models(struct talk *t)
{
    type(t, "/model");
    hear_out(t, "/model N goes on");
    return t->said.data;
}

START_TEST(another_model_goes_on_with_the_chat)
{
    const char *more[] = {"--models-dir", "shelf", NULL}, *listed;
    char model[4096], hub[4096];
    struct talk t;
    size_t before;

    snprintf(model, sizeof model, "%s/configs/models/tiny-storyteller-Q8_0.gguf", support_root());
    ck_assert_int_eq(chdir(support_tmpdir()), 0);
    snprintf(hub, sizeof hub, "%s/hub", support_tmpdir());
    setenv("HF_HUB_CACHE", hub, 1);
    put_model("hub/models--acme--fox-stories/snapshots/0123abc/fox.gguf");
    put_model("shelf/other.gguf");
    support_poison(model, "blk.0.attn_q.weight", 0x7e00, "shelf/poisoned.gguf");
    put_file("shelf/broken.gguf", "GGUF");
    talk_open(&t, more);
    type(&t, "hi");
    before = chat(&t)->n;
    listed = models(&t);
    ck_assert_ptr_nonnull(strstr(listed, "acme/fox-stories/fox.gguf\n"));
    ck_assert_ptr_nonnull(strstr(listed, " fits   phimoe q8_0     shelf/other.gguf\n"));
    ck_assert_ptr_nonnull(strstr(listed, " -  no     shelf/broken.gguf: "));
    /* it cannot be opened: nothing happens */
    expect(&t, "/model broken", "broken.gguf: ");
    ck_assert(conversation_ready(t.c));
    expect(&t, "/model o", "models have o in their names");
    expect(&t, "/model 99", "there is no model 99");
    expect(&t, "/model badger", "there is no model badger");
    /* the weights show it when the old one has gone: it comes back */
    type(&t, "/model poisoned");
    hear_out(&t, "going on with the model before");
    while (!conversation_ready(t.c))
        pump(&t);
    ck_assert_ptr_null(strstr(t.said.data, "answers from now on"));
    expect(&t, "/model tiny", "that is the model in use");
    type(&t, "hi");
    ck_assert_uint_eq(chat(&t)->n, before + 2);
    /* one that opens */
    type(&t, "/model fox");
    hear_out(&t, "acme/fox-stories/fox.gguf answers from now on");
    type(&t, "hi");
    ck_assert_uint_eq(chat(&t)->n, before + 4);
    ck_assert_int_eq(t.cached, 0); /* nothing is left of the one before */
    ck_assert_ptr_nonnull(strstr(chat(&t)->model, "fox.gguf"));
    ck_assert_ptr_nonnull(strstr(models(&t), " > "));
    talk_close(&t);
    unsetenv("HF_HUB_CACHE");
}
END_TEST

/* A model's own settings come and go with it; what the user set stays. */
START_TEST(a_model_brings_its_settings)
{
    const char *more[] = {"--models-dir", "shelf", "--top-k", "7", NULL};
    struct talk t;

    support_root(); /* found from where the suite began */
    ck_assert_int_eq(chdir(support_tmpdir()), 0);
    put_model("shelf/other.gguf");
    put_file("shelf/other.yaml", "top-p: 0.5\ntop-k: 3\n");
    talk_open(&t, more);
    type(&t, "/model other");
    hear_out(&t, "answers from now on");
    ck_assert_double_eq_tol(t.o.top_p, 0.5, 1e-9);
    ck_assert_int_eq(t.o.top_k, 7);
    type(&t, "/model tiny");
    hear_out(&t, "storyteller-Q8_0.gguf answers from now on");
    ck_assert_double_ne(t.o.top_p, 0.5);
    ck_assert_int_eq(t.o.top_k, 7);
    talk_close(&t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("commands");
    TCase *c = tcase_create("commands");

    tcase_set_timeout(c, 240);
    tcase_add_test(c, a_kept_setting_is_there_next_time);
    tcase_add_test(c, save_replaces_no_file_of_others);
    tcase_add_test(c, save_goes_on_with_its_own_copies);
    tcase_add_test(c, a_name_with_an_ending_is_a_file_here);
    tcase_add_test(c, a_folder_that_is_missing_is_refused);
    tcase_add_test(c, copies_carry_nothing_that_acts);
    tcase_add_test(c, an_edit_cuts_when_it_is_sent);
    tcase_add_test(c, a_finished_answer_has_nothing_to_continue);
    tcase_add_test(c, a_continued_answer_is_measured_whole);
    tcase_add_test(c, an_answer_names_every_plan_it_ran_under);
    tcase_add_test(c, a_long_message_holds_up_nobody);
    tcase_add_test(c, a_paced_answer_says_so);
    tcase_add_test(c, regen_tells_why_nothing_changes);
    tcase_add_test(c, commands_say_what_they_did);
    tcase_add_test(c, auto_is_measured_after_an_answer);
    tcase_add_test(c, adapters_have_strengths);
    tcase_add_test(c, fewer_experts_and_back);
    tcase_add_test(c, other_types_of_keys_and_back);
    tcase_add_test(c, each_placement_asked_for_is_told);
    tcase_add_test(c, help_is_aligned);
    tcase_add_test(c, settings_are_looked_at_before_they_are_kept);
    tcase_add_test(c, tables_fit_and_agree);
    tcase_add_test(c, the_list_of_chats_is_short_and_numbered);
    tcase_add_test(c, another_token_makes_a_branch);
    tcase_add_test(c, one_message_is_copied);
    tcase_add_test(c, a_file_goes_along);
    tcase_add_test(c, nothing_said_is_lost);
    tcase_add_test(c, a_chat_goes_on_in_its_own_file);
    tcase_add_test(c, chats_are_searched_named_and_deleted);
    tcase_add_test(c, a_summary_stands_for_what_was_before);
    tcase_add_test(c, the_view_of_a_long_chat_moves);
    tcase_add_test(c, the_log_is_told);
    tcase_add_test(c, a_report_is_written_at_the_end);
    tcase_add_test(c, another_model_goes_on_with_the_chat);
    tcase_add_test(c, a_model_brings_its_settings);
    tcase_add_test(c, a_role_is_a_system_message_with_settings);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
