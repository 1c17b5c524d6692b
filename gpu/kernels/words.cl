/* Formats whose blocks are scattered in a superblock, which is packed word by word as in files
 * (formats.def, words): the counterpart of formats.cl for these formats, included after it.
 * engine/file/blocks_words.c reads these words of one row.
 *
 * Defined by the host beyond formats.cl: WORDS (of a superblock, after scale and minimum), TYPE_x
 * for format x; and GRID, the points selected by the codes of IQ formats (engine/file/grids.h). */
#if WORDS

#define DOWN(x, n) ((x) >> (uvec)(n))
#define FIELD(x, from, n) (DOWN(x, from) & (uvec)((1u << (n)) - 1u))
#define EACH_BYTE(b) (uvec)((b)*0x01010101u)
/* F32 scales, which lie like two halves */
#define LOAD_SINGLES(head) AS_FLOAT(LOAD_SHORTS(head) | LOAD_SHORTS(head + 2 * WIDTH) << WORD(16))
#if defined(TYPE_nvfp4) || defined(TYPE_nvfp4_s)
#define NVFP4 1
#else
#define NVFP4 0
#endif

/* Bytes and halves of words, by index, as words of each row. */
static inline uvec byte_at(__global const uchar *words, int k, int lane)
{
    return FIELD(LOAD_WORDS(words, k / 4), k % 4 * 8, 8);
}

static inline uvec half_at(__global const uchar *words, int k, int lane)
{
    return FIELD(LOAD_WORDS(words, k / 2), k % 2 * 16, 16);
}

static inline vec odd_number(uvec x)
{
    return TO_FLOAT(x + x + WORD(1));
}

#if defined(TYPE_q2_k) || defined(TYPE_tq2_0)
/* Word k of the 2-bit codes of block j, which start at word `from`. */
static inline uvec two_bits(__global const uchar *words, int from, int j, int k, int lane)
{
    return DOWN(LOAD_WORDS(words, from + j / 4 * 8 + k), j % 4 * 2) & EACH_BYTE(3u);
}
#endif

#ifdef TYPE_q3_k
/* Words are transposed (engine/layout/turned.h). Word k of block j, four codes as unsigned
 * bytes. */
static inline uvec q3_k_code(__global const uchar *words, int j, int k, int lane)
{
    uvec x;

    if (j < 6)
        return DOWN(LOAD_WORDS(words, 3 * k + j / 2), j % 2 * 3) & EACH_BYTE(7u);
    x = DOWN(LOAD_WORDS(words, 3 * k + j - 6), 6) & EACH_BYTE(3u);
    return x | (DOWN(LOAD_WORDS(words, 3 * k + 2), j - 2) & EACH_BYTE(4u));
}

/* The factor of one of block j's halves, plus 32. */
static inline uvec q3_k_factor(__global const uchar *words, int j, int h, int lane)
{
    int at = 16 * h;
    uvec x;

    if (j < 6)
        return FIELD(LOAD_WORDS(words, 24 + j / 2), at + j % 2 * 6, 6);
    x = FIELD(LOAD_WORDS(words, 18 + j), at + 12, 4);
    return x | FIELD(LOAD_WORDS(words, 26), at + 12 + 2 * (j - 6), 2) << WORD(4);
}
#endif

/* ---- Grids ---- */

#ifdef GRID_POINTS
static inline uvec point_at(uvec i)
{
#if WIDE && WIDTH == 16
    return (uvec)(GRID[i.s0], GRID[i.s1], GRID[i.s2], GRID[i.s3], GRID[i.s4], GRID[i.s5],
                  GRID[i.s6], GRID[i.s7], GRID[i.s8], GRID[i.s9], GRID[i.sa], GRID[i.sb],
                  GRID[i.sc], GRID[i.sd], GRID[i.se], GRID[i.sf]);
#elif WIDE
    return (uvec)(GRID[i.s0], GRID[i.s1], GRID[i.s2], GRID[i.s3], GRID[i.s4], GRID[i.s5],
                  GRID[i.s6], GRID[i.s7]);
#elif LOAD_ROWS == 4
    return (uvec)(GRID[i.x], GRID[i.y], GRID[i.z], GRID[i.w]);
#else
    return GRID[i];
#endif
}

