/* See consequences.h. Main thread. Nothing is generated: the model is opened for the sizes of its
 * blocks and for the costs of its jobs on its own weights. */
#include "app/placement/consequences.h"

#include "app/setup/engine_options.h"
#include "engine/base/mem.h"
#include "engine/file/direct_rate.h"
#include "engine/model/expert_reader.h"
#include "engine/model/model.h"
#include "engine/placement/planner.h"
#include "engine/run/engine.h"

#include <stdio.h>
#include <string.h>

#define DISK_MS 300

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the consequences of placement");
}

/* Uses of every expert in the trace; those that no router chooses are used by every token. */
static double *usage_of(const struct trace_report *r, const struct planner_input *in)
{
    size_t n = (size_t)in->n_experts;
    double *usage = mem_alloc((size_t)in->n_layers * n, sizeof *usage);

    for (size_t i = 0; usage && i < (size_t)in->n_layers * n; i++)
        usage[i] = in->expert_bytes[i] ? (double)r->trace->n : 0;
    for (int l = 0; usage && l < r->n_layers; l++)
        memcpy(usage + (size_t)r->layers[l].layer * n, r->layers[l].counts,
               (size_t)r->layers[l].experts * sizeof *usage);
    return usage;
}

/* Of the calls that routers made, the share whose expert the plan has on a device. */
static double hits_of(const struct trace_report *r, const struct plan *p)
{
    double all = 0, there = 0;

    for (int l = 0; l < r->n_layers; l++)
        for (int x = 0; x < r->layers[l].experts; x++) {
            all += r->layers[l].counts[x];
            if (p->experts[r->layers[l].layer * p->n_experts + x])
                there += r->layers[l].counts[x];
        }
    return all > 0 ? there / all : 0;
}

static int plan_figures(const struct planner_input *in, const struct trace_report *r,
                        const struct planner_spec *s, double *hits, double *rate, struct error *e)
{
    char note[PLANNER_NOTE];
    struct plan *p;
    double ns;
    int rc = planner_run(s, in, &p, note, e);

    if (rc < 0)
        return rc;
    ns = planner_token_ns(in, p);
    *rate = ns > 0 ? 1e9 / ns : 0;
    *hits = hits_of(r, p);
    plan_free(p);
    return 0;
}

/* ---- the expert cache ---- */

struct recency { /* a ring of cells: next of the root is the newest, before it the oldest */
    int *next, *before, root, held;
    bool *here;
};

static void unlink_cell(struct recency *q, int cell)
{
    q->next[q->before[cell]] = q->next[cell];
    q->before[q->next[cell]] = q->before[cell];
}

/* Whether it was there; it is the newest now, and the oldest gave way. */
static bool touch(struct recency *q, int cell, int slots)
{
    bool hit = q->here[cell];

    if (hit) {
        unlink_cell(q, cell);
    } else if (q->held == slots) {
        int oldest = q->before[q->root];

        unlink_cell(q, oldest);
        q->here[oldest] = false;
    } else {
        q->held++;
    }
    q->here[cell] = true;
    q->next[cell] = q->next[q->root];
    q->before[cell] = q->root;
    q->before[q->next[cell]] = cell;
    q->next[q->root] = cell;
    return hit;
}

/* The trace's tokens one by one through a cache of so many experts that drops the least recently
 * used: share of calls that it answers, bytes read a token. */
static int run_cache(const struct trace_report *r, const struct planner_input *in, int slots,
                     double *hits, double *bytes, struct error *e)
{
    const struct trace *t = r->trace;
    int cells = in->n_layers * in->n_experts;
    struct recency q = {.next = mem_alloc((size_t)cells + 1, sizeof *q.next),
                        .before = mem_alloc((size_t)cells + 1, sizeof *q.before),
                        .here = mem_alloc((size_t)cells + 1, sizeof *q.here),
                        .root = cells};
    double calls = 0, hit = 0;
    int rc = q.next && q.before && q.here ? 0 : no_memory(e);

    *bytes = 0;
    if (rc == 0)
        q.next[cells] = q.before[cells] = cells;
    for (uint64_t i = 0; i < t->n && rc == 0; i++)
        for (int l = 0; l < r->n_layers; l++)
            for (int k = 0; k < r->layers[l].used; k++) {
                int x = trace_expert(t, i, r->layers[l].layer, k),
                    cell = r->layers[l].layer * in->n_experts + x;

                if (x < 0)
                    continue;
                calls++;
                if (touch(&q, cell, slots))
                    hit++;
                else
                    *bytes += (double)in->expert_bytes[cell] / (double)t->n;
            }
    *hits = calls > 0 ? hit / calls : 0;
    mem_free(q.next);
    mem_free(q.before);
    mem_free(q.here);
    return rc;
}

/* ---- all ---- */

