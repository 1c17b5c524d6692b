/* --batch: the reading of lines by itself, then the real program on the bundled model: order, keys,
 * resuming after kills, exit codes. */
#include "app/headless/batch_line.h"
#include "engine/base/mem.h"
#include "engine/run/sampling/sampler.h"
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lines ---- */

static int read_line(struct batch_line *line, const char *text, struct error *e)
{
    static char *stops[] = {(char *)"END"};
    struct turn defaults = {
        .sampling = sampling_default(), .max_tokens = 99, .stops = stops, .n_stops = 1};

    return batch_line_read(line, text, strlen(text), &defaults, false, "Be kind.", e);
}

static const struct {
    const char *text, *says;
} wrong[] = {
    {"{", "not valid JSON"},
    {"{}", "'prompt' or 'messages' is missing"},
    {"{\"prompt\": \"a\"} x", "not valid JSON"},
    {"{\"prompt\": 1}", "'prompt' must be"},
    {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "duplicate"},
    {"{\"prompt\": \"a\", \"temprature\": 1}", "did you mean 'temperature'"},
    {"{\"prompt\": \"a\", \"zzz\": 1}", "unknown key 'zzz'"},
    {"{\"prompt\": \"a\", \"messages\": []}", "exclude each other"},
    {"{\"messages\": []}", "at least one"},
    {"{\"messages\": {}}", "list"},
    {"{\"messages\": [\"a\"]}", "message 1 is no object"},
    {"{\"messages\": [{\"role\": \"user\"}]}", "message 1: 'content'"},
    {"{\"messages\": [{\"role\": \"bot\", \"content\": \"a\"}]}", "message 1: 'role'"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"b\"}]}",
     "message 1: unknown key 'name'"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}", "ends with a system message"},
    {"{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": \"b\"}], \"system\": \"c\"}",
     "exclude each other"},
    {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"reasoning_content\": \"b\"}]}",
     "'reasoning_content' must be"},
    {"{\"prompt\": \"a\", \"system\": 4}", "'system' must be"},
    {"{\"prompt\": \"a\", \"raw\": 1}", "'raw' must be"},
    {"{\"prompt\": \"a\", \"raw\": true, \"system\": \"b\"}", "'system' has no place"},
    {"{\"prompt\": \"a\", \"max_tokens\": -2}", "'max_tokens'"},
    {"{\"prompt\": \"a\", \"max_tokens\": 1.5}", "'max_tokens'"},
    {"{\"prompt\": \"a\", \"top_k\": 99999999999}", "'top_k'"},
    {"{\"prompt\": \"a\", \"temperature\": \"hot\"}", "'temperature' must be a number"},
    {"{\"prompt\": \"a\", \"temperature\": -1}", "temperature is -1"},
    {"{\"prompt\": \"a\", \"top_p\": 1.5}", "top_p is 1.5"},
    {"{\"prompt\": \"a\", \"min_p\": 2}", "min_p is 2"},
    {"{\"prompt\": \"a\", \"repeat_penalty\": 0}", "repeat_penalty is 0"},
    {"{\"prompt\": \"a\", \"seed\": -2}", "'seed'"},
    {"{\"prompt\": \"a\", \"seed\": 1.5}", "'seed'"},
    {"{\"prompt\": \"a\", \"stop\": 5}", "'stop'"},
    {"{\"prompt\": \"a\", \"stop\": [\"x\", \"\"]}", "'stop'"},
    {"{\"prompt\": \"a\", \"id\": []}", "'id' must be"},
    {"{\"prompt\": \"a\\u0000b\"}", ""},
    {"a\xff", "not UTF-8"},
};

START_TEST(wrong_lines_are_named)
{
    struct batch_line line;
    struct error e = {0};

    ck_assert_int_eq(read_line(&line, wrong[_i].text, &e), ERR_INPUT);
    ck_assert_msg(strstr(e.text, wrong[_i].says) != NULL, "%s: %s", wrong[_i].text, e.text);
    batch_line_release(&line);
}
END_TEST

