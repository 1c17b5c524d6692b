/* Routing traces: the same whatever computes them, replayed to the same text, readable after a
 * kill; damaged files are refused; the report's figures are numpy's. With the real program on the
 * bundled model. */
#include "app/lab/record.h"
#include "app/lab/replay.h"
#include "app/lab/report.h"
#include "app/lab/token_class.h"
#include "app/setup/profile_file.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "gpu/opencl.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROMPT "-p 'Tell me a story about a fox.' --temp 0.9 --seed 7 -n 90"

/* Of the whole suite, made by main(): support_tmpdir's goes with the test that asks for it. */
static char folder[] = "/tmp/moetop-routing-XXXXXX";

static const char *at(const char *name)
{
    static char ring[8][400];
    static int i;

    i = (i + 1) & 7;
    snprintf(ring[i], sizeof ring[i], "%s/%s", folder, name);
    return ring[i];
}

#define sh(...) support_sh(folder, __VA_ARGS__)

static struct trace *open_trace(const char *name)
{
    struct trace *t;
    struct error e = {0};
    int rc = trace_open(&t, at(name), &e);

    ck_assert_msg(rc == 0, "%s", e.text);
    return t;
}

static void same_traces(const struct trace *a, const struct trace *b)
{
    struct trace_columns c = trace_columns(&a->head);

    ck_assert_uint_eq(a->n, b->n);
    ck_assert_int_eq(a->head.scores, b->head.scores);
    for (int k = 0; k < TRACE_COLUMN_COUNT; k++)
        for (uint64_t i = 0; i < a->n && c.bytes[k]; i++)
            ck_assert_msg(memcmp(trace_at(a, (enum trace_column)k, i),
                                 trace_at(b, (enum trace_column)k, i), c.bytes[k]) == 0,
                          "token %d, %s", (int)i, c.name[k]);
}

/* Traces that the tests start from: lines, with scores, columns. */
static void setup(void)
{
    if (access(at("a.safetensors"), F_OK) == 0)
        return;
    ck_assert_int_eq(sh("$M " PROMPT " >text 2>err"), 0);
    ck_assert_int_eq(sh("$M " PROMPT " --routing-trace a.jsonl >out 2>err && cmp out text"), 0);
    ck_assert_int_eq(sh("$M " PROMPT
                        " --routing-trace s.jsonl --routing-scores --routing-logprobs >out 2>err "
                        "&& cmp out text"),
                     0);
    ck_assert_int_eq(sh("$M " PROMPT " --routing-trace a.safetensors >out 2>err && cmp out text"),
                     0);
}

START_TEST(formats_hold_the_same)
{
    struct trace *a = open_trace("a.jsonl"), *b = open_trace("a.safetensors");

    same_traces(a, b);
    ck_assert_uint_eq(a->n, 100); /* 11 of the prompt, 90 - 1 of the answer */
    ck_assert_int_eq(a->sequences, 1);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(trace_int(a, COLUMN_POSITION, (uint64_t)i), i);
        ck_assert_int_eq(trace_int(a, COLUMN_MESSAGE, (uint64_t)i), i >= 10);
        ck_assert_int_eq(*trace_at(a, COLUMN_ROLE, (uint64_t)i), i >= 10 ? 2 : 1);
        ck_assert_int_eq(*trace_at(a, COLUMN_ANSWER, (uint64_t)i), i >= 11);
    }
    trace_close(a);
    trace_close(b);
    ck_assert_int_eq(access(at("a.safetensors.part"), F_OK), -1);
    /* scores beside it, and nothing else */
    ck_assert_int_eq(sh("sed 's/,\"scores\":\\[[^]]*\\]//;s/\"scores\":true/\"scores\":false/;"
                        "s/\"logprob\":[^,]*,//;s/\"logprobs\":true/\"logprobs\":false/' "
                        "s.jsonl | cmp - a.jsonl"),
                     0);
}
END_TEST

static const char *const settings[] = {"-t 1",
                                       "-t 3 -ub 7",
                                       "--kernels scalar",
                                       "--place gpu --device opencl:0",
                                       "--place hot:2M --device opencl:0",
                                       "--spec-type ngram",
                                       "--spec-type lookup --spec-draft-n-max 4",
                                       "--parallel 1 -ub 1"};

START_TEST(settings_do_not_change_it)
{
    static struct device_info info[DEVICE_MAX];
    const char *s = settings[_i];
    char why[300];
    int scored;

    if (strstr(s, "opencl") && opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why) < 1) {
        support_skip("no OpenCL device: %s", why);
        return;
    }
    ck_assert_int_eq(sh("$M " PROMPT " %s --routing-trace b.jsonl >out 2>err", s), 0);
    ck_assert_msg(sh("cmp a.jsonl b.jsonl && cmp out text") == 0, "%s", s);
    scored = sh("$M " PROMPT " %s --routing-scores --routing-logprobs --routing-trace b.jsonl >out "
                "2>err",
                s);
    ck_assert_int_eq(scored, 0);
    ck_assert_msg(sh("cmp s.jsonl b.jsonl && cmp out text") == 0, "%s", s);
    ck_assert_int_eq(sh("$M " PROMPT " %s --routing-replay a.safetensors >out 2>err", s), 0);
    ck_assert_msg(sh("cmp out text") == 0, "%s", s);
}
END_TEST

START_TEST(replaying_gives_the_same_text)
{
    ck_assert_int_eq(
        sh("$M " PROMPT " --routing-replay a.jsonl --routing-trace r.jsonl >out 2>err"), 0);
    ck_assert_int_eq(sh("cmp out text && sed 's/\"replay\"/\"router\"/' r.jsonl | cmp - a.jsonl"),
                     0);
    ck_assert_int_eq(sh("! grep -q router r.jsonl"), 0);
}
END_TEST

