/* Every family there is. Constant data. */
#include "engine/model/families/families.h"

#include <stddef.h>

const struct family *const families[] = {&family_phimoe,
                                         &family_llama,
                                         &family_mixtral,
                                         &family_olmoe,
                                         &family_qwen2_moe,
                                         &family_qwen3,
                                         &family_qwen3_moe,
                                         &family_ernie4_5_moe,
                                         &family_glm4_moe,
                                         &family_granitemoe,
                                         NULL};
