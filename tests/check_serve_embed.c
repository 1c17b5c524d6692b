/* Embeddings over HTTP: OpenAI's and Ollama's forms, many inputs, beside answers; and --embed. */
#include "tests/serving.h"
#include "tests/support.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH "/v1/embeddings"
#define TWO "[\"Hello there.\", \"A fox and an owl.\"]"

static const json_t *vector(const json_t *o, size_t i)
{
    return json_object_get(json_array_get(json_object_get(o, "data"), i), "embedding");
}

static double length(const json_t *v)
{
    double sum = 0.0;
    const json_t *each;
    size_t i;

    json_array_foreach(v, i, each) sum += pow(json_number_value(each), 2.0);
    return sqrt(sum);
}

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text ? text : "";
}

/* Little-endian F32 of base64. */
static size_t decode(const char *text, float *out, size_t room)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *to = (unsigned char *)out;
    size_t n = 0;
    unsigned bits = 0;
    int have = 0;

    for (; *text && *text != '='; text++) {
        bits = bits << 6 | (unsigned)(strchr(digits, *text) - digits);
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        ck_assert_uint_lt(n, room * sizeof *out);
        to[n++] = (unsigned char)(bits >> have);
    }
    return n / sizeof *out;
}

START_TEST(inputs_of_all_kinds)
{
    json_t *two = serving_post(PATH, "{\"model\": \"" MODEL "\", \"input\": " TWO "}", 200),
           *one = serving_post(PATH, "{\"input\": \"A fox and an owl.\"}", 200),
           *coded = serving_post(PATH, "{\"encoding_format\": \"base64\", \"input\": " TWO "}",
                                 200),
           *tokens = serving_post("/tokenize", "{\"content\": \"A fox and an owl.\"}", 200),
           *ids = json_pack("{s:O}", "input", json_object_get(tokens, "tokens")), *of_ids,
           *usage = json_object_get(two, "usage");
    float values[4096];
    size_t n;

    ck_assert_str_eq(string_of(two, "object"), "list");
    ck_assert_int_eq((int)json_array_size(json_object_get(two, "data")), 2);
    ck_assert(fabs(length(vector(two, 0)) - 1.0) < 1e-6);
    ck_assert_int_eq(json_integer_value(json_object_get(usage, "prompt_tokens")),
                     json_integer_value(json_object_get(usage, "total_tokens")));
    ck_assert(json_equal(vector(two, 1), vector(one, 0)));
    n = decode(json_string_value(vector(coded, 0)), values, 4096);
    ck_assert_uint_eq(n, json_array_size(vector(two, 0)));
    for (size_t i = 0; i < n; i++)
        ck_assert(values[i] == (float)json_number_value(json_array_get(vector(two, 0), i)));
    of_ids = serving_post_json(PATH, ids, 200);
    ck_assert_uint_eq(json_array_size(vector(of_ids, 0)), n);
    json_decref(of_ids);
    json_decref(ids);
    of_ids = serving_post(PATH, "{\"input\": [[5, 6], [7]], \"dimensions\": 8}", 200);
    ck_assert_uint_eq(json_array_size(vector(of_ids, 1)), 8);
    ck_assert(fabs(length(vector(of_ids, 1)) - 1.0) < 1e-6);
    json_decref(of_ids);
    json_decref(tokens);
    json_decref(two);
    json_decref(one);
    json_decref(coded);
}
END_TEST

START_TEST(ollamas)
{
    json_t *ours = serving_post(PATH, "{\"input\": " TWO "}", 200),
           *its = serving_post("/api/embed",
                               "{\"model\": \"" MODEL ":latest\", \"input\": " TWO "}", 200),
           *old = serving_post("/api/embeddings", "{\"prompt\": \"Hello there.\"}", 200),
           *lists = json_object_get(its, "embeddings"), *e = json_object_get(old, "embedding");
    double scale = length(e);

    ck_assert(json_equal(json_array_get(lists, 0), vector(ours, 0)));
    ck_assert(json_equal(json_array_get(lists, 1), vector(ours, 1)));
    ck_assert_int_eq(json_integer_value(json_object_get(its, "prompt_eval_count")),
                     json_integer_value(
                         json_object_get(json_object_get(ours, "usage"), "prompt_tokens")));
    ck_assert(scale > 2.0); /* it is not normalised */
    for (size_t i = 0; i < json_array_size(e); i++)
        ck_assert(fabs(json_number_value(json_array_get(e, i)) / scale -
                       json_number_value(json_array_get(vector(ours, 0), i))) < 1e-6);
    json_decref(ours);
    json_decref(its);
    json_decref(old);
}
END_TEST

