/* Integer sums of a block's codes times one token's, 16 rows, one per lane, for formats that are
 * faster without unpacking their codes word by word (words in formats.def): GEMM unpacks a block
 * once for many tokens (unpack_words.inc), which a single token does not amortise. Integers are
 * exact, so the sums are the same. Included by gemv_avx512.c after unpack.inc. Pure functions. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_SUMS_AVX512_H
#define ENGINE_DEVICE_CPU_KERNELS_SUMS_AVX512_H

/* TQ2_0: the sums of four blocks, which share words: the codes of the i-th are shifted up by 2 * i
 * bits. Sums are computed from the shifted codes, and shifted down once. */
INLINE void two_bit_sums(const uint8_t *words, const struct act_block *a, vi sum[4])
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sum[i] = vi_set1(0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        vi x = vi_load(words + 64 * k);

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[i] = vi_dp4(sum[i], vi_and(x, vi_set1_byte(3 << 2 * i)),
                            vi_broadcast(a[i].q + 4 * k));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sum[i] = vi_add(_mm512_srai_epi32(sum[i], 2 * i),
                        vi_set1(format_sum_start(DTYPE_TQ2_0, &a[i])));
}

/* Both halves' sums of four blocks of Q2_K, 2 * i bits up. */
INLINE void q2_k_sums(const uint8_t *words, const struct act_block *a, vi sum[2][4])
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        sum[i / 4][i % 4] = vi_set1(0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        vi x = vi_load(words + 64 * k);

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            sum[k / 4][i] = vi_dp4(sum[k / 4][i], vi_and(x, vi_set1_byte(3 << 2 * i)),
                                   vi_broadcast(a[i].q + 4 * k));
    }
}

/* Q3_K: a half's sums, those of block j shifted up by q3_k_up(j) bits. The words are transposed
 * (engine/layout/turned.h). */
INLINE int q3_k_up(const int j)
{
    return j >= 6 ? 6 : j % 2 * 3;
}

INLINE void q3_k_half(const uint8_t *words, const struct act_block *a, const int h, vi sum[8])
{
    vi third[2] = {vi_set1(0), vi_set1(0)}; /* of the last two blocks */

#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        sum[j] = vi_set1(0);
#pragma GCC unroll 4
    for (int k = 4 * h; k < 4 * h + 4; k++) {
        vi x[3] = {vi_load(words + 64 * (3 * k)), vi_load(words + 64 * (3 * k + 1)),
                   vi_load(words + 64 * (3 * k + 2))};

#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            vi q = vi_broadcast(a[j].q + 4 * k),
               code = vi_and(x[j < 6 ? j / 2 : j - 6], vi_set1_byte((j < 6 ? 7 : 3) << q3_k_up(j)));

            sum[j] = vi_dp4(sum[j], code, q);
            if (j >= 6)
                third[j - 6] = vi_dp4(third[j - 6], vi_and(x[2], vi_set1_byte(1 << j)), q);
        }
    }
    sum[6] = vi_add(sum[6], _mm512_slli_epi32(third[0], 2));
    sum[7] = vi_add(sum[7], vi_add(third[1], third[1]));
}

/* Both halves' sums, `up` bits up, as pairs of 16 bits. */
INLINE vi lowered_pair(vi first, vi second, const int up)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, up ? _mm512_srai_epi32(first, (unsigned)up) : first,
                                   _mm512_slli_epi32(second, (unsigned)(16 - up)));
}

/* Both halves' sums of codes, paired: of four blocks of Q2_K, of a superblock's of Q3_K. */
INLINE void q2_k_pairs(const uint8_t *words, const struct act_block *a, vi pair[4])
{
    vi sum[2][4];

    q2_k_sums(words, a, sum);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = lowered_pair(sum[0][i], sum[1][i], 2 * i);
}

INLINE void q3_k_pairs(const uint8_t *words, const struct act_block *a, vi pair[8])
{
    vi sum[2][8];

    q3_k_half(words, a, 0, sum[0]);
    q3_k_half(words, a, 1, sum[1]);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        pair[j] = lowered_pair(sum[0][j], sum[1][j], q3_k_up(j));
}

/* The halves' sums times their factors, added. Codes of Q3_K are 4 above their values. */
INLINE vi factored(enum dtype type, vi pair, const struct unpacked_block *b,
                   const struct act_block *a)
{
    vi sum = vi_dp2(pair, b->pair);

    if (format_of[type].zero)
        sum = _mm512_dpwssd_epi32(sum, vi_set1(activation_pair(a, -format_of[type].zero)), b->pair);
    return sum;
}

