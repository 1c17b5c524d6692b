/* What AVX-512 kernels read from the packed formats (formats.h; Q8_0 and Q4_0:
 * engine/layout/matrix.h): scales, factors and codes of 16 rows, one a lane. Included by the files
 * compiled with AVX-512's flags: formats_avx512.c multiplies what it gets in vector registers,
 * kernels_amx_avx512.c hands it to the matrix superblock. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_UNPACK_AVX512_H
#define ENGINE_DEVICE_CPU_KERNELS_UNPACK_AVX512_H

#include "engine/device/cpu/kernels/formats.h"
#include "engine/file/blocks.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* What the blocks of a superblock share. */
struct superblock_scales {
    __m512 d, m;
    __m512i scales[2], mins[2]; /* Q4_K, Q5_K: four bytes a lane */
    __m512i halves[4];          /* Q6_K */
};

INLINE __m512 halves_at(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

INLINE void read_superblock_scales(enum dtype type, const uint8_t *superblock,
                                   struct superblock_scales *sb)
{
    sb->d = halves_at(superblock);
    if (format_has_min(type))
        sb->m = halves_at(superblock + 32);
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
        __m512i s = _mm512_loadu_si512(superblock + 64), m = _mm512_loadu_si512(superblock + 128),
                both = _mm512_loadu_si512(superblock + 192);
        __m512i six = _mm512_set1_epi8(63), four = _mm512_set1_epi8(15), top = _mm512_set1_epi8(48);

        sb->scales[0] = _mm512_and_si512(s, six);
        sb->mins[0] = _mm512_and_si512(m, six);
        sb->scales[1] = _mm512_or_si512(_mm512_and_si512(both, four),
                                        _mm512_and_si512(_mm512_srli_epi16(s, 2), top));
        sb->mins[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(both, 4), four),
                                      _mm512_and_si512(_mm512_srli_epi16(m, 2), top));
    }
    if (type == DTYPE_Q6_K)
        for (int k = 0; k < 4; k++)
            sb->halves[k] = _mm512_loadu_si512(superblock + 32 + 64 * k);
}

/* Byte j of each lane as a number: one shuffle whose other bytes are zero (index bit 7). */
INLINE __m512 byte_of(__m512i x, int j)
{
    static const uint8_t index[4][16] = {
#define LANES(j) \
    {j, 128, 128, 128, j + 4, 128, 128, 128, j + 8, 128, 128, 128, j + 12, 128, 128, 128}
        LANES(0), LANES(1), LANES(2), LANES(3)
#undef LANES
    };

    return _mm512_cvtepi32_ps(
        _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)index[j]))));
}

INLINE __m512 signed_byte_of(__m512i x, int j)
{
    return _mm512_cvtepi32_ps(
        _mm512_srai_epi32(_mm512_sll_epi32(x, _mm_cvtsi32_si128(24 - 8 * j)), 24));
}

/* Words k and k + 4 of a block (k < 4), not of Q6_K: the low and the high nibbles of the same
 * bytes. */
INLINE void unpack_two(enum dtype type, const uint8_t *block, int k, __m512i *low, __m512i *high)
{
    const uint8_t *payload = block + (format_block_bytes(type) - 16) * 16;
    __m512i x = _mm512_loadu_si512(payload + 64 * k), nibble = _mm512_set1_epi8(15);

    *low = _mm512_and_si512(x, nibble);
    *high = _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble);
    if (type == DTYPE_IQ4_NL) {
        __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(
                                             _mm_loadu_si128((const void *)blocks_iq4_values)),
                                         _mm512_set1_epi8((char)0x80));

        *low = _mm512_shuffle_epi8(table, *low);
        *high = _mm512_shuffle_epi8(table, *high);
    }
    if (format_has_high(type)) {
        __mmask64 mask[2];

        memcpy(&mask[0], block + 8 * k, 8);
        memcpy(&mask[1], block + 8 * (k + 4), 8);
        *low = _mm512_mask_add_epi8(*low, mask[0], *low, _mm512_set1_epi8(16));
        *high = _mm512_mask_add_epi8(*high, mask[1], *high, _mm512_set1_epi8(16));
    }
}

/* The eight words of a block as unsigned bytes: format_zero() lies at zero. */
INLINE void unpack(enum dtype type, const uint8_t *block, __m512i w[8])
{
    const uint8_t *payload = block + (format_block_bytes(type) - 16) * 16;
    __m512i nibble = _mm512_set1_epi8(15);

    if (type == DTYPE_Q8_0) {
        for (int k = 0; k < 8; k++)
            w[k] = _mm512_loadu_si512(block + 64 * k);
        return;
    }
    for (int k = 0; k < 4; k++) {
        __m512i x = _mm512_loadu_si512(payload + 64 * k);

        w[k] = _mm512_and_si512(x, nibble);
        w[4 + k] = _mm512_and_si512(_mm512_srli_epi16(x, 4), nibble);
    }
    if (type == DTYPE_IQ4_NL) {
        __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(
                                             _mm_loadu_si128((const void *)blocks_iq4_values)),
                                         _mm512_set1_epi8((char)0x80));

        for (int k = 0; k < 8; k++)
            w[k] = _mm512_shuffle_epi8(table, w[k]);
    }
    if (format_has_high(type))
        for (int k = 0; k < 8; k++) {
            __mmask64 mask;

            memcpy(&mask, block + 8 * k, 8);
            w[k] = _mm512_mask_add_epi8(w[k], mask, w[k], _mm512_set1_epi8(16));
        }
    if (type == DTYPE_Q6_K) {
        __m512i top = _mm512_set1_epi8(48);

        for (int h = 0; h < 2; h++) {
            __m512i x = _mm512_loadu_si512(block + 64 * h);

            w[4 * h] = _mm512_or_si512(w[4 * h], _mm512_and_si512(_mm512_slli_epi16(x, 4), top));
            w[4 * h + 1] = _mm512_or_si512(w[4 * h + 1],
                                           _mm512_and_si512(_mm512_slli_epi16(x, 2), top));
            w[4 * h + 2] = _mm512_or_si512(w[4 * h + 2], _mm512_and_si512(x, top));
            w[4 * h + 3] = _mm512_or_si512(w[4 * h + 3],
                                           _mm512_and_si512(_mm512_srli_epi16(x, 2), top));
        }
    }
}

/* What one block of one group brings to all tokens. */
struct unpacked_block {
    __m512i w[8];
    __m512 d, m, f0, f1;
};

INLINE void read_block_scales(enum dtype type, const struct superblock_scales *sb, int j,
                              struct unpacked_block *b)
{
    b->d = sb->d;
    if (type == DTYPE_Q4_1 || type == DTYPE_Q5_1)
        b->m = sb->m;
    if (type == DTYPE_Q4_K || type == DTYPE_Q5_K) {
        b->d = _mm512_mul_ps(sb->d, byte_of(sb->scales[j / 4], j & 3));
        b->m = _mm512_mul_ps(sb->m, byte_of(sb->mins[j / 4], j & 3)); /* subtracted below */
    }
    if (type == DTYPE_Q6_K) {
        b->f0 = signed_byte_of(sb->halves[j / 2], j % 2 * 2);
        b->f1 = signed_byte_of(sb->halves[j / 2], j % 2 * 2 + 1);
    }
}

INLINE void read_block(enum dtype type, const uint8_t *data, const struct superblock_scales *sb,
                       int j, struct unpacked_block *b)
{
    read_block_scales(type, sb, j, b);
    unpack(type, data, b->w);
}

#endif
