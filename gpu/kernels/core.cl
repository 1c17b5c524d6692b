/* All kernels other than matrices: norm, quantisation of rows, rotary embedding and KV cache,
 * attention, routing, combination. Rules as numbered in engine/device/numerics.h. Defined by the
 * host beyond common.cl: KV_K, KV_V, the cache's types (0: F32, 1: F16, 2: Q8_0, blocks of 32
 * dimensions as num_kv_quantise_block makes them); ROUTE_SIDES, groups of sixteen experts that the
 * router takes at once; MAX_EXPERTS, a multiple of 16; ROW_ITEMS, work-items of a group that
 * computes a row or a chunk of keys: 1 where WIDE, else 64, 128 or 256; MAX_DIM: widest head. */

#define RMS_ITEMS (WIDE ? 1 : 64)
#define LINE 32 /* work-items of a group where each stands alone */

/* Cache of one layer. K: per head, blocks of 16 tokens: (d, 16), or with Q8_0 per 32 dimensions 16
 * scales (F16), then (32, 16) bytes. V: per head, token by token: dim values, or with Q8_0 blocks
 * of a scale and 32 bytes. In bytes: */
#define Q8_BYTES 34
#define KV_ROW(type, n) \
    ((type) == 0 ? (size_t)(n)*4 : (type) == 1 ? (size_t)(n)*2 : (size_t)((n) / 32) * Q8_BYTES)
#define K_BLOCK(dim) (KV_ROW(KV_K, dim) * 16)
#define K_HEAD(stride, dim) ((size_t)(stride) / 16 * K_BLOCK(dim))
#define V_ROW(dim) KV_ROW(KV_V, dim)

#if !WIDE
/* A GPU waits for memory once for all values that are loaded before the first of them is used: what
 * adds up in order loads many at a time, or finds them in local memory. */
#define ROW_TILE 4096 /* columns of a row in local memory */

/* Lane `lid` of rule 4 goes on over a row's piece in local memory: the sum of the values, or of the
 * squares of what they are above the mean. */
static inline float lane_sum(__local const float *x, int lid, int n, float sum)
{
#pragma unroll 16
    for (int i = lid; i < n; i += LANES)
        sum = sum + x[i];
    return sum;
}

static inline float lane_squares(__local const float *x, int lid, int n, float mean, float sum)
{
#pragma unroll 16
    for (int i = lid; i < n; i += LANES) {
        float c = x[i] - mean;

        sum = fma(c, c, sum);
    }
    return sum;
}

/* Rule 4's sum over a row by a work-group: everyone loads, sixteen add up. loaded: the row is in
 * `tile` from the last call. Has barriers. Everyone gets the sum. */
