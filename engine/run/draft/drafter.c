/* See drafter.h; the table of drafters is in drafters.c, which knows those that need an engine. */
#include "engine/run/draft/drafter.h"

#include "engine/base/mem.h"

int drafter_new(struct drafter **out, const struct drafter_ops *ops, struct engine *model,
                struct error *e)
{
    struct drafter *d = mem_alloc(1, ops->size);
    int rc = d ? ops->init(d, model, e) : error_set(e, ERR_MEMORY, "no memory for drafts");

    if (rc < 0) {
        drafter_free(d, ops);
        d = NULL;
    }
    *out = d;
    return rc;
}

void drafter_free(struct drafter *d, const struct drafter_ops *ops)
{
    if (d && ops->release)
        ops->release(d);
    mem_free(d);
}
