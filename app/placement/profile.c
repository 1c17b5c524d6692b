/* The mode --profile-experts: counts, weights and times of experts over a text. Main thread;
 * profile_text also serves /profile. */
#include "app/placement/profile.h"

#include "app/setup/engine_options.h"
#include "app/setup/test_text.h"
#include "app/common/svg_plot.h"
#include "app/common/signals.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/run/report/trace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WINDOW 2048 /* tokens computed as one text */
#define CHUNK PROFILE_CHUNK
#define TIMED 48 /* tokens whose expert calls are timed */

struct counting {
    struct usage *u;
    int *newest; /* (n_layers, n_used) of the newest token; NULL: not wanted */
};

static void count(void *ctx, const struct routing *r)
{
    struct counting *c = ctx;

    if (c->u)
        usage_add(c->u, r->rows, r->pos, r->experts, r->weights);
    for (int l = 0; c->newest && l < r->n_layers; l++)
        memcpy(c->newest + l * r->used,
               r->experts + (size_t)l * r->layer_stride + (size_t)((r->rows - 1) * r->used),
               (size_t)r->used * sizeof(int));
}

int profile_text(struct engine *g, const int *ids, int n, struct usage *u, int (*stop)(void *ctx),
                 void *ctx, struct error *e)
{
    struct counting c = {.u = u};
    int window = engine_info(g)->context < WINDOW ? engine_info(g)->context : WINDOW, rc = 0;

    engine_observe(g, count, &c);
    for (int at = 0; at < n && rc == 0; at += window) {
        int end = at + window < n ? at + window : n;

        engine_session_clear(g);
        for (int i = at; i < end && rc == 0; i += CHUNK) {
            rc = engine_eval(g, ids + i, end - i < CHUNK ? end - i : CHUNK, NULL, false, e);
            if (rc == 0 && stop && stop(ctx))
                rc = error_set(e, ERR_CANCELLED, "interrupted");
        }
    }
    engine_observe(g, NULL, NULL);
    engine_session_clear(g);
    return rc;
}

/* The time of one layer's experts on a device is divided equally among their calls. */
static void share_out(const struct trace *t, size_t from, const struct counting *c,
                      const struct telemetry *now, double *sum, double *calls,
                      double device_ns[PROFILE_DEVICES], double device_calls[PROFILE_DEVICES])
{
    for (size_t i = from; i < t->n; i++) {
        const struct trace_entry *s = &t->entries[i];
        const int *chosen = c->newest + s->layer * now->n_experts_used;
        int n = 0;

        if (s->kind != TRACE_EXPERTS || s->device >= PROFILE_DEVICES)
            continue;
        for (int k = 0; k < now->n_experts_used; k++)
            n += chosen[k] >= 0 && now->ran_on[s->layer * now->n_experts + chosen[k]] == s->device;
        for (int k = 0; k < now->n_experts_used && n; k++) {
            int cell = s->layer * now->n_experts + chosen[k];

            if (chosen[k] < 0 || now->ran_on[cell] != s->device)
                continue;
            sum[cell] += (double)(s->end_ns - s->start_ns) / n;
            calls[cell] += 1;
            device_ns[s->device] += (double)(s->end_ns - s->start_ns) / n;
            device_calls[s->device] += 1;
        }
    }
}

