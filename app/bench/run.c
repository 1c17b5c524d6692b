/* Runs the tests of --bench and records their conditions. Main thread. Only the engine's calls are
 * timed: no tokenizing, no sampling, as in llama-bench; filling the depth is not timed, and the KV
 * rows of a depth are kept between repetitions. */
#include "app/bench/internal.h"
#include "app/setup/resolve.h"
#include "app/common/signals.h"
#include "app/common/turns.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/membw.h"
#include "engine/text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int bench_place(struct bench_arm *a, struct error *e)
{
    int rc;

    engine_routing_impose(a->g, a->imposed.experts ? &a->imposed : NULL);
    /* the plan of the arm before must not count beside this one's */
    if (engine_prompt_plan(a->g) && (rc = place_prompt_kept(a->g, NULL, NULL, e)) < 0)
        return rc;
    rc = place_kept(a->g, a->o.place ? a->o.place : "cpu", &a->plan, e);
    return rc < 0 ? rc : place_prompt_kept(a->g, a->o.place_prompt, &a->prompt_plan, e);
}

void bench_count_routing(void *ctx, const struct routing *r)
{
    usage_add(ctx, r->rows, r->pos, r->experts, r->weights);
}

/* The same, with the bytes that these tokens read. */
static void count_batch(void *ctx, const struct routing *r)
{
    struct bench_arm *a = ctx;

    bench_count_routing(&a->usage, r);
    a->read_bytes += roofline_rows_bytes(&a->roofline, engine_info(a->g)->model, r->experts,
                                         r->rows, r->pos);
}

static int eval(const struct bench *b, const struct bench_arm *a, int from, int n, unsigned seed,
                bool head, struct error *e)
{
    int *ids = bench_tokens(b, a, from, n, seed, e), rc;

    if (!ids)
        return ERR_MEMORY;
    rc = engine_eval(a->g, ids, n, head ? b->logits : NULL, false, e);
    mem_free(ids);
    return rc;
}

void bench_load_begin(struct bench *b)
{
    if (b->energy)
        energy_read(b->energy, &b->energy_before);
    machine_load_begin(b->system, &b->before);
}

void bench_load_end(struct bench *b, size_t arm, int tokens)
{
    struct bench_energy *x = &b->energies[arm];
    struct energy_reading now;

    machine_load_end(b->system, &b->before, &b->load[arm]);
    if (!b->energy)
        return;
    energy_read(b->energy, &now);
    for (int i = 0; i < ENERGY_SOURCES; i++)
        x->joules[i] += now.joules[i] - b->energy_before.joules[i];
    x->seconds += (double)(now.time_ns - b->energy_before.time_ns) * 1e-9;
    x->tokens += tokens;
}

/* Processor and GPU together; what is not readable is not counted. */
static void describe_energy(const struct bench_energy *x, struct bench_result *r)
{
    double sum = NAN;

    for (int i = 0; i < ENERGY_SOURCES; i++)
        if (!isnan(x->joules[i]))
            sum = (isnan(sum) ? 0 : sum) + x->joules[i];
    r->joules_a_token = x->tokens && x->seconds > 0 ? sum / (double)x->tokens : NAN;
    r->watts = x->tokens && x->seconds > 0 ? sum / x->seconds : NAN;
}

int bench_once(struct bench *b, size_t arm, const struct bench_test *t, unsigned seed, bool counted,
               double *ns, struct error *e)
{
    struct bench_arm *a = &b->arms[arm];
    struct engine *g = a->g;
    const int *have;
    uint64_t start;
    int rc = bench_place(a, e);

    if (t->parallel > 1)
        return rc < 0 ? rc : bench_once_parallel(b, arm, t, seed, counted, ns, e);

    /* the depth has the same text in every repetition: keeps the rows that exist */
    engine_session_rewind(g, t->n_depth);
    if (rc == 0 && engine_session_tokens(g, &have) < t->n_depth)
        rc = eval(b, a, engine_session_tokens(g, &have),
                  t->n_depth - engine_session_tokens(g, &have), 0, false, e);
    if (rc < 0)
        return rc;
    if (b->counting) {
        a->read_bytes = a->roofline.head; /* only for a prompt's last token */
        engine_observe(g, count_batch, a);
    }
    if (counted)
        bench_load_begin(b);
    start = clock_now();
    if (t->n_prompt)
        rc = eval(b, a, t->n_depth, t->n_prompt, seed, true, e);
    for (int i = 0; i < t->n_gen && rc == 0 && !signals_last(); i++) {
        uint64_t one = clock_now();
        int id = bench_token_at(b, a, t->n_depth + t->n_prompt + i, seed);

        rc = engine_eval(g, &id, 1, b->logits, false, e);
        if (counted && rc == 0)
            rc = turns_sample(&b->token_ms[arm], (double)(clock_now() - one) * 1e-6, e);
    }
    *ns = (double)(clock_now() - start);
    if (counted)
        bench_load_end(b, arm, t->n_prompt + t->n_gen);
    engine_observe(g, NULL, NULL);
    engine_session_rewind(g, t->n_depth);
    return rc < 0 ? rc : signals_check(e);
}

static void describe_model(const struct engine_info *info, struct bench_result *r)
{
    const struct model *m = info->model;
    char type[32];
    size_t n;

    snprintf(type, sizeof type, "%s", dtype_info(m->type)->word);
    for (n = 0; type[n]; n++)
        type[n] = (char)(type[n] >= 'a' && type[n] <= 'z' ? type[n] - 32 : type[n]);
    snprintf(r->model_type, sizeof r->model_type, "%s %.2fB %s", m->family,
             (double)m->n_params * 1e-9, type);
    snprintf(r->model_filename, sizeof r->model_filename, "%s", weight_file_path(m->file));
    r->model_size = weight_file_bytes(m->file);
    r->model_n_params = (uint64_t)m->n_params;
}

