/* Adapters (LoRA) of a model: read from PEFT folders, KTransformers' folders and GGUF files,
 * checked against the model's matrices and hung on them (engine/layout/lora.h), never merged into
 * weights.
 * Owner: whoever opened them, the engine or a tool; they outlive the last use of the model's
 * matrices. Thread: the one that loads the model, before a device is opened; constant afterwards.
 * Errors: ERR_MODEL (unreadable, refused, does not fit; the line says which tensor or setting),
 * ERR_VALUE (holds a NaN or an infinity), ERR_IO, ERR_MEMORY, ERR_USAGE (too many). */
#ifndef ENGINE_ADAPTER_ADAPTER_H
#define ENGINE_ADAPTER_ADAPTER_H

#include "engine/base/error.h"
#include "engine/layout/lora.h"
#include "engine/model/model.h"

#include <stdint.h>

/* path: a folder, a file of it, or a GGUF file. strength: what sessions begin with; 1: as it was
 * trained. */
struct adapter_request {
    const char *path;
    float strength;
};

struct adapter_info {
    char name[128]; /* of its folder or file; control characters removed */
    char *path;
    const char *format; /* "PEFT", "KTransformers", "GGUF" */
    int rank_least, rank_most;
    int matrices, expert_matrices; /* it hangs on; of these, experts' */
    uint64_t bytes;                /* of A and B in memory */
    uint64_t hash;                 /* of names, scales and values */
    int n_unplaced;
    char *unplaced; /* tensors that found no place, ", " between them; NULL: none */
    float strength; /* that of the request */
};

struct adapters;

/* All of them or none. data: false for an inspected model: sizes alone (lora.a and lora.b are
 * NULL, hashes 0). */
int adapters_open(struct adapters **out, struct model *m, const struct adapter_request *asked,
                  int n, bool data, struct error *e);
void adapters_close(struct adapters *a); /* accepts NULL */
/* NULL: none. */
int adapters_count(const struct adapters *a);
const struct adapter_info *adapters_at(const struct adapters *a, int i);
uint64_t adapters_bytes(const struct adapters *a);
/* Of all and their order, without strengths: what computes with them is another model. */
uint64_t adapters_hash(const struct adapters *a);

#endif
