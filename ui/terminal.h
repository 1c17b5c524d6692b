/* The terminal: shows a canvas, reads keys, restores the terminal's state on exit. The only
 * implementation is ui/terminal_curses.c, the only file that includes curses. Thread: the UI
 * thread, one terminal at a time; terminal_emergency_restore is for signal handlers. */
#ifndef UI_TERMINAL_H
#define UI_TERMINAL_H

#include "engine/base/error.h"
#include "ui/canvas.h"
#include "ui/key_decoder.h"
#include "ui/theme.h"

struct terminal;

struct terminal_options {
    const char *type; /* TERM */
    bool colour;      /* false: no colours, whatever the terminal supports */
    bool utf8;        /* from the locale; else the terminal is queried */
    bool ask_ground;  /* query the background (terminal_light) */
    /* COLORFGBG, used if the terminal does not answer; may be NULL */
    const char *ground;
    bool mouse; /* report the wheel and clicks (selecting text then needs Shift) */
};

/* Alternate screen, raw mode, bracketed paste. ERR_USAGE: this terminal cannot address its cursor
 * (the caller uses line mode). */
int terminal_open(struct terminal **out, int in_fd, int out_fd, const struct terminal_options *o,
                  struct error *e);
void terminal_close(struct terminal *t); /* restores; accepts NULL */
enum theme_depth terminal_depth(const struct terminal *t);
/* 1: light background, 0: dark background, -1: unknown */
int terminal_light(const struct terminal *t);
/* false: the frames must be ASCII (ui/ascii.h) */
bool terminal_utf8(const struct terminal *t);
void terminal_size(const struct terminal *t, int *w, int *h);
void terminal_resized(struct terminal *t); /* after SIGWINCH: queries the new size */
/* writes the differences from the previous frame */
void terminal_draw(struct terminal *t, const struct canvas *c);
void terminal_redraw(struct terminal *t); /* the next frame is drawn completely */
/* reads available input; 0, or ERR_IO: the terminal is gone */
int terminal_read(struct terminal *t);
int terminal_next(struct terminal *t, bool late, struct input_event *out); /* see decode_next */
bool terminal_waiting(const struct terminal *t);
void terminal_mouse(struct terminal *t, bool on);
/* back to the shell's screen (before SIGSTOP, an editor, a crash report) */
void terminal_suspend(struct terminal *t);
void terminal_resume(struct terminal *t);
/* to the clipboard, by OSC 52 */
void terminal_copy(struct terminal *t, const char *text, size_t len);
enum terminal_notice { NOTICE_BELL, NOTICE_OSC9, NOTICE_OSC777, NOTICE_TITLE };
/* Notifies a user who is elsewhere; text: one line, sanitised here. Nothing on terminals that would
 * show the sequence. */
void terminal_notify(struct terminal *t, enum terminal_notice how, const char *text);

/* Colours of a terminal type (TERM) by its description; 0: it has none, -1: the type is not known.
 * Without a terminal, or beside an open one. */
int terminal_colours(const char *type);

/* async-signal-safe; does nothing when no terminal is open */
void terminal_emergency_restore(void);

#endif
