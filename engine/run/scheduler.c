/* Assembles every pass: the next token of every decoding session, and chunks of waiting prompts.
 * Engine thread. The time of prefill beside decoding is limited, more so for few waiting prompts
 * (mixed_pass.h); the session served least comes first. Where prompts and tokens have different
 * plans (engine_prompt_plan_set) a pass has rows of one kind only: a row computed on the other side
 * would move its session's rows there and back. If one device has all layers of one plan and no
 * block of the other, both are computed at once (pass/apart.h): the device a piece of a prompt
 * while passes of tokens go on (prompts_beside), or one token after the other of all answers while
 * a pass of prompts goes on, between whose layers they are taken (tokens_beside). Else, while both
 * wait, they take turns, the prompts' with as many rows as a pass with both would have. Between
 * passes, and when nothing is computed beside them, is the safe point of all sessions: cancelled
 * turns end, placement moves blocks. */
#include "engine/base/clock.h"
#include "engine/run/engine.h"
#include "engine/run/internal.h"

#define RETRIES (2 * DEVICE_MAX + 2)
/* That both sides compute at once: turns begin and end, and placement changes, after it. */
#define BESIDE_NS (250 * CLOCK_MILLI)
#define BESIDE_ROWS 64 /* before anything was measured */

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
    return turn_running(s) && !is_held(s) && !answers(s) && !s->run.leader && !s->run.beside &&
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

/* Adds parts of prompts, with `room` rows at most, to the pass's n; returns how many there are. */
static int fill_prompts(struct engine *g, int n, int room)
{
    struct session *s;

    while (room > 0 && (s = least_served(g, n, has_prompt))) {
        int rows = session_rows_to_mark(s, waiting_rows(s) < room ? waiting_rows(s) : room);

        add_part(g, n++, s, rows);
        room -= rows;
    }
    return n;
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
    turns = g->beside.n || (place_apart(g) && waiting && count(g, has_prompt));
    prompts = turns && !g->beside.n && g->scheduler.prompts_next;
    g->scheduler.prompts_next = turns && !prompts;
    for (; !prompts && left > 0 && (s = least_served(g, n, answers)); left--) {
        const struct session *waits = left == 1 && !turns ? least_served(g, n, has_prompt) : NULL;

        if (waits && waits->run.served < s->run.served)
            break; /* more answers than rows: leave a part for a prompt */
        add_part(g, n++, s, 1);
    }
    *n_answers = n;
    room = turns && !prompts ? 0 : room_beside(g, prompts ? waiting : n, left);
    n = fill_prompts(g, n, room);
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
        if (g->sessions[i] && turn_running(g->sessions[i]) && !g->sessions[i]->run.beside &&
            session_cancelled(g->sessions[i]))
            turn_end(g->sessions[i], ERR_CANCELLED, NULL);
}

/* Samples the pending token, and accepts drafted ones after it. */
static void take_tokens(struct session *s)
{
    do
        turn_step(s);
    while (speculate_next(s));
}

/* A pass of these parts has ended. */
static void take_results(struct engine *g, const struct pass_part *parts, int n, int rc, bool again,
                         const struct error *e)
{
    g->scheduler.failures = again ? g->scheduler.failures + 1 : 0;
    for (int i = 0; i < n; i++) {
        struct session *s = parts[i].session;

        s->run.served += (uint64_t)parts[i].rows;
        if (rc == 0 && waiting_rows(s) == 0)
            take_tokens(s);
        else if (rc < 0 && rc != ERR_CANCELLED && !(again && g->scheduler.failures < RETRIES))
            turn_end(s, rc, e);
        speculate_end(s, rc == 0);
    }
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
    take_results(g, parts, n, rc, again, &e);
    if (rc == 0 && n == n_answers)
        speculate_learn(g, (double)(clock_now() - start));
}

static void tell(struct engine *g)
{
    if (!g->tick)
        return;
    metrics_refresh(g);
    g->tick(g->tick_ctx);
}

