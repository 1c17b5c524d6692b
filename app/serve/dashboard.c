/* See dashboard.h. The board (app/serve/board.h) is copied into the picture's model some times a
 * second; what is asked of the engine goes back over it. A picture is drawn only when something
 * changed, at most ten times a second, since every wake-up costs the engine's threads. */
#include "app/serve/dashboard.h"

#include "app/common/machine_view.h"
#include "app/serve/board.h"
#include "app/serve/hub.h"
#include "app/setup/screen_setup.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/file/dtype.h"
#include "engine/model/model.h"
#include "ui/ascii.h"
#include "ui/canvas.h"
#include "ui/keys.h"
#include "ui/panels/panel.h"
#include "ui/screen/key_help.h"
#include "ui/screen/screen.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LOOK_NS (100 * CLOCK_MILLI)
#define ESCAPE_MS 50 /* a lone Esc is the key when nothing follows for so long */

struct dashboard {
    struct server *server;
    const struct options *options;
    struct ui_serving serving; /* the newest copy */
    struct ui_model model;
    struct canvas canvas;
    struct terminal *terminal;
    struct machine_view *machine;
    char *help, where[64];
    bool utf8, named, timeline, waiting; /* waiting: what came ends in a lone Esc */
    int signal_fd;
    sigset_t old_mask;
    uint64_t looked_ns, sampled_ns;
    enum dashboard_end end;
    bool wants_end;
};

bool dashboard_wanted(const struct options *o)
{
    const char *term = getenv("TERM");

    return !o->plain && !o->screen_reader && term && *term && strcmp(term, "dumb") != 0 &&
           isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
}

static char *help_make(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    keys_print_help(f);
    fclose(f);
    return text;
}

int dashboard_new(struct dashboard **out, struct server *s, const struct options *o,
                  struct error *e)
{
    struct dashboard *d = mem_alloc(1, sizeof *d);
    int rc;

