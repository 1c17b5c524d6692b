/* Devices other than the CPU: probed, opened and added when a placement first needs one. Engine
 * thread, except devices_open: also on the thread of devices_async.c. */
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include "engine/base/mem.h"
#include "engine/device/selector.h"

#include <stdio.h>
#include <string.h>

/* Uses the link of other engines' devices on the same hardware, if any. */
static int open_one(struct engine *g, const struct device_ops *ops, struct device_config *c,
                    struct device **out, struct error *e)
{
    int rc;

    if (!g->config.resources || !ops->link_close)
        return ops->open(out, c, e);
    c->link = shared_resources_link_take(g->config.resources, ops, c->selector);
    rc = ops->open(out, c, e);
    shared_resources_link_give(g->config.resources);
    return rc;
}

static int open_candidate(struct engine *g, const struct found_device *c, int index,
                          struct probed_device *out, char *why, size_t why_size)
{
    struct device_config config = {.model = g->model,
                                   .index = index,
                                   .n_threads = g->info.n_threads,
                                   .max_rows = g->info.ubatch,
                                   .context = g->info.context,
                                   .kv_k = g->config.kv_k,
                                   .kv_v = g->config.kv_v,
                                   .exact = g->config.exact,
                                   .selector = c->info.selector,
                                   .cache_dir = g->config.cache_dir,
                                   .rope_cos = {g->rope.cos[ROPE_SHORT], g->rope.cos[ROPE_LONG]},
                                   .rope_sin = {g->rope.sin[ROPE_SHORT], g->rope.sin[ROPE_LONG]},
                                   .second_cos = g->rope.second_cos,
                                   .second_sin = g->rope.second_sin,
                                   .log = devices_async_log,
                                   .log_ctx = g};
    struct error e = {0};

    model_settle(g->model); /* other devices take packed weights only */
    *out = (struct probed_device){.ops = c->ops, .info = c->info};
    if (c->info.why_not[0])
        snprintf(why, why_size, "%s: %s", c->info.selector, c->info.why_not);
    else if (open_one(g, c->ops, &config, &out->device, &e) == 0)
        return 0;
    else
        snprintf(why, why_size, "%s: %s", c->info.selector, e.text);
    return -1;
}

int devices_open(struct engine *g, bool named, int first_index, struct probed_device *out, int max,
                 char *why, size_t why_size)
{
    const char *selector = g->config.device_selector;
    struct found_device list[DEVICE_MAX];
    int n, n_out = 0;

    n = selector_find(g->config.backends, selector, list, DEVICE_MAX, why, why_size);
    for (int i = 0; i < n && n_out < (selector ? max : 1) && first_index + n_out < DEVICE_MAX;
         i++) {
        if (!selector && list[i].info.is_cpu_type && !named)
            continue;
        if (engine_given_up(g)) /* a driver takes seconds */
            return n_out;
        n_out += open_candidate(g, &list[i], first_index + n_out, &out[n_out], why, why_size) == 0;
    }
    return n_out;
}

/* A device opens with the state of session 0; opens those of the other sessions. */
static int open_states(const struct engine *g, const struct probed_device *p, struct error *e)
{
    int rc = 0;

    for (int n = 1; n < g->n_sessions && rc == 0; n++)
        if (g->sessions[n])
            rc = p->ops->state_open(p->device, n, e);
    return rc;
}

static bool runs_elsewhere(const struct engine *g, struct block_id id)
{
    bool any = false;

    for (int d = 1; d < g->n_devices; d++)
        any = any || residency_supports(g->devices[d], g->model, id);
    return any;
}

static void add_kept(char *out, size_t size, const char *what, int layers)
{
    size_t n = strlen(out);

    if (layers)
        snprintf(out + n, size - n, "%s%s, %d layer%s", n ? "; " : "", what, layers,
                 layers == 1 ? "" : "s");
}

static bool adapted(const struct block_matrix *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i].w->lora)
            return true;
    return false;
}

/* Sets the placement panel's text about blocks that stay on the CPU under every plan: see
 * telemetry.h. */
