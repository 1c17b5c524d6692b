/* engine/text/tool_calls: what models say of calls, found where it stands. */
#include "engine/text/tool_calls.h"
#include "tests/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char found[1024];

static void put(const char *text, struct json_slice s, const char *after)
{
    size_t n = strlen(found);

    snprintf(found + n, sizeof found - n, "%.*s%s", (int)s.len, text + s.at, after);
}

/* name key=value key=value; or name whole; */
static int take(void *ctx, const char *text, const struct tool_call *call)
{
    struct json_slice key, value;
    size_t at = 0;
    bool any = text[call->arguments.at] == '{';

    ck_assert(ctx == NULL);
    put(text, call->name, "");
    while (tool_call_member(text, call->arguments, &at, &key, &value)) {
        strcat(found, " ");
        put(text, key, "=");
        put(text, value, "");
    }
    if (!any) {
        strcat(found, " ");
        put(text, call->arguments, "");
    }
    strcat(found, ";");
    return 0;
}

static const struct {
    const char *text, *found;
    int calls;
} cases[] = {
    {"{\"name\": \"f\", \"arguments\": {}}", "\"f\";", 1},
    {" {\"name\":\"f\",\"arguments\":{\"a\":\"x\\\"},{\",\"b\" : [1, {\"c\": \"]\"}] "
     ",\"d\":-1.5e3}}\n",
     "\"f\" \"a\"=\"x\\\"},{\" \"b\"=[1, {\"c\": \"]\"}] \"d\"=-1.5e3;", 1},
    {"{\"parameters\": {\"a\": null}, \"name\": \"g\"}", "\"g\" \"a\"=null;", 1},
    {"{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}", "\"f\" \"{\\\"a\\\": 1}\";", 1},
    {"[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": [2]}]",
     "\"f\";\"g\" [2];", 2},
    {"{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": {}}", "\"f\";\"g\";",
     2},
    {"{\"name\": \"f\", \"name\": \"g\", \"arguments\": {}}", "\"g\";",
     1}, /* the last one counts */
    {"", "", 0},
    {" \n", "", 0},
    {"[]", "", 0},
    {"[[{\"name\": \"f\", \"arguments\": {}}]]", "", 0},
    {"{\"name\": 5, \"arguments\": {}}", "", 0},
    {"{\"name\": \"f\"}", "", 0},
    {"{\"name\": \"f\", \"arguments\": {}} and so on", "", 0},
    {"{\"name\": \"f\", \"arguments\": {}}{\"name\": \"g\", \"arg", "", 0},
    {"[find(city=\"Paris\")]", "", 0},
    {"{\"name\": \"f\", \"arguments\": {\"a\": \"", "", 0},
};

START_TEST(calls_are_found)
{
    const char *text = cases[_i].text;
    size_t n = strlen(text);
    char *copy = malloc(n ? n : 1); /* a sanitizer sees what is read behind its end */

    found[0] = 0;
    memcpy(copy, text, n);
    ck_assert_int_eq(tool_calls_each(copy, 0, n, take, NULL), cases[_i].calls);
    ck_assert_str_eq(found, cases[_i].found);
    for (size_t cut = 0; cut < n; cut++) { /* as it is while it streams */
        char *half = malloc(cut ? cut : 1);

        memcpy(half, text, cut);
        ck_assert_int_ge(tool_calls_each(half, 0, cut, NULL, NULL), 0);
        free(half);
    }
    free(copy);
}
END_TEST

static int refuse(void *ctx, const char *text, const struct tool_call *call)
{
    ++*(int *)ctx;
    ck_assert(text && call->name.len);
    return -7;
}

START_TEST(the_taker_may_stop)
{
    static const char two[] = "[{\"name\": \"f\", \"arguments\": {}}, "
                              "{\"name\": \"g\", \"arguments\": {}}]";
    int asked = 0;

    ck_assert_int_eq(tool_calls_each(two, 0, strlen(two), refuse, &asked), -7);
    ck_assert_int_eq(asked, 1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tool_calls");
    TCase *c = tcase_create("tool_calls");

    tcase_add_loop_test(c, calls_are_found, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(c, the_taker_may_stop);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
