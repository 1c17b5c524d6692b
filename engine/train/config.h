/* Settings of a training run. One table of keys for both configuration files and flags. Plain data,
 * any thread. */
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
    int accumulation;  /* batches per step */
    double lr;         /* largest learning rate */
    int warmup_steps;  /* -1: a twentieth of the steps */
    double min_lr_ratio;
    double beta1, beta2, eps, weight_decay; /* AdamW (arXiv:1711.05101) */
    double clip;       /* largest norm of all gradients together; 0: no clipping */
    int rank;          /* of new adapters */
    double alpha;      /* their scale is alpha / rank */
    bool attention, experts; /* where adapters are attached; experts: feed-forwards of any kind */
    int base;          /* enum dtype the matrices are rounded to; TRAIN_BASE_KEEP: unchanged */
    bool skip_expert_grad; /* experts' adapters are applied but not trained */
    double init_b;     /* new B are uniform in -init_b .. init_b; 0: zero, as in LoRA */
    uint64_t seed;     /* of new adapters */
    int context;       /* most tokens of a line; 0: the model's trained context */
    int keep_activations; /* most MiB of activations kept for the backward pass */
    int save_every;    /* steps between checkpoints; 0: only at an interruption */
};

void train_config_init(struct train_config *c);
/* Key i of the table, NULL after the last. */
const char *train_config_key(int i);
/* Sets a key from its text. ERR_USAGE names the key and what is expected. */
int train_config_set(struct train_config *c, const char *key, const char *text, struct error *e);
/* Whether a key written by other tools is irrelevant to the computation. */
bool train_config_ignores(const char *key);
/* Resolves steps, warm-up and similar defaults for so many lines of data. ERR_USAGE:
 * contradictions. */
int train_config_settle(struct train_config *c, int lines, struct error *e);
/* Learning rate of step k, from 0: a linear warm-up that is not 0 in its first step, then half a
 * cosine. */
double train_config_lr(const struct train_config *c, int k);
/* Hash of all settings that affect the bits. */
uint64_t train_config_hash(const struct train_config *c);

#endif