/* One word of TQ1_0 and its n digits, the i-th for the four activations at q[i]. A byte is a
 * fraction of 256; its next digit is the carry of three times the byte over 256, and the rest is
 * the following fraction. So digit = (3 * byte - rest) / 256: both are multiplied, and the
 * difference of the sums is divided once. */
INLINE void ternary_word(const uint8_t *word, const int n, const int8_t *const q[5], vi bytes[5],
                         vi rests[5])
{
    vi b = vi_load(word);

#pragma GCC unroll 5
    for (int i = 0; i < n; i++) {
        vi x = vi_broadcast(q[i]);

        bytes[i] = vi_dp4(bytes[i], b, x);
        b = vi_add_bytes(vi_add_bytes(b, b), b);
        rests[i] = vi_dp4(rests[i], b, x);
    }
}

INLINE vi ternary_sum(vi bytes, vi rests, const struct act_block *a)
{
    vi thrice = vi_add(vi_add(bytes, bytes), bytes);

    return vi_add(_mm512_srai_epi32(vi_sub(thrice, rests), 8),
                  vi_set1(format_sum_start(DTYPE_TQ1_0, a)));
}

/* All blocks of a superblock of TQ1_0 together: a word has a digit for each of five. */
INLINE void ternary_sums(const uint8_t *words, const struct act_block *a, vi sum[8])
{
    const int8_t *const last[5] = {a[7].q + 16, a[7].q + 20, a[7].q + 24, a[7].q + 28};
    vi bytes[5], rests[5], byte[5], rest[5];

    for (int i = 0; i < 5; i++)
        bytes[i] = rests[i] = byte[i] = rest[i] = vi_set1(0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        const int8_t *const q[5] = {a[0].q + 4 * k, a[1].q + 4 * k, a[2].q + 4 * k, a[3].q + 4 * k,
                                    a[4].q + 4 * k};

        ternary_word(words + 64 * k, 5, q, bytes, rests);
    }
    for (int i = 0; i < 5; i++) {
        sum[i] = ternary_sum(bytes[i], rests[i], &a[i]);
        bytes[i] = rests[i] = vi_set1(0);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const int8_t *const q[5] = {a[5].q + 4 * k, a[5].q + 16 + 4 * k, a[6].q + 4 * k,
                                    a[6].q + 16 + 4 * k, a[7].q + 4 * k};

        ternary_word(words + 64 * (8 + k), 5, q, bytes, rests);
    }
    ternary_word(words + 64 * 12, 4, last, byte, rest);
    for (int i = 0; i < 4; i++) {
        bytes[4] = vi_add(bytes[4], byte[i]);
        rests[4] = vi_add(rests[4], rest[i]);
    }
    for (int i = 0; i < 2; i++)
        sum[5 + i] = ternary_sum(vi_add(bytes[2 * i], bytes[2 * i + 1]),
                                 vi_add(rests[2 * i], rests[2 * i + 1]), &a[5 + i]);
    sum[7] = ternary_sum(bytes[4], rests[4], &a[7]);
}

/* ---- codebooks: points of eight columns, those of eight rows side by side ---- */

/* Point i of eight rows, 32 bits each in `index`. Loads one by one: a gather takes longer. */
INLINE vi eight_points(const uint32_t *grid, const uint32_t *index)
{
    __m128i pair[4];

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = _mm_castpd_si128(_mm_loadh_pd(
            _mm_castsi128_pd(_mm_loadl_epi64((const void *)(grid + 2 * (size_t)index[2 * i]))),
            (const void *)(grid + 2 * (size_t)index[2 * i + 1])));
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_inserti128_si256(
                                  _mm256_castsi128_si256(pair[0]), pair[1], 1)),
                              _mm256_inserti128_si256(_mm256_castsi128_si256(pair[2]), pair[3], 1),
                              1);
}

/* Byte l of all lanes' words, in row order, 16 bytes for each l: the bytes of eight rows' eight
 * signs form a mask. */
INLINE void store_by_byte(vi x, uint8_t out[64])
{
    const vi order = _mm512_broadcast_i32x4(
                 _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)),
             lanes = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    _mm512_storeu_si512(out, _mm512_permutexvar_epi32(lanes, _mm512_shuffle_epi8(x, order)));
}

