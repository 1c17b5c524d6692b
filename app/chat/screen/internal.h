/* The parts of the chat on the screen: app/chat/screen/screen.c owns it and loops,
 * app/chat/screen/show.c shows what the conversation tells, app/chat/screen/keys.c does what the
 * user asks, app/chat/screen/machine.c samples the machine,
 * app/chat/screen/menu.c helps with commands. All of it belongs to the UI thread. */
#ifndef APP_CHAT_SCREEN_INTERNAL_H
#define APP_CHAT_SCREEN_INTERNAL_H

#include "app/chat/conversation.h"
#include "app/common/machine_view.h"
#include "engine/base/strbuf.h"
#include "engine/run/report/roofline.h"
#include "ui/canvas.h"
#include "ui/model.h"
#include "ui/terminal.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* What is done from a moment on and not before (clock_now's nanoseconds). */
struct deadline {
    uint64_t at;
};

static inline bool due(const struct deadline *d, uint64_t now)
{
    return now >= d->at;
}

struct chat {
    struct options *options;
    struct conversation *conversation;
    struct conversation_hooks hooks;
    struct ui_model model;
    struct canvas canvas;
    struct terminal *terminal;
    struct machine_view *machine;
    struct roofline roofline;
    bool has_roofline;
    bool memory_due;    /* an answer was given since the memory's speed was measured */
    uint64_t memory_at; /* not before */
    /* measuring is to end: there is something to do; and it did, with nothing to show */
    atomic_bool memory_stop, memory_cut;
    /* 1: measured to come out of the cache, -1: not; 0: not measured; as memory_speed */
    _Atomic int weights_cached;
    /* bytes a second that the computing threads can read, and the reading before that one; written
     * by the engine's thread. 0: not measured */
    _Atomic double memory_speed, memory_earlier;
    char *help;
    struct strbuf menu, menu_line; /* chat_menu's, and the line it was made for */
    int menu_at, menu_drawn;       /* the chosen command, -1: none; the one that it was made with */
    int signal_fd;
    sigset_t old_mask;
    uint64_t drawn_at;      /* the newest frame */
    struct deadline frame;  /* the next one */
    struct deadline pump;   /* events are drained */
    struct deadline panels; /* the panels read the engine's newest state */
    struct deadline sample; /* the machine is looked at */
    uint64_t quit_until;
    bool quit, gone, line_mode;
    bool traced; /* the speed panel asked for timelines */
    int signal;
    bool shown; /* something was said: the transcript is printed at the end */
};

struct conversation_hooks chat_hooks(struct chat *s);
/* a line of the program; ctx is the struct chat */
void chat_say(void *ctx, enum conversation_say kind, const char *text);
/* Until the model says its own: its file's. */
void chat_model_name(struct chat *s, const char *path);
/* what tokens are drawn with now */
void chat_sampling_show(struct chat *s);
/* the theme file of the options, if any */
void chat_theme_take(struct chat *s);
/* the message that waits for its turn */
void chat_waiting_show(struct chat *s);
/* all keys that are whole; late: nothing followed a lone Esc */
void chat_keys(struct chat *s, bool late);
/* Lines over the input line, NULL: none; until the next call. */
const char *chat_menu(struct chat *s, const char *line, size_t len, size_t cursor);
/* The row of it that is chosen, from 1; 0: none. */
int chat_menu_marked(const struct chat *s);
/* The next command, the one before: false when the line is not the beginning of one, or there is
 * none before. */
bool chat_menu_step(struct chat *s, int step);
/* The chosen one goes into the input line; whole: it takes no arguments. False: none is. */
bool chat_menu_take(struct chat *s, bool *whole);
bool chat_menu_leave(struct chat *s); /* none is chosen any more; false: none was */
void chat_suspend(struct chat *s);
void chat_machine_take(struct chat *s, uint64_t now);
/* Somebody types or leaves: what is measured gives the engine back. */
void chat_machine_hurry(struct chat *s);

#endif
