/* Every family there is. Constant data. */
#include "engine/model/families/families.h"

#include <stddef.h>

/* clang-format off */
const struct family *const families[] = {
    &family_phimoe,
    &family_llama, &family_mixtral,
    &family_olmoe,
    &family_ernie4_5_moe,
    &family_glm4_moe,
    &family_granitemoe,
    &family_qwen2_moe, &family_qwen3, &family_qwen3_moe,
    &family_qwen3_next, &family_qwen3_5_moe,
    &family_deepseek_v2, &family_deepseek_v3, &family_glm4_moe_lite,
    &family_bailing_hybrid,
    &family_gemma4,
    &family_gpt_oss,
    &family_granitemoehybrid,
    &family_lfm2_moe,
    &family_nemotron_h,
    &family_gpt2, &family_opt,
    NULL,
};
/* clang-format on */
