/* A callback that aborts long work: called now and then, on the thread that does the work. Aborted
 * work fails with ERR_CANCELLED. */
#ifndef ENGINE_BASE_STOP_H
#define ENGINE_BASE_STOP_H

#include <stdbool.h>

struct stop {
    bool (*asked)(void *ctx);
    void *ctx;
};

#endif
