/* The mode --bench: tests and arms, the order of their runs, the output. Main thread. The arms of a
 * test run in turn, one repetition each, so that changes of the machine's speed affect all of them
 * alike; a difference within the noise of the repetitions is reported as none. */
#include "app/bench/bench.h"

#include "app/bench/args.h"
#include "app/bench/internal.h"
#include "app/bench/memory_share.h"
#include "app/common/svg_plot.h"
#include "app/common/turns.h"
#include "app/setup/parallel.h"
#include "app/setup/test_text.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMBW_MS 60
#define PARALLEL_LIST 16

/* Everything that is freed at the end. */
struct run {
    struct bench b;
    struct bench_test *tests;
    size_t n_tests;
    struct bench_result *results;
    size_t n_results;
    int context;
    /* in progress; its results start at `first` */
    const struct bench_test *test;
    size_t first;
    struct memory_meter meter;
};

/* ---- tests ---- */

static int add_test(struct run *r, int prompt, int gen, int depth, int parallel, struct error *e)
{
    if (!prompt && !gen)
        return 0;
    if (!MEM_FIT(r->tests, r->n_tests + 1))
        return error_set(e, ERR_MEMORY, "out of memory for the tests");
    r->tests[r->n_tests++] = (struct bench_test){prompt, gen, depth, parallel};
    r->context = r->context > depth + prompt + gen ? r->context : depth + prompt + gen;
    return 0;
}

static int make_tests(struct run *r, const struct options *o, struct error *e)
{
    static char *p512[] = {"512"}, *n128[] = {"128"}, *d0[] = {"0"};
    const struct option_list prompts = o->bench_prompt.n ? o->bench_prompt
                                                         : (struct option_list){p512, 1};
    const struct option_list gens = o->bench_gen.n ? o->bench_gen : (struct option_list){n128, 1};
    const struct option_list depths = o->bench_depth.n ? o->bench_depth
                                                       : (struct option_list){d0, 1};
    int *p = NULL, *g = NULL, *pg = NULL, *d = NULL, rc = parallel_check(o, e);
    int np[PARALLEL_LIST], n_np = parallel_numbers(o, np, PARALLEL_LIST);
    size_t n_p, n_g, n_pg = 0, n_d;

    if (rc == 0 && n_np > PARALLEL_LIST)
        rc = error_set(e, ERR_USAGE, "--bench takes at most %d numbers for --parallel",
                       PARALLEL_LIST);
    if (rc == 0)
        rc = bench_numbers(&prompts, "-p", &p, &n_p, e);
    if (rc == 0)
        rc = bench_numbers(&gens, "-n", &g, &n_g, e);
    if (rc == 0)
        rc = bench_pairs(&o->bench_pg, "-pg", &pg, &n_pg, e);
    if (rc == 0)
        rc = bench_numbers(&depths, "-d", &d, &n_d, e);
    for (size_t k = 0; rc == 0 && k < n_d * (size_t)n_np; k++) {
        int depth = d[k / (size_t)n_np], parallel = np[k % (size_t)n_np];

        for (size_t i = 0; i < n_p && rc == 0; i++)
            rc = add_test(r, p[i], 0, depth, parallel, e);
        for (size_t i = 0; i < n_g && rc == 0; i++)
            rc = add_test(r, 0, g[i], depth, parallel, e);
        for (size_t i = 0; i < n_pg && rc == 0; i++)
            rc = add_test(r, pg[2 * i], pg[2 * i + 1], depth, parallel, e);
    }
    mem_free(p);
    mem_free(g);
    mem_free(pg);
    mem_free(d);
    if (rc == 0 && !r->n_tests)
        return error_set(e, ERR_USAGE,
                         "--bench: nothing to measure; give -p or -n something above 0");
    return rc;
}

static double read_memory(void *ctx, int threads)
{
    (void)ctx;
    return membw_read(NULL, 0, threads, MEMBW_MS);
}

