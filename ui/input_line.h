/* The input line: readline's editing, history, searching and the user's inputrc, without its
 * drawing. Readline is one per process, so this is too. Input is bytes, output is text and cursor;
 * never waits or writes to the terminal. Open it before the terminal (readline queries terminfo
 * itself). UI thread. */
#ifndef UI_INPUT_LINE_H
#define UI_INPUT_LINE_H

#include "engine/base/error.h"
#include "ui/key_decoder.h"

#include <stdbool.h>
#include <stddef.h>

struct input_options {
    const char *history_file; /* NULL: not kept across runs */
    /* Completes the word text[start .. end) of the line: returns a NULL-terminated array of mem_*
     * strings (itself mem_*), or NULL. */
    char **(*complete)(void *ctx, const char *line, int start, int end);
    void *ctx;
};

enum input_result {
    INPUT_NOTHING, /* the text may have changed */
    INPUT_LINE,    /* a message is ready: input_take */
    INPUT_EDITOR,  /* Ctrl-X Ctrl-E: pass input_text to an editor, then call input_set */
};

int input_open(const struct input_options *o, struct error *e);
void input_close(void);
enum input_result input_key(const struct input_event *ev); /* keys and pastes */
/* Enter: a line, or a new row inside """ or after a backslash */
enum input_result input_enter(void);
/* the message, mem_* memory, added to the history; surrounding """ removed */
char *input_take(void);
/* replaces the line, cursor at its end; any bytes: cleaned like a paste */
void input_set(const char *text);
const char *input_text(size_t *len, size_t *cursor);
const char *input_prompt(const char *normal); /* the search's prompt during a search */
bool input_empty(void);
bool input_busy(void);         /* a search or a prefix: Esc and Ctrl-C go to readline */
bool input_wants_escape(void); /* vi mode of the user's inputrc */
/* lines of a completion with several matches, until the next key; or NULL */
const char *input_matches(void);

#endif
