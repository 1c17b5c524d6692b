/* Interventions. Edits of experts: what a line does and which are refused, the router's rule
 * without experts, the same bits whatever computes them and in whatever company, and the answer
 * without them beside; what experts are worth; control vectors, made and added. */
#include "app/lab/edit_file.h"
#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/device/expert_edits.h"
#include "engine/device/numerics.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"
#include "gpu/opencl.h"
#include "tests/support.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROMPT "-p 'Tell me a story about a fox.' --temp 0.9 --seed 7 -n 40"

static struct error e;
static char folder[] = "/tmp/moetop-edits-XXXXXX";

#define sh(...) support_sh(folder, __VA_ARGS__)

static const char *at_folder(const char *name)
{
    static char path[100];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct engine *open_model(const char *path, const char *const *lines, int n)
{
    struct engine_config c = {.model_path = path,
                              .context = 128,
                              .ubatch = 16,
                              .n_threads = 2,
                              .sessions = 3,
                              .expert_edits = lines,
                              .n_expert_edits = n,
                              .no_tokenizer = path != support_demo(),
                              .exact = path != support_demo(),
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *g = NULL;

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    return g;
}

/* ---- lines ---- */

static struct hparams shape; /* 3 layers of 8 experts, the last one dense */
static struct layer_shape shapes[3];

static void make_shape(void)
{
    for (int l = 0; l < 3; l++)
        shapes[l].ffn = (struct ffn_shape){.kind = l < 2 ? FFN_ROUTED : FFN_DENSE,
                                           .experts = l < 2 ? 8 : 0,
                                           .used = l < 2 ? 2 : 0};
    shape = (struct hparams){.n_layers = 3, .n_experts = 8, .layers = shapes};
}

static const struct {
    const char *lines[4];
    const char *text; /* NULL: nothing is edited */
    int n;
} edited[] = {
    {{"off L0/E3"}, "off L0/E3", 1},
    {{"off L1/E3,E1"}, "off L1/E1,E3", 2},
    {{"off l1/e3, E1 "}, "off L1/E1,E3", 2},
    {{"only L0/E7,E2"}, "only L0/E2,E7", 6},
    {{"weight L0/E3 0.5", "weight L0/E4 -2"}, "weight L0/E3 0.5; weight L0/E4 -2", 2},
    {{"weight L*/E3,E5 0"}, "weight L0/E3 0; weight L0/E5 0; weight L1/E3 0; weight L1/E5 0", 4},
    {{"swap L0 E3 E5"}, "swap L0 E3 E5", 2},
    {{"swap L0/E5 E3"}, "swap L0 E3 E5", 2},
    {{"swap L0 E3 E5", "swap L0 E5 E6"}, "swap L0 E3 E5; swap L0 E5 E6", 3},
    {{"swap L0 E3 E5", "swap L0 E5 E3"}, NULL, 0},
    {{"swap L0 E3 E5", "swap L0 E5 E6", "on L0/E3"}, "swap L0 E5 E6", 2},
    {{"off L0-1/E3", "on L1"}, "off L0/E3", 1},
    {{"off L*/E3", "swap L1 E2 E3", "on"}, NULL, 0},
    {{"off L0/E3", "on L0/E3"}, NULL, 0},
    {{"off L0/E0,E1,E2,E3", "off L0/E4,E5,E6,E7"}, "off L0/E0,E1,E2,E3,E4,E5,E6,E7", 8},
};

static int count(const char *const *lines)
{
    int n = 0;

    while (n < 4 && lines[n])
        n++;
    return n;
}

/* And what they print makes them again. */
START_TEST(lines_are_read)
{
    struct expert_edits *x, *again;
    const char *text;

    make_shape();
    ck_assert_msg(expert_edits_read(&x, NULL, &shape, edited[_i].lines, count(edited[_i].lines),
                                    &e) == 0,
                  "%s", e.text);
    ck_assert((x == NULL) == (edited[_i].text == NULL));
    if (!x)
        return;
    ck_assert_str_eq(x->text, edited[_i].text);
    ck_assert_int_eq(x->n, edited[_i].n);
    if (!strchr(x->text, ';')) {
        text = x->text;
        ck_assert_int_eq(expert_edits_read(&again, NULL, &shape, &text, 1, &e), 0);
        ck_assert(expert_edits_equal(x, again) && x->hash == again->hash);
        expert_edits_free(again);
    }
    text = "off L1/E0";
    ck_assert_int_eq(expert_edits_read(&again, x, &shape, &text, 1, &e), 0);
    ck_assert(!expert_edits_equal(x, again) && x->hash != again->hash);
    expert_edits_free(again);
    expert_edits_free(expert_edits_share(x));
    expert_edits_free(x);
}
END_TEST

static const char *const bad[][2] = {
    {"", "write off"},
    {"off", "write off"},
    {"off L0", "write off"},
    {"off E3", "write off"},
    {"of L0/E3", "write off"},
    {"off L0/E8", "E0 to E7"},
    {"off L3/E1", "L0 to L2"},
    {"off L2/E1", "no router"},
    {"off L1-0/E1", "L3-7"},
    {"off L0/E1,", "write off"},
    {"off L0/E1 E2", "write off"},
    {"weight L0/E1", "factor"},
    {"weight L0/E1 x", "factor"},
    {"weight L0/E1 nan", "factor"},
    {"weight L0/E1 1e9", "factor"},
    {"weight L0/E1 0.5 1", "write off"},
    {"swap L0 E1", "write off"},
    {"swap L0 E1 E1", "two experts"},
    {"swap L0 E1 E99999999999999", "E0 to E7"},
    {"off L99999999999999/E1", "L0 to L2"},
};

START_TEST(bad_lines_are_refused)
{
    struct expert_edits *x;

    make_shape();
    ck_assert_int_eq(expert_edits_read(&x, NULL, &shape, &bad[_i][0], 1, &e), ERR_USAGE);
    ck_assert_msg(strstr(e.text, bad[_i][1]) != NULL, "%s", e.text);
    ck_assert_ptr_null(x);
}
END_TEST

START_TEST(files)
{
    static const char *const good[] = {"- off L0/E1\n- swap L0 E1 E2\n",
                                       "expert_edits:\n  - off L0/E1\n  - swap L0 E1 E2\n",
                                       "expert_edits: [off L0/E1, 'swap L0 E1 E2']\n"};
    static const char *const wrong[] = {"",
                                        "off L0/E1\n",
                                        "- [off L0/E1]\n",
                                        "- a: b\n",
                                        "- &x a\n- *x\n",
                                        "- \"\\0\"",
                                        "other:\n - off L0\n",
                                        "- a\n--- \nb\n",
                                        "expert_edits: off\n",
                                        "[[[[[[[["};
    struct edit_lines l;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        ck_assert_msg(edit_file_parse(&l, good[i], strlen(good[i]), "f", &e) == 0, "%s", e.text);
        ck_assert_uint_eq(l.n, 2);
        ck_assert_str_eq(l.lines[1], "swap L0 E1 E2");
        edit_lines_release(&l);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_msg(edit_file_parse(&l, wrong[i], strlen(wrong[i]), "f", &e) == ERR_USAGE, "%s",
                      wrong[i]);
        ck_assert(strncmp(e.text, "f:", 2) == 0 && l.n == 0);
    }
}
END_TEST

/* ---- the rule ---- */

/* A router that has only the experts left, by its own rule: the same choice and the same bits. */
START_TEST(without_is_a_smaller_router)
{
    static const struct router_shape rules[] = {
        {.kind = ROUTER_SOFTMAX},
        {.kind = ROUTER_SOFTMAX, .normalised = true},
        {.kind = ROUTER_SIGMOID, .normalised = true, .factor = 2.5f},
        {.kind = ROUTER_SPARSEMIXER, .jitter = 0.01f},
    };
    const struct router_shape *r = &rules[_i];
    uint64_t random = 1;

    for (int round = 0; round < 200; round++) {
        float scores[16], left[16], bias[16], left_bias[16], w[2], small_w[2];
        int x[2], small_x[2], number[16], n = 0;
        uint8_t off[16];

        for (int i = 0; i < 16; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            scores[i] = (float)(random >> 40) / (float)(1 << 22) - 2.0f;
            bias[i] = r->kind == ROUTER_SIGMOID ? scores[i] * -0.3f : 0.0f;
            off[i] = (random >> 20) % 3 == 0 || i == round % 16;
            if (off[i])
                continue;
            number[n] = i;
            left_bias[n] = bias[i];
            left[n++] = scores[i];
        }
        num_route_without(r, scores, bias, off, 16, 2, x, w);
        ck_assert_int_ge(n, 2);
        num_route(r, left, left_bias, n, 2, small_x, small_w);
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(x[k], number[small_x[k]]);
            ck_assert(w[k] == small_w[k]);
        }
    }
}
END_TEST

