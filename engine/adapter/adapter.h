/* Adapters (LoRA) of a model: read from PEFT folders, KTransformers' folders and GGUF files,
 * checked against the model's matrices and attached to them (engine/layout/lora.h), never merged
 * into weights. Owner: the opener, the engine or a tool; they outlive the last use of the model's
 * matrices. Thread: the one that loads the model, before a device is opened; constant afterwards.
 * Errors: ERR_MODEL (unreadable, refused, does not fit; the message names the tensor or setting),
 * ERR_VALUE (contains NaN or infinity), ERR_IO, ERR_MEMORY, ERR_USAGE (too many). */
#ifndef ENGINE_ADAPTER_ADAPTER_H
#define ENGINE_ADAPTER_ADAPTER_H

#include "engine/base/error.h"
#include "engine/layout/lora.h"
#include "engine/model/model.h"

#include <stdint.h>

/* path: a folder, a file of it, or a GGUF file. strength: initial value of sessions; 1: as
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
    int matrices, expert_matrices; /* attached to so many; of these, experts' */
    uint64_t bytes;                /* of A and B in memory */
    uint64_t hash;                 /* of names, scales and values */
    int n_unplaced;
    char *unplaced; /* tensors without a matching matrix, separated by ", "; NULL: none */
    float strength; /* as requested */
};

struct adapters;

/* Opens all of them or none. data: false for an inspected model: sizes only (lora.a and lora.b are
 * NULL, hashes 0). */
int adapters_open(struct adapters **out, struct model *m, const struct adapter_request *asked,
                  int n, bool data, struct error *e);
void adapters_close(struct adapters *a); /* accepts NULL */
/* NULL: none. */
int adapters_count(const struct adapters *a);
const struct adapter_info *adapters_at(const struct adapters *a, int i);
uint64_t adapters_bytes(const struct adapters *a);
/* Hash of all adapters in order, without strengths: identifies the adapted model. */
uint64_t adapters_hash(const struct adapters *a);

#endif
