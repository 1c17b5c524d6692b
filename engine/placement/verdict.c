/* See verdict.h. The file is text: a first line with the version, then a word and its value a
 * line. */
#include "engine/placement/verdict.h"

#include "engine/base/cache.h"
#include "engine/base/mem.h"
#include "engine/placement/trial.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_MOST 8192
#define FIRST_LINE "moetop verdict 4"
#define DOUBT 2.0 /* standard errors */

/* The plans of all but balanced follow from the model alone: the plan made later is the one
 * predicted. The latter's is searched by the sampled costs, so that it looks better than it is by
 * what they are wrong: it must gain more, by phase. */
static const char *const candidates[] = {"cpu", "gpu", "attention-gpu", "experts-gpu", "balanced"};
#define N_CANDIDATES ((int)(sizeof candidates / sizeof *candidates))
_Static_assert(VERDICT_DEVICES == TRIAL_SIDES - 1, "all that were sampled");
static const double search_gain[PLAN_PHASES] = {0.1, 0.03};
static const char *const phase_word[PLAN_PHASES] = {"tokens", "prompts"};

static bool is_searched(const char *spec)
{
    return strncmp(spec, "balanced", strlen("balanced")) == 0;
}

/* The i-th candidate: first those that fill the first device and then the ones after it; then, for
 * each of these, those that fill it alone, or before the first one. NULL: it is none, "": there are
 * no more. */
static const char *candidate(const struct trial_costs *c, const struct planner_input *in, int i,
                             char out[PLAN_NAME])
{
    int more = i - N_CANDIDATES, kind = more % (N_CANDIDATES + 1), first, number;

    if (i == 0)
        return candidates[0];
    if (more < 0) /* none where the first one failed: the plan would use it */
        return c->sides > 1 && c->device[1] == in->target && !c->why[1][0] ? candidates[i] : NULL;
    if (i >= VERDICT_ROWS || more / (N_CANDIDATES + 1) >= in->n_also)
        return "";
    first = in->devices[in->target].number;
    number = in->devices[in->also[more / (N_CANDIDATES + 1)]].number;
    if (kind == 4)
        snprintf(out, PLAN_NAME, "balanced:%d=all", number);
    else if (kind == 5)
        snprintf(out, PLAN_NAME, "balanced:%d=all,%d=all", number, first);
    else if (kind == 3)
        snprintf(out, PLAN_NAME, "gpu:%d+%d", number, first);
    else
        snprintf(out, PLAN_NAME, "%s:%d", candidates[1 + kind], number);
    return out;
}

/* ns of a token, or of a prompt's token, and its standard error as a share. */
static void predict(const struct trial_costs *c, const struct planner_input *in,
                    enum plan_phase phase, const struct plan *p, double *ns, double *error)
{
    double rows = phase == PHASE_PROMPT ? c->rows : 1, sum = 0;
    struct planner_input with;

    trial_input(c, in, phase, -1, &with);
    *ns = planner_token_ns(&with, p);
    rows = with.prompt_rows ? with.prompt_rows : rows;
    for (int step = 0; step < trial_steps(c); step++) {
        double d;

        trial_input(c, in, phase, step, &with);
        d = planner_token_ns(&with, p) - *ns;
        sum += d * d;
    }
    *error = *ns > 0 ? sqrt(sum) / *ns : 0;
    *ns /= rows > 0 ? rows : 1;
}

/* A row's plans. */
struct pair {
    struct plan *p[PLAN_PHASES];
};

static void pair_free(struct pair *a)
{
    for (int k = 0; k < PLAN_PHASES; k++)
        plan_free(a->p[k]);
    *a = (struct pair){0};
}

static bool pair_equal(const struct pair *a, const struct pair *b)
{
    for (int k = 0; k < PLAN_PHASES; k++)
        if (!a->p[k] != !b->p[k] || (a->p[k] && !plan_equal(a->p[k], b->p[k])))
            return false;
    return true;
}

