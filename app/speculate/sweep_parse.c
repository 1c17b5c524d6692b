/* Parses the argument of --spec-sweep; see sweep.h. */
#include "app/speculate/sweep.h"

#include "app/options/options.h"
#include "engine/base/mem.h"
#include "engine/run/draft/accept.h"

#include <stdlib.h>
#include <string.h>

#define WORDS 32
#define ADAPTIVE (-1)
#define K_MOST (DRAFT_MOST + 1)

/* The words of a comma-separated list, each at most 31 bytes. */
struct words {
    char at[WORDS][32];
    int n;
};

static int usage(const char *what, struct error *e)
{
    return error_set(e, ERR_USAGE,
                     "--spec-sweep: '%s'; expected K=1..8 or K=1,2,4,auto, and if wanted "
                     "drafts=lookup,model and accept=prefix,top-k:2 beside it",
                     what);
}

static int split(const char *list, struct words *out, struct error *e)
{
    out->n = 0;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n = strcspn(p, ",");

        if (!n || n >= sizeof out->at[0] || out->n == WORDS)
            return usage(list, e);
        memcpy(out->at[out->n], p, n);
        out->at[out->n++][n] = 0;
    }
    return out->n ? 0 : usage(list, e);
}

static int one_k(const char *text, const char **end)
{
    char *stop;
    long k = strtol(text, &stop, 10);

    *end = stop;
    return stop == text || k < 1 || k > DRAFT_MOST ? 0 : (int)k;
}

/* 3, 1..8, auto (ADAPTIVE) and lists of these. */
static int parse_k(const char *list, int *k, int *n, struct error *e)
{
    struct words w;
    int rc = split(list, &w, e);

    for (int i = 0; i < w.n && rc == 0; i++) {
        const char *end;
        int first = one_k(w.at[i], &end), last = first;

        if (first && strncmp(end, "..", 2) == 0)
            last = one_k(end + 2, &end);
        if (strcmp(w.at[i], "auto") == 0)
            first = last = ADAPTIVE;
        else if (!first || last < first || *end)
            return error_set(e, ERR_USAGE,
                             "--spec-sweep: K is %s; numbers from 1 to %d and auto are possible",
                             w.at[i], DRAFT_MOST);
        for (int v = first; v <= last && *n < K_MOST; v++)
            k[(*n)++] = v;
    }
    return rc;
}

/* The drafters of --spec-type; for auto those that need no model, and those that are available. */
static void default_drafters(const struct options *o, struct words *out)
{
    char type[16];

    option_word(&option_table[OPTION_ID_spec_type], o->spec_type, type, sizeof type);
    if (drafter_find(type) != DRAFTER_COUNT) {
        snprintf(out->at[out->n++], sizeof out->at[0], "%s", type);
        return;
    }
    for (int i = 0; i < DRAFTER_COUNT; i++) {
        const struct drafter_ops *ops = drafter_ops((enum drafter_kind)i);

        if (ops->needs == DRAFTER_NEEDS_NOTHING ||
            (ops->needs == DRAFTER_NEEDS_MODEL && o->model_draft) ||
            (ops->needs == DRAFTER_NEEDS_HEADS && (o->medusa || o->medusa_heads)))
            snprintf(out->at[out->n++], sizeof out->at[0], "%s", ops->name);
    }
}

static int check(const struct words *drafters, const struct words *policies, struct sweep *s,
                 struct error *e)
{
    struct acceptance a;
    int rc = 0;

    s->exact = true;
    for (int i = 0; i < drafters->n; i++)
        if (drafter_find(drafters->at[i]) == DRAFTER_COUNT)
            return error_set(e, ERR_USAGE, "--spec-sweep: there is no drafter '%s'",
                             drafters->at[i]);
    for (int i = 0; i < policies->n && rc == 0; i++) {
        if ((rc = acceptance_parse(policies->at[i], &a, e)) < 0)
            return error_prefix(e, "--spec-sweep");
        s->exact = s->exact && !a.policy;
    }
    return rc;
}

static int make_arms(struct sweep *s, const struct words *drafters, const struct words *policies,
                     const int *k, int n, int n_max, struct error *e)
{
    for (int i = 0; i < n; i++)
        s->most_k = k[i] > s->most_k ? k[i] : s->most_k;
    s->most_k = s->most_k ? s->most_k : n_max;
    s->arms[s->n_arms++] = (struct sweep_arm){"none", "prefix", 0, false};
    for (int d = 0; d < drafters->n; d++)
        for (int p = 0; p < policies->n; p++)
            for (int i = 0; i < n; i++) {
                struct sweep_arm *a = &s->arms[s->n_arms];

                if (s->n_arms == SWEEP_ARMS)
                    return error_set(e, ERR_USAGE, "--spec-sweep: more than %d combinations",
                                     SWEEP_ARMS - 1);
                snprintf(a->drafter, sizeof a->drafter, "%.15s", drafters->at[d]);
                snprintf(a->policy, sizeof a->policy, "%s", policies->at[p]);
                a->adaptive = k[i] == ADAPTIVE;
                a->k = a->adaptive ? s->most_k : k[i];
                s->n_arms++;
            }
    return 0;
}

int sweep_parse(struct sweep *s, const struct options *o, struct error *e)
{
    struct words drafters = {.n = 0}, policies = {.n = 0};
    char text[400], *rest = text;
    int k[K_MOST], n = 0, rc = 0;

    snprintf(text, sizeof text, "%s", o->spec_sweep);
    for (char *word; rc == 0 && (word = strtok_r(rest, " ", &rest));) {
        if (strncmp(word, "K=", 2) == 0 || strncmp(word, "k=", 2) == 0)
            rc = parse_k(word + 2, k, &n, e);
        else if (strncmp(word, "drafts=", 7) == 0)
            rc = split(word + 7, &drafters, e);
        else if (strncmp(word, "accept=", 7) == 0)
            rc = split(word + 7, &policies, e);
        else
            rc = usage(word, e);
    }
    if (rc == 0 && !n)
        rc = usage(o->spec_sweep, e);
    if (!drafters.n)
        default_drafters(o, &drafters);
    if (!policies.n)
        snprintf(policies.at[policies.n++], sizeof policies.at[0], "%s",
                 o->spec_accept ? o->spec_accept : "prefix");
    if (rc == 0)
        rc = check(&drafters, &policies, s, e);
    s->exact = s->exact && !o->spec_synth_rates;
    return rc < 0 ? rc : make_arms(s, &drafters, &policies, k, n, o->spec_draft_n_max, e);
}

void sweep_release(struct sweep *s)
{
    mem_free(s->samples);
    s->samples = NULL;
}
