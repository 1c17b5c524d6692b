/* The mode --suggest: is there a set of hot experts, and how well does it work on other text? Main
 * thread.
 * A plan made from counts always looks good on the text it was made from; so it is tested on
 * held-out text, against as many experts spread evenly, and the result may be that it is not worth
 * it. */
#include "app/setup/engine_options.h"
#include "app/setup/test_text.h"
#include "app/placement/profile.h"
#include "app/common/signals.h"
#include "app/common/turns.h"
#include "app/setup/plan_file.h"
#include "app/setup/resolve.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/base/size.h"
#include "engine/placement/planner.h"
#include "engine/placement/residency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a hot set must save at least this share of the misses of an even spread */
#define WORTH 0.10
#define ROUNDS 6
#define BLOCK 8

void suggestion_release(struct suggestion *s)
{
    plan_free(s->plan);
    plan_free(s->uniform);
    s->plan = s->uniform = NULL;
}

/* Experts of a layer; those with a known size come first. */
static int layer_experts(const uint64_t *sizes, const struct plan *p, int layer)
{
    int n = 0;

    while (n < p->n_experts && sizes[layer * p->n_experts + n])
        n++;
    return n;
}

/* As many experts as the suggestion has, distributed over the layers and shifted from layer to
 * layer, so that no expert number is preferred. */
static void deal_evenly(struct suggestion *s, const uint64_t *sizes)
{
    struct plan *p = s->uniform;
    int left = s->experts;

    for (int k = 0; left > 0; k++)
        for (int l = 0; l < p->n_layers && left > 0; l++) {
            int n = layer_experts(sizes, p, l);

            if (k >= n)
                continue;
            p->experts[l * p->n_experts + (k + 5 * l) % n] = 1;
            left--;
        }
}

/* Mean over the layers of the share of calls to planned experts; layers without counts are skipped.
 */
static double hit_rate(const struct plan *p, const struct usage *u)
{
    double sum = 0, layers = 0;

    for (int l = 0; l < p->n_layers; l++) {
        double calls = 0, hits = 0;

        for (int x = 0; x < p->n_experts; x++) {
            double c = u->count[l * p->n_experts + x];

            calls += c;
            hits += plan_expert(p, l, x) ? c : 0;
        }
        if (calls > 0) {
            sum += hits / calls;
            layers += 1;
        }
    }
    return layers > 0 ? sum / layers : 0;
}

static void verdict_make(struct suggestion *s)
{
    double hit = s->hit_held_out >= 0 ? s->hit_held_out : s->hit_trained, left = 1 - s->hit_uniform;
    double saved = left > 1e-9 ? (hit - s->hit_uniform) / left : 0;
    const char *text = s->hit_held_out >= 0
                           ? "held-out text"
                           : "the profile's own text (validate it with --validate FILE)";

    s->hot_set = saved >= WORTH && s->experts < s->all_experts;
    if (s->experts == 0)
        snprintf(s->verdict, sizeof s->verdict, "nothing fits in the budget");
    else if (s->experts == s->all_experts)
        snprintf(s->verdict, sizeof s->verdict,
                 "all experts fit in the budget; there is nothing to choose");
    else if (!s->hot_set)
        snprintf(s->verdict, sizeof s->verdict,
                 "no hot set here: on %s %.1f %% of the calls meet the chosen %.1f %% of the "
                 "experts; any others would do as well",
                 text, 100 * hit, 100 * s->hit_uniform);
    else
        snprintf(s->verdict, sizeof s->verdict,
                 "a hot set: on %s %.1f %% of the calls meet the chosen %.1f %% of the experts "
                 "(%.0f %% of the misses saved)",
                 text, 100 * hit, 100 * s->hit_uniform, 100 * saved);
}

