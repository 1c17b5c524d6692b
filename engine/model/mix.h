/* The type of each matrix when a model is quantised: the mixes of llama.cpp's llama-quantize
 * (src/llama-quant.cpp), so that files of the same name have the same types here and there, and
 * converting while loading gives the contents of such a file. Pure; any thread. */
#ifndef ENGINE_MODEL_MIX_H
#define ENGINE_MODEL_MIX_H

#include "engine/model/family.h"

#include <stdbool.h>

/* Suffix of a mix's type name: q3_k_s, _m, _l; `experts`: only experts have the type, everything
 * else Q8_0. */
enum mix_size { MIX_PLAIN, MIX_SMALL, MIX_MEDIUM, MIX_LARGE, MIX_EXPERTS };

struct mix {
    enum dtype base; /* of most matrices; a float type: of all */
    enum mix_size size;
    bool importance; /* an importance matrix is used */
};

/* cols: of the matrix; a type whose block does not divide them is replaced. */
enum dtype mix_type(struct mix mix, const struct hparams *hp, enum tensor_role role, int layer,
                    int cols);
/* Replacement of a type whose block does not divide so many columns; the type itself if it does. */
enum dtype mix_fallback(enum dtype type, int cols);

#endif
