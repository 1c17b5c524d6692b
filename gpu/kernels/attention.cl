/* Rotary embedding, KV cache and attention (rules 6 and 7 of engine/device/numerics.h). Behind
 * core.cl. Defined by the host beyond that: KV_K, KV_V, the cache's types (0: F32, 1: F16, 2: Q8_0,
 * blocks of 32 dimensions as num_kv_quantise_block makes them); MAX_DIM: widest head. */

/* Cache of one layer, as the CPU has it: CHUNK tokens a page. K: per head, blocks of 16 tokens: (d,
 * 16), or with Q8_0 per 32 dimensions 16 scales (F16), then (32, 16) bytes. Behind them the head's
 * V, token by token: dim values, or with Q8_0 a token's scales, then its bytes. In bytes: */
#define Q8_BYTES 34
#define KV_ROW(type, n) \
    ((type) == 0 ? (size_t)(n)*4 : (type) == 1 ? (size_t)(n)*2 : (size_t)((n) / 32) * Q8_BYTES)
#define K_BLOCK(dim) (KV_ROW(KV_K, dim) * 16)
#define V_ROW(dim) KV_ROW(KV_V, dim)
/* Where the pages are: chunk c is in page pages[first_page + c % chunks], of page_step; in a page
 * the layer begins at layer_at, its heads follow each other in head_step, all in units of 16 bytes;
 * a head has the keys of so many tokens, then their values. */
#define KV_MEMORY __global uchar *kv, __global const uint *pages
#define KV_PLACE int first_page, int chunks, int page_step, int layer_at, int head_step, int tokens
#define KEYS(chunk, head)                                                        \
    (kv + ((size_t)pages[first_page + (chunk) % chunks] * page_step + layer_at + \
           (size_t)(head)*head_step) *                                           \
              16)
#define VALUES(keys, dim) ((keys) + (size_t)(tokens / 16) * K_BLOCK(dim))

#if KV_K == 2 || KV_V == 2
/* Rule 7, Q8_0: 32 elements, one a work-item, all of them in line: the scale (F16) and element lid.
 */
static inline ushort kv_quantise(__local const float *line, int lid, char *q)
{
    float amax = 0.0f, v;
    ushort h;

    for (int i = 0; i < 32; i++)
        amax = fabs(line[i]) > amax ? fabs(line[i]) : amax;
    h = num_to_f16(amax < 1e30f ? amax * (1.0f / 127.0f) : 0.0f);
    *q = 0;
    if ((h & 0x7c00u) == 0x7c00u || h == 0)
        return 0;
    v = line[lid] * num_recip1(num_from_f16(h));
    v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v == v ? v : 0.0f;
    *q = convert_char((v + 12582912.0f) - 12582912.0f);
    return h;
}
#endif

/* Separates query heads of gated attention from their gates; in the projection each head is
 * followed by its gate of as many values. One work-item per value of a query. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void part_gates(
    __global const float *raw, __global float *q, __global float *gates, int dim, int n)
{
    int i = get_global_id(0);

    if (i < n) {
        raw += (size_t)(i / dim) * 2 * dim + i % dim;
        q[i] = raw[0];
        gates[i] = raw[dim];
    }
}

/* Rule 6: dimension d of the head at `in`. apart: 1: pairs are (2i, 2i + 1), else (i, i + apart), i
 * below half_rot. */
static inline float rotated(__global const float *in, __global const float *cs,
                            __global const float *sn, int token, int half_rot, int apart, int d)
{
    int second = apart == 1 ? d & 1 : d >= apart,
        i = apart == 1 ? d / 2
            : second   ? d - apart
                       : d,
        first = apart == 1 ? 2 * i : i;

    if (i >= half_rot)
        return in[d];

    float c = cs[(size_t)token * half_rot + i], s = sn[(size_t)token * half_rot + i],
          x0 = in[first], x1 = in[first + apart], t = second ? x0 * s : x1 * s;

    return second ? fma(x1, c, t) : fma(x0, c, -t);
}

/* Dimension d of a token's key, whose block of sixteen is at kc, and of its value, whose row is at
 * vc. Q8_0: the code and its block's scale (kv_quantise), else y. */
static inline void key_store(__global uchar *kc, int d, int token, float y, char code, ushort scale)
{
#if KV_K == 2
    kc += d / 32 * (Q8_BYTES * 16);
    kc[32 + d % 32 * 16 + token % 16] = as_uchar(code);
    if (d % 32 == 0)
        ((__global ushort *)kc)[token % 16] = scale;
#elif KV_K == 1
    ((__global ushort *)kc)[d * 16 + token % 16] = num_to_f16(y);
#else
    ((__global float *)kc)[d * 16 + token % 16] = y;
#endif
}