START_TEST(lines_say_what_they_mean)
{
    struct batch_line l;
    struct error e = {0};

    ck_assert_int_eq(read_line(&l, "  {plain, because of the blanks", &e), 0);
    ck_assert(l.said.n_messages == 2 && l.said.messages[0].role == ROLE_SYSTEM &&
              l.turn.max_tokens == 99 && l.turn.n_stops == 1);
    ck_assert_str_eq(l.said.messages[1].text, "  {plain, because of the blanks");
    batch_line_release(&l);

    ck_assert_int_eq(
        read_line(
            &l,
            "{\"id\": \"x\", \"prompt\": \"p\", \"system\": \"\", \"max_tokens\": 5, "
            "\"temperature\": 0.5, \"top_p\": 0.25, \"top_k\": 7,"
            "\"min_p\": 0.125, \"repeat_penalty\": 1.5, \"seed\": 11, \"stop\": [\"a\", \"b\"]}",
            &e),
        0);
    ck_assert_str_eq(l.id, "\"x\"");
    ck_assert(l.said.n_messages == 1 && l.turn.max_tokens == 5 && l.turn.n_stops == 2 &&
              l.turn.sampling.seed == 11 && l.turn.sampling.top_k == 7);
    ck_assert(l.turn.sampling.temperature == 0.5f && l.turn.sampling.top_p == 0.25f &&
              l.turn.sampling.min_p == 0.125f && l.turn.sampling.repeat_penalty == 1.5f);
    batch_line_release(&l);

    ck_assert_int_eq(read_line(&l,
                               "{\"id\": 12, \"messages\": [{\"role\": \"user\", \"content\": "
                               "\"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}],"
                               " \"temperature\": null, \"stop\": \"q\"}",
                               &e),
                     0);
    ck_assert_str_eq(l.id, "12");
    ck_assert(l.said.n_messages == 3 && l.said.continue_last && l.turn.n_stops == 1 &&
              l.turn.sampling.temperature == sampling_default().temperature);
    ck_assert_str_eq(l.said.messages[0].text, "Be kind.");
    ck_assert_str_eq(l.turn.stops[0], "q");
    batch_line_release(&l);

    ck_assert_int_eq(read_line(&l, "{\"prompt\": \"go on\", \"raw\": true}", &e), 0);
    ck_assert(l.said.raw && l.said.n_messages == 1);
    batch_line_release(&l);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    static const char text[] = "{\"id\": 1, \"messages\": [{\"role\": \"user\", \"content\": "
                               "\"a\"}], \"stop\": [\"x\", \"y\"]}";
    int status = -1;

    for (long k = 0; status < 0; k++) {
        struct batch_line l;
        struct error e = {0};

        mem_fail_after(k);
        status = read_line(&l, text, &e);
        mem_fail_after(-1);
        ck_assert_msg(status == 0 || status == ERR_MEMORY, "%s", e.text);
        batch_line_release(&l);
        ck_assert_int_lt(k, 100);
    }
}
END_TEST

/* ---- the program ---- */

static char dir[256];

static const char *at(const char *name)
{
    static char ring[8][400];
    static int i;

    if (!dir[0])
        snprintf(dir, sizeof dir, "%s", support_tmpdir());
    i = (i + 1) & 7;
    snprintf(ring[i], sizeof ring[i], "%s/%s", dir, name);
    return ring[i];
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static char *read_file(const char *name)
{
    FILE *f = fopen(at(name), "rb");
    char *text = calloc(1, 1 << 20);

    if (f) {
        ck_assert_uint_lt(fread(text, 1, (1 << 20) - 1, f), (1 << 20) - 1);
        fclose(f);
    }
    return text;
}

/* `moetop ARGS <in >out 2>err` in the folder of this test; the exit code. */
static int run(const char *args)
{
    char command[2048];
    int status;

    at("");
    snprintf(command, sizeof command, "cd '%s' && '%s' %s <in >out 2>err", dir, support_program(),
             args);
    status = system(command);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static json_t *lines_of(const char *name)
{
    char *text = read_file(name), *line, *next;
    json_t *list = json_array();

    for (line = text; *line; line = next) {
        json_error_t where;
        json_t *o;

        next = strchr(line, '\n');
        ck_assert_msg(next != NULL, "%s: a torn line: %s", name, line);
        *next++ = 0;
        o = json_loads(line, 0, &where);
        ck_assert_msg(o != NULL, "%s: %s: %s", name, where.text, line);
        json_array_append_new(list, o);
    }
    free(text);
    return list;
}

static const char *text_of(const json_t *list, size_t i)
{
    return json_string_value(json_object_get(json_array_get(list, i), "text"));
}

/* The same answers; times may differ. */
static void same_answers(const json_t *a, const json_t *b)
{
    ck_assert_uint_eq(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); i++) {
        static const char *const keys[] = {"index",         "id",
                                           "text",          "stop_reason",
                                           "prompt_tokens", "completion_tokens",
                                           "error",         "experts",
                                           "experts_prompt"};

        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            json_t *x = json_object_get(json_array_get(a, i), keys[k]),
                   *y = json_object_get(json_array_get(b, i), keys[k]);

            ck_assert_msg((!x && !y) || json_equal(x, y), "line %zu, %s", i, keys[k]);
        }
    }
}

