/* The chat on the screen: one loop over the terminal, the worker and signals. It owns the terminal and the picture's model; what is said
 * and answered belongs to the conversation. A picture is drawn at most twenty-five times a second and only when something changed, so a burst
 * of tokens costs one. UI thread. */
#include "app/chat.h"
#include "app/app.h"
#include "app/chat_commands.h"
#include "app/config.h"
#include "app/conversation.h"
#include "app/devices.h"
#include "app/file.h"
#include "app/linemode.h"
#include "app/system.h"
#include "app/theme_file.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/file/dtype.h"
#include "engine/run/roofline.h"
#include "ui/chatview.h"
#include "ui/input.h"
#include "ui/panel.h"
#include "ui/screen.h"
#include "ui/terminal.h"

#include <ctype.h>
#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME_NS (CLOCK_SECOND / 25)
#define PUMP_NS (10 * CLOCK_MILLI)          /* tokens are taken up at most a hundred times a second */
#define ESCAPE_MS 50                        /* a lone Esc is the key when nothing follows for so long */
#define QUIT_NS (3 * CLOCK_SECOND)          /* the second Ctrl-C counts for so long */

struct chat {
    struct options *options;
    struct conversation *conversation;
    struct ui_model model;
    struct canvas canvas;
    struct terminal *terminal;
    struct system *system;
    struct utilisation *watch;   /* of the GPU, by its kernel driver; NULL: no memory for it */
    struct roofline roofline;
    bool has_roofline;
    char *help;
    int signal_fd;
    sigset_t old_mask;
    uint64_t frame_at, pump_at, sample_at, quit_until;
    uint64_t busy_ns[DEVICE_MAX], busy_at;
    bool quit, gone, line_mode;
    bool traced;                 /* the zoomed speed panel asked for timelines */
    int signal;
    bool shown;                  /* something was said: the transcript is printed at the end */
};

/* ── hooks of the conversation ── */

static void hook_event(void *ctx, const struct event *ev)
{
    struct chat *s = ctx;
    uint64_t now = clock_now();
    const struct telemetry *t;

    ui_model_event(&s->model, ev, now);
    if (ev->kind == EVENT_READY) {
        const struct engine_info *info = conversation_info(s->conversation);

        if (info) {
            const struct hparams *h = &info->model->hp;
            char *p;

            snprintf(s->model.model_name, sizeof s->model.model_name, "%s", info->model->name);
            snprintf(s->model.model_type, sizeof s->model.model_type, "%s", dtype_info(info->model->type)->word);
            for (p = s->model.model_type; *p; p++)
                *p = (char)toupper((unsigned char)*p);           /* Q4_0, as files are named */
            ui_model_ready(&s->model, h->n_layers, h->n_experts, h->n_experts_used);
            roofline_init(&s->roofline, info->model, (enum kv_type)s->options->cache_type_k, (enum kv_type)s->options->cache_type_v);
            s->has_roofline = true;
        }
    }
    t = conversation_telemetry(s->conversation);
    if (t)
        ui_model_telemetry(&s->model, t, now);
}

static void hook_say(void *ctx, enum conversation_say kind, const char *text)
{
    struct chat *s = ctx;

    ui_block_add(&s->model, kind == SAY_OUTPUT ? UI_OUTPUT : kind == SAY_NOTICE ? UI_NOTICE : UI_TROUBLE, text);
    chatview_scroll_end(&s->model);
}

static struct ui_block *last_answer(struct ui_model *m)
{
    size_t i;

    for (i = m->n_blocks; i-- > 0;)
        if (m->blocks[i].kind == UI_ASSISTANT)
            return &m->blocks[i];
    return NULL;
}

static void hook_added(void *ctx, const struct transcript_entry *entry)
{
    struct chat *s = ctx;
    struct ui_block *b = entry->role == ROLE_ASSISTANT && entry->text[0] ? last_answer(&s->model) : NULL;

    if (!b)
        b = ui_block_add(&s->model, entry->role == ROLE_USER ? UI_USER : entry->role == ROLE_SYSTEM ? UI_SYSTEM : UI_ASSISTANT, entry->text);
    if (b && entry->role == ROLE_ASSISTANT) {
        b->open = true;
        b->stop = STOP_NONE;
        b->wrap.width = 0;
    }
    s->shown = true;
    chatview_scroll_end(&s->model);
}

static enum stop_reason stop_of(const char *word)
{
    enum stop_reason r;

    for (r = STOP_TOKEN; r <= STOP_ERROR; r++)
        if (strcmp(word, stop_reason_word(r)) == 0)
            return r;
    return STOP_NONE;
}