static inline void value_store(__global uchar *vc, int d, int dim, float y, char code, ushort scale)
{
#if KV_V == 2
    vc[dim / 32 * 2 + d] = as_uchar(code);
    if (d % 32 == 0)
        ((__global ushort *)vc)[d / 32] = scale;
#elif KV_V == 1
    ((__global ushort *)vc)[d] = num_to_f16(y);
#else
    ((__global float *)vc)[d] = y;
#endif
}

/* Rule 6 and the KV cache: one work-item per element of a head, heads in the order q, k, v. q is
 * rotated and scaled from `q` into `qr`. Rows from row0 on; row 0 would be at position pos. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void rope(
    __global const float *q, __global const float *k, __global const float *v, __global float *qr,
    KV_MEMORY, __global const float *cs, __global const float *sn, int heads, int kv_heads, int dim,
    int rot, int pos, int row0, KV_PLACE, float scale, int apart)
{
    int d = get_global_id(0), head = get_global_id(1), row = row0 + get_global_id(2),
        half_rot = rot / 2, token = pos + row, slot = token % CHUNK;
    int is_v = head >= heads + kv_heads, h = is_v           ? head - heads - kv_heads
                                             : head < heads ? head
                                                            : head - heads;
    __global const float *in = is_v           ? v + ((size_t)row * kv_heads + h) * dim
                               : head < heads ? q + ((size_t)row * heads + h) * dim
                                              : k + ((size_t)row * kv_heads + h) * dim;
    float y = d >= dim ? 0.0f : is_v ? in[d] : rotated(in, cs, sn, token, half_rot, apart, d);
    char code = 0;
    ushort block_scale = 0;

    __global uchar *kc = KEYS(token / CHUNK, h), *vc = VALUES(kc, dim) + slot * V_ROW(dim);

    kc += (size_t)(slot / 16) * K_BLOCK(dim);
#if KV_K == 2 || KV_V == 2
    /* No work-item has returned: some compilers get a return before a barrier wrong. */
    __local float line[LINE];

    line[get_local_id(0)] = y;
    barrier(CLK_LOCAL_MEM_FENCE);
    block_scale = kv_quantise(line, get_local_id(0), &code);
#endif
    if (d >= dim)
        return;
    if (is_v)
        value_store(vc, d, dim, y, code, block_scale);
    else if (head < heads)
        qr[((size_t)row * heads + head) * dim + d] = y * scale;
    else
        key_store(kc, d, token, y, code, block_scale);
}

/* Dimension d of a key, `lane` of its block of 16 at kc, or where WIDE of all 16; KEY_SCALE first
 * wherever a block of 32 dimensions begins there. Values d .. d+7 of a token, vc at its row. */
#if KV_K == 2
#define KEYS_AT (kc + d / 32 * (Q8_BYTES * 16))
#define KEY_SCALE(d, begin)              \
    if ((d) % 32 == 0 || (d) == (begin)) \
    key_scale = vload_half16(0, (__global const half *)KEYS_AT)
#define KEY16 (convert_float16(vload16(d % 32, (__global const char *)KEYS_AT + 32)) * key_scale)
#define KEY4                                                                            \
    (convert_float4(((__global const char4 *)(KEYS_AT + 32 + d % 32 * 16))[lane / 4]) * \
     vloada_half4(lane / 4, (__global const half *)KEYS_AT))
#define KEY1                                                                      \
    (convert_float(((__global const char *)(KEYS_AT + 32 + d % 32 * 16))[lane]) * \
     vload_half(lane, (__global const half *)KEYS_AT))
#else
#define KEY_SCALE(d, begin)
#if KV_K == 1
#define KEY16 vload_half16(d, (__global const half *)kc)
#define KEY4 vloada_half4(d * 4 + lane / 4, (__global const half *)kc)
#define KEY1 vload_half(d * 16 + lane, (__global const half *)kc)
#else
#define KEY16 vload16(d, (__global const float *)kc)
#define KEY4 ((__global const float4 *)kc)[d * 4 + lane / 4]
#define KEY1 ((__global const float *)kc)[d * 16 + lane]
#endif
#endif
#if KV_V == 2
#define VALUE(p)                                                    \
    (convert_float(((__local const char *)(p))[dim / 32 * 2 + d]) * \
     vload_half(d / 32, (__local const half *)(p)))
#define VALUE8(p)                                                               \
    (convert_float8(vload8(0, (__global const char *)(p) + dim / 32 * 2 + d)) * \
     (float8)(vload_half(d / 32, (__global const half *)(p))))
#elif KV_V == 1
#define VALUE(p) vload_half(d, (__local const half *)(p))
#define VALUE8(p) vload_half8(0, (__global const half *)(p) + d)
#else
#define VALUE(p) ((__local const float *)(p))[d]
#define VALUE8(p) vload8(0, (__global const float *)(p) + d)
#endif

