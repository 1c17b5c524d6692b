/* AVX-512 products of codebook formats with one token, for processors with byte permutations
 * (VBMI): gemv.inc over codebooks_avx512.h. The sums' bits are those of gemv_avx512.c. */
#if defined(__AVX512VBMI__)
#include "engine/device/cpu/kernels/vector_avx512.h"

#include "engine/device/cpu/kernels/unpack.inc"

/* 8, 25, 43 by the lower and by the higher two bits of a nibble. */
static const int8_t codebook_first[16] = {8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0, 8, 25, 43, 0},
                    codebook_second[16] = {8, 8, 8, 8, 25, 25, 25, 25, 43, 43, 43, 43, 0, 0, 0, 0};

#include "engine/device/cpu/kernels/codebooks_avx512.h"

INLINE bool is_whole(enum dtype type)
{
    return true;
}

INLINE vf gemv_block(enum dtype type, const uint8_t *superblock, struct superblock_scales *sb,
                     int j, const struct act_block *a, vf acc)
{
    struct unpacked_block b;

    read_block_scales(type, superblock, VL, 0, sb, j, &b);
    return add_block(
        type, &b, vi_to_vf(codebook_sum(type, block_data(type, superblock, VL, j), j, a)), a, acc);
}

#include "engine/device/cpu/kernels/gemv.inc"

#define CODEBOOK(id, name)                                                                    \
    void gemv_##name##_vbmi(const struct kernel_gemv *s, int cols, const struct act_block *a) \
    {                                                                                         \
        gemv_any(DTYPE_##id, s, cols, a);                                                     \
    }
CODEBOOK_FORMATS
#endif
