/* A layer's figures; see report.h. A layer is read through several times, column after column: the
 * trace stays on disk. */
#include "app/lab/report.h"

#include "engine/base/mem.h"

#include <math.h>
#include <string.h>

#define AHEAD_MOST 20000 /* tokens whose experts are predicted */
#define PAIR_LEAST 5     /* tokens that a pair must share to be shown */
#define POSITIONS 5

const char *const factor_words[] = {
#define X(name, word) word,
    FACTOR_TABLE(X)
#undef X
};

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the report");
}

/* ---- load ---- */

struct load {
    double *counts, *room, *blocks; /* blocks: (n_blocks, experts) */
    double entropy[REPORT_SAMPLES], gini[REPORT_SAMPLES], max_mean[REPORT_SAMPLES];
};

static void resample(struct load *s, int experts, uint64_t n_blocks)
{
    uint64_t state = 1;

    for (int b = 0; b < REPORT_SAMPLES; b++) {
        memset(s->counts, 0, (size_t)experts * sizeof *s->counts);
        for (uint64_t i = 0; i < n_blocks; i++) {
            const double *from = s->blocks + figure_draw(&state, n_blocks) * (uint64_t)experts;

            for (int x = 0; x < experts; x++)
                s->counts[x] += from[x];
        }
        s->entropy[b] = figure_entropy(s->counts, experts);
        s->gini[b] = figure_gini(s->counts, experts, s->room);
        s->max_mean[b] = figure_max_mean(s->counts, experts);
    }
}

static int make_load(struct layer_report *r, const struct trace *t, struct error *e)
{
    uint64_t length = figure_block(t->n), n_blocks = (t->n + length - 1) / length;
    size_t experts = (size_t)r->experts;
    struct load *s = mem_alloc(1, sizeof *s);
    int rc = 0;

    if (!s || !(s->counts = mem_alloc(experts, sizeof *s->counts)) ||
        !(s->room = mem_alloc(experts, sizeof *s->room)) ||
        !(s->blocks = mem_alloc(n_blocks * experts, sizeof *s->blocks))) {
        rc = no_memory(e);
        goto out;
    }
    for (uint64_t i = 0; i < t->n; i++)
        for (int k = 0; k < r->used; k++) {
            int x = trace_expert(t, i, r->layer, k);

            if (x >= 0) {
                r->counts[x]++;
                s->blocks[i / length * experts + (uint64_t)x]++;
            }
        }
    r->entropy.value = figure_entropy(r->counts, r->experts);
    r->gini.value = figure_gini(r->counts, r->experts, s->room);
    r->max_mean.value = figure_max_mean(r->counts, r->experts);
    r->entropy_share = r->experts > 1 ? r->entropy.value / log2(r->experts) : 0;
    for (int x = 0; x < r->experts; x++)
        r->unused += (r->counts[x] == 0) / (double)r->experts;
    resample(s, r->experts, n_blocks);
    figure_interval(s->entropy, &r->entropy);
    figure_interval(s->gini, &r->gini);
    figure_interval(s->max_mean, &r->max_mean);
out:
    if (s) {
        mem_free(s->counts);
        mem_free(s->room);
        mem_free(s->blocks);
    }
    mem_free(s);
    return rc;
}

/* ---- from token to token ---- */

static void make_persistence(struct layer_report *r, const struct trace_report *of)
{
    const struct trace *t = of->trace;
    uint64_t both = 0;

    for (uint64_t i = 0; i < t->n; i++) {
        if (of->prev[i] < 0)
            continue;
        r->follow++;
        for (int k = 0; k < r->used; k++)
            for (int j = 0, x = trace_expert(t, i, r->layer, k); j < r->used && x >= 0; j++)
                both += trace_expert(t, (uint64_t)of->prev[i], r->layer, j) == x;
    }
    r->persistence = r->follow ? (double)both / ((double)r->follow * r->used) : 0;
    for (int x = 0; x < r->experts; x++) {
        double q = r->counts[x] / (double)t->n;

        r->persistence_chance += q * q / r->used;
    }
}

/* ---- from layer to layer ---- */

/* The n largest, ties to the lower index. taken: (experts), all false before and after. */
static void best(const double *scores, int experts, int n, bool *taken, int *out)
{
    for (int k = 0; k < n; k++) {
        int at = -1;

        for (int x = 0; x < experts; x++)
            if (!taken[x] && (at < 0 || scores[x] > scores[at]))
                at = x;
        taken[at] = true;
        out[k] = at;
    }
    for (int k = 0; k < n; k++)
        taken[out[k]] = false;
}

static int hits(const struct trace *t, uint64_t i, const struct layer_report *r, const int *guess)
{
    int n = 0;

    for (int k = 0; k < r->used; k++)
        for (int j = 0, x = trace_expert(t, i, r->layer, k); j < r->used && x >= 0; j++)
            n += guess[j] == x;
    return n;
}

/* Even tokens teach how often each expert follows each of the layer before; odd ones are guessed by
 * the sum of these shares. */
