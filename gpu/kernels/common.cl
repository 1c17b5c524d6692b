/* Common start of every program: shapes, and the functions of the numeric contract
 * (engine/device/numerics.h), bit for bit.
 *
 * Defined by the host: WIDE (1 where one work-item computes several rows as a vector: devices that
 * are CPUs; 0 where neighbouring work-items compute neighbouring rows), DOT8_FUNCTION (1: the
 * compiler has cl_khr_integer_dot_product), ACTS (a bit for each enum activation that the model's
 * feed-forwards have), BIAS (1: experts have biases), SMALL_LOCAL (1: a work-group has 32 KB of
 * local memory, not 48 or more). */
#pragma OPENCL FP_CONTRACT OFF

#define CHUNK 256
#define LANES 16

/* Activations of quantised rows: bytes, whose products with codes are added up as integers; where
 * WIDE small integers kept as floats, whose sums stay exact below 2^24. */
#define DOT8 (!WIDE)
#if DOT8
#if !DOT8_FUNCTION
/* Compilers make one instruction of it where the device has one. */
static inline int dot_4x8packed_ss_int(uint a, uint b)
{
    char4 x = as_char4(a), y = as_char4(b);

    return (int)x.s0 * y.s0 + (int)x.s1 * y.s1 + (int)x.s2 * y.s2 + (int)x.s3 * y.s3;
}
#else
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#endif
typedef char act_t;
#define CONVERT_ACT16 convert_char16
#define VSTORE_ACT16 vstore16
#else
typedef float act_t;
#define CONVERT_ACT16
#define VSTORE_ACT16 vstore16
#endif

/* Whether `act` is activation i; whether it has a gate (enum activation, activation_gated). */
#define ACT(i) ((ACTS >> (i)&1) && (ACTS == 1 << (i) || act == (i)))
#define GATED_ACTS 0x1c7
#define ACT_GATED (!(ACTS & ~GATED_ACTS) || ((ACTS & GATED_ACTS) && (GATED_ACTS >> act & 1)))