/* The device that has a phase's rows to itself; 0: none, or not now. */
static int device_beside(struct engine *g, enum plan_phase phase)
{
    const struct plan *own = place_of_phase(g, phase),
                      *other = place_of_phase(g,
                                              phase == PHASE_PROMPT ? PHASE_TOKENS : PHASE_PROMPT);
    struct error ignored;

    if (g->n_devices < 2 || !place_apart(g) || place_waits(g) || g->config.routing ||
        !count(g, answers) || !count(g, has_prompt) || session_beside_room(g, &ignored) < 0)
        return 0;
    return apart_device(&g->forward, own, other);
}

/* Layers that edits of the routing touch are not given to a device whole. */
static int unless_edited(const struct engine *g, int n)
{
    for (int i = 0; i < n; i++)
        if (g->pass.parts[i].session->edits)
            return 0;
    return n;
}

/* Assembles a piece of prompts for their device alone; returns its parts, 0: not now. */
static int fill_beside(struct engine *g, int *device)
{
    struct beside *b = &g->beside;
    int n, most = b->chunk ? 2 * b->chunk : BESIDE_ROWS,
           rows = b->row_ns > 0 ? (int)(BESIDE_NS / b->row_ns) : BESIDE_ROWS;

    if (!(*device = device_beside(g, PHASE_PROMPT)))
        return 0;
    rows = rows < most ? rows : most;
    rows = rows > g->forward.max_rows ? g->forward.max_rows : rows < 1 ? 1 : rows;
    session_beside_swap(g);
    n = unless_edited(g, fill_prompts(g, 0, rows));
    session_beside_swap(g);
    return n;
}

/* The same of the next token of all answers. */
static int fill_answers(struct engine *g, int *device)
{
    struct session *s;
    int n = 0;

    if (!(*device = device_beside(g, PHASE_TOKENS)))
        return 0;
    session_beside_swap(g);
    while (n < g->forward.max_rows && (s = least_served(g, n, answers)))
        add_part(g, n++, s, 1);
    n = unless_edited(g, n);
    session_beside_swap(g);
    return n;
}

static bool beside_cancelled(const struct engine *g)
{
    bool all = true;

    for (int i = 0; i < g->beside.n; i++)
        all = all && session_cancelled(g->beside.pass.parts[i].session);
    return all;
}

/* What a device computed beside other passes is over; returns rc, or what else failed. */
static int end_beside(struct engine *g, int rc, struct error *e)
{
    struct beside *b = &g->beside;
    int n = b->n, rows = b->apart.f.rows;
    uint64_t ns = clock_now() - b->start;
    bool again;

    rc = session_beside_end(g, rc, &again, e);
    if (rc == 0)
        metrics_pass(g, rows, b->phase == PHASE_TOKENS ? n : 0);
    if (rc == 0 && b->phase == PHASE_PROMPT) {
        b->chunk = rows;
        b->row_ns = (double)ns / rows;
        g->t.at_once.pieces++;
        g->t.at_once.rows += (uint64_t)rows;
        metrics_prompt(g, rows, ns);
    } else if (rc == 0) {
        g->t.at_once.tokens += (uint64_t)n;
        /* the device may have waited for the thread */
        ns = b->token_ns && b->token_ns < ns ? b->token_ns : ns;
    }
    g->t.at_once.turns_ns += ns;
    take_results(g, b->pass.parts, n, rc, again, e);
    return rc;
}

/* Whether the pass's n parts have their rows where those of that phase are computed: else they are
 * copied, which a device with a job in flight may not be asked for. */
static bool at_hand(const struct engine *g, int n, enum plan_phase phase)
{
    const struct plan *plan = place_of_phase(g, phase);
    bool all = true;

    for (int i = 0; i < n; i++)
        for (int l = 0; l < g->model->hp.n_layers; l++) {
            const struct session *s = g->pass.parts[i].session;

            all = all && kv_there(&g->kv, s->number, l, plan->attention[l], s->n_tokens);
        }
    return all;
}

/* A pass of n parts beside one of the other phase. */
static void run_beside(struct engine *g, int n, int n_answers)
{
    uint64_t start = clock_now(), rows = 0;

    for (int i = 0; i < n; i++)
        rows += (uint64_t)g->pass.parts[i].rows;
    run(g, n, n_answers, start);
    g->t.at_once.turns_ns += clock_now() - start;
    if (n_answers) {
        g->t.at_once.tokens += (uint64_t)n_answers;
    } else {
        g->t.at_once.pieces++;
        g->t.at_once.rows += rows;
    }
    end_cancelled(g);
    tell(g);
}