/* "word " so many times, in a request of this form. */
static char *long_body(const char *before, size_t words, const char *after)
{
    char *body = malloc(strlen(before) + 5 * words + strlen(after) + 1), *at = body;

    at += sprintf(at, "%s", before);
    for (size_t i = 0; i < words; i++)
        at += sprintf(at, "word ");
    sprintf(at, "%s", after);
    return body;
}

START_TEST(longer_than_the_context)
{
    char *refused = long_body("{\"input\": \"", 3000, "\"}"),
         *kept = long_body("{\"input\": \"", 3000, "\", \"truncate\": false}");
    json_t *o = serving_post(PATH, refused, 400);

    ck_assert_str_eq(string_of(json_object_get(o, "error"), "code"), "context_length_exceeded");
    json_decref(o);
    o = serving_post("/api/embed", refused, 200);
    ck_assert_int_eq(json_integer_value(json_object_get(o, "prompt_eval_count")), 1024);
    json_decref(o);
    json_decref(serving_post("/api/embed", kept, 400));
    free(refused);
    free(kept);
}
END_TEST

START_TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *path, *body;
        int status;
        const char *said;
    } wrong[] = {
        {PATH, "{}", 400, "'input' is missing"},
        {PATH, "{\"input\": \"\"}", 400, "'input' is empty"},
        {PATH, "{\"input\": []}", 400, "empty"},
        {PATH, "{\"input\": [\"a\", \"\"]}", 400, "'input' is empty"},
        {PATH, "{\"input\": 5}", 400, "'input'"},
        {PATH, "{\"input\": [\"a\", 5]}", 400, "'input'"},
        {PATH, "{\"input\": [1, 100000000]}", 400, "id of a token"},
        {PATH, "{\"input\": [-1]}", 400, "id of a token"},
        {PATH, "{\"input\": \"x\", \"encoding_format\": \"hex\"}", 400, "'encoding_format'"},
        {PATH, "{\"input\": \"x\", \"dimensions\": 100000}", 400, "'dimensions'"},
        {PATH, "{\"input\": \"x\", \"model\": \"other\"}", 404, "'other'"},
        {"/api/embed", "{}", 400, "'input' is missing"},
        {"/api/embeddings", "{\"prompt\": [\"x\"]}", 400, "'prompt'"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *o = serving_post(wrong[i].path, wrong[i].body, wrong[i].status), *e;
        const char *text;

        e = json_object_get(o, "error");
        text = json_is_string(e) ? json_string_value(e) : string_of(e, "message");
        ck_assert_msg(strstr(text, wrong[i].said), "%s: %s", wrong[i].body, text);
        json_decref(o);
    }
}
END_TEST

/* ---- beside answers ---- */

static void *embed_often(void *arg)
{
    int *same = arg;

    for (int i = 0; i < 6; i++) {
        struct reply r = serving_ask("POST", PATH, NULL, "{\"input\": " TWO "}");
        json_t *o = r.body ? json_loads(r.body, 0, NULL) : NULL;

        *same += r.status == 200 && fabs(length(vector(o, 1)) - 1.0) < 1e-6;
        json_decref(o);
        free(r.head);
    }
    return NULL;
}

