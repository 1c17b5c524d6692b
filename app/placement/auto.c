/* --place auto: decides by measurement whether this model should use the GPU here, after an answer,
 * so that nobody waits for it. The engine measures (engine_auto). Thread: the engine's. */
#include "app/placement/auto.h"

#include "app/setup/resolve.h"
#include "engine/base/log.h"

#include <string.h>

int place_auto(struct engine *g, struct error *e)
{
    struct error not_kept = {0};
    int rc = engine_auto_due(g) ? engine_auto(g, NULL, NULL, &not_kept) : 0;

    if (rc == ERR_IO) {
        log_write(LOG_LEVEL_WARNING, "%s", not_kept.text);
    } else if (rc < 0) {
        if (e)
            *e = not_kept;
        return rc;
    }
    return place_apply(g, "auto", e);
}

bool place_auto_due(struct engine *g, const char *place)
{
    return place && strcmp(place, "auto") == 0 && engine_auto_due(g);
}