static const struct {
    const char *args, *says;
} refused[] = {
    {"-p 'Another text.' -n 3 --routing-replay a.jsonl", "none of its 1 sequences begins"},
    {"-p 'Tell me a story about a fox.' --temp 0.9 --seed 7 -n 99 --ignore-eos --routing-replay "
     "a.jsonl",
     "too short"},
    {"-p 'Tell me a story about a fox.' --temp 0.9 --seed 8 -n 90 --routing-replay a.jsonl",
     "the texts differ"},
    {"-p x --routing-replay other.jsonl", "is of 8 layers of 17 experts"},
    {"-p x --routing-replay /no/such.jsonl", "No such file"},
};

START_TEST(other_texts_are_refused)
{
    ck_assert_int_eq(sh("sed 's/\"experts\":16/\"experts\":17/' a.jsonl >other.jsonl"), 0);
    ck_assert_int_eq(sh("$M %s >out 2>err", refused[_i].args), _i == 4 ? 5 : 1);
    ck_assert_msg(sh("grep -q '%s' err", refused[_i].says) == 0, "%s", refused[_i].says);
}
END_TEST

START_TEST(wrong_flags_are_refused)
{
    ck_assert_int_eq(sh("$M -p x --routing-trace b.txt >out 2>err"), 2);
    ck_assert_int_eq(sh("$M -p x --routing-scores >out 2>err"), 2);
    ck_assert_int_eq(sh("$M -p x --routing-logprobs >out 2>err"), 2);
    ck_assert_int_eq(sh("$M --tokenize --routing-trace b.jsonl >out 2>err </dev/null"), 2);
    ck_assert_int_eq(sh("$M -p x --routing-trace /no/such/folder/b.jsonl >out 2>err"), 5);
    ck_assert_int_eq(sh("ln -sf /dev/full full.jsonl; $M -p x --routing-trace full.jsonl >out "
                        "2>err"),
                     5);
}
END_TEST

