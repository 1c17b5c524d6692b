/* Computes a layer's experts when not all of the model's are in memory: in batches of the groups
 * whose experts are loaded, while the others are read. Batching changes no bit: every group has its
 * own rows. Thread: the engine's; nothing is allocated. */
#ifndef ENGINE_RUN_PAGING_H
#define ENGINE_RUN_PAGING_H

#include "engine/device/device.h"
#include "engine/model/expert_cache.h"

struct paging {
    struct expert_cache *cache;
    struct expert_group *groups; /* of the job; reordered */
    /* Computes a batch; afterwards its experts may be evicted. */
    int (*run)(void *ctx, const struct experts_job *batch, struct error *e);
    /* Called once all missing experts are being read, as far as there are slots. May be NULL. */
    void (*meanwhile)(void *ctx);
    void *ctx;
};

/* The code of run, or of reading: ERR_IO, ERR_VALUE. */
int paging_run(const struct paging *p, struct experts_job job, struct error *e);

#endif
