/* The cache doctor: what a turn computed again, where the prompts part, and why, on the real
 * program line by line. */
#include "app/chat/cache_doctor.h"
#include "tests/support.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char answer[1 << 16];

/* What a chat by lines says, both streams. */
static void chat(const char *lines, const char *more)
{
    static char command[6 * PATH_MAX], exe[PATH_MAX], path[PATH_MAX];
    const char *tmp = support_tmpdir();
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    size_t n;
    FILE *f;
    int status;

    ck_assert_int_gt(len, 0);
    exe[len] = 0;
    *strrchr(exe, '/') = 0;
    *strrchr(exe, '/') = 0;
    snprintf(path, sizeof path, "%s/out", tmp);
    snprintf(command, sizeof command,
             "export XDG_CACHE_HOME=%s XDG_CONFIG_HOME=%s XDG_STATE_HOME=%s; printf '%s' | "
             "%s/moetop --plain -t 2 --temp 0 -n 20 --pace off --tune off %s >%s 2>&1",
             tmp, tmp, tmp, lines, exe, more, path);
    status = system(command);
    f = fopen(path, "r");
    n = f ? fread(answer, 1, sizeof answer - 1, f) : 0;
    answer[n] = 0;
    if (f)
        fclose(f);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", answer);
}

#define SAYS(text) ck_assert_msg(strstr(answer, text) != NULL, "it says: %s", answer)
#define IS_SILENT(text) ck_assert_msg(strstr(answer, text) == NULL, "it says: %s", answer)

START_TEST(a_chat_that_goes_on_loses_nothing)
{
    chat("/cache\\nTell me a story.\\n/cache\\nAnd then?\\n/cache\\n", "");
    SAYS("nothing was answered yet");
    SAYS("it was the first one");
    SAYS("nothing was computed twice");
    IS_SILENT("computed again");
}
END_TEST

START_TEST(another_system_message_costs_all)
{
    char more[PATH_MAX + 40];
    json_t *root, *cache;

    snprintf(more, sizeof more, "-sys 'It is Monday.' --stats-json %s/run.json", support_tmpdir());
    chat("Tell me a story.\\n/system It is Tuesday.\\nAnd then?\\n/cache\\n", more);
    SAYS("computed again: ");
    SAYS("in message 1 (the system message), in its text");
    SAYS("why: the system message is another one");
    SAYS("was \" Mon");
    SAYS("is  \" Tue");
    snprintf(more, sizeof more, "%s/run.json", support_tmpdir());
    root = json_load_file(more, 0, NULL);
    cache = json_object_get(root, "cache");
    ck_assert_int_gt(json_integer_value(json_object_get(cache, "lost_tokens")), 20);
    ck_assert_int_eq(json_integer_value(json_object_get(cache, "turns_with_losses")), 1);
    ck_assert_int_gt(json_integer_value(json_object_get(cache, "first_difference")), 2);
    ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(cache, "why")), "system"));
    json_decref(root);
}
END_TEST

START_TEST(another_message_in_its_place_is_named)
{
    chat("Tell me a story.\\nDo you like the sea and the wind?\\n/undo\\n"
         "Do you like the hills and all the birds that live there?\\n/cache\\n",
         "");
    SAYS("in message 3 (the user's), in its text");
    SAYS("why: this message was edited, or another branch goes on here");
}
END_TEST

/* The frame changes in a line of its own: that one is shown, and one that writes a text where the
 * text changed. */
START_TEST(the_templates_line_is_named)
{
    static const char source[] = "{# counts #}\n"
                                 "Said so far.\n"
                                 "{{ messages | length }} messages.\n"
                                 "{% for m in messages %}\n"
                                 "{{ m.role }}: {{ m.content }}\n"
                                 "{% endfor %}\n"
                                 "assistant:\n";
    char path[PATH_MAX], more[PATH_MAX + 60];
    FILE *f;

    snprintf(path, sizeof path, "%s/counts.jinja", support_tmpdir());
    f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(source, f);
    fclose(f);
    snprintf(more, sizeof more, "--chat-template-file %s", path);
    chat("Tell me a story.\\nAnd then?\\n/cache\\n", more);
    SAYS("line 3 of the template: {{ messages | length }} messages.");
    chat("Tell me a story.\\nDo you like the sea?\\n/undo\\nDo you like the hills?\\n/cache\\n",
         more);
    SAYS("line 5 of the template: {{ m.role }}: {{ m.content }}");
}
END_TEST

START_TEST(a_full_context_is_named)
{
    chat("Tell me a long story about a fox.\\nAnd then?\\nWhat did the fox say after that?\\n"
         "And the bear, what did it say?\\nWhere did they go on the next day?\\n/cache\\n"
         "Who was there?\\n/cache\\nAnd who else?\\n/cache\\n",
         "-c 160");
    SAYS("why: the context is full: the oldest messages were left out");
    SAYS("/compact");
}
END_TEST

START_TEST(sums_are_right)
{
    struct cache_story s = {.held = 100, .alike = 40, .prompt = 80, .why = "x", .advice = "y"};
    struct turn_done_event d = {
        .prompt_tokens = 80, .cached_tokens = 40, .prefill_ns = 2000000000ull};

    cache_story_end(&s, &d);
    ck_assert_int_eq(s.reused, 40);
    ck_assert_int_eq(s.lost, 39); /* of 80 the last must be computed anyway */
    ck_assert(s.seconds > 1.94 && s.seconds < 1.96);

    /* all alike, but the state went back to a copy */
    s = (struct cache_story){.held = 100, .alike = 100, .prompt = 150};
    d.prompt_tokens = 150;
    d.cached_tokens = 64;
    cache_story_end(&s, &d);
    ck_assert_int_eq(s.lost, 36);
    ck_assert_ptr_nonnull(strstr(s.why, "could not go back"));

    /* the newest token held was never read: that is no loss */
    s = (struct cache_story){.held = 100, .alike = 100, .prompt = 150};
    d.cached_tokens = 99;
    cache_story_end(&s, &d);
    ck_assert_int_eq(s.lost, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cache_doctor");
    TCase *t = tcase_create("cache_doctor");

    tcase_add_test(t, a_chat_that_goes_on_loses_nothing);
    tcase_add_test(t, another_system_message_costs_all);
    tcase_add_test(t, another_message_in_its_place_is_named);
    tcase_add_test(t, the_templates_line_is_named);
    tcase_add_test(t, a_full_context_is_named);
    tcase_add_test(t, sums_are_right);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