/* Lines that are answered side by side: whole sequences, from which each is replayed. */
START_TEST(batches_have_sequences)
{
    static const char *const with[] = {"1", "3"};
    struct trace *t;

    ck_assert_int_eq(
        sh("printf '%%s\\n' '{\"prompt\":\"A fox\"}' '{\"prompt\":\"A fox and a bear\"}' "
           "'{\"prompt\":\"A fox\"}' >in"),
        0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(sh("$M --batch in --parallel %s -n 20 --seed 3 --routing-trace b%d.jsonl "
                            "2>err | grep -o '\"text\":\"[^\"]*' >out%d",
                            with[i], i, i),
                         0);
    t = open_trace("b1.jsonl");
    ck_assert_int_eq(t->sequences, 3);
    trace_close(t);
    ck_assert_int_eq(sh("cmp out0 out1"), 0);
    ck_assert_int_eq(sh("for f in b0 b1; do tail -n +2 $f.jsonl | sed 's/\"sequence\":[0-9]*//' | "
                        "sort >$f.sorted; done; cmp b0.sorted b1.sorted"),
                     0);
    ck_assert_int_eq(
        sh("$M --batch in --parallel 3 -n 20 --seed 3 --routing-replay b0.jsonl 2>err | "
           "grep -o '\"text\":\"[^\"]*' | cmp - out0"),
        0);
}
END_TEST

static double perplexity(const char *args)
{
    double value = 0;
    FILE *f;

    ck_assert_int_eq(sh("$T %s --perplexity default --chunks 8 -c 128 2>err >out", args), 0);
    ck_assert_ptr_nonnull(f = fopen(at("out"), "r"));
    ck_assert_int_eq(fscanf(f, "Final estimate: PPL = %lf", &value), 1);
    fclose(f);
    return value;
}

/* The loss of a quantisation with its own routing, and with the original's. */
START_TEST(quantisation_with_the_originals_experts)
{
    char args[1200];
    double exact, own, replayed, again;

    ck_assert_int_eq(sh("$T --quantize q2_k %s q.gguf >out 2>err", support_demo()), 0);
    snprintf(args, sizeof args, "-m %s --routing-trace p.safetensors", support_demo());
    exact = perplexity(args);
    snprintf(args, sizeof args, "-m %s --routing-replay p.safetensors", support_demo());
    again = perplexity(args);
    own = perplexity("-m q.gguf");
    replayed = perplexity("-m q.gguf --routing-replay p.safetensors");
    ck_assert(exact == again && own > exact);
    ck_assert_msg(replayed != own && replayed > exact, "%g: %g, with the routing %g", exact, own,
                  replayed);
}
END_TEST

/* ---- the hooks ---- */

struct seen {
    struct routing observed; /* of the newest pass; its arrays are the engine's */
    int rows, passes, wrong, scored;
    int fail_at; /* the pass whose rows are refused; -1: none */
};

static void observe(void *ctx, const struct routing *r)
{
    ((struct seen *)ctx)->observed = *r;
}

/* The router's choice follows from the scores: the best one is chosen first. */
static int best_score(const struct routing *r, int layer, int row)
{
    const float *s = r->scores + (size_t)layer * r->score_stride +
                     (size_t)(row * r->model->hp.n_experts);
    int best = 0;

    for (int x = 1; x < r->model->hp.n_experts; x++)
        if (s[x] > s[best])
            best = x;
    return best;
}

static int note(void *ctx, const struct routing *r, struct error *e)
{
    struct seen *s = ctx;
    const struct routing *o = &s->observed;

    s->wrong += r->rows != o->rows || r->pos != o->pos || r->ids != o->ids ||
                r->experts != o->experts || r->weights != o->weights || r->imposed;
    for (int l = 0; l < r->n_layers; l++)
        for (int i = 0; i < r->rows && r->scores; i++)
            s->scored += best_score(r, l, i) ==
                         r->experts[(size_t)l * r->layer_stride + (size_t)(i * r->used)];
    s->rows += r->rows;
    return s->passes++ == s->fail_at ? error_set(e, ERR_IO, "the disk is full") : 0;
}

/* What observers see, whose rows check_golden compares with those of transformers; and a recorder's
 * failure ends the evaluation. */
START_TEST(hooks_see_what_observers_see)
{
    struct seen seen = {.fail_at = -1};
    struct routing_hooks hooks = {.rows = note, .scores = _i == 1, .ctx = &seen};
    struct engine_config c = {.model_path = support_demo(), .ubatch = 16, .routing = &hooks};
    struct engine *g;
    struct error e = {0};
    int ids[60];

    for (int i = 0; i < 60; i++)
        ids[i] = 100 + 7 * i;
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    engine_observe(g, observe, &seen);
    ck_assert_int_eq(engine_eval(g, ids, 50, NULL, false, &e), 0);
    for (int i = 50; i < 60; i++)
        ck_assert_int_eq(engine_eval(g, ids + i, 1, NULL, false, &e), 0);
    ck_assert_int_eq(seen.rows, 60);
    ck_assert_int_eq(seen.passes, 14);
    ck_assert_int_eq(seen.wrong, 0);
    ck_assert_int_eq(seen.scored, _i == 1 ? 60 * engine_info(g)->model->hp.n_layers : 0);
    seen.fail_at = seen.passes;
    ck_assert_int_eq(engine_eval(g, ids, 1, NULL, false, &e), ERR_IO);
    ck_assert_str_eq(e.text, "the disk is full");
    engine_close(g);
}
END_TEST

/* ---- log-probabilities ---- */

struct judged {
    float all[80];
    int n;
};

static int keep(void *ctx, const struct routing *r, struct error *e)
{
    struct judged *j = ctx;

    for (int i = 0; i < r->rows; i++)
        j->all[j->n++] = r->logprobs[i];
    return 0;
}

/* Each token's probability is that of the logits before it, however the text is cut into passes,
 * and in a second text as well. */
START_TEST(probabilities_are_the_logits)
{
    struct judged j = {.n = 0};
    struct routing_hooks hooks = {.rows = keep, .logprobs = true, .ctx = &j};
    struct engine_config c = {.model_path = support_demo(), .ubatch = 24, .routing = &hooks};
    struct error e = {0};
    struct engine *g;
    float *logits;
    int ids[40], n;

    for (int i = 0; i < 40; i++)
        ids[i] = 100 + 7 * i;
    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    n = engine_info(g)->model->hp.n_vocab;
    logits = calloc((size_t)40 * (size_t)n, sizeof *logits);
    ck_assert_int_eq(engine_eval(g, ids, 40, logits, true, &e), 0);
    engine_session_clear(g);
    ck_assert_int_eq(engine_eval_chunked(g, ids, 30, 7, NULL, false, &e), 0);
    for (int i = 30; i < 40; i++)
        ck_assert_int_eq(engine_eval(g, ids + i, 1, logits + (size_t)39 * (size_t)n, false, &e), 0);
    ck_assert_int_eq(j.n, 80);
    for (int i = 0; i < 80; i++) {
        const float *row;
        double sum = 0;

        if (i % 40 == 0) {
            ck_assert(isnan(j.all[i]));
            continue;
        }
        row = logits + (size_t)(i % 40 - 1) * (size_t)n;
        for (int x = 0; x < n; x++)
            sum += exp((double)row[x]);
        ck_assert_double_eq_tol((double)j.all[i], (double)row[ids[i % 40]] - log(sum), 1e-5);
    }
    free(logits);
    engine_close(g);
}
END_TEST

/* ---- scripts and stop words ---- */

START_TEST(texts_have_scripts)
{
    static const struct {
        const char *text;
        enum trace_script script;
        int stopword; /* of trace_stopword_words */
    } texts[] = {{" the", SCRIPT_LATIN, 1},
                 {" The", SCRIPT_LATIN, 1},
                 {" und", SCRIPT_LATIN, 2},
                 {" für", SCRIPT_LATIN, 2},
                 {" avec", SCRIPT_LATIN, 3},
                 {" más", SCRIPT_LATIN, 4},
                 {" più", SCRIPT_LATIN, 5},
                 {" não", SCRIPT_LATIN, 6},
                 {" het", SCRIPT_LATIN, 7},
                 {" fox", SCRIPT_LATIN, 0},
                 {" the fox", SCRIPT_LATIN, 0},
                 {" e", SCRIPT_LATIN, 0},
                 {"12, \xc3\x97", 0, 0},
                 {"1st", SCRIPT_LATIN, 0},
                 {" λόγος", SCRIPT_GREEK, 0},
                 {" лиса", SCRIPT_CYRILLIC, 0},
                 {"שועל", SCRIPT_HEBREW, 0},
                 {"ثعلب", SCRIPT_ARABIC, 0},
                 {"लोमड़ी", SCRIPT_DEVANAGARI, 0},
                 {"จิ้งจอก", SCRIPT_THAI, 0},
                 {"여우", SCRIPT_HANGUL, 0},
                 {"きつね", SCRIPT_KANA, 0},
                 {"狐", SCRIPT_HAN, 0},
                 {"。狐", SCRIPT_HAN, 0},
                 {"მელა", SCRIPT_OTHER, 0},
                 {"\xd0", SCRIPT_NONE, 0},
                 {"", SCRIPT_NONE, 0},
                 {" ", SCRIPT_NONE, 0},
                 {"\xf0\x9f\xa6\x8a", SCRIPT_NONE, 0}};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *s = texts[i].text;

        ck_assert_msg((int)text_script(s, strlen(s)) == (int)texts[i].script, "%s: %d", s,
                      (int)text_script(s, strlen(s)));
        ck_assert_msg(text_stopword(s, strlen(s)) == texts[i].stopword, "%s: %d", s,
                      text_stopword(s, strlen(s)));
    }
}
END_TEST

