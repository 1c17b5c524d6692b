/* What was typed in earlier chats: readline's history, kept in one file by the screen and the line
 * mode. Each line is appended to it as it is sent, in one write, so that neither a crash nor a
 * second chat loses any. One per process, as readline. UI thread. */
#ifndef UI_INPUT_HISTORY_H
#define UI_INPUT_HISTORY_H

/* file: a regular one or none yet; NULL or empty: not kept across runs */
void input_history_open(const char *file);
/* not what is empty or the same as the line before it */
void input_history_add(const char *text);
void input_history_close(void);

#endif
