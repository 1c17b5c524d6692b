/* The AVX2 dot products compiled once more with AVX-VNNI: see formats_avx2.c. */
#if defined(__AVXVNNI__)
#include "engine/device/cpu/kernels/formats_avx2.c"
#endif
