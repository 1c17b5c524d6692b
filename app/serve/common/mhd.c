/* See mhd.h. */
#include "app/serve/common/mhd.h"

#include <libraries.h>

struct mhd mhd;

int mhd_open(struct error *e)
{
    static const char *const names[] = {MHD_FUNCTIONS(LIBRARY_NAME)};
    static struct library library = {.file = LIBRARY_MICROHTTPD,
                                     .names = names,
                                     .functions = &mhd,
                                     .n = sizeof names / sizeof *names,
                                     .lock = PTHREAD_MUTEX_INITIALIZER};

    return library_open(&library, e);
}
