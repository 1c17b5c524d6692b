/* --bench-prompts: whole turns, as in a chat, over a file of prompts: time to first token, prefill
 * and decode separately. Main thread. Greedy and past the end-of-answer token, so that every run of
 * a prompt computes the same tokens. */
#include "app/bench/internal.h"
#include "app/bench/measured_turn.h"
#include "app/common/turns.h"
#include "app/setup/test_text.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARMS_MOST 64

/* Results of a prompt on an arm: one sample per run. */
struct suite {
    struct bench *b;
    const char *file;
    int n_gen;
    struct bench_result **results;
    size_t *n;
    /* the current prompt; its pairs of results start at `first` */
    const char *prompt;
    size_t first;
    struct series *ttft_prompt;             /* per arm: ms */
    struct series *ttft, *prefill, *decode; /* per arm, all prompts: ms, tokens/s, tokens/s */
};

static int one_turn(struct suite *s, size_t arm, const char *prompt, struct series *token_ms,
                    struct turn_done_event *done, struct error *e)
{
    struct engine *g = s->b->arms[arm].g;
    struct message m = {.role = ROLE_USER, .text = (char *)prompt};
    struct dialogue said = {.messages = &m, .n_messages = 1, .raw = !engine_info(g)->chat};
    struct turn t = {.max_tokens = s->n_gen,
                     .ignore_eos = true,
                     .sampling = {.temperature = 0, .top_p = 1, .repeat_penalty = 1}};
    struct measured_turn turn = {.token_ms = token_ms};
    int rc = bench_place(&s->b->arms[arm], e);

    return rc < 0 ? rc : measured_turn_run(&turn, g, &said, &t, done, e);
}

/* Allocates a prompt's results: a pair per arm, prefill and decode. *first: the first of them. */
static int add_results(struct suite *s, size_t *first, struct error *e)
{
    struct bench *b = s->b;
    size_t n = b->n_arms;

    if (n > ARMS_MOST)
        return error_set(e, ERR_USAGE, "--bench-prompts: at most %d arms", ARMS_MOST);
    if (!MEM_FIT(*s->results, *s->n + 2 * n))
        return error_set(e, ERR_MEMORY, "out of memory for the results");
    *first = *s->n;
    memset(*s->results + *first, 0, 2 * n * sizeof **s->results);
    *s->n += 2 * n;
    memset(b->load, 0, n * sizeof *b->load);
    memset(b->energies, 0, n * sizeof *b->energies);
    for (size_t i = 0; i < n; i++)
        series_clear(&b->token_ms[i]);
    return 0;
}

static int warm_up(struct suite *s, size_t arm, const char *prompt, struct error *e)
{
    struct bench_arm *a = &s->b->arms[arm];
    struct turn_done_event done;
    int rc;

    usage_clear(&a->usage);
    engine_observe(a->g, bench_count_routing, &a->usage);
    rc = one_turn(s, arm, prompt, NULL, &done, e);
    engine_observe(a->g, NULL, NULL);
    return rc;
}

/* One run of a prompt on an arm; adds to its pair of results and the arm's series. */
static int measure_turn(struct suite *s, size_t arm, const char *prompt,
                        struct bench_result pair[2], struct series *ttft, struct error *e)
{
    struct bench *b = s->b;
    struct bench_result *read = &pair[0], *answer = &pair[1];
    struct turn_done_event done;
    int rc;