static void hook_changed(void *ctx)
{
    struct chat *s = ctx;
    const struct transcript *t = conversation_transcript(s->conversation);
    size_t i;

    ui_block_truncate(&s->model, 0);
    for (i = 0; i < t->n; i++) {
        const struct transcript_entry *from = &t->entries[i];
        struct ui_block *b = ui_block_add(&s->model, from->role == ROLE_USER ? UI_USER : from->role == ROLE_SYSTEM ? UI_SYSTEM : UI_ASSISTANT,
                                          from->text);

        if (!b)
            break;
        snprintf(b->plan, sizeof b->plan, "%s", from->plan);
        b->seconds = from->seconds;
        b->tok_s = from->tok_s;
        b->tokens = from->tokens;
        b->stop = stop_of(from->stop);
    }
    chatview_scroll_end(&s->model);
}

static void hook_edit(void *ctx, const char *text)
{
    input_set(text);
}

static bool hook_copy(void *ctx, const char *text, size_t len)
{
    struct chat *s = ctx;

    terminal_copy(s->terminal, text, len);
    return true;
}

static void theme_take(struct chat *s)
{
    struct error e = {0};

    if (s->options->theme && s->options->theme[0] && theme_file_load(&s->model.theme, s->options->theme, &e) < 0)
        hook_say(s, SAY_TROUBLE, e.text);
    s->model.dirty = true;
}

static void hook_set(void *ctx, const struct option *option)
{
    struct chat *s = ctx;
    size_t id = (size_t)(option - option_table);

    if (id == OPTION_ID_theme)
        theme_take(s);
    else if (id == OPTION_ID_mouse)
        terminal_mouse(s->terminal, s->options->mouse);
    s->model.pace = conversation_pace(s->conversation);
}

static char **hook_complete(void *ctx, const char *line, int start, int end)
{
    return chat_command_complete(((struct chat *)ctx)->conversation, line, start, end);
}

/* ── the machine ── */

static void system_take(struct chat *s, uint64_t now)
{
    static struct system_sample sample;                          /* large; only this thread */
    struct ui_system u = {.valid = true};
    const struct telemetry *t = &s->model.live;
    int i;

    system_read(s->system, &sample);
    u.n_cores = sample.n_cores < UI_CORES ? sample.n_cores : UI_CORES;
    memcpy(u.core_use, sample.core_use, sizeof *u.core_use * (size_t)u.n_cores);
    memcpy(u.core_process_use, sample.core_process_use, sizeof *u.core_process_use * (size_t)u.n_cores);
    u.system_use = sample.system_use;
    u.process_cores = sample.process_cores;
    u.mhz = sample.mhz;
    u.temperature = sample.temperature;
    u.rss = sample.rss;
    u.rss_peak = sample.rss_peak;
    u.memory_total = sample.memory_total;
    u.memory_available = sample.memory_available;
    if (sample.memory_limit != SYSTEM_UNKNOWN && sample.memory_limit < sample.memory_total) {
        u.memory_total = sample.memory_limit;                    /* what may be had, not what is in the machine */
        if (u.memory_available > u.memory_total)
            u.memory_available = u.memory_total > u.rss ? u.memory_total - u.rss : 0;
    }
    u.swap_used = sample.swap_used;
    ui_model_system(&s->model, &u);
    for (i = 1; i < t->n_devices && i < DEVICE_MAX; i++) {
        struct ui_device *d = &s->model.devices[i];
        const struct engine_info *info = conversation_info(s->conversation);
        uint64_t busy = t->devices[i].busy_ns;

        if (info && !d->name[0])
            snprintf(d->name, sizeof d->name, "%s", info->devices[i].name);
        d->mhz = d->temperature = NAN;
        d->why[0] = 0;
        if (s->busy_at && now > s->busy_at && busy >= s->busy_ns[i]) {
            d->use = (float)((double)(busy - s->busy_ns[i]) / (double)(now - s->busy_at));
            d->use = d->use > 1 ? 1 : d->use;
        } else {
            d->use = NAN;
            snprintf(d->why, sizeof d->why, "measured from the next answer on");
        }
        /* A real GPU's kernel driver knows better than our own events, and more. A device that is the CPU has none. */
        if (s->watch && i == 1 && info && !info->devices[i].is_cpu_type) {
            float use;
            char why[sizeof d->why];

            devices_watch_read(s->watch, &use, &d->mhz, &d->temperature, why, sizeof why);
            if (!isnan(use))
                d->use = use;
        }
        s->busy_ns[i] = busy;
    }
    s->busy_at = now;
    if (s->has_roofline)
        s->model.bytes_per_token = (double)roofline_token_bytes(&s->roofline, t->context_used);
}