START_TEST(too_few_are_left)
{
    static const struct router_shape rules[] = {{.kind = ROUTER_SOFTMAX, .normalised = true},
                                                {.kind = ROUTER_SPARSEMIXER, .jitter = 0.01f},
                                                {.kind = ROUTER_SIGMOID,
                                                 .normalised = true,
                                                 .groups = 2,
                                                 .groups_used = 1,
                                                 .choice_bias = true}};
    const float scores[4] = {3, 2, 1, -4}, bias[4] = {0};
    float w[2];
    int x[2];

    num_route_without(&rules[_i], scores, bias, (const uint8_t[]){1, 1, 1, 0}, 4, 2, x, w);
    ck_assert(x[0] == 3 && x[1] == -1 && w[1] == 0.0f && isfinite(w[0]) && w[0] > 0.0f);
    num_route_without(&rules[_i], scores, bias, (const uint8_t[]){1, 1, 1, 1}, 4, 2, x, w);
    ck_assert(x[0] == -1 && x[1] == -1 && w[0] == 0.0f && w[1] == 0.0f);
}
END_TEST

/* ---- bits ---- */

static const char *const edits[] = {
    "[off L3/E1, off L0/E4, 'weight L5/E2,E3 0.25', swap L2 E0 E7, 'only L6/E0,E9,E4']",
    "['only L4/E5', 'off L*/E3']"}; /* a layer of which one expert is left */

