/* The table files of this folder, one line each; registry.c lists them. */
#ifndef ENGINE_MODEL_FAMILIES_FAMILIES_H
#define ENGINE_MODEL_FAMILIES_FAMILIES_H

#include "engine/model/family.h"

extern const struct family family_phimoe;

#endif
