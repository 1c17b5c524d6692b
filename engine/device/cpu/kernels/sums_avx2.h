/* Integer sums of a block's codes times one token's, 8 rows, one per lane, for formats that are
 * faster without unpacking their codes word by word (words in formats.def): the AVX2 counterpart of
 * sums_avx512.h. Included by formats_avx2.c after unpack.inc; compiled once more for AVX-VNNI. Sums
 * of words are kept in the form of that set's multiplication: AVX2's in pairs of 16 bits, none of
 * which saturates with any codes of a file. Integers are exact, so the sums are the same. Pure
 * functions. */
#ifndef ENGINE_DEVICE_CPU_KERNELS_SUMS_AVX2_H
#define ENGINE_DEVICE_CPU_KERNELS_SUMS_AVX2_H

/* sum + the products of unsigned bytes w and signed bytes q; sums of words as a number a lane; both
 * halves' sums of words, `up` bits up, as pairs of 16 bits. */
#if defined(__AVXVNNI__)
INLINE vi add_word(vi sum, vi w, vi q)
{
    return vi_dp4(sum, w, q);
}
INLINE vi word_sums(vi sum)
{
    return sum;
}
INLINE vi lowered_pair(vi first, vi second, const int up)
{
    return _mm256_blend_epi16(_mm256_srai_epi32(first, up), _mm256_slli_epi32(second, 16 - up),
                              0xaa);
}
#else
INLINE vi add_word(vi sum, vi w, vi q)
{
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, q));
}
INLINE vi word_sums(vi sum)
{
    return vi_dp2(sum, vi_set1_pair(1));
}
INLINE vi lowered_pair(vi first, vi second, const int up)
{
    vi even = vi_pair(first, second),
       odd = _mm256_blend_epi16(vi_word_down(first, 16), second, 0xaa);

    return _mm256_srai_epi16(_mm256_add_epi16(even, odd), up);
}
#endif

INLINE vi block_sums(enum dtype type, vi sum, const int up, const struct act_block *a)
{
    return vi_add(_mm256_srai_epi32(word_sums(sum), up), vi_set1(format_sum_start(type, a)));
}

/* ---- two and three bits per code ---- */

/* Words of codes of two bits, from word `from` on: of four blocks, the i-th i % 2 * 2 bits up. */
INLINE void two_bit_sums(const uint8_t *words, const int from, const int count,
                         const struct act_block *a, vi sum[4])
{
    const vi low = vi_set1_byte(3), high = vi_set1_byte(12);

#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sum[i] = vi_set1(0);
#pragma GCC unroll 8
    for (int k = from; k < from + count; k++) {
        vi x = vi_load(words + 32 * k), y = vi_down(x, 4);

        sum[0] = add_word(sum[0], vi_and(x, low), vi_broadcast(a[0].q + 4 * k));
        sum[1] = add_word(sum[1], vi_and(x, high), vi_broadcast(a[1].q + 4 * k));
        sum[2] = add_word(sum[2], vi_and(y, low), vi_broadcast(a[2].q + 4 * k));
        sum[3] = add_word(sum[3], vi_and(y, high), vi_broadcast(a[3].q + 4 * k));
    }
}

INLINE void tq2_sums(const uint8_t *words, const struct act_block *a, vi sum[4])
{
    two_bit_sums(words, 0, 8, a, sum);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sum[i] = block_sums(DTYPE_TQ2_0, sum[i], i % 2 * 2, &a[i]);
}

/* Both halves' sums of codes, paired: of four blocks of Q2_K, of a superblock's of Q3_K. */
INLINE void q2_k_pairs(const uint8_t *words, const struct act_block *a, vi pair[4])
{
    vi first[4], second[4];

    two_bit_sums(words, 0, 4, a, first);
    two_bit_sums(words, 4, 4, a, second);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        pair[i] = lowered_pair(first[i], second[i], i % 2 * 2);
}

/* Q3_K, whose words are transposed (engine/layout/turned.h): a half's sums. Two blocks in the lower
 * six bits of each of three words; the last two blocks' codes in the remaining bits of the
 * three. */
INLINE void q3_k_half(const uint8_t *words, const struct act_block *a, const int half, vi sum[8])
{
    const vi three_bits = vi_set1_byte(7), two = vi_set1_byte(3), third = vi_set1_byte(4);

#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        sum[j] = vi_set1(0);
#pragma GCC unroll 4
    for (int k = 4 * half; k < 4 * half + 4; k++) {
        vi above = vi_load(words + 32 * (3 * k + 2));

#pragma GCC unroll 3
        for (int i = 0; i < 3; i++) {
            vi x = vi_load(words + 32 * (3 * k + i));

            sum[2 * i] = add_word(sum[2 * i], vi_and(x, three_bits),
                                  vi_broadcast(a[2 * i].q + 4 * k));
            sum[2 * i + 1] = add_word(sum[2 * i + 1], vi_and(vi_down(x, 3), three_bits),
                                      vi_broadcast(a[2 * i + 1].q + 4 * k));
            if (i < 2)
                sum[6 + i] = add_word(
                    sum[6 + i], vi_merge(vi_and(vi_down(x, 6), two), vi_down(above, 4 + i), third),
                    vi_broadcast(a[6 + i].q + 4 * k));
        }
    }
}

