/* The state of a training run as one file: values, moments and steps done, so that it resumes with
 * bit-identical results. Written to a temporary file and renamed; verified by a hash when read.
 * Thread: the one that trains. */
#ifndef ENGINE_TRAIN_CHECKPOINT_H
#define ENGINE_TRAIN_CHECKPOINT_H

#include "engine/train/trainer.h"

/* ERR_IO: the old one is unchanged. */
int checkpoint_write(const struct trainer *t, const char *path, struct error *e);
/* 1: the trainer's state was restored; 0: there is none. ERR_USAGE: it is of another run (other
 * data, settings, model or adapter); ERR_MODEL: damaged; ERR_IO. */
int checkpoint_read(struct trainer *t, const char *path, struct error *e);

#endif
