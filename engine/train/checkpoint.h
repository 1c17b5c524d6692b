/* Where a run stands, as one file: values, moments and steps done, so that it goes on with the bits
 * it would have had. Written aside and renamed; checked by a hash when it is read. Thread: the one
 * that trains. */
#ifndef ENGINE_TRAIN_CHECKPOINT_H
#define ENGINE_TRAIN_CHECKPOINT_H

#include "engine/train/trainer.h"

/* ERR_IO: the old one is still there. */
int checkpoint_write(const struct trainer *t, const char *path, struct error *e);
/* 1: the trainer goes on from it; 0: there is none. ERR_USAGE: it is of another run (other data,
 * settings, model or adapter); ERR_MODEL: damaged; ERR_IO. */
int checkpoint_read(struct trainer *t, const char *path, struct error *e);

#endif