/* Of a spec, by the samples; the prompts' is NULL if no rows were sampled. */
static int make_pair(struct pair *out, const char *spec, const struct trial_costs *c,
                     const struct planner_input *in, struct error *e)
{
    struct planner_spec s;
    int rc = planner_parse(&s, spec, e);

    for (int k = 0; k < PLAN_PHASES && rc == 0; k++) {
        struct planner_input with;
        char note[PLANNER_NOTE];

        if (k == PHASE_PROMPT && c->rows < 2)
            continue;
        trial_input(c, in, (enum plan_phase)k, -1, &with);
        rc = planner_run(&s, &with, &out->p[k], note, e);
    }
    return rc;
}

/* Adds a candidate unless it is the CPU's plan, or another one's where there are several devices.
 * made: of the rows. */
static int add_row(struct verdict *v, struct pair *made, const char *spec,
                   const struct trial_costs *c, const struct planner_input *in, struct error *e)
{
    struct verdict_row *row = &v->row[v->n_rows];
    struct pair *mine = &made[v->n_rows];
    bool used = strcmp(spec, candidates[0]) == 0;
    int rc = make_pair(mine, spec, c, in, e);

    *row = (struct verdict_row){0};
    snprintf(row->spec, sizeof row->spec, "%s", spec);
    for (int k = 0; k < PLAN_PHASES && rc == 0; k++) {
        if (!mine->p[k])
            continue;
        used |= plan_uses_devices(mine->p[k]) != 0;
        predict(c, in, (enum plan_phase)k, mine->p[k], &row->ns[k], &row->error[k]);
    }
    for (int i = 0; i < v->n_rows && rc == 0 && in->n_also; i++)
        used = used && !pair_equal(&made[i], mine);
    if (rc == 0 && used)
        v->n_rows++;
    else
        pair_free(mine);
    return rc;
}

/* What a candidate is compared by. */
static double judged_ns(const struct verdict_row *r, enum plan_phase phase)
{
    return r->ns[phase] * (is_searched(r->spec) ? 1 + search_gain[phase] : 1);
}

static void choose(struct verdict *v, enum plan_phase phase)
{
    const struct verdict_row *cpu = &v->row[0], *best = NULL;
    const char *spec = "cpu";

    for (int i = 1; i < v->n_rows; i++)
        if (v->row[i].ns[phase] > 0 &&
            (!best || judged_ns(&v->row[i], phase) < judged_ns(best, phase)))
            best = &v->row[i];
    v->best[phase][0] = 0;
    v->gain[phase] = v->error[phase] = 0;
    if (best && cpu->ns[phase] > 0) {
        /* of speeds, as the line says it: cpu / best - 1 */
        v->gain[phase] = cpu->ns[phase] / best->ns[phase] - 1;
        v->error[phase] = DOUBT * hypot(cpu->error[phase], best->error[phase]) *
                          (1 + v->gain[phase]);
        snprintf(v->best[phase], PLAN_NAME, "%s", best->spec);
        if (v->decided && v->gain[phase] > v->error[phase])
            spec = v->best[phase];
    }
    snprintf(v->spec[phase], PLAN_NAME, "%s", spec);
}

/* Two plans that need more memory together than the device has: the tokens' for both. */
static int fit_both(struct verdict *v, const struct trial_costs *c, const struct planner_input *in,
                    struct error *e)
{
    struct plan *p[PLAN_PHASES] = {NULL, NULL};
    int rc = 0;

    for (int k = 0; k < PLAN_PHASES && rc == 0; k++) {
        struct planner_input with;
        struct planner_spec s;
        char note[PLANNER_NOTE];

        trial_input(c, in, (enum plan_phase)k, -1, &with);
        if ((rc = planner_parse(&s, v->spec[k], e)) == 0)
            rc = planner_run(&s, &with, &p[k], note, e);
    }
    if (rc == 0 && planner_check_both(in, p[PHASE_TOKENS], p[PHASE_PROMPT], NULL) < 0)
        memcpy(v->spec[PHASE_PROMPT], v->spec[PHASE_TOKENS], PLAN_NAME);
    for (int k = 0; k < PLAN_PHASES; k++)
        plan_free(p[k]);
    return rc;
}