static int make_ahead(struct layer_report *r, const struct layer_report *before,
                      const struct trace *t, struct error *e)
{
    size_t here = (size_t)r->experts, there = (size_t)before->experts;
    double *pairs = mem_alloc(here * there, sizeof *pairs), *n = mem_alloc(there, sizeof *n),
           *all = mem_alloc(here, sizeof *all), *scores = mem_alloc(here, sizeof *scores);
    bool *taken = mem_alloc(here, sizeof *taken);
    uint64_t step = (t->n / 2 + AHEAD_MOST - 1) / AHEAD_MOST, right = 0, by_chance = 0;
    int guess[TRACE_SLOTS], usual[TRACE_SLOTS], rc = 0;

    if (!pairs || !n || !all || !scores || !taken) {
        rc = no_memory(e);
        goto out;
    }
    for (uint64_t i = 0; i < t->n; i += 2) {
        for (int k = 0; k < r->used; k++)
            if (trace_expert(t, i, r->layer, k) >= 0)
                all[trace_expert(t, i, r->layer, k)]++;
        for (int j = 0; j < before->used; j++) {
            int a = trace_expert(t, i, before->layer, j);

            if (a < 0)
                continue;
            n[a]++;
            for (int k = 0; k < r->used; k++)
                if (trace_expert(t, i, r->layer, k) >= 0)
                    pairs[(size_t)a * here + (size_t)trace_expert(t, i, r->layer, k)]++;
        }
    }
    best(all, r->experts, r->used, taken, usual);
    for (uint64_t i = 1; i < t->n; i += 2 * (step ? step : 1)) {
        memset(scores, 0, here * sizeof *scores);
        for (int j = 0; j < before->used; j++) {
            int a = trace_expert(t, i, before->layer, j);

            for (size_t x = 0; x < here && a >= 0 && n[a] > 0; x++)
                scores[x] += pairs[(size_t)a * here + x] / n[a];
        }
        best(scores, r->experts, r->used, taken, guess);
        right += (uint64_t)hits(t, i, r, guess);
        by_chance += (uint64_t)hits(t, i, r, usual);
        r->ahead_tokens++;
    }
    r->before = before->layer;
    if (r->ahead_tokens) {
        r->ahead = (double)right / ((double)r->ahead_tokens * r->used);
        r->ahead_chance = (double)by_chance / ((double)r->ahead_tokens * r->used);
    }
out:
    mem_free(pairs);
    mem_free(n);
    mem_free(all);
    mem_free(scores);
    mem_free(taken);
    return rc;
}

/* ---- together in a token ---- */

static void keep_pair(struct layer_report *r, const struct expert_pair *p)
{
    int at = r->n_pairs;

    while (at > 0 && r->pairs[at - 1].lift < p->lift)
        at--;
    if (at == REPORT_PAIRS)
        return;
    r->n_pairs += r->n_pairs < REPORT_PAIRS;
    memmove(r->pairs + at + 1, r->pairs + at, (size_t)(r->n_pairs - 1 - at) * sizeof *r->pairs);
    r->pairs[at] = *p;
}

static int make_pairs(struct layer_report *r, const struct trace *t, struct error *e)
{
    size_t experts = (size_t)r->experts;
    uint32_t *together = mem_alloc(experts * experts, sizeof *together);

    if (!together)
        return no_memory(e);
    for (uint64_t i = 0; i < t->n; i++)
        for (int k = 0; k < r->used; k++)
            for (int j = 0, x = trace_expert(t, i, r->layer, k); j < r->used && x >= 0; j++) {
                int y = trace_expert(t, i, r->layer, j);

                if (y > x)
                    together[(size_t)x * experts + (size_t)y]++;
            }
    for (int a = 0; a < r->experts; a++)
        for (int b = a + 1; b < r->experts; b++) {
            struct expert_pair p = {a, b, together[(size_t)a * experts + (size_t)b],
                                    r->counts[a] * r->counts[b] / (double)t->n, 0};

            if (p.count < PAIR_LEAST)
                continue;
            p.lift = (double)p.count / p.expected;
            keep_pair(r, &p);
        }
    mem_free(together);
    return 0;
}

/* ---- what it depends on ---- */

static int position_of(int pos)
{
    return pos < 16 ? 0 : pos < 64 ? 1 : pos < 256 ? 2 : pos < 1024 ? 3 : 4;
}

static const int groups[FACTORS] = {TRACE_CLASSES, TRACE_ROLES,      POSITIONS,
                                    TRACE_SCRIPTS, REPORT_LANGUAGES, 2};
#define GROUPS_MOST ((size_t)REPORT_LANGUAGES)

/* -1: the token says nothing of it. */
static int group_of(const struct trace_report *r, uint64_t i, enum factor f)
{
    const struct trace *t = r->trace;

    switch (f) {
    case FACTOR_CLASS: return *trace_at(t, COLUMN_CLASS, i);
    case FACTOR_ROLE: return *trace_at(t, COLUMN_ROLE, i);
    case FACTOR_POSITION: return position_of(trace_int(t, COLUMN_POSITION, i));
    case FACTOR_SCRIPT: return r->language ? *trace_at(t, COLUMN_SCRIPT, i) - 1 : -1;
    case FACTOR_LANGUAGE: return r->language ? r->language[i] - 1 : -1;
    default: return i >= t->n / 2;
    }
}

