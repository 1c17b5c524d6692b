/* Two models' answers to the same message: where they part, against the texts themselves; the
 * comparison of the real program on two quantisations of the bundled model, and on one model under
 * two plans; the chat's second answers, and /vote. */
#include "app/lab/said.h"
#include "engine/base/mem.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Of the whole suite: the second quantisation is made once. */
static char folder[] = "/tmp/moetop-beside-XXXXXX";

#define sh(...) support_sh(folder, __VA_ARGS__)

static json_t *read_json(const char *name)
{
    char path[400];
    json_error_t why;
    json_t *root;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    root = json_load_file(path, 0, &why);
    ck_assert_msg(root != NULL, "%s: %s", name, why.text);
    return root;
}

static double number(const json_t *root, const char *path)
{
    const json_t *v = json_walk(root, path);

    ck_assert_msg(json_is_number(v), "%s", path);
    return json_number_value(v);
}

static const char *text(const json_t *root, const char *path)
{
    const char *s = json_string_value(json_walk(root, path));

    ck_assert_msg(s != NULL, "%s", path);
    return s;
}

/* ---- pure ---- */

static void say(struct said *s, int id, const char *piece)
{
    struct event ev = {.kind = EVENT_TOKEN,
                       .token = {.id = id, .probability = 0.5f, .len = (uint16_t)strlen(piece)}};

    snprintf(ev.token.text, sizeof ev.token.text, "%s", piece);
    said_note(s, &ev);
}

START_TEST(the_token_where_they_part)
{
    struct said a = {0}, b = {0};
    struct parting p;

    say(&a, 1, "the ");
    say(&a, 2, "red ");
    say(&a, 3, "fox");
    say(&b, 1, "the ");
    say(&b, 9, "re"); /* the same bytes by other tokens */
    say(&b, 8, "d ");
    say(&b, 7, "fog");
    said_part(&a, &b, &p);
    ck_assert(!p.same && p.bytes == 10 && p.token[0] == 2 && p.token[1] == 3);
    ck_assert(p.distance < 0); /* no experts are known */
    said_begin(&b);
    say(&b, 1, "the ");
    say(&b, 2, "red ");
    said_part(&a, &b, &p);
    ck_assert(!p.same && p.bytes == 8 && p.token[0] == 2 && p.token[1] == 2); /* b ends there */
    say(&b, 3, "fox");
    said_part(&a, &b, &p);
    ck_assert(p.same && p.token[0] == 3 && p.token[1] == 3 && !p.thinking);
    said_begin(&a);
    said_begin(&b);
    say(&a, 1, "caf\xc3\xa9");
    say(&b, 2, "caf\xc3\xa8"); /* they differ inside a character */
    said_part(&a, &b, &p);
    ck_assert_uint_eq(p.bytes, 3);
    said_release(&a);
    said_release(&b);
}
END_TEST

static void experts(struct said *s, const uint32_t *counts, int layers, int n)
{
    uint32_t answer[8];
    struct telemetry t = {.n_layers = layers, .n_experts = n, .answer = answer};
    struct error e = {0};

    memcpy(answer, counts, (size_t)(layers * n) * sizeof *answer);
    ck_assert_int_eq(said_experts(s, &t, &e), 0);
}

START_TEST(how_the_experts_differ)
{
    struct said a = {0}, b = {0};
    struct parting p;
    float *d;

    experts(&a, (const uint32_t[]){2, 2, 4, 0}, 2, 2);
    experts(&b, (const uint32_t[]){1, 3, 2, 2}, 2, 2);
    said_part(&a, &b, &p);
    ck_assert(fabs(p.distance - 0.375) < 1e-12); /* of 0.25 and 0.5 */
    ck_assert(p.layer == 1 && fabs(p.layer_distance - 0.5) < 1e-12 && p.expert == 0);
    ck_assert(p.expert_share[0] == 1 && p.expert_share[1] == 0.5);
    d = said_difference(&a, &b);
    ck_assert(d && d[0] == 0.25f && d[1] == -0.25f && d[2] == 0.5f && d[3] == -0.5f);
    mem_free(d);
    experts(&b, (const uint32_t[]){1, 3, 2, 2}, 1, 4); /* another shape */
    said_part(&a, &b, &p);
    ck_assert(p.distance < 0 && !said_difference(&a, &b));
    said_release(&a);
    said_release(&b);
}
END_TEST

/* ---- the program ---- */

START_TEST(two_quantisations)
{
    json_t *root;
    const char *first, *second;
    size_t bytes;

    ck_assert_int_eq(sh("$M -p 'Tell me a story about a fox.' --temp 0 -n 60 --beside q4.gguf "
                        "--stats-json s.json >out 2>err"),
                     0);
    root = read_json("s.json");
    first = text(root, "beside.first.text");
    second = text(root, "beside.second.text");
    bytes = (size_t)number(root, "beside.bytes");
    ck_assert(json_is_false(json_walk(root, "beside.same")));
    ck_assert(bytes > 0 && strncmp(first, second, bytes) == 0 && first[bytes] != second[bytes]);
    ck_assert(strchr(text(root, "beside.first.token"), first[bytes]));
    ck_assert(strchr(text(root, "beside.second.token"), second[bytes]));
    /* greedy: each prefers its own token */
    ck_assert(number(root, "beside.first.probability") >=
              number(root, "beside.second.probability_there"));
    ck_assert(number(root, "beside.second.probability") >=
              number(root, "beside.first.probability_there"));
    ck_assert(number(root, "beside.experts.distance") > 0);
    json_decref(root);
    /* the answer alone on standard output; each is what its model says alone */
    ck_assert_int_eq(
        sh("$M -p 'Tell me a story about a fox.' --temp 0 -n 60 >a && cmp a out && "
           "$T -m q4.gguf -p 'Tell me a story about a fox.' --temp 0 -n 60 >b && "
           "! cmp -s a b && sed -n '/^2 q4.gguf:/,/^1 and 2/p' err >both && "
           "head -c 40 b | grep -qFf - both && grep -q '^1 and 2 say the same for' err"),
        0);
}
END_TEST

