/* The NEON kernels compiled once more with those of matrices and of BF16: see kernels_neon.c. */
#include "engine/device/cpu/kernels/kernels_neon.c"
