/* Runs --spec-sweep; see sweep.h. Answers follow the options (sampling, -n), each from an empty
 * session, so that every arm prefills the same prompt and uses nothing of another arm's answer. */
#include "app/speculate/sweep.h"

#include "app/bench/load.h"
#include "app/bench/measured_turn.h"
#include "app/common/turns.h"
#include "app/setup/engine_options.h"
#include "app/setup/prompt.h"
#include "app/setup/sampling_options.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/run/report/roofline.h"

#include <string.h>
#include <unistd.h>

#define TOKENS 128 /* of an answer, unless -n is given */
#define PROMPTS 4  /* of the program's own, by default */

struct running {
    struct sweep *s;
    const struct options *o;
    struct engine *g;
    struct sampling sampling; /* the same seed for all */
    struct series token_ms;
    struct measured_turn turn;
    uint64_t plain_text;            /* hash of arm 0's answer */
    double plain_rate, plain_bytes; /* a second; a token */
    struct roofline roofline, draft_roofline;
    uint64_t read; /* bytes, of the running answer */
    const struct load_request *prompt;
};

/* A pass of the answer: the bytes of its rows, each expert counted once. */
static void count_pass(void *ctx, const struct routing *r)
{
    struct running *run = ctx;

    if (!r->prefill)
        run->read += run->roofline.head + roofline_rows_bytes(&run->roofline,
                                                              engine_info(run->g)->model,
                                                              r->experts, r->rows, r->pos);
}

/* A pass of the draft model; one with more rows than drafts is the prompt. */
static void count_draft(void *ctx, const struct routing *r)
{
    struct running *run = ctx;
    const struct model *m = engine_info(engine_draft_model(run->g))->model;

    if (r->rows <= DRAFT_MOST + 1)
        run->read += run->draft_roofline.head +
                     roofline_rows_bytes(&run->draft_roofline, m, r->experts, r->rows, r->pos);
}

static void observe(struct running *r)
{
    struct engine *draft = engine_draft_model(r->g);

    roofline_init(&r->roofline, engine_info(r->g)->model, (enum kv_type)r->o->cache_type_k,
                  (enum kv_type)r->o->cache_type_v);
    engine_observe_passes(r->g, count_pass, r);
    if (!draft)
        return;
    roofline_init(&r->draft_roofline, engine_info(draft)->model, KV_F16, KV_F16);
    engine_observe_passes(draft, count_draft, r);
}

static int take_arm(struct running *r, const struct sweep_arm *a, struct error *e)
{
    struct drafting d = {.n_max = a->k, .alpha = (float)r->o->spec_alpha, .always = !a->adaptive};
    int rc = acceptance_parse(a->policy, &d.accept, e);

    snprintf(d.type, sizeof d.type, "%s", a->drafter);
    return rc < 0 ? rc : engine_drafting_set(r->g, &d, e);
}

static int answer(struct running *r, const struct load_request *prompt,
                  struct turn_done_event *done, struct error *e)
{
    struct dialogue said = prompt->said;
    struct turn t = {
        .max_tokens = prompt->max_tokens, .ignore_eos = r->o->ignore_eos, .sampling = r->sampling};

    said.raw = r->o->raw || !engine_info(r->g)->chat;
    series_clear(&r->token_ms);
    r->read = 0;
    return measured_turn_run(&r->turn, r->g, &said, &t, done, e);
}

static int keep(struct running *r, int arm, int run, const struct turn_done_event *done,
                struct error *e)
{
    const struct speculation_figures *f = &engine_telemetry(r->g)->speculation;
    struct sweep *s = r->s;
    struct series_figures ms;
    struct sweep_sample x = {.arm = arm,
                             .prompt = s->prompts,
                             .run = run,
                             .ttft_ms = (double)done->ttft_ns * 1e-6,
                             .tokens = done->completion_tokens,
                             .drafted = done->drafted,
                             .accepted = done->accepted,
                             .changed = done->changed,
                             .passes = f->passes,
                             .bytes = r->read};
    double bytes = x.tokens > 1 ? (double)x.bytes / (x.tokens - 1) : 0;

    if (!MEM_ROOM(s->samples, s->n, s->room, 256))
        return error_set(e, ERR_MEMORY, "out of memory for the samples");
    if (series_summarise(&r->token_ms, &ms) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the samples");
    x.token_ms = ms.mean;
    x.token_sd_ms = ms.sd;
    x.rate = done->decode_ns ? (done->completion_tokens - 1) * 1e9 / (double)done->decode_ns : 0;
    if (!arm) {
        x.passes = (uint64_t)x.tokens;
        r->plain_rate = x.rate;
        r->plain_bytes = bytes;
        r->plain_text = r->turn.text;
    }
    x.gain = r->plain_rate > 0 ? x.rate / r->plain_rate : 0;
    x.reads = r->plain_bytes > 0 ? bytes / r->plain_bytes : 0;
    x.same = r->turn.text == r->plain_text;
    memcpy(x.tried, f->tried, sizeof x.tried);
    memcpy(x.right, f->right, sizeof x.right);
    s->samples[s->n++] = x;
    return 0;
}

static void tell(const struct running *r, int run, int arm)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\rprompt %d, run %d of %d, %d of %d settings \033[K", r->s->prompts + 1,
                run + 1, r->s->runs, arm + 1, r->s->n_arms);
}

