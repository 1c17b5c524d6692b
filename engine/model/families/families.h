/* The table files of this folder, one line each; registry.c lists them. */
#ifndef ENGINE_MODEL_FAMILIES_FAMILIES_H
#define ENGINE_MODEL_FAMILIES_FAMILIES_H

#include "engine/model/family.h"

extern const struct family family_bailing_hybrid;
extern const struct family family_deepseek_v2, family_deepseek_v3, family_glm4_moe_lite;
extern const struct family family_ernie4_5_moe;
extern const struct family family_gemma4;
extern const struct family family_glm4_moe;
extern const struct family family_gpt2, family_opt;
extern const struct family family_gpt_oss;
extern const struct family family_granitemoe;
extern const struct family family_granitemoehybrid;
extern const struct family family_lfm2_moe;
extern const struct family family_llama, family_mixtral;
extern const struct family family_nemotron_h;
extern const struct family family_olmoe;
extern const struct family family_phimoe;
extern const struct family family_qwen2_moe, family_qwen3, family_qwen3_moe;
extern const struct family family_qwen3_next, family_qwen3_5_moe;

#endif
