/* See deadlines.h. */
#include "app/serve/http/deadlines.h"

#include "app/serve/common/server.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"

#include <pthread.h>
#include <sys/socket.h>

struct deadline {
    int fd;           /* -1: free */
    uint64_t end_ns;  /* 0: none */
    uint64_t left_ns; /* while it is paused */
    bool passed;
};

struct deadlines {
    pthread_mutex_t lock;
    pthread_cond_t end;
    pthread_t thread;
    bool ending;
    uint64_t silence_ns;
    struct deadline of[SERVE_CONNECTIONS];
};

/* A check is cheap, so once a second is often enough. */
#define LOOK_S 1

static void cut_off(struct deadlines *d, uint64_t now)
{
    for (int i = 0; i < SERVE_CONNECTIONS; i++)
        if (d->of[i].fd >= 0 && d->of[i].end_ns && d->of[i].end_ns <= now) {
            shutdown(d->of[i].fd, SHUT_RDWR);
            d->of[i].end_ns = 0;
            d->of[i].passed = true;
        }
}

static void *watch(void *arg)
{
    struct deadlines *d = arg;

    pthread_mutex_lock(&d->lock);
    while (!d->ending) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += LOOK_S;
        pthread_cond_timedwait(&d->end, &d->lock, &until);
        cut_off(d, clock_now());
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

int deadlines_start(struct deadlines **to, int timeout_s, struct error *e)
{
    struct deadlines *d = mem_alloc(1, sizeof *d);

    *to = NULL;
    if (!d)
        return error_set(e, ERR_MEMORY, "out of memory for the server");
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->end, NULL);
    d->silence_ns = (uint64_t)timeout_s * CLOCK_SECOND;
    for (int i = 0; i < SERVE_CONNECTIONS; i++)
        d->of[i].fd = -1;
    if (pthread_create(&d->thread, NULL, watch, d)) {
        mem_free(d);
        return error_set(e, ERR_MEMORY, "no thread for the server's deadlines");
    }
    *to = d;
    return 0;
}

void deadlines_stop(struct deadlines *d)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->ending = true;
    pthread_cond_signal(&d->end);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->end);
    pthread_mutex_destroy(&d->lock);
    mem_free(d);
}

struct deadline *deadline_open(struct deadlines *d, int fd)
{
    struct deadline *found = NULL;

    if (fd < 0)
        return NULL;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < SERVE_CONNECTIONS && !found; i++)
        if (d->of[i].fd < 0)
            found = &d->of[i];
    if (found)
        *found = (struct deadline){.fd = fd, .end_ns = clock_now() + DEADLINE_HEAD * d->silence_ns};
    pthread_mutex_unlock(&d->lock);
    return found;
}

void deadline_close(struct deadlines *d, struct deadline *each)
{
    if (!each)
        return;
    pthread_mutex_lock(&d->lock);
    each->fd = -1;
    pthread_mutex_unlock(&d->lock);
}

void deadline_set(struct deadlines *d, struct deadline *each, int times)
{
    if (!each)
        return;
    pthread_mutex_lock(&d->lock);
    each->end_ns = times ? clock_now() + (uint64_t)times * d->silence_ns : 0;
    each->left_ns = 0;
    pthread_mutex_unlock(&d->lock);
}

void deadline_pause(struct deadlines *d, struct deadline *each)
{
    uint64_t now = clock_now();

    if (!each)
        return;
    pthread_mutex_lock(&d->lock);
    if (each->end_ns)
        each->left_ns = each->end_ns > now ? each->end_ns - now : 1;
    each->end_ns = 0;
    pthread_mutex_unlock(&d->lock);
}

void deadline_resume(struct deadlines *d, struct deadline *each)
{
    if (!each)
        return;
    pthread_mutex_lock(&d->lock);
    if (each->left_ns)
        each->end_ns = clock_now() + each->left_ns;
    each->left_ns = 0;
    pthread_mutex_unlock(&d->lock);
}

bool deadline_passed(struct deadlines *d, struct deadline *each)
{
    bool passed;

    if (!each)
        return false;
    pthread_mutex_lock(&d->lock);
    passed = each->passed;
    pthread_mutex_unlock(&d->lock);
    return passed;
}
