/* The searches of quantize.c compiled for AVX2; called only where the CPU has it. */
#include "engine/layout/quantize_search.h"

#if defined(__AVX2__)
#include <math.h>

#include "engine/layout/quantize_search.inc"

const struct quantise_search quantise_search_avx2 = {fit_symmetric, fit_affine, fit_codebook};
#endif