#define NUM_FUNCTIONS(F, I, U, N)                                                   \
    static inline F num_recip##N(F x)                                               \
    {                                                                               \
        F y = as_##F(((U)(0x7ef311c7u) - (as_##U(x) & (U)(0x7fffffffu))) |          \
                     (as_##U(x) & (U)(0x80000000u)));                               \
        for (int i = 0; i < 4; i++)                                                 \
            y = fma(y, fma(-x, y, (F)(1.0f)), y);                                   \
        return y;                                                                   \
    }                                                                               \
    static inline F num_exp##N(F x)                                                 \
    {                                                                               \
        const F magic = (F)(12582912.0f);                                           \
        F c = fmin(fmax(x, (F)(-87.0f)), (F)(88.0f));                               \
        F t = fma(c, (F)(1.44269504088896341f), magic);                             \
        F n = t - magic;                                                            \
        F r = fma(n, (F)(-0.693359375f), c), p;                                     \
        r = fma(n, (F)(2.12194440e-4f), r);                                         \
        p = (F)(1.9875691500e-4f);                                                  \
        p = fma(p, r, (F)(1.3981999507e-3f));                                       \
        p = fma(p, r, (F)(8.3334519073e-3f));                                       \
        p = fma(p, r, (F)(4.1665795894e-2f));                                       \
        p = fma(p, r, (F)(1.6666665459e-1f));                                       \
        p = fma(p, r, (F)(5.0000001201e-1f));                                       \
        p = fma(p, r * r, r) + (F)(1.0f);                                           \
        p = p * as_##F((as_##U(t) + (U)(127u)) << (U)(23u));                        \
        return select(p, (F)(0.0f), x < (F)(-87.0f));                               \
    }                                                                               \
    static inline F num_sigmoid##N(F x)                                             \
    {                                                                               \
        F c = fmin(fmax(-x, (F)(-80.0f)), (F)(80.0f));                              \
        return num_recip##N((F)(1.0f) + num_exp##N(c));                             \
    }                                                                               \
    static inline F num_softplus##N(F x)                                            \
    {                                                                               \
        F u = num_exp##N(-fabs(x)), s = u * num_recip##N((F)(2.0f) + u), z = s * s; \
        F p = fma((F)(1.0f / 15.0f), z, (F)(1.0f / 13.0f));                         \
        p = fma(p, z, (F)(1.0f / 11.0f));                                           \
        p = fma(p, z, (F)(1.0f / 9.0f));                                            \
        p = fma(p, z, (F)(1.0f / 7.0f));                                            \
        p = fma(p, z, (F)(1.0f / 5.0f));                                            \
        p = fma(p, z, (F)(1.0f / 3.0f));                                            \
        p = fma(p * z, s, s);                                                       \
        return fma((F)(2.0f), p, fmax(x, (F)(0.0f)));                               \
    }                                                                               \
    static inline F num_silu##N(F x)                                                \
    {                                                                               \
        return x * num_sigmoid##N(x);                                               \
    }                                                                               \
    static inline F num_gelu##N(F x)                                                \
    {                                                                               \
        F inner = fma((F)(0.044715f) * (x * x), x, x);                              \
        return x * num_sigmoid##N((F)(1.59576912160573071f) * inner);               \
    }                                                                               \
    static inline F num_relu##N(F x)                                                \
    {                                                                               \
        return select((F)(0.0f), x, x > (F)(0.0f));                                 \
    }                                                                               \
    static inline F num_clamped_swiglu##N(F gate, F up, F limit)                    \
    {                                                                               \
        F g = select(limit, gate, gate < limit), u = select(limit, up, up < limit); \
        u = select(-limit, u, u > -limit);                                          \
        return (g * num_sigmoid##N((F)(1.702f) * g)) * (u + (F)(1.0f));             \
    }                                                                               \
    static inline F num_clamped_silu##N(F gate, F up, F limit)                      \
    {                                                                               \
        F g = select(limit, gate, gate < limit), u = select(limit, up, up < limit); \
        u = select(-limit, u, u > -limit);                                          \
        return num_silu##N(g) * u;                                                  \
    }                                                                               \
    static inline F num_bounded_silu##N(F gate, F up, F limit)                      \
    {                                                                               \
        F g = num_silu##N(gate), u = select(limit, up, up < limit);                 \
        g = select(limit, g, g < limit);                                            \
        u = select(-limit, u, u > -limit);                                          \
        return g * u;                                                               \
    }                                                                               \
    /* Rule 8. Where the model has one activation, no choice is left. */            \
    static inline F num_activate##N(int act, F gate, F up, float limit)             \
    {                                                                               \
        if (ACT(0))                                                                 \
            return num_silu##N(gate) * up;                                          \
        if (ACT(1))                                                                 \
            return num_gelu##N(gate) * up;                                          \
        if (ACT(2))                                                                 \
            return num_clamped_swiglu##N(gate, up, (F)(limit));                     \
        if (ACT(3))                                                                 \
            return num_relu##N(up) * num_relu##N(up);                               \
        if (ACT(4))                                                                 \
            return num_relu##N(up);                                                 \
        if (ACT(6))                                                                 \
            return num_relu##N(gate) * up;                                          \
        if (ACT(7))                                                                 \
            return num_clamped_silu##N(gate, up, (F)(limit));                       \
        if (ACT(8))                                                                 \
            return num_bounded_silu##N(gate, up, (F)(limit));                       \
        return num_gelu##N(up);                                                     \
    }

NUM_FUNCTIONS(float, int, uint, 1)
#if WIDE
NUM_FUNCTIONS(float8, int8, uint8, 8)
NUM_FUNCTIONS(float16, int16, uint16, 16)
#endif

static inline float num_rsqrt(float x)
{
    float y = as_float(0x5f3759dfu - (as_uint(x) >> 1)), h = 0.5f * x;

    for (int i = 0; i < 4; i++)
        y = y * fma(-(h * y), y, 1.5f);
    return y;
}

/* Nearest even; overflow to infinity (num_to_f16). */
static inline ushort num_to_f16(float x)
{
    uint u = as_uint(x), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u, r;

    if (a > 0x7f800000u)
        return (ushort)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (ushort)(sign | 0x7c00u);
    if (a < 0x38800000u)
        return (ushort)(sign | (as_uint(as_float(a) + 0.5f) - 0x3f000000u));
    r = a - 0x38000000u;
    r += 0xfffu + ((r >> 13) & 1u);
    return (ushort)(sign | r >> 13);
}

/* num_from_f16 of a finite scale. */
static inline float num_from_f16(ushort h)
{
    uint sign = (uint)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;

    if (e == 0)
        return as_float(sign) + (sign ? -1.0f : 1.0f) * (float)m * 5.9604644775390625e-8f;
    return as_float(sign | (e + 112u) << 23 | m << 13);
}

#ifdef INTERPRETED /* tests: oclgrind knows not every place of a shuffle */
#define UPPER8(v) (float8)(v.s8, v.s9, v.sa, v.sb, v.sc, v.sd, v.se, v.sf)
#define JOIN8(a, b)                                                                              \
    (float16)((a).s0, (a).s1, (a).s2, (a).s3, (a).s4, (a).s5, (a).s6, (a).s7, (b).s0, (b).s1,    \
              (b).s2, (b).s3, (b).s4, (b).s5, (b).s6, (b).s7)
#define ODD8(v) (short8)(v.s1, v.s3, v.s5, v.s7, v.s9, v.sb, v.sd, v.sf)
#else
#define UPPER8(v) v.hi
#define JOIN8(a, b) (float16)(a, b)
#define ODD8(v) v.odd
#endif

/* Rule 4's fold: lane j += lane j + 8, + 4, + 2, + 1. */
static inline float num_fold(float16 v)
{
    float8 a = v.lo + UPPER8(v);
    float4 b = a.lo + a.hi;
    float2 c = b.lo + b.hi;

    return c.x + c.y;
}

static inline float max16(float16 v)
{
    float8 a = fmax(v.lo, UPPER8(v));
    float4 b = fmax(a.lo, a.hi);
    float2 c = fmax(b.lo, b.hi);

    return fmax(c.x, c.y);
}

static inline float16 rint_clamped(float16 v)
{
    v = select(v, (float16)(0.0f), isnan(v));
    v = fmin(fmax(v, (float16)(-127.0f)), (float16)(127.0f));
    return (v + (float16)(12582912.0f)) - (float16)(12582912.0f);
}

/* Rule 1, one block of 32: q, scale and the integer sum of q (as a float: exact). */
static inline void quantise32(float16 x0, float16 x1, __global act_t *q, __global float *d,
                              __global float *sum)
{
    float amax = max16(fmax(fabs(x0), fabs(x1))), scale, id;
    float16 total;

    if (!(amax >= 5.42101086e-20f) || amax > 1e30f) {
        VSTORE_ACT16(CONVERT_ACT16((float16)(0.0f)), 0, q);
        VSTORE_ACT16(CONVERT_ACT16((float16)(0.0f)), 1, q);
        *d = 0.0f;
        *sum = 0.0f;
        return;
    }
    scale = amax * (1.0f / 127.0f);
    id = num_recip1(scale);
    x0 = rint_clamped(x0 * id);
    x1 = rint_clamped(x1 * id);
    VSTORE_ACT16(CONVERT_ACT16(x0), 0, q);
    VSTORE_ACT16(CONVERT_ACT16(x1), 1, q);
    *d = scale;
    total = x0 + x1;
    *sum = num_fold(total);
}

#if !WIDE
/* The same by 32 work-items that write, each element `at` of x in local memory, where it has put
 * it. Has barriers, for the whole group; x is overwritten. */
static inline void quantise_line(__local float *x, int at, bool writes, __global act_t *q,
                                 __global float *d, __global float *sum)
{
    float amax = 0.0f, v, scale, total = 0.0f;

    barrier(CLK_LOCAL_MEM_FENCE);
    v = x[at];
#pragma unroll
    for (int i = 0; i < 32; i++)
        amax = fmax(amax, fabs(x[i]));
    bool none = !(amax >= 5.42101086e-20f) || amax > 1e30f;

    scale = none ? 0.0f : amax * (1.0f / 127.0f);
    v = none || isnan(v) ? 0.0f : v * num_recip1(scale);
    v = fmin(fmax(v, -127.0f), 127.0f);
    v = (v + 12582912.0f) - 12582912.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (writes) {
        q[at] = (act_t)v;
        x[at] = v;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < 32; i++) /* integers: exact in any order */
        total = total + x[i];
    if (writes && at == 0) {
        *d = scale;
        *sum = total;
    }
}
#endif

/* Experts: up to sixteen at a time are bound as a bank; a tile names its expert. */
#define BANK_OF(type, n)                                                                    \
    __global const type *n##0, __global const type *n##1, __global const type *n##2,        \
        __global const type *n##3, __global const type *n##4, __global const type *n##5,    \
        __global const type *n##6, __global const type *n##7, __global const type *n##8,    \
        __global const type *n##9, __global const type *n##10, __global const type *n##11,  \
        __global const type *n##12, __global const type *n##13, __global const type *n##14, \
        __global const type *n##15
#define BANK(n) BANK_OF(uchar, n)
/* Biases of a bank, where experts have any; flag: whether these have. Then the bytes from expert to
 * expert of a bank, and of its biases, where all of a layer lie in its first place: else 0. */
#if BIAS
#define BIASES(n) , BANK_OF(float, n)
#define BIAS_FLAG , int biased, int step, int bias_step
#else
#define BIASES(n)
#define BIAS_FLAG , int step, int bias_step
#endif
#define CHOOSE(i, n)                                                                         \
    ((i) < 8 ? ((i) < 4 ? ((i) < 2 ? ((i) < 1 ? n##0 : n##1) : ((i) < 3 ? n##2 : n##3))      \
                        : ((i) < 6 ? ((i) < 5 ? n##4 : n##5) : ((i) < 7 ? n##6 : n##7)))     \
             : ((i) < 12 ? ((i) < 10 ? ((i) < 9 ? n##8 : n##9) : ((i) < 11 ? n##10 : n##11)) \
                         : ((i) < 14 ? ((i) < 13 ? n##12 : n##13) : ((i) < 15 ? n##14 : n##15))))
#define EXPERT(i, n) (step ? n##0 + (size_t)(i)*step : CHOOSE(i, n))
#define EXPERT_BIAS(i, n) (bias_step ? n##0 + (size_t)(i) * (bias_step / 4) : CHOOSE(i, n))
