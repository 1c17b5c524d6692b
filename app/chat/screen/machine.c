/* The machine panel of the chat (app/common/machine_view.h), the newest rate as a share of the
 * memory's limit, and the figures of a server. UI thread. */
#include "app/chat/screen/internal.h"

#include "app/connect/figures.h"
#include "app/connect/remote.h"
#include "engine/base/clock.h"
#include "engine/base/membw.h"

#include <ctype.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_MS 60 /* time of a measurement, between two answers */
#define MEMORY_PAUSE (30 * CLOCK_SECOND)
#define MEMORY_AGAIN (5 * CLOCK_SECOND) /* after one that was interrupted */
#define MEMORY_FREE ((uint64_t)2 << 30) /* it reads a buffer of 1 GiB at most */

/* On the engine's thread, only while it is idle: on a busy machine with a large cache it can take
 * 15 seconds. */
static int measure_memory(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct chat *s = ctx;
    int threads = engine_info(g)->n_threads, cached = atomic_load(&s->weights_cached);
    double speed = 0;

    (void)text;
    (void)e;
    if (!cached)
        cached = membw_cached_until(s->roofline.all_weights, threads, &s->memory_stop) ? 1 : -1;
    if (cached < 0)
        speed = membw_read_until(threads, MEMORY_MS, &s->memory_stop);
    if (atomic_load(&s->memory_stop)) {
        atomic_store(&s->memory_cut, true);
        return 0;
    }
    atomic_store(&s->weights_cached, cached);
    if (cached < 0) {
        atomic_store(&s->memory_earlier, atomic_load(&s->memory_speed));
        atomic_store(&s->memory_speed, speed);
    }
    return 0;
}

void chat_machine_hurry(struct chat *s)
{
    atomic_store(&s->memory_stop, true);
}

/* The newest rate as a share of the roofline. Memory bandwidth changes over time, so it is measured
 * again now and then, after an answer; not for a model that fits in the CPU cache. Work on a device
 * is not limited by this memory. */
static void take_memory_share(struct chat *s, uint64_t now, uint64_t available)
{
    const struct telemetry *t = &s->model.live;
    bool cached = atomic_load(&s->weights_cached) > 0, home = true;

    s->model.memory_share[0] = 0;
    for (int i = 0; t->planned && i < t->n_layers * t->n_experts && home; i++)
        home = t->planned[i] == 0;
    if (!s->has_roofline || !home)
        return;
    if (atomic_exchange(&s->memory_cut, false)) {
        s->memory_due = true;
        s->memory_at = now + MEMORY_AGAIN;
    }
    if (s->memory_due && !cached && now >= s->memory_at && available > MEMORY_FREE &&
        !conversation_working(s->conversation) && !conversation_waiting(s->conversation)) {
        atomic_store(&s->memory_stop, false);
        if (conversation_call(s->conversation, measure_memory, s, NULL) == 0) {
            s->memory_due = false;
            s->measuring = true;
            s->memory_at = now + MEMORY_PAUSE;
        }
    }
    roofline_text(&s->roofline, t->context_used, s->model.shown.decode_tok_s,
                  atomic_load(&s->memory_earlier), atomic_load(&s->memory_speed), cached,
                  s->model.memory_share, sizeof s->model.memory_share);
}

static void take_server(struct chat *s)
{
    struct ui_server *u = &s->model.server;
    struct figures f;

    if (!conversation_figures(s->conversation, &f))
        return;
    u->on = true;
    snprintf(u->host, sizeof u->host, "%.63s", conversation_host(s->conversation));
    u->running = f.running;
    u->waiting = f.waiting;
    u->kv = f.kv;
    u->decode_tok_s = f.decode_tok_s;
    u->prompt_tok_s = f.prompt_tok_s;
    u->cached = f.cached;
    u->accepted = f.accepted;
    u->draft_length = f.draft_length;
    conversation_remote_waits(s->conversation, u->waits, sizeof u->waits);
    snprintf(u->why, sizeof u->why, "%s", f.why);
}

/* For another moetop: its devices' names, its model's type. */
static void take_remote_engine(struct chat *s)
{
    struct remote_engine r;
    struct ui_model *m = &s->model;

    m->server.whole = conversation_remote_engine(s->conversation, &r);
    if (!m->server.whole)
        return;
    snprintf(m->model_type, sizeof m->model_type, "%s", r.type);
    for (char *p = m->model_type; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    for (int i = 0; i < m->live.n_devices && i < DEVICE_MAX; i++)
        snprintf(m->devices[i].name, sizeof m->devices[i].name, "%s", r.devices[i]);
}

void chat_machine_take(struct chat *s, uint64_t now)
{
    machine_view_take(s->machine, &s->model, conversation_info(s->conversation), now);
    take_server(s);
    take_remote_engine(s);
    if (s->has_roofline)
        s->model.bytes_per_token = (double)roofline_token_bytes(&s->roofline,
                                                                s->model.live.context_used);
    take_memory_share(s, now, s->model.system.memory_available);
}
