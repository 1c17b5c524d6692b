/* Speed of random reads of a weight file's disk, bypassing the page cache, as for experts that stay
 * on disk (direct_ring.h). Any thread; memory is temporary. */
#ifndef ENGINE_FILE_DIRECT_RATE_H
#define ENGINE_FILE_DIRECT_RATE_H

#include "engine/file/weights.h"

/* Measures for about ms milliseconds, with `at_once` reads in flight (1 to DIRECT_RING_MOST).
 * Returns bytes per second; 0: not measured (the file is too small, O_DIRECT is not supported, a
 * read failed, or memory ran out). */
double direct_rate(const struct weight_file *f, int at_once, int ms);

#endif
