/* See library.h. */
#include "engine/base/library.h"

#include <assert.h>
#include <dlfcn.h>
#ifdef MOETOP_STATIC
#include <nss.h>
#endif
#include <stdbool.h>
#include <string.h>

#ifdef MOETOP_STATIC
/* Names of hosts and users come from files and the DNS: other sources are libraries of the system,
 * built for another C library than the one in here. */
__attribute__((constructor)) static void look_up_without_libraries(void)
{
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
    __nss_configure_lookup("group", "files");
    __nss_configure_lookup("services", "files");
}

int library_load(const char *file, const char *packages, const char *const *names, void *table,
                 size_t bytes, struct error *e)
{
    memset(table, 0, bytes);
    return error_set(e, ERR_IO,
                     "the portable moetop loads no libraries, and %s is one: build or "
                     "install moetop for this system",
                     file);
}
#else
int library_load(const char *file, const char *packages, const char *const *names, void *table,
                 size_t bytes, struct error *e)
{
    /* whoever stands before a library (LD_PRELOAD: oclgrind, tracers) stays before it */
    bool preloaded = *names && dlsym(RTLD_DEFAULT, *names);
    void *library = preloaded ? RTLD_DEFAULT : dlopen(file, RTLD_NOW | RTLD_LOCAL), *address;
    char *to = table;

    memset(table, 0, bytes);
    if (!library && !preloaded) {
        const char *why = dlerror();

        /* a library that is there and does not load is another matter: the linker's words */
        if (why && !(strstr(why, file) == why && strstr(why, "No such file")))
            return error_set(e, ERR_IO, "%s (install %s)", why, packages);
        return error_set(e, ERR_IO, "%s is not installed (%s)", file, packages);
    }
    for (; *names; names++, to += sizeof address) {
        assert(to + sizeof address <= (char *)table + bytes);
        if (!(address = dlsym(library, *names))) {
            memset(table, 0, bytes);
            return error_set(e, ERR_IO, "%s has no %s: it is too old (%s)", file, *names, packages);
        }
        memcpy(to, &address, sizeof address);
    }
    return 0;
}
#endif
