/* What a placement puts on devices: plans are made as the engine makes them, from devices that are
 * probed and not opened, and each says what its part of the plans would take. */
#include "app/setup/fit.h"

#include "app/setup/plan_file.h"
#include "engine/base/mem.h"
#include "engine/device/selector.h"
#include "engine/model/model.h"
#include "engine/placement/cost_model.h"
#include "engine/run/pass/rope.h"

#include <string.h>

/* The devices that the engine would open for a placement: index 1 and on are theirs in plans. */
struct devices {
    struct found_device at[DEVICE_MAX]; /* from 1 on; n with the CPU */
    int n;
};

static void find_devices(const struct engine_config *c, struct devices *out)
{
    struct found_device found[DEVICE_MAX];
    char why[512];
    int n = c->backends
                ? selector_find(c->backends, c->device_selector, found, DEVICE_MAX, why, sizeof why)
                : 0;

    out->n = 1;
    for (int i = 0; i < n && out->n < (c->device_selector ? DEVICE_MAX : 2); i++)
        if (!found[i].info.why_not[0] && found[i].ops->footprint)
            out->at[out->n++] = found[i];
}

static bool on(const struct plan *p, int cell, int device)
{
    return p->experts[cell] == device && !p->streamed[cell];
}

static bool streams_on(const struct plan *p, int cell, int device)
{
    return p->experts[cell] == device && p->streamed[cell];
}

/* The blocks that either plan has on the device, except experts that are streamed alone. */
static int count_blocks(const struct plan *p, const struct plan *q, int device,
                        struct block_id *out, bool *streams)
{
    int n = 0;

    *streams = false;
    if (p->head == device || q->head == device)
        out[n++] = (struct block_id){BLOCK_HEAD, 0, 0};
    for (int l = 0; l < p->n_layers; l++) {
        if (p->attention[l] == device || q->attention[l] == device)
            out[n++] = (struct block_id){BLOCK_ATTENTION, l, 0};
        for (int x = l * p->n_experts; x < (l + 1) * p->n_experts; x++) {
            *streams |= streams_on(p, x, device) || streams_on(q, x, device);
            if (on(p, x, device) || on(q, x, device))
                out[n++] = (struct block_id){BLOCK_EXPERT, l, x - l * p->n_experts};
        }
    }
    return n;
}

static int make_plan(const struct fit *f, const struct engine_config *c, const char *place,
                     const struct model *m, const struct devices *devices, struct plan **plan,
                     char note[PLANNER_NOTE], struct error *e)
{
    const char *names[DEVICE_MAX] = {"cpu"};
    const struct plan_shape shape = {.n_layers = m->hp.n_layers,
                                     .n_experts = m->hp.n_experts,
                                     .gpu = 1,
                                     .devices = names,
                                     .n_devices = devices->n};
    const struct state_config state = {c->kv_k, c->kv_v, f->context, f->ubatch};
    struct planner_spec spec;
    struct cost_model *costs = NULL;
    char path[4096];
    int rc;

    for (int d = 1; d < devices->n; d++)
        names[d] = devices->at[d].info.selector;
    if (plan_file_find(place, path, sizeof path))
        return plan_file_read(plan, path, &shape, e);
    if ((rc = planner_parse(&spec, place, e)) < 0 ||
        (rc = cost_model_new(&costs, m, &state, c->sessions, e)) < 0)
        return rc;
    for (int d = 1; d < devices->n; d++)
        cost_model_found(costs, d, &devices->at[d].info);
    rc = planner_run(&spec, cost_model_input(costs), plan, note, e);
    cost_model_free(costs);
    return rc;
}

/* A strategy or a plan file is meant, whatever devices there are. */
static int check_place(const char *place, struct error *e)
{
    struct planner_spec spec;
    char path[4096];

    return plan_file_find(place, path, sizeof path) ? 0 : planner_parse(&spec, place, e);
}