int suggestion_make(struct suggestion *s, const struct usage *trained, const struct usage *held_out,
                    const uint64_t *sizes, uint64_t budget, struct error *e)
{
    int cells = trained->n_layers * trained->n_experts, rc;
    uint64_t *none = mem_alloc((size_t)trained->n_layers, sizeof *none);
    struct planner_input in = {.n_layers = trained->n_layers,
                               .n_experts = trained->n_experts,
                               .n_experts_used = trained->n_used,
                               .n_devices = 2,
                               .target = 1,
                               .expert_bytes = sizes,
                               .attention_bytes = none,
                               .usage = trained->count};
    struct planner_spec spec;

    memset(s, 0, sizeof *s);
    s->hit_held_out = -1;
    if (!none)
        return error_set(e, ERR_MEMORY, "out of memory for the suggestion");
    in.devices[1].budget = budget;
    rc = planner_parse(&spec, "hot", e);
    if (rc == 0)
        rc = planner_run(&spec, &in, &s->plan, NULL, e);
    if (rc == 0 && !(s->uniform = plan_new("uniform", in.n_layers, in.n_experts)))
        rc = error_set(e, ERR_MEMORY, "out of memory for the suggestion");
    mem_free(none);
    if (rc < 0) {
        suggestion_release(s);
        return rc;
    }
    for (int i = 0; i < cells; i++)
        if (s->plan->experts[i]) {
            s->experts++;
            s->bytes += sizes[i];
        }
    s->all_experts = planner_experts(&in);
    s->hit_uniform = s->all_experts ? (double)s->experts / s->all_experts : 0;
    deal_evenly(s, sizes);
    s->hit_trained = hit_rate(s->plan, trained);
    if (held_out && held_out->tokens) {
        s->hit_held_out = hit_rate(s->plan, held_out);
        s->likeness = usage_likeness(trained, held_out);
    }
    verdict_make(s);
    return 0;
}

/* The hot set and as many experts spread evenly, interleaved, each round on the next tokens. */
struct trial {
    const struct suggestion *s;
    struct engine *g;
    const int *ids;
    double rate[2][ROUNDS];
};

static int run_trial(void *ctx, size_t arm, size_t position, int round, struct error *e)
{
    struct trial *t = ctx;
    int at = (round + 1) * BLOCK, rc = place_plan(t->g, arm ? t->s->uniform : t->s->plan, e);
    uint64_t start;

    engine_session_rewind(t->g, at);
    start = clock_now();
    for (int i = at; i < at + BLOCK && rc == 0; i++)
        rc = engine_eval(t->g, t->ids + i, 1, NULL, false, e);
    if (round >= 0)
        t->rate[arm][round] = clock_rate(BLOCK, clock_now() - start);
    return rc;
}

int suggestion_measure(struct suggestion *s, struct engine *g, const int *ids, int n,
                       struct error *e)
{
    const struct planner_input *in = engine_planner_input(g, true, true, false, e);
    struct trial trial = {.s = s, .g = g, .ids = ids};
    const struct turns turns = {.n_arms = 2,
                                .rounds = ROUNDS,
                                .warm_ups = 1,
                                .order = TURNS_MIRRORED,
                                .run = run_trial,
                                .ctx = &trial};
    double gain[ROUNDS];
    struct series_figures f[2];
    int rc;

    if (!in)
        return ERR_DEVICE;
    if (!in->target || !s->experts || n < (ROUNDS + 1) * BLOCK ||
        engine_info(g)->context < (ROUNDS + 1) * BLOCK)
        return 0;
    engine_session_clear(g);
    rc = turns_run(&turns, e);
    engine_session_clear(g);
    if (rc < 0)
        return rc;
    for (int i = 0; i < ROUNDS; i++)
        gain[i] = log(trial.rate[0][i] / trial.rate[1][i]);
    for (int k = 0; k < 2; k++)
        series_summarise_sorted(trial.rate[k], ROUNDS, &f[k]);
    s->rate = f[0].median;
    s->rate_uniform = f[1].median;
    s->rate_differs = series_pairs_differ(gain, ROUNDS);
    if (s->hot_set && !s->rate_differs)
        snprintf(s->verdict + strlen(s->verdict), sizeof s->verdict - strlen(s->verdict),
                 "; but it is no faster here: the rates differ by less than their noise");
    return 0;
}

static void report(FILE *f, const char *before, const struct suggestion *s)
{
    char bytes[16];

    fprintf(f, "%s%d of %d experts, %s\n", before, s->experts, s->all_experts,
            size_format(s->bytes, bytes, sizeof bytes));
    fprintf(f, "%shit rate on the profile's text %.1f %%", before, 100 * s->hit_trained);
    if (s->hit_held_out >= 0)
        fprintf(f, ", on held-out text %.1f %% (the texts' use is %.0f %% alike)",
                100 * s->hit_held_out, 100 * s->likeness);
    fprintf(f, "; any %d experts: %.1f %%\n", s->experts, 100 * s->hit_uniform);
    if (s->rate > 0)
        fprintf(f, "%s%.2f tokens/s against %.2f with as many spread evenly%s\n", before, s->rate,
                s->rate_uniform, s->rate_differs ? "" : " (no difference beyond the noise)");
    fprintf(f, "%s%s\n", before, s->verdict);
}

