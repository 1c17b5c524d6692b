/* See dequantise.h. Compiled with its own flags. */
#if defined(__F16C__)
#define DEQUANTISE_ROW dequantise_row_avx2
#include "engine/train/dequantise.inc"
#else
typedef int no_avx2; /* another architecture */
#endif
