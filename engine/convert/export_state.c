/* See export_state.h. */
#include "engine/convert/export_state.h"

#include "engine/base/mem.h"

void *export_keep(struct export *x, size_t bytes)
{
    void *out;

    if (!MEM_FIT(x->kept, x->n_kept + 1))
        return NULL;
    if ((out = mem_alloc(bytes, 1)))
        x->kept[x->n_kept++] = out;
    return out;
}

void export_keep_release(struct export *x)
{
    for (int i = 0; i < x->n_kept; i++)
        mem_free(x->kept[i]);
    mem_free(x->kept);
}