#if !WIDE
#define KEYS_AHEAD 16 /* dimensions whose keys are loaded at once */

/* Dimension d of four keys, lane .. lane+3 of their block. */
static inline float4 four_keys(__global const uchar *kc, int lane, int d)
{
    return KEY4;
}

static inline float one_key(__global const uchar *kc, int lane, int d)
{
    return KEY1;
}

/* The same where only the first three, two or one of them may be read. */
static inline float4 few_keys(__global const uchar *kc, int lane, int d, int count)
{
    float4 v = (float4)(0.0f);

    v.x = one_key(kc, lane, d);
    if (count > 1)
        v.y = one_key(kc, lane + 1, d);
    if (count > 2)
        v.z = one_key(kc, lane + 2, d);
    return v;
}

/* Rule 3 of q and four keys, dimensions begin .. end-1: a quarter. */
static inline float4 key_quarter(__local const float *q, __global const uchar *kc, int lane,
                                 int begin, int end)
{
    float4 acc = (float4)(0.0f), v[KEYS_AHEAD];
    int d = begin;

    for (; d + KEYS_AHEAD <= end; d += KEYS_AHEAD) {
#pragma unroll
        for (int i = 0; i < KEYS_AHEAD; i++)
            v[i] = four_keys(kc, lane, d + i);
#pragma unroll
        for (int i = 0; i < KEYS_AHEAD; i++)
            acc = fma((float4)(q[d + i]), v[i], acc);
    }
    for (; d < end; d++)
        acc = fma((float4)(q[d]), four_keys(kc, lane, d), acc);
    return acc;
}

/* A chunk's values come through local memory, sixteen bytes a work-item at a time; the first of
 * them are on their way while the scores are computed. */
#define VALUE_LOADS (SMALL_LOCAL ? 4 : 8)
#define VALUE_BYTES (ROW_ITEMS * VALUE_LOADS * 16)
#define VALUE_COLUMNS ((MAX_DIM + ROW_ITEMS - 1) / ROW_ITEMS) /* of a work-item */

#if KV_V == 2
/* The first n of sixteen bytes, an even number; behind them another group may be about to write. */
static inline uint4 few_bytes(__global const uchar *p, int n)
{
    uint v[8];

#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = 2 * i < n ? ((__global const ushort *)p)[i] : 0u;
    return (uint4)(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
}
#endif

/* `bytes` from there on, then zeros; of whole pieces, but for Q8_0's rows. */
static inline void values_load(__global const uchar *from, int bytes, uint4 *v)
{
#pragma unroll
    for (int k = 0; k < VALUE_LOADS; k++) {
        int i = get_local_id(0) + k * ROW_ITEMS;

#if KV_V == 2
        if (16 * i < bytes && 16 * i + 16 > bytes)
            v[k] = few_bytes(from + 16 * i, bytes - 16 * i);
        else
#endif
            v[k] = 16 * i < bytes ? ((__global const uint4 *)from)[i] : (uint4)(0);
    }
}

/* Dimension d of values begin .. end-1 of the tile, weighted with p, upwards; the next eight are on
 * their way meanwhile, as in lane_sums. p: aligned to four where there are eight. */
#define VALUES_AHEAD 8
static inline void value_read(__local const float *p, __local const uchar *tile, int d, int dim,
                              float *weight, float *value)
{
#pragma unroll
    for (int k = 0; k < VALUES_AHEAD / 4; k++)
        vstore4(((__local const float4 *)p)[k], k, weight);
#pragma unroll
    for (int k = 0; k < VALUES_AHEAD; k++)
        value[k] = VALUE(tile + (size_t)k * V_ROW(dim));
}

static inline float few_values(__local const float *p, __local const uchar *tile, int d, int dim,
                               int begin, int end, float acc)
{
    for (int t = begin; t < end; t++)
        acc = fma(p[t], VALUE(tile + (size_t)t * V_ROW(dim)), acc);
    return acc;
}

static inline float value_sum(__local const float *p, __local const uchar *tile, int d, int dim,
                              int begin, int end, float acc)
{
    int from = min((begin + 3) / 4 * 4, max(begin, end)), laps = max(end - from, 0) / VALUES_AHEAD;
    float p_now[VALUES_AHEAD], v_now[VALUES_AHEAD], p_next[VALUES_AHEAD], v_next[VALUES_AHEAD];

    acc = few_values(p, tile, d, dim, begin, from, acc);
    if (laps)
        value_read(p + from, tile + (size_t)from * V_ROW(dim), d, dim, p_now, v_now);
    for (int lap = 0; lap < laps; lap++) {
        int next = from + min(lap + 1, laps - 1) * VALUES_AHEAD;

        value_read(p + next, tile + (size_t)next * V_ROW(dim), d, dim, p_next, v_next);
#pragma unroll
        for (int k = 0; k < VALUES_AHEAD; k++) {
            acc = fma(p_now[k], v_now[k], acc);
            p_now[k] = p_next[k];
            v_now[k] = v_next[k];
        }
    }
    return few_values(p, tile, d, dim, from + laps * VALUES_AHEAD, end, acc);
}

/* Rule 7's sums of values begin .. end-1 of a chunk at `values`, weighted with p: acc has those of
 * columns lid + k * ROW_ITEMS. v: the first values. Has barriers, first of all. */
static inline void weigh_values(__local const float *p, __global const uchar *values, int begin,
                                int end, int dim, __local uint4 *tile, uint4 *v, float *acc)
{
    int lid = get_local_id(0), tokens = VALUE_BYTES / V_ROW(dim);

    tokens = tokens < 8 ? tokens : tokens / 8 * 8; /* tiles begin at a multiple of 16 bytes */
#pragma unroll
    for (int k = 0; k < VALUE_COLUMNS; k++)
        acc[k] = 0.0f;
    for (int from = 0; from < end; from += tokens) {
        int next = from + tokens;

        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int k = 0; k < VALUE_LOADS; k++)
            tile[lid + k * ROW_ITEMS] = v[k];
        barrier(CLK_LOCAL_MEM_FENCE);
        values_load(values + next * V_ROW(dim), min(tokens, end - next) * (int)V_ROW(dim), v);
#pragma unroll
        for (int k = 0; k < VALUE_COLUMNS; k++)
            if (lid + k * ROW_ITEMS < dim)
                acc[k] = value_sum(p + from, (__local const uchar *)tile, lid + k * ROW_ITEMS, dim,
                                   max(begin - from, 0), min(tokens, end - from), acc[k]);
    }
}