/* One device's part. blocks: room for all of the model's. */
static int measure_one(const struct engine_config *c, const struct model *m,
                       const struct plan *tokens, const struct plan *prompts,
                       const struct devices *devices, int device, struct block_id *blocks,
                       struct fit *out, struct error *e)
{
    const struct found_device *found = &devices->at[device];
    const struct device_config dc = {.model = m,
                                     .index = device,
                                     .n_threads = 1,
                                     .max_rows = out->ubatch,
                                     .context = out->context,
                                     .sessions = c->sessions,
                                     .kv_k = c->kv_k,
                                     .kv_v = c->kv_v,
                                     .exact = c->exact,
                                     .selector = found->info.selector,
                                     .cache_dir = c->cache_dir,
                                     .ropes = rope_variants(&m->hp, out->context)};
    struct fit_device *f = &out->on[out->n_on];
    bool streams;
    int n = count_blocks(tokens, prompts, device, blocks, &streams),
        rc = found->ops->footprint(&dc, blocks, n, &f->has, e);

    if (rc < 0)
        return rc;
    if (!streams)
        f->has.stream_bytes = 0;
    snprintf(f->name, sizeof f->name, "%s (%s)", found->info.selector, found->info.name);
    f->bytes = f->has.weight_bytes + f->has.kv_bytes + f->has.scratch_bytes + f->has.staging_bytes +
               f->has.stream_bytes;
    f->memory = found->info.memory;
    f->shares = found->info.unified;
    out->total += f->shares ? f->bytes - f->has.shared_bytes : 0;
    out->n_on++;
    return 0;
}

int fit_measure_device(const struct engine_config *c, const char *place, const char *prompts,
                       struct fit *out, struct error *e)
{
    struct devices devices;
    struct model_footprint ignored;
    struct block_id *blocks = NULL;
    struct adapters *adapters = NULL;
    struct model *m = NULL;
    struct plan *plan = NULL, *other = NULL;
    char note[PLANNER_NOTE] = "";
    int rc;

    find_devices(c, &devices);
    if (devices.n == 1) {
        rc = check_place(place, e);
        return rc == 0 && prompts ? check_place(prompts, e) : rc;
    }
    if ((rc = fit_inspect(c, &m, &ignored, e)) < 0 ||
        (rc = adapters_open(&adapters, m, c->adapters, c->n_adapters, false, e)) < 0 ||
        (rc = make_plan(out, c, place, m, &devices, &plan, out->device_note, e)) < 0 ||
        (prompts && (rc = make_plan(out, c, prompts, m, &devices, &other, note, e)) < 0))
        goto out;
    if (!out->device_note[0])
        memcpy(out->device_note, note, sizeof note);
    blocks = mem_alloc((size_t)(plan->n_layers * (plan->n_experts + 1) + 1), sizeof *blocks);
    if (!blocks) {
        rc = error_set(e, ERR_MEMORY, "out of memory for the table");
        goto out;
    }
    out->total += out->apart;
    out->apart = 0;
    out->n_on = 0;
    for (int d = 1; d < devices.n && rc == 0; d++)
        rc = measure_one(c, m, plan, other ? other : plan, &devices, d, blocks, out, e);
out:
    mem_free(blocks);
    plan_free(plan);
    plan_free(other);
    model_free(m);
    adapters_close(adapters);
    return rc;
}

bool fit_fits_devices(const struct fit *f)
{
    for (int i = 0; i < f->n_on; i++)
        if (f->on[i].bytes > f->on[i].memory)
            return false;
    return true;
}

void fit_print_devices(const struct fit *f, FILE *out)
{
    for (int i = 0; i < f->n_on; i++) {
        const struct fit_device *on = &f->on[i];
        const struct device_stats *d = &on->has;
        bool noted = i == 0 && f->device_note[0];
        char note[160];

        fprintf(out, "  on %s%s%s\n", on->name, noted ? ": " : "", noted ? f->device_note : "");
        snprintf(note, sizeof note, "of it %.1f MiB are the host's memory, used in place",
                 (double)d->shared_bytes / (1 << 20));
        fit_print_row(out, "  weights", d->weight_bytes, d->shared_bytes ? note : "");
        fit_print_row(out, "  KV cache", d->kv_bytes, "");
        fit_print_row(out, "  scratch", d->scratch_bytes, "");
        if (d->staging_bytes)
            fit_print_row(out, "  staging", d->staging_bytes, "pinned, for uploads");
        if (d->stream_bytes)
            fit_print_row(out, "  passing experts", d->stream_bytes, "");
        snprintf(note, sizeof note, "it has %.1f MiB%s%s", (double)on->memory / (1 << 20),
                 on->shares ? ", shared with the host" : "",
                 on->bytes > on->memory ? ": IT DOES NOT FIT" : "");
        fit_print_row(out, "  together", on->bytes, note);
    }
}
