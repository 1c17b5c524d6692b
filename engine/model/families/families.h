/* The table files of this folder, one line each; registry.c lists them. */
#ifndef ENGINE_MODEL_FAMILIES_FAMILIES_H
#define ENGINE_MODEL_FAMILIES_FAMILIES_H

#include "engine/model/family.h"

extern const struct family family_ernie4_5_moe;
extern const struct family family_glm4_moe;
extern const struct family family_granitemoe;
extern const struct family family_llama, family_mixtral;
extern const struct family family_olmoe;
extern const struct family family_phimoe;
extern const struct family family_qwen2_moe, family_qwen3, family_qwen3_moe;

#endif
