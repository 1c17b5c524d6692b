/* The chat on the screen: one loop over the terminal, the worker and signals. It owns the terminal
 * and the screen's model; the conversation owns messages and answers. A frame is drawn at most 25
 * times a second and only after a change, so a burst of tokens costs one. While the engine runs
 * without a pace, every wake-up here stops one of its threads, for which all the others wait: then
 * text is drawn 15 times a second and the panels 8 times, in the same wake-ups. UI thread. */
#include "app/chat/screen/screen.h"
#include "app/chat/commands/commands.h"
#include "app/chat/screen/internal.h"
#include "app/chat/screen/linemode.h"
#include "app/common/paths.h"
#include "app/setup/screen/panels_option.h"
#include "app/setup/screen/screen_setup.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "ui/ascii.h"
#include "ui/input_line.h"
#include "ui/screen/key_help.h"
#include "ui/screen/screen.h"
#include "ui/terminal.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FRAME_NS (CLOCK_SECOND / 25)
/* so long after the last key or event the machine is sampled every so often */
#define IDLE_AFTER_NS (10 * CLOCK_SECOND)
#define IDLE_SAMPLE_NS (4 * CLOCK_SECOND)
/* minimum time between two frames caused by keys: hundreds of keys (a paste without paste marks) do
 * not cost a frame each */
#define KEY_NS (4 * CLOCK_MILLI)
#define FRAME_FREE_NS (CLOCK_SECOND / 15) /* of text, while the engine runs without a pace */
#define PANELS_FREE_NS (CLOCK_SECOND / 8)
/* tokens are drained at most a hundred times a second */
#define PUMP_NS (10 * CLOCK_MILLI)
/* a lone Esc counts as the key if nothing follows for this long */
#define ESCAPE_MS 50

static char **hook_complete(void *ctx, const char *line, int start, int end)
{
    return chat_command_complete(((struct chat *)ctx)->conversation, line, start, end);
}

static void hook_token_text(void *ctx, int id, char *out, size_t size)
{
    conversation_token_text(((struct chat *)ctx)->conversation, id, out, size);
}

static void resize(struct chat *s)
{
    int w, h;

    terminal_resized(s->terminal);
    terminal_size(s->terminal, &w, &h);
    canvas_resize(&s->canvas, w, h);
    s->model.dirty = true;
}

static void signals(struct chat *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        switch (info.ssi_signo) {
        case SIGWINCH: resize(s); break;
        case SIGTSTP: chat_suspend(s); break;
        case SIGCONT:
            terminal_redraw(s->terminal);
            resize(s);
            break;
        default:
            s->signal = (int)info.ssi_signo;
            s->quit = true;
            break;
        }
    }
}

/* The line above the input line while a tool runs; NULL: none does. */
static const char *running_tool(const struct chat *s, char *out, size_t size)
{
    const struct mcp_tool *tool = conversation_tool_running(s->conversation);

    if (!tool)
        return NULL;
    snprintf(out, size, "%s of %s runs \u2026 Esc stops it", tool->name, tool->server);
    return out;
}

static void draw(struct chat *s)
{
    char running[MCP_TOOL_NAME + MCP_SERVER_NAME + 40];
    struct screen_input in = {.prompt = input_prompt("> "), .above = input_matches()};

    in.text = input_text(&in.len, &in.cursor);
    if (s->question.on) { /* the line comes back behind it */
        in = (struct screen_input){.prompt = question_prompt(&s->question), .text = ""};
        in.above = question_above(&s->question, s->conversation, s->canvas.w, s->canvas.h);
    } else if (!in.above && s->model.focus < 0 && !input_busy()) {
        in.above = chat_menu(s, in.text, in.len, in.cursor);
        in.marked = in.above ? chat_menu_marked(s) : 0;
    }
    if (!in.above)
        in.above = running_tool(s, running, sizeof running);
    screen_draw(&s->canvas, &s->model, &in);
    if (s->model.theme.ascii)
        ascii_canvas(&s->canvas);
    terminal_draw(s->terminal, &s->canvas);
    question_drawn(&s->question, clock_now());
}

/* The engine computes at full speed, without a pace. */
static bool runs_free(const struct chat *s)
{
    return s->model.running && s->model.pace <= 0;
}

static uint64_t sooner(uint64_t at, const struct deadline *d)
{
    return d->at < at ? d->at : at;
}

