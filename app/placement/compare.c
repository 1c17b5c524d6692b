/* See compare.h: the measuring. The mode and what it prints are in compare_report.c. */
#include "app/placement/compare.h"

#include "app/setup/resolve.h"
#include "app/common/energy.h"
#include "app/common/system_sample.h"
#include "app/common/turns.h"
#include "app/setup/plan_file.h"
#include "engine/base/clock.h"
#include "engine/base/divergence.h"
#include "engine/base/mem.h"
#include "engine/base/size.h"
#include "engine/placement/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK COMPARE_BLOCK
#define RANGE_POINTS 9

static int check_spec(const char *spec, struct error *e)
{
    struct planner_spec parsed;
    char path[4096];

    return plan_file_find(spec, path, sizeof path) ? 0 : planner_parse(&parsed, spec, e);
}

static int add_plan(struct compare *c, const char *text, double x, struct error *e)
{
    const char *plus = strstr(text, "+defer:"), *other = strstr(text, "+prompt:"),
               *end = plus ? plus : text + strlen(text);
    int defer = plus ? atoi(plus + 7) : 0, rc;
    struct compare_plan *more;
    char spec[PLAN_NAME + 16], prompt[PLAN_NAME + 16] = "";

    other = other && other < end ? other : NULL;
    snprintf(spec, sizeof spec, "%.*s", (int)((other ? other : end) - text), text);
    if (other)
        snprintf(prompt, sizeof prompt, "%.*s", (int)(end - other - 8), other + 8);
    if (strlen(spec) >= PLAN_NAME - 12 || strlen(prompt) >= PLAN_NAME - 12)
        return error_set(e, ERR_USAGE, "--compare: '%.30s...' is too long", text);
    if (plus && (defer < 1 || defer > 64))
        return error_set(
            e, ERR_USAGE,
            "--compare: '%s': write the number of experts that may be late, for example +defer:1",
            text);
    if ((rc = check_spec(spec, e)) < 0 || (other && (rc = check_spec(prompt, e)) < 0))
        return error_prefix(e, "--compare");
    if (c->n == COMPARE_MAX)
        return error_set(e, ERR_USAGE, "--compare: more than %d plans", COMPARE_MAX);
    if (!MEM_FIT(c->plans, c->n + 1))
        return error_set(e, ERR_MEMORY, "out of memory for the comparison");
    more = c->plans + c->n++;
    memset(more, 0, sizeof *more);
    strcpy(more->spec, spec);
    strcpy(more->prompt, prompt);
    more->defer = defer;
    more->x = x;
    more->same_tokens = more->same_bits = true;
    return 0;
}

/* Parses "layers:0..32+4" from the name's colon on. Both sizes and counts are numbers of bytes
 * here. */
static int add_range(struct compare *c, const char *item, const char *dots, struct error *e)
{
    char from[64], to[64], *plus, spec[PLAN_NAME];
    const char *colon = NULL; /* the last one before the dots: layers:first:0..8 */
    uint64_t a, b, step = 0;
    bool sizes;

    for (const char *p = item; p < dots; p++)
        colon = *p == ':' ? p : colon;

    if (!colon || dots - colon > 40 || strlen(dots) > 40)
        return error_set(
            e, ERR_USAGE,
            "--compare: '%s': a range looks like layers:0..8, layers:0..32+4 or hot:0..600M", item);
    snprintf(from, sizeof from, "%.*s", (int)(dots - colon - 1), colon + 1);
    snprintf(to, sizeof to, "%s", dots + 2);
    if ((plus = strchr(to, '+')))
        *plus++ = 0;
    if (size_parse(from, &a) < 0 || size_parse(to, &b) < 0 || a > b ||
        (plus && (size_parse(plus, &step) < 0 || step == 0)))
        return error_set(
            e, ERR_USAGE,
            "--compare: '%s': a range looks like layers:0..8, layers:0..32+4 or hot:0..600M", item);
    sizes = strncmp(item, "layers", 6) != 0 && strncmp(item, "experts:", 8) != 0;
    if (!step)
        step = b - a < RANGE_POINTS ? 1 : (b - a + RANGE_POINTS - 2) / (RANGE_POINTS - 1);
    c->range = true;
    for (uint64_t v = a;; v = v + step < b ? v + step : b) {
        int rc;

        snprintf(spec, sizeof spec, "%.*s%llu", (int)(colon - item + 1), item,
                 (unsigned long long)v);
        if (sizes && v >= 1 << 20)
            snprintf(spec, sizeof spec, v % (1 << 20) ? "%.*s%.1fM" : "%.*s%.0fM",
                     (int)(colon - item + 1), item, (double)v / (1 << 20));
        rc = add_plan(c, spec, sizes ? (double)v / (1 << 20) : (double)v, e);
        if (rc < 0 || v == b)
            return rc;
    }
}

