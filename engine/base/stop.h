/* Who may end long work before its end: asked now and then, on the thread that does it. Work that
 * was ended fails with ERR_CANCELLED. */
#ifndef ENGINE_BASE_STOP_H
#define ENGINE_BASE_STOP_H

#include <stdbool.h>

struct stop {
    bool (*asked)(void *ctx);
    void *ctx;
};

#endif