    bench_load_begin(b);
    rc = one_turn(s, arm, prompt, &b->token_ms[arm], &done, e);
    bench_load_end(b, arm, rc < 0 ? 0 : done.prompt_tokens + done.completion_tokens);
    if (rc < 0)
        return rc;
    read->n_prompt = done.prompt_tokens;
    answer->n_gen = done.completion_tokens > 1 ? done.completion_tokens - 1 : 0;
    rc = turns_sample(&read->ns, (double)done.prefill_ns, e);
    if (rc == 0 && answer->n_gen && done.decode_ns)
        rc = turns_sample(&answer->ns, (double)done.decode_ns, e);
    if (rc == 0)
        rc = turns_sample(ttft, (double)done.ttft_ns * 1e-6, e);
    if (rc == 0)
        rc = turns_sample(&s->ttft[arm], (double)done.ttft_ns * 1e-6, e);
    if (rc == 0 && done.prefill_ns)
        rc = turns_sample(&s->prefill[arm], done.prompt_tokens * 1e9 / (double)done.prefill_ns, e);
    if (rc == 0 && answer->n_gen && done.decode_ns)
        rc = turns_sample(&s->decode[arm], answer->n_gen * 1e9 / (double)done.decode_ns, e);
    return rc;
}

/* Completes and prints an arm's pair, whose first result is number `index` of the report. */
static void write_pair(struct suite *s, size_t arm, const char *prompt, struct bench_result pair[2],
                       const struct series *ttft, int index)
{
    for (int k = 0; k < 2; k++) {
        struct bench_result *r = &pair[k];
        struct bench_test t = {.n_prompt = r->n_prompt, .n_gen = r->n_gen, .parallel = 1};
        struct series_figures f;

        bench_describe(s->b, arm, &t, 0, 0, r);
        if (!k)
            r->token_p50_ms = r->token_p95_ms = 0; /* prefill has no single tokens */
        snprintf(r->test, sizeof r->test, "%s %.*s", k ? "tg" : "pp",
                 (int)utf8_fit(prompt, strlen(prompt), 60, NULL), prompt);
        if (series_summarise(ttft, &f) == 0 && !k)
            r->ttft_ms = f.median;
        bench_result_rates(r, &f);
        r->median_ts = f.median;
        bench_write_row(stdout, (enum report_format)s->b->o->bench_format, r, index + k);
    }
}

static int run_arm(void *ctx, size_t arm, size_t position, int round, struct error *e)
{
    struct suite *s = ctx;

    return round < 0 ? warm_up(s, arm, s->prompt, e)
                     : measure_turn(s, arm, s->prompt, &(*s->results)[s->first + 2 * arm],
                                    &s->ttft_prompt[arm], e);
}