/* Four magnitudes with the signs from bit 4k on, plus OFFSET. */
static inline uvec with_signs(uvec point, uvec signs, int k)
{
    uvec minus = (FIELD(signs, 4 * k, 4) * WORD(0x00204081) & WORD(0x01010101)) * WORD(255);

    return ((EACH_BYTE(OFFSET) + point) & ~minus) | ((EACH_BYTE(OFFSET) - point) & minus);
}

/* Eight signs a byte out of four times seven bits: the number of minus signs is even. */
static inline uvec even_signs(uvec x)
{
    uvec s = (x & WORD(0x7f)) | (x << WORD(1) & WORD(0x7f00)) | (x << WORD(2) & WORD(0x7f0000)) |
             (x << WORD(3) & WORD(0x7f000000)),
         p = s ^ DOWN(s, 4);

    p = p ^ DOWN(p, 2);
    p = p ^ DOWN(p, 1);
    return s | (p & EACH_BYTE(1u)) << WORD(7);
}
#endif

#if defined(TYPE_iq3_xxs) || defined(TYPE_iq3_s)
/* A word is a point of four magnitudes. */
static inline uvec iq3_code(__global const uchar *words, int j, int k, int lane)
{
    uvec index = byte_at(words, 8 * j + k, lane);

#ifdef TYPE_iq3_s
    index = index | FIELD(byte_at(words, 64 + j, lane), k, 1) << WORD(8);
    return with_signs(point_at(index), LOAD_WORDS(words, 18 + j), k);
#else
    return with_signs(point_at(index), even_signs(LOAD_WORDS(words, 16 + j)), k);
#endif
}
#endif

#if defined(TYPE_iq2_xxs) || defined(TYPE_iq2_xs) || defined(TYPE_iq2_s)
/* Two words are a point of eight. */
static inline uvec iq2_code(__global const uchar *words, int j, int k, int lane)
{
    int l = k / 2;

#if defined(TYPE_iq2_xxs)
    uvec index = byte_at(words, 8 * j + l, lane), signs = even_signs(LOAD_WORDS(words, 2 * j + 1));
#elif defined(TYPE_iq2_xs)
    uvec index = half_at(words, 4 * j + l, lane) & WORD(511), a = LOAD_WORDS(words, 2 * j),
         b = LOAD_WORDS(words, 2 * j + 1), signs;

    a = FIELD(a, 9, 7) | DOWN(a, 25) << WORD(7);
    b = FIELD(b, 9, 7) | DOWN(b, 25) << WORD(7);
    signs = even_signs(a | b << WORD(14));
#else
    uvec index = byte_at(words, 4 * j + l, lane) | FIELD(byte_at(words, 64 + j, lane), 2 * l, 2)
                                                       << WORD(8),
         signs = LOAD_WORDS(words, 8 + j);
#endif
    return with_signs(point_at(index + index + (uvec)(k % 2)), signs, k);
}
#endif

#if defined(TYPE_iq1_s) || defined(TYPE_iq1_m) || defined(TYPE_iq1_m_r)
/* The same, with an eighth added to all of them or subtracted. */
static inline uvec iq1_code(__global const uchar *words, int j, int k, int lane)
{
    int l = k / 2;
    uvec high = half_at(words, 16 + j, lane), index = byte_at(words, 4 * j + l, lane);

#ifdef TYPE_iq1_s
    uvec below = FIELD(high, 15, 1);

    index = index | FIELD(high, 3 * l, 3) << WORD(8);
#else
    uvec below = FIELD(high, 4 * l + 3, 1);

    index = index | FIELD(high, 4 * l, 3) << WORD(8);
#endif
    return point_at(index + index + (uvec)(k % 2)) + EACH_BYTE(1u) - below * EACH_BYTE(2u);
}
#endif

/* ---- The others ---- */

#ifdef TYPE_tq1_0
/* Ternary digit n of every byte, whose first digit is its highest. */
static inline uvec ternary_digit(uvec x, int n)
{
    const uvec low = WORD(0x00ff00ff), three = WORD(3);
    uvec power = (uvec)(n == 0   ? 1u
                        : n == 1 ? 3u
                        : n == 2 ? 9u
                        : n == 3 ? 27u
                                 : 81u),
         even = (x & low) * power & low, odd = (DOWN(x, 8) & low) * power & low;

    return (DOWN(even * three, 8) & low) | (odd * three & WORD(0xff00ff00));
}

