/* See model_switch.h. */
#include "app/serve/model_switch.h"

#include "app/serve/common/model_registry.h"
#include "app/serve/common/refusal.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/request/request_pool.h"
#include "app/serve/request/rerank_prompt.h"
#include "app/setup/fit_remedy.h"
#include "app/setup/recommended.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <string.h>

/* ---- the server's data about its model ---- */

/* The file's name without its folder, and without .gguf: what clients call the model. */
static void name_file(struct model_switch *k)
{
    const char *path = k->setup->model_path, *slash;
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    slash = memrchr(path, '/', n);
    n -= slash ? (size_t)(slash + 1 - path) : 0;
    snprintf(k->file, sizeof k->file, "%.*s", (int)n, slash ? slash + 1 : path);
}

static void name_first(struct model_switch *k)
{
    size_t n;

    name_file(k);
    snprintf(k->id, sizeof k->id, "%s", k->o->alias && *k->o->alias ? k->o->alias : k->file);
    if ((n = path_stem(k->id, ".gguf")))
        k->id[n] = 0;
}

static void fill_server(struct model_switch *k)
{
    const struct options *o = k->o;
    struct server *s = k->server;

    s->model_id = k->id;
    s->model_file = k->file;
    sampling_from_options(o, &s->sampling);
    s->fresh_seeds = o->seed == OPTION_SEED_RANDOM;
    s->max_tokens = o->n_predict;
    s->embedding = embedding_asked(o);
    s->any_model = o->any_model;
    s->allow_pull = o->allow_pull;
    s->ignore_eos = o->ignore_eos;
    s->parallel = k->setup->config.sessions;
}

static int read_rerank_template(const struct options *o, struct server *s, struct error *e)
{
    static const struct file_kind kind = {"template", RERANK_TEMPLATE_BYTES, ERR_USAGE};
    const char *path = o->rerank_template_file;
    size_t n;
    int rc;

    if (!path || !*path)
        return 0;
    if ((rc = file_read(path, &kind, &s->rerank_template, &n, e)) < 0)
        return rc;
    return rerank_template_is(s->rerank_template, n) && !memchr(s->rerank_template, 0, n)
               ? 0
               : error_set(e, ERR_USAGE, "%s is no template: {query} and {document} must be in it",
                           path);
}

int model_switch_open(struct model_switch *k, struct options *o, struct server *s, struct error *e)
{
    struct engine_setup *setup = mem_alloc(1, sizeof *setup);
    int rc;

    *k = (struct model_switch){.o = o, .server = s, .back = -1};
    if ((rc = read_rerank_template(o, s, e)) < 0) {
        mem_free(setup);
        return rc;
    }
    if (!setup)
        return error_set(e, ERR_MEMORY, "out of memory for the server");
    if ((rc = engine_setup_prepare(o, setup, false, e)) < 0) {
        mem_free(setup);
        return rc;
    }
    setup->config.pace = pace_from_options(o, false);
    k->setup = setup;
    name_first(k);
    fill_server(k);
    return registry_open(&s->registry, setup->model_path, k->id, o->models_dir.items,
                         o->models_dir.n, e);
}

int model_switch_start(struct model_switch *k, struct error *e)
{
    return worker_start(&k->server->worker, &k->setup->config, e);
}

static void release(struct engine_setup **setup)
{
    if (*setup)
        engine_setup_release(*setup);
    mem_free(*setup);
    *setup = NULL;
}

void model_switch_close(struct model_switch *k)
{
    worker_stop(k->server->worker);
    k->server->worker = NULL;
    release(&k->next);
    release(&k->setup);
    registry_close(k->server->registry);
    k->server->registry = NULL;
    mem_free(k->server->rerank_template);
    k->server->rerank_template = NULL;
}

/* ---- switching ---- */

static void remark(void *ctx, const char *line)
{
    server_say(ctx, "%s", line);
}

static void add_held(void *ctx, const struct telemetry *t)
{
    *(uint64_t *)ctx += telemetry_held(t);
}

/* The options with that model, and the settings to open its engine with. */
static int prepare(struct model_switch *k, int model, struct error *e)
{
    struct engine_setup *next = mem_alloc(1, sizeof *next);
    uint64_t held = 0;
    char line[300] = "";
    int rc = next ? recommended_switch(k->o, registry_path(k->server->registry, (size_t)model),
                                       remark, k->server, e)
                  : error_set(e, ERR_MEMORY, "out of memory for another model");

    server_status_telemetry(k->server->status, add_held, &held);
    if (rc == 0 && (rc = engine_setup_init(k->o, next, e)) == 0) {
        if (!k->o->force)
            rc = fit_admit(&next->config, next->page_auto, held, line, sizeof line, e);
        if (rc < 0)
            engine_setup_release(next);
    }
    if (rc < 0) {
        mem_free(next);
        return rc;
    }
    if (line[0])
        remark(k->server, line);
    next->config.pace = pace_from_options(k->o, false);
    k->next = next;
    k->next_model = model;
    return 0;
}

/* The error for clients whose model cannot be loaded: a model that is too large is not a server
 * failure. */
static struct refusal why_not(struct model_switch *k, int model, const struct error *e)
{
    const char *id = registry_id(k->server->registry, (size_t)model);
    struct refusal why;

