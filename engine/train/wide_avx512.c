/* See wide.h. Compiled with its own flags. */
#if defined(__F16C__)
#define WIDE wide_avx512
#include "engine/train/wide.inc"
#else
typedef int no_avx512; /* another architecture */
#endif