static inline uvec tq1_code(__global const uchar *words, int j, int k, int lane)
{
    if (j < 5)
        return ternary_digit(LOAD_WORDS(words, k), j);
    if (k < 4)
        return ternary_digit(LOAD_WORDS(words, 8 + k), 2 * j - 10);
    return j == 7 ? ternary_digit(LOAD_WORDS(words, 12), k - 4)
                  : ternary_digit(LOAD_WORDS(words, 4 + k), 2 * j - 9);
}
#endif

#if HIGH
/* looked_up of another sixteen values. */
static inline uvec looked_up_in(uvec c, uint a, uint b, uint e, uint f)
{
    uvec m2 = (uvec)(0u) - (c >> WORD(2) & WORD(1)), m3 = (uvec)(0u) - (c >> WORD(3) & WORD(1));
    uvec low = (uvec)(a) ^ ((uvec)(a ^ b) & m2), high = (uvec)(e) ^ ((uvec)(e ^ f) & m2);

    return (low ^ ((low ^ high) & m3)) >> ((c & WORD(3)) << WORD(3)) & WORD(255);
}
#endif

#if defined(TYPE_iq2_k) || defined(TYPE_iq3_k) || defined(TYPE_iq4_k) || defined(TYPE_iq5_k) || \
    defined(TYPE_iq6_k)
#define UNEVEN 1 /* a factor and a step for each half */
#elif defined(TYPE_iq2_ks) || defined(TYPE_iq3_ks) || defined(TYPE_iq4_ks) || defined(TYPE_iq5_ks)
#define UNEVEN 2 /* for a block */
#else
#define UNEVEN 0
#endif

#if UNEVEN
#if defined(TYPE_iq2_k) || defined(TYPE_iq2_ks)
#define UNEVEN_STEP 5u
#elif defined(TYPE_iq5_k) || defined(TYPE_iq5_ks)
#define UNEVEN_STEP 2u
#elif defined(TYPE_iq6_k)
#define UNEVEN_STEP 1u
#else
#define UNEVEN_STEP 4u
#endif
#if defined(TYPE_iq4_k) || defined(TYPE_iq5_k)
#define UNEVEN_FIRST 3 /* word of codes */
#elif defined(TYPE_iq6_k)
#define UNEVEN_FIRST 4
#elif defined(TYPE_iq2_ks) || defined(TYPE_iq3_ks)
#define UNEVEN_FIRST 1
#else
#define UNEVEN_FIRST 2
#endif
/* Bit n of the k-th field of 16 bits after the scale. */
static inline uvec field_bit(__global const uchar *words, int k, int n, int lane)
{
    __global const uchar *head = words - HEAD * WIDTH;

    return FIELD(LOAD_SHORTS(head + 2 * (1 + k) * WIDTH), n, 1);
}

#if HIGH
/* The value of a code of five or six bits. */
static inline uvec uneven_value(uvec c)
{
    uvec x = looked_up(c), m4 = (uvec)(0u) - (c >> WORD(4) & WORD(1));

    x = x ^ ((x ^ looked_up_in(c, TABLE4, TABLE5, TABLE6, TABLE7)) & m4);
#if HIGH == 2
    uvec y = looked_up_in(c, TABLE8, TABLE9, TABLE10, TABLE11),
         m5 = (uvec)(0u) - (c >> WORD(5) & WORD(1));

    y = y ^ ((y ^ looked_up_in(c, TABLE12, TABLE13, TABLE14, TABLE15)) & m4);
    x = x ^ ((x ^ y) & m5);
#endif
    return x;
}

static inline uvec uneven_values(uvec w)
{
    return uneven_value(w & WORD(63)) | uneven_value(w >> WORD(8) & WORD(63)) << WORD(8) |
           uneven_value(w >> WORD(16) & WORD(63)) << WORD(16) |
           uneven_value(w >> WORD(24)) << WORD(24);
}
#else
#define uneven_values(w) looked_up_word(w)
#endif

