/* See panels_option.h. */
#include "app/setup/screen/panels_option.h"

#include "ui/panels/panel.h"
#include "ui/panels/presets.h"
#include "ui/screen/screen.h"

#include <stdio.h>
#include <string.h>

int panels_option_check(const char *value, struct error *e)
{
    const char *bad = preset_unknown(value);
    char names[200] = "";

    if (!bad)
        return 0;
    for (int i = 0; i < panel_toggles(); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 panels[i]->name);
    return error_set(e, ERR_USAGE,
                     "panels: there is no '%.*s'; sets are all, chat, map and figures, panels are "
                     "%s",
                     (int)strcspn(bad, ","), bad, names);
}

void panels_option_take(struct ui_model *m, const struct options *o)
{
    screen_panels(m, preset_read(m, o->panels));
}

void update_option_take(struct ui_model *m, const struct options *o)
{
    m->settle_ns = (uint64_t)o->update_ms * 1000000;
    m->settle_at = 0;
}
