/* See export_state.h. */
#include "engine/convert/export_state.h"

#include "engine/base/mem.h"

void *export_keep(struct export *x, size_t bytes)
{
    void *out, **list = mem_resize(x->kept, (size_t)x->n_kept + 1, sizeof *list);

    if (!list)
        return NULL;
    x->kept = list;
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
