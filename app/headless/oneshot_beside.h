/* The second answer of -p with --beside, and the comparison. Main thread; prints to stderr. */
#ifndef APP_HEADLESS_ONESHOT_BESIDE_H
#define APP_HEADLESS_ONESHOT_BESIDE_H

#include "app/lab/said.h"
#include "app/options/options.h"

/* Before the first answer: whether the second could be asked. ERR_USAGE, ERR_MODEL. */
int oneshot_beside_check(const struct options *o, struct error *e);
/* Asks the second model what the first one, whose engine is still open, answered with this seed.
 * *json: the comparison, for --stats-json (NULL: not wanted). ERR_CANCELLED: interrupted; the
 * errors of opening a model. */
int oneshot_beside(const struct options *o, const struct dialogue *d, uint64_t seed,
                   const struct said *first, const struct engine_info *info, json_t **json,
                   struct error *e);

#endif
