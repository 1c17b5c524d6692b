/* Lenses: what --lens writes against numpy's own forward passes and the official codes' streams, on
 * small checkpoints of many families; that looking changes no bit; flags. */
#include "app/lab/lens_dump.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"
#include "engine/run/lens/lens.h"
#include "tests/golden.h"
#include "tests/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/moetop-lens-XXXXXX";

#define sh(...) support_sh(folder, __VA_ARGS__)

static void family_path(char *out, size_t size, const char *name, const char *file)
{
    snprintf(out, size, "%s/golden/families/%s/%s", support_path(""), name, file);
}

static struct engine *open_family(const char *name, struct golden *golden)
{
    char path[600], why[300];
    struct error e = {0};
    struct engine *g;

    family_path(path, sizeof path, name, "golden.safetensors");
    ck_assert_msg(golden_open(golden, path, why, sizeof why) == 0, "%s", why);
    family_path(path, sizeof path, name, "");
    ck_assert_msg(golden_engine(&g, path, NULL, 2, -1, true, &e) == 0, "%s: %s", name, e.text);
    return g;
}

static const struct family {
    const char *name;
    bool attributes, pattern;
} families[] = {
    {"mixtral", true, true},    {"qwen3_moe", true, true},   {"qwen2_moe", true, true},
    {"granitemoe", true, true}, {"gpt_oss", true, true},     {"gemma4", true, true},
    {"gemma4_e", true, true},   {"deepseek_v3", true, true}, {"qwen3_next", true, true},
    {"lfm2_moe", true, true},   {"olmo2", true, true},       {"opt-350m", false, true},
};