static int make_tests(struct layer_report *r, const struct trace_report *of, struct error *e)
{
    const struct trace *t = of->trace;
    size_t experts = (size_t)r->experts;
    double *table = mem_alloc(GROUPS_MOST * experts, sizeof *table);

    if (!table)
        return no_memory(e);
    for (int f = 0; f < FACTORS; f++) {
        memset(table, 0, GROUPS_MOST * experts * sizeof *table);
        for (uint64_t i = 0; i < t->n; i++) {
            int x = trace_expert(t, i, r->layer, 0), group = group_of(of, i, (enum factor)f);

            if (x >= 0 && group >= 0)
                table[(size_t)group * experts + (size_t)x]++;
        }
        r->tests[f] = figure_chi_square(table, groups[f], r->experts);
    }
    memset(table, 0, GROUPS_MOST * experts * sizeof *table);
    for (uint64_t i = 0; i < t->n; i++)
        for (int k = 0; k < r->used; k++)
            if (trace_expert(t, i, r->layer, k) >= 0)
                table[(i >= t->n / 2 ? experts : 0) + (size_t)trace_expert(t, i, r->layer, k)]++;
    r->drift = figure_divergence(table, table + experts, r->experts);
    mem_free(table);
    return 0;
}

/* ---- all ---- */

/* The token before each in its sequence, if it has the position before. */
static int find_prev(struct trace_report *r, struct error *e)
{
    const struct trace *t = r->trace;
    int *last = mem_alloc((size_t)t->sequences + 1, sizeof *last);

    if (!last || !(r->prev = mem_alloc(t->n + 1, sizeof *r->prev))) {
        mem_free(last);
        return no_memory(e);
    }
    for (int i = 0; i < t->sequences; i++)
        last[i] = -1;
    for (uint64_t i = 0; i < t->n; i++) {
        int *l = &last[trace_int(t, COLUMN_SEQUENCE, i)];
        bool follows = *l >= 0 && trace_int(t, COLUMN_POSITION, (uint64_t)*l) + 1 ==
                                      trace_int(t, COLUMN_POSITION, i);

        r->prev[i] = follows ? *l : -1;
        *l = (int)i;
    }
    mem_free(last);
    return 0;
}

static double perplexity_of(const struct trace *t)
{
    double sum = 0;
    uint64_t n = 0;

    for (uint64_t i = 0; i < t->n && t->head.logprobs; i++) {
        double p = (double)trace_logprob(t, i);

        if (!isnan(p)) {
            sum -= p;
            n++;
        }
    }
    return n ? exp(sum / (double)n) : 0;
}

static int correct(struct trace_report *r, struct error *e)
{
    struct chi_square **tests = mem_alloc((size_t)(r->n_layers * FACTORS) + 1, sizeof *tests);
    size_t n = 0;
    int rc;

    if (!tests)
        return no_memory(e);
    for (int l = 0; l < r->n_layers; l++)
        for (int f = 0; f < FACTORS; f++)
            tests[n++] = &r->layers[l].tests[f];
    rc = figure_holm(tests, n, e);
    mem_free(tests);
    return rc;
}

int trace_report_make(struct trace_report *r, const struct trace *t, struct error *e)
{
    int rc;

    *r = (struct trace_report){.trace = t};
    if (!t->n)
        return error_set(e, ERR_INPUT, "%s: it holds no token", t->path);
    if (!(r->layers = mem_alloc((size_t)t->head.layers, sizeof *r->layers)))
        return no_memory(e);
    rc = find_prev(r, e);
    if (rc == 0)
        rc = report_languages_make(r, e);
    r->perplexity = perplexity_of(t);
    for (int l = 0; l < t->head.layers && rc == 0; l++) {
        struct layer_report *one = &r->layers[r->n_layers];

        if (!t->head.used[l])
            continue;
        *one = (struct layer_report){
            .layer = l, .experts = t->head.routed[l], .used = t->head.used[l], .before = -1};
        r->n_layers++;
        if (!(one->counts = mem_alloc((size_t)one->experts, sizeof *one->counts))) {
            rc = no_memory(e);
            break;
        }
        rc = make_load(one, t, e);
        if (rc == 0) {
            make_persistence(one, r);
            rc = make_pairs(one, t, e);
        }
        if (rc == 0 && r->n_layers > 1)
            rc = make_ahead(one, one - 1, t, e);
        if (rc == 0)
            rc = make_tests(one, r, e);
        if (rc == 0 && t->head.scores)
            rc = report_margin_make(one, r, e);
    }
    if (rc == 0)
        rc = correct(r, e);
    if (rc == 0)
        rc = mapping_check(&t->map, e);
    if (rc < 0)
        trace_report_release(r);
    return rc;
}

void trace_report_release(struct trace_report *r)
{
    for (int l = 0; l < r->n_layers; l++)
        mem_free(r->layers[l].counts);
    mem_free(r->layers);
    mem_free(r->prev);
    mem_free(r->language);
    *r = (struct trace_report){0};
}
