/* The AVX2 kernels compiled once more with AVX-VNNI (client processors since 2021): see
 * kernels_avx2.c. */
#if defined(__AVXVNNI__)
#include "engine/device/cpu/kernels/kernels_avx2.c"
#endif