static void note_cpu_only(struct engine *g)
{
    const struct hparams *hp = &g->model->hp;
    int mixers[MIXER_KINDS] = {0}, experts = 0, adapted_mixers = 0, adapted_experts = 0;
    bool kept = false, by_adapters = false; /* some expert of the layer */
    char *out = g->t.cpu_only;

    for (struct block_id id = BLOCK_BEFORE; model_block_next(g->model, &id);) {
        struct block_matrix list[BLOCK_MATRICES];
        bool last = id.kind == BLOCK_EXPERT &&
                    id.expert + 1 == shape_experts(hparams_layer(hp, id.layer));
        int n = model_block_matrices(g->model, id, list);

        if (n && !runs_elsewhere(g, id)) {
            bool has = adapted(list, n);

            if (id.kind == BLOCK_ATTENTION)
                ++*(has ? &adapted_mixers : &mixers[hparams_layer(hp, id.layer)->mixer.kind]);
            kept = kept || (id.kind == BLOCK_EXPERT && !has);
            by_adapters = by_adapters || (id.kind == BLOCK_EXPERT && has);
        }
        if (last) {
            experts += kept && !by_adapters;
            adapted_experts += by_adapters;
            kept = by_adapters = false;
        }
    }
    out[0] = '\0';
    for (int k = 0; k < MIXER_KINDS; k++)
        add_kept(out, sizeof g->t.cpu_only, shape_mixer_word((enum mixer_kind)k), mixers[k]);
    add_kept(out, sizeof g->t.cpu_only, "experts", experts);
    add_kept(out, sizeof g->t.cpu_only, "attention with adapters", adapted_mixers);
    add_kept(out, sizeof g->t.cpu_only, "experts with adapters", adapted_experts);
}

void devices_offer_rows(struct engine *g, void *at, size_t bytes)
{
    for (int d = 0; d < g->n_devices; d++)
        if (at && g->slots[d].ops->host_rows)
            g->slots[d].ops->host_rows(g->slots[d].device, at, bytes);
}

/* All there are so far to a new device. */
static void offer_rows(const struct engine *g, const struct device_slot *s)
{
    size_t row = (size_t)g->model->hp.n_vocab * sizeof(float);

    if (!s->ops->host_rows)
        return;
    forward_offer_rows(&g->forward, s);
    if (g->beside.apart.main)
        forward_offer_rows(&g->beside.apart.f, s);
    if (g->pass.logits)
        s->ops->host_rows(s->device, g->pass.logits, (size_t)g->pass.n_logits * row);
    if (g->beside.pass.logits)
        s->ops->host_rows(s->device, g->beside.pass.logits, (size_t)g->beside.pass.n_logits * row);
    for (int n = 0; n < g->n_sessions; n++)
        if (g->sessions[n])
            s->ops->host_rows(s->device, g->sessions[n]->logits, row);
}

void devices_audit(struct engine *g)
{
    struct error e = {0};

    g->forward.audit.every = g->config.audit;
    if (g->n_devices > 1 &&
        audit_open(&g->forward.audit, g->model, g->slots, &g->kv, g->info.ubatch, &e) < 0)
        engine_notice(g, "%s", e.text);
}

/* Adds the devices of devices_open to the engine. */
void devices_adopt(struct engine *g, struct probed_device *found, int n, const char *why,
                   bool named)
{
    for (int i = 0; i < n; i++) {
        struct device_slot *s = &g->slots[g->n_devices];
        struct error e = {0};

        const struct device_slot *cpu = &g->slots[0];
        bool in_place = found[i].ops->state_in_place && cpu->ops->state_memory &&
                        found[i].ops->state_in_place(found[i].device, cpu->device);

        if (open_states(g, &found[i], &e) < 0) {
            engine_notice(g, "%s: %s", found[i].info.selector, e.text);
            found[i].ops->close(found[i].device);
            continue;
        }
        *s = (struct device_slot){.ops = found[i].ops,
                                  .device = found[i].device,
                                  .info = found[i].info,
                                  .in_place = in_place};
        offer_rows(g, s);
        g->devices[g->n_devices] = s->device;
        g->info.devices[g->n_devices] = s->info;
        cost_model_device(g->cost_model, g->n_devices, s->device);
        g->info.n_devices = ++g->n_devices;
    }
    if (g->n_devices > 1)
        note_cpu_only(g);
    devices_audit(g);
    g->why_told = g->n_devices == 1 && named;
    if (g->why_told)
        engine_notice(g, "%s: the CPU does all the work",
                      why[0]                      ? why
                      : g->config.device_selector ? g->config.device_selector
                                                  : "no other device");
}

bool devices_seek(struct engine *g, bool named)
{
    const char *selector = g->config.device_selector;
    struct probed_device found[DEVICE_MAX];
    char why[512];
    int n;

    if (g->devices_async && !devices_async_poll(g, !g->busy))
        return false;
    if (g->devices_sought >= 1 + named || g->n_devices > 1 || !g->config.backends ||
        (selector && strcmp(selector, "none") == 0))
        return true;
    g->devices_sought = 1 + named;
    rope_reach(&g->rope, g->info.context); /* a device takes a copy */
    if (g->busy && devices_async_start(g, named, NULL) == 0)
        return false;
    n = devices_open(g, named, g->n_devices, found, DEVICE_MAX, why, sizeof why);
    devices_adopt(g, found, n, why, named);
    return true;
}