/* The file agrees with numpy, and the engine goes on with the bits that it had. */
START_TEST(families_are_numpys)
{
    const struct family *f = &families[_i];
    struct golden golden;
    struct error e = {0};
    struct engine *g = open_family(f->name, &golden);
    size_t n_vocab = (size_t)golden.n_vocab;
    float *before = mem_alloc(n_vocab, sizeof *before), *after = mem_alloc(n_vocab, sizeof *after);
    const char *with = support_numpy();
    char path[600], model[600], truth[600];
    int n = golden.n;

    ck_assert(before && after);
    ck_assert_msg(engine_eval(g, golden.input_ids, n - 1, NULL, false, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_eval(g, golden.input_ids + n - 1, 1, before, false, &e) == 0, "%s",
                  e.text);
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, f->name);
    ck_assert_msg(lens_dump(g, 1, true, path, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_session_tokens(g, NULL), n);
    engine_session_rewind(g, n - 1);
    ck_assert_msg(engine_eval(g, golden.input_ids + n - 1, 1, after, false, &e) == 0, "%s", e.text);
    ck_assert_msg(memcmp(before, after, n_vocab * sizeof *before) == 0, "other bits behind a lens");
    engine_close(g);
    golden_close(&golden);
    mem_free(before);
    mem_free(after);
    if (!with) {
        support_skip("python3 has no numpy");
        return;
    }
    if (!f->attributes)
        return;
    family_path(model, sizeof model, f->name, "");
    family_path(truth, sizeof truth, f->name, "golden.safetensors");
    ck_assert_msg(sh("%s %s %s %s %s >%s.txt || { cat %s.txt; false; }", with,
                     support_path("tools/lens.py"), path, model, truth, f->name, f->name) == 0,
                  "%s", f->name);
}
END_TEST

/* Without numpy: a logit is its parts' sum, attention sums to 1, the last lens is the logit. */
START_TEST(parts_make_the_logit)
{
    const struct family *f = &families[_i];
    struct golden golden;
    struct error e = {0};
    struct engine *g = open_family(f->name, &golden);
    struct lens *l;
    int target = golden.input_ids[golden.n - 1], pos = golden.n - 2, n;
    float *by, *logits = mem_alloc((size_t)golden.n_vocab, sizeof *logits);
    const struct hparams *hp = &engine_info(g)->model->hp;
    double sum = 0;

    ck_assert_msg(engine_eval(g, golden.input_ids, pos, NULL, false, &e) == 0, "%s", e.text);
    ck_assert_msg(lens_new(&l, g, golden.n, &e) == 0, "%s", e.text);
    ck_assert_int_eq(engine_lens(g, l, 0, pos + 1, &e), ERR_USAGE);
    ck_assert_int_eq(engine_lens(g, l, 0, golden.n, &e), ERR_USAGE);
    ck_assert_msg(engine_lens(g, l, golden.input_ids[pos], pos, &e) == 0, "%s", e.text);
    ck_assert_msg(engine_lens_logits(g, l, l->layers, logits, &e) == 0, "%s", e.text);
    ck_assert_float_eq(logits[target], l->logits[target]);
    ck_assert_int_eq(l->attributes, f->attributes);
    n = 2 + l->layers * (1 + l->slots);
    by = mem_alloc((size_t)n, sizeof *by);
    if (f->attributes) {
        double capped;

        ck_assert_msg(engine_lens_parts(g, l, target, by, &e) == 0, "%s", e.text);
        for (int i = 0; i < n; i++)
            sum += (double)by[i];
        capped = hp->logit_cap != 0 ? (double)hp->logit_cap * tanh(sum / (double)hp->logit_cap)
                                    : sum;
        ck_assert_double_eq_tol(capped, (double)l->logits[target],
                                2e-5 * fmax(1, fabs((double)l->logits[target])));
    } else {
        ck_assert_int_eq(engine_lens_parts(g, l, target, by, &e), ERR_USAGE);
    }
    for (int i = 0; i < l->layers; i++) {
        const struct layer_shape *s = hparams_layer(hp, i);
        bool looks = s->mixer.kind == MIXER_ATTENTION || s->mixer.kind == MIXER_MLA;

        for (int h = 0; h < l->heads; h++) {
            const float *row = l->pattern + (size_t)(i * l->heads + h) * (size_t)l->positions;

            sum = 0;
            for (int p = 0; p < l->positions; p++)
                sum += (double)row[p];
            if (!looks || h >= s->mixer.heads)
                ck_assert_double_eq(sum, 0);
            else if (!s->mixer.sinks)
                ck_assert_double_eq_tol(sum, 1, 1e-6);
            else
                ck_assert(sum > 0 && sum < 1);
            ck_assert_float_eq(row[pos + 1], 0);
        }
    }
    lens_free(l);
    mem_free(by);
    mem_free(logits);
    engine_close(g);
    golden_close(&golden);
}
END_TEST

/* The program's flag: the text stays, the file is the same whatever computes it. */
START_TEST(the_flag_records_an_answer)
{
    static const char answer[] = "-p 'Tell me a story about a fox.' --temp 0.9 --seed 7 -n 40";

    ck_assert_int_eq(sh("$M %s >plain 2>err && $M %s --lens a.safetensors --lens-swaps >out && cmp "
                        "out plain && test -s a.safetensors && ! test -e a.safetensors.part",
                        answer, answer),
                     0);
    ck_assert_int_eq(sh("$M %s --lens b.safetensors --lens-swaps --kernels scalar -t 1 >out && "
                        "cmp a.safetensors b.safetensors",
                        answer),
                     0);
    ck_assert_int_eq(
        sh("$M %s --routing-trace t.jsonl >out && $M %s --routing-trace u.jsonl --lens "
           "c.safetensors >out && cmp t.jsonl u.jsonl",
           answer, answer),
        0);
}
END_TEST

/* What a paper says of an answer is derived again, byte for byte; one changed byte is noticed. */
START_TEST(bundles_are_derived_again)
{
    ck_assert_int_eq(sh("$M -p \"It's a fox\" --seed 7 -n 24 --paper-bundle paper >out 2>err"), 0);
    ck_assert_int_eq(sh("cd paper && test -s receipt.json -a -s hardware.txt -a -s versions.txt -a "
                        "-s figures/load.svg -a -s figures/load.csv"),
                     0);
    ck_assert_int_eq(sh("$M -p \"It's a fox\" --seed 7 -n 24 >plain 2>err && cmp plain "
                        "paper/answer.txt"),
                     0);
    ck_assert_int_eq(sh("mkdir w && cd w && sh ../paper/derive.sh >../same 2>../err"), 0);
    ck_assert_int_eq(sh("grep -c '^same  ' same | grep -qx 25 && ! grep -q DIFFERENT same"), 0);
    /* one byte, noticed by its checksum and by what is derived */
    ck_assert_int_eq(sh("cp -r paper other && printf X | dd of=other/lens.safetensors bs=1 "
                        "seek=9999 conv=notrunc 2>err && sh other/derive.sh >said 2>err"),
                     1);
    ck_assert_int_eq(sh("grep -q '^DIFFERENT  lens.safetensors' said && grep -q 'no longer' said"),
                     0);
    /* with a checksum to match: by what is derived alone */
    ck_assert_int_eq(sh("rm -r other && cp -r paper other && cd other && sed -i s/o/0/ answer.txt "
                        "&& find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum "
                        ">../S && mv ../S SHA256SUMS && sh derive.sh >../said 2>../err"),
                     1);
    ck_assert_int_eq(sh("test $(grep -c DIFFERENT said) = 1 && ! grep -q 'no longer' said"), 0);
    ck_assert_int_eq(sh("$M -p Hi --seed 7 --paper-bundle paper 2>err"), 2);
    ck_assert_int_eq(sh("$M -p Hi --seed 7 -n 0 --paper-bundle broken >out 2>err"), 5);
}
END_TEST

/* /lens: the same on every device; its sum is the logit; the drawn token of greedy answers is the
 * last layer's first; the chat goes on as if nothing had been asked. */
START_TEST(a_token_in_the_chat)
{
    ck_assert_int_eq(
        sh("say() { printf '%%s\n' 'Tell me a story about a fox.' \"$@\"; }; "
           "say 'And then?' | $M --plain --temp 0 -n 30 >plain 2>err && "
           "say '/token 12' '/lens 12 swap' '/lens 1' '/lens 12 attention' '/lens 12 attention "
           "L3.H1' '/lens 1 attention l7' '/token 12' 'And then?' >asked && "
           "for p in cpu gpu hot; do $M --plain --temp 0 -n 30 --place $p <asked "
           "2>err | sed 's/; [0-9.]* ms$//' >$p || exit 1; done; cmp cpu gpu && cmp cpu hot && "
           "head -1 cpu >a && head -1 plain | cmp - a && tail -1 cpu >a && tail -1 plain | cmp - "
           "a"),
        0);
    ck_assert_int_eq(sh("[ $(grep -c '^made by these experts' cpu) = 2 ] && "
                        "[ $(grep -c '^L7  .* 1 .*E14 ' cpu) -ge 1 ] && "
                        "[ $(grep -c '^L[0-7]   E' cpu) = 8 ] && "
                        "awk '/^logit / { n++; d = $2 - $5 - $8 - $11 - $14; if (d < -0.06 || d > "
                        "0.06) exit 1 } END { exit n != 2 }' cpu"),
                     0);
    /* the mean over all heads is what /lens says; nothing of the answer stood before its first
     * token
     */
    ck_assert_int_eq(
        sh("sed -n '/^its heads look at/{s/^its//;s/ (the mean.*//;p;q}' cpu >a && "
           "sed -n '/^the heads look at/{s/^the//;s/; .*//;p}' cpu | cmp a - && "
           "[ $(grep -c '^L3.H1 looks at.*; [0-9]* %% within the answer, [0-9]* %% "
           "before it$' cpu) = 1 ] && grep -q '^the heads of L7 look at.*; 0 %% within "
           "the answer, 100 %% before it$' cpu"),
        0);
    ck_assert_int_eq(
        sh("printf '%%s\n' Hi. '/lens 2 attention L9' '/lens 2 attention L1.H99' '/lens 2 "
           "attention H1' '/lens 2 attention L1.H1x' '/lens 2 swap L1' | $M --plain -n 4 >out "
           "2>err; grep -q 'layers are L0 to L7' err && grep -q 'heads of layer 1 are H0 to H' err "
           "&& [ $(grep -c '/lens N:' err) = 3 ]"),
        0);
    ck_assert_int_eq(sh("printf '%%s\n' Hi. /lens '/lens x' '/lens 99' '/lens 1 swop' | $M --plain "
                        "-n 4 >out 2>err; [ $(grep -c '/lens N:' err) = 3 ] && grep -q 'answer has "
                        "4 tokens' err"),
                     0);
}
END_TEST

/* The manual's example, from question to figure, as it stands there. */
START_TEST(the_manuals_example_runs)
{
    const char *build = getenv("CHECK_BUILD");

    ck_assert_int_eq(
        sh("ln -sf '%s/configs' . && mkdir -p bin && ln -sf '%s/%s/moetop' bin/moetop && sed -n "
           "'/^.SH FROM A QUESTION/,/^.fi/p' '%s/man/moetop-lab.7' | sed -n "
           "'/^M=/,/^.f.R/p' | sed '$d; s/.\\[rs\\]$/\\\\/' >example.sh && grep -c moetop "
           "example.sh | grep -qx 5 && PATH=$PWD/bin:$PATH sh -eu example.sh >out 2>err || { cat "
           "example.sh err; false; }",
           support_root(), build && build[0] == '/' ? "" : support_root(),
           build ? build : "build/release", support_root()),
        0);
    ck_assert_int_eq(sh("grep -q '<svg' routing.html && test -s routing.json -a -s "
                        "figures/overlap.csv"),
                     0);
}
END_TEST

static const struct wrong {
    const char *flags, *says;
    int status;
} wrongs[] = {
    {"-p a --paper-bundle x", "give --seed", 2},
    {"--seed 1 --paper-bundle x", "-p TEXT or -f FILE", 2},
    {"-p a --seed 1 --stats-json x --paper-bundle x", "sets --routing-trace", 2},
    {"-p a --lens x.txt", "a .safetensors file", 2},
    {"-p a --lens-swaps", "belongs to --lens", 2},
    {"--perplexity default --lens x.safetensors", "goes with -p", 2},
    {"-p a -n 1 --lens x.safetensors", "no token to look at", 2},
    {"-p Hello -n 8 --lens /nowhere/x.safetensors", "/nowhere/x.safetensors", 5},
};

START_TEST(wrong_flags_are_refused)
{
    const struct wrong *w = &wrongs[_i];

    ck_assert_int_eq(sh("$M %s >out 2>err", w->flags), w->status);
    ck_assert_msg(sh("grep -q -e '%s' err || { cat err; false; }", w->says) == 0, "%s", w->flags);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lens");
    TCase *t = tcase_create("lens");
    char command[100];
    int rc;

    if (!mkdtemp(folder))
        return 1;
    tcase_add_loop_test(t, families_are_numpys, 0, sizeof families / sizeof *families);
    tcase_add_loop_test(t, parts_make_the_logit, 0, sizeof families / sizeof *families);
    tcase_add_test(t, the_flag_records_an_answer);
    tcase_add_test(t, bundles_are_derived_again);
    tcase_add_test(t, a_token_in_the_chat);
    tcase_add_test(t, the_manuals_example_runs);
    tcase_add_loop_test(t, wrong_flags_are_refused, 0, sizeof wrongs / sizeof *wrongs);
    suite_add_tcase(s, t);
    rc = support_run(s);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : rc;
}