INLINE void q3_k_pairs(const uint8_t *words, const struct act_block *a, vi pair[8])
{
    vi first[8], second[8];

    q3_k_half(words, a, 0, first);
    q3_k_half(words, a, 1, second);
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        pair[j] = lowered_pair(first[j], second[j], 0);
}

/* The halves' sums times their factors, added. Codes of Q3_K are 4 above their values. */
INLINE vi factored(enum dtype type, vi pair, const struct unpacked_block *b,
                   const struct act_block *a)
{
    vi sum = vi_dp2(pair, b->pair);

    if (format_of[type].zero)
        sum = vi_add(sum, vi_dp2(vi_set1(activation_pair(a, -format_of[type].zero)), b->pair));
    return sum;
}

/* ---- TQ1_0 ---- */

/* One word and its n digits, the i-th for the four activations at q[i]. A byte is a fraction of
 * 256, whose next digit is what thrice the byte carries over 256: 0 below 86, 2 from 171 on. The
 * mean of x - 1 and of its half reaches 64 and 128 there. */
INLINE void ternary_word(const uint8_t *word, const int n, const int8_t *const q[5], vi sum[5])
{
    const vi zero = vi_set1(0);
    vi b = vi_load(word);

#pragma GCC unroll 5
    for (int i = 0; i < n; i++) {
        vi x = _mm256_subs_epu8(b, vi_set1_byte(1)),
           mean = _mm256_avg_epu8(x, _mm256_avg_epu8(x, zero));

        sum[i] = add_word(sum[i], vi_and(vi_down(mean, 6), vi_set1_byte(3)), vi_broadcast(q[i]));
        b = vi_add_bytes(vi_add_bytes(b, b), b);
    }
}

/* All blocks of a superblock together: a word has a digit for each of five. */
INLINE void ternary_sums(const uint8_t *words, const struct act_block *a, vi sum[8])
{
    const int8_t *const last[5] = {a[7].q + 16, a[7].q + 20, a[7].q + 24, a[7].q + 28};
    vi s[5], rest[5];

    for (int i = 0; i < 5; i++)
        sum[i] = s[i] = rest[i] = vi_set1(0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        const int8_t *const q[5] = {a[0].q + 4 * k, a[1].q + 4 * k, a[2].q + 4 * k, a[3].q + 4 * k,
                                    a[4].q + 4 * k};

        ternary_word(words + 32 * k, 5, q, sum);
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        const int8_t *const q[5] = {a[5].q + 4 * k, a[5].q + 16 + 4 * k, a[6].q + 4 * k,
                                    a[6].q + 16 + 4 * k, a[7].q + 4 * k};

        ternary_word(words + 32 * (8 + k), 5, q, s);
    }
    ternary_word(words + 32 * 12, 4, last, rest);
    sum[5] = vi_add(word_sums(s[0]), word_sums(s[1]));
    sum[6] = vi_add(word_sums(s[2]), word_sums(s[3]));
    sum[7] = vi_add(vi_add(word_sums(s[4]), word_sums(rest[0])),
                    vi_add(vi_add(word_sums(rest[1]), word_sums(rest[2])), word_sums(rest[3])));
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        sum[j] = vi_add(j < 5 ? word_sums(sum[j]) : sum[j],
                        vi_set1(format_sum_start(DTYPE_TQ1_0, &a[j])));
}

/* ---- codebooks: eight columns of four rows side by side, rows 0, 1, 4, 5 or 2, 3, 6, 7 ---- */

/* Whether points have four columns. */
INLINE bool is_small(enum dtype type)
{
    return type == DTYPE_IQ3_XXS || type == DTYPE_IQ3_S;
}

INLINE bool is_codebook(enum dtype type)
{
    return is_small(type) || is_ternary(type) || type == DTYPE_IQ2_XXS || type == DTYPE_IQ2_XS ||
           type == DTYPE_IQ2_S;
}

INLINE const uint32_t *points_of(enum dtype type)
{
    switch (type) {
    case DTYPE_IQ3_XXS: return grid_iq3_xxs;
    case DTYPE_IQ3_S: return grid_iq3_s;
    case DTYPE_IQ2_XXS: return grid_iq2_xxs;
    case DTYPE_IQ2_XS: return grid_iq2_xs;
    case DTYPE_IQ2_S: return grid_iq2_s;
    default: return grid_iq1_s;
    }
}