START_TEST(answers_in_order_one_for_every_line)
{
    static const char *const keys[] = {"ttft_ms", "prefill_ms", "decode_ms", "prefill_tok_s",
                                       "decode_tok_s"};
    json_t *out, *o, *timings;
    char *plain;

    write_file(
        "in",
        "\xef\xbb\xbf{\"id\": \"a\", \"prompt\": \"Tell me a story.\", \"max_tokens\": 12}\r\n"
        "Tell me a story.\r\n{\"id\": 3, \"promt\": \"x\"}\n\n{oops\n{\"prompt\": \"Once upon a\", "
        "\"raw\": true, \"stop\": \"there\"}\nlast, without an end");
    ck_assert_int_eq(run("--batch - --temp 0 -n 8"), 1);
    out = lines_of("out");
    ck_assert_uint_eq(json_array_size(out), 7);
    for (size_t i = 0; i < 7; i++) {
        o = json_array_get(out, i);
        ck_assert_int_eq(json_integer_value(json_object_get(o, "index")), (json_int_t)i);
        ck_assert_ptr_nonnull(json_object_get(o, "id"));
        ck_assert_int_eq(json_object_get(o, "error") != NULL, i == 2 || i == 4);
        if (json_object_get(o, "error")) {
            ck_assert_str_eq(
                json_string_value(json_object_get(json_object_get(o, "error"), "code")), "input");
            ck_assert_ptr_nonnull(
                json_string_value(json_object_get(json_object_get(o, "error"), "message")));
            ck_assert_uint_eq(json_object_size(o), 4);
            continue;
        }
        ck_assert_uint_eq(json_object_size(o), 9);
        timings = json_object_get(o, "timings");
        ck_assert_uint_eq(json_object_size(timings), 5);
        for (size_t k = 0; k < 5; k++)
            ck_assert_msg(json_number_value(json_object_get(timings, keys[k])) > 0,
                          "%s of line %zu", keys[k], i);
    }
    o = json_array_get(out, 0);
    ck_assert_str_eq(json_string_value(json_object_get(o, "id")), "a");
    ck_assert_int_eq(json_integer_value(json_object_get(o, "completion_tokens")), 12);
    ck_assert_str_eq(json_string_value(json_object_get(o, "stop_reason")), "length");
    ck_assert(strncmp(text_of(out, 0), text_of(out, 1), strlen(text_of(out, 1))) == 0);
    o = json_array_get(out, 5);
    ck_assert_str_eq(json_string_value(json_object_get(o, "stop_reason")), "string");
    ck_assert_str_eq(text_of(out, 5), " time, ");
    plain = read_file("err");
    ck_assert_ptr_nonnull(strstr(plain, "2 of 7 lines failed"));
    free(plain);
    /* the same engine answers -p */
    ck_assert_int_eq(run("-p 'Tell me a story.' --temp 0 -n 8"), 0);
    plain = read_file("out");
    plain[strcspn(plain, "\n")] = 0;
    ck_assert_str_eq(plain, text_of(out, 1));
    free(plain);
    json_decref(out);
}
END_TEST

/* A template that opens the reasoning itself: what is answered before it ends is thought. -p tells
 * it beside the answer; what was thought before is the template's, by the names it knows. */
START_TEST(what_is_thought_is_apart)
{
    json_t *out;
    char *text;

    write_file("think.jinja",
               "{% for m in messages %}<|{{ m.role }}|>\n{% if m.reasoning_content %}"
               "({{ m.reasoning_content }}){% endif %}{{ m.content }}<|end|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|assistant|>\n<think>\n{% endif %}");
    write_file("in",
               "Tell me about a fox.\n{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, "
               "{\"role\": \"assistant\", \"content\": \"Yes\", \"reasoning_content\": "
               "\"Well.\"}, {\"role\": \"user\", \"content\": \"Why?\"}]}\n");
    ck_assert_int_eq(run("--batch - --temp 0 -n 24 --chat-template-file think.jinja"), 0);
    out = lines_of("out");
    ck_assert_str_eq(text_of(out, 0), "");
    text = strdup(json_string_value(json_object_get(json_array_get(out, 0), "reasoning_content")));
    ck_assert_uint_gt(strlen(text), 10);
    /* what ends an answer ends no thought */
    ck_assert_int_eq(run("-p 'Tell me about a fox.' --temp 0 -n 24 --stop ' ' "
                         "--chat-template-file think.jinja"),
                     0);
    {
        char *said = read_file("out"), *beside = read_file("err");

        ck_assert_str_eq(said, "");
        ck_assert_msg(strstr(beside, text) != NULL, "%s", beside);
        free(said);
        free(beside);
    }
    free(text);
    json_decref(out);
}
END_TEST

