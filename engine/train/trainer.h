/* Trains an adapter: a frozen model, data, and steps of forward, backward and AdamW, F32. The bits
 * are the same for any number of threads, and for a run that was interrupted and resumed. Owner and
 * thread: the opener. Nothing is printed or written except by trainer_save and the checkpoint. */
#ifndef ENGINE_TRAIN_TRAINER_H
#define ENGINE_TRAIN_TRAINER_H

#include "engine/base/stop.h"
#include "engine/train/config.h"
#include "engine/train/data.h"
#include "engine/train/modules.h"

struct trainer_options {
    const char *model;    /* folder or file */
    struct model *loaded; /* or one that the caller owns, every matrix row-major; NULL: use model */
    const char *data, *valid; /* files; valid NULL: none */
    const char *init;         /* initial adapter; NULL: a new one */
    struct train_config config; /* not resolved yet */
    int threads;
    const struct stop *stop; /* polled between layers; NULL: steps are not aborted */
};

struct train_step {
    int step; /* from 1 */
    double loss, grad_norm, lr;
    int learned, tokens; /* of the step: targets, all */
};

struct trainer;

/* Errors of its parts: the model, the data, the adapter, the settings. */
int trainer_open(struct trainer **out, const struct trainer_options *o, struct error *e);
void trainer_close(struct trainer *t); /* accepts NULL */
const struct train_config *trainer_config(const struct trainer *t); /* resolved */
const struct modules *trainer_modules(const struct trainer *t);
const struct train_data *trainer_data(const struct trainer *t);
struct base *trainer_base(struct trainer *t);
/* Progress of a run, besides its modules' values and moments. */
struct train_state {
    int step;     /* steps that are done */
    int grown;    /* how many of the last ones had a loss above the bound */
    double bound; /* a loss above it counts as diverging */
};

struct train_state trainer_state(const struct trainer *t);
/* Resumes from a checkpoint; the modules' values are already read. */
void trainer_go_on(struct trainer *t, struct train_state s);
/* Hash of data, settings, model and the adapter's shape, which a checkpoint must match. */
uint64_t trainer_hash(const struct trainer *t);
/* One step. ERR_CANCELLED: it was aborted, without effect. ERR_VALUE: its loss is not a number, or
 * diverged: the values are restored to those of the last valid step. */
int trainer_step(struct trainer *t, struct train_step *out, struct error *e);
/* Loss and gradients of the next step, without the update: modules' grad_a, grad_b. */
int trainer_gradients(struct trainer *t, struct train_step *out, struct error *e);
/* Mean loss of the validation data. ERR_CANCELLED. */
int trainer_validate(struct trainer *t, double *loss, struct error *e);

/* Bytes: of the base's matrices, of the adapter with gradients and moments, of a batch. */
struct train_memory {
    uint64_t base, adapter, batch;
};
struct train_memory trainer_memory(const struct trainer *t);
/* Floating-point operations of the frozen matrices' products so far, including recomputation. */
double trainer_operations(const struct trainer *t);

#endif