static const char *const kv_words[] = {[KV_F32] = "f32", [KV_F16] = "f16", [KV_Q8_0] = "q8_0"};

/* Expert use of the warm-up: how much of the model such a text uses. */
static void describe_use(const struct usage *u, struct bench_result *r)
{
    struct usage_layer mean;

    if (!u->tokens)
        return;
    mean = usage_mean(u);
    r->experts_seen = 1 - mean.unused;
    r->experts_imbalance = mean.imbalance;
}

static bool everything_home(const struct plan *p)
{
    bool home = p->head == 0;

    for (int l = 0; l < p->n_layers && home; l++) {
        home = p->attention[l] == 0;
        for (int x = 0; x < p->n_experts && home; x++)
            home = plan_expert(p, l, x) == 0;
    }
    return home;
}

static void describe_load(const struct machine_load *l, struct bench_result *r)
{
    char why[sizeof r->remark] = "";

    r->rss = l->rss;
    r->rss_peak = l->rss_peak;
    r->read_bytes = l->read_bytes;
    r->write_bytes = l->write_bytes;
    r->read_calls = l->read_calls;
    r->write_calls = l->write_calls;
    r->mhz = l->mhz_least > 0 ? l->mhz_least : NAN;
    r->cpu_use = l->seconds > 0 ? l->cpu_s / l->seconds : NAN;
    r->others_use = l->seconds > 0 ? l->others_s / l->seconds : NAN;
    r->disturbed = machine_load_disturbed(l, why, sizeof why);
    if (r->disturbed && !r->remark[0])
        snprintf(r->remark, sizeof r->remark, "%s", why);
}

void bench_describe(struct bench *b, size_t arm, const struct bench_test *t, double before,
                    double after, struct bench_result *r)
{
    struct bench_arm *a = &b->arms[arm];
    const struct engine_info *info = engine_info(a->g);
    const struct plan *plan = engine_plan(a->g);
    time_t now = time(NULL);
    struct series_figures f;
    struct tm utc;
    int context = t->n_depth + t->n_prompt + t->n_gen / 2;

    snprintf(r->version, sizeof r->version, "%s", MOETOP_VERSION);
    snprintf(r->cpu_info, sizeof r->cpu_info, "%.90s", system_cpu_name(b->system));
    describe_model(info, r);
    snprintf(r->backends, sizeof r->backends, "%s", info->n_devices > 1 ? "CPU,OpenCL" : "CPU");
    snprintf(r->gpu_info, sizeof r->gpu_info, "%.120s",
             info->n_devices > 1 ? info->devices[1].name : "");
    snprintf(r->devices, sizeof r->devices, "%s",
             info->n_devices > 1 ? info->devices[1].selector : "auto");
    r->n_batch = a->o.batch_size;
    r->n_ubatch = a->o.ubatch_size;
    r->n_threads = info->n_threads;
    snprintf(r->type_k, sizeof r->type_k, "%s", kv_words[a->o.cache_type_k]);
    snprintf(r->type_v, sizeof r->type_v, "%s", kv_words[a->o.cache_type_v]);
    for (int l = 0; l < plan->n_layers; l++)
        r->n_gpu_layers += plan->attention[l] != 0;
    r->n_prompt = t->n_prompt;
    r->n_gen = t->n_gen;
    r->n_depth = t->n_depth;
    r->n_parallel = t->parallel;
    gmtime_r(&now, &utc);
    strftime(r->test_time, sizeof r->test_time, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(r->arm, sizeof r->arm, "%s", a->label);
    place_names(a->g, r->placement);
    if (a->o.place && strcmp(a->o.place, "cpu") != 0 && everything_home(plan) &&
        !engine_prompt_plan(a->g))
        snprintf(r->remark, sizeof r->remark, "everything ran on the CPU");
    snprintf(r->kernels, sizeof r->kernels, "%s", info->kernels);
    snprintf(r->routing, sizeof r->routing, "%s", bench_routing_words[a->o.routing]);
    r->routing_imposed = a->imposed.experts != NULL;
    if (b->token_ms[arm].n && series_summarise(&b->token_ms[arm], &f) == 0) {
        r->token_p50_ms = f.median;
        r->token_p95_ms = f.p95;
    }
    r->bandwidth_before = before;
    r->bandwidth_after = after;
    r->in_cache = a->in_cache;
    if (t->n_gen && !t->n_prompt && t->parallel > 1) {
        int tokens = t->n_gen * t->parallel;

        r->token_bytes = a->read_bytes / (uint64_t)tokens;
        r->roofline_ts = a->read_bytes
                             ? (before > after ? before : after) / (double)a->read_bytes * tokens
                             : 0;
    } else if (t->n_gen && !t->n_prompt) {
        double best = before > after ? before : after;

        r->token_bytes = roofline_token_bytes(&a->roofline, context);
        r->roofline_ts = roofline_tokens_per_second(&a->roofline, context, best);
    }
    if (bench_is_batch(t) && a->read_bytes) {
        r->token_bytes = a->read_bytes / (uint64_t)t->n_prompt;
        r->roofline_ts = (before > after ? before : after) / (double)a->read_bytes * t->n_prompt;
    }
    for (size_t i = 0; i < b->n_arms; i++)
        if (engine_info(b->arms[i].g)->n_devices > 1)
            /* the driver's own threads may wait for ours: that says nothing about other programs */
            b->load[arm].delay_s = 0;
    describe_load(&b->load[arm], r);
    describe_energy(&b->energies[arm], r);
    describe_use(&a->usage, r);
}
