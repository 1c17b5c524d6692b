/* See model_registry.h. One lock for the queue and for the number of threads between registry_enter
 * and registry_leave ("inside"): the main thread sets `shut` when that is zero, and later ones
 * wait. */
#include "app/serve/common/model_registry.h"

#include "app/common/model_files.h"
#include "app/common/model_places.h"
#include "app/serve/common/route.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <stdio.h>
#include <string.h>

#define ADDED_MOST 64               /* models, after the start */
#define PING_NS (10 * CLOCK_SECOND) /* of silence in a stream */

struct entry {
    char *path, id[SHELF_NAME];
};

/* A waiting request. */
struct ticket {
    struct exchange *x;
    int model; /* -1: it names no model, or an unknown one */
    bool stream;
    uint64_t said_ns; /* time of the last write, or of its arrival */
    struct ticket *next;
};

struct model_registry {
    struct entry *entries;
    atomic_size_t n; /* grows when the entry is complete */
    size_t room;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* changes of inside and shut */
    int inside;
    bool shut;
    struct ticket *first, **last;
    int waiting, wanted, loaded;
    int admitted; /* released from the queue, but have not entered yet */
    bool ended, asleep;
    int64_t keep_ns;  /* negative: it stays */
    uint64_t used_ns; /* when the model was last in use */
};

/* ---- what there is ---- */

static void cut_suffix(char *id)
{
    size_t n = path_stem(id, ".gguf");

    if (n)
        id[n] = 0;
}

/* Ollama's tag of a name that has none. */
static void cut_latest(char *id)
{
    static const char latest[] = ":latest";
    size_t n = strlen(id);

    if (n > strlen(latest) && strcmp(id + n - strlen(latest), latest) == 0)
        id[n - strlen(latest)] = 0;
}

static bool is_taken(const struct model_registry *s, const char *id)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].id, id) == 0)
            return true;
    return false;
}

/* The file's name; with its folder if another model has the same name. */
static void name_entry(const struct model_registry *s, struct entry *to)
{
    snprintf(to->id, sizeof to->id, "%s", path_name(to->path));
    cut_suffix(to->id);
    if (!is_taken(s, to->id))
        return;
    model_places_name(to->path, to->id, sizeof to->id);
    cut_suffix(to->id);
}

