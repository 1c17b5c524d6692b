/* See serve.h. Starts the threads in the order of their dependencies, waits for a signal, lets
 * running requests finish, and stops the threads in the opposite order. */
#include "app/serve/serve.h"

#include "app/common/signals.h"
#include "app/serve/common/model_registry.h"
#include "app/serve/api/ollama_pull.h"
#include "app/serve/common/response_store.h"
#include "app/serve/common/server.h"
#include "app/serve/dashboard.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/http/access.h"
#include "app/serve/http/http.h"
#include "app/serve/http/listen.h"
#include "app/serve/model_switch.h"
#include "app/serve/request/request_pool.h"
#include "app/serve/sd_notify.h"
#include "app/setup/remarks.h"
#include "engine/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_S 30
#define LOOK_NS (50 * CLOCK_MILLI)

bool serve_wanted(const struct options *o)
{
    return o->serve;
}

/* State of a run of the mode. */
struct run {
    struct options *o;
    struct server server;
    struct model_switch model_switch;
    struct listener listener;
    struct dashboard *dashboard; /* NULL: lines on stderr */
    bool at_once;                /* stop without waiting for running requests */
};

static int start(struct run *r, struct error *e)
{
    struct server *s = &r->server;
    int rc;

    atomic_store(&s->plain, true);
    s->started = time(NULL);
    if ((rc = model_switch_open(&r->model_switch, r->o, s, e)) < 0)
        return rc;
    if (!(s->status = server_status_new()))
        return error_set(e, ERR_MEMORY, "out of memory for the server");
    if (dashboard_wanted(r->o) && (rc = dashboard_new(&r->dashboard, s, r->o, e)) < 0)
        return rc;
    if ((rc = listener_open(&r->listener, r->o, e)) < 0)
        return rc;
    if ((rc = response_store_open(&s->responses, r->o->response_store, e)) < 0 ||
        (rc = access_open(&s->access, r->o, r->listener.loopback, e)) < 0 ||
        (rc = model_switch_start(&r->model_switch, e)) < 0 || (rc = dispatcher_start(s, e)) < 0 ||
        (rc = request_pool_open(&s->pool, e)) < 0) {
        close(r->listener.fd);
        return rc;
    }
    return http_start(s, r->listener.fd, r->o->timeout, e);
}

static void on_remark(void *ctx, const char *line)
{
    server_say(ctx, "%s", line);
}

static void tell_ready(struct run *r)
{
    const struct engine_info *info = server_info(&r->server);

    remarks_each(r->o, info, on_remark, &r->server);
    server_say(&r->server, "%s is ready on %s: %d session%s of %d tokens", r->server.model_id,
               r->listener.where, r->server.parallel, r->server.parallel == 1 ? "" : "s",
               info->context);
    sd_notify_tell("READY=1\nSTATUS=answering");
}

/* Earlier output remains on the normal screen; from here on there is the dashboard. An unsuitable
 * terminal gets lines. */
static void take_screen(struct run *r)
{
    struct error e = {0};

    if (!r->dashboard)
        return;
    atomic_store(&r->server.plain, false);
    if (dashboard_open(r->dashboard, r->listener.where, &e) == 0)
        return;
    atomic_store(&r->server.plain, true);
    dashboard_free(r->dashboard);
    r->dashboard = NULL;
    server_say(&r->server, "%s; going on line by line", e.text);
}

static void give_screen_back(struct run *r)
{
    dashboard_free(r->dashboard);
    r->dashboard = NULL;
    atomic_store(&r->server.plain, true);
}

/* Waits for so long. false: the user quits. */
static bool look_around(struct run *r)
{
    if (r->dashboard)
        return dashboard_step(r->dashboard, (int)(LOOK_NS / CLOCK_MILLI)) == DASHBOARD_ON;
    clock_sleep(LOOK_NS);
    return true;
}

/* Until a signal arrives, the user quits or the engine fails. */
static int wait_for_end(struct run *r, struct error *e)
{
    bool told = false;

    while (!signals_last()) {
        int rc = model_switch_step(&r->model_switch, e);

        if (rc >= 0)
            *e = dispatcher_failure(r->server.dispatcher);
        if (e->code && (rc = model_switch_recover(&r->model_switch, e)) < 0)
            return rc;
        if (!told && atomic_load(&r->server.ready)) {
            tell_ready(r);
            told = true;
        } else if (rc > 0) {
            tell_ready(r);
        }
        if (!look_around(r))
            break;
    }
    return 0;
}

/* Running requests remain visible on the dashboard until they finish. */
static void watch_the_end(struct run *r)
{
    uint64_t end = clock_now() + DRAIN_S * CLOCK_SECOND;
    int signal = signals_last();

    while (r->dashboard && !dispatcher_idle(r->server.dispatcher) && clock_now() < end &&
           signals_last() == signal && look_around(r))
        ;
    r->at_once = r->dashboard && !dispatcher_idle(r->server.dispatcher);
    give_screen_back(r);
}

/* Waits for running requests; another signal stops them at once. */
static void stop(struct run *r)
{
    struct server *s = &r->server;

    atomic_store(&s->draining, true);
    sd_notify_tell("STOPPING=1\nSTATUS=ending what is under way");
    http_quiesce(s);
    if (s->registry)
        registry_end(s->registry);
    if (s->dispatcher)
        watch_the_end(r);
    give_screen_back(r);
    if (s->dispatcher)
        dispatcher_drain(s->dispatcher, !r->at_once && signals_last() != SIGHUP ? DRAIN_S : 0);
    clock_sleep(LOOK_NS); /* the last answers are still being written */
    request_pool_close(s->pool);
    ollama_pulls_end();
    http_stop(s);
    dispatcher_stop(s->dispatcher);
    model_switch_close(&r->model_switch);
    server_status_free(s->status);
    s->status = NULL;
    response_store_close(s->responses);
    access_close(s->access);
    listener_forget(&r->listener);
}

int serve_run(struct options *o, struct error *e)
{
    static struct run r;
    int rc;

    r = (struct run){.o = o};
    signals_catch();
    signal(SIGPIPE, SIG_IGN);
    rc = start(&r, e);
    if (rc == 0) {
        take_screen(&r);
        rc = wait_for_end(&r, e);
    }
    stop(&r);
    return rc;
}