/* The codes of word k of block j, and their values. */
static inline uvec uneven_word(__global const uchar *words, int j, int k, int lane)
{
#if BITS < 4
    uvec x = DOWN(LOAD_WORDS(words, UNEVEN_FIRST + j / 4 * 8 + k), j % 4 * 2) & EACH_BYTE(3u), more;

#if BITS == 3
    x = x | (DOWN(LOAD_WORDS(words, UNEVEN_FIRST + 16 + k), j) & EACH_BYTE(1u)) << WORD(2);
#endif
#elif HIGH == 0
    uvec x = DOWN(LOAD_WORDS(words, UNEVEN_FIRST + 4 * j + k % 4), k / 4 * 4) & EACH_BYTE(15u),
         more;
#else
    uvec x = DOWN(LOAD_WORDS(words, UNEVEN_FIRST + j / 2 * 8 + k), j % 2 * 4) & EACH_BYTE(15u),
         more;

#if HIGH == 1
    x = x | (DOWN(LOAD_WORDS(words, UNEVEN_FIRST + 32 + k), j) & EACH_BYTE(1u)) << WORD(4);
#else
    x = x | (DOWN(LOAD_WORDS(words, UNEVEN_FIRST + 32 + j / 4 * 8 + k), j % 4 * 2) & EACH_BYTE(3u))
                << WORD(4);
#endif
#endif
#if UNEVEN == 1
    more = field_bit(words, 0, 2 * j + k / 4, lane);
#elif defined(TYPE_iq2_ks)
    more = field_bit(words, 0, j, lane);
#elif defined(TYPE_iq3_ks)
    more = field_bit(words, 0, 8 + j, lane);
#else
    more = FIELD(LOAD_WORDS(words, j / 4), j % 4 * 8, 1);
#endif
    return uneven_values(x) + more * EACH_BYTE(UNEVEN_STEP);
}

#if UNEVEN == 2
/* A block's factor. */
static inline vec uneven_block_factor(__global const uchar *words, int j, int lane)
{
#if defined(TYPE_iq2_ks)
    return TO_FLOAT(FIELD(LOAD_WORDS(words, 0), j * 4, 4) | field_bit(words, 0, 8 + j, lane)
                                                                << WORD(4)) -
           (vec)(16.0f);
#elif defined(TYPE_iq3_ks)
    return TO_FLOAT(FIELD(LOAD_WORDS(words, 0), j % 4 * 8 + j / 4 * 4, 4) |
                    field_bit(words, 0, j, lane) << WORD(4)) -
           (vec)(16.0f);
#else
    return TO_FLOAT(byte_at(words, j, lane) & WORD(254)) - (vec)(127.0f);
#endif
}
#endif

#if UNEVEN == 1
/* The factor of one of block j's halves. */
static inline vec uneven_factor(__global const uchar *words, int j, int h, int lane)
{
#if defined(TYPE_iq2_k) || defined(TYPE_iq3_k)
    uvec x = FIELD(LOAD_WORDS(words, j / 4), j % 4 * 8 + 4 * h, 4);

#ifdef TYPE_iq2_k
    return TO_FLOAT(x) - (vec)(8.0f);
#else
    return odd_number(x) *
           ((vec)(1.0f) - (vec)(2.0f) * TO_FLOAT(field_bit(words, 1, 2 * j + h, lane)));
#endif
#elif defined(TYPE_iq6_k)
    return SIGNED(LOAD_WORDS(words, j / 2) << (uvec)(24 - j % 2 * 16 - 8 * h));
#else
    return TO_FLOAT(FIELD(LOAD_WORDS(words, 1 + j / 4), j % 4 * 8 + 4 * h, 4) |
                    FIELD(LOAD_WORDS(words, 0), 4 * j + 2 * h, 2) << WORD(4)) -
           (vec)(32.0f);
#endif
}
#endif
#endif

#if defined(TYPE_iq1_kt) || defined(TYPE_iq2_kt) || defined(TYPE_iq3_kt) || defined(TYPE_iq4_kt)
#define TRELLIS 1
/* The number of group g of eight columns (of IQ4_KT: of four) in block j. */
static inline uvec trellis_number(__global const uchar *words, int j, int g, int lane)
{
#if defined(TYPE_iq1_kt)
    return (byte_at(words, 8 + 4 * j + g, lane) |
            FIELD(LOAD_WORDS(words, 10 + j % 4), 8 * g + j / 4 * 4, 4) << WORD(8) |
            FIELD(LOAD_WORDS(words, j / 4), j % 4 * 8 + 4 + g, 1) << WORD(12)) +
           WORD(4096);
#elif defined(TYPE_iq4_kt)
    uvec head = LOAD_WORDS(words, j);
    int k = 8 * j + g;

    return (byte_at(words, 32 + k, lane) |
            FIELD(LOAD_WORDS(words, 24 + k % 32 / 4), k % 4 * 8 + k / 32 * 4, 4) << WORD(8) |
            FIELD(head, 8 + 3 * g, 3) << WORD(12)) +
           WORD(4096) + ((head & WORD(1)) << WORD(15));
#else
    return half_at(words, 2 + 4 * j + g, lane) + WORD(4096);
#endif
}