/* The plan on stdout or in a file, with its report as comments above it: can be passed to --place
 * unchanged. */
static int write_plan(const struct suggestion *s, const char *output, struct error *e)
{
    static const char *const names[] = {"cpu", "gpu"};
    const struct plan_shape shape = {s->plan->n_layers, s->plan->n_experts, 1, names, 2};
    char *plan = NULL, *text = NULL;
    size_t n, size;
    FILE *f;
    int rc;

    snprintf(s->plan->name, sizeof s->plan->name, "suggested");
    rc = plan_file_text(s->plan, &shape, &plan, &n, e);
    if (rc < 0)
        return rc;
    f = open_memstream(&text, &size);
    if (f) {
        report(f, "# ", s);
        fputs(plan, f);
    }
    if (!f || fclose(f) != 0)
        rc = error_set(e, ERR_MEMORY, "out of memory for the suggestion");
    else if (output)
        rc = file_replace(output, text, size, e);
    else
        fputs(text, stdout);
    free(text);
    mem_free(plan);
    return rc;
}

/* Counts of the held-out text, and its tokens for measuring. */
static int validate(struct engine *g, const struct options *o, struct usage *u,
                    struct profile_text_read *read, struct error *e)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    char *text = NULL;
    size_t size;
    int rc = test_text_read(o->validate, &text, &size, e);

    if (rc == 0)
        rc = profile_tokens(g, text, size, o->validate, o->parse_special, read, e);
    if (rc == 0)
        rc = usage_model_init(u, hp, e);
    if (rc == 0)
        rc = profile_text(g, read->ids, read->n, u, signals_stop, NULL, e);
    mem_free(text);
    return rc;
}

int suggestion_sizes(const struct model *m, uint64_t **sizes, struct error *e)
{
    const struct hparams *hp = &m->hp;

    *sizes = mem_alloc((size_t)hp->n_layers * (size_t)hp->n_experts, sizeof **sizes);
    if (!*sizes)
        return error_set(e, ERR_MEMORY, "out of memory for the suggestion");
    for (int l = 0; l < hp->n_layers; l++)
        for (int x = 0; x < hp->n_experts; x++)
            (*sizes)[l * hp->n_experts + x] = model_block_bytes(m, (struct block_id){BLOCK_EXPERT,
                                                                                     l, x});
    return 0;
}

int suggest_mode_run(struct options *o, struct error *e)
{
    struct usage trained = {0}, held_out = {0};
    struct profile_facts facts = {0};
    struct suggestion s = {0};
    struct engine *g = NULL;
    struct options plain = *o; /* borrowed: only read */
    uint64_t *sizes = NULL;
    struct profile_text_read read = {0};
    int rc;

    if (!o->budget)
        return error_set(e, ERR_USAGE,
                         "--suggest needs --budget SIZE: how much the device may hold, for example "
                         "--budget 600M");
    rc = profile_read(&trained, &facts, o->suggest, e);
    plain.place = (char *)"cpu";
    plain.place_prompt = NULL;
    plain.profile = NULL;
    if (rc == 0)
        rc = engine_setup_open(&plain, &g, e);
    if (rc == 0) {
        const struct model *m = engine_info(g)->model;
        char name[200];

        snprintf(name, sizeof name, "%.150s, %s", m->name, dtype_info(m->type)->word);
        if ((rc = profile_spread(&trained, &facts, &m->hp, e)) == 0)
            rc = profile_check(&trained, &facts, o->suggest, name, m->hash, m->hp.n_layers,
                               m->hp.n_experts, m->hp.n_experts_used, e);
        if (rc == 0)
            usage_layers(&trained, &m->hp);
        if (rc == 0)
            rc = suggestion_sizes(m, &sizes, e);
    }
    if (rc == 0 && o->validate)
        rc = validate(g, o, &held_out, &read, e);
    if (rc == 0)
        rc = suggestion_make(&s, &trained, o->validate ? &held_out : NULL, sizes, o->budget, e);
    if (rc == 0 && read.ids)
        rc = suggestion_measure(&s, g, read.ids, read.n, e);
    if (rc == 0)
        rc = write_plan(&s, o->output, e);
    if (rc == 0 && o->validate)
        fprintf(stderr, "%s: %s\n", o->validate, read.said);
    if (rc == 0)
        report(stderr, "", &s);
    suggestion_release(&s);
    usage_release(&trained);
    usage_release(&held_out);
    profile_facts_release(&facts);
    mem_free(sizes);
    mem_free(read.ids);
    engine_close(g);
    return rc;
}
