/* The NEON dot products compiled once more with products of four bytes: see formats_neon.c. */
#include "engine/device/cpu/kernels/formats_neon.c"
