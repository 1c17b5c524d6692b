/* Inside engine/model only: threads that read experts from disk and pack them to given addresses.
 * Each free thread takes pieces of about a MiB, so that the pieces of one expert are read in
 * parallel and packing one overlaps reading another. One thread queues tasks (the engine's); needed
 * experts go before prefetched ones. Only new allocates memory. */
#ifndef ENGINE_MODEL_EXPERT_READER_H
#define ENGINE_MODEL_EXPERT_READER_H

#include "engine/model/bind.h"

#include <stdatomic.h>

#define EXPERT_MATRICES 3
#define EXPERT_READERS 4 /* threads */

struct expert_reader;

enum read_state { READ_IDLE, READ_QUEUED, READ_DONE, READ_FAILED };

/* An expert being read. The caller fills jobs, to and n; the rest is the reader's. */
struct read_task {
    const struct matrix_job *jobs[EXPERT_MATRICES];
    uint8_t *to[EXPERT_MATRICES]; /* where each matrix is packed */
    int n;
    atomic_int state;
    int part, group; /* next piece to hand out */
    int busy;        /* pieces in progress */
    bool failed, begun, guess;
    struct read_task *next;
};

struct read_totals {
    uint64_t bytes; /* read */
    uint64_t ns;    /* time with reads in progress */
};

/* jobs: all that will ever be requested; they and the file outlive it. */
int expert_reader_new(struct expert_reader **out, const struct weight_file *f,
                      const struct matrix_job *jobs, size_t n, struct error *e);
void expert_reader_free(struct expert_reader *r); /* NULL: nothing */
/* Bytes that new takes for these jobs. */
uint64_t expert_reader_footprint(const struct matrix_job *jobs, size_t n);
/* READ_IDLE, READ_DONE or READ_FAILED becomes READ_QUEUED, and in the end one of the last two. */
void expert_reader_queue(struct expert_reader *r, struct read_task *t, bool guess);
/* Raises a prefetched task to needed. */
void expert_reader_want(struct expert_reader *r, struct read_task *t);
/* true: nothing of it had been read, it is READ_IDLE again. */
bool expert_reader_cancel(struct expert_reader *r, struct read_task *t);
/* Waits until it is done. ERR_IO, ERR_VALUE: the error of the newest failure. */
int expert_reader_wait(struct expert_reader *r, struct read_task *t, struct error *e);
struct read_totals expert_reader_totals(struct expert_reader *r);

#endif