static int timeout_ms(const struct chat *s, uint64_t now, bool late)
{
    uint64_t next = sooner(ui_model_next(&s->model), &s->sample),
             asked = question_due(&s->question);

    next = asked < next ? asked : next;

    if (s->model.dirty)
        next = sooner(next, &s->frame);
    if (!due(&s->pump, now))
        next = sooner(next, &s->pump);
    if (runs_free(s) && next < s->frame.at)
        /* graphs, indicators and figures wait for the next frame */
        next = s->frame.at;
    if (late && now + ESCAPE_MS * CLOCK_MILLI < next)
        return ESCAPE_MS;
    return next <= now ? 0 : (int)((next - now + CLOCK_MILLI - 1) / CLOCK_MILLI);
}

/* Somebody types, or something happens: the figures keep their pace again, at once. */
static void stir(struct chat *s, uint64_t now)
{
    s->stirred_at = now;
    if (s->sample.at > now + s->model.settle_ns)
        s->sample.at = s->model.settle_at = now;
}

/* Reading /proc and drawing the same figures twice a second is all that an idle chat would do. */
static bool rests(const struct chat *s, uint64_t now)
{
    return now - s->stirred_at > IDLE_AFTER_NS && !conversation_working(s->conversation) &&
           s->model.settle_ns < IDLE_SAMPLE_NS;
}

/* late: the pending input ends in a lone Esc, and nothing has followed it. */
static void take_keys(struct chat *s, bool readable, bool late)
{
    if (readable) {
        stir(s, clock_now());
        chat_machine_hurry(s);
        if (terminal_read(s->terminal) < 0)
            s->gone = true;
        chat_keys(s, false);
        s->frame.at = s->drawn_at + KEY_NS; /* typed characters are shown at once */
    } else if (late) {
        chat_keys(s, true);
    }
}

static void take_events(struct chat *s, uint64_t now)
{
    conversation_pump(s->conversation);
    s->model.dirty |= conversation_tool_running(s->conversation) != NULL;
    chat_waiting_show(s);
    if (due(&s->panels, now))
        s->panels.at = now + (runs_free(s) ? PANELS_FREE_NS : 0);
    s->pump.at = runs_free(s) ? s->drawn_at + FRAME_FREE_NS : now + PUMP_NS;
}

static void take_sample(struct chat *s, uint64_t now)
{
    const struct telemetry *t = conversation_telemetry(s->conversation);

    if (t)
        ui_model_telemetry(&s->model, t, now);
    chat_machine_take(s, now);
    s->sample.at = now + (rests(s, now) ? IDLE_SAMPLE_NS : s->model.settle_ns);
}

static void show_frame(struct chat *s, uint64_t now)
{
    draw(s);
    s->drawn_at = now;
    s->frame.at = now + (runs_free(s) ? FRAME_FREE_NS : FRAME_NS);
    if (runs_free(s))
        s->pump = s->frame;
}

/* Whether there are events, where the loop's poll did not look for them: before their time. Taking
 * them unasked would put off the next look, which would be unasked again: an idle chat that wakes
 * up a hundred times a second. */
static bool events_wait(const struct chat *s)
{
    struct pollfd p[3] = {{conversation_fd(s->conversation), POLLIN, 0},
                          {conversation_tools_fd(s->conversation), POLLIN, 0},
                          {conversation_beside_fd(s->conversation), POLLIN, 0}};

    return poll(p, 3, 0) > 0;
}

static void loop(struct chat *s)
{
    bool waiting = false;

    while (!s->quit && !s->gone && !conversation_over(s->conversation)) {
        uint64_t now = clock_now();
        const bool asked = due(&s->pump, now);
        struct pollfd p[5] = {
            {STDIN_FILENO, POLLIN, 0},
            {s->signal_fd, POLLIN, 0},
            {asked ? conversation_fd(s->conversation) : -1, POLLIN, 0},
            {asked ? conversation_tools_fd(s->conversation) : -1, POLLIN, 0},
            {asked ? conversation_beside_fd(s->conversation) : -1, POLLIN, 0},
        };
        int rc = poll(p, 5, timeout_ms(s, now, waiting));

        if (rc < 0 && errno != EINTR)
            break;
        now = clock_now();
        if (rc > 0 && (p[1].revents & POLLIN))
            signals(s);
        take_keys(s, rc > 0 && p[0].revents, waiting);
        waiting = terminal_waiting(s->terminal);
        if (due(&s->pump, now) &&
            (asked ? p[2].revents || p[3].revents || p[4].revents : events_wait(s))) {
            stir(s, now);
            take_events(s, now);
        }
        if (due(&s->sample, now))
            take_sample(s, now);
        if (s->traced != s->model.timeline_shown && conversation_ready(s->conversation))
            conversation_timeline(s->conversation, s->traced = !s->traced);
        ui_model_tick(&s->model, now);
        if (rests(s, now) && s->model.settle_at < s->sample.at)
            s->model.settle_at = s->sample.at;
        /* a key or an event may have ended it, or asked another one */
        s->model.dirty |= question_take(&s->question, s->conversation);
        s->model.dirty |= question_tick(&s->question, now);
        if (s->model.dirty && due(&s->frame, now))
            show_frame(s, now);
    }
}

