/* --train-log: a JSON object a line, {"step", "loss", "grad_norm", "lr", ...} and {"valid_loss",
 * "after"}. A run that goes on keeps the lines of the steps it has done; what the disk had no room
 * for is tried again with the next line. The thread that trains, once it is open. */
#ifndef APP_TRAIN_LOG_H
#define APP_TRAIN_LOG_H

#include "engine/base/strbuf.h"
#include "engine/train/trainer.h"

struct train_log {
    const char *path; /* NULL: none is written */
    int fd;
    struct strbuf waiting; /* lines that are not in the file yet */
    bool told; /* that they are waiting */
    void (*say)(void *ctx, const char *line); /* of which it tells */
    void *ctx;
};

/* l: zeroed but for say and ctx. done: steps whose lines stay. ERR_IO. */
int train_log_open(struct train_log *l, const char *path, int done, struct error *e);
void train_log_step(struct train_log *l, const struct train_step *s, double seconds);
void train_log_valid(struct train_log *l, int after, double loss);
/* ERR_IO: lines are missing. Closed either way. */
int train_log_close(struct train_log *l, struct error *e);

#endif
