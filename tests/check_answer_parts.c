/* engine/text/answer_parts: reasoning, calls of tools and answers told apart, however the text is
 * cut into tokens. */
#include "engine/text/answer_parts.h"
#include "tests/support.h"

#include <stdio.h>
#include <string.h>

static char parts[PART_COUNT][2000];

static void put(void *ctx, enum answer_part part, const char *text, size_t n)
{
    (void)ctx;
    ck_assert_uint_gt(n, 0);
    strncat(parts[part], text, n);
}

static const char *const sources[] = {"<think> <tool_call>",
                                      "[THINK] [TOOL_CALLS]",
                                      "<|channel|> <|message|>",
                                      "",
                                      "<|channel>thought <|tool_call>",
                                      "<｜tool▁calls▁begin｜>",
                                      "<think> <answer> <tool_calls>",
                                      "<|START_THINKING|> <|START_ACTION|>",
                                      "HYTK = ':opensource'",
                                      "<|tool_call:begin|> <|tool_calls|>",
                                      "<|think|> <|channel>thought", /* Gemma 4's word */
                                      "to=self <|message|> <atem:function_calls>",
                                      "'｜DSML｜'",
                                      "<|python_start|> <|python_end|>",
                                      "<think> <zyphra_tool_call>"};

/* In text, {NAME} is a control token. */
static const struct {
    int source;
    bool reasoning;
    const char *text, *answer, *thought, *tool;
} cases[] = {
    {13, false, "{<|python_start|>}Let me.{<|python_end|>}{\"a\": 1}", "Let me.", "", "{\"a\": 1}"},
    {13, false, "{<|python_start|>}{<|python_end|>}{\"a\": 1}", "", "", "{\"a\": 1}"},
    {13, false, "{<|python_start|>}[f(a=1)]{<|python_end|>}", "[f(a=1)]", "", ""},
    {13, false, "[f(a=1)]", "[f(a=1)]", "", ""},
    {14, false,
     "<think>\nHm.\n</think>\n\n<zyphra_tool_call>\n<function=f>\n</function>\n"
     "</zyphra_tool_call>\n",
     "", "Hm.\n", "<function=f>\n</function>\n"},
    {0, false, "Hello <b>.", "Hello <b>.", "", ""},
    {0, false, "<think>\nWell, 1 < 2.\n</think>\n\nYes.", "Yes.", "Well, 1 < 2.\n", ""},
    {0, true, "Well.\n</think>\n\nYes </think>.", "Yes </think>.", "Well.\n", ""},
    {0, true, "never closed </thin", "", "never closed </thin", ""},
    {0, false, "<think></think>A<tool_call>\n{\"a\": 1}</tool_call>B", "AB", "", "{\"a\": 1}"},
    {0, false, "a <thi", "a <thi", "", ""},
    {0, false, "a {<|im_sep|>}b", "a b", "", ""},
    {1, false, "{[THINK]}Hm{[/THINK]}So.{[TOOL_CALLS]}f{[ARGS]}{}", "So.", "Hm", "f[ARGS]"},
    {2, false,
     "{<|channel|>}analysis{<|message|>}Think.{<|end|>}{<|start|>}assistant{<|channel|>}"
     "final{<|message|>}Yes.",
     "Yes.", "Think.", ""},
    {2, false, "{<|channel|>}commentary to=functions.f {<|constrain|>}json{<|message|>}[1, 2]", "",
     "", "{\"name\": \"f\", \"arguments\": [1, 2]}"},
    {2, false, "{<|channel|>}commentary to=functions.f{<|constrain|>}json{<|message|>}[1]", "", "",
     "{\"name\": \"f\", \"arguments\": [1]}"},
    {2, false, " to=browser.find{<|channel|>}commentary json{<|message|>}[1]", "", "",
     "{\"name\": \"browser.find\", \"arguments\": [1]}"},
    {2, false,
     "{<|channel|>}analysis{<|message|>}Two.{<|end|>}{<|start|>}assistant "
     "to=functions.f{<|channel|>}"
     "commentary{<|message|>}[1]{<|end|>}{<|start|>}assistant{<|channel|>}commentary to=functions.g"
     "{<|message|>}[2]{<|end|>}{<|start|>}assistant{<|channel|>}final{<|message|>}Both.",
     "Both.", "Two.",
     "{\"name\": \"f\", \"arguments\": [1]}\n{\"name\": \"g\", \"arguments\": [2]}"},
    {2, false, "{<|channel|>}commentary{<|message|>}I look to=it up.", "I look to=it up.", "", ""},
    {0, false, "<tool_call>f</tool_call>\n<tool_call>g</tool_call>", "", "", "f\ng"},
    {4, false,
     "{<|channel>}thought\nHm{<channel|>}So.{<|tool_call>}call:f[a:{<|\"|>}b{<|\"|>}]"
     "{<tool_call|>}",
     "So.", "Hm", "call:f[a:<|\"|>b<|\"|>]"},
    {5, false,
     "{<｜tool▁calls▁begin｜>}{<｜tool▁call▁begin｜>}f{<｜tool▁sep｜>}[]{<｜tool▁call▁end｜>}"
     "{<｜tool▁calls▁end｜>}",
     "", "", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>[]<｜tool▁call▁end｜>"},
    {2, false, "{<|channel|>}final{<|message|>}Done.{<|end|>}{<|start|>}assis", "Done.", "", ""},
    {2, false, "No channel at all.", "No channel at all.", "", ""},
    {2, false,
     "No channel at all, and it goes on for longer than any header would: one two three four five "
     "six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
     "nineteen twenty, and then from one to twenty again, in words, as it was done before, to the "
     "end.",
     "No channel at all, and it goes on for longer than any header would: one two three four five "
     "six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
     "nineteen twenty, and then from one to twenty again, in words, as it was done before, to the "
     "end.",
     "", ""},
    {6, false, "<think>\nHm\n</think>\n<answer>\nYes <b>.\n</answer>", "Yes <b>.\n", "Hm\n", ""},
    {6, false, "<think>Hm</think><answer>A</answer><tool_calls>[f]</tool_calls>B</answer>",
     "AB</answer>", "Hm", "[f]"},
    {6, false, "<answer>A<tool_calls>f</tool_calls>", "A", "", "f"},
    {7, true, "Plan.{<|END_THINKING|>}{<|START_TEXT|>}Hi.{<|END_TEXT|>}", "Hi.", "Plan.", ""},
    {7, false, "{<|START_THINKING|>}Look.{<|END_THINKING|>}{<|START_ACTION|>}[f]{<|END_ACTION|>}",
     "", "Look.", "[f]"},
    {8, true, "Look.{</think:opensource>}{<tool_calls:opensource>}f{</tool_calls:opensource>}", "",
     "Look.", "f"},
    {8, false, "{<think:opensource>}{</think:opensource>}Yes.", "Yes.", "", ""},
    {9, false,
     "{<|think|>}Look.{<|end|>}{<|begin|>}assistant{<|tool_calls|>}{<|tool_call:begin|>}f"
     "{<|tool_call:end|>}{<|calls|>}",
     "", "Look.", "<|tool_call:begin|>f<|tool_call:end|>"},
    {9, false, "{<|think|>}Hm.{<|end|>}{<|begin|>}assistant{<|content|>}Yes.", "Yes.", "Hm.", ""},
    {10, false, "a {<|think|>}b", "a b", "", ""},
    {11, false,
     " to=self{<|message|>}Look.{<|eom|>}{<|start|>}assistant to=f{<|message|>}"
     "<atem:function_calls>f</atem:function_calls>",
     "", "Look.", "f"},
    {11, false, " to=user{<|message|>}Yes, to=self.", "Yes, to=self.", "", ""},
    {12, false, "So.<｜DSML｜tool_calls>f</｜DSML｜tool_calls>", "So.", "", "f"},
    {3, false, "<think>nothing is marked</think>", "<think>nothing is marked</think>", "", ""},
};

/* Text in tokens of `step` bytes. */
static void push_text(struct answer_parts *p, const char *text, size_t n, size_t step)
{
    for (size_t i = 0; i < n; i += step)
        answer_parts_push(p, text + i, step < n - i ? step : n - i, false, put, NULL);
}

static void run(int at, size_t step)
{
    struct answer_parts p;
    const char *s = cases[at].text, *open, *close;

    memset(parts, 0, sizeof parts);
    answer_parts_init(&p, answer_format_of(sources[cases[at].source], NULL), cases[at].reasoning);
    for (; (open = strchr(s, '{')) && open[1] != '"' && (close = strchr(open, '}'));
         s = close + 1) {
        push_text(&p, s, (size_t)(open - s), step);
        if (close > open + 1)
            answer_parts_push(&p, open + 1, (size_t)(close - open - 1), true, put, NULL);
    }
    push_text(&p, s, strlen(s), step);
    answer_parts_end(&p, put, NULL);
    ck_assert_msg(strcmp(parts[PART_ANSWER], cases[at].answer) == 0, "%d, step %zu: answer '%s'",
                  at, step, parts[PART_ANSWER]);
    ck_assert_msg(strcmp(parts[PART_REASONING], cases[at].thought) == 0,
                  "%d, step %zu: reasoning '%s'", at, step, parts[PART_REASONING]);
    ck_assert_msg(strcmp(parts[PART_TOOL_CALL], cases[at].tool) == 0, "%d, step %zu: tool '%s'", at,
                  step, parts[PART_TOOL_CALL]);
}

START_TEST(parts_are_told_apart)
{
    for (size_t step = 1; step < 40; step++)
        run(_i, step);
}
END_TEST

START_TEST(a_prompt_may_open_the_reasoning)
{
    struct answer_format f = answer_format_of("<think>", NULL);

    ck_assert(answer_format_opens(&f, "x<think>\n", 9));
    ck_assert(!answer_format_opens(&f, "<think>\n\n</think>\n\n", 19));
    ck_assert(!answer_format_opens(&f, "", 0));
    f = answer_format_of(NULL, NULL);
    ck_assert(!answer_format_opens(&f, "x<think>", 8));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("answer_parts");
    TCase *c = tcase_create("answer_parts");

    tcase_add_loop_test(c, parts_are_told_apart, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(c, a_prompt_may_open_the_reasoning);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