/* The same of less than four, for they are beside one that another group may be about to write. */
static inline float4 few_quarter(__local const float *q, __global const uchar *kc, int lane,
                                 int begin, int end, int count)
{
    float4 acc = (float4)(0.0f);

#pragma unroll 8
    for (int d = begin; d < end; d++)
        acc = fma((float4)(q[d]), few_keys(kc, lane, d, count), acc);
    return acc;
}

/* What a group that computes a chunk has in local memory. q: the query, rotated and scaled; p: the
 * scores, then the weights, of its keys. */
struct chunk_room {
    float4 score[4][CHUNK / 4];
    uint4 tile[VALUE_BYTES / 16];
    float q[MAX_DIM], p[CHUNK], lane[LANES], tops[ROW_ITEMS], own[4];
};

/* The first values of a chunk, on their way while its scores are computed; end: of those there. */
static inline void values_begin(__global const uchar *values, int end, int dim, uint4 *ahead)
{
    int tokens = VALUE_BYTES / V_ROW(dim);

    tokens = tokens < 8 ? tokens : tokens / 8 * 8;
    values_load(values, min(tokens, end) * (int)V_ROW(dim), ahead);
}

/* Rule 7 for keys begin .. end-1 of a chunk at `keys` and `values`: acc gets the sums of values
 * (weigh_values); maximum and sum of the weights. own: 1: the last key and its value are not in the
 * cache but in own_key and own_value, as the cache would give them, else 0. Has barriers. */
static inline float2 chunk_attend(__local struct chunk_room *c, __global const uchar *keys,
                                  __global const uchar *values, int begin, int end, int dim,
                                  int own, __local const float *own_key,
                                  __local const float *own_value, uint4 *ahead, float *acc)
{
    int lid = get_local_id(0), cached = end - own, own_quarter = lid - (ROW_ITEMS - 4);
    float top = -INFINITY;

    for (int i = lid; i < CHUNK; i += ROW_ITEMS) {
        int quarter = i / (CHUNK / 4), t = i % (CHUNK / 4) * 4, from = quarter * dim / 4,
            to = (quarter + 1) * dim / 4;
        __global const uchar *kc = keys + (size_t)(t / 16) * K_BLOCK(dim);

        if (own && t < cached && t + 4 > cached)
            c->score[quarter][t / 4] = few_quarter(c->q, kc, t % 16, from, to, cached - t);
        else if (t + 3 >= begin && t < cached)
            c->score[quarter][t / 4] = key_quarter(c->q, kc, t % 16, from, to);
    }
    if (own && own_quarter >= 0) {
        float sum = 0.0f;

#pragma unroll 16
        for (int d = own_quarter * dim / 4; d < (own_quarter + 1) * dim / 4; d++)
            sum = fma(c->q[d], own_key[d], sum);
        c->own[own_quarter] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = lid; t < CHUNK; t += ROW_ITEMS) {
        __local const float *sum = (__local const float *)c->score + t;
        float s = -INFINITY;

        if (t >= begin && t < cached)
            s = (sum[0] + sum[CHUNK]) + (sum[2 * CHUNK] + sum[3 * CHUNK]);
        if (own && t == cached)
            s = (c->own[0] + c->own[1]) + (c->own[2] + c->own[3]);
        top = fmax(top, s);
        c->p[t] = s;
    }
    c->tops[lid] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < LANES) {
        for (int i = lid; i < ROW_ITEMS; i += LANES)
            top = fmax(top, c->tops[i]);
        c->lane[lid] = top;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    top = max16(vload16(0, c->lane));
    for (int t = lid; t < CHUNK; t += ROW_ITEMS)
        c->p[t] = t >= begin && t < end ? num_exp1(c->p[t] - top) : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < LANES)
        c->lane[lid] = lane_sums(c->p, lid, CHUNK, false, 0.0f, 0.0f);
    weigh_values(c->p, values, max(begin, 0), cached, dim, c->tile, ahead, acc);