int compare_parse(struct compare *c, const char *list, struct error *e)
{
    int rc = 0;

    while (*list && rc == 0) {
        size_t n = strcspn(list, ",");
        char item[160];
        const char *dots;

        if (n == 0 || n >= sizeof item)
            return error_set(
                e, ERR_USAGE,
                "--compare: write placements with commas, for example cpu,gpu,hot:600M");
        memcpy(item, list, n);
        item[n] = 0;
        dots = strstr(item, "..");
        rc = dots && !strchr(item, '/') ? add_range(c, item, dots, e) : add_plan(c, item, 0, e);
        list += n;
        if (*list == ',' && !*++list && rc == 0)
            return error_set(e, ERR_USAGE, "--compare: nothing after the last comma");
    }
    if (rc == 0 && c->n == 0)
        return error_set(e, ERR_USAGE,
                         "--compare: write placements with commas, for example cpu,gpu,hot:600M");
    return rc;
}

void compare_release(struct compare *c)
{
    for (size_t i = 0; i < c->n; i++) {
        series_release(&c->plans[i].prefill);
        series_release(&c->plans[i].decode);
        series_release(&c->plans[i].ratio);
        plan_free(c->plans[i].plan);
        plan_free(c->plans[i].prompt_plan);
    }
    mem_free(c->plans);
    memset(c, 0, sizeof *c);
}

/* State of a comparison. */
struct work {
    struct compare *c;
    struct engine *g;
    const int *ids; /* (n_ids): the prompt */
    int n_ids, n_vocab, n_gen;
    int last;        /* token of the prompt */
    int from, block; /* tokens of the answer in the current block */
    int *text;       /* n_gen + 1 tokens: the answer of the first plan */
    /* (n_vocab), (1 + n_gen, n_vocab): the first plan's, after the prompt and after each token */
    float *logits, *wanted;
    const char *prompt;     /* the spec of the plan in force */
    double ns[COMPARE_MAX]; /* of the current block under each plan */
    struct turns turns;     /* arms and the stop callback */
    struct energy *energy;  /* NULL: no memory */
};

