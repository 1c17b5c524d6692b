/* See mhd.h. */
#include "app/serve/common/mhd.h"

#include <libraries.h>
#include <pthread.h>

#ifdef MOETOP_STATIC
struct mhd mhd = {MHD_FUNCTIONS(LIBRARY_ADDRESS)};

int mhd_open(struct error *e)
{
    return 0;
}
#else
struct mhd mhd;
static struct error failure; /* written once, as the table is */

static void load(void)
{
    static const char *const names[] = {MHD_FUNCTIONS(LIBRARY_NAME) NULL};

    library_load(LIBRARY_MICROHTTPD, "package libmicrohttpd12", names, &mhd, sizeof mhd, &failure);
}

int mhd_open(struct error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return failure.code ? error_set(e, ERR_DEVICE, "%s", failure.text) : 0;
}
#endif