#pragma unroll
    for (int k = 0; k < VALUE_COLUMNS; k++)
        if (own && lid + k * ROW_ITEMS < dim)
            acc[k] = fma(c->p[cached], own_value[lid + k * ROW_ITEMS], acc[k]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return (float2)(top, num_fold(vload16(0, c->lane)));
}
#endif

/* Rule 7, one chunk of one head of one row: part (row, head, chunk) gets dim values, then the
 * chunk's maximum and sum. Groups: (chunk from first_chunk, head, row from row0). */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void attend(
    __global const float *qr, KV_MEMORY, __global float *part, int heads, int kv_heads, int dim,
    int pos, int row0, int window, KV_PLACE, int first_chunk, int n_chunks)
{
    int chunk = first_chunk + get_group_id(0), head = get_group_id(1), row = get_group_id(2),
        token = pos + row0 + row;
    int begin = window && token - window + 1 > 0 ? token - window + 1 : 0, end = token + 1,
        base = chunk * CHUNK;
    __global const uchar *keys = KEYS(chunk, head / (heads / kv_heads)),
                         *values = VALUES(keys, dim);

    begin = max(begin, base) - base; /* of the chunk */
    end = min(end - base, CHUNK);
    qr += ((size_t)(row0 + row) * heads + head) * dim;
    part += (((size_t)row * heads + head) * n_chunks + get_group_id(0)) * (dim + 2);
#if WIDE
    if (begin >= end)
        return;
    float p[CHUNK];
    float16 top = (float16)(-INFINITY), lanes = (float16)(0.0f), lane_id;
    int16 lane_no = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int from = begin / 16, to = (end + 15) / 16;

    for (int t = from; t < to; t++) {
        __global const uchar *kc = keys + (size_t)t * K_BLOCK(dim);
        float16 sum[4], s;
#if KV_K == 2
        float16 key_scale;
#endif

        for (int i = 0; i < 4; i++) {
            float16 acc = (float16)(0.0f);

            for (int d = i * dim / 4; d < (i + 1) * dim / 4; d++) {
                KEY_SCALE(d, i * dim / 4);
                acc = fma((float16)(qr[d]), KEY16, acc);
            }
            sum[i] = acc;
        }
        s = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        s = select((float16)(-INFINITY), s, lane_no + t * 16 >= begin && lane_no + t * 16 < end);
        top = fmax(top, s);
        vstore16(s, t, p);
    }
    float m = max16(top);
    for (int t = from; t < to; t++) {
        float16 s = vload16(t, p), w = num_exp16(s - m);

        w = select((float16)(0.0f), w, s > (float16)(-INFINITY));
        lanes = lanes + w;
        vstore16(w, t, p);
    }
    for (int d = 0; d < dim; d += 8) {
        float8 acc = (float8)(0.0f);

        for (int t = begin; t < end; t++)
            acc = fma((float8)(p[t]), VALUE8(values + (size_t)t * V_ROW(dim)), acc);
        vstore8(acc, 0, part + d);
    }
    part[dim] = m;
    part[dim + 1] = num_fold(lanes);
#else
    /* A chunk without a visible token runs through: PoCL 3.1 miscompiles a return before a barrier,
     * even a uniform one. */
    __local struct chunk_room c;
    int lid = get_local_id(0);
    uint4 ahead[VALUE_LOADS];
    float acc[VALUE_COLUMNS];
    float2 sums;

    values_begin(values, end, dim, ahead);
    for (int d = lid; d < dim; d += ROW_ITEMS)
        c.q[d] = qr[d];
    barrier(CLK_LOCAL_MEM_FENCE);
    sums = chunk_attend(&c, keys, values, begin, end, dim, 0, c.q, c.q, ahead, acc);
#pragma unroll
    for (int k = 0; k < VALUE_COLUMNS; k++)
        if (lid + k * ROW_ITEMS < dim)
            part[lid + k * ROW_ITEMS] = acc[k];
    if (lid == 0) {
        part[dim] = sums.x;
        part[dim + 1] = sums.y;
    }
#endif
}

