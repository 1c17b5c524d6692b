/* --tokenize, --detokenize and --print-prompt of the real program: pipes, bytes, exit codes. */
#include "tests/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Runs `moetop ARGS` with input on standard input; out gets standard output (and its length), the
 * result is the exit code. */
static int run(const char *args, const char *input, size_t n, char *out, size_t size, size_t *len)
{
    const char *build = getenv("CHECK_BUILD"), *dir = support_tmpdir();
    char command[2048], path[512];
    FILE *f;
    int status;

    snprintf(path, sizeof path, "%s/in", dir);
    f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(input, 1, n, f);
    fclose(f);
    snprintf(command, sizeof command, "'%s/%s/moetop' %s <'%s/in' >'%s/out' 2>'%s/err'",
             build && build[0] == '/' ? "" : support_root(), build ? build : "build/release", args,
             dir, dir, dir);
    status = system(command);
    snprintf(path, sizeof path, "%s/%s", dir, WEXITSTATUS(status) ? "err" : "out");
    f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    *len = fread(out, 1, size - 1, f);
    out[*len] = 0;
    fclose(f);
    return WEXITSTATUS(status);
}

START_TEST(golden_cases_through_the_program)
{
    json_error_t where;
    json_t *root = json_load_file(support_path("golden/demo/tokenizer-cases.json"), JSON_ALLOW_NUL,
                                  &where),
           *c;
    char out[16384];
    size_t i, len;

    ck_assert_ptr_nonnull(root);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const json_t *text = json_object_get(c, "text");
        char *ids;
        json_t *got;

        if (i % 6)
            continue;
        ck_assert_int_eq(run("--tokenize --parse-special", json_string_value(text),
                             json_string_length(text), out, sizeof out, &len),
                         0);
        got = json_loads(out, 0, &where);
        ck_assert_msg(json_equal(got, json_object_get(c, "ids")), "'%s': %s",
                      json_string_value(text), out);
        ids = json_dumps(got, 0);
        ck_assert_int_eq(run("--detokenize", ids, strlen(ids), out, sizeof out, &len), 0);
        ck_assert_uint_eq(len, json_string_length(json_object_get(c, "decoded")));
        ck_assert_mem_eq(out, json_string_value(json_object_get(c, "decoded")), len);
        free(ids);
        json_decref(got);
    }
    json_decref(root);
}
END_TEST

START_TEST(every_byte_counts)
{
    char all[256], ids[8192], back[1024];
    size_t len;

    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    ck_assert_int_eq(run("--tokenize", all, 256, ids, sizeof ids, &len), 0);
    ck_assert_int_eq(run("--detokenize", ids, len, back, sizeof back, &len), 0);
    ck_assert_uint_eq(len, 256);
    ck_assert_mem_eq(back, all, 256);
    ck_assert_int_eq(run("--tokenize", "", 0, ids, sizeof ids, &len), 0);
    ck_assert_str_eq(ids, "[]\n");
    /* without --parse-special a special token is text */
    ck_assert_int_eq(run("--tokenize", "<|end|>", 7, ids, sizeof ids, &len), 0);
    ck_assert_ptr_null(strstr(ids, "4094"));
    ck_assert_int_eq(run("--tokenize --parse-special", "<|end|>", 7, ids, sizeof ids, &len), 0);
    ck_assert_str_eq(ids, "[4094]\n");
}
END_TEST

START_TEST(wrong_input_is_named)
{
    static const struct {
        const char *args, *input, *says;
        int code;
    } cases[] = {
        {"--detokenize", "hello", "no JSON array", 1},
        {"--detokenize", "{}", "no JSON array", 1},
        {"--detokenize", "[1, \"a\"]", "element 1", 1},
        {"--detokenize", "[4096]", "0 to 4095", 1},
        {"--detokenize", "[-1]", "element 0", 1},
        {"--detokenize", "[1] 2", "no JSON array", 1},
        {"--detokenize", "", "no JSON array", 1},
        {"--tokenize -m /nowhere", "x", "/nowhere", 3},
        {"--tokenize -m /etc", "x", "/etc", 3},
    };
    char out[4096];
    size_t len;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(run(cases[i].args, cases[i].input, strlen(cases[i].input), out, sizeof out,
                          &len) == cases[i].code,
                      "%s: %s", cases[i].input, out);
        ck_assert_msg(strstr(out, cases[i].says) && strchr(out, '\n') == out + len - 1, "%s: %s",
                      cases[i].input, out);
    }
}
END_TEST

