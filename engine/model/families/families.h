/* The table files of this folder; registry.def lists them. */
#ifndef ENGINE_MODEL_FAMILIES_FAMILIES_H
#define ENGINE_MODEL_FAMILIES_FAMILIES_H

#include "engine/model/family.h"

#define FAMILY(name) extern const struct family family_##name;
#include "engine/model/families/registry.def"
#undef FAMILY

#endif