/* ── suspending, the editor ── */

static void suspend(struct chat *s)
{
    terminal_suspend(s->terminal);
    kill(0, SIGSTOP);                                            /* the whole job, as the shell expects; goes on here after fg */
    terminal_resume(s->terminal);
    s->model.dirty = true;
}

static const char *editor_name(void)
{
    const char *name = getenv("VISUAL");

    if (!name || !*name)
        name = getenv("EDITOR");
    return name && *name ? name : "vi";
}

static void editor(struct chat *s)
{
    char path[] = "/tmp/moetop-message-XXXXXX.md", line[PATH_MAX + 64];
    const char *name = editor_name(), *text;
    size_t len, cursor;
    int fd = mkstemps(path, 3), status = -1;
    pid_t child;
    FILE *f;

    if (fd < 0) {
        hook_say(s, SAY_TROUBLE, "no temporary file for the editor");
        return;
    }
    text = input_text(&len, &cursor);
    if (write(fd, text, len) != (ssize_t)len || close(fd) < 0) {
        hook_say(s, SAY_TROUBLE, "the temporary file for the editor cannot be written");
        unlink(path);
        return;
    }
    terminal_suspend(s->terminal);
    child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
        snprintf(line, sizeof line, "%s %s", name, path);        /* EDITOR may hold arguments: "code --wait" */
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    terminal_resume(s->terminal);
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 && (f = fopen(path, "r"))) {
        char *whole = mem_alloc(1 << 20, 1);

        if (whole) {
            len = fread(whole, 1, (1 << 20) - 1, f);
            if (len && whole[len - 1] == '\n')
                whole[len - 1] = 0;                              /* editors end files with a line end */
            input_set(whole);
            mem_free(whole);
        }
        fclose(f);
    } else {
        ui_model_note(&s->model, clock_now(), "%s gave nothing back; the line stays as it was", name);
    }
    unlink(path);
    s->model.dirty = true;
}

/* ── keys ── */