int verdict_decide(struct verdict *v, const struct trial_costs *c, const struct planner_input *in,
                   struct error *e)
{
    struct pair made[VERDICT_ROWS] = {0};
    const char *spec;
    char text[PLAN_NAME];
    int rc = 0;

    v->n_rows = 0;
    v->decided = c->complete;
    v->layers = c->layers;
    v->of_layers = c->of_layers;
    v->bytes = c->bytes;
    for (int i = 0; rc == 0 && (!(spec = candidate(c, in, i, text)) || spec[0]); i++)
        rc = spec ? add_row(v, made, spec, c, in, e) : 0;
    for (int i = 0; i < v->n_rows; i++)
        pair_free(&made[i]);
    for (int k = 0; k < PLAN_PHASES; k++)
        choose(v, (enum plan_phase)k);
    return rc < 0 ? rc : fit_both(v, c, in, e);
}

static size_t phase_line(const struct verdict *v, enum plan_phase phase, char *out, size_t size)
{
    bool chosen = strcmp(v->spec[phase], "cpu") != 0;
    double percent = 100 * v->gain[phase], doubt = 100 * v->error[phase];
    int n = snprintf(out, size, "%s %s", phase_word[phase], v->spec[phase]);
    size_t at = n > 0 && (size_t)n < size ? (size_t)n : size - 1;

    if (!v->best[phase][0])
        n = snprintf(out + at, size - at, " (not measured)");
    else if (chosen && strcmp(v->spec[phase], v->best[phase]) == 0)
        n = snprintf(out + at, size - at, " (%.0f %% faster than the CPU alone, ± %.0f)", percent,
                     doubt);
    else
        n = snprintf(out + at, size - at, " (%s %.0f %% %s, ± %.0f)", v->best[phase], fabs(percent),
                     percent < 0 ? "slower" : "faster", doubt);
    at += n > 0 ? (size_t)n : 0;
    return at < size ? at : size - 1;
}

void verdict_line(const struct verdict *v, char out[VERDICT_LINE])
{
    size_t at;

    if (!v->decided) {
        snprintf(out, VERDICT_LINE,
                 "auto: not decided after %.2f s of measuring (2 %% of the time computed, at least "
                 "0.5 s): everything stays on the CPU until more was computed",
                 (double)v->spent_ns * 1e-9);
        return;
    }
    at = (size_t)snprintf(out, VERDICT_LINE, "auto: ");
    at += phase_line(v, PHASE_TOKENS, out + at, VERDICT_LINE - at);
    at += (size_t)snprintf(out + at, VERDICT_LINE - at, ", ");
    at += phase_line(v, PHASE_PROMPT, out + at, VERDICT_LINE - at);
    snprintf(out + at, VERDICT_LINE - at, "; %s in %.2f s, %.0f MB copied (%d of %d layers)",
             v->kept ? "kept from a measurement" : "measured", (double)v->spent_ns * 1e-9,
             (double)v->bytes * 1e-6, v->layers, v->of_layers);
}

/* The value of a line "word value"; NULL: it begins with another word. */
static const char *value_of(const char *line, const char *word)
{
    size_t n = strlen(word);

    return strncmp(line, word, n) == 0 && line[n] == ' ' ? line + n + 1 : NULL;
}

static bool number_ok(double v)
{
    return isfinite(v) && fabs(v) < 1e18;
}

static bool take_phase(struct verdict *v, enum plan_phase phase, const char *text)
{
    return sscanf(text, "%63s %63s %lf %lf", v->spec[phase], v->best[phase], &v->gain[phase],
                  &v->error[phase]) == 4 &&
           number_ok(v->gain[phase]) && number_ok(v->error[phase]);
}

