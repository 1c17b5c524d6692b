/* What lies in a Hugging Face folder beside its weights: configuration, tokenizer, templates. */
#ifndef ENGINE_CONVERT_COMPANIONS_H
#define ENGINE_CONVERT_COMPANIONS_H

#include "engine/base/error.h"

/* Copies them from one folder into another: all regular files that are neither weights nor say
 * where those are, nor hidden. ERR_IO, ERR_MODEL (one is larger than 1 GiB), ERR_MEMORY. */
int companions_copy(const char *in, const char *out, struct error *e);

#endif