static void setup(void)
{
    if (access(folder, F_OK) < 0 || sh("test -f text1") == 0)
        return;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sh("echo \"%s\" >%d.yaml", edits[i], i), 0);
        ck_assert_int_eq(sh("$M " PROMPT " --expert-edit %d.yaml >text%d 2>err", i, i), 0);
    }
    ck_assert_int_eq(sh("$M " PROMPT " >text 2>err; cmp -s text text0; test $? = 1 && cmp -s text "
                        "text1; test $? = 1"),
                     0);
}

static const char *const settings[] = {"-t 1",
                                       "-t 3 -ub 7",
                                       "--kernels scalar -ub 1",
                                       "--place gpu --device opencl:0",
                                       "--place hot:2M --device opencl:0",
                                       "--spec-type ngram",
                                       "--spec-type lookup --spec-draft-n-max 4",
                                       "--expert-cache 4M",
                                       "--routing-scores --routing-trace t.jsonl"};

START_TEST(settings_do_not_change_it)
{
    static struct device_info info[DEVICE_MAX];
    const char *s = settings[_i];
    char why[300];

    if (strstr(s, "opencl") && opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why) < 1) {
        support_skip("no OpenCL device: %s", why);
        return;
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(sh("$M " PROMPT " %s --expert-edit %d.yaml >out 2>err", s, i), 0);
        ck_assert_msg(sh("cmp out text%d", i) == 0, "%s", s);
    }
}
END_TEST

/* What undoes itself is the model as it was made. */
START_TEST(nothing_is_edited)
{
    ck_assert_int_eq(sh("echo \"['weight L*/E2 1', swap L1 E1 E2, swap L1 E2 E1]\" >same.yaml"), 0);
    ck_assert_int_eq(sh("$M " PROMPT " --expert-edit same.yaml >out 2>err && cmp out text"), 0);
}
END_TEST

/* Each of the chat's edits has its own files of the prompt cache. */
START_TEST(stored_states_are_apart)
{
    for (int round = 0; round < 2; round++) {
        ck_assert_int_eq(sh("$M " PROMPT " --prompt-cache cache >out 2>err && cmp out text"), 0);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(sh("$M " PROMPT " --prompt-cache cache --expert-edit %d.yaml >out "
                                "2>err && cmp out text%d",
                                i, i),
                             0);
    }
}
END_TEST

/* A trace of the run has nobody that is off, whose place the best of the others has. */
START_TEST(the_trace_obeys)
{
    ck_assert_int_eq(sh("$M " PROMPT " --expert-edit 0.yaml --routing-scores --routing-trace "
                        "o.jsonl >out 2>err"),
                     0);
    ck_assert_int_eq(
        sh("! grep '\"layer\":3,' o.jsonl | grep -qE '\"experts\":\\[(1,|[0-9]+,1\\])'"), 0);
    ck_assert_int_eq(
        sh("! grep '\"layer\":6,' o.jsonl | grep -vqE '\"experts\":\\[(0|9|4),(0|9|4)\\]'"), 0);
    ck_assert_int_eq(sh("grep '\"layer\":2,' o.jsonl | grep -qE '\"experts\":\\[(0|7),'"), 0);
    /* and who chose: the layers 0, 2, 3, 5 and 6 are edited */
    ck_assert_int_eq(sh("! grep -E '\"layer\":[02356],' o.jsonl | grep -v '\"by\":\"edited\"'"), 0);
    ck_assert_int_eq(sh("! grep -E '\"layer\":[147],' o.jsonl | grep -v '\"by\":\"router\"'"), 0);
}
END_TEST

