/* --lens: what the tokens of an answer were made of, as one safetensors file (moetop-lab(7)). The
 * engine's thread, which is the main one. */
#ifndef APP_LAB_LENS_DUMP_H
#define APP_LAB_LENS_DUMP_H

#include "app/options/options.h"
#include "engine/run/engine.h"

/* The flags against the mode of this name (app/modes.h). ERR_USAGE. */
int lens_check(const struct options *o, const char *mode, struct error *e);
/* Of the n tokens that the chat's session holds those from `from` on (at least 1), each as the
 * target of the position before it. swaps: also what each layer's runner-up would have made of it.
 * Replaces the file at its end. The session holds the same tokens afterwards. ERR_USAGE: there is
 * no such token, ERR_IO, ERR_MEMORY, errors of engine_lens. */
int lens_dump(struct engine *g, int from, bool swaps, const char *path, struct error *e);

#endif
