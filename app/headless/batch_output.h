/* The output of a batch: one line of JSON per answer, written at once and whole, to a file or
 * standard output; and the previous content of that file (--resume). Owner: the batch; main thread.
 */
#ifndef APP_HEADLESS_BATCH_OUTPUT_H
#define APP_HEADLESS_BATCH_OUTPUT_H

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* fd -1 and zero otherwise before it is opened. */
struct batch_output {
    int fd;
    const char *name;
    size_t done_before, failed_before; /* lines in a resumed file; of those, errors */
    uint64_t *digests;                 /* (done_before) of the lines they answer; 0: missing */
};

/* Digest of an input line: to notice that it differs from the one that was answered. Never 0. */
uint64_t batch_digest(const char *text, size_t n);
/* name: the caller's; NULL: standard output. in: the input, which must be a different file. ERR_IO,
 * ERR_USAGE. */
int batch_output_open(struct batch_output *out, const char *name, bool resume, FILE *in,
                      struct error *e);
void batch_output_release(struct batch_output *out);
/* Checks that an input line answered by an earlier run is unchanged: a file must not mix answers to
 * two inputs. ERR_USAGE. */
int batch_output_check(const struct batch_output *out, size_t line, const char *text, size_t n,
                       struct error *e);
/* ERR_IO, ERR_MEMORY. */
int batch_output_write(struct batch_output *out, const json_t *o, struct error *e);
/* Returns after it is on disk. */
int batch_output_sync(const struct batch_output *out, struct error *e);

#endif
