/* See drafter.h. */
#include "engine/run/draft/drafter.h"

#include <assert.h>
#include <string.h>

#define DRAFTER(name, table) extern const struct drafter_ops table;
#include "engine/run/draft/drafters.def"
#undef DRAFTER

static const struct drafter_ops *const tables[] = {
#define DRAFTER(name, table) &table,
#include "engine/run/draft/drafters.def"
#undef DRAFTER
};

const struct drafter_ops *drafter_ops(enum drafter_kind kind)
{
    assert(kind < DRAFTER_COUNT);
    return tables[kind];
}

enum drafter_kind drafter_find(const char *name)
{
    int i = 0;

    while (i < DRAFTER_COUNT && strcmp(tables[i]->name, name) != 0)
        i++;
    return (enum drafter_kind)i;
}
