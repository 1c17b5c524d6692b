/* One file over HTTP: gone on with where it was cut, checked while it comes, shown as a bar. Main
 * thread. */
#ifndef APP_FETCH_TRANSFER_H
#define APP_FETCH_TRANSFER_H

#include "app/common/progress.h"
#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

/* What all transfers of one download share. */
struct transfers {
    const char *token; /* of the Hub, NULL: none */
    struct progress bar;
    uint64_t done, total; /* bytes of all files, those before this one included */
};

/* Where a file comes from and what it must be. */
struct transfer {
    const char *url, *name;   /* name: for lines */
    const char *part, *whole; /* the file while it comes, and when it is checked */
    const char *lock;         /* a file that whom fetches it holds with flock */
    uint64_t bytes;
    enum digest_kind kind;
    const char *hash;
};

/* Small answers (at most `most` bytes) in memory. status: HTTP's. An answer other than 200 is no
 * error here. ERR_IO: none came (after some tries); ERR_CANCELLED; ERR_MEMORY. */
int transfer_text(struct transfers *all, const char *url, size_t most, long *status,
                  struct strbuf *text, struct error *e);
/* The file, whole and checked; where another program is fetching it, that one is waited for. What
 * came of it stays in `part` when it fails, except what turns out to be something else. ERR_IO:
 * full disk, cut off, refused; ERR_CANCELLED. */
int transfer_file(struct transfers *all, const struct transfer *t, struct error *e);
/* What a status other than 200 means to a user of the Hub. ERR_MODEL, ERR_IO. */
int transfer_refused(long status, const char *what, bool with_token, struct error *e);

#endif