/* Traces of version 1, without scripts and with one `by` a token: read, reported and replayed. */
START_TEST(old_traces_are_read)
{
    struct trace *t;

    ck_assert_int_eq(sh("sed 's/\"moetop_routing\":2/\"moetop_routing\":1/;s/,\"logprobs\":false//;"
                        "s/\"script\":\"[a-z]*\",\"stopword\":\"[a-z]*\",//;"
                        "s/\"by\":\"router\"/\"by\":\"replay\"/' a.jsonl >old.jsonl"),
                     0);
    ck_assert_int_eq(
        sh("python3 - <<'E'\n"
           "import json\n"
           "b = open('a.safetensors', 'rb').read()\n"
           "n = int.from_bytes(b[:8], 'little')\n"
           "h = json.loads(b[8:8 + n])\n"
           "m = json.loads(h['__metadata__']['moetop_routing'])\n"
           "m['moetop_routing'] = 1\n"
           "del m['logprobs'], h['script'], h['stopword']\n"
           "h['__metadata__']['moetop_routing'] = json.dumps(m)\n"
           "k = h['by']['shape'][0]\n"
           "at = h['by']['data_offsets'][0]\n"
           "h['by'] = {'dtype': 'U8', 'shape': [k], 'data_offsets': [at, at + k]}\n"
           "d = bytearray(b[8 + n:])\n"
           "d[at:at + k] = bytes([1] * k)\n"
           "h = json.dumps(h).encode()\n"
           "open('old.safetensors', 'wb').write(len(h).to_bytes(8, 'little') + h + d)\n"
           "E"),
        0);
    for (int i = 0; i < 2; i++) {
        t = open_trace(i ? "old.jsonl" : "old.safetensors");
        ck_assert_uint_eq(t->n, 100);
        ck_assert_int_eq(t->head.version, 1);
        for (uint64_t k = 0; k < t->n; k++)
            for (int l = 0; l < t->head.layers; l++)
                ck_assert_int_eq(trace_by(t, k, l), BY_REPLAY);
        trace_close(t);
        ck_assert_int_eq(sh("$T --routing-report old.%s --report-json old.json >out 2>err && grep "
                            "-q '\"script\": null' old.json",
                            i ? "jsonl" : "safetensors"),
                         0);
        ck_assert_int_eq(sh("$M " PROMPT " --routing-replay old.%s >out 2>err && cmp out text",
                            i ? "jsonl" : "safetensors"),
                         0);
    }
}
END_TEST

/* ---- other models: dense layers, shared experts, groups, layers without a feed-forward ---- */

static const char *const families[] = {"qwen3_next",   "deepseek_v3", "nemotron_h", "gpt_oss",
                                       "ernie4_5_moe", "glm4_moe",    "lfm2_moe"};

static int record_begin(void *ctx, const struct engine_info *info, struct error *e)
{
    return recorder_model(ctx, info, e);
}

static int record_rows(void *ctx, const struct routing *r, struct error *e)
{
    return recorder_rows(ctx, r, e);
}

static int replay_begin(void *ctx, const struct engine_info *info, struct error *e)
{
    return routing_replay_model(ctx, info, e);
}

static int replay_rows(void *ctx, const struct session *s, int pos, const int *ids, int rows,
                       uint16_t *experts, float *weights, size_t stride, struct error *e)
{
    return routing_replay_rows(ctx, s, pos, ids, rows, experts, weights, stride, e);
}

/* Logits of the golden prompt's last token, computed in chunks of 7. */
static float *logits_with(const char *model, const struct routing_hooks *hooks,
                          const struct golden *golden)
{
    struct engine_config c = {.model_path = model,
                              .context = 512,
                              .ubatch = 64,
                              .kv_k = KV_F32,
                              .kv_v = KV_F32,
                              .convert = -1,
                              .no_tokenizer = true,
                              .exact = true, /* as the golden data */
                              .routing = hooks};
    float *logits = calloc((size_t)golden->n_vocab, sizeof *logits);
    struct engine *g;
    struct error e = {0};

    ck_assert_msg(engine_open(&g, &c, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_eval_chunked(g, golden->input_ids, golden->n, 7, logits, false, &e) == 0,
                  "%s: %s", model, e.text);
    engine_close(g);
    return logits;
}

/* Of the golden file's layer `l`, which is the model's `layer`. */
static void same_as_golden(const struct trace *t, const struct golden *g, int l, int layer)
{
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < g->used; k++) {
            size_t theirs = (size_t)((l * g->n + i) * g->used + k);
            int mine = 0;

            while (mine < t->head.used[layer] &&
                   trace_expert(t, (uint64_t)i, layer, mine) != g->experts[theirs])
                mine++;
            ck_assert_msg(mine < t->head.used[layer], "layer %d, token %d: no expert %d", layer, i,
                          g->experts[theirs]);
            ck_assert_float_eq_tol(trace_weight(t, (uint64_t)i, layer, mine), g->weights[theirs],
                                   1e-4f);
        }
}