START_TEST(a_folder_without_weights_is_enough)
{
    const char *dir = support_shared("phi-tiny-moe");
    char args[1024], out[1024];
    size_t len;

    if (!dir)
        return;
    snprintf(args, sizeof args, "--tokenize -m '%s'", dir);
    ck_assert_int_eq(run(args, "Hello, world!", 13, out, sizeof out, &len), 0);
    ck_assert_str_eq(out, "[15043, 29892, 3186, 29991]\n");
    snprintf(args, sizeof args, "--tokenize -m '%s/tokenizer.json'", dir);
    ck_assert_int_eq(run(args, "Hello", 5, out, sizeof out, &len), 0);
    ck_assert_str_eq(out, "[15043]\n");
}
END_TEST

START_TEST(prompts_are_printed_as_rendered)
{
    static const struct {
        const char *args, *text;
        int code;
    } cases[] = {
        {"--print-prompt -p Hi", "<|user|>\nHi<|end|>\n<|assistant|>\n", 0},
        {"--print-prompt -p Hi -sys Go --chat-template chatml",
         "<|im_start|>system\nGo<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>"
         "assistant\n",
         0},
        {"--print-prompt -p - --raw", "x <|end|>", 0},
        {"--print-prompt", "give one of them", 2},
        {"--print-prompt -p Hi --chat-template nonsense", "phi3, chatml", 2},
        {"--print-prompt -p Hi --chat-template-file /etc", "/etc: not a regular file", 5},
        {"--print-prompt -p Hi --chat-template-file '%s/good'", "[Hi]", 0},
        {"--print-prompt -p Hi --chat-template-file '%s/bad'", "line 2: the filter 'strange'", 3},
        {"--print-prompt -p Hi --chat-template-file '%s/good' --chat-template phi3", "[Hi]", 0},
        {"-p Hi -n 1 --chat-template-file '%s/bad'", "--chat-template NAME", 3},
        {"-p Hi -n 1 --raw --chat-template-file '%s/bad'", "", 0},
        {"--print-prompt -p Hi --chat-template-file '%s/asks'", "", 0},
        {"--print-prompt -p Hi --chat-template-file '%s/asks' --reasoning on", "think", 0},
        {"--print-prompt -p Hi --chat-template-file '%s/asks' --reasoning off", "do not", 0},
        {"--print-prompt -p Hi --chat-template-file '%s/asks' --reasoning off "
         "--chat-template-kwargs '{\"enable_thinking\": true, \"level\": \"low\"}'",
         "thinklow", 0},
        {"--print-prompt -p Hi --chat-template-kwargs '{\"a\":'", "--chat-template-kwargs", 2},
        {"--print-prompt -p Hi --chat-template-kwargs '[1]'", "no JSON object", 2},
    };
    char args[1024], out[4096];
    size_t len;

    support_put(support_tmpdir(), "good", "[{{ messages[0].content }}]");
    support_put(support_tmpdir(), "bad", "\n{{ x | strange }}");
    support_put(support_tmpdir(), "asks",
                "{% if enable_thinking is defined %}"
                "{{ 'think' if enable_thinking else 'do not' }}{{ level }}{% endif %}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(args, sizeof args, cases[i].args, support_tmpdir());
        ck_assert_msg(run(args, "x <|end|>", 9, out, sizeof out, &len) == cases[i].code, "%s: %s",
                      args, out);
        if (cases[i].code || !cases[i].text[0])
            ck_assert_msg(strstr(out, cases[i].text) != NULL, "%s: %s", args, out);
        else
            ck_assert_str_eq(out, cases[i].text);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tokenize");
    TCase *c = tcase_create("tokenize");

    tcase_set_timeout(c, 240);
    tcase_add_test(c, golden_cases_through_the_program);
    tcase_add_test(c, every_byte_counts);
    tcase_add_test(c, prompts_are_printed_as_rendered);
    tcase_add_test(c, wrong_input_is_named);
    tcase_add_test(c, a_folder_without_weights_is_enough);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
