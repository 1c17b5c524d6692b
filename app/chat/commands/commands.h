/* The slash commands: one table that runs, completes and prints them. Thread: the UI thread. */
#ifndef APP_CHAT_COMMANDS_COMMANDS_H
#define APP_CHAT_COMMANDS_COMMANDS_H

#include "app/chat/conversation.h"

#include <stdio.h>

struct chat_command {
    const char *name;      /* with the slash */
    const char *others;    /* further names, separated by blanks; "" none */
    const char *arguments; /* "KEY VALUE", "[FILE]" */
    const char *help;      /* one sentence without a full stop */
    /* arguments: without leading and trailing blanks, "" if none. */
    int (*run)(struct conversation *c, const char *arguments);
    /* Appends completions of the last word to a NULL-terminated mem_* list; NULL: none. */
    void (*complete)(struct conversation *c, const char *line, const char *word, char ***list,
                     size_t *n);
};

const struct chat_command *chat_commands(size_t *n);
/* Handles a line of input: a command if it begins with a slash (two slashes: a message that begins
 * with one), else a message; as conversation_submit. */
int chat_submit(struct conversation *c, const char *text);
/* Runs line (begins with a slash). Unknown: prints the nearest name, -1. */
int chat_command_run(struct conversation *c, const char *line);
/* For ui/input_line.h's complete hook: completions of the word line[start .. end). */
char **chat_command_complete(struct conversation *c, const char *line, int start, int end);
void chat_commands_print_help(FILE *f); /* two columns */
void chat_commands_print_man(FILE *f);  /* the manual's COMMANDS section, roff */

#endif