START_TEST(families_are_recorded_and_replayed)
{
    char model[600], path[700], why[300];
    struct recorder *recorder;
    struct routing_replay *replay;
    struct routing_hooks hooks = {.begin = record_begin, .rows = record_rows, .scores = _i & 1};
    struct golden golden;
    struct error e = {0};
    float *plain, *recorded, *replayed;
    size_t bytes;
    struct trace *t;

    snprintf(model, sizeof model, "%s", support_path("golden/families"));
    snprintf(model + strlen(model), sizeof model - strlen(model), "/%s", families[_i]);
    snprintf(path, sizeof path, "%s/golden.safetensors", model);
    ck_assert_msg(golden_open(&golden, path, why, sizeof why) == 0, "%s", why);
    bytes = (size_t)golden.n_vocab * sizeof *plain;
    plain = logits_with(model, NULL, &golden);
    ck_assert_int_eq(
        recorder_open(&recorder, at("family.safetensors"), hooks.scores, hooks.logprobs, &e), 0);
    hooks.ctx = recorder;
    recorded = logits_with(model, &hooks, &golden);
    ck_assert_msg(recorder_close(recorder, &e) == 0, "%s", e.text);
    t = open_trace("family.safetensors");
    ck_assert_int_eq((int)t->n, golden.n);
    ck_assert_ptr_nonnull(golden.experts);
    for (int l = 0; l < golden.n_layers; l++)
        same_as_golden(t, &golden, l, golden.moe_layers ? golden.moe_layers[l] : l);
    trace_close(t);
    ck_assert_msg(routing_replay_open(&replay, at("family.safetensors"), &e) == 0, "%s", e.text);
    hooks = (struct routing_hooks){.begin = replay_begin, .impose = replay_rows, .ctx = replay};
    replayed = logits_with(model, &hooks, &golden);
    routing_replay_close(replay);
    ck_assert(memcmp(plain, recorded, bytes) == 0 && memcmp(plain, replayed, bytes) == 0);
    free(plain);
    free(recorded);
    free(replayed);
    golden_close(&golden);
}
END_TEST

/* ---- what a kill leaves ---- */

START_TEST(a_kill_leaves_what_was_written)
{
    const char *name = _i ? "k.safetensors" : "k.jsonl", *left = _i ? "k.safetensors.part" : name;
    struct trace *whole, *t;
    struct trace_columns c;

    ck_assert_int_eq(sh("$M --perplexity default -c 128 --routing-trace w.jsonl >out 2>err"), 0);
    /* on a busy machine it may be done before the kill: then once more */
    ck_assert_int_eq(
        sh("for i in 1 2 3 4 5 6; do rm -f k.*; "
           "$M --perplexity default -c 128 -t 1 --routing-trace %s >out 2>err & p=$!; "
           "while [ $(cat %s | wc -c) -lt 60000 ] && kill -0 $p; do :; done; kill -9 $p; wait $p; "
           "[ $? = 137 ] && exit; done 2>/dev/null; exit 1",
           name, left),
        0);
    whole = open_trace("w.jsonl");
    t = open_trace(left);
    c = trace_columns(&t->head);
    ck_assert_uint_gt(t->n, 20);
    ck_assert_uint_le(t->n, whole->n);
    for (uint64_t i = 0; i < t->n; i++)
        for (int k = 0; k < TRACE_COLUMN_COUNT; k++)
            ck_assert(!c.bytes[k] || !memcmp(trace_at(t, (enum trace_column)k, i),
                                             trace_at(whole, (enum trace_column)k, i), c.bytes[k]));
    trace_close(t);
    trace_close(whole);
    ck_assert_int_eq(sh("$T --routing-report %s >out 2>err", left), 0);
}
END_TEST

/* ---- damaged files ---- */

