/* Input lines of earlier chats: readline's history, stored in one file by the screen and the line
 * mode. Each line is appended when it is sent, in one write, so that neither a crash nor a second
 * chat loses any. One per process, as readline. UI thread. */
#ifndef UI_INPUT_HISTORY_H
#define UI_INPUT_HISTORY_H

/* file: a regular or a new one; NULL or empty: not kept across runs */
void input_history_open(const char *file);
/* ignores empty lines and repetitions of the previous line */
void input_history_add(const char *text);
void input_history_close(void);

#endif
