/* Saved conversations: round trips, exports, the folder of chats, damaged files, and saves that
 * fail half-way. */
#include "app/common/transcript.h"
#include "engine/base/mem.h"
#include "engine/run/report/messages.h"
#include "tests/support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const texts[] = {"Be kind.", "Größe? 你好 🙂\n\t<|end|> \"quoted\" \\", "",
                                    "answer\x1b[31m red\x1b]0;t\a \xe2\x80\xae"};

static void fill(struct transcript *t)
{
    struct error e;

    transcript_init(t);
    ck_assert_int_eq(transcript_model(t, "/models/tiny.gguf", &e), 0);
    ck_assert_int_eq(transcript_set(t, "temp", "0.5", &e), 0);
    ck_assert_int_eq(transcript_set(t, "place", "hot:600M", &e), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(transcript_append(t,
                                           i == 0   ? ROLE_SYSTEM
                                           : i == 3 ? ROLE_ASSISTANT
                                                    : ROLE_USER,
                                           texts[i], &e),
                         0);
    strcpy(t->entries[3].plan, "hot");
    strcpy(t->entries[3].adapters, "stories 0.5, tone 1");
    strcpy(t->entries[3].stop, "length");
    t->entries[3].tokens = 42;
    t->entries[3].seconds = 1.25;
    t->entries[3].tok_s = 33.5;
    ck_assert_int_eq(transcript_reasoning(t, 3, "Well,\n<b>", &e), 0);
}

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 65536);

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_lt(fread(text, 1, 65535, f), 65535);
    fclose(f);
    return text;
}