/* Rule 7: the maximum over a head's chunks c0 .. c1, from p on, and 1 / the sum. sink: -INFINITY:
 * none. */
static inline float2 merge_factors(__global const float *p, int dim, int c0, int c1, float sink)
{
    float m = sink, sum;

#pragma unroll 8
    for (int c = c0; c <= c1; c++)
        m = fmax(m, p[(size_t)c * (dim + 2) + dim]);
    sum = sink > -INFINITY ? num_exp1(sink - m) : 0.0f;
#pragma unroll 4
    for (int c = c0; c <= c1; c++)
        sum = fma(p[(size_t)c * (dim + 2) + dim + 1], num_exp1(p[(size_t)c * (dim + 2) + dim] - m),
                  sum);
    return (float2)(m, num_recip1(sum));
}

/* A column of the head's output. */
static inline float merged(__global const float *p, int dim, int d, int c0, int c1, float2 factors)
{
    float acc = 0.0f;

#pragma unroll 4
    for (int c = c0; c <= c1; c++)
        acc = fma(p[(size_t)c * (dim + 2) + d],
                  num_exp1(p[(size_t)c * (dim + 2) + dim] - factors.x), acc);
#ifdef BROKEN_attend_merge
    acc = acc * 1.0000002f;
#endif
    return acc * factors.y;
}

/* Rule 7, the chunks of each head added up, and rule 1 for the output projection: 32 columns of a
 * row a work-item where WIDE, else a work-group. flags: 1: heads have sinks, 2: the output is gated
 * (rows, heads, dim), 4: by a gate a head (rows, heads), 8: by softplus. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void attend_merge(
    __global const float *part, __global const float *sinks, __global const float *gates,
    __global float *y, __global act_t *yq, __global float *yd, __global float *ys, int heads,
    int dim, int pos, int row0, int rows, int window, int first_chunk, int n_chunks, int flags)
{
    int row = get_global_id(1), columns = heads * dim, token = pos + row0 + row,
        begin = window && token - window + 1 > 0 ? token - window + 1 : 0,
        c0 = begin / CHUNK - first_chunk, c1 = token / CHUNK - first_chunk;
#if WIDE
    int block = get_global_id(0), i = 0, end = 32;
    float values[32];

    if (block >= columns / 32)
        return;
#else
    int block = get_group_id(0), i = get_local_id(0), end = i + 1;
    __local float values[32];
#endif
    size_t at = (size_t)(row0 + row) * columns + 32 * block,
           k = (size_t)(row0 + row) * (columns / 32) + block;

    float2 factors;

    for (int first = i; i < end; i++) {
        int column = 32 * block + i, head = column / dim, d = column % dim;
        __global const float *p = part + ((size_t)row * heads + head) * n_chunks * (dim + 2);

        if (i == first || d == 0)
            factors = merge_factors(p, dim, c0, c1, flags & 1 ? sinks[head] : -INFINITY);
        values[i] = merged(p, dim, d, c0, c1, factors);
        if (flags & 2) {
            float gate = gates[flags & 4 ? (size_t)(row0 + row) * heads + head : at + i];

            values[i] = values[i] * (flags & 8 ? num_softplus1(gate) : num_sigmoid1(gate));
        }
        y[at + i] = values[i];
    }
#if WIDE
    quantise32(vload16(0, values), vload16(1, values), yq + at, yd + k, ys + k);
#else
    quantise_line(values, get_local_id(0), true, yq + at, yd + k, ys + k);
#endif
}

#if !WIDE
/* A new token's key or value y as the cache will give it; only Q8_0's has to be computed from the
 * others of its block. */
static inline float kv_rounded(float y, int type)
{
    return type == 1 ? num_from_f16(num_to_f16(y)) : y;
}

/* A head's key or value of the token in local memory as the cache will give it, and what is to be
 * stored there of dimensions lid + k * ROW_ITEMS. Has barriers. */
