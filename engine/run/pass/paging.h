/* A layer's experts where not all of the model's are in memory: groups in batches of what is there,
 * the ones that are first, while the others are read. Which groups share a batch changes no bit:
 * every group's rows are its own. Thread: the engine's; nothing is allocated. */
#ifndef ENGINE_RUN_PAGING_H
#define ENGINE_RUN_PAGING_H

#include "engine/device/device.h"
#include "engine/model/expert_cache.h"

struct paging {
    struct expert_cache *cache;
    struct expert_group *groups; /* of the job; their order changes */
    /* Computes a batch: when it returns the experts may go. */
    int (*run)(void *ctx, const struct experts_job *batch, struct error *e);
    /* Once, when all that is missing is being read, as far as there are slots. May be NULL. */
    void (*meanwhile)(void *ctx);
    void *ctx;
};

/* The code of run, or of the disk: ERR_IO, ERR_VALUE. */
int paging_run(const struct paging *p, struct experts_job job, struct error *e);

#endif
