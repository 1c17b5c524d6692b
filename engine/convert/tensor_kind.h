/* Classifies a tensor of a GGUF file for quantisation, by its name and shape alone, as llama.cpp's
 * llama-quantize does: so files of any family can be quantised. Pure; any thread. */
#ifndef ENGINE_CONVERT_TENSOR_KIND_H
#define ENGINE_CONVERT_TENSOR_KIND_H

#include "engine/file/tensor.h"
#include "engine/model/family.h"

#include <stdbool.h>

/* Whether it is quantised: matrices are, except routers, norms, convolutions and positions. */
bool tensor_kind_rounded(const struct tensor_view *t);
/* Its role in a mix (engine/model/mix.h), TENSOR_Q if none has special rules; *layer: from its
 * name, 0. */
enum tensor_role tensor_kind_role(const char *name, int *layer);

#endif
