/* The NEON kernels compiled once more with products of four bytes: see kernels_neon.c. */
#include "engine/device/cpu/kernels/kernels_neon.c"
