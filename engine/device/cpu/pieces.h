/* Size of the pieces in which threads divide one row's products with a layer's experts. Longer
 * contiguous reads are faster: after a jump the processor's prefetchers need about as long to
 * restart as reading 20 KB takes. But a phase ends with its slowest thread, so every thread gets
 * several pieces, as near its share as can be. */
#ifndef ENGINE_DEVICE_CPU_PIECES_H
#define ENGINE_DEVICE_CPU_PIECES_H

#define PIECE_UNITS_MOST 32 /* of CPU_UNIT rows */

/* Units per piece, for `matrices` matrices of `units` units each, and one of `further` units (0:
 * none); 1 .. PIECE_UNITS_MOST. share: of each thread (pool_shares_set); NULL: equal. */
int piece_units(int matrices, int units, int further, const int *share, int threads);

#endif