static int argmax(const float *logits, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void devices_now(const struct engine *g, struct device_stats out[DEVICE_MAX], int *n)
{
    const struct telemetry *t = engine_telemetry(g);

    *n = t->n_devices;
    memcpy(out, t->devices, sizeof t->devices);
}

static void charge(struct compare_plan *p, const struct device_stats *before,
                   const struct device_stats *after, int n_devices, double tokens)
{
    for (int d = 0; d < n_devices; d++) {
        p->share[d] += (double)(after[d].busy_ns - before[d].busy_ns);
        p->wait_ms += (double)(after[d].wait_ns - before[d].wait_ns) * 1e-6;
        p->transfer_ms += (double)(after[d].transfer_ns - before[d].transfer_ns) * 1e-6;
    }
    (void)tokens;
}

static int apply(struct work *w, struct compare_plan *p, struct error *e)
{
    uint64_t start = clock_now(), moved = engine_telemetry(w->g)->moved_bytes;
    /* the prompts' plan of the plan before must not count beside this one's */
    int rc = strcmp(p->prompt, w->prompt) || engine_prompt_plan(w->g)
                 ? place_prompt_kept(w->g, NULL, NULL, e)
                 : 0;
    char names[PLACE_NAMES];
    double ms;

    w->prompt = p->prompt;
    if (rc == 0)
        rc = place_kept(w->g, p->spec, &p->plan, e);
    if (rc == 0)
        rc = place_prompt_kept(w->g, p->prompt, &p->prompt_plan, e);
    ms = (double)(clock_now() - start) * 1e-6;

    if (!p->expected_decode)
        p->expected_decode = engine_expected(w->g, PHASE_TOKENS);
    if (!p->expected_prefill)
        p->expected_prefill = engine_expected(w->g, PHASE_PROMPT);
    p->moved_bytes += engine_telemetry(w->g)->moved_bytes - moved;
    p->switch_ms = p->switch_ms > 0 ? p->switch_ms + 0.2 * (ms - p->switch_ms) : ms;
    engine_defer_set(w->g, p->defer);
    snprintf(p->name, sizeof p->name, p->defer ? "%.120s+defer:%d" : "%.120s",
             place_names(w->g, names), p->defer);
    p->on_device = plan_uses_devices(engine_plan(w->g)) ||
                   (engine_prompt_plan(w->g) && plan_uses_devices(engine_prompt_plan(w->g)));
    return rc;
}

static void check_logits(struct work *w, struct compare_plan *p, int at)
{
    const float *wanted = w->wanted + (size_t)at * (size_t)w->n_vocab;
    bool changed;

    if (memcmp(wanted, w->logits, (size_t)w->n_vocab * sizeof *wanted) == 0)
        return;
    p->same_bits = false;
    p->kl += divergence_kl(wanted, w->logits, w->n_vocab, &changed);
    for (int i = 0; i < w->n_vocab; i++)
        p->worst_difference = fmax(p->worst_difference,
                                   fabs((double)wanted[i] - (double)w->logits[i]));
    if (changed) {
        p->same_tokens = false;
        p->changed++;
    }
}

/* Counted so far, of processor and GPU. */
static double joules_now(struct work *w)
{
    struct energy_reading r;
    double sum = 0;

    if (!w->energy)
        return 0;
    energy_read(w->energy, &r);
    for (int i = 0; i < ENERGY_SOURCES; i++)
        sum += isnan(r.joules[i]) ? 0 : r.joules[i];
    return sum;
}

/* Computes the tokens of the block under one plan. */
static int one_block(struct work *w, size_t plan, bool counted, struct error *e)
{
    struct compare_plan *p = &w->c->plans[plan];
    int start = w->n_ids, from = w->from, n = w->block;
    struct device_stats before[DEVICE_MAX], after[DEVICE_MAX];
    double ns = 0, joules;
    int n_devices, rc = apply(w, p, e);

    /* the previous token once more, untimed, so that caches and clocks are in the state of this
     * plan, not of the previous one */
    engine_session_rewind(w->g, start + from - 1);
    if (rc == 0)
        rc = engine_eval(w->g, from ? &w->text[from - 1] : &w->last, 1, NULL, false, e);
    devices_now(w->g, before, &n_devices);
    joules = joules_now(w);
    for (int i = from; i < from + n && rc == 0; i++) {
        uint64_t t = clock_now();

        rc = engine_eval(w->g, &w->text[i], 1, w->logits, false, e);
        ns += (double)(clock_now() - t);
        if (rc < 0)
            break;
        /* for the first plan too: all plans must do the same work between two tokens */
        if (!p->defer)
            check_logits(w, p, i + 1);
    }
    if (rc < 0)
        return rc;
    joules = joules_now(w) - joules;
    devices_now(w->g, after, &n_devices);
    /* KV rows of a lossy block would affect the next block of the others: compute them again */
    if (p->defer) {
        engine_defer_set(w->g, 0);
        engine_session_rewind(w->g, start + from - 1);
        rc = engine_eval(w->g, from ? &w->text[from - 1] : &w->last, 1, NULL, false, e);
        if (rc == 0)
            rc = engine_eval_chunked(w->g, w->text + from, n, n, NULL, false, e);
        if (rc < 0)
            return rc;
    }
    if (!counted)
        return 0;
    charge(p, before, after, n_devices, n);
    p->joules += joules;
    w->c->n_devices = n_devices > w->c->n_devices ? n_devices : w->c->n_devices;
    w->ns[plan] = ns;
    return turns_sample(&p->decode, clock_rate(n, (uint64_t)ns), e);
}

static int run_block(void *ctx, size_t plan, size_t position, int round, struct error *e)
{
    struct work *w = ctx;

    return one_block(w, plan, round >= 0, e);
}

static int keep_ratios(void *ctx, int round, struct error *e)
{
    struct work *w = ctx;
    struct compare *c = w->c;
    int rc = 0;

    for (size_t i = 0; i < c->n && rc == 0 && round >= 0; i++)
        rc = turns_sample(&c->plans[i].ratio, log(w->ns[0] / w->ns[i]), e);
    return rc;
}

/* One block under every plan; every second round has the reverse order, across prompts and repeats.
 */
static int run_round(struct work *w, int from, bool counted, struct error *e)
{
    struct turns t = w->turns;

    t.order = TURNS_BALANCED;
    t.begun = w->c->rounds;
    t.rounds = counted;
    t.warm_ups = !counted;
    t.run = run_block;
    t.round_done = keep_ratios;
    w->from = from;
    w->block = w->n_gen - from < BLOCK ? w->n_gen - from : BLOCK;
    w->c->rounds += counted;
    return turns_run(&t, e);
}

/* The loss of a deferred plan: the whole answer under it, each token after the exact ones. */
static int loss_pass(struct work *w, size_t plan, struct error *e)
{
    struct compare_plan *p = &w->c->plans[plan];
    int rc = apply(w, p, e);

    engine_session_rewind(w->g, w->n_ids);
    for (int i = 0; i < w->n_gen && rc == 0; i++) {
        rc = engine_eval(w->g, &w->text[i], 1, w->logits, false, e);
        if (rc == 0)
            check_logits(w, p, i + 1);
    }
    engine_defer_set(w->g, 0);
    return rc;
}

/* The answer that all plans compute, and its logits: by the first plan, untimed, so that no plan is
 * timed on tokens computed for the first time. */
static int say_text(struct work *w, struct error *e)
{
    int rc = apply(w, &w->c->plans[0], e);

    engine_session_clear(w->g);
    if (rc == 0)
        rc = engine_eval(w->g, w->ids, w->n_ids, w->wanted, false, e);
    for (int i = 0; i < w->n_gen && rc == 0; i++) {
        float *logits = w->wanted + (size_t)i * (size_t)w->n_vocab;

        w->text[i] = argmax(logits, w->n_vocab);
        rc = engine_eval(w->g, &w->text[i], 1, logits + w->n_vocab, false, e);
        if (rc == 0 && (i + 1) % BLOCK == 0 && w->turns.stop && w->turns.stop(w->turns.stop_ctx))
            rc = error_set(e, ERR_CANCELLED, "interrupted");
    }
    engine_defer_set(w->g, 0);
    return rc;
}

static int read_prompt(void *ctx, size_t plan, size_t position, int round, struct error *e)
{
    struct work *w = ctx;
    struct compare_plan *p = &w->c->plans[plan];
    int rc = apply(w, p, e);
    uint64_t start = 0;

    /* the first reading is not counted */
    for (int warm = w->c->prompts == 1 && !p->prefill.n; warm >= 0 && rc == 0; warm--) {
        engine_session_clear(w->g);
        start = clock_now();
        rc = engine_eval(w->g, w->ids, w->n_ids, w->logits, false, e);
    }
    if (rc == 0)
        rc = turns_sample(&p->prefill, clock_rate(w->n_ids, clock_now() - start), e);
    if (rc == 0 && plan)
        check_logits(w, p, 0);
    return rc;
}

/* The whole text under every plan, once. */
static int repeat(struct work *w, int k, struct error *e)
{
    struct compare *c = w->c;
    struct turns read = w->turns;
    int rc;

    read.order = TURNS_BALANCED;
    read.begun = (unsigned)k;
    read.rounds = 1;
    read.run = read_prompt;
    rc = turns_run(&read, e);
    /* the change from prefill to decode is not timed */
    if (rc == 0)
        rc = run_round(w, 0, false, e);
    for (int at = 0; at < w->n_gen && rc == 0; at += BLOCK)
        rc = run_round(w, at, true, e);
    for (size_t i = 0; i < c->n && rc == 0; i++)
        if (c->plans[i].defer)
            rc = loss_pass(w, i, e);
    c->tokens += (uint64_t)w->n_gen;
    return rc;
}

static int measure(struct work *w, int repeats, struct error *e)
{
    struct system *machine = system_new("");
    struct system_sample *before = mem_alloc(1, sizeof *before);
    int rc = machine && before ? say_text(w, e)
                               : error_set(e, ERR_MEMORY, "out of memory for the comparison");

    w->energy = energy_new("");
    if (rc == 0)
        system_read(machine, before);
    for (int k = 0; k < repeats && rc == 0; k++)
        rc = repeat(w, k, e);
    if (rc == 0)
        machine_load_end(machine, before, &w->c->load);
    if (engine_info(w->g)->n_devices > 1)
        /* the driver's own threads may wait for ours: that says nothing about other programs */
        w->c->load.delay_s = 0;
    energy_free(w->energy);
    w->energy = NULL;
    system_free(machine);
    mem_free(before);
    return rc;
}

static bool wants_devices(const struct compare *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->plans[i].spec, "cpu") != 0 || c->plans[i].prompt[0])
            return true;
    return false;
}