/* What a terminal would obey leaves neither in an answer nor in an id or a complaint; JSON readers
 * see it as it was. */
START_TEST(output_is_safe_to_show)
{
    json_t *out;
    char *raw;

    write_file("in", "{\"id\": \"a\\u009b31m\\u202e\\u007f\\u001b\\ud83d\\ude42\\udb40\\udc41\", "
                     "\"prompt\": \"Hi\"}\n{\"x\xc2\x9b\": 1}\n");
    ck_assert_int_eq(run("--batch - -n 2"), 1);
    raw = read_file("out");
    ck_assert(!strstr(raw, "\xc2\x9b") && !strstr(raw, "\xe2\x80\xae") && !strchr(raw, 0x7f) &&
              !strchr(raw, 0x1b));
    ck_assert_ptr_nonnull(strstr(raw, "\xf0\x9f\x99\x82"));
    free(raw);
    out = lines_of("out");
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(out, 0), "id")),
                     "a\xc2\x9b"
                     "31m\xe2\x80\xae\x7f\x1b\xf0\x9f\x99\x82\xf3\xa0\x81\x81");
    json_decref(out);
}
END_TEST

START_TEST(same_seed_same_text_wherever_the_line_stands)
{
    json_t *a, *b;

    write_file(
        "in",
        "{\"prompt\": \"A story, please.\", \"seed\": 5, \"temperature\": 1.2}\n{\"prompt\": "
        "\"Hello\"}\n{\"prompt\": \"A story, please.\", \"seed\": 6, \"temperature\": 1.2}\n");
    ck_assert_int_eq(run("--batch - -n 16 -s 1"), 0);
    a = lines_of("out");
    write_file(
        "in",
        "{\"prompt\": \"A story, please.\", \"seed\": 6, \"temperature\": 1.2}\n{\"prompt\": "
        "\"Hello\"}\n{\"prompt\": \"A story, please.\", \"seed\": 5, \"temperature\": 1.2}\n");
    ck_assert_int_eq(run("--batch - -n 16 -s 1 -t 2"), 0);
    b = lines_of("out");
    ck_assert_str_eq(text_of(a, 0), text_of(b, 2));
    ck_assert_str_eq(text_of(a, 1), text_of(b, 1));
    ck_assert_str_eq(text_of(a, 2), text_of(b, 0));
    ck_assert_str_ne(text_of(a, 0), text_of(a, 2));
    json_decref(a);
    json_decref(b);
}
END_TEST

/* What was computed of the prompt, and how fast, can be counted from the line. */
START_TEST(cached_tokens_are_told)
{
    json_t *out, *o, *timings;
    json_int_t first, computed;

    write_file("in", "Tell me a story about a fox.\nTell me a story about a fox.\n");
    ck_assert_int_eq(run("--batch - -n 4 --temp 0"), 0);
    out = lines_of("out");
    first = json_integer_value(json_object_get(json_array_get(out, 0), "cached_tokens"));
    o = json_array_get(out, 1);
    computed = json_integer_value(json_object_get(o, "prompt_tokens")) -
               json_integer_value(json_object_get(o, "cached_tokens"));
    ck_assert_int_eq(first, 0);
    /* the last token's logits are needed */
    ck_assert_int_eq(computed, 1);
    timings = json_object_get(o, "timings");
    ck_assert_double_eq_tol(
        json_number_value(json_object_get(timings, "prefill_tok_s")),
        1e3 * (double)computed / json_number_value(json_object_get(timings, "prefill_ms")), 0.01);
    json_decref(out);
}
END_TEST

static int count_in(const char *name, const char *what)
{
    char *text = read_file(name), *at = text;
    int n = 0;

    while ((at = strstr(at, what))) {
        n++;
        at += strlen(what);
    }
    free(text);
    return n;
}

