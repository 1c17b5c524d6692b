/* What a training run is asked to do. One table of keys, by which configuration files and flags are
 * read alike. Plain data, any thread. */
#ifndef ENGINE_TRAIN_CONFIG_H
#define ENGINE_TRAIN_CONFIG_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define TRAIN_BASE_KEEP (-1)

struct train_config {
    int steps;         /* 0: as many as `epochs` takes */
    double epochs;     /* passes over the data */
    int batch;         /* lines computed together */
    int accumulation;  /* of such batches a step */
    double lr;         /* largest learning rate */
    int warmup_steps;  /* -1: a twentieth of the steps */
    double min_lr_ratio;
    double beta1, beta2, eps, weight_decay; /* AdamW (arXiv:1711.05101) */
    double clip;       /* norm of all gradients together at most; 0: any */
    int rank;          /* of new adapters */
    double alpha;      /* their scale is alpha / rank */
    bool attention, experts; /* where adapters hang; experts: feed-forwards of any kind */
    int base;          /* enum dtype the matrices are rounded to; TRAIN_BASE_KEEP: as they lie */
    bool skip_expert_grad; /* experts' adapters act and pass gradients, but are not trained */
    double init_b;     /* new B are uniform in -init_b .. init_b; 0: zero, as LoRA begins */
    uint64_t seed;     /* of new adapters */
    int context;       /* tokens of a line at most; 0: what the model was trained with */
    int keep_activations; /* MiB at most of what the way back needs and would be computed again */
    int save_every;    /* steps from checkpoint to checkpoint; 0: none but at an interruption */
};

void train_config_init(struct train_config *c);
/* Key i of the table, NULL behind the last. */
const char *train_config_key(int i);
/* Sets a key from its text. ERR_USAGE names the key and what is expected. */
int train_config_set(struct train_config *c, const char *key, const char *text, struct error *e);
/* Whether what other tools write beside those keys says nothing about the computing. */
bool train_config_ignores(const char *key);
/* Settles steps, warm-up and their like for so many lines of data. ERR_USAGE: what contradicts. */
int train_config_settle(struct train_config *c, int lines, struct error *e);
/* Of step k, from 0: a linear warm-up that is not 0 in its first step, then half a cosine. */
double train_config_lr(const struct train_config *c, int k);
/* Of all that decides about the bits. */
uint64_t train_config_hash(const struct train_config *c);

#endif
