/* See server_status.h. */
#include "app/serve/dispatch/server_status.h"

#include "app/serve/common/route.h"
#include "app/serve/common/server.h"
#include "app/serve/dispatch/slot.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/series.h"
#include "engine/base/utf8.h"
#include "engine/placement/planner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS (100 * CLOCK_MILLI)
#define MARKS 16 /* newest sums kept: they cover more than a second */
#define FIRSTS 64

/* Sums at a point in time; rates are differences to those of a second ago. */
struct mark {
    uint64_t at_ns, made, read, answered, answering;
};

struct server_status {
    pthread_mutex_t lock;
    struct ui_serving view;
    struct telemetry engine; /* has arrays of its own once has_engine */
    bool has_engine;
    uint64_t engine_ns, sessions_ns;
    struct status_snapshot state;
    struct mark marks[MARKS];
    unsigned n_marks;
    uint64_t read; /* prompt tokens computed */
    double firsts[FIRSTS];
    size_t n_firsts;
    char *wish[PLAN_PHASES]; /* mem_* memory; NULL: none */
    uint64_t wishes;
    int timeline; /* -1: unchanged */
};

static void wishes_free(struct server_status *b)
{
    for (int k = 0; k < PLAN_PHASES; k++) {
        mem_free(b->wish[k]);
        b->wish[k] = NULL;
    }
}

struct server_status *server_status_new(void)
{
    struct server_status *b = mem_alloc(1, sizeof *b);

    if (!b)
        return NULL;
    pthread_mutex_init(&b->lock, NULL);
    b->timeline = -1;
    return b;
}

void server_status_free(struct server_status *b)
{
    if (!b)
        return;
    if (b->has_engine)
        telemetry_release(&b->engine);
    wishes_free(b);
    pthread_mutex_destroy(&b->lock);
    mem_free(b);
}

void server_status_request(struct server_status *b, const struct ui_request *r)
{
    struct ui_request *to;
    time_t now = time(NULL);
    struct tm local;

    pthread_mutex_lock(&b->lock);
    to = &b->view.requests[b->view.n_requests++ % UI_REQUESTS];
    *to = *r;
    if (localtime_r(&now, &local))
        strftime(to->clock, sizeof to->clock, "%H:%M:%S", &local);
    pthread_mutex_unlock(&b->lock);
}

void server_say(const struct server *s, const char *format, ...)
{
    char text[500], safe[700];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    utf8_escape(safe, sizeof safe, text, strlen(text), 0);
    log_write(LOG_LEVEL_INFO, "%s", safe);
    if (s->status) {
        struct ui_request line = {0};

        snprintf(line.text, sizeof line.text, "%.*s", (int)sizeof line.text - 1, safe);
        server_status_request(s->status, &line);
    }
    if (atomic_load(&s->plain))
        fprintf(stderr, "moetop: %s\n", safe);
}

/* ---- sessions ---- */

static void fill_session(struct ui_session *to, const struct slot *s, uint64_t now)
{
    const struct task *t = s->task;

    to->held = s->n_held;
    to->made = s->made;
    to->prompt = s->prompt;
    to->cached = s->cached;
    to->read = s->read;
    to->tok_s = s->made > 1 ? clock_rate(s->made - 1, s->newest_ns - s->first_ns) : 0;
    if (!t) {
        to->state = UI_SESSION_IDLE;
        to->seconds = 0;
        return;
    }
    snprintf(to->who, sizeof to->who, "%.47s", t->job->x->peer);
    route_name(t->job->x->route, to->what, sizeof to->what);
    to->seconds = clock_seconds(now - t->job->x->begun_ns);
    to->state = t->job->held                      ? UI_SESSION_HELD
                : s->made || s->read >= s->prompt ? UI_SESSION_ANSWERING
                                                  : UI_SESSION_READING;
}

static void fill_queue(struct ui_serving *v, const struct task *queue, uint64_t now)
{
    int n = 0;

    for (const struct task *t = queue; t && n < UI_WAITING; t = t->next, n++) {
        struct ui_waiting *w = &v->queue[n];

        snprintf(w->who, sizeof w->who, "%.47s", t->job->x->peer);
        route_name(t->job->x->route, w->what, sizeof w->what);
        w->prompt = t->n_prompt;
        w->seconds = clock_seconds(now - t->job->x->begun_ns);
    }
    v->waiting = n;
    for (const struct task *t = queue; t; t = t->next)
        v->waiting += --n < 0;
}

/* Stores the newest sums, and computes rates from the oldest entry of the last second, or from the
 * entry before if none is that recent. Under the lock. */
static void fill_rates(struct server_status *b, const struct mark *newest)
{
    struct mark then = *newest;
    double seconds;

    b->marks[b->n_marks++ % MARKS] = *newest;
    for (unsigned i = 0; i < MARKS && i < b->n_marks; i++) {
        struct mark *m = &b->marks[i];

        if (m->at_ns < then.at_ns && newest->at_ns - m->at_ns <= CLOCK_SECOND + LOOK_NS / 2)
            then = *m;
    }
    /* no other entry in the last second: the one before, if there is one */
    if (then.at_ns == newest->at_ns && b->n_marks > 1)
        then = b->marks[(b->n_marks - 2) % MARKS];
    seconds = clock_seconds(newest->at_ns - then.at_ns);
    b->view.answers_tok_s = seconds > 0 ? (double)(newest->made - then.made) / seconds : 0;
    b->view.prompts_tok_s = seconds > 0 ? (double)(newest->read - then.read) / seconds : 0;
    b->view.answers_a_pass = newest->answering > then.answering
                                 ? (double)(newest->answered - then.answered) /
                                       (double)(newest->answering - then.answering)
                                 : 0;
}

