/* User input: keys and mouse become actions on the screen, the input line and the conversation;
 * suspending; the editor. UI thread. */
#include "app/chat/screen/internal.h"

#include "app/chat/commands/commands.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "ui/chatview.h"
#include "ui/input_line.h"
#include "ui/screen/screen.h"
#include "ui/screen/start_page.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIT_NS (3 * CLOCK_SECOND) /* maximum time between two Ctrl-C */

/* ── suspending, the editor ── */

void chat_suspend(struct chat *s)
{
    terminal_suspend(s->terminal);
    /* the whole job, as the shell expects; continues here after fg */
    kill(0, SIGSTOP);
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
        chat_say(s, SAY_TROUBLE, "no temporary file for the editor");
        return;
    }
    text = input_text(&len, &cursor);
    if (write(fd, text, len) != (ssize_t)len || close(fd) < 0) {
        chat_say(s, SAY_TROUBLE, "the temporary file for the editor cannot be written");
        unlink(path);
        return;
    }
    terminal_suspend(s->terminal);
    child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
        /* EDITOR may hold arguments: "code --wait" */
        snprintf(line, sizeof line, "%s %s", name, path);
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
                /* editors append a newline */
                whole[len - 1] = 0;
            input_set(whole);
            mem_free(whole);
        }
        fclose(f);
    } else {
        ui_model_note(&s->model, clock_now(), "%s gave nothing back; the line stays as it was",
                      name);
    }
    unlink(path);
    s->model.dirty = true;
}

/* ── keys ── */

void chat_waiting_show(struct chat *s)
{
    const char *text = conversation_waiting(s->conversation);

    snprintf(s->model.waiting, sizeof s->model.waiting, "%.*s", text ? (int)strcspn(text, "\n") : 0,
             text ? text : "");
}

static void line_ready(struct chat *s)
{
    char *text = input_take();

    if (!text)
        return;
    s->model.note_until = 0; /* it was about an earlier action */
    if (chat_submit(s->conversation, text) < 0 && text[0] != '/')
        input_set(text);
    mem_free(text);
    chat_waiting_show(s);
    s->model.dirty = true;
}

static void stop(struct chat *s)
{
    char *text = conversation_unqueue(s->conversation);

    if (text && input_empty())
        input_set(text);
    else if (!text && conversation_edit_end(s->conversation))
        input_set("");
    mem_free(text);
    chat_waiting_show(s);
    if (conversation_working(s->conversation))
        conversation_stop(s->conversation);
}

static void interrupt(struct chat *s)
{
    uint64_t now = clock_now();

    /* a measurement of the screen's own ends with any key (chat_machine_hurry): nobody waits for it
     */
    if (conversation_busy(s->conversation) ||
        conversation_calls(s->conversation) > (s->measuring ? 1 : 0)) {
        stop(s);
    } else if (conversation_edit_end(s->conversation) || !input_empty()) {
        input_set("");
    } else if (now < s->quit_until) {
        s->quit = true;
    } else {
        s->quit_until = now + QUIT_NS;
        ui_model_note(&s->model, now, "Ctrl-C again quits (the chat is saved)");
    }
}

/* What the token at the panel's cursor was made of; it scrolls by as output. */
static void lens(struct chat *s)
{
    size_t n = conversation_tokens(s->conversation), newer = (size_t)s->model.instead_of;

    if (conversation_busy(s->conversation))
        ui_model_note(&s->model, clock_now(), "not while an answer is being written");
    else if (newer < n)
        conversation_lens(s->conversation, n - 1 - newer, true);
}

/* Shows the next branch at the newest branching point in view. */
static void branch_step(struct chat *s, int step)
{
    const struct transcript *t = conversation_transcript(s->conversation);
    int shown = chatview_entry(&s->model);
    size_t at = conversation_fork_before(s->conversation, shown ? (size_t)shown - 1 : t->n), n, k;

    if (at == t->n)
        at = conversation_fork_before(s->conversation, t->n);
    if (at == t->n || conversation_busy(s->conversation)) {
        ui_model_note(&s->model, clock_now(),
                      at == t->n ? "one answer each so far; /regen makes another beside it"
                                 : "not while an answer is being written; Esc stops it");
        return;
    }
    n = transcript_siblings(t, at);
    k = (t->entries[at].which + (step > 0 ? 1 : n - 1)) % n;
    if (conversation_switch(s->conversation, at, k) == 0)
        ui_model_note(&s->model, clock_now(), "%zu of %zu", k + 1, n);
}

static void act(struct chat *s, enum action a, int index, const struct input_event *ev)
{
    enum input_result r = INPUT_NOTHING;

    if ((a = screen_act(&s->model, a, index)) == ACTION_NONE)
        return;
    switch (a) {
    case ACTION_SEND:
        if (input_empty() && start_page_example(&s->model))
            input_set(start_page_example(&s->model));
        r = input_enter();
        break;
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
    case ACTION_SUSPEND: chat_suspend(s); break;
    case ACTION_PACE:
        conversation_pace_toggle(s->conversation);
        s->model.pace = conversation_pace(s->conversation);
        ui_model_note(&s->model, clock_now(),
                      s->model.pace > 0 ? "paced at %g tokens a second" : "running free",
                      s->model.pace);
        break;
    case ACTION_BRANCH_BEFORE: branch_step(s, -1); break;
    case ACTION_BRANCH_AFTER: branch_step(s, 1); break;
    case ACTION_PLACE: conversation_place(s->conversation, keys_plans[index]); break;
    case ACTION_CHOOSE: {
        const char *plan = screen_chosen_plan(&s->model);

        if (s->model.instead >= 0) {
            size_t n = conversation_tokens(s->conversation), newer = (size_t)s->model.instead_of;

            conversation_token_branch(s->conversation, newer < n ? n - 1 - newer : n,
                                      s->model.instead);
            s->model.instead = -1;
            break;
        }

        if (plan)
            conversation_place(s->conversation, plan);
        break;
    }
    case ACTION_LENS:
        if (s->model.lens)
            lens(s);
        s->model.lens = false;
        break;
    case ACTION_QUIT: s->quit = true; break;
    default: r = input_key(ev); break;
    }
    if (r == INPUT_LINE)
        line_ready(s);
    else if (r == INPUT_EDITOR)
        editor(s);
}

