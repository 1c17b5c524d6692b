/* See dashboard.h. The status (app/serve/dispatch/server_status.h) is copied into the screen's
 * model several times a second; requests to the engine are sent through it. */
#include "app/serve/dashboard.h"

#include "app/common/machine_view.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/dispatch/server_status.h"
#include "app/setup/screen/screen_loop.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/file/dtype.h"
#include "engine/model/model.h"
#include "ui/screen/screen.h"

#include <ctype.h>
#include <stdio.h>

struct dashboard {
    struct screen_loop loop;
    struct server *server;
    struct ui_serving serving; /* the newest copy */
    struct machine_view *machine;
    char where[64];
    bool named, timeline;
    uint64_t sampled_ns;
    enum dashboard_end end;
};

bool dashboard_wanted(const struct options *o)
{
    return screen_loop_wanted(o);
}

static void look(void *ctx, uint64_t now);
static void act(void *ctx, enum action a, int index);

int dashboard_new(struct dashboard **out, struct server *s, const struct options *o,
                  struct error *e)
{
    static const struct screen_loop_calls calls = {look, act};
    struct dashboard *d = mem_alloc(1, sizeof *d);
    int rc;

    *out = d;
    if (!d)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    d->server = s;
    if ((rc = screen_loop_init(&d->loop, o, e)) < 0)
        return rc;
    d->loop.model.serving = &d->serving;
    d->loop.model.loading = true;
    d->serving.n_sessions = s->parallel;
    if (!(d->machine = machine_view_new()))
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    return screen_loop_prepare(&d->loop, KEYS_SERVER, &calls, d, e);
}

int dashboard_open(struct dashboard *d, const char *where, struct error *e)
{
    struct error theme;
    int rc = screen_loop_open(&d->loop, &theme, e);

    if (rc < 0)
        return rc;
    snprintf(d->where, sizeof d->where, "%s", where);
    if (theme.text[0])
        server_say(d->server, "%s", theme.text);
    return 0;
}

void dashboard_free(struct dashboard *d)
{
    if (!d)
        return;
    screen_loop_release(&d->loop);
    machine_view_free(d->machine);
    mem_free(d);
}

/* ---- display ---- */

static void name_model(struct dashboard *d, const struct engine_info *info)
{
    snprintf(d->loop.model.model_name, sizeof d->loop.model.model_name, "%.*s", UI_NAME - 1,
             d->server->model_id);
    if (!info)
        return;
    snprintf(d->loop.model.model_type, sizeof d->loop.model.model_type, "%s",
             dtype_info(info->model->type)->word);
    for (char *p = d->loop.model.model_type; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

static void take_telemetry(void *ctx, const struct telemetry *t)
{
    struct dashboard *d = ctx;

    ui_model_telemetry(&d->loop.model, t, clock_now());
}

static void take_loading(struct dashboard *d, const struct status_snapshot *s)
{
    struct event ev = {.kind = EVENT_LOADING, .progress = {s->done, s->total}};

    if (atomic_load(&d->server->ready)) {
        ev = (struct event){.kind = EVENT_READY};
        name_model(d, server_info(d->server));
        d->named = true;
    } else if (!d->loop.model.model_name[0]) {
        name_model(d, NULL);
    }
    ui_model_event(&d->loop.model, &ev, clock_now());
}

static void take_plan(struct dashboard *d, const struct status_snapshot *s)
{
    if (d->loop.model.wanted_plan[0] && s->wishes >= d->loop.model.wish) {
        d->loop.model.wanted_plan[0] = 0;
        d->loop.model.dirty = true;
    }
}

/* Another model is being loaded. */
static void forget_model(struct dashboard *d)
{
    d->named = d->timeline = false;
    machine_view_forget(d->machine, &d->loop.model);
    screen_closing(&d->loop.model);
    d->loop.model.model_type[0] = 0;
    name_model(d, NULL);
}

/* Copies the newest state of other threads from the status. */
static void look(void *ctx, uint64_t now)
{
    struct dashboard *d = ctx;
    const struct engine_info *info = server_info(d->server);
    struct status_snapshot state;

    server_status_look(d->server->status, &d->serving);
    status_snapshot(d->server->status, &state);
    snprintf(d->serving.where, sizeof d->serving.where, "%s", d->where);
    d->serving.n_sessions = d->server->parallel;
    d->serving.context = info ? info->context : 0;
    d->serving.ready = atomic_load(&d->server->ready);
    d->serving.unloaded = atomic_load(&d->server->unloaded) && !d->server->worker;
    d->serving.draining = atomic_load(&d->server->draining);
    if (d->named && !info)
        forget_model(d);
    if (!d->named)
        take_loading(d, &state);
    take_plan(d, &state);
    server_status_telemetry(d->server->status, take_telemetry, d);
    d->loop.model.running = d->serving.running > 0;
    d->loop.model.dirty = true;
    if (now - d->sampled_ns >= d->loop.model.settle_ns) {
        machine_view_take(d->machine, &d->loop.model, info, now);
        d->sampled_ns = now;
    }
    if (d->timeline != d->loop.model.timeline_shown && d->serving.ready) {
        server_status_timeline(d->server->status, d->timeline = !d->timeline);
        dispatcher_wake(d->server->dispatcher);
    }
}

/* ---- requests to the engine ---- */

static void place(struct dashboard *d, const char *plan)
{
    uint64_t wish;

    if (!plan || !d->serving.ready)
        return;
    wish = server_status_place(d->server->status, plan);
    dispatcher_wake(d->server->dispatcher);
    if (wish)
        ui_model_placing(&d->loop.model, plan, wish, clock_now());
}

static void act(void *ctx, enum action a, int index)
{
    struct dashboard *d = ctx;

    if (a == ACTION_PLACE)
        place(d, keys_plans[index]);
    else if (a == ACTION_CHOOSE)
        place(d, screen_chosen_plan(&d->loop.model));
}

enum dashboard_end dashboard_step(struct dashboard *d, int ms)
{
    if (!screen_loop_step(&d->loop, ms))
        return DASHBOARD_ON;
    return d->end = d->end == DASHBOARD_ON ? DASHBOARD_QUIT : DASHBOARD_AGAIN;
}