START_TEST(a_saved_conversation_comes_back)
{
    struct transcript t, u;
    struct error e = {0};
    struct stat st;
    char path[512];

    fill(&t);
    snprintf(path, sizeof path, "%s/a/b/chat.json", support_tmpdir());
    ck_assert_msg(transcript_save(&t, path, &e) == 0, "%s", e.text);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 077, 0);
    transcript_init(&u);
    ck_assert_int_eq(transcript_append(&u, ROLE_USER, "old", &e), 0);
    ck_assert_msg(transcript_load(&u, path, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(u.n, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(u.entries[i].text, texts[i]);
        ck_assert_int_eq(u.entries[i].role, t.entries[i].role);
    }
    ck_assert_str_eq(u.entries[3].reasoning, "Well,\n<b>");
    ck_assert_ptr_null(u.entries[2].reasoning);
    ck_assert_str_eq(u.model, "/models/tiny.gguf");
    ck_assert_str_eq(transcript_get(&u, "temp"), "0.5");
    ck_assert_str_eq(transcript_get(&u, "place"), "hot:600M");
    ck_assert_ptr_null(transcript_get(&u, "nothing"));
    ck_assert(u.created == t.created && u.entries[3].tokens == 42 && u.entries[3].seconds == 1.25 &&
              u.entries[3].tok_s == 33.5);
    ck_assert_str_eq(u.entries[3].plan, "hot");
    ck_assert_str_eq(u.entries[3].adapters, "stories 0.5, tone 1");
    ck_assert_str_eq(u.entries[3].stop, "length");
    transcript_release(&t);
    transcript_release(&u);
}
END_TEST

START_TEST(entries_and_settings_change)
{
    struct transcript t;
    struct error e;
    struct message *m;
    size_t n;

    fill(&t);
    ck_assert_int_eq(transcript_text(&t, 1, "edited", &e), 0);
    transcript_truncate(&t, 2);
    ck_assert_int_eq(transcript_append(&t, ROLE_ASSISTANT, "new", &e), 0);
    ck_assert_int_eq(t.entries[2].tokens, 0);
    ck_assert_int_eq(transcript_messages(&t, &m, &n, &e), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(m[1].text, "edited");
    ck_assert(m[2].role == ROLE_ASSISTANT && m[2].text != t.entries[2].text);
    for (size_t i = 0; i < n; i++)
        mem_free(m[i].text);
    mem_free(m);
    ck_assert_int_eq(transcript_set(&t, "temp", "1", &e), 0);
    ck_assert_str_eq(transcript_get(&t, "temp"), "1");
    ck_assert_int_eq(transcript_set(&t, "temp", NULL, &e), 0);
    ck_assert_ptr_null(transcript_get(&t, "temp"));
    ck_assert_str_eq(transcript_get(&t, "place"), "hot:600M");
    ck_assert_int_eq(transcript_set(&t, "temp", NULL, &e), 0);
    transcript_release(&t);
}
END_TEST

/* /system: one system message at the head, whatever the file held before; answers keep their
 * figures. */
START_TEST(the_system_message_is_replaced)
{
    struct transcript t;
    struct error e;
    size_t n;

    fill(&t);
    n = t.n;
    ck_assert_int_eq(transcript_append(&t, ROLE_SYSTEM, "a second one", &e), 0);
    ck_assert_int_eq(transcript_system(&t, "Be brief.", &e), 0);
    ck_assert_uint_eq(t.n, n);
    ck_assert(t.entries[0].role == ROLE_SYSTEM && t.entries[1].role == ROLE_USER);
    ck_assert_str_eq(t.entries[0].text, "Be brief.");
    ck_assert_uint_eq(transcript_last(&t, ROLE_SYSTEM), 0);
    ck_assert_int_eq(t.entries[transcript_last(&t, ROLE_ASSISTANT)].tokens, 42);
    ck_assert_int_eq(transcript_system(&t, "", &e), 0);
    ck_assert_uint_eq(t.n, n - 1);
    ck_assert_uint_eq(transcript_last(&t, ROLE_SYSTEM), t.n);
    ck_assert_int_eq(transcript_system(&t, "Be kind.", &e), 0);
    ck_assert_uint_eq(t.n, n);
    ck_assert_str_eq(t.entries[0].text, "Be kind.");
    transcript_release(&t);
}
END_TEST

static int read_text(struct transcript *t, const char *text, struct error *e)
{
    return transcript_read(t, text, strlen(text), "chat.json", e);
}

/* What stands beside the path survives a file, and a file that lies about it does no harm. */
START_TEST(branches_come_back_and_lies_do_not)
{
    static const char lies[] =
        "{\"moetop_chat\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"branch\":-7,"
        "\"branches\":[[{\"role\":\"user\",\"content\":\"b\",\"branch\":99,\"branches\":[[{"
        "\"role\":\"user\",\"content\":\"c\"}]]}]]}],\"undone\":[[{\"role\":\"user\","
        "\"content\":\"d\"}]],\"undone_branch\":44}";
    struct transcript t;
    struct error e;
    char *text = NULL, *deep, *at;
    size_t n;

    transcript_init(&t);
    for (const char *p = "abcd"; *p; p++)
        ck_assert_int_eq(
            transcript_append(&t, p[0] % 2 ? ROLE_USER : ROLE_ASSISTANT, (char[]){*p, 0}, &e), 0);
    ck_assert_int_eq(transcript_fork(&t, 2, &e), 0);
    ck_assert_int_eq(transcript_append(&t, ROLE_USER, "C", &e), 0);
    ck_assert_int_eq(transcript_fork(&t, 0, &e), 0);
    ck_assert_int_eq(transcript_append(&t, ROLE_USER, "A", &e), 0);
    ck_assert_int_eq(transcript_fork(&t, 0, &e), 0); /* put aside at the end, as by /undo */
    ck_assert_int_eq(transcript_as(&t, "x.json", &text, &n, &e), 0);
    transcript_release(&t);
    transcript_init(&t);
    ck_assert_msg(read_text(&t, text, &e) == 0, "%s", e.text);
    free(text);
    ck_assert_uint_eq(t.n, 0);
    ck_assert_int_eq(transcript_unfork(&t, &e), 0);
    ck_assert_str_eq(t.entries[0].text, "A");
    ck_assert_int_eq(transcript_switch(&t, 0, 0, &e), 0);
    ck_assert_uint_eq(t.n, 3);
    ck_assert_str_eq(t.entries[2].text, "C");
    ck_assert_int_eq(transcript_switch(&t, 2, 0, &e), 0);
    ck_assert_uint_eq(t.n, 4);
    ck_assert_str_eq(t.entries[3].text, "d");

    ck_assert_msg(read_text(&t, lies, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(transcript_siblings(&t, 0), 2);
    ck_assert_int_eq(transcript_unfork(&t, &e), 0);
    ck_assert_uint_eq(t.n, 2);
    ck_assert_int_eq(transcript_switch(&t, 0, 1, &e), 0);
    ck_assert_str_eq(t.entries[0].text, "b");
    ck_assert_int_lt(read_text(&t,
                               "{\"messages\":[{\"role\":\"user\",\"content\":\"a\","
                               "\"branches\":[[]]}]}",
                               &e),
                     0);
    ck_assert_ptr_nonnull(strstr(e.text, "a branch has no messages"));

    at = deep = malloc(400 * 64); /* branches inside branches without end */
    at += sprintf(at, "{\"messages\":[");
    for (int i = 0; i < 300; i++)
        at += sprintf(at, "{\"role\":\"user\",\"content\":\"a\",\"branches\":[[");
    at += sprintf(at, "{\"role\":\"user\",\"content\":\"a\"}");
    for (int i = 0; i < 300; i++)
        at += sprintf(at, "]]}");
    sprintf(at, "]}");
    ck_assert_int_lt(read_text(&t, deep, &e), 0);
    free(deep);
    ck_assert_str_eq(t.entries[0].text, "b"); /* as before */
    transcript_release(&t);
}
END_TEST

/* What a file says of calls is kept if it is complete, and otherwise only its text. */
START_TEST(calls_and_results_are_kept)
{
    static const char file[] =
        "{\"moetop_chat\":2,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"shown\",\"content_without_calls\":\"b\","
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"1\","
        "\"name\":\"f\",\"tool_run\":{\"seconds\":1.5}},{\"role\":\"tool\",\"content\":\"s\","
        "\"name\":7},{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":[7]}]}";
    struct message *m;
    struct transcript t;
    struct error e;
    char *text;
    size_t n;

    transcript_init(&t);
    ck_assert_msg(read_text(&t, file, &e) == 0, "%s", e.text);
    for (int again = 0; again < 2; again++) {
        ck_assert_uint_eq(t.n, 5);
        ck_assert(t.entries[1].tools && t.entries[2].tools);
        ck_assert(!t.entries[3].tools && !t.entries[4].tools);
        ck_assert_int_eq(transcript_messages(&t, &m, &n, &e), 0);
        ck_assert_str_eq(m[1].text, "b");
        ck_assert_uint_eq(json_array_size(json_object_get(m[1].members, "tool_calls")), 1);
        ck_assert_int_eq(m[2].role, ROLE_TOOL);
        ck_assert_str_eq(json_string_value(json_object_get(m[2].members, "tool_call_id")), "1");
        ck_assert_ptr_null(json_object_get(m[2].members, "tool_run"));
        dialogue_release(&(struct dialogue){.messages = m, .n_messages = n});
        ck_assert_int_eq(transcript_as(&t, "x.json", &text, &n, &e), 0);
        ck_assert(strstr(text, "\"moetop_chat\": 2") && strstr(text, "\"tool_run\""));
        ck_assert_msg(read_text(&t, text, &e) == 0, "%s", e.text);
        free(text);
    }
    transcript_truncate(&t, 1);
    ck_assert_int_eq(transcript_as(&t, "x.json", &text, &n, &e), 0);
    ck_assert(strstr(text, "\"moetop_chat\": 1"));
    free(text);
    transcript_release(&t);
}
END_TEST

/* A tool's result may be a whole file. */
START_TEST(a_long_result_is_printed_in_part)
{
    char result[2000], *text = NULL;
    struct transcript t;
    struct error e;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    memset(result, 'x', sizeof result - 1);
    result[sizeof result - 1] = 0;
    memcpy(result + 399, "\xc3\xa4", 2);
    transcript_init(&t);
    ck_assert_int_eq(transcript_append(&t, ROLE_TOOL, result, &e), 0);
    ck_assert_int_eq(transcript_print(&t, f, &e), 0);
    fclose(f);
    ck_assert(strncmp(text, "tool:\nxxx", 9) == 0 && strstr(text, "x\n[1600 bytes more]\n"));
    free(text);
    transcript_release(&t);
}
END_TEST

START_TEST(exports_are_safe_to_show)
{
    struct transcript t;
    struct error e;
    char *text = NULL;
    size_t n;
    FILE *f = open_memstream(&text, &n);

    fill(&t);
    ck_assert_int_eq(transcript_print(&t, f, &e), 0);
    fclose(f);
    ck_assert_str_eq(text, "system:\nBe kind.\n\nyou:\nGröße? 你好 🙂\n\t<|end|> \"quoted\" "
                           "\\\n\nyou:\n\n\nmoetop:\nanswer red \n");
    free(text);
    f = open_memstream(&text, &n);
    ck_assert_int_eq(transcript_markdown(&t, f, &e), 0);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "\nModel: tiny.gguf\n\n## System\n\nBe kind.\n\n## You\n"));
    ck_assert_ptr_nonnull(strstr(
        text,
        "## moetop\n\n<details><summary>Reasoning</summary>\n\nWell,\n<b>\n\n</details>\n\nanswer "
        "red \n\n*42 tokens, 33.5 tokens/s, "
        "placement hot, adapters stories 0.5, tone 1, ended by length*\n"));
    ck_assert(!strchr(text, 0x1b) && !strchr(text, '\a'));
    free(text);
    f = fopen("/dev/full", "w");
    ck_assert_int_eq(transcript_print(&t, f, &e), ERR_IO);
    fclose(f);
    transcript_release(&t);
}
END_TEST

