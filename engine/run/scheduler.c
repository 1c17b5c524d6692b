/* Assembles every pass: the next token of every decoding session, and chunks of waiting prompts.
 * Engine thread. The time of prefill beside decoding is limited, more so for few waiting prompts
 * (mixed_pass.h); the session served least comes first. Where prompts and tokens have different
 * plans (engine_prompt_plan_set) a pass has rows of one kind only, and while both wait they take
 * turns, the prompts' with as many rows as a pass with both would have: a row computed on the other
 * side would move its session's rows there and back. The two sides work one after the other, not at
 * the same time: a pass has the CPU's threads and scratch to itself, whatever its plan. Between
 * passes is the safe point of all sessions: cancelled turns end, placement moves blocks. */
#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#define RETRIES (2 * DEVICE_MAX + 2)

static int waiting_rows(const struct session *s)
{
    return s->run.end - s->n_tokens;
}

/* Its answer is paused: its reader is behind. */
static bool is_held(const struct session *s)
{
    return s->run.answering && atomic_load_explicit(&s->held, memory_order_relaxed);
}

/* Its next token is pending; recomputing more than that counts as prefill. */
static bool answers(const struct session *s)
{
    return turn_running(s) && s->run.answering && waiting_rows(s) == 1 && !is_held(s);
}

static bool has_prompt(const struct session *s)
{
    return turn_running(s) && !is_held(s) && !answers(s) && !s->run.leader &&
           !disk_sessions_reading(s);
}

/* The session served least that is not in the pass yet and for which `wanted` is true. */
static struct session *least_served(const struct engine *g, int n,
                                    bool (*wanted)(const struct session *s))
{
    struct session *least = NULL;

    for (int i = 0; i < g->n_sessions; i++) {
        struct session *s = g->sessions[i];
        bool taken = !s || !wanted(s);

        for (int k = 0; k < n && !taken; k++)
            taken = g->pass.parts[k].session == s;
        if (!taken && (!least || s->run.served < least->run.served))
            least = s;
    }
    return least;
}

static void add_part(struct engine *g, int n, struct session *s, int rows)
{
    bool last = rows == waiting_rows(s) && !s->run.pooling; /* an embedding needs no logits */

    g->pass.parts[n] = (struct pass_part){
        .session = s, .rows = rows, .logits = last ? s->logits : NULL, .decode = s->run.answering};
}

static int count(const struct engine *g, bool (*wanted)(const struct session *s))
{
    int n = 0;

    for (int i = 0; i < g->n_sessions; i++)
        n += g->sessions[i] && wanted(g->sessions[i]);
    return n;
}

/* Prefill rows allowed beside n answers, of `left` rows available. */
static int room_beside(struct engine *g, int n, int left)
{
    int waiting = count(g, has_prompt), rows;

    if (!n || !waiting)
        return left;
    rows = scheduler_rows(&g->scheduler, n, waiting);
    return rows < left ? rows : left;
}

/* Assembles the parts of the next pass; returns how many. answers: how many of them are decode
 * rows. */
static int fill(struct engine *g, int *n_answers)
{
    int left = g->forward.max_rows, n = 0, room, waiting;
    struct session *s;
    bool turns, prompts;

    prefix_sharing_take(g);
    waiting = count(g, answers);
    turns = place_apart(g) && waiting && count(g, has_prompt);
    prompts = turns && g->scheduler.prompts_next;
    g->scheduler.prompts_next = turns && !prompts;
    for (; !prompts && left > 0 && (s = least_served(g, n, answers)); left--) {
        const struct session *waits = left == 1 && !turns ? least_served(g, n, has_prompt) : NULL;

        if (waits && waits->run.served < s->run.served)
            break; /* more answers than rows: leave a part for a prompt */
        add_part(g, n++, s, 1);
    }
    *n_answers = n;
    room = turns && !prompts ? 0 : room_beside(g, prompts ? waiting : n, left);
    while (room > 0 && (s = least_served(g, n, has_prompt))) {
        int rows = session_rows_to_mark(s, waiting_rows(s) < room ? waiting_rows(s) : room);

        add_part(g, n++, s, rows);
        room -= rows;
    }
    if (n == *n_answers)
        speculate_fill(g, n, left);
    return n;
}

