/* The copies of a chat that /save FILE writes. An existing file is replaced only if nothing is
 * lost: a copy of this chat that was not changed since, or a saved chat that this one continues.
 * Owner: the conversation. Thread: the UI thread. */
#ifndef APP_CHAT_EXPORT_H
#define APP_CHAT_EXPORT_H

#include "app/common/transcript.h"

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#define EXPORTS_KEPT 8 /* older copies are treated like foreign files */

struct export_mark { /* a file as it was written; a write by others changes one of these */
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct chat_exports { /* zero: none yet, as in a new or loaded chat */
    struct export_mark marks[EXPORTS_KEPT];
    size_t n; /* ever written */
};

/* Writes t as Markdown if path ends in .md, else as JSON; a new file is readable only by its owner.
 * replace: overwrite any existing file. ERR_IO (also if the folder does not exist), ERR_USAGE (the
 * name is taken), ERR_MEMORY; on error the file is unchanged. */
int chat_export(struct chat_exports *x, const struct transcript *t, const char *path, bool replace,
                struct error *e);
/* The same with this text as content. */
int chat_export_text(struct chat_exports *x, const struct transcript *t, const char *path,
                     const char *text, size_t n, bool replace, struct error *e);

#endif