static inline float row_lanes(__global const float *x, int n, bool squares, float mean, bool loaded,
                              __local float *tile, __local float *lane)
{
    int lid = get_local_id(0), items = get_local_size(0);
    float sum = 0.0f;

    for (int at = 0; at < n; at += ROW_TILE) {
        int count = min(ROW_TILE, n - at);

        if (!loaded)
            for (int i = lid; i < count; i += items)
                tile[i] = x[at + i];
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid < LANES)
            sum = squares ? lane_squares(tile, lid, count, mean, sum)
                          : lane_sum(tile, lid, count, sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (lid < LANES)
        lane[lid] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    return num_fold(vload16(0, lane));
}

#define ROUTER_AHEAD (ROUTE_SIDES > 2 ? 16 : 32) /* few work-items load more each */

/* Columns begin .. end-1 of h against those of one expert, whose values stand `step` apart. */
static inline float router_sum(__global const float *h, __global const float *router, int begin,
                               int end, int step)
{
    float sum = 0.0f, v[ROUTER_AHEAD], x[ROUTER_AHEAD];
    int c = begin;

    for (; c + ROUTER_AHEAD <= end; c += ROUTER_AHEAD) {
#pragma unroll
        for (int k = 0; k < ROUTER_AHEAD; k++) {
            v[k] = router[(size_t)(c + k) * step];
            x[k] = h[c + k];
        }
#pragma unroll
        for (int k = 0; k < ROUTER_AHEAD; k++)
            sum = fma(v[k], x[k], sum);
    }
    for (; c < end; c++)
        sum = fma(router[(size_t)c * step], h[c], sum);
    return sum;
}
#endif

/* Rule 9 for element i of a row: what its `used` experts gave, `step` apart in out, in routing
 * order. */
static inline float combined(__global const float *out, __global const float *weights, size_t i,
                             size_t step, int used)
{
    float acc = weights[0] * out[i];

    for (int s = 1; s < used; s++)
        acc = fma(weights[s], out[s * step + i], acc);
    return acc;
}

/* Rule 5 and rule 1: one work-group a row. h gets the normed row, hq/hd/hs its quantised form.
 * flags: 1 norm has a bias, 2 RMSNorm (no mean is taken away), 4 there is no norm: rows are copied.
 * h may be x. used: not 0: first the layer before ends, the outputs of its experts being added to
 * x (combine). */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void norm(
    __global float *x, __global const float *w, __global const float *b, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, int n, float inv_n, float eps,
    int flags, __global const float *out, __global const float *weights, int base, int rows,
    int used)
{
    size_t row = get_group_id(0);
    int lid = get_local_id(0);
    float mean, r;

    x += row * n;
    h += row * n;
    hq += row * n;
    hd += row * (n / 32);
    hs += row * (n / 32);
    out += row * n;
    weights += base + row * used;
#if WIDE
    float16 lanes = (float16)(0.0f);

    for (int i = 0; i < n / 16 && used; i++) {
        float16 acc = weights[0] * vload16(i, out);

        for (int s = 1; s < used; s++)
            acc = fma((float16)(weights[s]), vload16(i, out + (size_t)s * rows * n), acc);
        vstore16(vload16(i, x) + acc, i, x);
    }

    for (int i = 0; i < n / 16; i++)
        lanes = lanes + vload16(i, x);
    mean = flags & 2 ? 0.0f : num_fold(lanes) * inv_n;
    lanes = (float16)(0.0f);
    for (int i = 0; i < n / 16; i++) {
        float16 c = vload16(i, x) - mean;

        lanes = fma(c, c, lanes);
    }
    r = num_rsqrt(fma(num_fold(lanes), inv_n, eps));
#else
    __local float lane[LANES], square[LANES], tile[ROW_TILE];

    for (int i = lid; i < n && used; i += ROW_ITEMS)
        x[i] = x[i] + combined(out, weights, i, (size_t)rows * n, used);
    barrier(CLK_GLOBAL_MEM_FENCE);
    mean = row_lanes(x, n, false, 0.0f, false, tile, lane) * inv_n;
    mean = flags & 2 ? 0.0f : mean;
    r = num_rsqrt(fma(row_lanes(x, n, true, mean, n <= ROW_TILE, tile, square), inv_n, eps));
#endif
#ifdef BROKEN_norm /* tests: one bit off, as a miscompiled kernel might be */
    r = r * 1.0000002f;
#endif
    if (flags & 4) {
        mean = 0.0f;
        r = 1.0f;
    }
    for (int k = lid; k < n / 32; k += ROW_ITEMS) {
        float16 y0 = (vload16(2 * k, x) - mean) * r, y1 = (vload16(2 * k + 1, x) - mean) * r;

        if (flags & 1) {
            y0 = fma(y0, vload16(2 * k, w), vload16(2 * k, b));
            y1 = fma(y1, vload16(2 * k + 1, w), vload16(2 * k + 1, b));
        } else if (!(flags & 4)) {
            y0 = y0 * vload16(2 * k, w);
            y1 = y1 * vload16(2 * k + 1, w);
        }
        vstore16(y0, 2 * k, h);
        vstore16(y1, 2 * k + 1, h);
        quantise32(y0, y1, hq + 32 * k, hd + k, hs + k);
    }
}

/* RMSNorm of rule 5 in place, for rows of any length: one work-group per row. For q and k, a head's
 * or all heads together, and for a head's values, whose norm has no weights (weighted 0). */
__kernel __attribute__((reqd_work_group_size(RMS_ITEMS, 1, 1))) void rms_rows(
    __global float *x, __global const float *w, int n, float inv_n, float eps, int weighted)
{
    float r;

    x += get_group_id(0) * n;
#if WIDE
    float16 lanes = (float16)(0.0f);
    float lane[LANES];

    for (int i = 0; i < n / 16; i++)
        lanes = fma(vload16(i, x), vload16(i, x), lanes);
    vstore16(lanes, 0, lane);
    for (int i = n / 16 * 16; i < n; i++)
        lane[i % 16] = fma(x[i], x[i], lane[i % 16]);
    r = num_rsqrt(fma(num_fold(vload16(0, lane)), inv_n, eps));
#else
    __local float lane[LANES], tile[ROW_TILE];

    r = num_rsqrt(fma(row_lanes(x, n, true, 0.0f, false, tile, lane), inv_n, eps));
#endif
#ifdef BROKEN_rms_rows
    r = r * 1.0000002f;
#endif
    for (int i = get_local_id(0); i < n; i += RMS_ITEMS)
        x[i] = weighted ? x[i] * r * w[i] : x[i] * r;
}

/* Rule 1 for rows from the host: one work-item per block. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void quantise(
    __global const float *x, __global act_t *q, __global float *d, __global float *s, int blocks)
{
    size_t k = get_global_id(0);

    if (k < blocks)
        quantise32(vload16(2 * k, x), vload16(2 * k + 1, x), q + 32 * k, d + k, s + k);
}

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

/* Rule 6 and the KV cache: one work-item per element of a head, heads in the order q, k, v. q is
 * rotated and scaled from `q` into `qr`. Rows from row0 on; row 0 would be at position pos. stride:
 * capacity of the cache in tokens, each stored at its position modulo that. apart: 1: pairs are
 * (2i, 2i + 1), else (i, i + apart), i below rot/2. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void rope(
    __global const float *q, __global const float *k, __global const float *v, __global float *qr,
    __global uchar *kc, __global uchar *vc, __global const float *cs, __global const float *sn,
    int heads, int kv_heads, int dim, int rot, int pos, int row0, int stride, float scale,
    int apart)
{
    int d = get_global_id(0), head = get_global_id(1), row = row0 + get_global_id(2),
        half_rot = rot / 2, token = pos + row, slot = token % stride;
    int is_v = head >= heads + kv_heads, h = is_v           ? head - heads - kv_heads
                                             : head < heads ? head
                                                            : head - heads;
    __global const float *in = is_v           ? v + ((size_t)row * kv_heads + h) * dim
                               : head < heads ? q + ((size_t)row * heads + h) * dim
                                              : k + ((size_t)row * kv_heads + h) * dim;
    float y = 0.0f;

    if (d < dim)
        y = in[d];
    int second = apart == 1 ? d & 1 : d >= apart, i = apart == 1 ? d / 2 : second ? d - apart : d;
    if (!is_v && i < half_rot) {
        int first = apart == 1 ? 2 * i : i;
        float c = cs[(size_t)token * half_rot + i], s = sn[(size_t)token * half_rot + i],
              x0 = in[first], x1 = in[first + apart];

        if (!second) {
            float t = x1 * s;

            y = fma(x0, c, -t);
        } else {
            float t = x0 * s;

            y = fma(x1, c, t);
        }
    }
    kc += (size_t)h * K_HEAD(stride, dim) + (size_t)(slot / 16) * K_BLOCK(dim);
    vc += ((size_t)h * stride + slot) * V_ROW(dim);
#if KV_K == 2 || KV_V == 2
    /* No work-item has returned: some compilers get a return before a barrier wrong. */
    __local float line[LINE];
    int lid = get_local_id(0);
    char code;

    line[lid] = y;
    barrier(CLK_LOCAL_MEM_FENCE);
    ushort block_scale = kv_quantise(line, lid, &code);
#endif
    if (d >= dim)
        return;
    if (is_v) {
#if KV_V == 2
        vc += d / 32 * Q8_BYTES;
        vc[2 + lid] = as_uchar(code);
        if (lid == 0)
            *(__global ushort *)vc = block_scale;
#elif KV_V == 1
        ((__global ushort *)vc)[d] = num_to_f16(y);
#else
        ((__global float *)vc)[d] = y;
#endif
    } else if (head < heads) {
        qr[((size_t)row * heads + head) * dim + d] = y * scale;
    } else {
#if KV_K == 2
        kc += d / 32 * (Q8_BYTES * 16);
        kc[32 + lid * 16 + token % 16] = as_uchar(code);
        if (lid == 0)
            ((__global ushort *)kc)[token % 16] = block_scale;
#elif KV_K == 1
        ((__global ushort *)kc)[d * 16 + token % 16] = num_to_f16(y);
#else
        ((__global float *)kc)[d * 16 + token % 16] = y;
#endif
    }
}