int profile_times(struct engine *g, const int *ids, int n, struct profile_facts *facts,
                  struct error *e)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    size_t cells = (size_t)hp->n_layers * (size_t)hp->n_experts;
    int tokens = n < TIMED ? n : TIMED, rc = 0;
    double *sum = mem_alloc(cells, sizeof *sum), *calls = mem_alloc(cells, sizeof *calls),
           device_ns[PROFILE_DEVICES] = {0}, device_calls[PROFILE_DEVICES] = {0};
    struct counting c = {
        .newest = mem_alloc((size_t)hp->n_layers * (size_t)hp->n_experts_used, sizeof(int))};

    if (!sum || !calls || !c.newest)
        rc = error_set(e, ERR_MEMORY, "out of memory for the profile");
    if (rc == 0)
        rc = engine_trace_start(g, (size_t)tokens * (size_t)(hp->n_layers * 8 + 8), e);
    engine_session_clear(g);
    engine_observe(g, count, &c);
    for (int i = 0; i < tokens && i < engine_info(g)->context && rc == 0; i++) {
        size_t from = engine_trace(g)->n;

        rc = engine_eval(g, ids + i, 1, NULL, false, e);
        if (rc == 0 && i > 0) /* the first token is a warm-up */
            share_out(engine_trace(g), from, &c, engine_telemetry(g), sum, calls, device_ns,
                      device_calls);
    }
    engine_observe(g, NULL, NULL);
    engine_trace_start(g, 0, NULL);
    engine_session_clear(g);
    for (size_t i = 0; i < cells && rc == 0; i++)
        sum[i] = calls[i] > 0 ? sum[i] / calls[i] : 0;
    for (int d = 0; d < facts->n_devices && rc == 0; d++)
        facts->devices[d].expert_ns = device_calls[d] > 0 ? device_ns[d] / device_calls[d] : 0;
    if (rc == 0) {
        facts->expert_ns = sum;
        sum = NULL;
    }
    mem_free(sum);
    mem_free(calls);
    mem_free(c.newest);
    return rc;
}

void profile_describe(const struct engine *g, const char *source, enum profile_reading how,
                      struct profile_facts *facts)
{
    const struct engine_info *info = engine_info(g);

    memset(facts, 0, sizeof *facts);
    snprintf(facts->model, sizeof facts->model, "%s", info->model->name);
    snprintf(facts->type, sizeof facts->type, "%s", dtype_info(info->model->type)->word);
    snprintf(facts->source, sizeof facts->source, "%s", source);
    snprintf(facts->read_as, sizeof facts->read_as, "%s", profile_reading_word(how));
    facts->hash = info->model->hash;
    facts->n_devices = info->n_devices < PROFILE_DEVICES ? info->n_devices : PROFILE_DEVICES;
    for (int d = 0; d < facts->n_devices; d++)
        snprintf(facts->devices[d].name, sizeof facts->devices[d].name, "%s",
                 d ? info->devices[d].selector : "cpu");
}

void profile_sentence(const struct usage *u, const char *suggest, char *out, size_t size)
{
    struct usage_layer m = usage_mean(u);

    if (!u->tokens)
        snprintf(out, size, "Nothing was counted yet.");
    else if (m.entropy_share > 0.97)
        snprintf(out, size,
                 "The use is even (%.1f %% of the possible entropy): there is no hot set here.",
                 100 * m.entropy_share);
    else if (m.entropy_share > 0.9)
        snprintf(out, size,
                 "Some experts are used more (the busiest %.1f times the mean), but no few of them "
                 "carry the text.",
                 m.imbalance);
    else
        snprintf(out, size,
                 "The use is uneven (%.0f %% of the possible entropy, the busiest expert %.1f "
                 "times the mean): a hot set may pay; "
                 "validate it on other text with %s.",
                 100 * m.entropy_share, m.imbalance, suggest);
}

static void put_row(FILE *f, bool narrow, const char *name, const struct usage_layer *s)
{
    bool lowest = strcmp(name, "0") == 0;

    if (narrow) {
        fprintf(f, "%5s  %4.0f %%  %7.2f  %4.0f %%  %4.0f %%", name, 100 * s->entropy_share,
                s->imbalance, 100 * s->unused, 100 * s->overlap);
        fprintf(f, lowest ? "       –\n" : "  %4.0f %%\n", 100 * s->below);
        return;
    }
    fprintf(f, "%5s  %6.3f  %6.1f %%  %9.2f  %6.1f %%  %7.1f %% (%5.1f %%)", name, s->entropy,
            100 * s->entropy_share, s->imbalance, 100 * s->unused, 100 * s->overlap,
            100 * s->overlap_chance);
    fprintf(f, lowest ? "          –\n" : "  %7.1f %% (%5.1f %%)\n", 100 * s->below,
            100 * s->below_chance);
}