/* Of two with the same name and folder name the first is used. */
static int add(struct model_registry *s, const char *path, const char *id, struct error *e)
{
    struct entry *to = &s->entries[s->n];

    if (!(to->path = mem_string(path)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of models");
    if (id)
        snprintf(to->id, sizeof to->id, "%s", id);
    else
        name_entry(s, to);
    if (is_taken(s, to->id))
        mem_free(to->path);
    else
        s->n++;
    return 0;
}

static int fill(struct model_registry *s, const char *path, const char *id,
                const struct model_files *f, struct error *e)
{
    int rc;

    s->room = f->n + 1 + ADDED_MOST;
    if (!(s->entries = mem_alloc(s->room, sizeof *s->entries)))
        return error_set(e, ERR_MEMORY, "out of memory for the list of models");
    rc = add(s, path, id, e);
    for (size_t i = 0; i < f->n && rc == 0; i++)
        if (!file_same(f->paths[i], path))
            rc = add(s, f->paths[i], NULL, e);
    return rc;
}

int registry_open(struct model_registry **out, const char *path, const char *id,
                  char *const *folders, size_t n, struct error *e)
{
    struct model_registry *s = mem_alloc(1, sizeof *s);
    struct model_files f = {0};
    int rc = 0;

    *out = s;
    if (!s)
        return error_set(e, ERR_MEMORY, "out of memory for the list of models");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->last = &s->first;
    s->wanted = -1;
    s->keep_ns = -1;
    for (size_t i = 0; i < n && rc == 0; i++)
        if ((rc = model_files_find(&f, folders[i], e)) < 0)
            error_prefix(e, "--models-dir");
    if (rc == 0)
        rc = fill(s, path, id, &f, e);
    model_files_release(&f);
    return rc;
}

void registry_close(struct model_registry *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        mem_free(s->entries[i].path);
    mem_free(s->entries);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

int registry_add(struct model_registry *s, const char *path, const char *id)
{
    struct error ignored = {0};
    int rc;

    pthread_mutex_lock(&s->lock);
    rc = s->n < s->room || is_taken(s, id) ? 0 : -1;
    if (rc == 0 && !is_taken(s, id))
        rc = add(s, path, id, &ignored);
    pthread_mutex_unlock(&s->lock);
    return rc < 0 ? -1 : 0;
}

const char *registry_id(const struct model_registry *s, size_t i)
{
    return i < s->n ? s->entries[i].id : NULL;
}

const char *registry_path(const struct model_registry *s, size_t i)
{
    return i < s->n ? s->entries[i].path : NULL;
}

int registry_find(const struct model_registry *s, const char *name)
{
    char bare[SHELF_NAME];

    snprintf(bare, sizeof bare, "%s", name);
    cut_latest(bare);
    cut_suffix(bare);
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].id, name) == 0 || strcmp(s->entries[i].id, bare) == 0 ||
            strcmp(s->entries[i].path, name) == 0)
            return (int)i;
    for (size_t i = 0; i < s->n; i++) { /* requested by another name */
        char file[SHELF_NAME];

        snprintf(file, sizeof file, "%s", path_name(s->entries[i].path));
        cut_suffix(file);
        if (strcmp(file, bare) == 0)
            return (int)i;
    }
    return -1;
}

int registry_loaded(struct model_registry *s)
{
    int loaded;

    pthread_mutex_lock(&s->lock);
    loaded = s->loaded;
    pthread_mutex_unlock(&s->lock);
    return loaded;
}

/* ---- the queue ---- */

static struct ticket *ticket_new(const struct model_registry *s, struct exchange *x)
{
    struct ticket *t = mem_alloc(1, sizeof *t);
    json_error_t ignored; /* errors are reported when the request is read */
    json_t *body;
    const char *name;

    if (!t)
        return NULL;
    body = json_load_wide(strbuf_text(&x->body), x->body.len, 0, &ignored);
    name = json_string_value(json_object_get(body, "model"));
    *t = (struct ticket){.x = x, .model = name ? registry_find(s, name) : -1};
    t->stream = json_is_true(json_object_get(body, "stream")) &&
                t->x->route->form != API_OLLAMA; /* its streams have no comments */
    t->said_ns = x->begun_ns;
    json_decref(body);
    exchange_hold(x);
    return t;
}

/* Called under the lock. */
static void put(struct model_registry *s, struct ticket *t)
{
    t->next = NULL;
    *s->last = t;
    s->last = &t->next;
    s->waiting++;
}

/* Under the lock: removes those that match `wanted`, in order. */
static struct ticket *take(struct model_registry *s,
                           bool (*is_meant)(const struct ticket *t, int model), int model)
{
    struct ticket *taken = NULL, **end = &taken, **at = &s->first;

    while (*at) {
        struct ticket *t = *at;

        if (!is_meant(t, model)) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = NULL;
        *end = t;
        end = &t->next;
        s->waiting--;
    }
    s->last = at;
    return taken;
}

static void drop(struct ticket *t)
{
    exchange_drop(t->x);
    mem_free(t);
}

static void refuse_all(struct ticket *t, const struct refusal *why)
{
    for (struct ticket *next; t; t = next) {
        next = t->next;
        reply_refusal(t->x, why);
        drop(t);
    }
}

static int no_memory(struct refusal *r)
{
    return refuse(r, 503, "out_of_memory", NULL, "out of memory for the request");
}