/* What the engine has to say of a line is said once, with the line, and once in the log. */
START_TEST(a_notice_is_told_once)
{
    char line[4000] = "hi\n{\"messages\": [";

    for (int i = 0; i < 20; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line),
                 "{\"role\": \"user\", \"content\": \"Tell me a story about a fox %d\"}, "
                 "{\"role\": \"assistant\", \"content\": \"No.\"}, ",
                 i);
    strcat(line, "{\"role\": \"user\", \"content\": \"Why?\"}]}\n");
    write_file("in", line);
    ck_assert_int_eq(run("--batch - -n 4 -c 128 --log-file log"), 0);
    ck_assert_int_eq(count_in("err", "has outgrown the context"), 1);
    ck_assert_int_eq(count_in("err", "line 2: the conversation has outgrown"), 1);
    ck_assert_int_eq(count_in("log", "has outgrown the context"), 1);
    ck_assert_int_eq(run("-p hi -n 4 --place gpu --device none --log-file log2"), 0);
    ck_assert_int_eq(count_in("err", "everything stays on the CPU"), 1);
    ck_assert_int_eq(count_in("log2", "everything stays on the CPU"), 1);
}
END_TEST

START_TEST(figures_of_the_whole_run)
{
    json_t *out, *figures, *tokens;
    json_int_t made = 0, prompt = 0;
    char *text;

    write_file("in", "Hello\n{}\nTell me a story.\n");
    ck_assert_int_eq(run("--batch - -n 9 --temp 0 --ignore-eos --stats --stats-json figures.json"),
                     1);
    out = lines_of("out");
    for (size_t i = 0; i < 3; i++) {
        made += json_integer_value(json_object_get(json_array_get(out, i), "completion_tokens"));
        prompt += json_integer_value(json_object_get(json_array_get(out, i), "prompt_tokens"));
    }
    text = read_file("figures.json");
    figures = json_loads(text, 0, NULL);
    ck_assert_msg(figures != NULL, "no figures: '%s'", text);
    tokens = json_object_get(figures, "tokens");
    ck_assert_int_eq(json_integer_value(json_object_get(tokens, "generated")), made);
    ck_assert_int_eq(json_integer_value(json_object_get(tokens, "prompt")), prompt);
    ck_assert_int_eq(json_integer_value(json_object_get(figures, "turns")), 2);
    free(text);
    text = read_file("err");
    ck_assert_msg(strstr(text, "generated") && strstr(text, "while computing"), "%s", text);
    free(text);
    json_decref(figures);
    json_decref(out);
}
END_TEST

/* A float model that says the same prompt twice computes its last token alone the second time, and
 * all of it together the first time. */
START_TEST(float_text_is_the_same_whatever_the_cache_holds)
{
    static const char *const options[] = {"", "-ub 1", "-ub 7 -t 1", "--exact", "--exact -ub 5"};
    const char *in =
        "{\"prompt\": \"A long story about the sea, a ship and a cat, please.\", \"seed\": 1}\n"
        "{\"prompt\": \"A long story about the sea, a ship and a cat, please.\", \"seed\": 1}\n"
        "{\"prompt\": \"A long story about the sea, a ship and a dog, please.\", \"seed\": 1}\n"
        "{\"prompt\": \"A long story about the sea, a ship and a cat, please.\", \"seed\": 1}\n";
    char args[600], *first[2] = {NULL};

    write_file("in", in);
    snprintf(args, sizeof args,
             "--quantize bf16 '%s/configs/models/tiny-storyteller-Q8_0.gguf' model.gguf",
             support_root());
    ck_assert_int_eq(run(args), 0);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        bool exact = strstr(options[i], "exact") != NULL;
        json_t *out;

        snprintf(args, sizeof args, "-m model.gguf --batch - -n 150 --temp 1 --ignore-eos %s",
                 options[i]);
        ck_assert_int_eq(run(args), 0);
        out = lines_of("out");
        ck_assert_uint_eq(json_array_size(out), 4);
        ck_assert_str_eq(text_of(out, 0), text_of(out, 1));
        ck_assert_str_eq(text_of(out, 0), text_of(out, 3));
        ck_assert_str_ne(text_of(out, 0), text_of(out, 2));
        if (!first[exact])
            first[exact] = strdup(text_of(out, 0));
        ck_assert_msg(strcmp(first[exact], text_of(out, 0)) == 0, "%s: %s, not %s", options[i],
                      text_of(out, 0), first[exact]);
        json_decref(out);
    }
    free(first[0]), free(first[1]);
}
END_TEST