/* Relates each sample to the memory bandwidth measured around it. */
static int take_share(struct bench_result *r, struct error *e)
{
    struct memory_sample *samples = mem_alloc(r->ns.n ? r->ns.n : 1, sizeof *samples);
    /* bytes that a token of this test reads */
    double best = fmax(r->bandwidth_before, r->bandwidth_after),
           bytes = r->roofline_ts > 0 ? best / r->roofline_ts : 0;
    size_t n = r->memory_after.n < r->ns.n ? r->memory_after.n : r->ns.n;
    struct memory_share m;
    char text[80];
    int rc = samples ? 0 : ERR_MEMORY;

    for (size_t i = 0; i < n && samples; i++)
        samples[i] = (struct memory_sample){
            r->memory_before.values[i], r->memory_after.values[i],
            r->ns.values[i] > 0 ? bytes * bench_result_tokens(r) / r->ns.values[i] * 1e9 : 0};
    if (rc == 0)
        rc = memory_share(samples, n, &m);
    mem_free(samples);
    if (rc < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the readings of the memory's speed");
    r->share = r->in_cache ? 0 : m.share;
    r->bandwidth_lowest = m.lowest;
    r->bandwidth_highest = m.highest;
    if (!r->in_cache && !r->remark[0] && memory_share_text(&m, text, sizeof text)[0])
        snprintf(r->remark, sizeof r->remark, "%s", text);
    return 0;
}

/* A decode rate is meaningful only relative to the memory bandwidth at that time. */
static int finish_result(struct bench_result *r, struct error *e)
{
    struct series_figures f;

    bench_result_rates(r, &f);
    r->median_ts = f.median;
    return r->roofline_ts > 0 ? take_share(r, e) : 0;
}

/* Repetition k of the test on an arm, between two bandwidth readings if memory-bound. A model in
 * the CPU cache is bound otherwise: a reading at the start and one at the end describe the machine.
 */
static int run_once(struct run *r, size_t arm, int k, struct error *e)
{
    const struct bench_test *t = r->test;
    struct bench_result *out = &r->results[r->first + arm];
    bool bound = t->n_gen || bench_is_batch(t), cached = r->b.arms[arm].in_cache,
         before = bound && (!cached || k == 0),
         after = bound && (!cached || k == r->b.o->bench_repetitions - 1);
    int threads = engine_info(r->b.arms[arm].g)->n_threads, rc = 0;
    double ns;

    if (before)
        rc = series_add(&out->memory_before, memory_meter_before(&r->meter, threads));
    if (rc == 0 && (rc = bench_once(&r->b, arm, t, (unsigned)k, true, &ns, e)) < 0)
        return rc;
    r->meter.threads = 0; /* the last reading is too old */
    if (rc == 0)
        rc = series_add(&out->ns, ns);
    if (rc == 0 && after)
        rc = series_add(&out->memory_after, memory_meter_after(&r->meter, threads));
    return rc < 0 ? error_set(e, ERR_MEMORY, "out of memory for the samples") : 0;
}

/* A warm-up, whose expert use is recorded, or a repetition. */
static int run_arm(void *ctx, size_t arm, size_t position, int round, struct error *e)
{
    struct run *r = ctx;
    double ns;
    int rc;

    if (round >= 0)
        return run_once(r, arm, round, e);
    r->b.counting = true;
    rc = bench_once(&r->b, arm, r->test, 1000, false, &ns, e);
    r->b.counting = false;
    return rc;
}

static int run_test(struct run *r, const struct bench_test *t, const struct options *o,
                    struct error *e)
{
    struct bench *b = &r->b;
    struct bench_result *mine;
    const struct turns turns = {.n_arms = b->n_arms,
                                .rounds = o->bench_repetitions,
                                .warm_ups = o->bench_warmup,
                                .run = run_arm,
                                .ctx = r};
    int rc;

    if (!MEM_FIT(r->results, r->n_results + b->n_arms))
        return error_set(e, ERR_MEMORY, "out of memory for the results");
    r->first = r->n_results;
    r->test = t;
    mine = r->results + r->first;
    memset(mine, 0, b->n_arms * sizeof *mine);
    r->n_results += b->n_arms;
    memset(b->load, 0, b->n_arms * sizeof *b->load);
    memset(b->energies, 0, b->n_arms * sizeof *b->energies);
    for (size_t i = 0; i < b->n_arms; i++) {
        series_clear(&b->token_ms[i]);
        usage_clear(&b->arms[i].usage);
    }
    r->meter.threads = 0; /* readings of the previous test are too old */
    rc = turns_run(&turns, e);
    for (size_t i = 0; i < b->n_arms && rc == 0; i++) {
        const struct series *before = &mine[i].memory_before, *after = &mine[i].memory_after;

        if ((rc = bench_place(&b->arms[i], e)) < 0)
            break;
        bench_describe(b, i, t, before->n ? before->values[0] : 0,
                       after->n ? after->values[after->n - 1] : 0, &mine[i]);
        rc = finish_result(&mine[i], e);
    }
    return rc;
}

/* ---- output ---- */

static void arms_line(FILE *f, const struct bench_result *a, const struct bench_result *b)
{
    struct series_figures x, y;
    const char *verdict;
    char test[128];

    bench_result_rates(a, &x);
    bench_result_rates(b, &y);
    bench_test_name(a, test, sizeof test);
    verdict = bench_verdict(&x, &y);
    fprintf(f, "%s: '%s' ", test, b->arm);
    if (strcmp(verdict, "none") == 0)
        fprintf(f, "and '%s': no difference beyond the noise", a->arm);
    else if (strcmp(verdict, "too few runs") == 0)
        fprintf(f, "and '%s' lie apart, but too few runs (%zu) cannot tell it from chance: -r 5",
                a->arm, x.n < y.n ? x.n : y.n);
    else
        fprintf(f, "is %.2f times as fast as '%s'", x.median > 0 ? y.median / x.median : 0, a->arm);
    fprintf(f, " (medians %.2f and %.2f tokens/s)\n", y.median, x.median);
}

static int put_report(FILE *f, const void *ctx, struct error *e)
{
    const struct run *r = ctx;

    bench_write_begin(f, REPORT_JSON);
    for (size_t i = 0; i < r->n_results; i++)
        bench_write_row(f, REPORT_JSON, &r->results[i], (int)i);
    bench_write_end(f, REPORT_JSON, (int)r->n_results);
    return 0;
}

static int draw(const struct run *r, const char *path, struct error *e)
{
    struct plot_bar *bars = mem_alloc(r->n_results ? r->n_results : 1, sizeof *bars);
    char(*labels)[300] = mem_alloc(r->n_results ? r->n_results : 1, sizeof *labels),
    (*notes)[40] = mem_alloc(r->n_results ? r->n_results : 1, sizeof *notes);
    char *drawings[2] = {NULL, NULL}, test[128];
    const struct usage *u = r->b.n_arms ? &r->b.arms[0].usage : NULL;
    int rc;

    for (size_t i = 0; i < r->n_results && bars && labels && notes; i++) {
        const struct bench_result *x = &r->results[i];

        bench_test_name(x, test, sizeof test);
        snprintf(labels[i], sizeof labels[i], "%s %s", test, x->arm[0] ? x->arm : x->placement);
        if (x->share > 0)
            snprintf(notes[i], sizeof notes[i], "%.0f %% of roof", 100 * x->share);
        bars[i] = (struct plot_bar){
            .label = labels[i], .note = notes[i], .limit = x->in_cache ? 0 : x->roofline_ts};
        bench_result_rates(x, &bars[i].figures);
    }
    if (bars && labels && notes) {
        drawings[0] = plot_bars("Speed: median, spread and roofline", "tokens/s", bars,
                                r->n_results);
        drawings[1] = u && u->tokens ? plot_map("Expert calls of the warm-up, first arm", u->count,
                                                NULL, u->n_layers, u->n_experts)
                                     : NULL;
        rc = plot_write(path, drawings, drawings[1] ? 2 : 1, e);
    } else {
        rc = error_set(e, ERR_MEMORY, "out of memory for '%s'", path);
    }
    for (int i = 0; i < 2; i++)
        mem_free(drawings[i]);
    mem_free(bars);
    mem_free(labels);
    mem_free(notes);
    return rc;
}

static void release(struct run *r)
{
    struct bench *b = &r->b;

    for (size_t i = 0; i < r->n_results; i++)
        bench_result_release(&r->results[i]);
    for (size_t i = 0; i < b->n_arms && b->token_ms; i++)
        series_release(&b->token_ms[i]);
    bench_arms_release(b);
    mem_free(r->results);
    mem_free(r->tests);
    mem_free(b->token_ms);
    mem_free(b->load);
    mem_free(b->energies);
    energy_free(b->energy);
    mem_free(b->logits);
    mem_free(b->text);
    system_free(b->system);
}

static int prepare(struct run *r, struct options *o, struct error *e)
{
    struct bench *b = &r->b;
    const struct engine_info *info;
    int rc = bench_arms_make(b, o, e);

    if (rc == 0)
        rc = bench_arms_open(b, r->context, e);
    if (rc < 0)
        return rc;
    info = engine_info(b->arms[0].g);
    b->system = system_new("");
    b->token_ms = mem_alloc(b->n_arms, sizeof *b->token_ms);
    b->load = mem_alloc(b->n_arms, sizeof *b->load);
    b->energy = energy_new("");
    b->energies = mem_alloc(b->n_arms, sizeof *b->energies);
    b->logits = mem_alloc((size_t)info->model->hp.n_vocab, sizeof *b->logits);
    if (!b->system || !b->token_ms || !b->load || !b->energies || !b->logits)
        return error_set(e, ERR_MEMORY, "out of memory for the benchmark");
    for (size_t i = 1; i < b->n_arms; i++)
        if (engine_info(b->arms[i].g)->model->hp.n_vocab != info->model->hp.n_vocab)
            return error_set(e, ERR_USAGE,
                             "--arms: the models have different vocabularies; measure them apart "
                             "and use --bench-compare");
    for (size_t i = 0; i < b->n_arms && rc == 0; i++) {
        enum bench_routing routing = (enum bench_routing)b->arms[i].o.routing;

        /* imposed routing needs no meaningful text: a model without a tokenizer is then measured
         * with random tokens */
        if (!b->text &&
            (routing == ROUTING_TEXT || (routing >= ROUTING_UNIFORM && info->tokenizer)))
            rc = test_text_ids(o->bench_text, info->tokenizer, &b->text, &b->n_text, e);
    }
    return rc;
}

/* Both reports in one plot, each row prefixed with its letter. */
static int draw_both(struct bench_result *const r[2], const size_t n[2], const char *path,
                     struct error *e)
{
    struct run both = {.n_results = n[0] + n[1]};
    int rc;

    both.results = mem_alloc(both.n_results, sizeof *both.results);
    if (!both.results)
        return error_set(e, ERR_MEMORY, "out of memory for '%s'", path);
    for (size_t i = 0; i < both.n_results; i++) {
        struct bench_result *x = &both.results[i];
        char arm[104];

        *x = i < n[0] ? r[0][i] : r[1][i - n[0]]; /* borrows the samples */
        snprintf(arm, sizeof arm, "%.100s", x->arm);
        snprintf(x->arm, sizeof x->arm, "%c%s%s", i < n[0] ? 'A' : 'B', arm[0] ? " " : "", arm);
    }
    rc = draw(&both, path, e);
    mem_free(both.results);
    return rc;
}

static int compare_files(const struct options *o, struct error *e)
{
    struct bench_result *r[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    int rc = 0;

    if (o->bench_compare.n != 2)
        return error_set(e, ERR_USAGE,
                         "--bench-compare takes two files: --bench-compare A.json B.json");
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = bench_read(&r[i], &n[i], o->bench_compare.items[i], e);
    if (rc == 0 && bench_compare(stdout, r[0], n[0], r[1], n[1]) == 0)
        rc = error_set(e, ERR_INPUT, "the two reports have no test in common");
    if (rc == 0 && o->plot)
        rc = draw_both(r, n, o->plot, e);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < n[i]; k++)
            bench_result_release(&r[i][k]);
        mem_free(r[i]);
    }
    return rc;
}