START_TEST(refused)
{
    ck_assert_int_eq(sh("echo '[off L99/E0]' >r.yaml; $M -p x --expert-edit r.yaml >out 2>err"), 2);
    ck_assert_int_eq(sh("grep -q \"'off L99/E0': the model's layers are L0 to L7\" err"), 0);
    ck_assert_int_eq(sh("echo 'a: [b' >r.yaml; $M -p x --expert-edit r.yaml >out 2>err"), 2);
    ck_assert_int_eq(sh("$M -p x --expert-edit none.yaml >out 2>err"), 5);
    ck_assert_int_eq(sh("$M -p x --expert-edit 0.yaml --routing-replay t.jsonl >out 2>err"), 2);
    ck_assert_int_eq(sh("$M --tokenize --expert-edit 0.yaml >out 2>err </dev/null"), 2);
}
END_TEST

/* ---- sessions ---- */

static const char *const models[] = {NULL, "golden/families/qwen3_moe",
                                     "golden/families/deepseek_v3", "golden/families/gpt_oss"};

static void ids_of(const struct engine *g, int *ids, int n, int from)
{
    for (int i = 0; i < n; i++)
        ids[i] = (from + i * 37) % engine_info(g)->model->hp.n_vocab;
}

/* Three sessions of one pass, each with its own edits, against each alone and row by row. */
START_TEST(each_session_has_its_own)
{
    char path[600];
    const char *lines[] = {"off L*/E1", "swap L* E0 E2", "weight L*/E0,E3 0.5"};
    struct session *s[3];
    struct engine *g;
    int ids[3][21], next[3], n_vocab;
    float *alone[3], *one, before = 0;

    snprintf(path, sizeof path, "%s", models[_i] ? support_path(models[_i]) : "");
    g = open_model(_i ? path : support_demo(), NULL, 0);
    n_vocab = engine_info(g)->model->hp.n_vocab;
    s[0] = engine_session(g);
    ck_assert_int_eq(engine_session_open(g, &s[1], &e), 0);
    ck_assert_int_eq(engine_session_open(g, &s[2], &e), 0);
    one = mem_alloc((size_t)n_vocab, sizeof *one);
    for (int i = 0; i < 3; i++) {
        struct expert_edits *x;

        alone[i] = mem_alloc((size_t)n_vocab, sizeof **alone);
        ids_of(g, ids[i], 21, 300 + i);
        next[i] = ids[i][20];
        ck_assert_int_eq(engine_session_eval(s[i], ids[i], 21, 0, one, false, &e), 0);
        ck_assert_msg(expert_edits_read(&x, NULL, &engine_info(g)->model->hp, &lines[i], 1, &e) ==
                          0,
                      "%s", e.text);
        ck_assert_int_eq(engine_session_edits_set(s[i], x, &e), 21); /* dropped */
        ck_assert_int_eq(engine_session_edits_set(s[i], x, &e), 0);
        expert_edits_free(x);
        for (int k = 0; k < 21; k++)
            ck_assert_int_eq(engine_session_eval(s[i], ids[i] + k, 1, 0, alone[i], false, &e), 0);
        ck_assert(memcmp(one, alone[i], (size_t)n_vocab * sizeof *one) != 0);
        before += alone[i][0];
        engine_session_forget(s[i]);
        ck_assert_int_eq(engine_session_eval(s[i], ids[i], 20, 0, one, false, &e), 0);
    }
    ck_assert(isfinite(before));
    ck_assert_msg(engine_sessions_eval(s, 3, next, &e) == 0, "%s", e.text);
    for (int i = 0; i < 3; i++) {
        ck_assert_mem_eq(alone[i], s[i]->logits, (size_t)n_vocab * sizeof *one);
        mem_free(alone[i]);
    }
    mem_free(one);
    engine_session_close(s[1]);
    engine_session_close(s[2]);
    engine_close(g);
}
END_TEST

/* ---- the answer without them ---- */

