/* Which type each matrix of a model gets when its weights are rounded: the mixes of llama.cpp's
 * llama-quantize (src/llama-quant.cpp), so that files of the same name hold the same types here and
 * there, and converting while loading gives what such a file holds. Pure; any thread. */
#ifndef ENGINE_MODEL_MIX_H
#define ENGINE_MODEL_MIX_H

#include "engine/model/family.h"

#include <stdbool.h>

struct mix {
    enum dtype base; /* of most matrices; a float type: of all */
    bool medium;     /* the _M mixes: values and down projections of some layers Q6_K */
};

/* cols: of the matrix, for a block that does not divide them is replaced. */
enum dtype mix_type(struct mix mix, const struct hparams *hp, enum tensor_role role, int layer,
                    int cols);

#endif
