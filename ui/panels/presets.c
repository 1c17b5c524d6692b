/* See presets.h. */
#include "ui/panels/presets.h"

#include "ui/panels/panel.h"

#include <string.h>

/* all: those open initially */
static const struct {
    const char *name, *panels;
} presets[] = {
    {"all", NULL},
    {"chat", ""},
    {"map", "experts,tokens"},
    {"figures", "speed,memory,devices,placement,server"},
};

#define PRESETS ((int)(sizeof presets / sizeof presets[0]))

const char *preset_name(int k)
{
    return k >= 0 && k < PRESETS ? presets[k].name : NULL;
}

static unsigned at_start(const struct ui_model *m)
{
    unsigned bits = 0;

    for (int i = 0; i < PANEL_COUNT; i++)
        if (panels[i]->open && panel_there(m, i))
            bits |= 1u << i;
    return bits;
}

/* Panels shown in the chat's place on a dashboard are not closed by a set. */
static unsigned on_stage(const struct ui_model *m)
{
    unsigned bits = 0;

    for (int i = 0; i < PANEL_COUNT; i++)
        if (panel_there(m, i) && panel_on_stage(panels[i]))
            bits |= m->open_panels & 1u << i;
    return bits;
}

/* The panel whose name starts the list, -1: none. */
static int panel_at(const char *list)
{
    size_t n = strcspn(list, ",");

    for (int i = 0; i < panel_toggles(); i++)
        if (strncmp(panels[i]->name, list, n) == 0 && !panels[i]->name[n])
            return i;
    return -1;
}

static const char *next(const char *list)
{
    list += strcspn(list, ",");
    return list + (*list == ',');
}

static unsigned list_read(const struct ui_model *m, const char *list)
{
    unsigned bits = on_stage(m);

    for (; *list; list = next(list)) {
        int i = panel_at(list);

        bits |= i >= 0 && panel_there(m, i) ? 1u << i : 0;
    }
    return bits;
}

unsigned preset_panels(const struct ui_model *m, int k)
{
    return presets[k].panels ? list_read(m, presets[k].panels) : at_start(m) | on_stage(m);
}

int preset_open(const struct ui_model *m)
{
    for (int k = 0; k < PRESETS; k++)
        if (preset_panels(m, k) == m->open_panels)
            return k;
    return -1;
}

static int preset_find(const char *name)
{
    int k = 0;

    while (k < PRESETS && strcmp(presets[k].name, name) != 0)
        k++;
    return k < PRESETS ? k : -1;
}

const char *preset_unknown(const char *what)
{
    if (preset_find(what) >= 0)
        return NULL;
    while (*what && panel_at(what) >= 0)
        what = next(what);
    return *what ? what : NULL;
}

unsigned preset_read(const struct ui_model *m, const char *what)
{
    int k = preset_find(what);

    return k >= 0 ? preset_panels(m, k) : list_read(m, what);
}