/* Drawn with a random seed: the second one draws with the same. */
START_TEST(one_model_under_two_settings)
{
    json_t *root;

    ck_assert_int_eq(sh("$M -p 'Tell me a story about a fox.' --temp 0.9 -n 40 --beside-set "
                        "threads=1 --stats-json t.json >out 2>err && grep -q 'threads=1:' err"),
                     0);
    root = read_json("t.json");
    ck_assert(json_is_true(json_walk(root, "beside.same")));
    ck_assert(number(root, "beside.experts.distance") == 0);
    json_decref(root);
    ck_assert_int_eq(sh("$M -p 'Tell me a story about a fox.' --temp 0 -n 40 --beside-set "
                        "experts-used=1 2>err >out && grep -q 'experts-used=1:' err && "
                        "grep -q '^1 and 2 say the same for' err"),
                     0);
}
END_TEST

START_TEST(refused)
{
    ck_assert_int_eq(sh("$M -p x -n 2 --beside /none 2>err >out"), 3);
    ck_assert_int_eq(sh("grep -q /none err && ! [ -s out ]"), 0);
    ck_assert_int_eq(sh("$M -p x -n 2 --beside-set nothing=1 2>err >out"), 2);
    ck_assert_int_eq(sh("$M -p x -n 2 --beside-set threads=many 2>err >out"), 2);
    ck_assert_int_eq(sh("$M --connect 127.0.0.1:9 --beside q4.gguf --plain </dev/null 2>err"), 2);
    ck_assert_int_eq(sh("grep -q -e '--connect' err"), 0);
    ck_assert_int_eq(sh("$M -p x -n 2 --beside q4.gguf --routing-trace r.jsonl 2>err >out"), 2);
    /* in a chat a model that cannot be read costs the second answers, not the chat */
    ck_assert_int_eq(sh("head -c 1000 q4.gguf >cut.gguf; echo 'Tell me about a fox.' | "
                        "$M --plain --temp 0 -n 20 --beside cut.gguf >out 2>err"),
                     0);
    ck_assert_int_eq(sh("grep -q 'goes on without it' err && grep -qi fox out"), 0);
}
END_TEST

START_TEST(in_a_chat)
{
    json_t *row;

    ck_assert_int_eq(
        sh("printf '%%s\\n' 'Tell me a story about a fox.' '/vote 2 livelier' "
           "'And a bear?' '/vote both' /regen '/vote 3' | "
           "$M --plain --temp 0.8 --seed 5 -n 30 --beside q4.gguf --votes v >out 2>err"),
        0);
    ck_assert_int_eq(sh("[ $(grep -c '^2 q4.gguf:$' out) = 3 ] && [ $(wc -l <v) = 2 ] && "
                        "[ $(grep -c '^1 and 2 say the same' out) = 3 ] && "
                        "sed -n 1p v >first && sed -n 2p v >second && [ $(stat -c %%a v) = 600 ]"),
                     0);
    row = read_json("first");
    ck_assert_str_eq(text(row, "vote"), "2");
    ck_assert_str_eq(text(row, "why"), "livelier");
    ck_assert_str_eq(text(row, "prompt.0.content"), "Tell me a story about a fox.");
    ck_assert_str_eq(text(row, "chosen.0.role"), "assistant");
    ck_assert_str_eq(text(row, "models.1"), "q4.gguf");
    ck_assert(number(row, "seed") == 5);
    ck_assert_str_ne(text(row, "chosen.0.content"), text(row, "rejected.0.content"));
    json_decref(row);
    row = read_json("second");
    ck_assert_uint_eq(json_array_size(json_object_get(row, "prompt")), 3);
    /* the chat goes on from the first answer, whichever was better */
    ck_assert(!json_object_get(row, "chosen") &&
              json_array_size(json_object_get(row, "answers")) == 2);
    json_decref(row);
    ck_assert_int_eq(sh("printf '%%s\\n' 'Hi.' '/vote 1' | $M --plain -n 4 >out 2>err && "
                        "grep -q -e '--beside MODEL makes' err"),
                     0);
}
END_TEST

static void setup(void)
{
    ck_assert_int_eq(sh("$T --quantize q4_0 $D q4.gguf >/dev/null 2>&1"), 0);
}

int main(void)
{
    Suite *s = suite_create("beside");
    TCase *pure = tcase_create("pure"), *t = tcase_create("program");
    char command[100];
    int rc;

    if (!mkdtemp(folder))
        return 1;
    tcase_add_test(pure, the_token_where_they_part);
    tcase_add_test(pure, how_the_experts_differ);
    suite_add_tcase(s, pure);
    tcase_add_unchecked_fixture(t, setup, NULL);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, two_quantisations);
    tcase_add_test(t, one_model_under_two_settings);
    tcase_add_test(t, refused);
    tcase_add_test(t, in_a_chat);
    suite_add_tcase(s, t);
    rc = support_run(s);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : rc;
}