static void write_bytes(const char *name, const char *data, size_t n)
{
    FILE *f = fopen(at(name), "wb");

    ck_assert(f && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

static char *read_bytes(const char *name, size_t *n)
{
    FILE *f = fopen(at(name), "rb");
    char *data = malloc(1 << 22);

    ck_assert_ptr_nonnull(f);
    *n = fread(data, 1, (1 << 22) - 1, f);
    data[*n] = 0;
    fclose(f);
    return data;
}

/* Opens it; a report of what is accepted must come out. Returns whether it was accepted. */
static bool survives(const char *name)
{
    struct trace_report r;
    struct error e = {0};
    struct trace *t;
    json_t *o;

    if (trace_open(&t, at(name), &e) < 0) {
        ck_assert(e.text[0] && !strchr(e.text, '\n') && !t);
        ck_assert_msg(e.code == ERR_INPUT, "%s", e.text);
        return false;
    }
    if (trace_report_make(&r, t, &e) == 0) {
        ck_assert_ptr_nonnull(o = report_figures_json(&r, 1, NULL));
        json_decref(o);
        trace_report_release(&r);
    }
    trace_close(t);
    return true;
}

START_TEST(cut_files_are_noticed)
{
    size_t n, step;
    char *data = read_bytes(_i ? "a.safetensors" : "a.jsonl", &n);
    struct trace *t;

    step = n / 60;
    for (size_t cut = 0; cut < n; cut += step) {
        bool taken;

        write_bytes(_i ? "cut.safetensors" : "cut.jsonl", data, cut);
        taken = survives(_i ? "cut.safetensors" : "cut.jsonl");
        /* lines are good up to where they end; columns are not */
        ck_assert_int_eq(taken, !_i && cut > (size_t)(strchr(data, '\n') - data));
    }
    if (!_i) {
        write_bytes("cut.jsonl", data, n - 5);
        t = open_trace("cut.jsonl");
        ck_assert(t->torn && t->n == 99);
        trace_close(t);
    }
    free(data);
}
END_TEST

static const struct {
    const char *from, *to;
} changes[] = {
    {"\"moetop_routing\":2", "\"moetop_routing\":3"},
    {"\"layers\":8", "\"layers\":99999999999"},
    {"\"layers\":8", "\"layers\":-8"},
    {"\"slots\":2", "\"slots\":1"},
    {"\"experts\":16", "\"experts\":4"},
    {"\"routed\":[16", "\"routed\":[1"},
    {"\"used\":[2", "\"used\":[70000"},
    {"\"position\":1,", "\"position\":99999999999,"},
    {"\"position\":1,", "\"position\":-1,"},
    {"\"sequence\":0", "\"sequence\":7"},
    {"\"token\":4095", "\"token\":-4095"},
    {"\"token\":4095", "\"token\":1e999"},
    {"\"role\":\"user\"", "\"role\":\"king\""},
    {"\"layer\":1,", "\"layer\":8,"},
    {"\"weights\":[1,1]", "\"weights\":[NaN,1]"},
    {"\"weights\":[1,1]", "\"weights\":[1e39,1]"},
    {"\"weights\":[1,1]", "\"weights\":[1]"},
    {"\"experts\":[15,8]", "\"experts\":[15,15]"},
    {"\"experts\":[15,8]", "\"experts\":[16,8]"},
    {"\"experts\":[15,8]", "\"experts\":[15,8,3]"},
    {"\"experts\":[15,8]", "\"experts\":[15,-2]"},
    {"\"by\":\"router\"", "\"by\":7"},
    {"\"by\":\"router\"", "\"by\":\"dice\""},
    {"\"script\":\"", "\"script\":\"x"},
    {"\"stopword\":\"", "\"stopword\":\"x"},
    {"\"by\":\"router\"", "\"by\":\"router\",\"logprob\":0.5"},
    {"\"by\":\"router\"", "\"by\":\"router\",\"logprob\":\"no\""},
};

START_TEST(wrong_values_are_refused)
{
    size_t n;
    char *data = read_bytes("a.jsonl", &n), *at_text = strstr(data, changes[_i].from);
    size_t before;
    char *made = malloc(n + 100);

    ck_assert_msg(at_text != NULL, "%s", changes[_i].from);
    before = (size_t)(at_text - data);
    snprintf(made, n + 100, "%.*s%s%s", (int)before, data, changes[_i].to,
             at_text + strlen(changes[_i].from));
    write_bytes("wrong.jsonl", made, strlen(made));
    ck_assert_msg(!survives("wrong.jsonl"), "%s", changes[_i].to);
    ck_assert_int_eq(sh("$T --routing-report wrong.jsonl >out 2>err"), 1);
    ck_assert_int_eq(sh("test $(wc -l <err) = 1"), 0);
    free(data);
    free(made);
}
END_TEST

/* One byte of the columns anything: refused, or a trace with a report. */
START_TEST(any_byte_may_be_wrong)
{
    size_t n;
    char *data = read_bytes("a.safetensors", &n);

    for (size_t i = 0; i < n; i += n / 150) {
        char was = data[i];

        data[i] = (char)(was ^ (char)(0x80 | i % 127));
        write_bytes("bit.safetensors", data, n);
        survives("bit.safetensors");
        data[i] = was;
    }
    free(data);
}
END_TEST

/* ---- the report ---- */

START_TEST(figures_by_hand)
{
    static const double counts[] = {4, 0, 2, 2}, other[] = {0, 8, 0, 0};
    static const double table[] = {10, 20, 30, 40};
    double room[4];
    struct chi_square t = figure_chi_square(table, 2, 2),
                      tests[3] = {{.p = 0.04, .dof = 1},
                                  {.p = 0.01, .dof = 1},
                                  {.p = 0.03, .dof = 1}},
                      *all[3] = {&tests[0], &tests[1], &tests[2]};

    ck_assert_double_eq_tol(figure_entropy(counts, 4), 1.5, 1e-12);
    ck_assert_double_eq_tol(figure_gini(counts, 4, room), 0.375, 1e-12);
    ck_assert_double_eq_tol(figure_max_mean(counts, 4), 2, 1e-12);
    ck_assert_double_eq_tol(figure_divergence(counts, other, 4), 1, 1e-12);
    ck_assert_double_eq_tol(figure_divergence(counts, counts, 4), 0, 1e-12);
    ck_assert_int_eq(t.dof, 1);
    ck_assert_double_eq_tol(t.chi2, 100.0 / 126, 1e-12);
    ck_assert_double_eq_tol(t.p, erfc(sqrt(t.chi2 / 2)), 1e-12);
    ck_assert_int_eq(figure_holm(all, 3, NULL), 0);
    ck_assert_double_eq_tol(tests[1].p_holm, 0.03, 1e-12);
    ck_assert_double_eq_tol(tests[2].p_holm, 0.06, 1e-12);
    ck_assert_double_eq_tol(tests[0].p_holm, 0.06, 1e-12);
}
END_TEST

START_TEST(figures_are_numpys)
{
    const char *with = support_numpy();

    if (!with) {
        support_skip("python3 has no numpy");
        return;
    }
    ck_assert_int_eq(sh("$T --quantize q4_0 %s q.gguf >out 2>err", support_demo()), 0);
    ck_assert_int_eq(sh("$M --perplexity default -c 128 --routing-trace p.safetensors >out 2>err"),
                     0);
    ck_assert_int_eq(sh("$T -m q.gguf --perplexity default -c 128 --routing-trace q.jsonl "
                        "--routing-scores >out 2>err"),
                     0);
    ck_assert_int_eq(sh("$T --routing-report s.jsonl --report-json s.json >out 2>err"), 0);
    ck_assert_int_eq(sh("$T --routing-report p.safetensors --routing-report q.jsonl --report-json "
                        "both.json --report-html both.html >out 2>err"),
                     0);
    ck_assert_int_eq(sh("%s %s s.json s.jsonl", with, support_path("tools/routing_report.py")), 0);
    ck_assert_int_eq(sh("%s %s both.json p.safetensors q.jsonl", with,
                        support_path("tools/routing_report.py")),
                     0);
    /* and the check itself notices a figure that is off by a ten-thousandth */
    ck_assert_int_eq(sh("sed '0,/\"persistence\": 0\\.\\([0-9]\\)/s//\"persistence\": 0.0001\\1/' "
                        "s.json >wrong.json; %s %s wrong.json s.jsonl >out",
                        with, support_path("tools/routing_report.py")),
                     1);
}
END_TEST

START_TEST(a_page_stands_alone)
{
    ck_assert_int_eq(sh("$T --routing-report s.jsonl --report-html s.html --report-json - "
                        ">s.json 2>err"),
                     0);
    ck_assert_int_eq(sh("grep -q '<svg' s.html && ! grep -qE '(src|href)=' s.html"), 0);
    ck_assert_int_eq(sh("grep -q moetop-routing-report s.json"), 0);
    ck_assert_int_eq(sh("$T --routing-report a --routing-report b --routing-report c 2>err >out"),
                     2);
}
END_TEST

/* In the chat: begun and ended between answers, whose text stays; a trace begun in the middle holds
 * the whole text, for the session is then computed from its start. */
START_TEST(the_chat_records)
{
    static const char chat[] = "--cache-dir . -t 2 --seed 7 --temp 0.9 -n 40 --pace off 2>err";
    struct trace *whole, *first, *later;

    ck_assert_int_eq(sh("printf 'Tell me of a fox.\\nAnd a hen?\\n/quit\\n' | "
                        "$M %s --routing-trace w.jsonl >plain",
                        chat),
                     0);
    ck_assert_int_eq(sh("printf '%%s\\n' /routing-trace '/routing-trace x.txt' "
                        "'/routing-trace off' '/routing-trace c.jsonl' 'Tell me of a fox.' "
                        "'/routing-trace off' '/routing-trace scores logprobs c.safetensors' "
                        "'/routing-trace d.jsonl' 'And a hen?' /quit | $M %s >said",
                        chat),
                     0);
    ck_assert_int_eq(sh("cat said err | grep -q 'no routing is recorded' && cat said err | grep -q "
                        "'x.txt: a .jsonl or a .safetensors' && cat said err | grep -q "
                        "'nothing is recorded' && cat said err | grep -q 'c.safetensors is being "
                        "recorded' && ! test -e d.jsonl"),
                     0);
    whole = open_trace("w.jsonl");
    first = open_trace("c.jsonl");
    later = open_trace("c.safetensors");
    ck_assert_int_eq(later->sequences, 1);
    ck_assert(!first->head.scores && later->head.scores && later->head.logprobs);
    ck_assert_uint_gt(later->n, first->n + 20);
    for (uint64_t i = 0; i < first->n; i++) {
        ck_assert_int_eq(trace_int(first, COLUMN_TOKEN, i), trace_int(whole, COLUMN_TOKEN, i));
        for (int l = 0; l < 8; l++)
            ck_assert_int_eq(trace_expert(first, i, l, 0), trace_expert(whole, i, l, 0));
    }
    ck_assert_int_eq(trace_int(later, COLUMN_TOKEN, later->n - 1),
                     trace_int(whole, COLUMN_TOKEN, whole->n - 1));
    ck_assert_int_eq(trace_int(later, COLUMN_POSITION, later->n - 1),
                     trace_int(whole, COLUMN_POSITION, whole->n - 1));
    trace_close(whole);
    trace_close(first);
    trace_close(later);
}
END_TEST

/* A folder of drawings: twice the same bytes, and the numbers are those of the report. */
START_TEST(drawings_are_files)
{
    ck_assert_int_eq(sh("$T --routing-report s.jsonl --report-figures f/one --report-json s.json "
                        ">out 2>err && $T --routing-report s.jsonl --report-figures f/two >out"),
                     0);
    ck_assert_int_eq(sh("diff -r f/one f/two && ls f/one >names && grep -c '' names | grep -qx 18"),
                     0);
    ck_assert_int_eq(sh("cd f/one && for i in *.svg; do grep -q '^<svg' $i && grep -q '</svg>' $i "
                        "|| exit 1; done"),
                     0);
    ck_assert_int_eq(sh("grep -q \"\\\"median\\\": $(sed -n 2s/0,//p f/one/margin.csv),\" s.json"),
                     0);
    ck_assert_int_eq(sh("$T --routing-report s.jsonl --routing-report a.jsonl --report-figures "
                        "f/both >out && test -s f/both/1-load.csv -a -s f/both/2-gini.svg -a -s "
                        "f/both/overlap.csv"),
                     0);
    ck_assert_int_eq(sh("$T --routing-report s.jsonl --report-figures s.jsonl/x 2>err >out"), 5);
}
END_TEST

/* With -m: what k experts a layer give by the cost model; without, or without a device, why there
 * are no figures. */
START_TEST(placement_has_consequences)
{
    static struct device_info info[DEVICE_MAX];
    const char *with = support_numpy();
    char why[300];

    ck_assert_int_eq(
        sh("$T --routing-report s.jsonl >out 2>err && grep -q 'placement in tok/s: N/A, "
           "no model is named: -m tiny-storyteller-Q8_0.gguf' out"),
        0);
    ck_assert_int_eq(sh("$T --quantize q4_0 %s other.gguf >out 2>err", support_demo()), 0);
    ck_assert_int_eq(sh("$T -m other.gguf --routing-report s.jsonl >out 2>err"), 1);
    ck_assert_int_eq(sh("grep -q 'is not the model of s.jsonl (tiny-storyteller' err"), 0);
    if (opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why) < 1) {
        support_skip("no OpenCL device: %s", why);
        return;
    }
    ck_assert_int_eq(sh("$M --device opencl:0 --routing-report s.jsonl --report-json d.json >out "
                        "2>err"),
                     0);
    ck_assert_int_eq(
        sh("python3 - <<'E'\n"
           "import json\n"
           "p = json.load(open('d.json'))['traces'][0]['placement']\n"
           "r = p['rows']\n"
           "assert [x['experts'] for x in r] == [1, 2, 4, 8, 16], r\n"
           "assert p['cpu_tok_s'] > 0 and p['experts_gpu_tok_s'] > 0 and p['gpu_tok_s'] > 0\n"
           "assert all(x['hot_tok_s'] > 0 and x['hot_hits'] >= x['first_hits'] - 1e-9 for x in r)\n"
           "assert r[-1]['hot_hits'] == r[-1]['first_hits'] == 1\n"
           "assert abs(r[-1]['hot_tok_s'] / p['experts_gpu_tok_s'] - 1) < 1e-9\n"
           "E"),
        0);
    ck_assert_int_eq(sh("grep -q 'hot tok/s' out"), 0);
    if (with)
        ck_assert_int_eq(sh("%s %s d.json s.jsonl", with, support_path("tools/routing_report.py")),
                         0);
}
END_TEST

/* SGLang's counts are written, and read again as a profile. */
START_TEST(counts_become_a_profile)
{
    struct profile_facts facts;
    struct error e = {0};
    struct usage u;
    double sum = 0;

    static const char steps[] = "{\"logical_count\":[[[1,2],[3,4]],[[5,6],[7,8]]]}";

    ck_assert_int_eq(sh("$T --routing-report a.jsonl --routing-counts counts.json >out 2>err"), 0);
    ck_assert_msg(profile_read(&u, &facts, at("counts.json"), &e) == 0, "%s", e.text);
    ck_assert(u.n_layers == 8 && u.n_experts == 16 && facts.hash == 0);
    for (int x = 0; x < 16; x++)
        sum += u.count[x];
    ck_assert(sum == 200);
    usage_release(&u);
    profile_facts_release(&facts);
    /* a matrix for DeepSeek's and vLLM's balancers, read again */
    ck_assert_int_eq(sh("$T --routing-report a.jsonl --routing-counts counts.npy >out 2>err"), 0);
    ck_assert_msg(profile_read(&u, &facts, at("counts.npy"), &e) == 0, "%s", e.text);
    ck_assert(u.n_layers == 8 && u.n_experts == 16 && facts.hash == 0 && u.tokens == 200);
    usage_release(&u);
    ck_assert_int_eq(sh("$M -p Hi -n 5 --profile counts.npy --place hot:2M >out 2>err"), 0);
    if (support_numpy())
        ck_assert_int_eq(sh("%s -c \"import numpy, json; a = numpy.load('counts.npy'); assert "
                            "a.tolist() == json.load(open('counts.json'))['logical_count']; "
                            "numpy.save('f.npy', a.astype('f4')); numpy.save('t.npy', a.T)\"",
                            support_numpy()),
                         0);
    for (int cut = 0; cut < 140; cut += 3) { /* cut off anywhere */
        size_t n;
        char *data = read_bytes("counts.npy", &n);

        write_bytes("cut.npy", data, (size_t)cut + 6);
        ck_assert_int_eq(profile_read(&u, &facts, at("cut.npy"), &e), ERR_INPUT);
        data[20 + cut % 100] = 'x';
        write_bytes("cut.npy", data, n);
        if (profile_read(&u, &facts, at("cut.npy"), &e) == 0)
            usage_release(&u);
        free(data);
    }
    write_bytes("steps.json", steps, strlen(steps));
    ck_assert_msg(profile_read(&u, &facts, at("steps.json"), &e) == 0, "%s", e.text);
    ck_assert(u.n_layers == 2 && u.n_experts == 2 && u.count[0] == 6 && u.count[3] == 12);
    usage_release(&u);
    static const char *const bad[] = {
        "[]", "[[]]", "[[1,2],[3]]", "[[1,-2]]", "[[\"a\"]]", "[[[1]],[[1],[2]]]", "[1]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[100];

        snprintf(text, sizeof text, "{\"logical_count\":%s}", bad[i]);
        write_bytes("bad.json", text, strlen(text));
        ck_assert_msg(profile_read(&u, &facts, at("bad.json"), &e) == ERR_INPUT, "%s", bad[i]);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("routing");
    TCase *t = tcase_create("traces"), *files = tcase_create("files");
    char command[100];
    int rc;

    if (!mkdtemp(folder))
        return 1;

    tcase_add_unchecked_fixture(t, setup, NULL);
    tcase_add_test(t, formats_hold_the_same);
    tcase_add_loop_test(t, settings_do_not_change_it, 0, sizeof settings / sizeof *settings);
    tcase_add_test(t, replaying_gives_the_same_text);
    tcase_add_loop_test(t, other_texts_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(t, wrong_flags_are_refused);
    tcase_add_test(t, batches_have_sequences);
    tcase_add_test(t, quantisation_with_the_originals_experts);
    tcase_add_loop_test(t, hooks_see_what_observers_see, 0, 2);
    tcase_add_test(t, probabilities_are_the_logits);
    tcase_add_test(t, texts_have_scripts);
    tcase_add_test(t, old_traces_are_read);
    tcase_add_loop_test(t, families_are_recorded_and_replayed, 0,
                        sizeof families / sizeof *families);
    tcase_add_loop_test(t, a_kill_leaves_what_was_written, 0, 2);
    suite_add_tcase(s, t);
    tcase_add_unchecked_fixture(files, setup, NULL);
    tcase_add_loop_test(files, cut_files_are_noticed, 0, 2);
    tcase_add_loop_test(files, wrong_values_are_refused, 0, sizeof changes / sizeof *changes);
    tcase_add_test(files, any_byte_may_be_wrong);
    tcase_add_test(files, figures_by_hand);
    tcase_add_test(files, figures_are_numpys);
    tcase_add_test(files, a_page_stands_alone);
    tcase_add_test(files, drawings_are_files);
    tcase_add_test(t, the_chat_records);
    tcase_add_test(files, placement_has_consequences);
    tcase_add_test(files, counts_become_a_profile);
    suite_add_tcase(s, files);
    rc = support_run(s);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : rc;
}