static void fill_counts(struct ui_serving *v, const struct dispatcher_figures *f)
{
    v->n_sessions = f->sessions;
    v->running = f->running;
    v->completed = f->completed;
    v->cancelled = f->cancelled;
    v->failed = f->failed;
    v->drafted = f->drafted;
    v->accepted = f->accepted;
    v->prompt_tokens = f->prompt_tokens;
    v->cached_tokens = f->cached_tokens;
    v->made_tokens = f->completion_tokens;
}

void server_status_sessions(struct server_status *b, const struct slot *slots, int n,
                            const struct task *queue, const struct dispatcher_figures *f,
                            bool at_once)
{
    uint64_t now = clock_now();

    if (!at_once && now - b->sessions_ns < LOOK_NS)
        return;
    b->sessions_ns = now;
    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < n && i < UI_SESSIONS; i++)
        fill_session(&b->view.sessions[i], &slots[i], now);
    fill_queue(&b->view, queue, now);
    fill_counts(&b->view, f);
    fill_rates(b, &(struct mark){.at_ns = now,
                                 .made = f->completion_tokens,
                                 .read = b->read,
                                 .answered = b->engine.passes.answered,
                                 .answering = b->engine.passes.answering});
    pthread_mutex_unlock(&b->lock);
}

void server_status_first_token(struct server_status *b, double seconds)
{
    double sorted[FIRSTS];
    size_t n;

    pthread_mutex_lock(&b->lock);
    b->firsts[b->n_firsts++ % FIRSTS] = seconds;
    n = b->n_firsts < FIRSTS ? b->n_firsts : FIRSTS;
    memcpy(sorted, b->firsts, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, series_compare);
    b->view.first_p50_s = series_percentile(sorted, n, 50);
    b->view.first_p95_s = series_percentile(sorted, n, 95);
    pthread_mutex_unlock(&b->lock);
}

void server_status_prompt_read(struct server_status *b, int tokens)
{
    pthread_mutex_lock(&b->lock);
    b->read += tokens > 0 ? (uint64_t)tokens : 0;
    pthread_mutex_unlock(&b->lock);
}

/* ---- the engine ---- */

void server_status_engine(struct server_status *b, const struct telemetry *t)
{
    uint64_t now = clock_now();

    if (!t || now - b->engine_ns < LOOK_NS)
        return;
    b->engine_ns = now;
    pthread_mutex_lock(&b->lock);
    if (!b->has_engine)
        b->has_engine = telemetry_init(&b->engine, t->n_layers, t->n_experts, t->n_experts_used) ==
                        0;
    if (b->has_engine)
        telemetry_copy(&b->engine, t);
    pthread_mutex_unlock(&b->lock);
}

void server_status_forget_engine(struct server_status *b)
{
    pthread_mutex_lock(&b->lock);
    if (b->has_engine)
        telemetry_release(&b->engine);
    b->has_engine = false;
    b->engine = (struct telemetry){0};
    b->state = (struct status_snapshot){0};
    b->n_marks = 0;
    wishes_free(b);
    b->wishes = 0;
    memset(b->view.sessions, 0, sizeof b->view.sessions);
    pthread_mutex_unlock(&b->lock);
}

void server_status_loading(struct server_status *b, uint64_t done, uint64_t total)
{
    pthread_mutex_lock(&b->lock);
    b->state.done = done;
    b->state.total = total;
    pthread_mutex_unlock(&b->lock);
}

void server_status_plan(struct server_status *b, const char *plan, uint64_t wishes)
{
    pthread_mutex_lock(&b->lock);
    snprintf(b->state.plan, sizeof b->state.plan, "%s", plan ? plan : "");
    b->state.wishes = wishes;
    pthread_mutex_unlock(&b->lock);
}

uint64_t server_status_place(struct server_status *b, const char *plan)
{
    char *copy = mem_string(plan);
    enum plan_phase phase = planner_phase(&plan);
    uint64_t number = 0;

    if (!copy)
        return 0;
    pthread_mutex_lock(&b->lock);
    if (!b->wish[phase]) /* replaces a wish that was not taken yet, without a new number */
        b->wishes++;
    mem_free(b->wish[phase]);
    b->wish[phase] = copy;
    number = b->wishes;
    pthread_mutex_unlock(&b->lock);
    return number;
}

void server_status_timeline(struct server_status *b, bool on)
{
    pthread_mutex_lock(&b->lock);
    b->timeline = on;
    pthread_mutex_unlock(&b->lock);
}

bool server_status_take(struct server_status *b, char *plans[PLAN_PHASES], int *timeline)
{
    bool any = false;

    pthread_mutex_lock(&b->lock);
    for (int k = 0; k < PLAN_PHASES; k++) {
        plans[k] = b->wish[k];
        b->wish[k] = NULL;
        any = any || plans[k];
    }
    *timeline = b->timeline;
    b->timeline = -1;
    pthread_mutex_unlock(&b->lock);
    return any || *timeline >= 0;
}

/* ---- readers ---- */

void server_status_look(struct server_status *b, struct ui_serving *out)
{
    pthread_mutex_lock(&b->lock);
    *out = b->view;
    pthread_mutex_unlock(&b->lock);
}

void status_snapshot(struct server_status *b, struct status_snapshot *out)
{
    pthread_mutex_lock(&b->lock);
    *out = b->state;
    pthread_mutex_unlock(&b->lock);
}

void server_status_telemetry(struct server_status *b,
                             void (*fn)(void *ctx, const struct telemetry *t), void *ctx)
{
    pthread_mutex_lock(&b->lock);
    if (b->has_engine)
        fn(ctx, &b->engine);
    pthread_mutex_unlock(&b->lock);
}