START_TEST(both_answers)
{
    const char *line = "only L*/E0,E1,E2,E3";
    struct engine *g = open_model(support_demo(), &line, 1),
                  *plain = open_model(support_demo(), NULL, 0);
    const struct expert_edits *x = engine_session_edits(engine_session(g));
    int n_vocab = engine_info(g)->model->hp.n_vocab, ids[40], best = 0, differ = 0;
    float *logits = mem_alloc((size_t)n_vocab, sizeof *logits);
    struct shadow_loss l;
    double sum = 0;
    const int *now;

    ck_assert_ptr_nonnull(x);
    ids_of(g, ids, 40, 300);
    ck_assert_int_eq(engine_eval(g, ids, 40, NULL, false, &e), 0);
    ck_assert_msg(engine_shadow(g, 24, &l, &e) == 0, "%s", e.text);
    ck_assert_int_eq(l.tokens, 16);
    ck_assert(l.mean_kl > 0 && l.n_answer <= 16);
    for (int i = 0; i < l.tokens; i++) {
        ck_assert_int_eq(l.ids[i], ids[24 + i]);
        sum += l.kl[i] / l.tokens;
        differ += l.top[i] != l.exact_top[i];
    }
    ck_assert(fabs(sum - l.mean_kl) < 1e-12);
    ck_assert_int_eq(differ, l.changed);
    /* in force again, and the unedited run's likeliest token is that of a model without edits */
    ck_assert_ptr_eq(engine_session_edits(engine_session(g)), x);
    ck_assert_int_eq(engine_session_tokens(g, &now), 40);
    ck_assert_int_eq(engine_eval(plain, ids, 25, logits, false, &e), 0);
    for (int i = 1; i < n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    ck_assert_int_eq(l.exact_top[0], best);
    mem_free(logits);
    engine_close(g);
    engine_close(plain);
}
END_TEST

START_TEST(requests_have_their_own)
{
    ck_assert_int_eq(sh("python3 '%s' \"$T\" %s %d 2>err || { cat err; exit 1; }",
                        support_path("serve_edits.py"), support_demo(),
                        20000 + (int)(getpid() % 20000)),
                     0);
}
END_TEST

/* Every line of a batch has its own edits, or those of --expert-edit, in whatever company; a
 * receipt derives it again. */
START_TEST(lines_have_their_own)
{
    ck_assert_int_eq(
        sh("printf '%%s\\n' 'Tell me a story about a fox.' "
           "'{\"prompt\":\"Tell me a story about a fox.\",\"expert_edits\":[\"off L*/E3\","
           "\"only L4/E5\"]}' "
           "'{\"prompt\":\"Tell me a story about a fox.\",\"expert_edits\":[]}' "
           "'{\"prompt\":\"Tell me a story about a fox.\",\"expert_edits\":[\"off L99/E0\"]}' "
           "'{\"prompt\":\"x\",\"expert_edits\":\"off L1/E0\"}' "
           "'{\"prompt\":\"x\",\"expert_edits\":[3]}' "
           "'Tell me a story about a fox.' >lines"),
        0);
    for (int parallel = 1; parallel <= 3; parallel += 2) {
        ck_assert_int_eq(sh("$M --batch lines --temp 0.9 --seed 7 -n 40 --expert-edit 0.yaml "
                            "--receipts --parallel %d --output b.jsonl 2>err",
                            parallel),
                         1);
        ck_assert_int_eq(
            sh("python3 - <<'E'\n"
               "import json\n"
               "a = [json.loads(l) for l in open('b.jsonl')]\n"
               "t = [open(n).read().rstrip('\\n') for n in ('text0', 'text1', 'text')]\n"
               "for i, k in ((0, 0), (1, 1), (2, 2), (6, 0)):\n"
               "    assert a[i]['text'].rstrip('\\n') == t[k], i\n"
               "assert \"'off L99/E0': the model's layers\" in a[3]['error']['message']\n"
               "assert 'must be a list of at most 256' in a[4]['error']['message']\n"
               "assert '[0] must be a string' in a[5]['error']['message']\n"
               "E"),
            0);
    }
    ck_assert_int_eq(sh("grep -v '\"error\"' b.jsonl >good && $M --replay good >out 2>err"), 0);
    ck_assert_int_eq(sh("sed 's/only L4\\/E5/only L4\\/E6/' good >other; "
                        "$M --replay other >out 2>err"),
                     1);
}
END_TEST

/* ---- ablation ---- */

static double number(const char *file, const char *key)
{
    json_t *o = json_load_file(file, 0, NULL);
    double v = json_number_value(json_object_get(o, key));

    ck_assert_ptr_nonnull(o);
    json_decref(o);
    return v;
}

/* A cell is the difference of two runs of --perplexity, one of them with the expert off. */
START_TEST(a_cell_is_two_perplexities)
{
    char path[100];
    json_t *o;
    double base, other;

    ck_assert_int_eq(sh("$M --perplexity default -c 128 --chunks 4 --ablate layer:3 --report-json "
                        "a.json --report-html a.html >out 2>err && grep -q '<svg' a.html"),
                     0);
    ck_assert_int_eq(sh("$M --perplexity default -c 128 --chunks 4 --quality-json p.json >out "
                        "2>err"),
                     0);
    snprintf(path, sizeof path, "%s/p.json", folder);
    base = log(number(path, "perplexity"));
    snprintf(path, sizeof path, "%s/a.json", folder);
    o = json_load_file(path, 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(o, "cells")), 16);
    ck_assert_double_eq_tol(json_number_value(json_object_get(o, "base")), base, 1e-9);
    for (size_t i = 0; i < 16; i += 5) {
        const json_t *c = json_array_get(json_object_get(o, "cells"), i);
        double loss = json_number_value(json_object_get(c, "loss"));

        ck_assert_int_eq(sh("echo '[off L3/E%d]' >c.yaml; $M --perplexity default -c 128 --chunks "
                            "4 --expert-edit c.yaml --quality-json c.json >out 2>err",
                            (int)json_integer_value(json_object_get(c, "expert"))),
                         0);
        snprintf(path, sizeof path, "%s/c.json", folder);
        other = log(number(path, "perplexity"));
        ck_assert_double_eq_tol(loss, other - base, 1e-9);
        ck_assert(json_number_value(json_object_get(c, "low")) <= loss);
        ck_assert(json_number_value(json_object_get(c, "high")) >= loss);
    }
    json_decref(o);
    if (support_numpy())
        ck_assert_int_eq(
            sh("%s '%s' a.json >out", support_numpy(), support_path("tools/ablation.py")), 0);
    else
        support_ran("no numpy: the figures of --ablate were not derived again");
}
END_TEST

