/* Where models are on a machine: given folders, and the caches of programs that download them
 * (Hugging Face, LM Studio, llama.cpp). Found by name, as model_files.h. Main thread (the
 * environment is read). */
#ifndef APP_COMMON_MODEL_PLACES_H
#define APP_COMMON_MODEL_PLACES_H

#include "app/common/model_files.h"

/* All models below the n given folders, then below the caches that exist. A given folder that
 * cannot be listed is an error, a cache is skipped. f: {0} before, sorted by path after; release in
 * any case. Errors of model_files_find. */
int model_places_find(struct model_files *f, char *const *folders, size_t n, struct error *e);
/* Its usual name: "org/name" or "org/name/file.gguf" of a hub's cache, else the last folder and the
 * file's name. Control characters are left out. */
void model_places_name(const char *path, char *out, size_t size);
/* The one they mean by what they typed: its number from 1 as it was listed, a name or a part of
 * one, a path. NULL: none, or several, which `e` tells (ERR_USAGE). */
const char *model_places_meant(const struct model_files *f, const char *typed, struct error *e);

#endif