static bool take_row(struct verdict *v, const char *text)
{
    struct verdict_row *r = &v->row[v->n_rows];

    if (v->n_rows == VERDICT_ROWS || sscanf(text, "%63s %lf %lf %lf %lf", r->spec, &r->ns[0],
                                            &r->error[0], &r->ns[1], &r->error[1]) != 5)
        return false;
    for (int k = 0; k < PLAN_PHASES; k++)
        if (!number_ok(r->ns[k]) || !number_ok(r->error[k]))
            return false;
    v->n_rows++;
    return true;
}

int verdict_read(struct verdict *v, const char *path, const struct verdict_keys *k, char *why)
{
    struct verdict got = {.kept = true};
    char *text, *line, *rest;
    int phases = 0, decided = 0;
    bool good, counts = false, driver = false, machine = false;
    size_t n;

    if (why)
        why[0] = 0;
    if (cache_read(path, FILE_MOST, &text, &n, NULL) < 0 || !text)
        return 0;
    line = strtok_r(text, "\n", &rest);
    good = line && strcmp(line, FIRST_LINE) == 0;
    while (good && (line = strtok_r(NULL, "\n", &rest))) {
        const char *at;

        if ((at = value_of(line, "tokens")))
            good = take_phase(&got, PHASE_TOKENS, at), phases |= 1;
        else if ((at = value_of(line, "prompts")))
            good = take_phase(&got, PHASE_PROMPT, at), phases |= 2;
        else if ((at = value_of(line, "row")))
            good = take_row(&got, at);
        else if ((at = value_of(line, "measured")))
            good = counts = sscanf(at, "%d %d %d %" SCNu64 " %" SCNu64 " %" SCNu64, &decided,
                                   &got.layers, &got.of_layers, &got.spent_ns, &got.computed_ns,
                                   &got.bytes) == 6;
        else if ((at = value_of(line, "device")))
            snprintf(got.device, sizeof got.device, "%s", at);
        else if ((at = value_of(line, "driver")) && !(driver = strcmp(at, k->driver) == 0) && why)
            snprintf(why, VERDICT_LINE, "auto: the driver is %.100s now, not %.100s", k->driver,
                     at);
        else if ((at = value_of(line, "machine")) && !(machine = strcmp(at, k->machine) == 0) &&
                 why)
            snprintf(why, VERDICT_LINE, "auto: the machine is %.100s now, not %.100s", k->machine,
                     at);
    }
    mem_free(text);
    if (!good || phases != 3 || !counts || !driver || !machine || !got.n_rows)
        return 0;
    got.decided = decided != 0;
    *v = got;
    return 1;
}

int verdict_write(const struct verdict *v, const char *path, const struct verdict_keys *k,
                  struct error *e)
{
    char text[FILE_MOST];
    int at = snprintf(text, sizeof text, FIRST_LINE "\ndevice %s\ndriver %s\nmachine %s\n",
                      v->device, k->driver, k->machine),
        rc;

    at += snprintf(text + at, sizeof text - (size_t)at,
                   "measured %d %d %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", v->decided, v->layers,
                   v->of_layers, v->spent_ns, v->computed_ns, v->bytes);
    for (int p = 0; p < PLAN_PHASES; p++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s %s %s %.4f %.4f\n", phase_word[p],
                       v->spec[p], v->best[p][0] ? v->best[p] : "cpu", v->gain[p], v->error[p]);
    for (int i = 0; i < v->n_rows; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "row %s %.1f %.4f %.1f %.4f\n",
                       v->row[i].spec, v->row[i].ns[0], v->row[i].error[0], v->row[i].ns[1],
                       v->row[i].error[1]);
    if ((rc = cache_write(path, text, strlen(text), e)) < 0 && e)
        error_set(e, rc, "%s; the verdict of auto is kept for this run only", e->text);
    return rc;
}
