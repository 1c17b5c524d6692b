/* What moetop can do in one run: an explicit list, first match wins, the chat last. A mode is one
 * file of app/, one row in app/modes.c, and its flag in app/options/options.def. Main thread. */
#ifndef APP_MODES_H
#define APP_MODES_H

#include "app/options/options.h"

struct mode {
    const char *name, *summary;
    bool (*wanted)(const struct options *o);
    /* 0, or a negative code with the line to print on standard error; the process exits with
     * error_exit_code(). stdout is only the answer. */
    int (*run)(struct options *o, struct error *e);
};

/* Row i of the list, NULL beyond the last. */
const struct mode *mode_at(int i);
/* Never NULL: the chat is the fallback. */
const struct mode *mode_choose(const struct options *o);
/* It needs no model on this machine: can be combined with --connect. */
bool mode_connects(const struct mode *m);

#endif
