/* Metadata overrides by the user: "KEY=TYPE:VALUE" as in llama.cpp's --override-kv (int, float,
 * bool, str). */
#ifndef ENGINE_FILE_OVERRIDE_H
#define ENGINE_FILE_OVERRIDE_H

#include "engine/base/error.h"
#include "engine/file/tensor.h"

#include <stdint.h>

/* The overrides for an open file: texts as above, in the given order; the last one of a key counts.
 * A key of a GGUF file may begin with "*." for the architecture; one of a folder is the path in
 * config.json ("rope_scaling.factor"). NULL texts: none. */
struct overrides {
    const char *const *texts;
    size_t n;
};

/* Deep copy. ERR_MEMORY; *to needs no release then. */
int overrides_copy(struct overrides *to, const struct overrides *from, struct error *e);
void overrides_release(struct overrides *o); /* of a copy; leaves zeros */
/* Checks the form of every text. ERR_USAGE names the wrong one, and the remedy. */
int overrides_check(const struct overrides *o, struct error *e);
/* META_NONE: not overridden. Strings point into the texts. */
struct meta_value overrides_find(const struct overrides *o, const char *key);
/* 0 if there are none: identifies a model that was read with them. */
uint64_t overrides_hash(const struct overrides *o);

#endif