/* Dimension d of a key, `lane` of its block of 16 at kc, or where WIDE of all 16; KEY_SCALE first
 * wherever a block of 32 dimensions begins there. Values d .. d+7 of a token, vc at its row. */
#if KV_K == 2
#define KEYS_AT (kc + d / 32 * (Q8_BYTES * 16))
#define KEY_SCALE(d, begin)              \
    if ((d) % 32 == 0 || (d) == (begin)) \
    key_scale = vload_half16(0, (__global const half *)KEYS_AT)
#define KEY16 (convert_float16(vload16(d % 32, (__global const char *)KEYS_AT + 32)) * key_scale)
#define KEY                                                                    \
    (convert_float(((__global const char *)KEYS_AT)[32 + d % 32 * 16 + lane]) * \
     vload_half(lane, (__global const half *)KEYS_AT))
#else
#define KEY_SCALE(d, begin)
#if KV_K == 1
#define KEY16 vload_half16(d, (__global const half *)kc)
#define KEY vload_half(d * 16 + lane, (__global const half *)kc)
#else
#define KEY16 vload16(d, (__global const float *)kc)
#define KEY ((__global const float *)kc)[d * 16 + lane]
#endif
#endif
#if KV_V == 2
#define VALUE_BLOCK(p) ((p) + d / 32 * Q8_BYTES)
#define VALUE(p)                                                          \
    (convert_float(((__global const char *)VALUE_BLOCK(p))[2 + d % 32]) * \
     vload_half(0, (__global const half *)VALUE_BLOCK(p)))