START_TEST(expert_counts_add_up)
{
    json_t *out, *o, *row, *x;
    size_t i, l, k;

    write_file("in", "Hello\nHello\n");
    ck_assert_int_eq(run("--batch - -n 6 --temp 0 --batch-experts"), 0);
    out = lines_of("out");
    json_array_foreach(out, i, o)
    {
        json_int_t prompt = json_integer_value(json_object_get(o, "prompt_tokens")),
                   made = json_integer_value(json_object_get(o, "completion_tokens"));

        ck_assert_uint_eq(json_array_size(json_object_get(o, "experts")), 8);
        json_array_foreach(json_object_get(o, "experts"), l, row)
        {
            json_int_t all = 0, of_prompt = 0;

            ck_assert_uint_eq(json_array_size(row), 16);
            json_array_foreach(row, k, x)
            {
                all += json_integer_value(x);
                of_prompt += json_integer_value(
                    json_array_get(json_array_get(json_object_get(o, "experts_prompt"), l), k));
            }
            /* two experts a token; the newest token is not computed yet */
            ck_assert_int_eq(of_prompt, 2 * prompt);
            ck_assert_int_eq(all, 2 * (prompt + made - 1));
        }
    }
    ck_assert(json_equal(json_object_get(json_array_get(out, 0), "experts"),
                         json_object_get(json_array_get(out, 1), "experts")));
    json_decref(out);
}
END_TEST

/* An answer is there before the next question is asked. */
START_TEST(every_line_is_flushed)
{
    int to[2], from[2], status;
    char line[4096];
    pid_t child;
    FILE *f;

    ck_assert(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl(support_program(), "moetop", "--batch", "-", "-n", "4", "--parallel", _i ? "4" : "1",
              NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    f = fdopen(from[0], "r");
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(write(to[1], "Hi\n", 3), 3);
        /* would hang if it were kept back */
        ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
        ck_assert_ptr_nonnull(strstr(line, "\"stop_reason\""));
    }
    close(to[1]);
    ck_assert_ptr_null(fgets(line, sizeof line, f));
    fclose(f);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* Starts a batch of `in` into the file `name` and ends it with a signal once it holds `lines`
 * lines. */
static int run_and_kill(const char *name, int lines, int number, bool resume)
{
    const char *exe = support_program(); /* looked for from the present folder */
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        if (chdir(dir) < 0 || !freopen("in", "r", stdin) || !freopen("err", "w", stderr))
            _exit(126);
        execl(exe, "moetop", "--batch", "-", "-n", "24", "-s", "3", "--output", name, "--parallel",
              lines % 2 ? "4" : "1", resume ? "--resume" : NULL, NULL);
        _exit(127);
    }
    for (int wait = 0; wait < 60000; wait++) {
        char *text = read_file(name);
        int n = 0;

        for (char *p = text; (p = strchr(p, '\n')); p++)
            n++;
        free(text);
        if (n >= lines || waitpid(child, &status, WNOHANG) == child)
            break;
        usleep(1000);
    }
    kill(child, number);
    waitpid(child, &status, 0);
    return status;
}

static void many_lines(void)
{
    char text[8192] = "";

    for (int i = 0; i < 40; i++)
        snprintf(
            text + strlen(text), sizeof text - strlen(text),
            i % 9 == 4 ? "{\"bad\": %d}\n" : "{\"id\": %d, \"prompt\": \"Tell me a story.\"}\n", i);
    write_file("in", text);
}

/* Texts, their order and what is said of lines that cannot be answered; also the counts of experts,
 * which are each line's own. */
START_TEST(side_by_side_is_as_one_after_the_other)
{
    static const char *const more[] = {"", " --batch-experts", " -c 200 -ub 8"};
    char command[160];

    many_lines();
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        json_t *one, *several;

        snprintf(command, sizeof command, "--batch - -n 24 -s 3 --parallel 1%s", more[i]);
        ck_assert_int_eq(run(command), 1);
        one = lines_of("out");
        ck_assert_uint_eq(json_array_size(one), 40);
        snprintf(command, sizeof command, "--batch - -n 24 -s 3 -np 5%s", more[i]);
        ck_assert_int_eq(run(command), 1);
        several = lines_of("out");
        same_answers(one, several);
        json_decref(one);
        json_decref(several);
    }
}
END_TEST