int compare_prompt(struct compare *c, struct engine *g, const int *ids, int n_ids, int n_gen,
                   int repeats, int (*stop)(void *ctx), void *ctx, struct error *e)
{
    const struct model *m = engine_info(g)->model;
    struct work w = {
        .c = c, .g = g, .ids = ids, .n_ids = n_ids, .n_vocab = m->hp.n_vocab, .n_gen = n_gen};
    struct plan *before = plan_copy(engine_plan(g)), *prompt = plan_copy(engine_prompt_plan(g));
    int rc = 0;

    w.prompt = "";
    if (n_ids + n_gen > engine_info(g)->context)
        return plan_free(before), plan_free(prompt),
               error_set(e, ERR_CONTEXT, "--compare: %d tokens do not fit the context of %d (-c)",
                         n_ids + n_gen, engine_info(g)->context);
    c->exact = dtype_is_quantised(m->type);
    c->block = BLOCK;
    c->repeats = repeats;
    c->prompts++;
    w.last = ids[n_ids - 1];
    w.turns = (struct turns){.n_arms = c->n, .stop = stop, .ctx = &w, .stop_ctx = ctx};
    w.text = mem_alloc((size_t)n_gen + 1, sizeof *w.text);
    w.logits = mem_alloc((size_t)w.n_vocab, sizeof *w.logits);
    w.wanted = mem_alloc((size_t)n_gen + 1, sizeof *w.wanted * (size_t)w.n_vocab);
    if (!before || !w.text || !w.logits || !w.wanted)
        rc = error_set(e, ERR_MEMORY, "out of memory for comparing %d tokens", n_gen);
    model_settle(m);
    if (rc == 0 && prompt)
        rc = place_prompt_kept(g, NULL, NULL, e);
    /* what the cost model expects is compared, too */
    if (rc == 0 && wants_devices(c) && !engine_planner_input(g, true, true, true, e))
        rc = e ? e->code : ERR_DEVICE;
    if (rc == 0)
        rc = measure(&w, repeats, e);
    for (int d = 0; d < c->n_devices && d < DEVICE_MAX; d++)
        snprintf(c->devices[d], sizeof c->devices[d], "%s",
                 d ? engine_info(g)->devices[d].selector : "cpu");
    engine_defer_set(g, 0);
    engine_session_clear(g);
    place_restore(g, before, prompt);
    mem_free(w.text);
    mem_free(w.logits);
    mem_free(w.wanted);
    return rc;
}