/* A block's points: of eight columns four, of four columns eight. Their numbers become addresses
 * one by one: they are read where they lie in the weights as bytes or halves; others are joined in
 * vectors, a superblock's at once, for to load from a vector that was stored just before takes long
 * (a third of the time of all). */
struct points {
    const uint8_t *words;
    const uint16_t (*joined)[2 * VL];
    vi signs, high;
};

INLINE bool numbers_lie(enum dtype type)
{
    return type == DTYPE_IQ2_XXS || type == DTYPE_IQ3_XXS || type == DTYPE_IQ2_XS;
}

/* Words of a block with its numbers, or with their lower bytes. */
INLINE int number_words(enum dtype type)
{
    return is_small(type) || numbers_lie(type) ? 2 : 1;
}

/* What is above the lower bytes of four numbers, in bytes: the lowest bits of x, and so on. */
INLINE vi numbers_above(vi x, const int bits, const int step)
{
    vi all = vi_set1(0);

#pragma GCC unroll 4
    for (int k = 0; k < 4; k++)
        all = vi_or(all,
                    vi_and(vi_word_up(x, (8 - step) * k), vi_set1(((1 << bits) - 1) << 8 * k)));
    return all;
}

/* Of all blocks of a superblock: four points of rows 0, 1, 4 and 5, then of the others. */
INLINE void join_numbers(enum dtype type, const uint8_t *words, uint16_t (*joined)[2 * VL])
{
    const int n = number_words(type);

    if (numbers_lie(type))
        return;
    for (int j = 0; j < 8; j++)
        for (int w = n * j; w < n * (j + 1); w++, joined += 2) {
            vi low = superblock_word(words, VL, 0, w), above;

            if (is_ternary(type))
                above = numbers_above(superblock_half(words, VL, 0, 16 + j), 3,
                                      type == DTYPE_IQ1_S ? 3 : 4);
            else if (is_small(type))
                above = numbers_above(
                    vi_word_down(superblock_byte(words, VL, 0, 64 + j), w % 2 * 4), 1, 1);
            else
                above = numbers_above(superblock_byte(words, VL, 0, 64 + j), 2, 2);
            _mm256_store_si256((void *)joined[0], _mm256_unpacklo_epi8(low, above));
            _mm256_store_si256((void *)joined[1], _mm256_unpackhi_epi8(low, above));
        }
    __asm__("" ::: "memory"); /* else they are extracted from registers, which costs more */
}

INLINE void read_points(enum dtype type, const uint8_t *words, int j,
                        const uint16_t (*joined)[2 * VL], struct points *p)
{
    p->signs = is_small(type)     ? iq3_signs(type, words, VL, 0, j)
               : is_ternary(type) ? vi_set1(0)
                                  : iq2_signs(type, words, VL, 0, j);
    p->high = is_ternary(type) ? superblock_half(words, VL, 0, 16 + j) : vi_set1(0);
    p->words = words + number_words(type) * j * 4 * VL;
    p->joined = joined + 2 * number_words(type) * j;
}

/* The number of point k of a row. */
INLINE size_t point_at(enum dtype type, const struct points *p, const int k, const int row)
{
    uint16_t half;

    if (!numbers_lie(type))
        return p->joined[k / 4 * 2 + row / 2 % 2][row / 4 * VL + row % 2 * 4 + k % 4];
    if (type != DTYPE_IQ2_XS)
        return p->words[k / 4 * 4 * VL + 4 * row + k % 4];
    memcpy(&half, p->words + k / 2 * 4 * VL + 4 * row + k % 2 * 2, 2);
    return half & 511;
}

/* Two rows, eight columns from 8 * l on. */
INLINE __m128i two_rows(enum dtype type, const struct points *p, const int l, const int row)
{
    const uint32_t *grid = points_of(type);

    if (is_small(type))
        return _mm_setr_epi32((int)grid[point_at(type, p, 2 * l, row)],
                              (int)grid[point_at(type, p, 2 * l + 1, row)],
                              (int)grid[point_at(type, p, 2 * l, row + 1)],
                              (int)grid[point_at(type, p, 2 * l + 1, row + 1)]);
    return _mm_castpd_si128(_mm_loadh_pd(
        _mm_castsi128_pd(_mm_loadl_epi64((const void *)(grid + 2 * point_at(type, p, l, row)))),
        (const void *)(grid + 2 * point_at(type, p, l, row + 1))));
}

INLINE vi four_rows(enum dtype type, const struct points *p, const int l, const int first)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(two_rows(type, p, l, first)),
                                   two_rows(type, p, l, first + 4), 1);
}

/* Eight activations for every row. */
INLINE vi eight_broadcast(const int8_t *q)
{
    int64_t x;

    memcpy(&x, q, 8);
    return _mm256_set1_epi64x(x);
}

