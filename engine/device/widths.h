/* Widths that the rules of numerics.h are written in. */
#ifndef ENGINE_DEVICE_WIDTHS_H
#define ENGINE_DEVICE_WIDTHS_H

#define NUM_BLOCK 32  /* columns of an activation block */
#define NUM_CHUNK 256 /* tokens of one partial sum of values */
#define NUM_LANES 16  /* lanes of rule 4; tokens interleaved in the key cache */

#endif