/* An answer says the same while embeddings are computed, and they are the same beside it. */
START_TEST(beside_answers)
{
    json_t *alone = serving_post(CHAT, FOX ", \"max_tokens\": 60, \"seed\": 7}", 200),
           *want = serving_post(PATH, "{\"input\": " TWO "}", 200), *beside, *again;
    pthread_t threads[3];
    int same = 0;

    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, embed_often, &same);
    beside = serving_post(CHAT, FOX ", \"max_tokens\": 60, \"seed\": 7}", 200);
    again = serving_post(PATH, "{\"input\": " TWO "}", 200);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(same, 18);
    ck_assert_str_eq(serving_text_at(beside, "message", "content"),
                     serving_text_at(alone, "message", "content"));
    ck_assert(json_equal(json_object_get(want, "data"), json_object_get(again, "data")));
    json_decref(alone);
    json_decref(beside);
    json_decref(want);
    json_decref(again);
}
END_TEST

/* A hundred inputs share sessions and passes, and come in order. */
/* As many as OpenAI takes, and no more. */
START_TEST(the_most_inputs)
{
    json_t *inputs = json_array(), *one = json_pack("{s:o}", "input", inputs), *o;

    for (int i = 0; i < 2048; i++)
        json_array_append_new(inputs, json_pack("[i]", 16 + i % 100));
    o = serving_post_json(PATH, one, 200);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "data")), 2048);
    ck_assert(json_equal(vector(o, 47), vector(o, 2047)));
    json_decref(o);
    json_array_append_new(inputs, json_pack("[i]", 16));
    o = serving_post_json(PATH, one, 400);
    ck_assert_str_eq(string_of(json_object_get(o, "error"), "message"),
                     "'input' has 2049 entries; at most 2048 are possible");
    json_decref(o);
    json_decref(one);
}
END_TEST

START_TEST(many_at_once)
{
    json_t *inputs = json_array(), *o, *one;
    char text[32];

    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof text, "text number %d", i % 10);
        json_array_append_new(inputs, json_string(text));
    }
    one = json_pack("{s:o}", "input", inputs);
    o = serving_post_json(PATH, one, 200);
    for (size_t i = 10; i < 100; i++) {
        ck_assert(json_equal(vector(o, i), vector(o, i % 10)));
        ck_assert(!json_equal(vector(o, i), vector(o, (i + 1) % 10)));
    }
    json_decref(o);
    json_decref(one);
}
END_TEST

/* ---- without a server ---- */

START_TEST(lines_of_a_file)
{
    char command[PATH_MAX + 600], line[1 << 16];
    const char *in = support_put(support_tmpdir(), "texts",
                                 "Hello there.\n{\"text\": \"A fox and an owl.\"}\n");
    json_t *want = serving_post(PATH, "{\"input\": " TWO "}", 200), *o;
    FILE *f;

    snprintf(command, sizeof command, "%s --embed %s 2>/dev/null", serving_binary, in);
    ck_assert((f = popen(command, "r")) != NULL);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(fgets(line, sizeof line, f) != NULL);
        o = json_loads(line, 0, NULL);
        ck_assert_int_eq(json_integer_value(json_object_get(o, "index")), (json_int_t)i);
        ck_assert(json_equal(json_object_get(o, "embedding"), vector(want, i)));
        json_decref(o);
    }
    ck_assert(!fgets(line, sizeof line, f));
    ck_assert_int_eq(pclose(f), 0);
    in = support_put(support_tmpdir(), "wrong", "{\"texts\": 5}\n");
    snprintf(command, sizeof command, "%s --embed %s 2>&1", serving_binary, in);
    ck_assert((f = popen(command, "r")) != NULL);
    ck_assert(fgets(line, sizeof line, f) != NULL);
    ck_assert_msg(strstr(line, "line 1 has no \"text\""), "%s", line);
    ck_assert_int_ne(pclose(f), 0);
    json_decref(want);
}
END_TEST

/* All that a command prints; malloc'd. */
static char *printed(const char *command, int *status)
{
    size_t n = 0, room = 1 << 21;
    char *text = malloc(room);
    FILE *f = popen(command, "r");

    ck_assert(f && text);
    n = fread(text, 1, room - 1, f);
    text[n] = 0;
    *status = pclose(f);
    return text;
}

/* Lines computed together are those computed alone, in order; a wrong one ends it after the lines
 * before. */