/* Any other action after the first Ctrl-C resets the count. */
static void disarm(struct chat *s)
{
    if (s->quit_until)
        s->model.note_until = 0;
    s->quit_until = 0;
}

/* Returns the keys to the input line, with the letters that were meant for it. */
static void typed(struct chat *s)
{
    char taken[8];
    int n = screen_typed(&s->model, clock_now(), taken);

    for (int i = 0; i < n; i++)
        input_key(&(struct input_event){
            .kind = INPUT_KEY, .key = (unsigned char)taken[i], .bytes = {taken[i]}, .n_bytes = 1});
}

/* In the list of commands over a slash: Down and Up choose, Enter and Tab accept, Esc closes. */
static bool menu_key(struct chat *s, uint32_t key)
{
    bool whole;

    if (key == KEY_DOWN || key == KEY_UP)
        return chat_menu_step(s, key == KEY_DOWN ? 1 : -1);
    if (key == 0x1b)
        return chat_menu_leave(s);
    if ((key != '\r' && key != '\t') || !chat_menu_take(s, &whole))
        return false;
    if (key == '\r' && whole && input_enter() == INPUT_LINE)
        line_ready(s);
    return true;
}

static void key(struct chat *s, const struct input_event *ev)
{
    enum key_context context = s->model.focus >= 0 ? KEYS_PANEL : KEYS_CHAT;
    int index;
    enum action a = keys_lookup(context, ev->key, ev->mods, &index);

    if (a != ACTION_INTERRUPT)
        disarm(s);
    /* continues a search or a prefix */
    if (input_busy() && context == KEYS_CHAT && ev->key != '\r') {
        if (input_key(ev) == INPUT_EDITOR)
            editor(s);
        return;
    }
    if (context == KEYS_CHAT && !ev->mods && menu_key(s, ev->key))
        return;
    if (context == KEYS_CHAT && ev->key == KEY_DOWN && !ev->mods && input_empty() &&
        start_page_example(&s->model)) {
        s->model.example = (s->model.example + 1) % START_EXAMPLES;
        return;
    }
    if (context == KEYS_PANEL && ev->key >= 0x20 && ev->key < 0x200000 && !ev->mods) {
        if (a == ACTION_NONE || !input_empty() ||
            !screen_letter(&s->model, (char)ev->key, clock_now())) {
            typed(s); /* typing always works */
            a = ACTION_LINE;
        }
    } else if (context == KEYS_PANEL) {
        s->model.taken.n = 0;
        if (a == ACTION_NONE)
            return;
    }
    if (context == KEYS_CHAT && a == ACTION_FOCUS_NEXT && !input_empty())
        /* Tab in a non-empty line completes */
        a = ACTION_LINE;
    act(s, a == ACTION_NONE ? ACTION_LINE : a, index, ev);
}

/* A click in the key bar presses that key; anywhere else it focuses a panel. */
static void click(struct chat *s, const struct input_event *ev)
{
    const struct key_binding *k = screen_key_at(&s->model, s->canvas.w, s->canvas.h, ev->x, ev->y);

    disarm(s);
    if (k)
        act(s, k->action, k->index, ev);
    else
        screen_click(&s->model, s->canvas.w, s->canvas.h, ev->x, ev->y);
}

/* A key while it is asked whether a tool may be called; false: it is not the question's. */
static bool question_took(struct chat *s, const struct input_event *ev)
{
    enum question_reply reply;

    if (!s->question.on)
        return false;
    reply = question_key(&s->question, ev, clock_now());
    if (reply == QUESTION_ONCE || reply == QUESTION_ALWAYS || reply == QUESTION_NEVER) {
        conversation_permit(s->conversation, reply == QUESTION_ONCE     ? TOOL_ONCE
                                             : reply == QUESTION_ALWAYS ? TOOL_ALWAYS
                                                                        : TOOL_NEVER);
        question_take(&s->question, s->conversation);
    }
    return reply != QUESTION_OTHER;
}

void chat_keys(struct chat *s, bool late)
{
    struct input_event ev;

    while (!s->quit && terminal_next(s->terminal, late, &ev) == 1) {
        s->model.dirty = true;
        if (question_took(s, &ev))
            continue;
        if (screen_search_key(&s->model, &ev))
            continue;
        switch (ev.kind) {
        case INPUT_KEY: key(s, &ev); break;
        case INPUT_PASTE:
            disarm(s);
            typed(s);
            input_key(&ev);
            break;
        case INPUT_WHEEL: chatview_scroll(&s->model, ev.amount); break;
        case INPUT_CLICK: click(s, &ev); break;
        }
    }
}