static char *help_make(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    keys_print_help(f, KEYS_CHAT);
    fputc('\n', f);
    chat_commands_print_help(f);
    fclose(f);
    return text;
}

/* Shows the earlier messages, and which chat this is. */
static void greet(struct chat *s)
{
    const struct transcript *t = conversation_transcript(s->conversation);
    const char *line = conversation_greeting(s->conversation);

    if (t->n)
        s->hooks.changed(s->hooks.ctx);
    s->shown = conversation_goes_on(s->conversation);
    if (line[0])
        chat_say(s, SAY_NOTICE, line);
}

static int open_all(struct chat *s, struct error *e)
{
    struct input_options i = {.complete = hook_complete, .ctx = s};
    char history[PATH_MAX];
    bool utf8;
    int rc, w, h;

    if ((rc = screen_locale(&utf8, e)) < 0)
        return rc;
    if (ui_model_init(&s->model) < 0 || canvas_init(&s->canvas, 80, 24) < 0 ||
        !(s->machine = machine_view_new()) || !(s->help = help_make()))
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    if (screen_init(&s->model) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    s->model.help_text = s->help;
    s->model.token_text = hook_token_text;
    s->model.token_text_ctx = s;
    s->model.hints = s->options->hints;
    s->model.key_bar = s->options->key_bar;
    if (panels_option_check(s->options->panels, e) < 0)
        return ERR_USAGE;
    s->model.server.on = s->options->connect != NULL;
    panels_option_take(&s->model, s->options);
    update_option_take(&s->model, s->options);
    paths_history(history, sizeof history);
    i.history_file = history[0] ? history : NULL;
    if ((rc = input_open(&i, e)) < 0)
        return rc;
    /* Before the worker starts: its threads inherit the mask, so every signal arrives on the
     * descriptor. */
    s->signal_fd = screen_signals_open(true, &s->old_mask);
    signal(SIGPIPE, SIG_IGN);
    /* Its errors (a model that does not fit, with its table) must be printed on the normal screen.
     */
    s->hooks = chat_hooks(s);
    if ((rc = conversation_open(&s->conversation, s->options, &s->hooks, e)) < 0)
        return rc;
    if ((rc = screen_terminal_open(&s->terminal, s->options, utf8, e)) < 0) {
        s->line_mode = rc == ERR_USAGE;
        return rc;
    }
    chat_theme_take(s);
    terminal_size(s->terminal, &w, &h);
    if (canvas_resize(&s->canvas, w, h) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    s->model.pace = conversation_pace(s->conversation);
    chat_model_name(s, conversation_model_path(s->conversation));
    greet(s);
    return 0;
}

int chat_run(struct options *o, struct error *e)
{
    struct chat *s = mem_alloc(1, sizeof *s);
    struct error close_error = {0};
    bool line_mode;
    int rc;

    if (!s)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    s->options = o;
    s->signal_fd = s->menu_at = -1;
    rc = open_all(s, e);
    if (rc >= 0)
        loop(s);
    chat_machine_hurry(s);
    terminal_close(s->terminal);
    /* Leaving the alternate screen erases the text: it is printed again, to be scrolled and copied.
     */
    if (s->conversation && s->shown && !s->gone && s->signal != SIGHUP) {
        struct error ignored;

        transcript_print(conversation_transcript(s->conversation), stdout, &ignored);
        fflush(stdout);
    }
    if (s->conversation && conversation_close(s->conversation, &close_error) < 0 && rc >= 0) {
        *e = close_error;
        rc = close_error.code;
    }
    if (rc >= 0 && s->signal)
        rc = error_set(e, ERR_CANCELLED, "ended by a signal; the chat is saved");
    input_close();
    ui_model_release(&s->model);
    canvas_release(&s->canvas);
    machine_view_free(s->machine);
    free(s->help);
    strbuf_release(&s->menu);
    strbuf_release(&s->menu_line);
    question_release(&s->question);
    if (s->signal_fd >= 0) {
        close(s->signal_fd);
        pthread_sigmask(SIG_SETMASK, &s->old_mask, NULL);
    }
    line_mode = s->line_mode;
    mem_free(s);
    /* this terminal is unsuitable: use line mode */
    if (line_mode) {
        fprintf(stderr, "moetop: %s; going on line by line\n", e->text);
        return linemode_run(o, e);
    }
    return rc;
}