START_TEST(questions_are_ablated)
{
    ck_assert_int_eq(sh("printf '%%s\\n' '{\"question\":\"Once upon a time there was "
                        "a\",\"options\":[\"fox\",\"the\"],\"answer\":0}' '{\"question\":\"She was "
                        "very\",\"options\":[\"of\",\"happy\",\"park\"],\"answer\":1}' >q.jsonl"),
                     0);
    ck_assert_int_eq(sh("$M --choices q.jsonl --ablate all --report-html a.svg --json >a.json "
                        "2>err && grep -q '^<svg' a.svg"),
                     0);
    ck_assert_int_eq(sh("test $(grep -c '\"right\"' a.json) = 129"), 0);
}
END_TEST

START_TEST(ablation_is_refused)
{
    static const char *const args[] = {"all", "layer:9 --perplexity default",
                                       "layer:x --perplexity default",
                                       "all --perplexity default --choices q.jsonl"};

    for (size_t i = 0; i < sizeof args / sizeof *args; i++)
        ck_assert_int_eq(sh("$M --ablate %s >out 2>err", args[i]), 2);
}
END_TEST

/* ---- control vectors ---- */

static void make_vector(void)
{
    if (sh("test -f cv.gguf") == 0)
        return;
    ck_assert_int_eq(
        sh("printf '%%s\\n' 'A happy fox.' 'Tom was glad.' >A; printf '%%s\\n' 'A sad "
           "fox and a bear.' 'Tom was angry.' 'Oh no!' >B; $M --make-control-vector A B "
           "-o cv.gguf >out 2>err"),
        0);
}

static const char *const steering[] = {
    "--control-vector-scaled cv.gguf:2 --control-vector-layer-range 3 5",
    "--control-vector cv.gguf --expert-edit 0.yaml"};

START_TEST(steered_text_is_the_same_everywhere)
{
    static struct device_info info[DEVICE_MAX];
    char why[300];
    bool cl = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why) > 0;

    make_vector();
    ck_assert_int_eq(
        sh("$M " PROMPT " %s >want 2>err; cmp -s want text; test $? = 1", steering[_i]), 0);
    for (size_t k = 0; k + 1 < sizeof settings / sizeof *settings; k++) {
        if (strstr(settings[k], "opencl") && !cl)
            continue;
        ck_assert_int_eq(sh("$M " PROMPT " %s %s >out 2>err", steering[_i], settings[k]), 0);
        ck_assert_msg(sh("cmp out want") == 0, "%s", settings[k]);
    }
    for (int round = 0; round < 2; round++) /* not the unsteered run's files */
        ck_assert_int_eq(sh("$M " PROMPT
                            " --prompt-cache steer >out 2>err && cmp out text && $M " PROMPT
                            " --prompt-cache steer %s >out 2>err && cmp out want",
                            steering[_i]),
                         0);
}
END_TEST

