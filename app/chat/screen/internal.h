/* The parts of the chat on the screen: app/chat/screen/screen.c owns it and loops,
 * app/chat/screen/show.c displays what the conversation reports, app/chat/screen/keys.c handles
 * keys, app/chat/screen/machine.c samples the machine, app/chat/screen/menu.c completes commands,
 * app/chat/screen/question.c asks about calls of tools.
 * All on the UI thread. */
#ifndef APP_CHAT_SCREEN_INTERNAL_H
#define APP_CHAT_SCREEN_INTERNAL_H

#include "app/chat/conversation.h"
#include "app/chat/screen/question.h"
#include "app/common/machine_view.h"
#include "engine/base/strbuf.h"
#include "engine/run/report/roofline.h"
#include "ui/canvas.h"
#include "ui/model.h"
#include "ui/terminal.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* An action that is due at a time (clock_now's nanoseconds). */
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
    bool measuring;     /* the oldest of the conversation's calls is the screen's own measurement */
    bool memory_due;    /* an answer was given since the memory bandwidth was measured */
    uint64_t memory_at; /* not before */
    /* stop the measurement: there is work; and it stopped, without a result */
    atomic_bool memory_stop, memory_cut;
    /* 1: weights were measured to be in the CPU cache, -1: not; 0: not measured; as memory_speed */
    _Atomic int weights_cached;
    /* memory bandwidth of the compute threads in bytes/s, and the previous reading; written by the
     * engine's thread. 0: not measured */
    _Atomic double memory_speed, memory_earlier;
    char *help;
    struct strbuf menu, menu_line; /* chat_menu's, and the line it was made for */
    size_t beside_block;           /* of the second engine's running answer, from 1; 0: none */
    struct question question;      /* whether a tool may be called */
    int menu_at, menu_drawn;       /* the chosen command, -1: none; the one that it was made with */
    int signal_fd;
    sigset_t old_mask;
    uint64_t drawn_at;      /* time of the newest frame */
    struct deadline frame;  /* the next frame */
    struct deadline pump;   /* events are drained */
    struct deadline panels; /* update of the panels from the engine's newest state */
    struct deadline sample; /* sampling of the machine */
    uint64_t stirred_at;    /* the last key or event */
    uint64_t quit_until;
    bool quit, gone, line_mode;
    bool traced; /* the speed panel asked for timelines */
    int signal;
    bool shown; /* there were messages: the transcript is printed at the end */
};

struct conversation_hooks chat_hooks(struct chat *s);
/* a line to display; ctx is the struct chat */
void chat_say(void *ctx, enum conversation_say kind, const char *text);
/* The model's name from its file, until the model reports its own. */
void chat_model_name(struct chat *s, const char *path);
/* the current sampling settings */
void chat_sampling_show(struct chat *s);
/* the theme file of the options, if any */
void chat_theme_take(struct chat *s);
/* the queued message */
void chat_waiting_show(struct chat *s);
/* handles all complete keys; late: nothing followed a lone Esc */
void chat_keys(struct chat *s, bool late);
/* Lines above the input line, NULL: none; valid until the next call. */
const char *chat_menu(struct chat *s, const char *line, size_t len, size_t cursor);
/* The selected row of it, from 1; 0: none. */
int chat_menu_marked(const struct chat *s);
/* Selects the next or previous command: false if the line does not begin a command, or there is no
 * previous one. */
bool chat_menu_step(struct chat *s, int step);
/* Puts the selected command into the input line; whole: it takes no arguments. False: none is
 * selected. */
bool chat_menu_take(struct chat *s, bool *whole);
bool chat_menu_leave(struct chat *s); /* deselects; false: none was selected */
void chat_suspend(struct chat *s);
void chat_machine_take(struct chat *s, uint64_t now);
/* The user types or quits: a measurement releases the engine. */
void chat_machine_hurry(struct chat *s);

#endif