    if (e->code == ERR_FIT)
        refuse(&why, 400, "model_does_not_fit", "model", "the model '%.200s' does not fit: %s", id,
               e->text);
    else
        refuse(&why, 500, "model_not_loaded", "model", "the model '%.200s' cannot be loaded: %s",
               id, e->text);
    server_say(k->server, "%s", why.text);
    return why;
}

static int read_again(struct exchange *x)
{
    return request_pool_submit(x->server->pool, x);
}

/* Keeps the present model, or none while that is unloaded. */
static void give_up(struct model_switch *k, int model, const struct error *e)
{
    struct refusal why = why_not(k, model, e);
    struct model_registry *registry = k->server->registry;
    struct error ignored;

    recommended_switch(k->o, k->setup->model_path, NULL, NULL, &ignored);
    registry_refuse(registry, model, &why);
    if (!registry_asleep(registry))
        registry_settle(registry, registry_loaded(registry), read_again);
}

/* Closes the engine, after the dispatcher was released. Requests find none from here on. */
static void drop_engine(struct server *s)
{
    struct worker *old;

    atomic_store(&s->ready, false);
    old = s->worker;
    s->worker = NULL;
    registry_unlock(s->registry);
    worker_stop(old);
    server_status_forget_engine(s->status);
}

/* Nobody asked for as long as the newest keep_alive says. A request that is being read, or was
 * submitted meanwhile, comes first. */
static void fall_asleep(struct model_switch *k)
{
    struct server *s = k->server;

    if (!dispatcher_idle(s->dispatcher) || !registry_quiet(s->registry))
        return;
    registry_lock(s->registry);
    if (!dispatcher_idle(s->dispatcher)) {
        registry_unlock(s->registry);
        return;
    }
    dispatcher_release(s->dispatcher);
    registry_sleep(s->registry);
    atomic_store(&s->unloaded, true);
    drop_engine(s);
    k->used = 0;
    server_say(s, "unloaded, as keep_alive wishes: %s", k->id);
}

/* Whether the model's time without requests is over. */
static bool is_over(struct model_switch *k)
{
    struct server *s = k->server;
    uint64_t at = registry_expires(s->registry);
    struct dispatcher_figures f;

    if (!at)
        return false;
    dispatcher_look(s->dispatcher, &f);
    if (!dispatcher_idle(s->dispatcher) || f.requests != k->used) {
        k->used = f.requests;
        registry_use(s->registry);
        return false;
    }
    return clock_now() >= at;
}

/* Nothing computes, no request is being read: k->next replaces the current engine. */
static int replace(struct model_switch *k, struct error *e)
{
    struct server *s = k->server;
    int rc;

    dispatcher_release(s->dispatcher);
    registry_lock(s->registry);
    drop_engine(s);
    release(&k->setup);
    registry_lock(s->registry);
    k->setup = k->next;
    k->next = NULL;
    name_file(k);
    snprintf(k->id, sizeof k->id, "%s", registry_id(s->registry, (size_t)k->next_model));
    fill_server(k);
    rc = worker_start(&s->worker, &k->setup->config, e);
    registry_unlock(s->registry);
    k->changing = true;
    return rc < 0 ? rc : dispatcher_reopen(s->dispatcher, e);
}

static int begin(struct model_switch *k, int wanted, struct error *e)
{
    struct server *s = k->server;
    struct error why = {0};

    if (!k->next && prepare(k, wanted, &why) < 0) {
        give_up(k, wanted, &why);
        return 0;
    }
    if (!dispatcher_idle(s->dispatcher) || !registry_quiet(s->registry) ||
        !dispatcher_idle(s->dispatcher))
        return 0;
    k->back = registry_loaded(s->registry);
    server_say(s, "loading %s, which a request %s", registry_id(s->registry, (size_t)wanted),
               wanted == k->back ? "needs" : "names");
    return replace(k, e);
}

int model_switch_step(struct model_switch *k, struct error *e)
{
    struct model_registry *registry = k->server->registry;
    int wanted = registry_wanted(registry);

    registry_watch(registry);
    if (k->changing && atomic_load(&k->server->ready)) {
        k->changing = false;
        atomic_store(&k->server->unloaded, false);
        registry_settle(registry, k->next_model, read_again);
        return 1;
    }
    if (!k->changing && wanted >= 0)
        return begin(k, wanted, e);
    if (!k->changing && atomic_load(&k->server->ready) && is_over(k))
        fall_asleep(k);
    return 0;
}

int model_switch_recover(struct model_switch *k, struct error *e)
{
    struct refusal why;
    int back = k->back, rc;

    if (!k->changing || back < 0)
        return e->code;
    why = why_not(k, k->next_model, e);
    registry_refuse(k->server->registry, k->next_model, &why);
    if (registry_asleep(k->server->registry)) { /* nor was there one before */
        dispatcher_release(k->server->dispatcher);
        registry_lock(k->server->registry);
        drop_engine(k->server);
        dispatcher_forgive(k->server->dispatcher);
        k->changing = false;
        *e = (struct error){0};
        return 0;
    }
    k->back = -1;
    rc = prepare(k, back, e);
    return rc < 0 ? rc : replace(k, e);
}
