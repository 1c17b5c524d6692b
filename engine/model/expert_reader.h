/* Inside engine/model only: threads that read experts from the disk and pack them where they are
 * told to. Pieces of about a MiB are taken by whoever is free, so that one expert's come side by
 * side and packing one piece overlaps reading another. Who queues tasks is one thread (the
 * engine's); what is wanted now goes before what is guessed. Memory is taken by new alone. */
#ifndef ENGINE_MODEL_EXPERT_READER_H
#define ENGINE_MODEL_EXPERT_READER_H

#include "engine/model/bind.h"

#include <stdatomic.h>

#define EXPERT_MATRICES 3
#define EXPERT_READERS 4 /* threads */

struct expert_reader;

enum read_state { READ_IDLE, READ_QUEUED, READ_DONE, READ_FAILED };

/* An expert on its way. The caller fills jobs, to and n; the rest is the reader's. */
struct read_task {
    const struct matrix_job *jobs[EXPERT_MATRICES];
    uint8_t *to[EXPERT_MATRICES]; /* where each matrix is packed */
    int n;
    atomic_int state;
    int part, group; /* what is handed out next */
    int busy;        /* pieces under way */
    bool failed, begun, guess;
    struct read_task *next;
};

struct read_totals {
    uint64_t bytes; /* read */
    uint64_t ns;    /* during which something was being read */
};

/* jobs: all that will ever be asked for; they and the file outlive it. */
int expert_reader_new(struct expert_reader **out, const struct weight_file *f,
                      const struct matrix_job *jobs, size_t n, struct error *e);
void expert_reader_free(struct expert_reader *r); /* NULL: nothing */
/* Bytes that new takes for these jobs. */
uint64_t expert_reader_footprint(const struct matrix_job *jobs, size_t n);
/* READ_IDLE, READ_DONE or READ_FAILED becomes READ_QUEUED, and in the end one of the last two. */
void expert_reader_queue(struct expert_reader *r, struct read_task *t, bool guess);
/* What was guessed is wanted. */
void expert_reader_want(struct expert_reader *r, struct read_task *t);
/* true: nothing of it was read, it is READ_IDLE again. */
bool expert_reader_cancel(struct expert_reader *r, struct read_task *t);
/* Until it is done. ERR_IO, ERR_VALUE: why the newest one that failed did. */
int expert_reader_wait(struct expert_reader *r, struct read_task *t, struct error *e);
struct read_totals expert_reader_totals(struct expert_reader *r);

#endif
