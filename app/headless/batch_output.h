/* The answers of a batch: one line of JSON each, written at once and whole, to a file or standard
 * output; and what an earlier run left in that file (--resume). Owner: the batch; main thread. */
#ifndef APP_HEADLESS_BATCH_OUTPUT_H
#define APP_HEADLESS_BATCH_OUTPUT_H

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* fd -1 and else zero before it is opened. */
struct batch_output {
    int fd;
    const char *name;
    size_t done_before, failed_before; /* lines that a resumed file holds, and that say an error */
    uint64_t *digests;                 /* (done_before) of the lines they answer; 0: not told */
};

/* Of a line of the input: enough to notice that it is another one than was answered. Never 0. */
uint64_t batch_digest(const char *text, size_t n);
/* name: the caller's; NULL: standard output. in: the input, which must be another file. ERR_IO,
 * ERR_USAGE. */
int batch_output_open(struct batch_output *out, const char *name, bool resume, FILE *in,
                      struct error *e);
void batch_output_release(struct batch_output *out);
/* The line of the input that an earlier run answered must be the one that stands there now: answers
 * to two inputs in one file would fit neither. ERR_USAGE. */
int batch_output_check(const struct batch_output *out, size_t line, const char *text, size_t n,
                       struct error *e);
/* ERR_IO, ERR_MEMORY. */
int batch_output_write(struct batch_output *out, const json_t *o, struct error *e);
/* It is on the disk when this returns. */
int batch_output_sync(const struct batch_output *out, struct error *e);

#endif