START_TEST(resume_after_kills_loses_and_repeats_nothing)
{
    json_t *whole, *pieces;
    FILE *f;
    int kills = 0;

    many_lines();
    ck_assert_int_eq(run("--batch - -n 24 -s 3"), 1);
    whole = lines_of("out");
    ck_assert_uint_eq(json_array_size(whole), 40);
    kills += WIFSIGNALED(run_and_kill("torn", 3, SIGKILL, false)) != 0;
    for (int n = 9; n < 40; n += 12) {
        /* as if the kill had hit in the middle of a write */
        f = fopen(at("torn"), "a");
        fputs("{\"index\":5,\"text\":\"half a li", f);
        fclose(f);
        kills += WIFSIGNALED(run_and_kill("torn", n, SIGKILL, true)) != 0;
    }
    ck_assert_int_ge(kills, 1);
    ck_assert_int_eq(run("--batch - -n 24 -s 3 --output torn --resume"), 1);
    pieces = lines_of("torn");
    same_answers(whole, pieces);
    json_decref(pieces);
    /* finished: nothing more is done, nothing changes */
    ck_assert_int_eq(run("--batch - -n 24 -s 3 --output torn --resume"), 1);
    pieces = lines_of("torn");
    same_answers(whole, pieces);
    json_decref(pieces);
    /* without --resume it starts anew */
    write_file("in", "Hi\n");
    ck_assert_int_eq(run("--batch - -n 2 --output torn"), 0);
    pieces = lines_of("torn");
    ck_assert_uint_eq(json_array_size(pieces), 1);
    json_decref(pieces);
    json_decref(whole);
}
END_TEST

/* A line changed, put in or taken out since the first run: named, and the answers that are there
 * stay as they are. */
/* A model with a token for the byte 0 may say it: what was written is read again. */
START_TEST(resume_reads_a_nul)
{
    char *text, *from, line[4096];

    write_file("in", "One.\nTwo.\n");
    ck_assert_int_eq(run("--batch - -n 2 -s 3 --output nul"), 0);
    text = read_file("nul");
    ck_assert_ptr_nonnull(from = strstr(text, "\"text\":\""));
    from += strlen("\"text\":\"");
    snprintf(line, sizeof line, "%.*sa\\u0000b%.*s\n", (int)(from - text), text,
             (int)strcspn(from, "\n"), from);
    write_file("nul", line);
    free(text);
    ck_assert_int_eq(run("--batch - -n 2 -s 3 --output nul --resume"), 0);
    text = read_file("nul");
    ck_assert(!strncmp(text, line, strlen(line)) && strstr(text, "\"index\":1"));
    free(text);
}
END_TEST

START_TEST(resume_refuses_another_input)
{
    static const char first[] = "One.\n{\"id\": 7, \"prompt\": \"Two.\"}\nThree.\n";
    static const char *const others[] = {"One.\n{\"id\": 7, \"prompt\": \"Two!\"}\nThree.\n",
                                         "One.\nThree.\n",
                                         "One.\n\n{\"id\": 7, \"prompt\": \"Two.\"}\nThree.\n"};
    char *before, *after, *err;

    write_file("in", first);
    ck_assert_int_eq(run("--batch - -n 2 -s 3 --output kept"), 0);
    before = read_file("kept");
    write_file("in", others[_i]);
    ck_assert_int_eq(run("--batch - -n 2 -s 3 --output kept --resume"), 2);
    err = read_file("err");
    ck_assert_msg(strstr(err, "line 2 of the input is not the one that") &&
                      strstr(err, "leave it out to begin anew"),
                  "%s", err);
    after = read_file("kept");
    ck_assert_str_eq(before, after);
    free(after);
    free(err);
    /* the lines answered are the same and more follow; line ends of another system count for
     * nothing */
    write_file("in", "One.\r\n{\"id\": 7, \"prompt\": \"Two.\"}\r\nThree.\r\nFour.\r\n");
    ck_assert_int_eq(run("--batch - -n 2 -s 3 --output kept --resume"), 0);
    after = read_file("kept");
    ck_assert_int_eq(strncmp(after, before, strlen(before)), 0);
    ck_assert(strstr(after, "\"index\":3"));
    free(after);
    free(before);
}
END_TEST

START_TEST(interrupt_keeps_whole_lines)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    json_t *out;
    char *err;
    int status;

    many_lines();
    status = run_and_kill("cut", 4, numbers[_i], false);
    out = lines_of("cut");
    if (json_array_size(out) < 40) { /* else it was too fast to be hit */
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130,
                      "status %x after %zu lines: %s", status, json_array_size(out),
                      read_file("err"));
        err = read_file("err");
        ck_assert_msg(strstr(err, "--resume"), "%s", err);
        free(err);
    }
    ck_assert_uint_ge(json_array_size(out), 4);
    json_decref(out);
}
END_TEST