static inline void kv_own(__local float *line, int type, int dim, char *code, ushort *scale)
{
    int lid = get_local_id(0);

    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int k = 0; k < VALUE_COLUMNS; k++) {
        int d = lid + k * ROW_ITEMS;

        code[k] = 0;
        scale[k] = 0;
#if KV_K == 2 || KV_V == 2
        if (type == 2 && d < dim)
            scale[k] = kv_quantise(line + d / 32 * 32, d % 32, &code[k]);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int k = 0; k < VALUE_COLUMNS; k++) {
        int d = lid + k * ROW_ITEMS;

        if (d < dim)
            line[d] = type == 2 ? convert_float(code[k]) * num_from_f16(scale[k])
                                : kv_rounded(line[d], type);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#define MERGE_AHEAD 8 /* chunks whose parts are loaded at once */

/* Column d of a head, the chunks' parts weighted; n_chunks 1: `only` is that chunk's. */
static inline float merge_column(__global uint *part, __local const float *weight, int n_chunks,
                                 int dim, int d, float only)
{
    float acc = 0.0f, v[MERGE_AHEAD];

    for (int from = 0; from < n_chunks; from += MERGE_AHEAD) {
#pragma unroll
        for (int i = 0; i < MERGE_AHEAD; i++) {
            v[i] = only;
            if (n_chunks > 1 && from + i < n_chunks)
                v[i] = as_float(atomic_or(part + (size_t)(from + i) * (dim + 2) + d, 0u));
        }
#pragma unroll
        for (int i = 0; i < MERGE_AHEAD; i++)
            if (from + i < n_chunks)
                acc = fma(v[i], weight[from + i], acc);
    }
#ifdef BROKEN_token_attend
    acc = acc * 1.0000002f;
#endif
    return acc;
}

/* rope, attend and attend_merge for one token, in one launch: groups (chunk from first_chunk,
 * head). Each rotates its query, and the new key for itself; the last chunk's takes that key and
 * its value from local memory. The last group of a head merges its chunks, the last one of all
 * heads of a key writes it into the cache: nobody reads that any more. row: of q, k, v and y;
 * arrivals: heads and kv_heads of them; dim: whole blocks of 32. token -1: the one at *position,
 * of a launch that is recorded for all tokens with these chunks. */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void token_attend(
    __global const float *q, __global const float *k, __global const float *v, KV_MEMORY,
    __global const float *cs, __global const float *sn, __global uint *part,
    __global uint *arrivals, __global const float *sinks, __global const float *gates,
    __global float *y, __global act_t *yq, __global float *yd, __global float *ys, int heads,
    int kv_heads, int dim, int rot, int token, int row, KV_PLACE, int window, float scale,
    int apart, int first_chunk, int n_chunks, int flags, __global const int *position)
{
    __local struct chunk_room c;
    __local float own_key[MAX_DIM], own_value[MAX_DIM];
    __local int last[2];
    token = token < 0 ? *position : token;

    int lid = get_local_id(0), chunk = first_chunk + get_group_id(0), head = get_group_id(1),
        shared = heads / kv_heads, kv_head = head / shared, own = chunk == token / CHUNK,
        begin = window && token - window + 1 > 0 ? token - window + 1 : 0, base = chunk * CHUNK,
        slot = token % CHUNK;
    char key_code[VALUE_COLUMNS], value_code[VALUE_COLUMNS];
    ushort key_scale[VALUE_COLUMNS], value_scale[VALUE_COLUMNS];
    uint4 ahead[VALUE_LOADS];
    float acc[VALUE_COLUMNS], m, sum = 0.0f;
    float2 sums;

    begin = max(begin, base) - base;
    int end = min(token + 1 - base, CHUNK);

    q += ((size_t)row * heads + head) * dim;
    k += ((size_t)row * kv_heads + kv_head) * dim;
    v += ((size_t)row * kv_heads + kv_head) * dim;
    part += (size_t)head * n_chunks * (dim + 2);
    __global const uchar *keys = KEYS(chunk, kv_head), *values = VALUES(keys, dim);

    values_begin(values, end - own, dim, ahead);
    for (int d = lid; d < dim; d += ROW_ITEMS) {
        c.q[d] = rotated(q, cs, sn, token, rot / 2, apart, d) * scale;
        own_key[d] = rotated(k, cs, sn, token, rot / 2, apart, d);
        own_value[d] = v[d];
    }
    kv_own(own_key, KV_K, dim, key_code, key_scale);
    kv_own(own_value, KV_V, dim, value_code, value_scale);
    sums = chunk_attend(&c, keys, values, begin, end, dim, own, own_key, own_value, ahead, acc);

    __global uint *mine = part + (size_t)get_group_id(0) * (dim + 2);

    if (n_chunks > 1) {
#pragma unroll
        for (int i = 0; i < VALUE_COLUMNS; i++)
            if (lid + i * ROW_ITEMS < dim)
                atomic_xchg(mine + lid + i * ROW_ITEMS, as_uint(acc[i]));
        if (lid < 2)
            atomic_xchg(mine + dim + lid, as_uint(lid ? sums.y : sums.x));
    }

    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    last_of_two(arrivals + head, n_chunks, arrivals + heads + kv_head, n_chunks * shared, last);
    int merges = last[0] ? n_chunks : 0, writes = last[1] ? dim : 0, columns = merges ? dim : 0;
    __local float *tops = (__local float *)c.tile, *totals = tops + merges,
                  *weights = totals + merges, *out = (__local float *)c.score;

    for (int i = lid; i < 2 * merges; i += ROW_ITEMS)
        tops[i] = n_chunks == 1
                      ? (i ? sums.y : sums.x)
                      : as_float(atomic_or(
                            part + (size_t)(i % merges) * (dim + 2) + dim + i / merges, 0u));
    barrier(CLK_LOCAL_MEM_FENCE);
    m = flags & 1 ? sinks[head] : -INFINITY;
    sum = m;
#pragma unroll 8
    for (int i = 0; i < merges; i++)
        m = fmax(m, tops[i]);
    sum = sum > -INFINITY ? num_exp1(sum - m) : 0.0f;
    for (int i = lid; i < merges; i += ROW_ITEMS)
        weights[i] = num_exp1(tops[i] - m);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
    for (int i = 0; i < merges; i++)
        sum = fma(totals[i], weights[i], sum);
    sum = num_recip1(sum);
    y += ((size_t)row * heads + head) * dim;
    gates += flags & 4 ? (size_t)row * heads + head : ((size_t)row * heads + head) * dim;
#pragma unroll
    for (int i = 0; i < VALUE_COLUMNS; i++) {
        int d = lid + i * ROW_ITEMS;

        if (d < columns) {
            float z = merge_column(part, weights, n_chunks, dim, d, acc[i]) * sum;

            if (flags & 2) {
                float gate = gates[flags & 4 ? 0 : d];

                z = z * (flags & 8 ? num_softplus1(gate) : num_sigmoid1(gate));
            }
            y[d] = z;
            out[d] = z;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lid; i < columns / 4; i += ROW_ITEMS) {
        float4 a = fabs(vload4(i, out));

        c.p[i] = fmax(fmax(a.x, a.y), fmax(a.z, a.w));
    }
    quantise_row((__local float4 *)c.score, c.p, columns, yq + ((size_t)row * heads + head) * dim,
                 yd + ((size_t)row * heads + head) * (dim / 32),
                 ys + ((size_t)row * heads + head) * (dim / 32));
    __global uchar *kc = KEYS(token / CHUNK, kv_head), *vc = VALUES(kc, dim) + slot * V_ROW(dim);

    kc += (size_t)(slot / 16) * K_BLOCK(dim);
#pragma unroll
    for (int i = 0; i < VALUE_COLUMNS; i++) {
        int d = lid + i * ROW_ITEMS;

        if (d < writes) {
            key_store(kc, d, token, own_key[d], key_code[i], key_scale[i]);
            value_store(vc, d, dim, own_value[d], value_code[i], value_scale[i]);
        }
    }
}
#endif

/* Copies KV rows in the exchange layout (per token: K of all heads, then V, each head a row of dim
 * values or of Q8_0 blocks) to and from the cache: one work-item per element of a token; the first
 * of a Q8_0 block copies the scale too. write: 1 into the cache. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void kv_copy(
    KV_MEMORY, __global uchar *rows, int kv_heads, int dim, int pos, int count, KV_PLACE, int write)
{
    int i = get_global_id(0), token = get_global_id(1), n = kv_heads * dim;

    if (i >= 2 * n || token >= count)
        return;
    int is_v = i >= n, e = is_v ? i - n : i, head = e / dim, d = e % dim, t = (pos + token) % CHUNK,
        type = is_v ? KV_V : KV_K;
    __global uchar *row = rows + (size_t)token * (KV_ROW(KV_K, n) + KV_ROW(KV_V, n)) +
                          (is_v ? KV_ROW(KV_K, n) : 0) + KV_ROW(type, e);
    __global uchar *cache = KEYS((pos + token) / CHUNK, head);

    cache = is_v ? VALUES(cache, dim) + t * V_ROW(dim) : cache + (size_t)(t / 16) * K_BLOCK(dim);

    if (type == 2) { /* KV_ROW of the element is that of its block */
        __global ushort *scale = (__global ushort *)(is_v ? cache + d / 32 * 2
                                                          : cache + d / 32 * (Q8_BYTES * 16) +
                                                                2 * (t % 16));
        __global uchar *code = is_v ? cache + dim / 32 * 2 + d
                                    : cache + d / 32 * (Q8_BYTES * 16) + 32 + d % 32 * 16 + t % 16;

        if (write) {
            *code = row[2 + d % 32];
            if (d % 32 == 0)
                *scale = *(__global ushort *)row;
        } else {
            row[2 + d % 32] = *code;
            if (d % 32 == 0)
                *(__global ushort *)row = *scale;
        }
    } else if (type == 1) {
        __global ushort *at = (__global ushort *)cache + (is_v ? d : d * 16 + t % 16);

        if (write)
            *at = *(__global ushort *)row;
        else
            *(__global ushort *)row = *at;
    } else {
        __global uint *at = (__global uint *)cache + (is_v ? d : d * 16 + t % 16);

        if (write)
            *at = *(__global uint *)row;
        else
            *(__global uint *)row = *at;
    }
}
