/* The input of a batch, line by line: a file, a pipe or standard input. Owner: the batch; main
 * thread. */
#ifndef APP_HEADLESS_BATCH_INPUT_H
#define APP_HEADLESS_BATCH_INPUT_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define BATCH_LINE_MAX ((size_t)64 << 20)

/* All zero before it is opened. */
struct batch_input {
    FILE *file;
    const char *name;
    size_t total; /* lines, if known in advance; else 0 */
    /* the newest line: n bytes, no NUL; too_long: the rest was dropped */
    char *line;
    size_t n;
    bool too_long;
    /* private */
    size_t room;
    bool begun;
    char block[65536]; /* buffered input, not parsed yet: at .. have - 1 */
    size_t at, have;
    int failed; /* errno */
};

/* name: "-" is standard input; the caller's. ERR_IO. */
int batch_input_open(struct batch_input *r, const char *name, struct error *e);
void batch_input_release(struct batch_input *r);
/* Next line without its end and without a byte order mark. 1: got one, 0: the end. ERR_CANCELLED,
 * ERR_IO. */
int batch_input_next(struct batch_input *r, struct error *e);
/* Whether reading would not block (the writer of the line may be waiting for an answer). */
bool batch_input_ready(const struct batch_input *r);

#endif
