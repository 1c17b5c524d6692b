/* See fetch_mode.h. */
#include "app/headless/fetch_mode.h"

#include <stdio.h>

bool fetch_wanted(const struct options *o)
{
    return o->fetch;
}

int fetch_run(struct options *o, struct error *e)
{
    if (!o->hf_repo)
        return error_set(e, ERR_USAGE, "--fetch needs -hf USER/REPO[:QUANT]");
    puts(o->model);
    return 0;
}