#define VALUE8(p)                                                                    \
    (convert_float8(vload8(0, (__global const char *)VALUE_BLOCK(p) + 2 + d % 32)) * \
     (float8)(vload_half(0, (__global const half *)VALUE_BLOCK(p))))
#elif KV_V == 1
#define VALUE(p) vload_half(d, (__global const half *)(p))
#define VALUE8(p) vload_half8(0, (__global const half *)(p) + d)
#else
#define VALUE(p) ((__global const float *)(p))[d]
#define VALUE8(p) vload8(0, (__global const float *)(p) + d)
#endif

#if !WIDE
static inline float key_value(__global const uchar *kc, int lane, int d)
{
    return KEY;
}

/* Rule 3 of q and a key: its quarters beside each other, 8 dimensions of each loaded at once. */
static inline float key_score(__local const float *q, __global const uchar *kc, int lane, int dim)
{
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f}, v[4][8];
    int quarter = dim / 4, d = 0;

    for (; d + 8 <= quarter; d += 8) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            v[i / 8][i % 8] = key_value(kc, lane, i / 8 * quarter + d + i % 8);
#pragma unroll
        for (int i = 0; i < 32; i++)
            acc[i / 8] = fma(q[i / 8 * quarter + d + i % 8], v[i / 8][i % 8], acc[i / 8]);
    }
    for (; d < quarter; d++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] = fma(q[i * quarter + d], key_value(kc, lane, i * quarter + d), acc[i]);
    return (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

/* Dimension d of n values, weighted with p, upwards. */
#define VALUES_AHEAD 32
static inline float value_sum(__local const float *p, __global const uchar *values, int d, int dim,
                              int n)
{
    float acc = 0.0f, v[VALUES_AHEAD];
    int t = 0;

    for (; t + VALUES_AHEAD <= n; t += VALUES_AHEAD) {
#pragma unroll
        for (int k = 0; k < VALUES_AHEAD; k++)
            v[k] = VALUE(values + (size_t)(t + k) * V_ROW(dim));
#pragma unroll
        for (int k = 0; k < VALUES_AHEAD; k++)
            acc = fma(p[t + k], v[k], acc);
    }
    for (; t < n; t++)
        acc = fma(p[t], VALUE(values + (size_t)t * V_ROW(dim)), acc);
    return acc;
}
#endif

/* Rule 7, one chunk of one head of one row: part (row, head, chunk) gets dim values, then the
 * chunk's maximum and sum. Groups: (chunk from first_chunk, head, row from row0). */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void attend(
    __global const float *qr, __global const uchar *keys, __global const uchar *values,
    __global float *part, int heads, int kv_heads, int dim, int pos, int row0, int window,
    int stride, int first_chunk, int n_chunks)
{
    int chunk = first_chunk + get_group_id(0), head = get_group_id(1), row = get_group_id(2),
        token = pos + row0 + row;
    int begin = window && token - window + 1 > 0 ? token - window + 1 : 0, end = token + 1,
        base = chunk * CHUNK, laps = base - base % stride;

    /* A chunk is contiguous: positions are relative to the last wrap-around of the cache. */
    begin = max(begin, base) - laps;
    end = min(end, base + CHUNK) - laps;
    base -= laps;
    qr += ((size_t)(row0 + row) * heads + head) * dim;
    part += (((size_t)row * heads + head) * n_chunks + get_group_id(0)) * (dim + 2);
    keys += (size_t)(head / (heads / kv_heads)) * K_HEAD(stride, dim);
    values += (size_t)(head / (heads / kv_heads)) * stride * V_ROW(dim);
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
        vstore16(s, t - base / 16, p);
    }
    float m = max16(top);
    for (int t = from; t < to; t++) {
        float16 s = vload16(t - base / 16, p), w = num_exp16(s - m);

        w = select((float16)(0.0f), w, s > (float16)(-INFINITY));
        lanes = lanes + w;
        vstore16(w, t - base / 16, p);
    }
    for (int d = 0; d < dim; d += 8) {
        float8 acc = (float8)(0.0f);

        for (int t = begin; t < end; t++)
            acc = fma((float8)(p[t - base]), VALUE8(values + (size_t)t * V_ROW(dim)), acc);
        vstore8(acc, 0, part + d);
    }
    part[dim] = m;
    part[dim + 1] = num_fold(lanes);
#else
    /* A chunk without a visible token runs through: PoCL 3.1 miscompiles a return before a barrier,
     * even a uniform one. */
    __local float q[MAX_DIM], p[CHUNK], lane[LANES], tops[ROW_ITEMS];
    int lid = get_local_id(0);
    float top = -INFINITY;

    for (int d = lid; d < dim; d += ROW_ITEMS)
        q[d] = qr[d];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = base + lid; t < base + CHUNK; t += ROW_ITEMS) {
        float s = -INFINITY;

        if (t >= begin && t < end)
            s = key_score(q, keys + (size_t)(t / 16) * K_BLOCK(dim), t % 16, dim);
        top = fmax(top, s);
        p[t - base] = s;
    }
    tops[lid] = top;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < LANES) {
        for (int i = lid; i < ROW_ITEMS; i += LANES)
            top = fmax(top, tops[i]);
        lane[lid] = top;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    top = max16(vload16(0, lane));
    for (int t = lid; t < CHUNK; t += ROW_ITEMS)
        p[t] = t + base >= begin && t + base < end ? num_exp1(p[t] - top) : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < LANES) {
        float sum = 0.0f;

        for (int t = lid; t < CHUNK; t += LANES)
            sum = sum + p[t];
        lane[lid] = sum;
    }
    for (int d = lid; d < dim; d += ROW_ITEMS)
        part[d] = value_sum(p + max(begin - base, 0), values + (size_t)begin * V_ROW(dim), d, dim,
                            end - begin);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid == 0) {
        part[dim] = top;
        part[dim + 1] = num_fold(vload16(0, lane));
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
        sum = fma(p[(size_t)c * (dim + 2) + dim + 1],
                  num_exp1(p[(size_t)c * (dim + 2) + dim] - m), sum);
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
 * (rows, heads, dim). */
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
        if (flags & 2)
            values[i] = values[i] * num_sigmoid1(gates[at + i]);
        y[at + i] = values[i];
    }