static int run_tests(struct run *r, const struct options *o, struct error *e)
{
    enum report_format format = (enum report_format)o->bench_format;
    struct bench *b = &r->b;
    int rc = 0;

    bench_write_begin(stdout, format);
    for (size_t i = 0; i < r->n_tests && rc == 0; i++) {
        size_t first = r->n_results;

        rc = run_test(r, &r->tests[i], o, e);
        for (size_t k = first; k < r->n_results && rc == 0; k++)
            bench_write_row(stdout, format, &r->results[k], (int)k);
    }
    bench_write_end(stdout, format, (int)r->n_results);
    for (size_t i = 0; i < r->n_results && rc == 0; i += b->n_arms)
        for (size_t k = 1; k < b->n_arms; k++)
            arms_line(stderr, &r->results[i], &r->results[i + k]);
    return rc;
}

/* The remark in a row is easily overlooked, and some formats are read by programs. */
static void warn_disturbed(const struct run *r)
{
    size_t n = 0, worst = 0;

    for (size_t i = r->n_results; i-- > 0;)
        if (r->results[i].disturbed) {
            n++;
            worst = i;
        }
    if (n)
        fprintf(stderr,
                "moetop: warning: %zu of %zu results: %s; measure again on a quiet machine\n", n,
                r->n_results, r->results[worst].remark);
}

