/* What a server reports of itself: its figures every two seconds, and the engine of another moetop
 * more often, with the placements requested for it. The watcher's thread. */
#include "app/common/engine_state.h"
#include "app/connect/internal.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct watch {
    struct remote *r;
    struct figures before; /* the reading from which rates are computed */
    uint64_t before_ns;
    bool none; /* it has no figures: rarely asked for */
    /* wishes reported as decided, the server's number of the newest one, the plan reported */
    uint64_t decided, awaited;
    char plan[TELEMETRY_PLAN_NAMES];
};

/* ---- figures ---- */

static struct http_call call(struct watch *w, const char *path)
{
    return (struct http_call){.path = path, .seconds = 10, .stop = remote_is_quitting, .ctx = w->r};
}

/* The status; 0: no answer. */
static long get(struct watch *w, struct http_call *c, struct error *e)
{
    return http_perform(&remote_current(w->r)->http, c, e) == 0 ? c->status : 0;
}

/* litellm and others answer /metrics with the address /metrics/. */
static long get_metrics(struct watch *w, struct figures *f, bool *any, struct error *e)
{
    static const char *const paths[] = {"/metrics", "/metrics/"};
    long status = 0;

    for (size_t i = 0; i < 2 && (i == 0 || (status >= 301 && status <= 308)); i++) {
        struct http_call c = call(w, paths[i]);

        status = get(w, &c, e);
        *any = status == 200 && figures_read_metrics(f, strbuf_text(&c.text), c.text.len);
        strbuf_release(&c.text);
    }
    return status;
}

static long get_slots(struct watch *w, struct figures *f, bool *any, struct error *e)
{
    struct http_call c = call(w, "/slots");
    long status = get(w, &c, e);

    if (status == 200)
        *any |= figures_read_slots(f, strbuf_text(&c.text), c.text.len);
    strbuf_release(&c.text);
    return status;
}

/* Why there are no figures, by the flags that servers have for them. */
static void tell_why(struct watch *w, long status, const struct error *e, struct figures *f)
{
    enum server_kind kind = remote_current(w->r)->kind;

    w->none = status == 200 || status == 404 || status == 405 || status == 501;
    if (!status)
        snprintf(f->why, sizeof f->why, "N/A (%.60s)", e->text);
    else if (status == 401 || status == 403)
        snprintf(f->why, sizeof f->why, "N/A (its /metrics need another key)");
    else if (!w->none)
        snprintf(f->why, sizeof f->why, "N/A (/metrics: HTTP %ld)", status);
    else if (kind == SERVER_LLAMA)
        snprintf(f->why, sizeof f->why, "N/A (start it with --metrics)");
    else if (kind == SERVER_SGLANG)
        snprintf(f->why, sizeof f->why, "N/A (start it with --enable-metrics)");
    else
        snprintf(f->why, sizeof f->why, "N/A (%s)",
                 status == 200 ? "no name known in its /metrics" : "it has no /metrics");
}

static void take_figures(struct watch *w)
{
    struct error e = {0};
    struct figures f;
    uint64_t now = clock_now();
    bool any = false;
    long status;

    figures_init(&f);
    status = get_metrics(w, &f, &any, &e);
    if (status && (!any || remote_current(w->r)->kind == SERVER_LLAMA))
        get_slots(w, &f, &any, &e);
    w->none = false;
    if (any)
        figures_rate(&f, &w->before, clock_seconds(now - w->before_ns));
    else
        tell_why(w, status, &e, &f);
    w->before = f;
    w->before_ns = now;
    pthread_mutex_lock(&w->r->lock);
    w->r->figures = f;
    pthread_mutex_unlock(&w->r->lock);
}

/* ---- the engine of another moetop ---- */

/* JSON of an answer of status 200; NULL with *e. */
static json_t *request_json(struct watch *w, const char *path, const char *body, struct error *e)
{
    const struct http_server *http = &remote_current(w->r)->http;
    struct http_call c = call(w, path);
    json_t *o = NULL;

    c.body = body;
    if (http_perform(http, &c, e) == 0 && c.status != 200)
        http_refused(http, &c, e);
    else if (c.status == 200)
        o = json_loadb(strbuf_text(&c.text), c.text.len, JSON_ALLOW_NUL, NULL);
    strbuf_release(&c.text);
    return o;
}

static void take_text(char *out, size_t size, const json_t *v)
{
    const char *text = json_string_value(v);

    utf8_escape(out, size, text ? text : "", text ? strlen(text) : 0, 0);
}

