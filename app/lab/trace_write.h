/* Writing a routing trace. Every call of trace_writer_flush leaves all tokens so far in the file,
 * whatever happens to the process afterwards: as whole lines, or as whole records of FILE.part.
 * One thread at a time; the owner closes it. */
#ifndef APP_LAB_TRACE_WRITE_H
#define APP_LAB_TRACE_WRITE_H

#include "app/lab/routing_trace.h"

struct trace_writer;

/* path ends in .jsonl or .safetensors (ERR_USAGE); a file there is replaced: at once (.jsonl, which
 * may also be a pipe), or at the end. ERR_IO, ERR_MEMORY. */
int trace_writer_open(struct trace_writer **out, const char *path, const struct trace_head *h,
                      struct error *e);
/* Whether the ending of path names a format. */
bool trace_path_known(const char *path);
/* by: (layers); experts, weights: (layers, slots); scores: (layers, experts), used where the head
 * has them. ERR_IO, ERR_MEMORY. */
int trace_writer_token(struct trace_writer *w, const struct trace_token *t, const uint8_t *by,
                       const int16_t *experts, const float *weights, const float *scores,
                       struct error *e);
int trace_writer_flush(struct trace_writer *w, struct error *e);
/* Also makes the columns of a safetensors trace; frees w (may be NULL) in any case. ERR_IO: what
 * was written stays, as FILE.part where the columns are not complete. */
int trace_writer_close(struct trace_writer *w, struct error *e);
/* A whole record (struct trace_columns.record bytes, zeroed beforehand). */
void trace_record_put(const struct trace_head *h, const struct trace_columns *c, uint8_t *record,
                      const struct trace_token *t, const uint8_t *by, const int16_t *experts,
                      const float *weights, const float *scores);
/* The records of fd from offset `at` on, n of them, as columns in a new safetensors file `path`. */
int trace_columns_write(const char *path, const struct trace_head *h, int fd, uint64_t at,
                        uint64_t n, struct error *e);

#endif