/* The same, negated where a column's sign is minus; they are never -128. */
INLINE vi turned(const int8_t *q, vi signs, const int l, const int first)
{
#define ROW(r) 4 * (r), 4 * (r), 4 * (r), 4 * (r), 4 * (r), 4 * (r), 4 * (r), 4 * (r)
    const vi order = _mm256_setr_epi8(ROW(0), ROW(1), ROW(0), ROW(1)),
             bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
#undef ROW
    vi own = _mm256_shuffle_epi8(signs, vi_add_bytes(order, vi_set1_byte(4 * first + l))),
       minus = _mm256_cmpeq_epi8(vi_and(own, bit), bit);

    return _mm256_sign_epi8(eight_broadcast(q), vi_or(minus, vi_set1_byte(1)));
}

/* IQ1's eighth, which is added to a point or subtracted. */
INLINE vi eighths(enum dtype type, vi high, const int l, const int first)
{
    const int at = type == DTYPE_IQ1_S ? 15 : 4 * l + 3;
    vi below = _mm256_srai_epi32(vi_word_up(high, 31 - at), 31),
       eighth = vi_or(below, vi_set1_byte(1));

    return first ? _mm256_shuffle_epi32(eighth, _MM_SHUFFLE(3, 3, 2, 2))
                 : _mm256_shuffle_epi32(eighth, _MM_SHUFFLE(1, 1, 0, 0));
}

/* Columns from 8 * from on, eight times `count` (1 or 2) of them. */
INLINE vi point_sums(enum dtype type, const struct points *p, const struct act_block *a,
                     const int from, const int count)
{
    vi s[2] = {vi_set1(0), vi_set1(0)};

#pragma GCC unroll 2
    for (int l = from; l < from + count; l++)
#pragma GCC unroll 2
        for (int rows = 0; rows < 2; rows++) {
            vi w = four_rows(type, p, l, 2 * rows), q;

            if (is_ternary(type)) {
                q = eight_broadcast(a->q + 8 * l);
                w = vi_add_bytes(w, eighths(type, p->high, l, 2 * rows));
            } else {
                q = turned(a->q + 8 * l, p->signs, l, 2 * rows);
            }
            s[rows] = add_word(s[rows], w, q);
        }
    return _mm256_hadd_epi32(word_sums(s[0]), word_sums(s[1]));
}

/* The sums of both halves of block j; joined: of join_numbers. */
INLINE void codebook_sums(enum dtype type, const uint8_t *words, int j,
                          const uint16_t (*joined)[2 * VL], const struct act_block *a, vi sum[2])
{
    struct points p;

    read_points(type, words, j, joined, &p);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        sum[half] = point_sums(type, &p, a, 2 * half, 2);
        if (is_ternary(type))
            sum[half] = vi_add(sum[half], vi_set1(format_half_start(type, a, half)));
    }
}

/* ---- IQ3_KT ---- */

/* Two columns' numbers, whose bytes are at most 63, of each lane: the sums of their bytes as the
 * lane's halves. */
INLINE vi two_byte_sums(vi x, vi y)
{
    const vi turn = _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 2, 3, 0,
                                     1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    vi near = _mm256_blend_epi16(x, y, 0xaa), far = _mm256_blend_epi16(y, x, 0xaa);

    return _mm256_maddubs_epi16(vi_add_bytes(near, _mm256_shuffle_epi8(far, turn)),
                                vi_set1_byte(1));
}

/* The sum of block j: the magnitudes of a trellis' values times activations that have taken the
 * signs; these are never -128. */
INLINE vi magnitude_sum(const uint8_t *words, int j, const struct act_block *a)
{
    vi sum = vi_set1(0);

#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        vi x = trellis_number(DTYPE_IQ3_KT, words, VL, 0, j, k / 2), s[4], minus;

#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            s[i] = vi_and(vi_times32(x, trellis_power(k % 2 * 4 + i)), vi_set1(0x3f3f3f3f));
        x = vi_or(two_byte_sums(s[0], s[2]), vi_up(two_byte_sums(s[1], s[3]), 8));
        x = _mm256_abs_epi8(vi_add_bytes(x, vi_set1_byte(-126)));
        minus = _mm256_sll_epi16(superblock_word(words, VL, 0, 17 + k), _mm_cvtsi32_si128(7 - j));
        minus = _mm256_sign_epi8(vi_broadcast(a->q + 4 * k), vi_or(minus, vi_set1_byte(1)));
#if defined(__AVXVNNI__)
        sum = vi_dp4(sum, x, minus);
#else
        sum = vi_add(sum, vi_dp2(_mm256_maddubs_epi16(x, minus), vi_set1_pair(1)));
#endif
    }
    return sum;
}

#endif