/* Word k of block j: engine/file/blocks_words.c, put_trellis. */
static inline uvec trellis_word(__global const uchar *words, int j, int k, int lane)
{
#ifdef TYPE_iq4_kt
    uvec x = trellis_number(words, j, k, lane), out = WORD(0);
#else
    uvec x = trellis_number(words, j, k / 2, lane), out = WORD(0);

    if (k % 2)
        x = x * WORD(0xe50c7d11);
#endif
#ifdef TYPE_iq3_kt
    uvec minus = DOWN(LOAD_WORDS(words, 17 + k), j) & EACH_BYTE(1u);
#endif

    for (int i = 0; i < 4; i++) {
        uvec s;

        x = x * WORD(0xcbac1fed);
        s = x & WORD(0x3f3f3f3f);
        s = (s * WORD(0x01010101)) >> WORD(24);
#ifdef TYPE_iq3_kt /* its distance from 126, with a sign */
        s = WORD(2) + max(s, WORD(252) - s);
        s = s + (WORD(256) - s - s) * FIELD(minus, 8 * i, 1);
#else
        s = s + WORD(2);
#endif
        out = out | s << (uvec)(uint)(8 * i);
    }
    return out;
}
#else
#define TRELLIS 0
#endif

#ifdef TYPE_iq2_kl
/* Word k of block j: two codes of five bits, which number the values of two columns each. */
static inline uvec pair_word(__global const uchar *words, int j, int k, int lane)
{
    uvec x = DOWN(LOAD_WORDS(words, 1 + j / 2 * 4 + k / 2), j % 2 * 4 + k % 2 * 16) & WORD(0xf0f),
         more = DOWN(LOAD_WORDS(words, 17 + k / 2), j + k % 2 * 16) & WORD(0x101), out = WORD(0);

    for (int i = 0; i < 2; i++) {
        uvec c = FIELD(x, 8 * i, 4), m = WORD(0) - FIELD(more, 8 * i, 1);
        uvec a = looked_up(c), b = looked_up_in(c, TABLE8, TABLE9, TABLE10, TABLE11);

        a = a ^ ((a ^ looked_up_in(c, TABLE4, TABLE5, TABLE6, TABLE7)) & m);
        b = b ^ ((b ^ looked_up_in(c, TABLE12, TABLE13, TABLE14, TABLE15)) & m);
        out = out | (a | b << WORD(8)) << (uvec)(uint)(16 * i);
    }
    return out;
}
#endif

#if TRELLIS || defined(TYPE_iq2_kl)
/* A block's factor. */
static inline vec trellis_factor(__global const uchar *words, int j, int lane)
{
    uvec x = FIELD(LOAD_WORDS(words, 0), j % 4 * 8 + j / 4 * 4, 4);

#if defined(TYPE_iq2_kl)
    __global const uchar *head = words - HEAD * WIDTH;

    return TO_FLOAT(x | FIELD(LOAD_SHORTS(head + 2 * WIDTH), 2 * j, 2) << WORD(4)) - (vec)(32.0f);
#elif defined(TYPE_iq4_kt)
    return TO_FLOAT(FIELD(LOAD_WORDS(words, j), 1, 7)) - (vec)(64.0f);
#elif defined(TYPE_iq3_kt)
    return TO_FLOAT(x);
#else
#ifdef TYPE_iq1_kt
    x = byte_at(words, j, lane) & WORD(15);
#endif
    return TO_FLOAT(looked_up(x)) - (vec)(128.0f);
#endif
}
#endif

