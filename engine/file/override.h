/* Metadata that a user gives in place of a file's own: "KEY=TYPE:VALUE" as llama.cpp's
 * --override-kv has it (int, float, bool, str). */
#ifndef ENGINE_FILE_OVERRIDE_H
#define ENGINE_FILE_OVERRIDE_H

#include "engine/base/error.h"
#include "engine/file/tensor.h"

#include <stdint.h>

/* What a file is opened with instead: texts as above, in the order in which they were given; the
 * last one of a key counts. A key of a GGUF file may begin with "*." in place of the architecture;
 * one of a folder is the path in config.json ("rope_scaling.factor"). NULL texts: none. */
struct overrides {
    const char *const *texts;
    size_t n;
};

/* *to becomes a copy of its own, also of the texts. ERR_MEMORY; nothing is to be released then. */
int overrides_copy(struct overrides *to, const struct overrides *from, struct error *e);
void overrides_release(struct overrides *o); /* of a copy; leaves zeros */
/* Every text is of that form. ERR_USAGE names the one that is not, and the remedy. */
int overrides_check(const struct overrides *o, struct error *e);
/* META_NONE: none of them is this key's. Strings point into the texts. */
struct meta_value overrides_find(const struct overrides *o, const char *key);
/* 0 without any: identifies a model that was read with them. */
uint64_t overrides_hash(const struct overrides *o);

#endif
