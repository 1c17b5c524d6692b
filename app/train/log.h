/* --train-log: a JSON object per line, {"step", "loss", "grad_norm", "lr", ...} and {"valid_loss",
 * "after"}. A resumed run keeps the lines of the steps already done; lines that did not fit on the
 * disk are retried with the next one. The training thread, once it is open. */
#ifndef APP_TRAIN_LOG_H
#define APP_TRAIN_LOG_H

#include "engine/base/strbuf.h"
#include "engine/train/trainer.h"

struct train_log {
    const char *path; /* NULL: none is written */
    int fd;
    struct strbuf waiting;                    /* lines that are not in the file yet */
    bool told;                                /* a warning about that was given */
    void (*say)(void *ctx, const char *line); /* receives the warning */
    void *ctx;
};

/* l: zeroed except say and ctx. done: steps whose lines are kept. ERR_IO. */
int train_log_open(struct train_log *l, const char *path, int done, struct error *e);
void train_log_step(struct train_log *l, const struct train_step *s, double seconds);
void train_log_valid(struct train_log *l, int after, double loss);
/* ERR_IO: lines are missing. Closed either way. */
int train_log_close(struct train_log *l, struct error *e);

#endif