/* Word k of block j: four codes as unsigned bytes. */
static inline uvec code_word(__global const uchar *words, int j, int k, int lane)
{
#if defined(TYPE_q2_k)
    return two_bits(words, 4, j, k, lane);
#elif defined(TYPE_q3_k)
    return q3_k_code(words, j, k, lane);
#elif defined(TYPE_tq2_0)
    return two_bits(words, 0, j, k, lane);
#elif defined(TYPE_tq1_0)
    return tq1_code(words, j, k, lane);
#elif defined(TYPE_q1_0) /* words are turned: a bit of each byte, codes are 0 and 2 */
    uvec x = LOAD_WORDS(words, j);

    return (k ? DOWN(x, k - 1) : x << WORD(1)) & EACH_BYTE(2u);
#elif UNEVEN
    return uneven_word(words, j, k, lane);
#elif TRELLIS
    return trellis_word(words, j, k, lane);
#elif defined(TYPE_iq2_kl)
    return pair_word(words, j, k, lane);
#elif defined(TYPE_q8_kv)
    return LOAD_WORDS(words, 8 * j + k) ^ EACH_BYTE(128u);
#elif defined(TYPE_q2_0)
    return DOWN(LOAD_WORDS(words, 2 * j + k / 4), k % 4 * 2) & EACH_BYTE(3u);
#elif NVFP4 /* of a half's eight bytes the low nibbles, then the high ones */
    uvec x = LOAD_WORDS(words, 1 + 4 * j + k / 4 * 2 + k % 2);

    return looked_up_word(DOWN(x, k / 2 % 2 * 4) & EACH_BYTE(15u));
#elif defined(TYPE_iq3_xxs) || defined(TYPE_iq3_s)
    return iq3_code(words, j, k, lane);
#elif defined(TYPE_iq1_s) || defined(TYPE_iq1_m) || defined(TYPE_iq1_m_r)
    return iq1_code(words, j, k, lane);
#else
    return iq2_code(words, j, k, lane);
#endif
}

static inline void block_words(__global const uchar *words, int j, int k, int lane, uvec *lo,
                               uvec *hi)
{
    *lo = code_word(words, j, k, lane);
    *hi = code_word(words, j, 4 + k, lane);
#if FLIPPED
    *lo = *lo ^ EACH_BYTE(128u);
    *hi = *hi ^ EACH_BYTE(128u);
#elif DOT8 && HALVES /* signed bytes; none of the subtractions borrows */
    *lo = ((*lo | EACH_BYTE(128u)) - EACH_BYTE(OFFSET)) ^ EACH_BYTE(128u);
    *hi = ((*hi | EACH_BYTE(128u)) - EACH_BYTE(OFFSET)) ^ EACH_BYTE(128u);
#endif
}

/* ---- Scales ---- */

#ifdef TYPE_iq1_m
/* num_from_f16 of words, none of which is an infinity. */
static inline vec f16_to_vec(uvec h)
{
    uvec e = FIELD(h, 10, 5), m = h & WORD(0x3ff), sign = (h & WORD(0x8000)) << WORD(16),
         small = WORD(0) - (WORD(1) - min(e, WORD(1))),
         tiny = AS_WORDS(TO_FLOAT(m) * (vec)(5.9604644775390625e-8f)),
         normal = (e + WORD(112)) << WORD(23) | m << WORD(13);

    return AS_FLOAT(sign | (tiny & small) | (normal & ~small));
}
#endif

/* What all 32 of block j are multiplied with. */
static inline vec block_scale(__global const uchar *head, int j, int lane)
{
    __global const uchar *words = head + HEAD * WIDTH;

#if defined(TYPE_iq3_xxs)
    return LOAD_SCALES(head) * (odd_number(DOWN(LOAD_WORDS(words, 16 + j), 28)) * (vec)(0.25f));
#elif defined(TYPE_iq3_s)
    return LOAD_SCALES(head) * odd_number(FIELD(LOAD_WORDS(words, 26), 4 * j, 4));
#elif defined(TYPE_iq2_xxs)
    return LOAD_SCALES(head) * (odd_number(DOWN(LOAD_WORDS(words, 2 * j + 1), 28)) * (vec)(0.125f));
#elif defined(TYPE_iq2_xs) || defined(TYPE_iq2_s) || defined(TYPE_iq1_m_r)
    return LOAD_SCALES(head) * (vec)(0.125f);
#elif defined(TYPE_iq1_s)
    return LOAD_SCALES(head) *
           (odd_number(FIELD(half_at(words, 16 + j, lane), 12, 3)) * (vec)(0.125f));
#elif defined(TYPE_iq1_m) /* its scale is in the highest four bits of four halves */
    uvec a = LOAD_WORDS(words, 12), b = LOAD_WORDS(words, 13);

    return f16_to_vec(FIELD(a, 12, 4) | (DOWN(a, 24) & WORD(0xf0)) | (DOWN(b, 4) & WORD(0xf00)) |
                      (DOWN(b, 16) & WORD(0xf000))) *
           (vec)(0.125f);
#elif defined(TYPE_iq4_ks) || defined(TYPE_iq5_ks)
    return LOAD_SINGLES(head) * uneven_block_factor(words, j, lane);
#elif TRELLIS
    return LOAD_SINGLES(head) * trellis_factor(words, j, lane);
#elif defined(TYPE_iq2_kl)
    return LOAD_SCALES(head) * trellis_factor(words, j, lane);
#elif defined(TYPE_q8_kv)
    return LOAD_SINGLES(head);
#elif UNEVEN == 2
    return LOAD_SCALES(head) * uneven_block_factor(words, j, lane);
#elif NVFP4 || UNEVEN
    return (vec)(1.0f); /* its halves have their own */
#else
    return LOAD_SCALES(head);
#endif
}