    *out = d;
    if (!d)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    d->server = s;
    d->options = o;
    d->model.serving = &d->serving;
    d->signal_fd = -1;
    if ((rc = screen_locale(&d->utf8, e)) < 0)
        return rc;
    if (ui_model_init(&d->model) < 0 || canvas_init(&d->canvas, 80, 24) < 0 ||
        !(d->machine = machine_view_new()) || !(d->help = help_make()))
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    d->model.serving = &d->serving;
    if (screen_init(&d->model) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    d->model.help_text = d->help;
    d->model.key_bar = o->key_bar;
    d->model.heat = HEAT_NOW;
    d->model.loading = true;
    d->serving.n_sessions = s->parallel;
    d->signal_fd = screen_signals_open(false, &d->old_mask);
    return 0;
}

static void resize(struct dashboard *d)
{
    int w, h;

    terminal_resized(d->terminal);
    terminal_size(d->terminal, &w, &h);
    canvas_resize(&d->canvas, w, h);
    d->model.dirty = true;
}

int dashboard_open(struct dashboard *d, const char *where, struct error *e)
{
    struct error theme = {0};
    int rc = screen_terminal_open(&d->terminal, d->options, d->utf8, e);

    if (rc < 0)
        return rc;
    snprintf(d->where, sizeof d->where, "%s", where);
    if (screen_theme_take(&d->model.theme, d->terminal, d->options, &theme) < 0)
        server_say(d->server, "%s", theme.text);
    resize(d);
    return 0;
}

void dashboard_free(struct dashboard *d)
{
    if (!d)
        return;
    terminal_close(d->terminal);
    ui_model_release(&d->model);
    canvas_release(&d->canvas);
    machine_view_free(d->machine);
    free(d->help);
    if (d->signal_fd >= 0) {
        close(d->signal_fd);
        pthread_sigmask(SIG_SETMASK, &d->old_mask, NULL);
    }
    mem_free(d);
}

/* ---- what is shown ---- */

static void name_model(struct dashboard *d, const struct engine_info *info)
{
    snprintf(d->model.model_name, sizeof d->model.model_name, "%.*s", UI_NAME - 1,
             d->server->model_id);
    if (!info)
        return;
    snprintf(d->model.model_type, sizeof d->model.model_type, "%s",
             dtype_info(info->model->type)->word);
    for (char *p = d->model.model_type; *p; p++)
        *p = (char)toupper((unsigned char)*p);
}

static void take_telemetry(void *ctx, const struct telemetry *t)
{
    struct dashboard *d = ctx;

    ui_model_telemetry(&d->model, t, clock_now());
}

static void take_loading(struct dashboard *d, const struct board_state *s)
{
    struct event ev = {.kind = EVENT_LOADING, .progress = {s->done, s->total}};

    if (atomic_load(&d->server->ready)) {
        ev = (struct event){.kind = EVENT_READY};
        name_model(d, server_info(d->server));
        d->named = true;
    } else if (!d->model.model_name[0]) {
        name_model(d, NULL);
    }
    ui_model_event(&d->model, &ev, clock_now());
}

static void take_plan(struct dashboard *d, const struct board_state *s)
{
    if (d->model.wanted_plan[0] && s->wishes >= d->model.wish) {
        d->model.wanted_plan[0] = 0;
        d->model.dirty = true;
    }
}

/* Another model is being loaded. */
static void forget_model(struct dashboard *d)
{
    d->named = d->timeline = false;
    machine_view_forget(d->machine, &d->model);
    screen_closing(&d->model);
    d->model.model_type[0] = 0;
    name_model(d, NULL);
}

/* The newest of everything that other threads put on the board. */
static void look(struct dashboard *d, uint64_t now)
{
    const struct engine_info *info = server_info(d->server);
    struct board_state state;

    d->looked_ns = now;
    board_look(d->server->board, &d->serving);
    board_state(d->server->board, &state);
    snprintf(d->serving.where, sizeof d->serving.where, "%s", d->where);
    d->serving.n_sessions = d->server->parallel;
    d->serving.context = info ? info->context : 0;
    d->serving.ready = atomic_load(&d->server->ready);
    d->serving.draining = atomic_load(&d->server->draining);
    if (d->named && !info)
        forget_model(d);
    if (!d->named)
        take_loading(d, &state);
    take_plan(d, &state);
    board_telemetry(d->server->board, take_telemetry, d);
    d->model.running = d->serving.running > 0;
    d->model.dirty = true;
    if (now - d->sampled_ns >= UI_SETTLE_NS) {
        machine_view_take(d->machine, &d->model, info, now);
        d->sampled_ns = now;
    }
    if (d->timeline != d->model.timeline_shown && d->serving.ready) {
        board_timeline(d->server->board, d->timeline = !d->timeline);
        hub_wake(d->server->hub);
    }
}

static void draw(struct dashboard *d)
{
    struct screen_input in = {.prompt = "  ", .text = ""};

    screen_draw(&d->canvas, &d->model, &in);
    if (d->model.theme.ascii)
        ascii_canvas(&d->canvas);
    terminal_draw(d->terminal, &d->canvas);
}

/* ---- what is asked ---- */

static void place(struct dashboard *d, const char *plan)
{
    uint64_t wish;

    if (!plan || !d->serving.ready)
        return;
    wish = board_place(d->server->board, plan);
    hub_wake(d->server->hub);
    if (wish)
        ui_model_placing(&d->model, plan, wish, clock_now());
}

static void suspend(struct dashboard *d)
{
    terminal_suspend(d->terminal);
    /* the terminal's user gets the shell; requests stand still until fg */
    kill(0, SIGSTOP);
    terminal_resume(d->terminal);
    d->model.dirty = true;
}

static void act(struct dashboard *d, enum action a, int index)
{
    if (a == ACTION_TOGGLE && index >= panel_toggles())
        return;
    switch (screen_act(&d->model, a, index)) {
    case ACTION_QUIT: d->wants_end = true; break;
    case ACTION_REDRAW: terminal_redraw(d->terminal); break;
    case ACTION_SUSPEND: suspend(d); break;
    case ACTION_PLACE: place(d, keys_plans[index]); break;
    case ACTION_CHOOSE: place(d, screen_chosen_plan(&d->model)); break;
    default: break; /* the chat's */
    }
}

/* A panel's keys first where it has them, then the dashboard's own. */
static void key(struct dashboard *d, const struct input_event *ev)
{
    int index;
    enum action a = keys_lookup(KEYS_SERVER, ev->key, ev->mods, &index);

    if (d->model.focus >= 0 && a != ACTION_QUIT) {
        enum action panel = keys_lookup(KEYS_PANEL, ev->key, ev->mods, &index);

        if (panel != ACTION_NONE && panel != ACTION_INTERRUPT && panel != ACTION_END_OF_INPUT)
            a = panel;
    }
    if (a != ACTION_NONE)
        act(d, a, index);
}

static void click(struct dashboard *d, const struct input_event *ev)
{
    const struct key_binding *k = screen_key_at(&d->model, d->canvas.w, d->canvas.h, ev->x, ev->y);

    if (k)
        act(d, k->action, k->index);
    else
        screen_click(&d->model, d->canvas.w, d->canvas.h, ev->x, ev->y);
}

static void take_keys(struct dashboard *d, bool readable)
{
    struct input_event ev;

    if (readable && terminal_read(d->terminal) < 0)
        d->wants_end = true; /* the terminal is gone */
    while (terminal_next(d->terminal, !readable, &ev) == 1) {
        d->model.dirty = true;
        if (ev.kind == INPUT_KEY)
            key(d, &ev);
        else if (ev.kind == INPUT_CLICK)
            click(d, &ev);
    }
    d->waiting = terminal_waiting(d->terminal);
}

static void take_signals(struct dashboard *d)
{
    struct signalfd_siginfo info;

    while (read(d->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            suspend(d);
        else if (info.ssi_signo == SIGCONT)
            terminal_redraw(d->terminal);
        resize(d);
    }
}

static int timeout_ms(const struct dashboard *d, uint64_t now, uint64_t end)
{
    uint64_t next = d->looked_ns + LOOK_NS;

    next = next < end ? next : end;
    if (d->waiting && now + ESCAPE_MS * CLOCK_MILLI < next)
        return ESCAPE_MS;
    return next <= now ? 0 : (int)((next - now) / CLOCK_MILLI) + 1;
}

enum dashboard_end dashboard_step(struct dashboard *d, int ms)
{
    uint64_t now = clock_now(), end = now + (uint64_t)ms * CLOCK_MILLI;

    d->wants_end = false;
    while (now < end && !d->wants_end) {
        struct pollfd p[2] = {{STDIN_FILENO, POLLIN, 0}, {d->signal_fd, POLLIN, 0}};
        int rc = poll(p, 2, timeout_ms(d, now, end));

        if (rc < 0)
            break; /* a signal: the caller looks at it */
        now = clock_now();
        if (p[1].revents & POLLIN)
            take_signals(d);
        if (p[0].revents || d->waiting)
            take_keys(d, p[0].revents != 0);
        if (now - d->looked_ns >= LOOK_NS)
            look(d, now);
        ui_model_tick(&d->model, now);
        if (d->model.dirty)
            draw(d);
    }
    if (!d->wants_end)
        return DASHBOARD_ON;
    return d->end = d->end == DASHBOARD_ON ? DASHBOARD_QUIT : DASHBOARD_AGAIN;
}