/* Whether it is significant: blocks at the same place are paired, so common variations cancel. */
static bool plans_differ(const struct compare *c, size_t a, size_t b)
{
    const struct series *x = &c->plans[a].ratio, *y = &c->plans[b].ratio;
    size_t n = x->n < y->n ? x->n : y->n;
    double *differences;
    bool differ;

    if (!c->plans[a].on_device && !c->plans[b].on_device)
        return false; /* the same plan: all on the CPU */
    differences = mem_alloc(n ? n : 1, sizeof *differences);
    if (!differences)
        return false;
    for (size_t i = 0; i < n; i++)
        differences[i] = x->values[i] - y->values[i];
    differ = series_pairs_differ(differences, n);
    mem_free(differences);
    return differ;
}

double compare_ratio(const struct compare *c, size_t plan, bool *differs)
{
    struct series_figures f;

    if (differs)
        *differs = false;
    if (plan == 0 || series_summarise(&c->plans[plan].ratio, &f) < 0 || f.n == 0)
        return 1;
    if (differs)
        *differs = plans_differ(c, plan, 0);
    return exp(f.mean);
}

bool compare_disturbed(const struct compare *c, char *why, size_t size)
{
    return machine_load_disturbed(&c->load, why, size);
}

void compare_verdict(const struct compare *c, size_t plan, char *out, size_t size)
{
    const struct compare_plan *p = &c->plans[plan], *first = &c->plans[0];
    char why[160];
    bool differs;
    double r = compare_ratio(c, plan, &differs);
    size_t n;

    if (plan == 0)
        snprintf(out, size, "the reference");
    else if (!p->on_device && !first->on_device)
        snprintf(out, size, "the same plan: all on the CPU");
    else if (p->ratio.n < SERIES_PAIRS)
        snprintf(out, size, "%.2f times as fast (few blocks)", r);
    else if (!differs)
        snprintf(out, size, "no difference beyond the noise");
    else
        snprintf(out, size, r > 1 ? "%.0f %% faster than %s" : "%.0f %% slower than %s",
                 100 * fabs(r - 1), first->name);
    n = strlen(out);
    if (plan && n < size && p->joules > 0 && first->joules > 0)
        n += (size_t)snprintf(out + n, size - n, ", %.0f %% %s energy",
                              100 * fabs(p->joules / first->joules - 1),
                              p->joules < first->joules ? "less" : "more");
    if (plan && n < size && compare_disturbed(c, why, sizeof why))
        snprintf(out + n, size - n, ", disturbed");
}

void compare_fastest(const struct compare *c, char *out, size_t size)
{
    struct series_figures best = {0}, f;
    size_t at = 0, n;
    int alike = 0;

    for (size_t i = 0; i < c->n; i++)
        if (series_summarise(&c->plans[i].decode, &f) == 0 && f.n && f.median > best.median) {
            best = f;
            at = i;
        }
    if (!best.n) {
        snprintf(out, size, "Nothing was measured.");
        return;
    }
    n = (size_t)snprintf(out, size, "%s: %s with %.1f tokens/s",
                         c->range ? "The sweet spot" : "The fastest", c->plans[at].name,
                         best.median);
    for (size_t i = 0; i < c->n && n < size; i++)
        if (i != at && !plans_differ(c, i, at))
            n += (size_t)snprintf(out + n, size - n, "%s%s",
                                  alike++ ? ", " : "; not to be told from it: ", c->plans[i].name);
    if (n < size)
        snprintf(out + n, size - n, ".");
}
