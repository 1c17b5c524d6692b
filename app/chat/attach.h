/* Text files in messages: @FILE in the input, /read, and the size of a text before it is sent.
 * Thread: the UI thread. */
#ifndef APP_CHAT_ATTACH_H
#define APP_CHAT_ATTACH_H

#include "engine/base/error.h"
#include "engine/base/strbuf.h"
#include "engine/run/config.h"

/* The whole text file with a terminating zero; *text is mem_* memory. ERR_IO, ERR_INPUT (too large,
 * not text), ERR_MEMORY. */
int attach_read(const char *path, char **text, size_t *n, struct error *e);
/* The message followed by the text of every file that it names as @FILE; *out NULL: it names none.
 * An @ inside a word, or before something that is not a file, is an ordinary character. Errors of
 * attach_read. */
int attach_expand(const char *message, char **out, struct error *e);
/* "12 lines, 340 tokens of 4096"; an estimate if info is NULL or the text is long. */
void attach_count(const struct engine_info *info, const char *text, size_t n, char *out,
                  size_t size);
/* Lines about the files that the message names, and about the message if it is long; adds nothing
 * otherwise. */
void attach_describe(const struct engine_info *info, const char *message, size_t len,
                     struct strbuf *b);

#endif
