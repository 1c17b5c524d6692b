/* See server.h. */
#include "app/serve/common/server.h"

#include "app/serve/common/refusal.h"

int server_ready(const struct server *s, struct refusal *r)
{
    if (atomic_load(&s->ready))
        return 0;
    if (atomic_load(&s->unloaded))
        return refuse(r, 503, "unloaded", NULL,
                      "the model is unloaded: the next request for an answer loads it");
    return refuse(r, 503, "loading", NULL, "the model is being loaded: try again in a moment");
}
