/* Prefetch distances of the kernels: every distance of every set, in bytes unless stated otherwise.
 * FAR goes to the second-level cache, NEAR to the first; a single one is the far one. Measured;
 * results are noted where it is used. Reads for one token have a configurable pattern
 * (patterns.def). Two special reads have no number here: float GEMM prefetches the next block of
 * columns (float.inc), raw_avx512.c the next sixteen rows. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_PREFETCH_H
#define ENGINE_DEVICE_CPU_KERNELS_PREFETCH_H

/* weights, several tokens */
#define PREFETCH_AVX512_GEMM_FAR 2880
#define PREFETCH_AVX512_GEMM_NEAR 1152
#define PREFETCH_AVX2_GEMM 4096 /* with one or two tokens */
#define PREFETCH_AMX_GEMM 4096
#define PREFETCH_NEON_GEMM 4096 /* as AVX2, not measured */
/* the router's four quarters */
#define PREFETCH_ROUTER_FAR 3072
#define PREFETCH_ROUTER_NEAR 1024
/* keys and values: tokens; NEAR is one block of keys */
#define PREFETCH_TOKENS_FAR 64
#define PREFETCH_TOKENS_NEAR 16
/* struct kernels.read: to the first level */
#define PREFETCH_READ 1024

#endif
