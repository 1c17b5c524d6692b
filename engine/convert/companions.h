/* The other files of a Hugging Face folder: configuration, tokenizer, templates. */
#ifndef ENGINE_CONVERT_COMPANIONS_H
#define ENGINE_CONVERT_COMPANIONS_H

#include "engine/base/error.h"

/* Copies them from one folder into another: all regular files except weights, their indexes, and
 * hidden ones. ERR_IO, ERR_MODEL (one is larger than 1 GiB), ERR_MEMORY. */
int companions_copy(const char *in, const char *out, struct error *e);

#endif