START_TEST(exit_codes_and_refusals)
{
    static const struct {
        const char *args, *says;
        int code;
    } cases[] = {
        {"--batch nowhere.jsonl", "nowhere.jsonl", 5},
        {"--batch .", "folder", 5},
        {"--batch - --resume", "--output", 2},
        {"--batch - --parallel 2,3", "one number", 2},
        {"--batch - --parallel 0", "from 1 to 256", 2},
        {"--batch - -np many", "from 1 to 256", 2},
        {"--batch - -p x", "-p", 2},
        {"--batch in --output in", "same file", 2},
        {"--batch - --output foreign --resume", "line 1 is not the answer", 2},
        {"--batch - --output ahead --resume", "has only 1 lines", 2},
        {"--batch - --output /dev/full", "/dev/full", 5},
        {"--batch - --output no/such/folder", "no/such/folder", 5},
        {"--batch - -m nothing.gguf", "nothing.gguf", 3},
        {"--batch - --output /dev/null --resume", "regular file", 2},
    };
    char *err;

    write_file("foreign", "my letters\n");
    write_file("ahead", "{\"index\":0,\"text\":\"\"}\n{\"index\":1,\"text\":\"\"}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file("in", "Hi\n");
        ck_assert_msg(run(cases[i].args) == cases[i].code, "%s", cases[i].args);
        err = read_file("err");
        ck_assert_msg(strstr(err, cases[i].says) != NULL, "%s: %s", cases[i].args, err);
        free(err);
    }
    err = read_file("foreign");
    ck_assert_str_eq(err, "my letters\n");
    free(err);
    write_file("in", "");
    ck_assert_int_eq(run("--batch -"), 0);
    err = read_file("out");
    ck_assert_str_eq(err, "");
    free(err);
}
END_TEST

START_TEST(bar_on_a_terminal_only)
{
    char seen[65536] = "", *out;
    size_t n = 0;
    int master, slave, status, fd;
    ssize_t got;
    pid_t child;

    write_file("in", "Hi\n{oops\nHello\n");
    ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, NULL), 0);
    child = fork();
    if (child == 0) {
        fd = open(at("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(fd, 1);
        dup2(slave, 2);
        execl(support_program(), "moetop", "--batch", at("in"), "-n", "3", NULL);
        _exit(127);
    }
    close(slave);
    while (n < sizeof seen - 1 && (got = read(master, seen + n, sizeof seen - 1 - n)) > 0)
        n += (size_t)got;
    waitpid(child, &status, 0);
    close(master);
    ck_assert_int_eq(WEXITSTATUS(status), 1);
    ck_assert_msg(strstr(seen, "batch [....") && strstr(seen, "line 0 of 3") &&
                      strstr(seen, "1 of 3 lines failed"),
                  "%s", seen);
    out = read_file("out");
    ck_assert(!strstr(out, "batch") && out[0] == '{');
    free(out);
    ck_assert_int_eq(run("--batch -"), 1); /* standard error is a file */
    out = read_file("err");
    ck_assert_ptr_null(strstr(out, "batch ["));
    free(out);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("batch");
    TCase *c = tcase_create("lines"), *p = tcase_create("program");

    tcase_add_loop_test(c, wrong_lines_are_named, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(c, lines_say_what_they_mean);
    tcase_add_test(c, every_allocation_may_fail);
    suite_add_tcase(s, c);
    tcase_set_timeout(p, 240);
    tcase_add_test(p, answers_in_order_one_for_every_line);
    tcase_add_test(p, what_is_thought_is_apart);
    tcase_add_test(p, output_is_safe_to_show);
    tcase_add_test(p, same_seed_same_text_wherever_the_line_stands);
    tcase_add_test(p, float_text_is_the_same_whatever_the_cache_holds);
    tcase_add_test(p, expert_counts_add_up);
    tcase_add_test(p, cached_tokens_are_told);
    tcase_add_test(p, a_notice_is_told_once);
    tcase_add_test(p, figures_of_the_whole_run);
    tcase_add_loop_test(p, every_line_is_flushed, 0, 2);
    tcase_add_test(p, side_by_side_is_as_one_after_the_other);
    tcase_add_test(p, resume_reads_a_nul);
    tcase_add_test(p, resume_after_kills_loses_and_repeats_nothing);
    tcase_add_loop_test(p, resume_refuses_another_input, 0, 3);
    tcase_add_loop_test(p, interrupt_keeps_whole_lines, 0, 3);
    tcase_add_test(p, exit_codes_and_refusals);
    tcase_add_test(p, bar_on_a_terminal_only);
    suite_add_tcase(s, p);
    return s;
}

int main(void)
{
    return support_run(suite());
}