START_TEST(groups_of_lines)
{
    char lines[2000] = "", command[PATH_MAX + 600], *alone, *got, *end;
    const char *in;
    int status, n = 0;

    for (int i = 0; i < 20; i++)
        sprintf(lines + strlen(lines), "%.*s fox\n", 4 * (1 + i * 7 % 11),
                "one two red sly old new big wee low shy odd");
    in = support_put(support_tmpdir(), "group", lines);
    snprintf(command, sizeof command, "%s --embed %s -np 1 2>/dev/null", serving_binary, in);
    alone = printed(command, &status);
    ck_assert_int_eq(status, 0);
    for (end = alone; (end = strchr(end, '\n')); end++)
        n++;
    ck_assert_int_eq(n, 20);
    for (int k = 2; k < 30; k += 9) {
        snprintf(command, sizeof command, "%s --embed - -np %d -ub %d <%s 2>/dev/null",
                 serving_binary, k, k * k, in);
        got = printed(command, &status);
        ck_assert_int_eq(status, 0);
        ck_assert_str_eq(got, alone);
        free(got);
    }
    strcpy(strstr(lines, "\n") + 1, "{\"text\": 5}\nnever\n");
    in = support_put(support_tmpdir(), "group", lines);
    snprintf(command, sizeof command, "%s --embed %s 2>/dev/null", serving_binary, in);
    got = printed(command, &status);
    ck_assert_int_ne(status, 0);
    ck_assert_uint_eq(strlen(got), (size_t)(strchr(alone, '\n') + 1 - alone));
    ck_assert_int_eq(strncmp(got, alone, strlen(got)), 0);
    free(got);
    free(alone);
}
END_TEST

/* ---- a model that was trained with an end token ---- */

static void with_end_token(void)
{
    static const char *const more[] = {"--override-kv", "tokenizer.ggml.add_eos_token=bool:true",
                                       "--override-kv", "phimoe.pooling_type=int:3", NULL};

    serving_start(more);
}

/* It is behind a text, also where that was cut, and is what is pooled. */
START_TEST(the_end_token_stays)
{
    char *text = long_body("{\"input\": \"", 3000, "\"}");
    json_t *body = json_loads(text, 0, NULL), *props, *all, *last, *ids = json_array(), *given,
           *want, *got;
    struct reply r = serving_ask("GET", "/props", NULL, NULL);

    json_object_set(body, "content", json_object_get(body, "input"));
    all = serving_post_json("/tokenize", body, 200);
    props = serving_read_json(&r, 200);
    given = json_pack("{s:O}", "content", json_object_get(props, "eos_token"));
    last = serving_post_json("/tokenize", given, 200);
    for (size_t i = 0; i < 1023; i++)
        json_array_append(ids, json_array_get(json_object_get(all, "tokens"), i));
    ck_assert_int_eq((int)json_array_size(json_object_get(last, "tokens")), 1);
    json_array_extend(ids, json_object_get(last, "tokens"));
    json_decref(given);
    given = json_pack("{s:o}", "input", ids);
    want = serving_post_json(PATH, given, 200);
    got = serving_post("/api/embed", text, 200);
    ck_assert(json_equal(json_array_get(json_object_get(got, "embeddings"), 0), vector(want, 0)));
    json_decref(want);
    json_decref(got);
    json_decref(given);
    json_decref(last);
    json_decref(props);
    json_decref(all);
    json_decref(body);
    free(r.head);
    free(text);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("serve_embed");
    TCase *t = tcase_create("embeddings");

    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, serving_plain_server, serving_end_well);
    tcase_add_test(t, inputs_of_all_kinds);
    tcase_add_test(t, ollamas);
    tcase_add_test(t, longer_than_the_context);
    tcase_add_test(t, what_is_wrong_is_named);
    tcase_add_test(t, beside_answers);
    tcase_add_test(t, many_at_once);
    tcase_add_test(t, the_most_inputs);
    tcase_add_test(t, lines_of_a_file);
    tcase_add_test(t, groups_of_lines);
    suite_add_tcase(s, t);
    t = tcase_create("end token");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, with_end_token, serving_end_well);
    tcase_add_test(t, the_end_token_stays);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return support_run(suite());
}
