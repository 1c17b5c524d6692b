/* Memory layout and codes of quantised weights; blocks.cl and gemm.cl multiply them. Layout:
 * engine/layout/format.h: units of PER blocks of 32 columns, each unit a head and then the blocks,
 * WIDTH rows interleaved. Every block becomes eight words of codes: words 0..3 (elements 0..15) and
 * 4..7 (elements 16..31), four bytes per word.
 *
 * Defined by the host beyond common.cl: WIDTH (rows interleaved, 8 or 16); LOAD_ROWS where not
 * WIDE: rows beside each other of which a work-item loads a word each at once, 1 or 4; and the
 * format, from its row of engine/file/formats.def. PER: blocks per unit. HEAD, BLOCK: bytes of the
 * head and of a block, per row. PAYLOAD: offset of the payload in a block. BITS: of a code in the
 * payload. HIGH: bits of a code above them. OFFSET: codes minus their values. MIN: the sign of a
 * block's minimum, 0 without. FACTORS: 1: 6-bit scales and minima per block; 2: only signed scales.
 * HALVES: 1: a factor of the scale for each 16 columns; 2: a separate scale. LOOKUP: codes are
 * indices of sixteen values, stored with OFFSET added, four per word, TABLE0 .. TABLE3. E8M0:
 * scales are a byte with the exponent. WORDS: a unit's blocks are scattered in so many words after
 * its head (words.cl); 0: consecutive. */
#if WORDS
#define UNIT (HEAD + 4 * WORDS)
#define BLOCK_AT(head, j) ((head) + HEAD * WIDTH)
#else
#define UNIT (HEAD + PER * BLOCK)
#define BLOCK_AT(head, j) ((head) + (HEAD + (j)*BLOCK) * WIDTH)
#endif
/* For one row group with n blocks per row. */
#define GROUP_BYTES(n) ((size_t)((n) / PER) * (UNIT * WIDTH))

#if WIDE
#if WIDTH == 16
typedef float16 vec;
typedef uint16 uvec;
#define LOAD_WORDS(p, k) vload16(k, (__global const uint *)(p))
#define LOAD_SCALES(p) vload_half16(0, (__global const half *)(p))
#define LOAD_BYTES(p) convert_uint16(vload16(0, p))
#define LOAD_SHORTS(p) convert_uint16(vload16(0, (__global const ushort *)(p)))
#define TO_FLOAT(u) convert_float16(as_int16(u))
#define AS_FLOAT(u) as_float16(u)
#define AS_WORDS(x) as_uint16(x)
#define SIGNED(u) convert_float16(as_int16(u) >> 24)
#define ACTIVATE num_activate16
#else
typedef float8 vec;
typedef uint8 uvec;
#define LOAD_WORDS(p, k) vload8(k, (__global const uint *)(p))
#define LOAD_SCALES(p) vload_half8(0, (__global const half *)(p))
#define LOAD_BYTES(p) convert_uint8(vload8(0, p))
#define LOAD_SHORTS(p) convert_uint8(vload8(0, (__global const ushort *)(p)))
#define TO_FLOAT(u) convert_float8(as_int8(u))
#define AS_FLOAT(u) as_float8(u)
#define AS_WORDS(x) as_uint8(x)
#define SIGNED(u) convert_float8(as_int8(u) >> 24)
#define ACTIVATE num_activate8
#endif
#elif LOAD_ROWS == 4
/* `lane` is the first of four. Heads and blocks begin at multiples of sixteen bytes, for WIDTH rows
 * lie beside each other word by word; but a head of one byte a row, of eight rows, has eight. */
typedef float4 vec;
typedef uint4 uvec;
#define LOAD_WORDS(p, k) (*(__global const uint4 *)((p) + 4 * ((k)*WIDTH + lane)))
#define LOAD_SCALES(p) vload_half4(0, (__global const half *)(p) + lane)
#define LOAD_BYTES(p) convert_uint4(vload4(0, (p) + lane))
#define LOAD_SHORTS(p) convert_uint4(*(__global const ushort4 *)((p) + 2 * lane))
#define TO_FLOAT(u) convert_float4(as_int4(u))
#define AS_FLOAT(u) as_float4(u)
#define AS_WORDS(x) as_uint4(x)
#define SIGNED(u) convert_float4(as_int4(u) >> 24)
#else
typedef float vec;
typedef uint uvec;
#define LOAD_WORDS(p, k) ((__global const uint *)(p))[(k)*WIDTH + lane]
#define LOAD_SCALES(p) vload_half(lane, (__global const half *)(p))
#define LOAD_BYTES(p) (uint)(p)[lane]
#define LOAD_SHORTS(p) (uint)((__global const ushort *)(p))[lane]
#define TO_FLOAT(u) convert_float(as_int(u))
#define AS_FLOAT(u) as_float(u)
#define AS_WORDS(x) as_uint(x)
#define SIGNED(u) convert_float(as_int(u) >> 24)
#endif
#define WORD(x) (uvec)(x##u)

/* The integer dot product needs signed bytes; otherwise codes are unsigned and ZERO is subtracted
 * once per block. If halves have scales it is subtracted from each code. */
#define FLIPPED (DOT8 && OFFSET == 128)
#if HALVES || FLIPPED
#define ZERO 0.0f
#else
#define ZERO ((float)OFFSET)
#endif
/* One code (a byte) as a float: 2^23 + code is exact, and so is the result after subtracting 2^23 +
 * OFFSET. */
#if HALVES
#define CODE(u) (AS_FLOAT((u) | WORD(0x4b000000)) - (vec)(8388608.0f + OFFSET))
#else
#define CODE(u) TO_FLOAT(u)
#endif