static const struct {
    const char *text, *says;
} damaged[] = {
    {"", "chat.json"},
    {"{", "chat.json"},
    {"[]", "no \"messages\""},
    {"{\"messages\": {}}", "no \"messages\""},
    {"{\"messages\": [{\"role\": \"robot\", \"content\": \"x\"}]}", "message 1 has no role"},
    {"{\"messages\": [{\"role\": \"user\"}]}", "message 1 has no content"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, 7]}", "message 2 has no role"},
    {"{\"moetop_chat\": 99, \"messages\": []}", "newer moetop"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}]}", "chat.json"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "chat.json"},
};

START_TEST(damaged_files_leave_the_conversation_alone)
{
    struct transcript t;
    struct error e = {0};
    char path[512];
    FILE *f;

    fill(&t);
    snprintf(path, sizeof path, "%s/chat.json", support_tmpdir());
    f = fopen(path, "w");
    fputs(damaged[_i].text, f);
    fclose(f);
    ck_assert_int_eq(transcript_load(&t, path, &e), ERR_INPUT);
    ck_assert_msg(strstr(e.text, damaged[_i].says) && strstr(e.text, path), "%s", e.text);
    ck_assert(t.n == 4 && transcript_get(&t, "temp"));
    ck_assert_int_eq(transcript_load(&t, "/nowhere/at/all.json", &e), ERR_IO);
    ck_assert_int_eq(transcript_load(&t, support_tmpdir(), &e), ERR_INPUT);
    ck_assert_uint_eq(t.n, 4);
    transcript_release(&t);
}
END_TEST