#if WIDE
    quantise32(vload16(0, values), vload16(1, values), yq + at, yd + k, ys + k);
#else
    quantise_line(values, yq + at, yd + k, ys + k);
#endif
}

#if WIDE
/* The likeliest expert not chosen for an earlier slot. */
static inline int best_left(__global const float *scores, int n_experts,
                            __global const int *experts, int slot)
{
    int best = -1;

    for (int e = 0; e < n_experts; e++) {
        bool taken = false;

        for (int i = 0; i < slot; i++)
            taken = taken || experts[i] == e;
        if (!taken && (best < 0 || scores[e] > scores[best]))
            best = e;
    }
    return best;
}
#else
#define ROUTE_ITEMS (64 * ROUTE_SIDES) /* sixteens of experts in parallel */

/* Shared by the whole work-group of a row; MAX_EXPERTS: what scores are padded to. */
struct choice {
    float score[MAX_EXPERTS], term[MAX_EXPERTS];
    int candidate[LANES];
    uchar taken[MAX_EXPERTS];
};

/* Scores to probabilities: maximum and exponentials in parallel, the sum in order. Called with
 * n_experts 0 if there is no softmax: PoCL 3.1 gets barriers skipped by a branch wrong. */
static inline void route_softmax(__local struct choice *c, int n_experts)
{
    float top = c->score[0], sum = 0.0f;

#pragma unroll 8
    for (int e = 1; e < n_experts; e++)
        top = c->score[e] > top ? c->score[e] : top;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = get_local_id(0); e < n_experts; e += ROUTE_ITEMS)
        c->score[e] = num_exp1(c->score[e] - top);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
    for (int e = 0; e < n_experts; e++)
        sum = sum + c->score[e];
    sum = num_recip1(sum);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = get_local_id(0); e < n_experts; e += ROUTE_ITEMS)
        c->score[e] = c->score[e] * sum;
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The likeliest expert not taken, the first of equals: of sixteen ranges, then of those. */
static inline int route_best(__local struct choice *c, int n_experts)
{
    int lid = get_local_id(0), size = (n_experts + LANES - 1) / LANES, best = -1;

    if (lid < LANES) {
        for (int e = lid * size; e < min(n_experts, (lid + 1) * size); e++)
            if (!c->taken[e] && (best < 0 || c->score[e] > c->score[best]))
                best = e;
        c->candidate[lid] = best;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    best = -1;
    for (int i = 0; i < LANES; i++) {
        int e = c->candidate[i];

        if (e >= 0 && (best < 0 || c->score[e] > c->score[best]))
            best = e;
    }
    return best;
}

/* Each expert's term in the weight of `best` in SparseMixer: 0 for those far below it and those
 * taken. */
static inline void route_terms(__local struct choice *c, int n_experts, int best, float limit)
{
    float top = c->score[best];

    for (int e = get_local_id(0); e < n_experts; e += ROUTE_ITEMS) {
        float a = fabs(c->score[e]), f = a > top ? a : top;
        bool out = c->taken[e] || (e != best && top - c->score[e] > limit * f);

        c->term[e] = out ? 0.0f : num_exp1(c->score[e] - top);
    }
}

static inline float route_weight(__local const struct choice *c, int n_experts)
{
    float total = 0.0f;

#pragma unroll 8
    for (int e = 0; e < n_experts; e++)
        total = total + c->term[e];
    return num_recip1(total);
}
#endif

/* Rule 10: scores of one row with the transposed router (n, padded experts), then SparseMixer, or
 * (flags 2) softmax, whose scores become probabilities in place; flags 4: the chosen weights sum to
 * 1; factor: times this. One work-group per row. flags 1: a single row, so the tiles of its experts
 * are written here too; 8: scores have a bias. */
#if WIDE
#define ROUTE_ITEMS 1
#endif
__kernel __attribute__((reqd_work_group_size(ROUTE_ITEMS, 1, 1))) void route(
    __global const float *h, __global const float *router, __global const float *score_bias,
    __global float *scores, __global int *experts, __global float *weights, __global int4 *tiles,
    __global int2 *entries, int base, int n, int n_experts, int padded, int used, float jitter,
    float factor, int flags)
{
    size_t row = get_group_id(0);

    h += row * n;
    scores += row * n_experts;
    experts += base + row * used;
    weights += base + row * used;
#if WIDE
    for (int e = 0; e < padded; e += 16) {
        float16 sum[4], s;
        float out[16];

        for (int i = 0; i < 4; i++) {
            float16 acc = (float16)(0.0f);

            for (int c = (int)((long)i * n / 4); c < (int)((long)(i + 1) * n / 4); c++)
                acc = fma(vload16(0, router + (size_t)c * padded + e), (float16)(h[c]), acc);
            sum[i] = acc;
        }
        s = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        vstore16(s, 0, out);
        for (int i = 0; i < 16 && e + i < n_experts; i++)
            scores[e + i] = out[i];
    }
    float limit = 2.0f * jitter, sum_all = 0.0f;

    for (int e = 0; e < n_experts && flags & 8; e++)
        scores[e] = scores[e] + score_bias[e];
    if (flags & 2) {
        float top = scores[0];

        for (int e = 1; e < n_experts; e++)
            top = scores[e] > top ? scores[e] : top;
        for (int e = 0; e < n_experts; e++) {
            scores[e] = num_exp1(scores[e] - top);
            sum_all = sum_all + scores[e];
        }
        sum_all = num_recip1(sum_all);
        for (int e = 0; e < n_experts; e++)
            scores[e] = scores[e] * sum_all;
        sum_all = 0.0f;
    }
    for (int slot = 0; slot < used; slot++) {
        int best = best_left(scores, n_experts, experts, slot);
        float top = scores[best], total = 0.0f;

        for (int e = 0; e < n_experts && !(flags & 2); e++) {
            float a = fabs(scores[e]), f = a > top ? a : top;
            bool taken = false;

            for (int i = 0; i < slot; i++)
                taken = taken || experts[i] == e;
            if (taken || (e != best && top - scores[e] > limit * f))
                continue;
            total = total + num_exp1(scores[e] - top);
        }
        experts[slot] = best;
        weights[slot] = flags & 2 ? top : num_recip1(total);
        sum_all = sum_all + top;
        if (flags & 1) {
            tiles[slot] = (int4)(slot, 1, best, 0);
            entries[slot] = (int2)(0, slot);
        }
    }
    if (flags & 2) {
        float scale = (flags & 4 ? num_recip1(sum_all) : 1.0f) * factor;

        for (int slot = 0; slot < used; slot++)
            weights[slot] = weights[slot] * scale;
    }
#else
    __local float sum[ROUTE_ITEMS / 64][4][16];
    __local struct choice c;
    int lid = get_local_id(0), lane = lid % 16, quarter = lid / 16 % 4, side = lid / 64;

    for (int from = 0; from < padded; from += ROUTE_ITEMS / 4) {
        int e = from + side * 16;

        if (e < padded)
            sum[side][quarter][lane] =
                router_sum(h, router + e + lane, (int)((long)quarter * n / 4),
                           (int)((long)(quarter + 1) * n / 4), padded);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (quarter == 0 && e + lane < n_experts) {
            float score = (sum[side][0][lane] + sum[side][1][lane]) +
                          (sum[side][2][lane] + sum[side][3][lane]);

            c.score[e + lane] = flags & 8 ? score + score_bias[e + lane] : score;
            c.taken[e + lane] = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float limit = 2.0f * jitter, sum_all = 0.0f;

    route_softmax(&c, flags & 2 ? n_experts : 0);
    for (int slot = 0; slot < used; slot++) {
        int best = route_best(&c, n_experts);
        float top = c.score[best], weight;

        route_terms(&c, flags & 2 ? 0 : n_experts, best, limit);
        barrier(CLK_LOCAL_MEM_FENCE);
        weight = flags & 2 ? top : route_weight(&c, n_experts);
        sum_all = sum_all + top;
        if (lid == 0) {
            c.taken[best] = 1;
            experts[slot] = best;
            weights[slot] = weight;
            if (flags & 1) {
                tiles[slot] = (int4)(slot, 1, best, 0);
                entries[slot] = (int2)(0, slot);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if ((flags & 2) && lid == 0) {
        float scale = (flags & 4 ? num_recip1(sum_all) : 1.0f) * factor;

        for (int slot = 0; slot < used; slot++)
            weights[slot] = weights[slot] * scale;
    }
#endif
}

/* Rows grouped by expert: entries (row, where its output goes), tiles (first entry, entries,
 * expert) of at most `tile` entries; tiles beyond the last are empty. One work-group; an expert's
 * entries are in any order. */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void group_rows(
    __global const int *experts, __global int4 *tiles, __global int2 *entries, int rows, int used,
    int n_experts, int base, int tile, int max_tiles)
{
    __local int counts[MAX_EXPERTS], next[MAX_EXPERTS];
    int lid = get_local_id(0), n = rows * used;

    experts += base;
    for (int e = lid; e < n_experts; e += ROW_ITEMS)
        counts[e] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lid; i < n; i += ROW_ITEMS)
        atomic_inc(&counts[experts[i]]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = lid; e < n_experts; e += ROW_ITEMS) {
        int at = 0, t = 0;

        for (int i = 0; i < e; i++) {
            at += counts[i];
            t += (counts[i] + tile - 1) / tile;
        }
        next[e] = at;
        for (int k = 0; k < counts[e]; k += tile)
            tiles[t++] = (int4)(at + k, min(tile, counts[e] - k), e, 0);
        for (; e == n_experts - 1 && t < max_tiles; t++)
            tiles[t] = (int4)(0, 0, 0, 0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lid; i < n; i += ROW_ITEMS)
        entries[atomic_inc(&next[experts[i]])] = (int2)(i / used, i % used * rows + i / used);
}

/* Rule 9: x += w0*e0 + w1*e1 + ..., fused, in routing order. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void combine(
    __global const float *out, __global const float *weights, __global float *x, int base, int rows,
    int used, int n)
{
    size_t i = get_global_id(0), row = i / n;

    if (row >= rows)
        return;
    x[i] = x[i] + combined(out, weights + base + row * used, i, (size_t)rows * n, used);
}

/* Copies KV rows in the exchange layout (per token: K of all heads, then V, each head a row of dim
 * values or of Q8_0 blocks) to and from the cache: one work-item per element of a token; the first
 * of a Q8_0 block copies the scale too. write: 1 into the cache. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void kv_copy(
    __global uchar *kc, __global uchar *vc, __global uchar *rows, int kv_heads, int dim, int pos,
    int count, int stride, int write)
{
    int i = get_global_id(0), token = get_global_id(1), n = kv_heads * dim;

    if (i >= 2 * n || token >= count)
        return;
    int is_v = i >= n, e = is_v ? i - n : i, head = e / dim, d = e % dim,
        t = (pos + token) % stride, type = is_v ? KV_V : KV_K;
    __global uchar *row = rows + (size_t)token * (KV_ROW(KV_K, n) + KV_ROW(KV_V, n)) +
                          (is_v ? KV_ROW(KV_K, n) : 0) + KV_ROW(type, e);
    __global uchar *cache = is_v ? vc + ((size_t)head * stride + t) * V_ROW(dim)
                                 : kc + (size_t)head * K_HEAD(stride, dim) +
                                       (size_t)(t / 16) * K_BLOCK(dim);

    if (type == 2) { /* KV_ROW of the element is that of its block */
        __global ushort *scale = (__global ushort *)(is_v ? cache + d / 32 * Q8_BYTES
                                                          : cache + d / 32 * (Q8_BYTES * 16) +
                                                                2 * (t % 16));
        __global uchar *code = is_v ? (__global uchar *)scale + 2 + d % 32
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

/* For the GEMMs of CLBlast (blas.c): 16-bit weights converted to F32, a bias for every row, an
 * expert's rows gathered and scattered. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void expand(__global const ushort *w,
                                                                       __global float *out,
                                                                       int first, int count,
                                                                       int is_f16)
{
    int i = get_global_id(0);

    if (i < count)
        out[i] = is_f16 ? vload_half(first + i, (__global const half *)w)
                        : as_float((uint)w[first + i] << 16);
}

/* An operator's output times the model's scale (rule 9). */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void scale_rows(__global float *y,
                                                                           float scale, int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[i] = y[i] * scale;
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void add(__global float *y,
                                                                    __global const float *x, int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[i] = y[i] + x[i];
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void add_bias(__global float *y,
                                                                         __global const float *bias,
                                                                         int n)
{
    int i = get_global_id(0);

    if (i < n)
        y[(size_t)get_global_id(1) * n + i] += bias[i];
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void gather(__global const float *h,
                                                                       __global const int2 *entries,
                                                                       __global float *out,
                                                                       int first, int n)
{
    int i = get_global_id(0);

    if (i < n)
        out[(size_t)get_global_id(1) * n + i] =
            h[(size_t)entries[first + get_global_id(1)].x * n + i];
}

__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void scatter(
    __global const float *in, __global const int2 *entries, __global float *out, int first, int n)
{
    int i = get_global_id(0);

    if (i < n)
        out[(size_t)entries[first + get_global_id(1)].y * n + i] =
            in[(size_t)get_global_id(1) * n + i];
}

/* Rule 8; without a gate only `up`. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void activate(__global float *gate,
                                                                         __global const float *up,
                                                                         int act, float limit,
                                                                         int n)
{
    int i = get_global_id(0);

    if (i < n)
        gate[i] = num_activate1(act, ACT_GATED ? gate[i] : 0.0f, up[i], limit);
}