static int one_prompt(struct suite *s, const char *prompt, struct error *e)
{
    const struct options *o = s->b->o;
    struct series ttft[ARMS_MOST] = {{0}};
    size_t n = s->b->n_arms;
    const struct turns turns = {.n_arms = n,
                                .rounds = o->bench_repetitions,
                                .warm_ups = o->bench_warmup,
                                .run = run_arm,
                                .ctx = s};
    int rc = add_results(s, &s->first, e);

    if (rc < 0)
        return rc;
    s->prompt = prompt;
    s->ttft_prompt = ttft;
    rc = turns_run(&turns, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        write_pair(s, i, prompt, &(*s->results)[s->first + 2 * i], &ttft[i],
                   (int)(s->first + 2 * i));
    for (size_t i = 0; i < n; i++)
        series_release(&ttft[i]);
    return rc;
}

static void put_figures(FILE *f, const char *what, const char *unit, const struct series *s)
{
    struct series_figures v;

    if (series_summarise(s, &v) == 0 && v.n)
        fprintf(f, "  %-22s median %10.2f, mean %10.2f ± %8.2f, p95 %10.2f %s (%zu runs)\n", what,
                v.median, v.mean, v.sd, v.p95, unit, v.n);
}

/* Memory, processor, disk and experts over all prompts of an arm: the newest values, maxima and
 * sums. */
static void put_machine(FILE *f, const struct suite *s, size_t arm)
{
    char rss[16], peak[16], read[16], written[16];
    double use = 0, mhz = NAN, seen = 0, p50 = 0, p95 = 0;
    uint64_t most = 0, in = 0, out = 0, reads = 0, writes = 0, now = 0;
    size_t rows = 0, answers = 0;

    for (size_t i = arm * 2; i + 1 < *s->n; i += 2 * s->b->n_arms) {
        /* both describe the same turns */
        const struct bench_result *r = &(*s->results)[i], *answer = r + 1;

        now = r->rss;
        most = r->rss_peak > most ? r->rss_peak : most;
        in += r->read_bytes;
        out += r->write_bytes;
        reads += r->read_calls;
        writes += r->write_calls;
        use += r->cpu_use;
        mhz = fmin(mhz, r->mhz);
        seen += r->experts_seen;
        rows++;
        if (answer->token_p50_ms > 0) {
            p50 += answer->token_p50_ms;
            p95 = fmax(p95, answer->token_p95_ms);
            answers++;
        }
    }
    if (!rows)
        return;
    if (answers)
        fprintf(f, "  %-22s p50 %.2f ms (mean of the prompts), p95 %.2f ms (the worst prompt)\n",
                "token time", p50 / (double)answers, p95);
    fprintf(f, "  %-22s %s now, %s at most\n", "memory", size_format(now, rss, sizeof rss),
            size_format(most, peak, sizeof peak));
    fprintf(f, "  %-22s %.2f CPUs", "processor", use / (double)rows);
    if (!isnan(mhz))
        fprintf(f, ", at least %.0f MHz", mhz);
    fprintf(f, "\n  %-22s %s read in %llu calls, %s written in %llu\n", "disk",
            size_format(in, read, sizeof read), (unsigned long long)reads,
            size_format(out, written, sizeof written), (unsigned long long)writes);
    if (seen > 0)
        fprintf(f, "  %-22s %.0f %% of all were used by a prompt and its answer\n", "experts",
                100 * seen / (double)rows);
}

static void put_summary(const struct suite *s)
{
    const struct bench *b = s->b;

    for (size_t i = 0; i < b->n_arms; i++) {
        struct series_figures a, z;

        fprintf(stderr, "%s\n", b->arms[i].label[0] ? b->arms[i].label : "all prompts");
        put_figures(stderr, "time to first token", "ms", &s->ttft[i]);
        put_figures(stderr, "prefill", "tokens/s", &s->prefill[i]);
        put_figures(stderr, "decode", "tokens/s", &s->decode[i]);
        put_machine(stderr, s, i);
        if (i && series_summarise(&s->decode[0], &a) == 0 &&
            series_summarise(&s->decode[i], &z) == 0)
            fprintf(stderr,
                    series_differ(&a, &z)
                        ? "  decode: %.2f times '%s'\n"
                        : "  decode: no difference beyond the noise (%.2f times '%s')\n",
                    a.median > 0 ? z.median / a.median : 0, b->arms[0].label);
    }
}

static int run_lines(struct suite *s, char *text, struct error *e)
{
    int rc = 0, prompts = 0;

    for (const char *line; rc == 0 && (line = test_text_line(&text)); prompts++)
        rc = one_prompt(s, line, e);
    if (rc == 0 && !prompts)
        return error_set(e, ERR_INPUT, "%s: no prompts in it (one a line)", s->file);
    return rc;
}

int bench_suite(struct bench *b, const char *file, int n_gen, struct bench_result **r, size_t *n,
                struct error *e)
{
    struct suite s = {.b = b, .file = file, .n_gen = n_gen > 0 ? n_gen : 128, .results = r, .n = n};
    struct series *all = mem_alloc(3 * b->n_arms, sizeof *all);
    char path[4096], *text = NULL;
    size_t size;
    int rc = all ? 0 : error_set(e, ERR_MEMORY, "out of memory for the prompts");

    if (rc == 0)
        rc = test_prompts_read(file, path, &text, &size, e);
    if (rc == 0) {
        s.ttft = all;
        s.prefill = all + b->n_arms;
        s.decode = all + 2 * b->n_arms;
        bench_write_begin(stdout, (enum report_format)b->o->bench_format);
        rc = run_lines(&s, text, e);
        bench_write_end(stdout, (enum report_format)b->o->bench_format, (int)*n);
        put_summary(&s);
    }
    for (size_t i = 0; all && i < 3 * b->n_arms; i++)
        series_release(&all[i]);
    mem_free(all);
    mem_free(text);
    return rc;
}
