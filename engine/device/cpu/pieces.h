/* How large the pieces are in which the threads share out one row's products with a layer's
 * experts. Memory is read the faster the longer a thread goes on in one place: where it jumps, the
 * processor's prefetchers learn anew, which takes about as long as reading 20 KB does. But a phase
 * ends with its slowest thread, so every thread gets several pieces, as equal a share as can be. */
#ifndef ENGINE_DEVICE_CPU_PIECES_H
#define ENGINE_DEVICE_CPU_PIECES_H

#define PIECE_UNITS_MOST 32 /* of CPU_UNIT rows */

/* Units of a piece of `matrices` matrices of `units` units each, and of one of `further` units (0:
 * there is none); 1 .. PIECE_UNITS_MOST. */
int piece_units(int matrices, int units, int further, int threads);

#endif