#if HALVES
#if NVFP4
/* A byte as unsigned E4M3, halved, because codes are doubled. */
static inline vec e4m3_half(uvec x)
{
    uvec e = FIELD(x, 3, 4), m = x & WORD(7), small = WORD(0) - (WORD(1) - min(e, WORD(1))),
         nan = WORD(0) - (min(x & WORD(0x7f), WORD(0x7e)) ^ (x & WORD(0x7f))),
         tiny = AS_WORDS(TO_FLOAT(m) * (vec)(0.0009765625f)),
         normal = (e + WORD(119)) << WORD(23) | m << WORD(20);

    /* 0x7f is no number, and 0 in files; with the highest bit it is 480 */
    nan = nan & (WORD(0) - (WORD(1) - FIELD(x, 7, 1)));
    return AS_FLOAT(((tiny & small) | (normal & ~small)) & ~nan);
}
#endif

/* The factors of the two halves of block j. */
static inline void half_scales(__global const uchar *head, int j, int lane, vec *first, vec *second)
{
    __global const uchar *words = head + HEAD * WIDTH;

#if defined(TYPE_q2_k)
    *first = TO_FLOAT(byte_at(words, 2 * j, lane) & WORD(15));
    *second = TO_FLOAT(byte_at(words, 2 * j + 1, lane) & WORD(15));
#elif defined(TYPE_q3_k)
    *first = TO_FLOAT(q3_k_factor(words, j, 0, lane)) - (vec)(32.0f);
    *second = TO_FLOAT(q3_k_factor(words, j, 1, lane)) - (vec)(32.0f);
#elif defined(TYPE_iq1_m)
    uvec x = DOWN(half_at(words, 24 + j / 2, lane), j % 2 * 6);

    *first = odd_number(x & WORD(7));
    *second = odd_number(FIELD(x, 3, 3));
#elif defined(TYPE_iq1_m_r)
    uvec x = byte_at(words, 48 + j, lane);

    *first = TO_FLOAT(x & WORD(15));
    *second = TO_FLOAT(DOWN(x, 4));
#elif UNEVEN == 1
    *first = LOAD_SCALES(head) * uneven_factor(words, j, 0, lane);
    *second = LOAD_SCALES(head) * uneven_factor(words, j, 1, lane);
#elif NVFP4
    *first = e4m3_half(byte_at(words, 2 * j, lane));
    *second = e4m3_half(byte_at(words, 2 * j + 1, lane));
#ifdef TYPE_nvfp4_s
    *first = LOAD_SINGLES(head) * *first;
    *second = LOAD_SINGLES(head) * *second;
#endif
#else
#ifdef TYPE_iq2_xs
    uvec x = byte_at(words, 64 + j, lane);
#else
    uvec x = byte_at(words, 72 + j, lane);
#endif
    *first = odd_number(x & WORD(15));
    *second = odd_number(DOWN(x, 4));
#endif
}
#endif

#if HALVES && MIN
/* The factors of the minimum for each half. */
static inline void half_mins(__global const uchar *head, int j, int lane, vec *first, vec *second)
{
    __global const uchar *words = head + HEAD * WIDTH;

    *first = TO_FLOAT(DOWN(byte_at(words, 2 * j, lane), 4));
    *second = TO_FLOAT(DOWN(byte_at(words, 2 * j + 1, lane), 4));
}
#endif
#endif