/* The table has no column for what most machines hide. */
static void tell_energy(const struct run *r)
{
    const char *why = r->b.energy ? energy_why(r->b.energy) : "";

    if (*why)
        fprintf(stderr, "moetop: energy: N/A: %s\n", why);
}

static int verify_passes(struct run *r, struct options *o, struct error *e)
{
    int depth = r->tests[0].n_depth, rc;

    if (o->plot || o->bench_output || o->bench_prompts)
        rc = error_set(e, ERR_USAGE,
                       "--bench-verify prints a table (-o md, csv, json or jsonl) "
                       "and takes no --plot, --bench-output or --bench-prompts");
    else {
        r->context = bench_verify_context(o, depth);
        rc = prepare(r, o, e);
    }
    if (rc == 0)
        rc = bench_verify(&r->b, depth, e);
    release(r);
    return rc;
}

int bench_mode_run(struct options *o, struct error *e)
{
    struct run r = {.b = {.o = o}, .meter = {.read = read_memory}};
    int rc;

    if (o->bench_compare.n)
        return compare_files(o, e);
    if (o->microbench)
        return o->plot
                   ? error_set(e, ERR_USAGE, "--plot draws tests; --microbench prints a table only")
                   : bench_micro(o, e);
    if (o->connect)
        return bench_load(o, e);
    rc = make_tests(&r, o, e);
    if (rc == 0 && o->bench_verify)
        return verify_passes(&r, o, e);
    if (rc == 0 && o->bench_prompts)
        r.context = o->ctx_size > 0 ? o->ctx_size : 4096;
    if (rc == 0)
        rc = prepare(&r, o, e);
    if (rc == 0 && o->bench_prompts)
        rc = bench_suite(&r.b, o->bench_prompts, r.tests[r.n_tests - 1].n_gen, &r.results,
                         &r.n_results, e);
    else if (rc == 0)
        rc = run_tests(&r, o, e);
    if (rc == 0) {
        warn_disturbed(&r);
        tell_energy(&r);
    }
    if (rc == 0 && o->bench_output)
        rc = report_file(o->bench_output, put_report, &r, e);
    if (rc == 0 && o->plot)
        rc = draw(&r, o->plot, e);
    release(&r);
    return rc;
}