static int run_arm(void *ctx, size_t arm, size_t position, int round, struct error *e)
{
    struct running *r = ctx;
    struct turn_done_event done;
    int rc;

    tell(r, round, (int)position);
    if ((rc = take_arm(r, &r->s->arms[arm], e)) == 0 && (rc = answer(r, r->prompt, &done, e)) == 0)
        rc = keep(r, (int)arm, round, &done, e);
    return rc;
}

/* Arm 0 first, the others in an order that is reversed with every run. The first answer does not
 * count: its weights may not be in memory yet. */
static int one_prompt(struct running *r, const struct load_request *prompt, struct error *e)
{
    struct sweep *s = r->s;
    const struct turns turns = {.n_arms = (size_t)s->n_arms,
                                .rounds = s->runs,
                                .order = TURNS_REFERENCE_MIRRORED,
                                .run = run_arm,
                                .ctx = r};
    struct turn_done_event done;
    int rc = take_arm(r, &s->arms[0], e);

    r->prompt = prompt;
    if (rc == 0 && !s->prompts)
        rc = answer(r, prompt, &done, e);
    if (rc == 0)
        rc = turns_run(&turns, e);
    s->prompts++;
    return rc;
}

static int most_tokens(const struct options *o)
{
    return o->n_predict > 0 ? o->n_predict : TOKENS;
}

/* The prompt of -p or -f. */
static int one_text(struct running *r, struct error *e)
{
    struct message m = {.role = ROLE_USER};
    struct load_request prompt = {.said = {.messages = &m, .n_messages = 1},
                                  .max_tokens = most_tokens(r->o)};
    int rc = prompt_read(r->o, &m.text, e);

    if (rc == 0)
        rc = one_prompt(r, &prompt, e);
    mem_free(m.text);
    return rc;
}

static int run(struct running *r, struct error *e)
{
    const struct options *o = r->o;
    struct load_requests all = {0};
    size_t most = o->bench_prompts ? SIZE_MAX : PROMPTS;
    int rc;

    if (o->prompt || o->file)
        return one_text(r, e);
    rc = load_requests_read(&all, o->bench_prompts, most_tokens(o), e);
    for (size_t i = 0; i < all.n && i < most && rc == 0; i++)
        rc = one_prompt(r, &all.request[i], e);
    load_requests_release(&all);
    return rc;
}

/* Fails if an exact policy changed a text. */
static int judge(const struct sweep *s, struct error *e)
{
    for (size_t i = 0; i < s->n && s->exact; i++)
        if (!s->samples[i].same)
            return error_set(e, ERR_INPUT,
                             "--spec-sweep: drafts by %s, K %d, changed the answer to prompt %d",
                             s->arms[s->samples[i].arm].drafter, s->arms[s->samples[i].arm].k,
                             s->samples[i].prompt + 1);
    return 0;
}

static int put_results(FILE *f, const void *ctx, struct error *e)
{
    return sweep_write(f, REPORT_JSON, ctx, e);
}

static int report(const struct sweep *s, const struct options *o, struct error *e)
{
    int rc = sweep_write(stdout, (enum report_format)o->bench_format, s, e);

    if (rc == 0 && o->bench_output)
        rc = report_file(o->bench_output, put_results, s, e);
    if (rc == 0 && o->plot)
        rc = sweep_draw(o->plot, s, e);
    return rc < 0 ? rc : judge(s, e);
}

/* The options with the maximum drafts of any arm, and every available drafter. */
static struct options widest(const struct sweep *s, const struct options *o)
{
    struct options out = *o; /* borrowed: only read */

    out.spec_draft_n_max = s->most_k;
    out.spec_type = 0; /* auto, the first word */
    return out;
}

int sweep_mode_run(struct options *o, struct error *e)
{
    struct sweep s = {.runs = o->bench_repetitions};
    struct running r = {.s = &s, .o = o, .turn.token_ms = &r.token_ms};
    struct options wide;
    struct error ignored;
    int rc = sweep_parse(&s, o, e);

    if (rc == 0) {
        wide = widest(&s, o);
        sampling_from_options(o, &r.sampling);
        rc = engine_setup_open(&wide, &r.g, e);
    }
    if (rc == 0) {
        observe(&r);
        rc = run(&r, e);
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    if (rc == 0)
        rc = report(&s, o, e);
    else if (rc == ERR_CANCELLED && s.n)
        report(&s, o, &ignored);
    engine_close(r.g);
    series_release(&r.token_ms);
    sweep_release(&s);
    return rc;
}