/* Under the lock. -1: t is still the caller's. */
static int queue(struct model_registry *s, struct ticket *t, struct refusal *r)
{
    if (s->asleep && t->model < 0)
        t->model = s->loaded;
    if (s->ended)
        return refuse(r, 503, "shutting_down", NULL, "the server is stopping");
    if (s->waiting >= SERVE_QUEUE)
        return refuse(r, 429, "queue_full", NULL,
                      "%d requests wait for a model already: try again in a moment", SERVE_QUEUE);
    put(s, t);
    if (s->asleep && s->wanted < 0)
        s->wanted = t->model;
    return 0;
}

/* Under the lock, which is released while waiting. */
static void wait_at_door(struct model_registry *s)
{
    while (s->shut)
        pthread_cond_wait(&s->changed, &s->lock);
}

void registry_look(struct model_registry *s)
{
    pthread_mutex_lock(&s->lock);
    wait_at_door(s);
    s->inside++;
    pthread_mutex_unlock(&s->lock);
}

/* Called under the lock. */
static bool enter(struct model_registry *s, struct exchange *x)
{
    wait_at_door(s);
    if (s->wanted >= 0 && !s->ended && !x->admitted)
        return false;
    if (s->asleep && x->route->needs == NEEDS_MODEL && !s->ended)
        return false;
    s->inside++;
    s->admitted -= x->admitted;
    x->admitted = false;
    return true;
}

bool registry_enter(struct model_registry *s, struct exchange *x)
{
    struct refusal why = {0};
    struct ticket *t;
    bool enters;

    pthread_mutex_lock(&s->lock);
    enters = enter(s, x);
    pthread_mutex_unlock(&s->lock);
    if (enters)
        return true;
    t = ticket_new(s, x);
    pthread_mutex_lock(&s->lock);
    enters = enter(s, x); /* the model may have been loaded meanwhile */
    if (!enters && !t)
        no_memory(&why);
    else if (!enters)
        queue(s, t, &why);
    pthread_mutex_unlock(&s->lock);
    if (why.status)
        reply_refusal(x, &why);
    if (t && (enters || why.status))
        drop(t);
    return enters;
}

