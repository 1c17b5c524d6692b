/* See library.h. */
#include "engine/base/library.h"

#include <dlfcn.h>
#include <string.h>

enum { UNTRIED, OPEN, ABSENT };

/* dlerror's text, which begins with the file. */
static int failed(struct library *l)
{
    const char *why = dlerror();

    l->state = ABSENT;
    return error_set(&l->why, ERR_DEVICE, "%s; is its package installed?", why ? why : l->file);
}

static int open_now(struct library *l)
{
    void *handle = dlopen(l->file, RTLD_NOW | RTLD_LOCAL);

    if (!handle)
        return failed(l);
    for (size_t i = 0; i < l->n; i++) {
        void *function = dlsym(handle, l->names[i]);

        if (!function)
            return failed(l);
        /* C has no conversion between pointers to data and to functions; POSIX has (dlsym) */
        memcpy((char *)l->functions + i * sizeof function, &function, sizeof function);
    }
    l->state = OPEN;
    return 0;
}

int library_open(struct library *l, struct error *e)
{
    int rc = 0;

    pthread_mutex_lock(&l->lock);
    if (l->state == UNTRIED)
        open_now(l);
    if (l->state == ABSENT)
        rc = error_set(e, ERR_DEVICE, "%s", l->why.text);
    pthread_mutex_unlock(&l->lock);
    return rc;
}
