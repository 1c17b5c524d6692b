/* --batch --connect URL: a server answers the lines, --parallel of them at a time; the output is
 * the same as that of a local batch. Main thread; a thread for each running line. */
#ifndef APP_HEADLESS_BATCH_REMOTE_H
#define APP_HEADLESS_BATCH_REMOTE_H

#include "app/headless/batch_input.h"
#include "app/headless/batch_output.h"
#include "app/options/options.h"
#include "app/stats/run_stats.h"
#include "engine/run/report/messages.h"

struct batch_remote {
    const struct options *o;
    struct batch_input *in;
    struct batch_output *out;
    struct stats *stats;
    const struct turn *defaults;
    const char *system; /* NULL: none */
    int parallel;
    size_t written, failed; /* lines of this run, of which failed */
};

/* All lines. If the server is gone, or after a signal, it ends after the last written line: ERR_IO,
 * ERR_MODEL, ERR_CANCELLED; errors of input and output. */
int batch_remote_run(struct batch_remote *b, struct error *e);

#endif