static uint64_t bytes_of(const struct trace_report *r, const struct planner_input *in)
{
    uint64_t sum = 0;

    for (int l = 0; l < r->n_layers; l++) {
        uint64_t most = 0;

        for (int x = 0; x < r->layers[l].experts; x++) {
            uint64_t b = in->expert_bytes[r->layers[l].layer * in->n_experts + x];

            most = b > most ? b : most;
        }
        sum += most;
    }
    return sum;
}

static bool known(const struct planner_device *d)
{
    return d->attention_ns > 0 && d->expert_ns > 0;
}

static int make_row(struct report_placement *p, const struct planner_input *in,
                    const struct trace_report *r, int k, struct error *e)
{
    struct report_placed *row = &p->rows[p->n++];
    double cpu = planner_token_ns(in, in->current);
    char text[32];
    struct planner_spec s;
    int rc;

    row->experts = k;
    row->bytes = (uint64_t)k * bytes_of(r, in);
    if ((rc = planner_parse(&s, "hot", e)) < 0)
        return rc;
    s.size = row->bytes;
    snprintf(text, sizeof text, "experts:%d", k);
    if ((rc = plan_figures(in, r, &s, &row->hot_hits, &row->hot, e)) < 0 ||
        (rc = planner_parse(&s, text, e)) < 0 ||
        (rc = plan_figures(in, r, &s, &row->first_hits, &row->first, e)) < 0 ||
        (rc = run_cache(r, in, k * r->n_layers, &row->cache_hits, &row->read, e)) < 0)
        return rc;
    row->cached = p->disk > 0 ? 1e9 / (cpu + row->read / p->disk * 1e9) : 0;
    return 0;
}

static int make_rows(struct report_placement *p, struct planner_input *in,
                     const struct trace_report *r, struct error *e)
{
    struct planner_spec all;
    double ignored;
    int most = 0, rc = 0;

    for (int l = 0; l < r->n_layers; l++)
        most = r->layers[l].experts > most ? r->layers[l].experts : most;
    p->cpu = 1e9 / planner_token_ns(in, in->current);
    if ((rc = planner_parse(&all, "experts-gpu", e)) < 0 ||
        (rc = plan_figures(in, r, &all, &ignored, &p->experts_gpu, e)) < 0 ||
        (rc = planner_parse(&all, "gpu", e)) < 0 ||
        (rc = plan_figures(in, r, &all, &ignored, &p->gpu, e)) < 0)
        return rc;
    for (int k = 1; k <= most && p->n < REPORT_PLACED && rc == 0;
         k = k < most && 2 * k > most ? most : 2 * k)
        rc = make_row(p, in, r, k, e);
    return rc;
}

static int with_engine(struct report_placement *p, struct engine *g, const struct options *o,
                       const struct trace_report *r, struct error *e)
{
    const struct model *m = engine_info(g)->model;
    const struct planner_input *shared;
    struct planner_input in;
    struct plan *cpu;
    double *usage;
    int rc;

    if (m->hash != r->trace->head.hash)
        return error_set(e, ERR_INPUT,
                         "-m %s is not the model of %s (%s): its placement would not be this "
                         "routing's; leave -m away, or name that model",
                         o->model, r->trace->path, r->trace->head.model);
    if (!(shared = engine_planner_input(g, true, o->device != NULL, true, e)))
        return e->code;
    in = *shared;
    if (!in.target || !known(&in.devices[0]) || !known(&in.devices[in.target])) {
        snprintf(p->none, sizeof p->none,
                 in.target
                     ? "the costs of a job are not known on both sides: moetop --doctor says "
                       "what is wrong with the device"
                     : "there is no device beside the CPU: --device names one (--list-devices)");
        return 0;
    }
    snprintf(p->device, sizeof p->device, "%s", in.devices[in.target].name);
    p->disk = direct_rate(m->file, EXPERT_READERS, DISK_MS);
    usage = usage_of(r, &in);
    cpu = plan_new("cpu", in.n_layers, in.n_experts);
    in.usage = in.recent = usage;
    in.current = cpu;
    rc = usage && cpu ? make_rows(p, &in, r, e) : no_memory(e);
    mem_free(usage);
    plan_free(cpu);
    return rc;
}

int consequences_make(struct report_placement *p, const struct options *o,
                      const struct trace_report *r, struct error *e)
{
    struct options plain = *o; /* borrowed: only read */
    struct engine *g = NULL;
    int rc;

    *p = (struct report_placement){0};
    if (!o->model || o->origin[OPTION_ID_model].from != ORIGIN_FLAG) {
        snprintf(p->none, sizeof p->none,
                 "no model is named: -m %.120s measures what its experts cost here",
                 r->trace->head.model);
        return 0;
    }
    plain.place = (char *)"cpu";
    plain.place_prompt = NULL;
    plain.profile = NULL;
    plain.routing_trace = plain.routing_replay = NULL;
    if ((rc = engine_setup_open(&plain, &g, e)) == 0)
        rc = with_engine(p, g, o, r, e);
    engine_close(g);
    return rc;
}