/* Eight activations for every row. */
INLINE vi eight_broadcast(const int8_t *q)
{
    int64_t x;

    memcpy(&x, q, 8);
    return _mm512_set1_epi64(x);
}

/* Joins the two lanes of each of eight rows to one lane of 16 rows. */
INLINE vi join_lanes(const vi s[2])
{
    const vi even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);

    return vi_add(_mm512_permutex2var_epi32(s[0], even, s[1]),
                  _mm512_permutex2var_epi32(s[0], vi_add(even, vi_set1(1)), s[1]));
}

/* IQ2: the sums of both halves of block j. Signs negate activations, which are never -128. */
INLINE void iq2_sums(enum dtype type, const uint8_t *words, int j, const struct act_block *a,
                     vi sum[2])
{
    const uint32_t *grid = type == DTYPE_IQ2_XXS  ? grid_iq2_xxs
                           : type == DTYPE_IQ2_XS ? grid_iq2_xs
                                                  : grid_iq2_s;
    _Alignas(64) uint32_t index[4][16];
    _Alignas(64) uint64_t minus[4][2];

    store_by_byte(iq2_signs(type, words, VL, 0, j), (uint8_t *)minus);
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++)
        _mm512_store_si512(index[l], iq2_index(type, words, VL, 0, j, l));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vi s[2] = {vi_set1(0), vi_set1(0)};

#pragma GCC unroll 2
        for (int l = 2 * half; l < 2 * half + 2; l++) {
            vi q = eight_broadcast(a->q + 8 * l);

#pragma GCC unroll 2
            for (int rows = 0; rows < 2; rows++)
                s[rows] = vi_dp4(s[rows], eight_points(grid, index[l] + 8 * rows),
                                 _mm512_mask_sub_epi8(q, minus[l][rows], vi_set1(0), q));
        }
        sum[half] = join_lanes(s);
    }
}

/* IQ1: numbers of a superblock's points, four of rows 0, 1, 4, 5 and so on, then of the others.
 * They are made long before they are read one by one: loads just behind a vector's store wait. */
INLINE void iq1_join(enum dtype type, const uint8_t *words, uint16_t (*joined)[2 * VL])
{
    const int step = type == DTYPE_IQ1_S ? 3 : 4;

    for (int j = 0; j < 8; j++) {
        vi low = superblock_word(words, VL, 0, j), high = superblock_half(words, VL, 0, 16 + j),
           above = vi_set1(0);

#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            above = vi_or(above, vi_and(vi_word_up(high, (8 - step) * k), vi_set1(7 << 8 * k)));
        _mm512_store_si512(joined[2 * j], _mm512_unpacklo_epi8(low, above));
        _mm512_store_si512(joined[2 * j + 1], _mm512_unpackhi_epi8(low, above));
    }
    __asm__("" ::: "memory");
}

/* Point l of eight rows. */
INLINE vi iq1_points(const uint16_t (*joined)[2 * VL], const int l, const int rows)
{
    uint32_t index[8];

#pragma GCC unroll 8
    for (int r = 0; r < 8; r++)
        index[r] = joined[r / 2 % 2][(8 * rows + r) / 4 * 8 + r % 2 * 4 + l];
    return eight_points(grid_iq1_s, index);
}

/* The sums of both halves of block j; an eighth is added to a point or subtracted. */
INLINE void iq1_sums(enum dtype type, const uint8_t *words, int j, const uint16_t (*joined)[2 * VL],
                     const struct act_block *a, vi sum[2])
{
    const vi one = vi_set1_byte(1), less = vi_set1_byte(-1);
    vi high = superblock_half(words, VL, 0, 16 + j);

#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vi s[2] = {vi_set1(0), vi_set1(0)};

#pragma GCC unroll 2
        for (int l = 2 * half; l < 2 * half + 2; l++) {
            const int at = type == DTYPE_IQ1_S ? 15 : 4 * l + 3;
            __mmask16 below = _mm512_test_epi32_mask(high, vi_set1(1 << at));
            vi q = eight_broadcast(a->q + 8 * l);

#pragma GCC unroll 2
            for (int rows = 0; rows < 2; rows++) {
                vi eighth = _mm512_mask_blend_epi64((__mmask8)(below >> 8 * rows), one, less);

                s[rows] = vi_dp4(s[rows], vi_add_bytes(iq1_points(joined + 2 * j, l, rows), eighth),
                                 q);
            }
        }
        sum[half] = vi_add(join_lanes(s), vi_set1(format_half_start(type, a, half)));
    }
}

#endif
