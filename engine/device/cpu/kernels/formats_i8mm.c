/* The NEON dot products compiled with products of two rows and two tokens: see formats_neon.c. */
#include "engine/device/cpu/kernels/formats_neon.c"
