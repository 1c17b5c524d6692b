/* The list of families, from registry.def. Constant data. */
#include "engine/model/families/families.h"

#include <stddef.h>

const struct family *const families[] = {
#define FAMILY(name) &family_##name,
#include "engine/model/families/registry.def"
#undef FAMILY
    NULL};