static void waiting_show(struct chat *s)
{
    const char *text = conversation_waiting(s->conversation);

    snprintf(s->model.waiting, sizeof s->model.waiting, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
}

static void line_ready(struct chat *s)
{
    char *text = input_take();

    if (!text)
        return;
    if (conversation_submit(s->conversation, text) < 0 && text[0] != '/')
        input_set(text);
    mem_free(text);
    waiting_show(s);
    s->model.dirty = true;
}

static void stop(struct chat *s)
{
    char *text = conversation_unqueue(s->conversation);

    if (text && input_empty())
        input_set(text);
    mem_free(text);
    waiting_show(s);
    if (conversation_working(s->conversation))
        conversation_stop(s->conversation);
}

static void interrupt(struct chat *s)
{
    uint64_t now = clock_now();

    if (conversation_working(s->conversation)) {
        stop(s);
    } else if (!input_empty()) {
        input_set("");
    } else if (now < s->quit_until) {
        s->quit = true;
    } else {
        s->quit_until = now + QUIT_NS;
        ui_model_note(&s->model, now, "Ctrl-C again quits (the chat is saved)");
    }
}

static void act(struct chat *s, enum action a, const struct input_event *ev)
{
    enum input_result r = INPUT_NOTHING;

    if ((a = screen_act(&s->model, a)) == ACTION_NONE)
        return;
    switch (a) {
    case ACTION_SEND: r = input_enter(); break;
    case ACTION_STOP:
        if (input_wants_escape() && !conversation_busy(s->conversation))
            input_key(ev);
        else
            stop(s);
        break;
    case ACTION_INTERRUPT: interrupt(s); break;
    case ACTION_END_OF_INPUT:
        if (input_empty())
            s->quit = true;
        else
            r = input_key(ev);
        break;
    case ACTION_REDRAW: terminal_redraw(s->terminal); break;
    case ACTION_SUSPEND: suspend(s); break;
    case ACTION_PACE:
        conversation_pace_toggle(s->conversation);
        s->model.pace = conversation_pace(s->conversation);
        ui_model_note(&s->model, clock_now(), s->model.pace > 0 ? "paced at %g tokens a second" : "running free", s->model.pace);
        break;
    case ACTION_PLACE_1: case ACTION_PLACE_2: case ACTION_PLACE_3: case ACTION_PLACE_4: case ACTION_PLACE_5: case ACTION_PLACE_6:
        conversation_place(s->conversation, keys_plans[a - ACTION_PLACE_1]);
        break;
    case ACTION_CHOOSE: {
        const char *plan = screen_chosen_plan(&s->model);

        if (plan)
            conversation_place(s->conversation, plan);
        break;
    }
    case ACTION_QUIT: s->quit = true; break;
    default: r = input_key(ev); break;
    }
    if (r == INPUT_LINE)
        line_ready(s);
    else if (r == INPUT_EDITOR)
        editor(s);
}

static void key(struct chat *s, const struct input_event *ev)
{
    enum key_context context = s->model.focus >= 0 ? KEYS_PANEL : KEYS_CHAT;
    enum action a = keys_lookup(context, ev->key, ev->mods);

    if (input_busy() && context == KEYS_CHAT && ev->key != '\r') {       /* a search or a prefix goes on */
        if (input_key(ev) == INPUT_EDITOR)
            editor(s);
        return;
    }
    if (context == KEYS_PANEL && (a == ACTION_NONE || a == ACTION_LINE)) {
        if (a == ACTION_NONE && ev->key >= 0x20 && ev->key < 0x200000 && !ev->mods)
            s->model.focus = s->model.zoom = -1;                         /* typing always works */
        else if (a == ACTION_NONE)
            return;
        a = ACTION_LINE;
    }
    if (context == KEYS_CHAT && a == ACTION_FOCUS_NEXT && !input_empty())
        a = ACTION_LINE;                                                 /* Tab in a line completes */
    act(s, a == ACTION_NONE ? ACTION_LINE : a, ev);
}

static void terminal_events(struct chat *s, bool late)
{
    struct input_event ev;

    while (!s->quit && terminal_next(s->terminal, late, &ev) == 1) {
        s->model.dirty = true;
        switch (ev.kind) {
        case INPUT_KEY: key(s, &ev); break;
        case INPUT_PASTE:
            s->model.focus = s->model.zoom = -1;
            input_key(&ev);
            break;
        case INPUT_WHEEL: chatview_scroll(&s->model, ev.amount); break;
        case INPUT_CLICK: screen_click(&s->model, s->canvas.w, s->canvas.h, ev.x, ev.y); break;
        }
    }
}

/* ── the loop ── */

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
        case SIGTSTP: suspend(s); break;
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

static void draw(struct chat *s)
{
    struct screen_input in = {.prompt = input_prompt("> "), .above = input_matches()};

    in.text = input_text(&in.len, &in.cursor);
    screen_draw(&s->canvas, &s->model, &in);
    terminal_draw(s->terminal, &s->canvas);
}

static int timeout_ms(const struct chat *s, uint64_t now, bool late)
{
    uint64_t next = ui_model_next(&s->model);

    if (s->sample_at < next)
        next = s->sample_at;
    if (s->model.dirty && s->frame_at < next)
        next = s->frame_at;
    if (now < s->pump_at && s->pump_at < next)
        next = s->pump_at;
    if (late && now + ESCAPE_MS * CLOCK_MILLI < next)
        return ESCAPE_MS;
    return next <= now ? 0 : (int)((next - now + CLOCK_MILLI - 1) / CLOCK_MILLI);
}

static void loop(struct chat *s)
{
    bool waiting = false;

    while (!s->quit && !s->gone && !conversation_over(s->conversation)) {
        uint64_t now = clock_now();
        struct pollfd p[3] = {
            {STDIN_FILENO, POLLIN, 0}, {s->signal_fd, POLLIN, 0}, {now >= s->pump_at ? conversation_fd(s->conversation) : -1, POLLIN, 0},
        };
        int rc = poll(p, 3, timeout_ms(s, now, waiting));

        if (rc < 0 && errno != EINTR)
            break;
        now = clock_now();
        if (rc > 0 && (p[1].revents & POLLIN))
            signals(s);
        if (rc > 0 && p[0].revents) {
            if (terminal_read(s->terminal) < 0)
                s->gone = true;
            terminal_events(s, false);
        } else if (waiting) {
            terminal_events(s, true);
        }
        waiting = terminal_waiting(s->terminal);
        if (rc > 0 && p[2].revents) {
            conversation_pump(s->conversation);
            waiting_show(s);
            s->pump_at = now + PUMP_NS;
        }
        if (now >= s->sample_at) {
            const struct telemetry *t = conversation_telemetry(s->conversation);

            if (t)
                ui_model_telemetry(&s->model, t, now);
            system_take(s, now);
            s->sample_at = now + UI_SETTLE_NS;
        }
        if (s->traced != (s->model.zoom == PANEL_SPEED) && conversation_ready(s->conversation))
            conversation_timeline(s->conversation, s->traced = !s->traced);
        ui_model_tick(&s->model, now);
        if (s->model.dirty && now >= s->frame_at) {
            draw(s);
            s->frame_at = now + FRAME_NS;
        }
    }
}

static bool colour_wanted(const struct options *o)
{
    const char *no = getenv("NO_COLOR");

    return o->color == 1 || (o->color == 0 && !(no && *no));
}

static void history_path(char *out, size_t size)
{
    char folder[PATH_MAX - 16];
    struct error e;

    out[0] = 0;
    config_home("STATE", folder, sizeof folder);
    if (folder[0] && file_make_folders(folder, &e) >= 0)
        snprintf(out, size, "%s/history", folder);
}

static char *help_make(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    if (!f)
        return NULL;
    keys_print_help(f);
    fputc('\n', f);
    chat_commands_print_help(f);
    fclose(f);
    return text;
}

/* Until the model says its own: the file's name. */
static void model_name(struct chat *s)
{
    const char *path = conversation_transcript(s->conversation)->model, *slash = path ? strrchr(path, '/') : NULL;

    snprintf(s->model.model_name, sizeof s->model.model_name, "%s", slash && slash[1] ? slash + 1 : path ? path : "");
}

static int open_all(struct chat *s, struct error *e)
{
    const struct conversation_hooks hooks = {
        .ctx = s, .event = hook_event, .say = hook_say, .added = hook_added, .changed = hook_changed, .edit = hook_edit, .copy = hook_copy,
        .set = hook_set,
    };
    struct terminal_options t = {.type = getenv("TERM"), .colour = colour_wanted(s->options), .mouse = s->options->mouse};
    struct input_options i = {.complete = hook_complete, .ctx = s};
    char history[PATH_MAX];
    sigset_t mask;
    int rc, w, h;

    /* Cells are UTF-8; a C or Latin-1 locale would make curses and readline see bytes. */
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 && !setlocale(LC_CTYPE, "C.UTF-8"))
        return error_set(e, ERR_USAGE, "the locale is not UTF-8 and there is no C.UTF-8; use --plain");
    if (ui_model_init(&s->model) < 0 || canvas_init(&s->canvas, 80, 24) < 0 || !(s->system = system_new("")) || !(s->watch = devices_watch_new("")) || !(s->help = help_make()))
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    screen_init(&s->model);
    s->model.help_text = s->help;
    history_path(history, sizeof history);
    i.history_file = history[0] ? history : NULL;
    if ((rc = input_open(&i, e)) < 0)
        return rc;
    /* Before the worker starts: its threads inherit the mask, so every signal comes to the descriptor. */
    sigemptyset(&mask);
    sigaddset(&mask, SIGWINCH);
    sigaddset(&mask, SIGTSTP);
    sigaddset(&mask, SIGCONT);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &mask, &s->old_mask);
    s->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    /* What this complains about (a model that does not fit, with its table) must stand on the ordinary screen. */
    if ((rc = conversation_open(&s->conversation, s->options, &hooks, e)) < 0)
        return rc;
    if ((rc = terminal_open(&s->terminal, STDIN_FILENO, STDOUT_FILENO, &t, e)) < 0) {
        s->line_mode = rc == ERR_USAGE;
        return rc;
    }
    s->model.theme.depth = terminal_depth(s->terminal);
    theme_take(s);
    terminal_size(s->terminal, &w, &h);
    if (canvas_resize(&s->canvas, w, h) < 0)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    s->model.pace = conversation_pace(s->conversation);
    model_name(s);
    if (conversation_transcript(s->conversation)->n)
        ui_block_add(&s->model, UI_SYSTEM, conversation_transcript(s->conversation)->entries[0].text);
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
    s->signal_fd = -1;
    rc = open_all(s, e);
    if (rc >= 0)
        loop(s);
    terminal_close(s->terminal);
    /* The alternate screen takes the text with it: it is given back where it can be scrolled and copied. */
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
    system_free(s->system);
    devices_watch_free(s->watch);
    free(s->help);
    if (s->signal_fd >= 0) {
        close(s->signal_fd);
        pthread_sigmask(SIG_SETMASK, &s->old_mask, NULL);
    }
    line_mode = s->line_mode;
    mem_free(s);
    if (line_mode) {                                             /* this terminal cannot do it: line by line, then */
        fprintf(stderr, "moetop: %s; going on line by line\n", e->text);
        return linemode_run(o, e);
    }
    return rc;
}
