/* See screen_loop.h. */
#include "app/setup/screen/screen_loop.h"

#include "app/setup/screen/panels_option.h"
#include "app/setup/screen/screen_setup.h"
#include "engine/base/clock.h"
#include "ui/ascii.h"
#include "ui/panels/panel.h"
#include "ui/screen/key_help.h"
#include "ui/screen/screen.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LOOK_NS (100 * CLOCK_MILLI)
#define ESCAPE_MS 50 /* a lone Esc counts as the key if nothing follows for this long */

/* A background job that sets up the terminal is stopped by it. */
static bool in_foreground(void)
{
    pid_t group = tcgetpgrp(STDIN_FILENO);

    return group < 0 || group == getpgrp();
}

bool screen_loop_wanted(const struct options *o)
{
    const char *term = getenv("TERM");

    return !o->plain && !o->screen_reader && term && *term && strcmp(term, "dumb") != 0 &&
           isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO) &&
           in_foreground();
}

static char *help_make(enum key_context keys)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    keys_print_help(f, keys);
    fclose(f);
    return text;
}

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the screen");
}

int screen_loop_init(struct screen_loop *l, const struct options *o, struct error *e)
{
    int rc;

    l->options = o;
    l->signal_fd = -1;
    if ((rc = screen_locale(&l->utf8, e)) < 0)
        return rc;
    if (ui_model_init(&l->model) < 0 || canvas_init(&l->canvas, 80, 24) < 0)
        return no_memory(e);
    l->signal_fd = screen_signals_open(false, &l->old_mask);
    return 0;
}

int screen_loop_prepare(struct screen_loop *l, enum key_context keys,
                        const struct screen_loop_calls *calls, void *ctx, struct error *e)
{
    l->keys = keys;
    l->calls = calls;
    l->ctx = ctx;
    if (screen_init(&l->model) < 0 || !(l->help = help_make(keys)))
        return no_memory(e);
    l->model.help_text = l->help;
    l->model.key_bar = l->options->key_bar;
    if (panels_option_check(l->options->panels, e) < 0)
        return ERR_USAGE;
    panels_option_take(&l->model, l->options);
    update_option_take(&l->model, l->options);
    l->model.heat = HEAT_NOW;
    return 0;
}

static void resize(struct screen_loop *l)
{
    int w, h;

    terminal_resized(l->terminal);
    terminal_size(l->terminal, &w, &h);
    canvas_resize(&l->canvas, w, h);
    l->model.dirty = true;
}

int screen_loop_open(struct screen_loop *l, struct error *theme, struct error *e)
{
    int rc = screen_terminal_open(&l->terminal, l->options, l->utf8, e);

    *theme = (struct error){0};
    if (rc < 0)
        return rc;
    screen_theme_take(&l->model.theme, l->terminal, l->options, theme);
    resize(l);
    return 0;
}

void screen_loop_release(struct screen_loop *l)
{
    if (!l->options)
        return;
    terminal_close(l->terminal);
    ui_model_release(&l->model);
    canvas_release(&l->canvas);
    free(l->help);
    if (l->signal_fd >= 0) {
        close(l->signal_fd);
        pthread_sigmask(SIG_SETMASK, &l->old_mask, NULL);
    }
    *l = (struct screen_loop){0};
}

static void draw(struct screen_loop *l)
{
    struct screen_input in = {.prompt = "  ", .text = ""};

    screen_draw(&l->canvas, &l->model, &in);
    if (l->model.theme.ascii)
        ascii_canvas(&l->canvas);
    terminal_draw(l->terminal, &l->canvas);
}

/* ---- input ---- */

static void suspend(struct screen_loop *l)
{
    terminal_suspend(l->terminal);
    /* suspends: the work stops until fg */
    kill(0, SIGSTOP);
    terminal_resume(l->terminal);
    l->model.dirty = true;
}

static void act(struct screen_loop *l, enum action a, int index)
{
    if (a == ACTION_TOGGLE && index >= panel_toggles())
        return;
    switch (a = screen_act(&l->model, a, index)) {
    case ACTION_NONE: break;
    case ACTION_QUIT: l->wants_end = true; break;
    case ACTION_REDRAW: terminal_redraw(l->terminal); break;
    case ACTION_SUSPEND: suspend(l); break;
    default:
        if (l->calls->act)
            l->calls->act(l->ctx, a, index);
    }
}

/* The focused panel handles a key first, then the dashboard. */
static void key(struct screen_loop *l, const struct input_event *ev)
{
    int index;
    enum action a = keys_lookup(l->keys, ev->key, ev->mods, &index);

    if (l->model.focus >= 0 && a != ACTION_QUIT) {
        enum action panel = keys_lookup(KEYS_PANEL, ev->key, ev->mods, &index);

        if (panel != ACTION_NONE && panel != ACTION_INTERRUPT && panel != ACTION_END_OF_INPUT)
            a = panel;
    }
    if (a != ACTION_NONE)
        act(l, a, index);
}

static void click(struct screen_loop *l, const struct input_event *ev)
{
    const struct key_binding *k = screen_key_at(&l->model, l->canvas.w, l->canvas.h, ev->x, ev->y);

    if (k)
        act(l, k->action, k->index);
    else
        screen_click(&l->model, l->canvas.w, l->canvas.h, ev->x, ev->y);
}

static void take_keys(struct screen_loop *l, bool readable)
{
    struct input_event ev;

    if (readable && terminal_read(l->terminal) < 0)
        l->wants_end = true; /* the terminal was closed */
    while (terminal_next(l->terminal, !readable, &ev) == 1) {
        l->model.dirty = true;
        if (ev.kind == INPUT_KEY)
            key(l, &ev);
        else if (ev.kind == INPUT_CLICK)
            click(l, &ev);
    }
    l->waiting = terminal_waiting(l->terminal);
}

static void take_signals(struct screen_loop *l)
{
    struct signalfd_siginfo info;

    while (read(l->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTSTP)
            suspend(l);
        else if (info.ssi_signo == SIGCONT)
            terminal_redraw(l->terminal);
        resize(l);
    }
}

static int timeout_ms(const struct screen_loop *l, uint64_t now, uint64_t end)
{
    uint64_t next = l->looked_ns + LOOK_NS;

    next = next < end ? next : end;
    if (l->waiting && now + ESCAPE_MS * CLOCK_MILLI < next)
        return ESCAPE_MS;
    return next <= now ? 0 : (int)((next - now) / CLOCK_MILLI) + 1;
}

bool screen_loop_step(struct screen_loop *l, int ms)
{
    uint64_t now = clock_now(), end = now + (uint64_t)ms * CLOCK_MILLI;

    l->wants_end = false;
    while (now < end && !l->wants_end) {
        struct pollfd p[2] = {{STDIN_FILENO, POLLIN, 0}, {l->signal_fd, POLLIN, 0}};
        int rc = poll(p, 2, timeout_ms(l, now, end));

        if (rc < 0)
            break; /* a signal: handled by the caller */
        now = clock_now();
        if (p[1].revents & POLLIN)
            take_signals(l);
        if (p[0].revents || l->waiting)
            take_keys(l, p[0].revents != 0);
        if (now - l->looked_ns >= LOOK_NS) {
            l->looked_ns = now;
            l->calls->look(l->ctx, now);
        }
        ui_model_tick(&l->model, now);
        if (l->model.dirty)
            draw(l);
    }
    return l->wants_end;
}