struct stream {
    float *x; /* (layers, 21, hidden) */
    int at, hidden;
};

static void keep(void *ctx, int layer, const float *x, int rows)
{
    struct stream *s = ctx;

    memcpy(s->x + (size_t)(layer * 21 + s->at) * (size_t)s->hidden, x,
           (size_t)rows * (size_t)s->hidden * sizeof *x);
}

static struct stream stream_of(struct engine *g, const int *ids)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    struct stream s = {.hidden = hp->hidden};

    s.x = mem_alloc((size_t)hp->n_layers * 21 * (size_t)hp->hidden, sizeof *s.x);
    engine_observe_stream(g, keep, &s);
    for (; s.at < 21; s.at++)
        ck_assert_int_eq(engine_eval(g, ids + s.at, 1, NULL, false, &e), 0);
    return s;
}

/* Behind the first layer of the range stands x + scale * direction, to the bit. */
START_TEST(the_direction_is_added)
{
    const struct adapter_request asked = {at_folder("cv.gguf"), -0.5f}; /* made below */
    struct engine_config c = {.model_path = support_demo(),
                              .context = 128,
                              .n_threads = 2,
                              .control = &asked,
                              .n_control = 1,
                              .control_first = 3,
                              .control_last = 4,
                              .tune = DEVICE_TUNE_OFF,
                              .convert = -1};
    struct engine *plain = open_model(support_demo(), NULL, 0), *g = NULL;
    struct weight_file *f;
    struct stream a, b;
    int ids[21];
    float v;

    make_vector();
    ids_of(plain, ids, 21, 300);
    a = stream_of(plain, ids);
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    b = stream_of(g, ids);
    ck_assert_int_eq(weight_file_open(&f, asked.path, false, &e), 0);
    ck_assert_uint_eq(weight_file_count(f), 7);
    ck_assert_mem_eq(a.x, b.x, (size_t)(3 * 21 * a.hidden) * sizeof *a.x);
    for (int i = 0; i < 21 * a.hidden; i++) {
        memcpy(&v,
               (const char *)weight_file_find(f, "direction.3")->data +
                   sizeof v * (size_t)(i % a.hidden),
               sizeof v);
        ck_assert(b.x[3 * 21 * a.hidden + i] == a.x[3 * 21 * a.hidden + i] + v * -0.5f);
    }
    weight_file_close(f);
    mem_free(a.x);
    mem_free(b.x);
    engine_close(g);
    engine_close(plain);
}
END_TEST

/* The other way round it is the same vector with the other sign; of the same lines it is zero. */
START_TEST(directions_are_differences)
{
    make_vector();
    ck_assert_int_eq(sh("$M --make-control-vector B A -ub 1 -o minus.gguf >out 2>err && $M "
                        "--make-control-vector A A -o zero.gguf >out 2>err"),
                     0);
    ck_assert_int_eq(sh("$M " PROMPT " --control-vector zero.gguf >out 2>err && cmp out text"), 0);
    ck_assert_int_eq(
        sh("$M " PROMPT " --control-vector cv.gguf,minus.gguf >out 2>err && cmp out text"), 0);
    ck_assert_int_eq(sh("$M " PROMPT
                        " --control-vector-scaled minus.gguf:-1 >out 2>err && $M " PROMPT
                        " --control-vector cv.gguf >want 2>err && cmp out want"),
                     0);
}
END_TEST