/* A device computes a piece of a prompt; meanwhile, passes of tokens. Nothing else happens to
 * sessions and devices until both are done. */
static void prompts_beside(struct engine *g, int n, int device)
{
    struct apart *a = &g->beside.apart;
    uint64_t start = clock_now();
    struct error e = {0};
    int rc = 0;

    session_beside_begin(g, n, PHASE_PROMPT, device);
    while (rc == 0) {
        int n_answers, tokens = count(g, answers) ? fill(g, &n_answers) : 0, over = 0;

        if (!at_hand(g, tokens, PHASE_TOKENS))
            over = apart_step(a, true, &e);
        if (tokens)
            run_beside(g, tokens, n_answers);
        if (over)
            rc = over;
        else if (!a->device) /* nothing of that can be relied on any more */
            rc = error_set(&e, ERR_DEVICE, "what was computed is void");
        else if (beside_cancelled(g)) {
            apart_drop(a);
            rc = ERR_CANCELLED;
        } else {
            rc = apart_step(a, !tokens, &e);
        }
    }
    end_beside(g, rc, &e);
    g->t.at_once.ns += clock_now() - start;
}

/* Takes what the device has computed of the answers. again: begins their next tokens; else waits
 * until none is under way. 1: some are, 0: none; negative: failed. */
static int step_answers(struct engine *g, bool again)
{
    struct beside *b = &g->beside;
    struct error e = {0};
    int rc = 0, n, device;

    if (b->n) {
        rc = b->apart.device ? apart_step(&b->apart, !again, &e)
                             : error_set(&e, ERR_DEVICE, "what was computed is void");
        if (rc == 0)
            return 1;
        rc = end_beside(g, rc, &e);
    }
    if (rc < 0 || !again || !(n = fill_answers(g, &device)))
        return rc < 0 ? rc : 0;
    session_beside_begin(g, n, PHASE_TOKENS, device);
    return 1;
}

/* See beside.between_layers. */
static bool take_answers(struct engine *g)
{
    const struct apart *a = &g->beside.apart;
    const struct device_slot *s = &g->slots[a->device];

    return apart_computed(a) && (step_answers(g, true) < 0 || s->lost || s->strained);
}

/* A device computes n answers' next tokens and those after them; meanwhile, passes of prompts.
 * Nothing else happens to sessions and devices until both are done. */
static void tokens_beside(struct engine *g, int n, int device)
{
    uint64_t start = clock_now();
    int prompts = fill_prompts(g, 0, room_beside(g, n, g->forward.max_rows));
    bool more;

    if (!at_hand(g, prompts, PHASE_PROMPT)) { /* they will be behind this pass */
        run(g, prompts, 0, start);
        return;
    }
    g->beside.token_ns = g->scheduler.decode_ns;
    g->beside.between_layers = take_answers;
    session_beside_begin(g, n, PHASE_TOKENS, device);
    do {
        run_beside(g, prompts, 0);
        more = clock_now() - start < BESIDE_NS;
        prompts = more && step_answers(g, true) > 0
                      ? fill_prompts(g, 0, room_beside(g, n, g->forward.max_rows))
                      : 0;
    } while (prompts && at_hand(g, prompts, PHASE_PROMPT));
    (void)step_answers(g, false);
    g->beside.between_layers = NULL;
    g->t.at_once.ns += clock_now() - start;
}

bool engine_step(struct engine *g)
{
    uint64_t start = clock_now();
    int n, n_answers, device;
    bool reading;

    end_cancelled(g);
    reading = disk_sessions_take(g);
    prefix_sharing_take(g);
    if ((n = fill_beside(g, &device)) > 0) {
        prompts_beside(g, n, device);
        n_answers = 1;
    } else if ((n = fill_answers(g, &device)) > 0) {
        tokens_beside(g, n, device);
        n_answers = 1;
    } else if ((n = fill(g, &n_answers)) > 0) {
        run(g, n, n_answers, start);
    } else {
        return reading;
    }
    end_cancelled(g);
    if (!g->n_running) {
        speculate_idle(g);
        return false;
    }
    place_safe_point(g);
    disk_sessions_step(g, false);
    if (n_answers)
        tell(g);
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