/* Scale and minimum of block j of a unit. */
#if !WORDS
static inline vec block_scale(__global const uchar *head, int j, int lane)
{
#if E8M0
    uvec e = LOAD_BYTES(head), low = max(e, WORD(1)) - WORD(1), zero = WORD(1) - min(e, WORD(1));
    vec d = AS_FLOAT(low << WORD(23) | (WORD(1) - min(low, WORD(1))) * (WORD(0x00400000) >> zero));
#else
    vec d = LOAD_SCALES(head);
#endif
#if FACTORS == 2
    d = d * (TO_FLOAT((LOAD_WORDS(head + 4 * WIDTH, 0) >> (uvec)(4 * j) & WORD(15)) |
                      (LOAD_SHORTS(head + 2 * WIDTH) >> (uvec)(2 * j) & WORD(3)) << WORD(4)) -
             (vec)(32.0f));
#elif FACTORS
    __global const uchar *f = head + 4 * WIDTH;

    if (j < 4)
        return d * TO_FLOAT(LOAD_WORDS(f, 0) >> (uvec)(8 * j) & WORD(63));
    j = 8 * (j - 4);
    d = d * TO_FLOAT((LOAD_WORDS(f, 2) >> (uvec)(j)&WORD(15)) |
                     (LOAD_WORDS(f, 0) >> (uvec)(j + 6) & WORD(3)) << WORD(4));
#endif
    return d;
}
#endif

#if MIN
static inline vec block_min(__global const uchar *head, int j, int lane)
{
    vec m = LOAD_SCALES(head + 2 * WIDTH);
#if FACTORS
    __global const uchar *f = head + 4 * WIDTH;

    if (j < 4) {
        m = m * TO_FLOAT(LOAD_WORDS(f, 1) >> (uvec)(8 * j) & WORD(63));
    } else {
        j = 8 * (j - 4);
        m = m * TO_FLOAT((LOAD_WORDS(f, 2) >> (uvec)(j + 4) & WORD(15)) |
                         (LOAD_WORDS(f, 1) >> (uvec)(j + 6) & WORD(3)) << WORD(4));
    }
#endif
#if MIN < 0
    m = -m;
#endif
    return m;
}
#endif

#if HALVES && !WORDS
/* The 8-bit scales of the two halves of block j. */
static inline void half_scales(__global const uchar *head, int j, int lane, vec *first, vec *second)
{
    uvec w = LOAD_WORDS(head + 2 * WIDTH, j / 2) >> (uvec)(j % 2 * 16);

    *first = SIGNED(w << WORD(24));
    *second = SIGNED(w << WORD(16));
}
#endif

#if LOOKUP
static inline uvec looked_up(uvec c)
{
    const uvec t0 = (uvec)(TABLE0), t1 = (uvec)(TABLE1), t2 = (uvec)(TABLE2), t3 = (uvec)(TABLE3);
    uvec m2 = (uvec)(0u) - (c >> WORD(2) & WORD(1)), m3 = (uvec)(0u) - (c >> WORD(3) & WORD(1));
    uvec low = t0 ^ ((t0 ^ t1) & m2), high = t2 ^ ((t2 ^ t3) & m2);

    return (low ^ ((low ^ high) & m3)) >> ((c & WORD(3)) << WORD(3)) & WORD(255);
}

static inline uvec looked_up_word(uvec w)
{
    return looked_up(w & WORD(15)) | looked_up(w >> WORD(8) & WORD(15)) << WORD(8) |
           looked_up(w >> WORD(16) & WORD(15)) << WORD(16) |
           looked_up(w >> WORD(24) & WORD(15)) << WORD(24);
}
#endif

#if !WORDS
/* Words k and 4 + k (k = 0..3) of block j of a unit, at BLOCK_AT: elements 4k .. and 16 + 4k .. */
static inline void block_words(__global const uchar *block, int j, int k, int lane, uvec *lo,
                               uvec *hi)
{
#if BITS == 8
    *lo = LOAD_WORDS(block, k) ^ (FLIP ^ 0x80u) * 0x01010101u;
    *hi = LOAD_WORDS(block, 4 + k) ^ (FLIP ^ 0x80u) * 0x01010101u;
#else
    uvec w = LOAD_WORDS(block + PAYLOAD * WIDTH, k);

    *lo = w & WORD(0x0f0f0f0f);
    *hi = w >> WORD(4) & WORD(0x0f0f0f0f);
#endif
#if HIGH == 1
    *lo = *lo | (LOAD_WORDS(block, 0) >> (uvec)(k)&WORD(0x01010101)) << WORD(4);
    *hi = *hi | (LOAD_WORDS(block, 0) >> (uvec)(4 + k) & WORD(0x01010101)) << WORD(4);
#elif HIGH == 2
    *lo = *lo | (LOAD_WORDS(block, 0) >> (uvec)(2 * k) & WORD(0x03030303)) << WORD(4);
    *hi = *hi | (LOAD_WORDS(block, 1) >> (uvec)(2 * k) & WORD(0x03030303)) << WORD(4);
#endif
#if LOOKUP
    *lo = looked_up_word(*lo);
    *hi = looked_up_word(*hi);
#endif
#if FLIPPED
    *lo = *lo ^ 0x80808080u;
    *hi = *hi ^ 0x80808080u;
#elif DOT8 && HALVES /* OFFSET is 32: code - 32, sign-extended to the two highest bits */
    *lo = *lo ^ 0x20202020u;
    *hi = *hi ^ 0x20202020u;
    *lo = *lo | (*lo & 0x20202020u) << 1 | (*lo & 0x20202020u) << 2;
    *hi = *hi | (*hi & 0x20202020u) << 1 | (*hi & 0x20202020u) << 2;
#endif
}
#endif
