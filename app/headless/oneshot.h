/* moetop -p TEXT / -f FILE: one answer on standard output. See oneshot.c. */
#ifndef APP_HEADLESS_ONESHOT_H
#define APP_HEADLESS_ONESHOT_H

#include "app/options/options.h"

bool oneshot_wanted(const struct options *o);
int oneshot_run(struct options *o, struct error *e);

#endif
