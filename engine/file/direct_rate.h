/* How fast a weight file's disk is when it is read here and there, past the page cache, as experts
 * that stay on the disk are (direct_ring.h). Any thread; memory is taken and given back. */
#ifndef ENGINE_FILE_DIRECT_RATE_H
#define ENGINE_FILE_DIRECT_RATE_H

#include "engine/file/weights.h"

/* Bytes a second over about so many milliseconds with `at_once` reads under way (1 to
 * DIRECT_RING_MOST); 0: not known (the file is too small, or cannot be read past the page cache).
 */
double direct_rate(const struct weight_file *f, int at_once, int ms);

#endif