/* Records the time of a pass, for the size of later ones. */
static void learn(struct engine *g, int n, int n_answers, uint64_t ns)
{
    int rows = 0, all = 0;

    for (int i = 0; i < n; i++)
        all += g->pass.parts[i].rows;
    for (int i = n_answers; i < n; i++)
        rows += g->pass.parts[i].rows;
    scheduler_learn(&g->scheduler, n_answers, rows, ns);
    metrics_pass(g, all, n_answers);
    if (!n_answers)
        metrics_prompt(g, rows, ns);
}

/* Ends cancelled turns. */
static void end_cancelled(struct engine *g)
{
    for (int i = 0; i < g->n_sessions; i++)
        if (g->sessions[i] && turn_running(g->sessions[i]) && session_cancelled(g->sessions[i]))
            turn_end(g->sessions[i], ERR_CANCELLED, NULL);
}

/* Samples the pending token, and accepts drafted ones after it. */
static void take_tokens(struct session *s)
{
    do
        turn_step(s);
    while (speculate_next(s));
}

/* Runs a pass assembled since `start`; a failing device may cost rows, which are recomputed with
 * the next ones. */
static void run(struct engine *g, int n, int n_answers, uint64_t start)
{
    struct pass_part *parts = g->pass.parts;
    struct error e = {0};
    bool again;
    int rc;

    for (int i = 0; i < n; i++)
        if (parts[i].session->run.answering)
            parts[i].session->run.begin = start;
    if (n_answers)
        metrics_timeline_begin(g, start);
    rc = session_pass(g, n, n > n_answers ? PHASE_PROMPT : PHASE_TOKENS, &again, &e);
    if (rc == 0)
        learn(g, n, n_answers, clock_now() - start);
    if (rc == 0 && n == n_answers)
        speculate_computed(g, n, (double)(clock_now() - start));
    g->scheduler.failures = again ? g->scheduler.failures + 1 : 0;
    for (int i = 0; i < n; i++) {
        struct session *s = parts[i].session;

        s->run.served += (uint64_t)parts[i].rows;
        if (rc == 0 && waiting_rows(s) == 0)
            take_tokens(s);
        else if (rc < 0 && rc != ERR_CANCELLED && !(again && g->scheduler.failures < RETRIES))
            turn_end(s, rc, &e);
        speculate_end(s, rc == 0);
    }
    if (rc == 0 && n == n_answers)
        speculate_learn(g, (double)(clock_now() - start));
}

bool engine_step(struct engine *g)
{
    uint64_t start = clock_now();
    int n, n_answers;
    bool reading;

    end_cancelled(g);
    reading = disk_sessions_take(g);
    if ((n = fill(g, &n_answers)) == 0)
        return reading;
    run(g, n, n_answers, start);
    end_cancelled(g);
    if (!g->n_running) {
        speculate_idle(g);
        return false;
    }
    place_safe_point(g);
    disk_sessions_step(g, false);
    if (n_answers && g->tick) {
        metrics_refresh(g);
        g->tick(g->tick_ctx);
    }
    return g->n_running > 0;
}

/* Event filter of engine_turn's caller: errors are returned instead. */
struct listener {
    int (*on_event)(void *ctx, struct event *ev);
    void *ctx;
};

static int listen(void *ctx, struct event *ev)
{
    const struct listener *l = ctx;

    return ev->kind == EVENT_ERROR || !l->on_event ? 0 : l->on_event(l->ctx, ev);
}

int engine_turn(struct engine *g, const struct turn *t,
                int (*on_event)(void *ctx, struct event *ev), void *ctx,
                struct turn_done_event *done, struct error *e)
{
    struct session *s = g->session;
    int (*idle_event)(void *ctx, struct event *ev) = g->on_event;
    struct listener listener = {on_event, ctx};
    void *idle_ctx = g->event_ctx;
    struct error own = {0};

    g->on_event = on_event;
    g->event_ctx = ctx;
    if (turn_begin(s, t, listen, &listener, e ? e : &own) == 0)
        while (turn_running(s))
            engine_step(g);
    g->on_event = idle_event;
    g->event_ctx = idle_ctx;
    if (done)
        *done = s->run.done;
    if (s->run.rc < 0 && e)
        *e = s->run.error;
    return s->run.rc;
}
