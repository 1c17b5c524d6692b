/* Expert profiles on disk: JSON with the model's hash, so that counts are never used for another
 * model or quantisation; llama.cpp's imatrix GGUF files, which hold counts too; SGLang's JSON
 * with logical_count; a NumPy matrix (layers, experts). Any thread:
 * nothing is kept. */
#ifndef APP_SETUP_PROFILE_FILE_H
#define APP_SETUP_PROFILE_FILE_H

#include "engine/base/error.h"
#include "engine/placement/usage.h"

#include <stddef.h>

#define PROFILE_DEVICES 8

/* Metadata of the counts. Plain data. */
struct profile_facts {
    char model[128], type[32], source[300];
    /* how the source was tokenized (profile_reading_word); "": unknown */
    char read_as[32];
    uint64_t hash; /* struct model's; 0: unknown (imatrix) */
    int n_devices;
    struct {
        char name[64];
        double expert_ns; /* one expert call of one token; 0: not measured */
    } devices[PROFILE_DEVICES];
    /* (n_layers, n_experts) on device 0, measured one by one, or NULL; owned by the facts */
    double *expert_ns;
};

/* JSON text, mem_* memory. ERR_MEMORY. */
int profile_json(const struct usage *u, const struct profile_facts *facts, char **text, size_t *len,
                 struct error *e);
/* path: JSON of either kind, or an imatrix GGUF (found by content). u is initialised on success.
 * ERR_IO, ERR_INPUT, ERR_MEMORY. */
int profile_read(struct usage *u, struct profile_facts *facts, const char *path, struct error *e);
/* Counts of other programs may be of the layers with a router alone, and of the experts that it
 * chooses from: they become the model's, where they fit. ERR_MEMORY. */
int profile_spread(struct usage *u, const struct profile_facts *facts, const struct hparams *hp,
                   struct error *e);
void profile_facts_release(struct profile_facts *facts);
/* 0 when the profile is of this model; ERR_INPUT says what differs. hash 0 in the facts: only the
 * shape is compared. */
int profile_check(const struct usage *u, const struct profile_facts *facts, const char *path,
                  const char *model, uint64_t hash, int n_layers, int n_experts, int n_used,
                  struct error *e);

#endif
