/* Medusa heads (Cai et al. 2024, arXiv:2401.10774): from the hidden state that predicts the next
 * token, head k predicts the token k + 2 positions on, independently of the others. A head is some
 * residual blocks, h <- h + SiLU(W h + b), and a matrix (n_vocab, hidden) of logits. Files have
 * them as the authors save them: safetensors, `K.L.linear.weight`, `K.L.linear.bias` of block L of
 * head K and `K.N.weight` after its N blocks, with or without the prefix `medusa_head.`; a head
 * without such a matrix uses the model's. In memory they are Q8_0 where the model's head is
 * quantised, else as in the file. Owner: the engine; immutable after open. */
#ifndef ENGINE_RUN_MEDUSA_HEADS_H
#define ENGINE_RUN_MEDUSA_HEADS_H

#include "engine/base/error.h"
#include "engine/layout/matrix.h"
#include "engine/run/config.h"

#include <stdint.h>

struct device_slot;
struct medusa_heads; /* private */
struct model;

/* Opens heads 0 .. n - 1. m: the model, which outlives them. ERR_MODEL: the file is invalid;
 * ERR_VALUE: a tensor, named, contains NaN or infinity; ERR_USAGE: not for this model; ERR_IO,
 * ERR_MEMORY. */
int medusa_heads_open(struct medusa_heads **out, const struct model *m,
                      const struct medusa_request *r, struct error *e);
void medusa_heads_free(struct medusa_heads *h); /* accepts NULL */
int medusa_heads_count(const struct medusa_heads *h);
/* Their memory, without opening them; m may come from model_inspect. Errors as above. */
int medusa_heads_footprint(const struct model *m, const struct medusa_request *r, uint64_t *bytes,
                           struct error *e);
/* Head k's logits (n_vocab) of a hidden state (hidden), after the model's last norm; work: 2 x
 * hidden values. Computed by the CPU (cpu: its slot). ERR_DEVICE. */
int medusa_heads_logits(const struct medusa_heads *h, int k, struct device_slot *cpu,
                        const float *state, float *work, float *logits, struct error *e);

#endif
