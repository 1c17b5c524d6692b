/* The copies of a chat that /save FILE writes. What stands under the name already is replaced only
 * when nothing is lost by that: a copy of this chat that nobody changed since, or a saved chat that
 * this one goes on from. Owner: the conversation. Thread: the UI thread. */
#ifndef APP_CHAT_EXPORT_H
#define APP_CHAT_EXPORT_H

#include "app/common/transcript.h"

#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

#define EXPORTS_KEPT 8 /* an older copy counts as a stranger's file again */

struct export_mark { /* a file as it was left; another's write changes one of these */
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct chat_exports { /* zero: none yet, as for a chat that begins or was read */
    struct export_mark marks[EXPORTS_KEPT];
    size_t n; /* ever */
};

/* Writes t as Markdown where path ends in .md, else as JSON; readable by its owner only when the
 * file is new. replace: whatever file is there. ERR_IO (also for a folder that is not there),
 * ERR_USAGE (the name is taken), ERR_MEMORY; then the file is as before. */
int chat_export(struct chat_exports *x, const struct transcript *t, const char *path, bool replace,
                struct error *e);
/* The same with this text for it. */
int chat_export_text(struct chat_exports *x, const struct transcript *t, const char *path,
                     const char *text, size_t n, bool replace, struct error *e);

#endif
