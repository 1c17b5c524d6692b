/* Opens devices during an answer: otherwise the first plan that needs a GPU would wait for drivers,
 * compilers and the self-test, seconds at worst. Two threads: the engine's, and one that lives
 * while back ends are probed and devices opened. The latter accesses nothing mutable; its messages
 * are queued, its devices are adopted by the engine at a safe point. */
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINES 16
#define LINE 320

struct devices_async {
    struct engine *g;
    pthread_t thread;
    pthread_mutex_t lock; /* lines and n_lines */
    char lines[LINES][LINE];
    int n_lines;
    atomic_bool done;
    bool named;
    int first, n;
    struct probed_device found[DEVICE_MAX];
    char why[512];
};

static _Thread_local struct devices_async *this_thread;

void devices_async_log(void *ctx, const char *line)
{
    struct devices_async *o = this_thread;

    if (!o) {
        engine_notice(ctx, "%s", line);
        return;
    }
    pthread_mutex_lock(&o->lock);
    if (o->n_lines < LINES)
        snprintf(o->lines[o->n_lines++], LINE, "%s", line);
    pthread_mutex_unlock(&o->lock);
}

static void *open_beside(void *ctx)
{
    struct devices_async *o = ctx;

    this_thread = o;
    o->n = devices_open(o->g, o->named, o->first, o->found, DEVICE_MAX, o->why, sizeof o->why);
    atomic_store(&o->done, true);
    return NULL;
}

int devices_async_start(struct engine *g, bool named, struct error *e)
{
    struct devices_async *o = mem_alloc(1, sizeof *o);

    if (!o)
        return error_set(e, ERR_MEMORY, "no memory for opening a device");
    o->g = g;
    o->named = named;
    o->first = g->n_devices;
    pthread_mutex_init(&o->lock, NULL);
    if (pthread_create(&o->thread, NULL, open_beside, o) != 0) {
        pthread_mutex_destroy(&o->lock);
        mem_free(o);
        return error_set(e, ERR_IO, "no thread for opening a device");
    }
    g->devices_async = o;
    return 0;
}

static void say(struct devices_async *o)
{
    char line[LINE];
    bool more;

    do {
        pthread_mutex_lock(&o->lock);
        more = o->n_lines > 0;
        if (more) {
            memcpy(line, o->lines[0], LINE);
            memmove(o->lines[0], o->lines[1], (size_t)--o->n_lines * LINE);
        }
        pthread_mutex_unlock(&o->lock);
        if (more)
            engine_notice(o->g, "%s", line);
    } while (more);
}

bool devices_async_poll(struct engine *g, bool wait)
{
    struct devices_async *o = g->devices_async;

    if (!o)
        return true;
    say(o);
    if (!wait && !atomic_load(&o->done))
        return false;
    pthread_join(o->thread, NULL);
    say(o);
    g->devices_async = NULL;
    devices_adopt(g, o->found, o->n, o->why, o->named);
    pthread_mutex_destroy(&o->lock);
    mem_free(o);
    return true;
}
