/* How one model would run here: whether it fits, the nearest settings with which it does, and the
 * decode rate that memory and disk allow. Any thread; nothing but metadata is read. */
#ifndef APP_SETUP_FIT_ROW_H
#define APP_SETUP_FIT_ROW_H

#include "app/setup/fit.h"
#include "app/setup/fit_page.h"

#define FIT_ROW_DEPTH 1024 /* tokens in the context for which a rate is computed */

struct fit_row {
    const char *path; /* as given */
    struct error why; /* code 0: it could be read */
    struct fit fit;   /* with the given settings */
    char family[40], remedy[128];
    char paged[FIT_PAGE_FLAGS]; /* the flags that leave experts on disk */
    const char *smaller;        /* a type for --quantize; NULL: not needed, or none helps */
    uint64_t file_bytes, smaller_bytes, token_bytes, all_weights;
    int64_t parameters;
    int context; /* the largest context that fits, with the remedy if one is needed; 0: none does */
    bool in_cache;
    double rate;       /* 0: unknown */
    double disk;       /* disk bytes/s, if context and rate are those of `paged`; or 0 */
    struct fit placed; /* with --place or --device: the part on that device; device "": none */
};

/* The same for every model looked at; cached and uncached change. */
struct fit_look {
    const struct engine_config *config; /* of the options; its model_path is not used */
    const char *place;                  /* NULL: no device was given */
    const char *prompts;                /* the same for prompts; NULL: that one */
    int threads;
    uint64_t available; /* bytes; UINT64_MAX: unknown */
    double bandwidth;   /* of memory, bytes/s; 0: unknown */
    /* sizes measured to be in the CPU cache, and not to be; at first 0 and UINT64_MAX */
    uint64_t cached, uncached;
};

/* Fills the row. An error of the model is in row->why. May measure the disk and the caches for some
 * tenths of a second each. */
void fit_row_look(struct fit_look *l, const char *path, struct fit_row *row);

#endif