void registry_leave(struct model_registry *s)
{
    pthread_mutex_lock(&s->lock);
    if (--s->inside == 0)
        pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int registry_want(struct model_registry *s, struct exchange *x, int model, struct refusal *r)
{
    struct ticket *t = ticket_new(s, x);
    int rc;

    if (!t)
        return no_memory(r);
    t->model = model;
    pthread_mutex_lock(&s->lock);
    rc = queue(s, t, r);
    if (rc == 0 && s->wanted < 0)
        s->wanted = model;
    pthread_mutex_unlock(&s->lock);
    if (rc < 0)
        drop(t);
    return rc;
}

int registry_waiting(struct model_registry *s)
{
    int n;

    pthread_mutex_lock(&s->lock);
    n = s->waiting;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* ---- unloading ---- */

void registry_keep(struct model_registry *s, int64_t ns)
{
    pthread_mutex_lock(&s->lock);
    s->keep_ns = ns;
    s->used_ns = clock_now();
    pthread_mutex_unlock(&s->lock);
}

uint64_t registry_expires(struct model_registry *s)
{
    uint64_t at;

    pthread_mutex_lock(&s->lock);
    at = s->keep_ns < 0 || s->asleep ? 0 : s->used_ns + (uint64_t)s->keep_ns;
    pthread_mutex_unlock(&s->lock);
    return at;
}

bool registry_asleep(struct model_registry *s)
{
    bool asleep;

    pthread_mutex_lock(&s->lock);
    asleep = s->asleep;
    pthread_mutex_unlock(&s->lock);
    return asleep;
}

void registry_use(struct model_registry *s)
{
    pthread_mutex_lock(&s->lock);
    s->used_ns = clock_now();
    pthread_mutex_unlock(&s->lock);
}

void registry_sleep(struct model_registry *s)
{
    pthread_mutex_lock(&s->lock);
    s->asleep = true;
    s->keep_ns = -1;
    pthread_mutex_unlock(&s->lock);
}

/* ---- main ---- */

int registry_wanted(struct model_registry *s)
{
    int wanted;

    pthread_mutex_lock(&s->lock);
    wanted = s->wanted;
    pthread_mutex_unlock(&s->lock);
    return wanted;
}

bool registry_quiet(struct model_registry *s)
{
    bool quiet;

    pthread_mutex_lock(&s->lock);
    quiet = !s->admitted && !s->inside;
    pthread_mutex_unlock(&s->lock);
    return quiet;
}

void registry_lock(struct model_registry *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->inside)
        pthread_cond_wait(&s->changed, &s->lock);
    s->shut = true;
    pthread_mutex_unlock(&s->lock);
}

void registry_unlock(struct model_registry *s)
{
    pthread_mutex_lock(&s->lock);
    s->shut = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* A request for the loaded model or for none: can be read now. */
static bool is_for(const struct ticket *t, int model)
{
    return t->model < 0 || t->model == model;
}

static bool names(const struct ticket *t, int model)
{
    return t->model == model;
}

static bool is_any(const struct ticket *t, int model)
{
    return true;
}

/* Under the lock, once the loaded model is known: removes the requests that can be read. */
static struct ticket *decide(struct model_registry *s, int loaded)
{
    struct ticket *ready;

    s->loaded = loaded;
    s->asleep = false;
    s->used_ns = clock_now();
    ready = take(s, is_for, loaded);
    s->wanted = s->first ? s->first->model : -1;
    for (struct ticket *t = ready; t; t = t->next) {
        t->x->admitted = true;
        t->x->waited_ns = clock_now() - t->x->begun_ns;
        s->admitted++;
    }
    return ready;
}

void registry_settle(struct model_registry *s, int model, int (*read)(struct exchange *x))
{
    struct ticket *ready, *next;
    struct refusal why;

    pthread_mutex_lock(&s->lock);
    ready = decide(s, model);
    pthread_mutex_unlock(&s->lock);
    for (; ready; ready = next) {
        next = ready->next;
        if (read(ready->x) < 0) {
            pthread_mutex_lock(&s->lock);
            s->admitted--;
            pthread_mutex_unlock(&s->lock);
            no_memory(&why);
            reply_refusal(ready->x, &why);
        }
        drop(ready);
    }
}

void registry_refuse(struct model_registry *s, int model, const struct refusal *why)
{
    struct ticket *refused;

    pthread_mutex_lock(&s->lock);
    refused = take(s, names, model);
    if (s->asleep)
        s->wanted = s->first ? s->first->model : -1;
    pthread_mutex_unlock(&s->lock);
    refuse_all(refused, why);
}

void registry_end(struct model_registry *s)
{
    struct ticket *all;
    struct refusal why;

    refuse(&why, 503, "shutting_down", NULL, "the server is stopping");
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    all = take(s, is_any, 0);
    pthread_mutex_unlock(&s->lock);
    refuse_all(all, &why);
}

static bool is_gone(const struct ticket *t, int model)
{
    return exchange_gone(t->x);
}

static void ping(struct ticket *t, uint64_t now)
{
    static const char comment[] = ": ping\n\n";

    if (!t->stream || now - t->said_ns < PING_NS)
        return;
    t->said_ns = now;
    reply_stream_begin(t->x, false);
    reply_stream_put(t->x, comment, strlen(comment));
}

void registry_watch(struct model_registry *s)
{
    struct ticket *gone;
    struct refusal why;

    pthread_mutex_lock(&s->lock);
    gone = take(s, is_gone, 0);
    for (struct ticket *t = s->first; t; t = t->next)
        ping(t, clock_now());
    pthread_mutex_unlock(&s->lock);
    refuse(&why, 503, "cancelled", NULL, "the client has left");
    refuse_all(gone, &why);
}
