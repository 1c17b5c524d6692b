/* Text files in messages: @FILE in what is typed, /read, and how much a text is before it is sent.
 * Thread: the UI thread. */
#ifndef APP_CHAT_ATTACH_H
#define APP_CHAT_ATTACH_H

#include "engine/base/error.h"
#include "engine/base/strbuf.h"
#include "engine/run/config.h"

/* The whole of a text file, a zero behind it; *text is mem_* memory. ERR_IO, ERR_INPUT (too large,
 * no text), ERR_MEMORY. */
int attach_read(const char *path, char **text, size_t *n, struct error *e);
/* The message with the text of every file behind it that it names as @FILE; *out NULL: it names
 * none. An @ inside a word, or before what is no file, is a letter. As attach_read. */
int attach_expand(const char *message, char **out, struct error *e);
/* "12 lines, 340 tokens of 4096"; info NULL or a long text: about so many. */
void attach_count(const struct engine_info *info, const char *text, size_t n, char *out,
                  size_t size);
/* Lines about the files that the message names, and about the message where it is long; nothing is
 * added where there is nothing to tell. */
void attach_describe(const struct engine_info *info, const char *message, size_t len,
                     struct strbuf *b);

#endif