/* A save that cannot be finished leaves the one before it. */
START_TEST(a_full_disk_keeps_the_old_file)
{
    struct transcript t;
    struct error e = {0};
    struct rlimit small = {600, 600};
    char path[512], *before, *after, big[4000];
    pid_t child;
    int status;

    fill(&t);
    snprintf(path, sizeof path, "%s/chat.json", support_tmpdir());
    transcript_truncate(&t, 1);
    ck_assert_int_eq(transcript_save(&t, path, &e), 0);
    before = slurp(path);
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    ck_assert_int_eq(transcript_append(&t, ROLE_USER, big, &e), 0);
    child = fork(); /* the limit would hit Check's own files too */
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        _exit(transcript_save(&t, path, &e) == ERR_IO && strstr(e.text, path) ? 7 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    after = slurp(path);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    transcript_release(&t);
}
END_TEST

/* Makes the file where there is none; its time is that of the call's seconds and nanoseconds. */
static void touch(const char *path, const char *ending, time_t seconds, long nanos)
{
    struct timespec at[2] = {{seconds, nanos}, {seconds, nanos}};
    char whole[600];
    int fd;

    snprintf(whole, sizeof whole, "%s%s", path, ending);
    fd = open(whole, O_WRONLY | O_CREAT, 0600);
    ck_assert(fd >= 0 && futimens(fd, at) == 0);
    close(fd);
}

START_TEST(chats_have_a_folder_and_a_list)
{
    struct transcript t;
    struct transcript_info *list;
    struct error e = {0};
    char path[512], other[512], unnamed[512];
    size_t n;
    FILE *f;

    setenv("XDG_STATE_HOME", support_tmpdir(), 1);
    ck_assert_int_eq(transcript_list(&list, &n, &e), 0);
    ck_assert_uint_eq(n, 0);
    fill(&t);
    ck_assert_int_eq(transcript_default_path(path, sizeof path, &e), 0);
    ck_assert_ptr_nonnull(strstr(path, "/moetop/chats/20"));
    ck_assert_int_eq(transcript_save(&t, path, &e), 0);
    ck_assert_int_eq(transcript_default_path(other, sizeof other, &e), 0);
    ck_assert_str_ne(path, other);
    strcpy(unnamed, path);
    ck_assert_int_eq(transcript_named_path("my chat", path, sizeof path, &e), 0);
    ck_assert_ptr_nonnull(strstr(path, "/moetop/chats/my chat.json"));
    ck_assert_int_eq(transcript_save(&t, path, &e), 0);
    f = fopen(strcat(strcpy(other, path), ".json"), "w"); /* no conversation: left out */
    fputs("{}", f);
    fclose(f);
    ck_assert_int_eq(transcript_list(&list, &n, &e), 0);
    ck_assert_uint_eq(n, 2);
    ck_assert(strcmp(list[0].name, "my chat") == 0 || strcmp(list[1].name, "my chat") == 0);
    ck_assert_str_eq(list[0].title, "Größe? 你好 🙂");
    ck_assert_uint_eq(list[0].n, 4);
    mem_free(list);
    /* both within a second; the answer that was cut short in one of them counts */
    touch(path, "", 1000, 1);
    touch(unnamed, "", 1000, 2);
    ck_assert_int_eq(transcript_list(&list, &n, &e), 0);
    ck_assert(!transcript_is_named(&list[0]) && transcript_is_named(&list[1]));
    mem_free(list);
    touch(path, ".part", 1000, 3);
    ck_assert_int_eq(transcript_list(&list, &n, &e), 0);
    ck_assert_str_eq(list[0].name, "my chat");
    mem_free(list);
    ck_assert_int_eq(transcript_named_path("./x.json", path, sizeof path, &e), 0);
    ck_assert_str_eq(path, "./x.json");
    ck_assert_int_eq(transcript_named_path("", path, sizeof path, &e), ERR_USAGE);
    ck_assert_int_eq(
        transcript_named_path("..", path, sizeof path, &e) == 0 && strstr(path, "chats"), 0);
    transcript_release(&t);
}
END_TEST

START_TEST(text_that_is_no_utf8_is_saved_readable)
{
    struct transcript t;
    struct error e = {0};
    char path[512];

    transcript_init(&t);
    ck_assert_int_eq(transcript_append(&t, ROLE_USER,
                                       "a\xff"
                                       "b\xe2\x82",
                                       &e),
                     0);
    snprintf(path, sizeof path, "%s/chat.json", support_tmpdir());
    ck_assert_int_eq(transcript_save(&t, path, &e), 0);
    ck_assert_int_eq(transcript_load(&t, path, &e), 0);
    ck_assert_str_eq(t.entries[0].text, "a\ufffd"
                                        "b\ufffd");
    transcript_release(&t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("transcript");
    TCase *c = tcase_create("transcript");

    tcase_add_test(c, a_saved_conversation_comes_back);
    tcase_add_test(c, entries_and_settings_change);
    tcase_add_test(c, the_system_message_is_replaced);
    tcase_add_test(c, branches_come_back_and_lies_do_not);
    tcase_add_test(c, calls_and_results_are_kept);
    tcase_add_test(c, a_long_result_is_printed_in_part);
    tcase_add_test(c, exports_are_safe_to_show);
    tcase_add_loop_test(c, damaged_files_leave_the_conversation_alone, 0,
                        sizeof damaged / sizeof *damaged);
    tcase_add_test(c, a_full_disk_keeps_the_old_file);
    tcase_add_test(c, chats_have_a_folder_and_a_list);
    tcase_add_test(c, text_that_is_no_utf8_is_saved_readable);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
