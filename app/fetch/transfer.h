/* Downloads one file over HTTP: resumes an interrupted download, verifies it, shows a progress bar.
 * Main thread. */
#ifndef APP_FETCH_TRANSFER_H
#define APP_FETCH_TRANSFER_H

#include "app/common/progress.h"
#include "engine/base/digest.h"
#include "engine/base/error.h"
#include "engine/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

/* State shared by all transfers of one download. */
struct transfers {
    const char *token; /* of the Hub, NULL: none */
    struct progress bar;
    uint64_t done, total; /* bytes of all files, those before this one included */
};

/* Source and target of a file. */
struct transfer {
    const char *url, *name;   /* name: for lines */
    const char *part, *whole; /* the partial file, and the verified one */
    const char *lock;         /* lock file, held with flock while downloading */
    uint64_t bytes;
    enum digest_kind kind;
    const char *hash;
};

/* Small answers (at most `most` bytes) in memory. status: HTTP's. A status other than 200 is not an
 * error here. ERR_IO: no answer (after some tries); ERR_CANCELLED; ERR_MEMORY. */
int transfer_text(struct transfers *all, const char *url, size_t most, long *status,
                  struct strbuf *text, struct error *e);
/* Downloads the file, complete and verified; if another program is downloading it, waits for that.
 * On failure `part` is kept, unless its content is wrong. ERR_IO: full disk, interrupted, refused;
 * ERR_CANCELLED. */
int transfer_file(struct transfers *all, const struct transfer *t, struct error *e);
/* The error for a status of the Hub other than 200. ERR_MODEL, ERR_IO. */
int transfer_refused(long status, const char *what, bool with_token, struct error *e);

#endif