/* Called under the lock. */
static void take_names(struct remote_engine *to, const json_t *o)
{
    const json_t *devices = json_object_get(o, "devices");

    take_text(to->model, sizeof to->model, json_object_get(o, "model"));
    take_text(to->type, sizeof to->type, json_object_get(o, "type"));
    for (size_t i = 0; i < json_array_size(devices) && i < DEVICE_MAX; i++)
        take_text(to->devices[i], sizeof to->devices[i],
                  json_object_get(json_array_get(devices, i), "name"));
}

/* Reports a new plan, or that our wish is decided: the server has decided as many wishes, of all
 * clients, as it had received with ours. */
static void tell_plan(struct watch *w, uint64_t server_wishes, uint64_t sent)
{
    struct event ev = {.kind = EVENT_PLAN};
    bool decided = w->decided < sent && server_wishes >= w->awaited;
    char plan[TELEMETRY_PLAN_NAMES];

    telemetry_plan_names(&w->r->told, plan, sizeof plan);
    if (!decided && strcmp(w->plan, plan) == 0)
        return;
    memcpy(w->plan, plan, sizeof w->plan);
    if (decided)
        w->decided = sent;
    ev.text = mem_string(w->plan);
    ev.wishes = w->decided;
    remote_push(w->r, &w->r->watched_events, &ev);
}

/* false: no such state (an older server, or not reachable). */
static bool take_engine(struct watch *w, uint64_t sent)
{
    struct remote *r = w->r;
    struct error e = {0};
    json_t *o = request_json(w, "/moetop/state", NULL, &e);
    int rc;

    if (!o)
        return false;
    pthread_mutex_lock(&r->lock);
    rc = engine_state_read(&r->told, o, &e);
    if (rc == 0)
        take_names(&r->engine, o);
    pthread_mutex_unlock(&r->lock);
    if (rc == 0) /* only this thread writes the displayed state */
        tell_plan(w, (uint64_t)json_integer_value(json_object_get(o, "wishes")), sent);
    json_decref(o);
    return rc == 0;
}

/* Sends a wish; a refused one is decided too. Returns the number of wishes. */
static uint64_t send_wish(struct watch *w)
{
    struct remote *r = w->r;
    struct error e = {0};
    uint64_t sent;
    json_t *body, *o;
    char *text;

    pthread_mutex_lock(&r->lock);
    body = r->wish ? json_pack("{s:s}", "plan", r->wish) : NULL;
    mem_free(r->wish);
    r->wish = NULL;
    sent = r->wishes;
    pthread_mutex_unlock(&r->lock);
    if (!body)
        return sent;
    text = json_dumps(body, JSON_COMPACT);
    o = text ? request_json(w, "/moetop/placement", text, &e) : NULL;
    w->awaited = o ? (uint64_t)json_integer_value(json_object_get(o, "wish")) : 0;
    if (!o) {
        struct event why = {.kind = EVENT_NOTICE};

        why.text = mem_string(e.text[0] ? e.text : "the placement is not switched");
        remote_push(w->r, &w->r->watched_events, &why);
    }
    json_decref(o);
    json_decref(body);
    free(text); /* allocated by jansson */
    return sent;
}

static bool has_wish(struct remote *r)
{
    bool any;

    pthread_mutex_lock(&r->lock);
    any = r->wish != NULL;
    pthread_mutex_unlock(&r->lock);
    return any;
}

#define TICK (50 * CLOCK_MILLI)
#define FIGURES_TICKS 40
#define NONE_TICKS 600 /* where a server has no figures */
#define ENGINE_TICKS 8
#define LARGE_CELLS 4096 /* with more experts the state is polled only as often as the figures */

static bool is_due(const struct watch *w, unsigned tick)
{
    const struct remote *r = w->r; /* only this thread changes `told` */
    bool large = r->told.n_layers * r->told.n_experts > LARGE_CELLS;

    return tick % (large ? FIGURES_TICKS : ENGINE_TICKS) == 0;
}

void *remote_watch(void *ctx)
{
    struct watch w = {.r = ctx};
    bool whole = remote_current(w.r)->kind == SERVER_MOETOP;

    figures_init(&w.before);
    for (unsigned tick = 0; !remote_is_quitting(w.r); tick++) {
        if (tick % (w.none ? NONE_TICKS : FIGURES_TICKS) == 0)
            take_figures(&w);
        if (whole && (has_wish(w.r) || is_due(&w, tick)))
            whole = take_engine(&w, send_wish(&w)) || w.r->told.n_layers;
        clock_sleep(TICK);
    }
    return NULL;
}