/* A row per layer and their mean, stored in *m. */
static void put_rows(FILE *f, bool narrow, const struct usage *u, struct usage_layer *m)
{
    *m = usage_mean(u);
    fprintf(f, "%llu tokens, %d layers of %d experts, %d a token\n%s\n",
            (unsigned long long)u->tokens, u->n_layers, u->n_experts, u->n_used,
            narrow ? "layer  of max  busiest  unused  before   below"
                   : "layer  entropy  of max   busiest    unused   as the token before   as the "
                     "layer below");
    for (int l = 0; l < u->n_layers; l++) {
        struct usage_layer s = usage_layer(u, l);
        char name[16];

        snprintf(name, sizeof name, "%d", l);
        if (u->routed[l] <= u->called[l])
            fprintf(f, "%5s  no choice: a token meets all of it\n", name);
        else
            put_row(f, narrow, name, &s);
    }
    put_row(f, narrow, "mean", m);
}

static void put_sentence(FILE *f, const struct usage *u, const char *suggest)
{
    char text[300];

    profile_sentence(u, suggest, text, sizeof text);
    fprintf(f, "%s\n", text);
}

void profile_print(FILE *f, const struct usage *u)
{
    struct usage_layer m;

    put_rows(f, false, u, &m);
    fprintf(f, "(busiest: the most used expert, times the mean; unused: experts that no token "
               "chose; last columns: how many of a token's experts\n"
               " bear the same numbers as those of the token before, or of the layer below; in "
               "brackets what independent choices would give)\n");
    put_sentence(f, u, "--suggest");
}

void profile_print_narrow(FILE *f, const struct usage *u)
{
    struct usage_layer m;

    put_rows(f, true, u, &m);
    fprintf(f,
            "(of max: entropy; busiest: the most used expert, times the mean; unused: experts that "
            "no token chose; before, below: how many of a "
            "token's experts bear the same numbers as those of the token before, of the layer "
            "below; chance alone: %.0f %% and %.0f %%)\n",
            100 * m.overlap_chance, 100 * m.below_chance);
    put_sentence(f, u, "/suggest");
}

static int draw(const struct usage *u, const struct plan *plan, const char *path, struct error *e)
{
    char *drawing = plot_map("Experts used by the text", u->count, plan ? plan->experts : NULL,
                             u->n_layers, u->n_experts);
    int rc = plot_write(path, &drawing, 1, e);

    mem_free(drawing);
    return rc;
}

int profile_mode_run(struct options *o, struct error *e)
{
    struct engine *g = NULL;
    struct usage u = {0};
    struct profile_facts facts = {0};
    struct profile_text_read read = {0};
    char *text = NULL, *json = NULL;
    size_t size;
    int rc = test_text_read(o->profile_experts, &text, &size, e);

    if (rc == 0)
        rc = engine_setup_open(o, &g, e);
    if (rc == 0)
        rc = profile_tokens(g, text, size, o->profile_experts, o->parse_special, &read, e);
    if (rc == 0) {
        const struct hparams *hp = &engine_info(g)->model->hp;

        rc = usage_model_init(&u, hp, e);
    }
    if (rc == 0)
        rc = profile_text(g, read.ids, read.n, &u, signals_stop, NULL, e);
    if (rc == 0) {
        profile_describe(g, o->profile_experts, read.how, &facts);
        rc = profile_times(g, read.ids, read.n, &facts, e);
    }
    if (rc == 0)
        rc = profile_json(&u, &facts, &json, &size, e);
    if (rc == 0 && o->output)
        rc = file_replace(o->output, json, size, e);
    else if (rc == 0 && fwrite(json, 1, size, stdout) != size)
        rc = output_failed(NULL, errno, e);
    if (rc == 0) {
        fprintf(stderr, "%s: %s\n", o->profile_experts, read.said);
        profile_print(stderr, &u);
    }
    if (rc == 0 && o->plot)
        rc = draw(&u, engine_plan(g), o->plot, e);
    usage_release(&u);
    profile_facts_release(&facts);
    mem_free(text);
    mem_free(json);
    mem_free(read.ids);
    engine_close(g);
    return rc;
}