/* The principal direction of pairs is numpy's, whose rows are vectors of single pairs. */
START_TEST(principal_directions_are_numpys)
{
    const char *with = support_numpy();

    ck_assert_int_eq(sh("printf '%%s\\n' 'A happy fox.' 'Tom was glad.' 'It was fun!' >PA; printf "
                        "'%%s\\n' 'A sad fox.' 'Tom was angry at the bear.' 'Oh no!' >PB; $M "
                        "--make-control-vector PA PB --method pca -o pca.gguf >out 2>err"),
                     0);
    ck_assert_int_eq(sh("$M " PROMPT " --control-vector pca.gguf >out 2>err && ! cmp -s out text"),
                     0);
    ck_assert_int_eq(sh("head -n 2 PB >short; $M --make-control-vector PA short --method pca -o "
                        "no.gguf >out 2>err"),
                     1);
    ck_assert_int_eq(sh("grep -q 'pairs of lines: A has 3, B 2' err && ! test -e no.gguf"), 0);
    ck_assert_int_eq(sh("head -n 2 PA >short; $M --make-control-vector short PB --method pca -o "
                        "no.gguf >out 2>err"),
                     1);
    if (!with) {
        support_skip("python3 has no numpy");
        return;
    }
    ck_assert_int_eq(sh("for i in 1 2 3; do sed -n ${i}p PA >a1; sed -n ${i}p PB >b1; $M "
                        "--make-control-vector a1 b1 -o p$i.gguf >out 2>err || exit 1; done"),
                     0);
    ck_assert_int_eq(
        sh("%s - <<'E'\n"
           "import numpy as np\n"
           "def read(name):\n"
           "    b = open(name, 'rb').read()\n"
           "    at = b.rindex(b'direction.')\n"
           "    h = int.from_bytes(b[at + 15:at + 23], 'little')\n"
           "    return np.frombuffer(b[-7 * h * 4:], '<f4').reshape(7, h).astype(float)\n"
           "d = np.array([read(f'p{i}.gguf') for i in (1, 2, 3)])\n"
           "got = read('pca.gguf')\n"
           "for l in range(7):\n"
           "    v = np.linalg.eigh(d[:, l].T @ d[:, l])[1][:, -1]\n"
           "    want = v * (v @ d[:, l].mean(0))\n"
           "    assert np.abs(want - got[l]).max() < 1e-5 * np.abs(want).max(), l\n"
           "E",
           with),
        0);
}
END_TEST

START_TEST(vectors_are_refused)
{
    make_vector();
    ck_assert_int_eq(sh("$M -p x --control-vector %s >out 2>err", support_demo()), 3);
    ck_assert_int_eq(sh("head -c 5000 cv.gguf >cut.gguf; $M -p x --control-vector cut.gguf >out "
                        "2>err"),
                     3);
    ck_assert_int_eq(sh("sed 's/direction.7/direction.8/' cv.gguf >far.gguf; $M -p x "
                        "--control-vector far.gguf >out 2>err"),
                     3);
    ck_assert_int_eq(sh("grep -q 'last layer is 7' err"), 0);
    ck_assert_int_eq(sh("$T -m %s -p x --control-vector cv.gguf >out 2>err",
                        support_path("golden/families/qwen3_moe")),
                     3);
    ck_assert_int_eq(sh("$M -p x --control-vector none.gguf >out 2>err"), 5);
    ck_assert_int_eq(sh("$M -p x --control-vector cv.gguf --control-vector-layer-range 1 9 >out "
                        "2>err"),
                     2);
    ck_assert_int_eq(sh("$M --make-control-vector A none >out 2>err"), 5);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("edits");
    TCase *lines = tcase_create("lines"), *bits = tcase_create("bits"),
          *sessions = tcase_create("sessions"), *control = tcase_create("control");
    char command[100];
    int rc;

    if (!mkdtemp(folder))
        return 1;
    tcase_add_loop_test(lines, lines_are_read, 0, sizeof edited / sizeof *edited);
    tcase_add_loop_test(lines, bad_lines_are_refused, 0, sizeof bad / sizeof *bad);
    tcase_add_test(lines, files);
    tcase_add_loop_test(lines, without_is_a_smaller_router, 0, 4);
    tcase_add_loop_test(lines, too_few_are_left, 0, 3);
    suite_add_tcase(s, lines);
    tcase_add_unchecked_fixture(bits, setup, NULL);
    tcase_add_loop_test(bits, settings_do_not_change_it, 0, sizeof settings / sizeof *settings);
    tcase_add_test(bits, nothing_is_edited);
    tcase_add_test(bits, stored_states_are_apart);
    tcase_add_test(bits, the_trace_obeys);
    tcase_add_test(bits, refused);
    tcase_add_test(bits, requests_have_their_own);
    tcase_add_test(bits, lines_have_their_own);
    tcase_add_test(bits, a_cell_is_two_perplexities);
    tcase_add_test(bits, questions_are_ablated);
    tcase_add_test(bits, ablation_is_refused);
    suite_add_tcase(s, bits);
    tcase_add_loop_test(sessions, each_session_has_its_own, 0, sizeof models / sizeof *models);
    tcase_add_test(sessions, both_answers);
    suite_add_tcase(s, sessions);
    tcase_add_unchecked_fixture(control, setup, NULL);
    tcase_add_loop_test(control, steered_text_is_the_same_everywhere, 0,
                        sizeof steering / sizeof *steering);
    tcase_add_test(control, the_direction_is_added);
    tcase_add_test(control, directions_are_differences);
    tcase_add_test(control, principal_directions_are_numpys);
    tcase_add_test(control, vectors_are_refused);
    suite_add_tcase(s, control);
    rc = support_run(s);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : rc;
}
