/* Quantised matrices times quantised rows (rules 1, 2 and 8 of engine/device/numerics.h): the
 * kernels. Work: WIDE: one work-item a group of WIDTH rows. Otherwise, one token: a work-group ROWS
 * rows, SLOTS work-items a row (blocks.cl); many: 64 rows and TOKENS tokens (gemm.cl). */
/* Where a work-group stands, and how many rows it has. */
#define MATMUL_TILE get_group_id(0)
#define MATMUL_GROUP get_group_id(1)
#if WIDE
#define ITEMS_X 1
#define ITEMS_Y 1
#elif TOKENS == 1
#define ITEMS_X ROWS
#define ITEMS_Y SLOTS
#else
#define ITEMS_X GEMM_X
#define ITEMS_Y GEMM_Y
#endif
#if WIDE
#define GROUP_ROWS WIDTH
#elif TOKENS == 1
#define GROUP_ROWS ROWS
#else
#define GROUP_ROWS GEMM_ROWS
#endif

static inline void store_row(__global float *y, __global const float *bias, int row, float v,
                             int flags)
{
    if (flags & 1)
        v = v + bias[row];
    y[row] = flags & 8 ? y[row] + v : v;
}

#if WIDE
static inline void store_vec(__global float *y, __global const float *bias, int row, int rows,
                             vec v, int flags)
{
    float out[WIDTH];

#if WIDTH == 16
    vstore16(v, 0, out);
#else
    vstore8(v, 0, out);
#endif
    for (int r = 0; r < WIDTH && row + r < rows; r++)
        store_row(y, bias, row + r, out[r], flags);
}
#endif

/* y = W x (+ bias) (+ y) for up to three matrices of the same columns, tokens rows of activations.
 * Groups: (tiles, row groups). flags: 1, 2, 4: the matrix has a bias; 8: add to y. */
ENGINE_KERNEL __kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1))) void matmul(
    __global const act_t *a, __global const float *ad, __global const float *as, int cols,
    int tokens, __global const uchar *w0, __global const float *b0, __global float *y0, int rows0,
    __global const uchar *w1, __global const float *b1, __global float *y1, int rows1,
    __global const uchar *w2, __global const float *b2, __global float *y2, int rows2, int flags)
{
    int group = MATMUL_GROUP, tile = MATMUL_TILE, n = cols / 32;
    int g0 = (rows0 + GROUP_ROWS - 1) / GROUP_ROWS, g1 = (rows1 + GROUP_ROWS - 1) / GROUP_ROWS,
        rows = rows0;
    __global const uchar *w = w0;
    __global const float *b = b0;
    __global float *y = y0;

    flags = (flags & 8) | ((flags & 1) ? 1 : 0) | (flags & 6) << 8;
    if (group >= g0 + g1) {
        group -= g0 + g1;
        w = w2, b = b2, y = y2, rows = rows2;
        flags = (flags & 8) | (flags >> 10 & 1);
    } else if (group >= g0) {
        group -= g0;
        w = w1, b = b1, y = y1, rows = rows1;
        flags = (flags & 8) | (flags >> 9 & 1);
    }
#if WIDE || TOKENS > 1
    w += (size_t)group * (GROUP_ROWS / WIDTH) * GROUP_BYTES(n);
#endif
#if WIDE
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec v[TOKENS];

    if (tile * TOKENS >= tokens)
        return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t token = min(tile * TOKENS + t, tokens - 1);

        pa[t] = a + token * cols;
        pd[t] = ad + token * n;
        ps[t] = as + token * n;
    }
    dot_rows(w, n, pa, pd, ps, 0, v);
#ifdef BROKEN_matmul /* tests: one bit off, as a miscompiled kernel might be */
    v[0] = v[0] * (vec)(1.0000002f);
#endif
    for (int t = 0; t < TOKENS && tile * TOKENS + t < tokens; t++)
        store_vec(y + (size_t)(tile * TOKENS + t) * rows, b, group * WIDTH, rows, v[t], flags);
#elif TOKENS == 1
    ROW_MEMORY;
    int row = group * ROWS + get_local_id(0);
    size_t token = min(tile, tokens - 1);
    float v = row_sum(w, group * ROWS, rows, n, a + token * cols, ad + token * n, as + token * n,
                      term, part);
#if defined(BROKEN_matmul) || (defined(BROKEN_rows8) && ROWS == 8)
    v = v * 1.0000002f;
#endif
    if (get_local_id(1) == 0 && tile < tokens && row < rows)
        store_row(y + token * rows, b, row, v, flags);
#else
    __local struct gemm_memory s;
    __local int row[TOKENS];
    int first = tile * TOKENS, left = rows - group * GEMM_ROWS;
    struct gemm_rows m = {w, w + 32 / WIDTH * GROUP_BYTES(n), (left + WIDTH - 1) / WIDTH};
    float v[ITEM_TOKENS][4];

    for (int t = GEMM_LID; t < TOKENS; t += GEMM_ITEMS)
        row[t] = min(first + t, tokens - 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    gemm(&s, &m, n, a, ad, as, row, v);
#ifdef BROKEN_matmul
    v[0][0] = v[0][0] * 1.0000002f;
#endif
    for (int i = 0; i < GEMM_SUMS; i++) {
        int r = GEMM_ROW(i), token = first + GEMM_TOKEN(i);

        if (token < tokens && r < left)
            store_row(y + (size_t)token * rows, b, group * GEMM_ROWS + r, v[i / 4][i % 4], flags);
    }
#endif
}

#if WIDE
#define GATE_X 1
#define GATE_Y 1
#elif TOKENS == 1
#define GATE_X 32
#define GATE_Y (2 * GATE_SLOTS) /* half of them for gate, half for up */
#else
#define GATE_X GEMM_X
#define GATE_Y GEMM_Y
#endif

#if WIDE
/* Rows of gate, where the activation has one, and of up. A loop for the same reason. */
static inline void both_rows(__global const uchar *wg, __global const uchar *wu, int n, int act,
                             __global const act_t *const *a, __global const float *const *ad,
                             __global const float *const *as, int lane, vec *gate, vec *up)
{
#pragma unroll 1
    for (int k = ACT_GATED ? 0 : 1; k < 2; k++) {
        vec v[TOKENS];

        dot_rows(k ? wu : wg, n, a, ad, as, lane, v);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (k)
                up[t] = v[t];
            else
                gate[t] = v[t];
        }
    }
}
#endif

#if BIAS
/* The expert's biases of gate and up for a work-item's rows from `row` on. */
#if WIDE && WIDTH == 16
#define LOAD_BIAS(p, row) vload16(0, (p) + (row))
typedef vec biased_t;
#elif WIDE
#define LOAD_BIAS(p, row) vload8(0, (p) + (row))
typedef vec biased_t;
#else
#define LOAD_BIAS(p, row) (p)[row]
typedef float biased_t;
#endif
static inline void add_biases(__global const float *bg, __global const float *bu, int row, int act,
                              int tokens, biased_t *gate, biased_t *up)
{
    for (int t = 0; t < tokens; t++) {
        if (ACT_GATED)
            gate[t] = gate[t] + LOAD_BIAS(bg, row);
        up[t] = up[t] + LOAD_BIAS(bu, row);
    }
}
#endif

/* Rule 8: 32 rows of gate and up for the tokens of a tile, the activation applied, quantised again:
 * block `group` of entry's row of m. Groups: (tiles, ffn / 32). act: enum activation. */
ENGINE_KERNEL __kernel __attribute__((reqd_work_group_size(GATE_X, GATE_Y, 1))) void gate_up(
    __global const act_t *a, __global const float *ad, __global const float *as, __global act_t *m,
    __global float *md, __global float *ms, __global const int4 *tiles,
    __global const int2 *entries, int first_tile, int end_tile, int cols, int ffn, int act,
    float limit, BANK(g), BANK(u) BIASES(bg) BIASES(bu) BIAS_FLAG)
{
    int group = get_group_id(1), n = cols / 32, tile = first_tile + get_group_id(0);
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const uchar *wg = EXPERT(what.z, g), *wu = EXPERT(what.z, u);
#if BIAS
    __global const float *bias_g = EXPERT_BIAS(what.z, bg), *bias_u = EXPERT_BIAS(what.z, bu);
#endif
    size_t at = (size_t)group * (32 / WIDTH) * GROUP_BYTES(n);

#if WIDE
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec h[TOKENS][32 / WIDTH], gate[TOKENS], up[TOKENS];

    if (what.y == 0)
        return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t row = entries[what.x + min(t, what.y - 1)].x;

        pa[t] = a + row * cols;
        pd[t] = ad + row * n;
        ps[t] = as + row * n;
    }
    for (int i = 0; i < 32 / WIDTH; i++, at += GROUP_BYTES(n)) {
        both_rows(wg + at, wu + at, n, act, pa, pd, ps, 0, gate, up);
#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + i * WIDTH, act, TOKENS, gate, up);
#endif
        for (int t = 0; t < TOKENS; t++)
            h[t][i] = ACTIVATE(act, gate[t], up[t], limit);
    }
    for (int t = 0; t < what.y; t++) {
        size_t entry = what.x + t, block = entry * (ffn / 32) + group;
#if WIDTH == 16
        quantise32(h[t][0], h[t][1], m + block * 32, md + block, ms + block);
#else
        quantise32(JOIN8(h[t][0], h[t][1]), JOIN8(h[t][2], h[t][3]), m + block * 32, md + block,
                   ms + block);
#endif
    }
#elif TOKENS == 1
    __local float h[32], part[2][4 * 32];
    __local float4 term[2][TERMS_ROOM(GATE_STEP, 32)];
    int x = get_local_id(0), y = get_local_id(1), side = y / GATE_SLOTS, slot = y % GATE_SLOTS;
    size_t row = what.y ? entries[what.x].x : 0, block = (size_t)what.x * (ffn / 32) + group;
    struct terms_of of = terms_of(slot * 32 + x, 32, GATE_SLOTS);
    float gate[1], up[1];

    at += (size_t)(of.row / WIDTH) * GROUP_BYTES(n);
    row_quarters((ACT_GATED && side == 0 ? wg : wu) + at, n, a + row * cols, ad + row * n,
                 as + row * n, of.row % WIDTH, of, x, 32, GATE_STEP, slot, GATE_AHEAD,
                 (__local float2 *)term[side], part[side]);
    gate[0] = row_fold(part[0], x, 32);
    up[0] = row_fold(part[1], x, 32);
    if (y == 0) {
#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + x, act, 1, gate, up);
#endif
        h[x] = num_activate1(act, gate[0], up[0], limit);
    }
    quantise_line(h, x, y == 0 && what.y, m + block * 32, md + block, ms + block);
#else
    /* 32 rows of gate and the same of up are one tile of rows. */
    __local union gemm_room s;
    __local int row[TOKENS];
    int lid = GEMM_LID;
    struct gemm_rows rows = {(ACT_GATED ? wg : wu) + at, wu + at, GEMM_ROWS / WIDTH};
    float v[ITEM_TOKENS][4];

    for (int t = lid; t < TOKENS; t += GEMM_ITEMS)
        row[t] = what.y ? entries[what.x + min(t, what.y - 1)].x : 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    gemm(&s.memory, &rows, what.y ? n : 0, a, ad, as, row, v);
    for (int i = 0; i < GEMM_SUMS; i++)
        s.both[GEMM_TOKEN(i)][GEMM_ROW(i)] = v[i / 4][i % 4];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = lid; i < TOKENS * 32; i += GEMM_ITEMS) {
        __local float *at_row = s.both[i / 32] + i % 32;
        float gate[1] = {at_row[0]}, up[1] = {at_row[32]};

#if BIAS
        if (biased)
            add_biases(bias_g, bias_u, group * 32 + i % 32, act, 1, gate, up);
#endif
        at_row[0] = num_activate1(act, gate[0], up[0], limit);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int t = lid; t < what.y; t += GEMM_ITEMS) {
        size_t block = (size_t)(what.x + t) * (ffn / 32) + group;
        __local const float *h = s.both[t];

        quantise32(vload16(0, h), vload16(1, h), m + block * 32, md + block, ms + block);
    }
#endif
}

/* Down projection of the entries of a tile; the output of an entry goes to row entries[].y of out.
 * Groups: (tiles, row groups). */
ENGINE_KERNEL __kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1))) void down(
    __global const act_t *m, __global const float *md, __global const float *ms,
    __global const int4 *tiles, __global const int2 *entries, __global float *out, int first_tile,
    int end_tile, int ffn, int rows, BANK(d) BIASES(bd) BIAS_FLAG)
{
    int group = MATMUL_GROUP, tile = first_tile + MATMUL_TILE, n = ffn / 32;
    int4 what = tile < end_tile ? tiles[tile] : (int4)(0, 0, 0, 0);
    __global const uchar *w = EXPERT(what.z, d);
#if BIAS
    __global const float *bias = EXPERT_BIAS(what.z, bd);
#else
    __global const float *bias = 0;
    const int biased = 0;
#endif

#if WIDE || TOKENS > 1
    w += (size_t)group * (GROUP_ROWS / WIDTH) * GROUP_BYTES(n);
#endif
#if WIDE
    __global const act_t *pa[TOKENS];
    __global const float *pd[TOKENS], *ps[TOKENS];
    vec v[TOKENS];

    if (what.y == 0)
        return;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
        size_t entry = what.x + min(t, what.y - 1);

        pa[t] = m + entry * ffn;
        pd[t] = md + entry * n;
        ps[t] = ms + entry * n;
    }
    dot_rows(w, n, pa, pd, ps, 0, v);
#ifdef BROKEN_down
    v[0] = v[0] * (vec)(1.0000002f);
#endif
    for (int t = 0; t < what.y; t++)
        store_vec(out + (size_t)entries[what.x + t].y * rows, bias, group * WIDTH, rows, v[t],
                  biased);
#elif TOKENS == 1
    ROW_MEMORY;
    int row = group * ROWS + get_local_id(0);
    size_t entry = what.x;
    float v = row_sum(w, group * ROWS, rows, n, m + entry * ffn, md + entry * n, ms + entry * n,
                      term, part);
#ifdef BROKEN_down
    v = v * 1.0000002f;
#endif
    if (get_local_id(1) == 0 && what.y && row < rows)
        store_row(out + (size_t)entries[entry].y * rows, bias, row, v, biased);
#else
    __local struct gemm_memory s;
    __local int row[TOKENS];
    int left = rows - group * GEMM_ROWS;
    struct gemm_rows tile_rows = {w, w + 32 / WIDTH * GROUP_BYTES(n), (left + WIDTH - 1) / WIDTH};
    float v[ITEM_TOKENS][4];

    for (int t = GEMM_LID; t < TOKENS; t += GEMM_ITEMS)
        row[t] = what.x + max(0, min(t, what.y - 1));
    barrier(CLK_LOCAL_MEM_FENCE);
    gemm(&s, &tile_rows, what.y ? n : 0, m, md, ms, row, v);
#ifdef BROKEN_down
    v[0][0] = v[0][0] * 1.0000002f;
#endif
    for (int i = 0; i < GEMM_SUMS; i++) {
        int r = GEMM_ROW(i), t = GEMM_TOKEN(i);

        if (t < what.y && r < left)
            store_row(out + (size_t)entries[what.x + t].y * rows, bias, group * GEMM_ROWS + r,
                      v[i / 4][i % 4], biased);
    }
#endif
}

#if !WIDE && TOKENS == 1
/* gate_up for one token and experts of tiles 0 .. , by four groups where that has one: a quarter of
 * the columns each. The last of them adds up, applies the activation and quantises. Groups: (tiles,
 * ffn / 32, 4). sums: a quarter's of gate and up (tiles, ffn / 32, 4, 2, 32); arrivals: last_of
 * (tiles, ffn / 32). */
__kernel __attribute__((reqd_work_group_size(GATE_X, GATE_Y, 1))) void token_gate_up(
    __global const act_t *a, __global const float *ad, __global const float *as, __global act_t *m,
    __global float *md, __global float *ms, __global const int4 *tiles, __global uint *sums,
    __global uint *arrivals, int cols, int ffn, int act, float limit, BANK(g),
    BANK(u) BIASES(bg) BIASES(bu) BIAS_FLAG)
{
    __local float4 term[2][TERMS_ROOM(GATE_STEP, 32)];
    __local float h[32];
    __local int last;
    int group = get_group_id(1), quarter = get_group_id(2), n = cols / 32, x = get_local_id(0),
        y = get_local_id(1), side = y / GATE_SLOTS, slot = y % GATE_SLOTS,
        expert = tiles[get_group_id(0)].z;
    struct terms_of of = terms_of(slot * 32 + x, 32, GATE_SLOTS);
    size_t block = get_group_id(0) * (size_t)(ffn / 32) + group,
           at = (size_t)(group * (32 / WIDTH) + of.row / WIDTH) * GROUP_BYTES(n);
    __global const uchar *wg = EXPERT(expert, g), *wu = EXPERT(expert, u);
    float sum = row_quarter((ACT_GATED && side == 0 ? wg : wu) + at, (int)((long)quarter * n / 4),
                            (int)((long)(quarter + 1) * n / 4), a, ad, as, of.row % WIDTH, of, x,
                            32, 4 * GATE_STEP, slot, GATE_AHEAD, (__local float2 *)term[side]);

    sums += block * (4 * 2 * 32) + x;
    if (slot == 0)
        atomic_xchg(sums + (quarter * 2 + side) * 32, as_uint(sum));

    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    bool ends = last_of(arrivals + block, 4, &last) && y == 0;

    if (y == 0)
        h[x] = 0.0f;
    if (ends) {
        float gate[1], up[1], q[2][4];

#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i % 2][i / 2] = as_float(atomic_or(sums + i * 32, 0u));
        gate[0] = (q[0][0] + q[0][1]) + (q[0][2] + q[0][3]);
        up[0] = (q[1][0] + q[1][1]) + (q[1][2] + q[1][3]);
#if BIAS
        if (biased)
            add_biases(EXPERT_BIAS(expert, bg), EXPERT_BIAS(expert, bu), group * 32 + x, act, 1,
                       gate, up);
#endif
        h[x] = num_activate1(act, gate[0], up[0], limit);
#ifdef BROKEN_token_gate_up
        h[x] = h[x] * 1.1f;
#endif
    }
    quantise_line(h, x, ends, m + block * 32, md + block, ms + block);
}

#define DOWN_ITEMS (DOWN_ROWS * DOWN_SLOTS)
#define DOWN_BLOCKS (4 * STEP_OF(DOWN_ROWS))
#define DOWN_TERMS TERMS_ROOM(STEP_OF(DOWN_ROWS), DOWN_ROWS)

/* One token's down projections, what its experts give added to x by their weights (rule 9), and the
 * norm of the layer behind it, in one launch. Groups: row groups, each with all `used` experts, a
 * few of them side by side: their blocks have terms in local memory together, at most DOWN_BLOCKS
 * of them. The last group that ends norms x, of at most ROW_TILE columns. flags as in norm; 8: no
 * norm follows. weights: from `base` on, each times `scale`; arrivals: last_of. Expert s of tile s;
 * m: its row s. */
__kernel __attribute__((reqd_work_group_size(DOWN_ITEMS, 1, 1))) void token_down(
    __global const act_t *m, __global const float *md, __global const float *ms,
    __global const int4 *tiles, __global const float *weights, __global float *x,
    __global uint *arrivals, __global const float *nw, __global const float *nb, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, int base, int used, int ffn,
    int rows, float scale, float inv_n, float eps, int flags, BANK(d) BIASES(bd) BIAS_FLAG)
{
    __local float4 room[DOWN_TERMS > ROW_TILE / 4 ? DOWN_TERMS : ROW_TILE / 4];
    __local float part[DOWN_ITEMS], peak[ROW_TILE / 4], lane_of[LANES], square[LANES];
    __local int last;
    __local float2 *term = (__local float2 *)room;
    int lid = get_local_id(0), x_row = lid % DOWN_ROWS, slot = lid / DOWN_ROWS, n = ffn / 32,
        row = (int)get_group_id(0) * DOWN_ROWS + x_row,
        at_once = min(DOWN_BLOCKS / n, DOWN_SLOTS / 4), first = 0;
    struct terms_of of = terms_of(lid, DOWN_ROWS, DOWN_SLOTS);
    int there = there_of((int)get_group_id(0) * DOWN_ROWS + of.row, rows);
    size_t at = (size_t)(there / WIDTH) * GROUP_BYTES(n);
    __global uint *words = (__global uint *)x;
    struct norm_ahead ahead;
    float sum = 0.0f, before = 0.0f;

    weights += base;
    /* an atomic, for the last group reads it by one */
    if (slot == 0 && row < rows)
        before = as_float(atomic_or(words + row, 0u));
    do {
        int experts = min(at_once, used - first), blocks = experts * n;

        for (int from = of.slot; from < blocks; from += DOWN_AHEAD * of.slots) {
            vec u[DOWN_AHEAD][TERMS], v[DOWN_AHEAD][TERMS];

#pragma unroll
            for (int k = 0; k < DOWN_AHEAD; k++) {
                int i = min(from + k * of.slots, blocks - 1), s = first + i / n;
                __global const uchar *w = EXPERT(tiles[s].z, d) + at;

                row_block(w, i % n, m + (size_t)s * ffn, md + s * n, ms + s * n, there % WIDTH,
                          u[k], v[k]);
            }
#pragma unroll
            for (int k = 0; k < DOWN_AHEAD; k++)
#pragma unroll
                for (int j = 0; j < TERMS; j++)
                    if (from + k * of.slots < blocks)
                        store_terms(term + ((from + k * of.slots) * TERMS + j) * DOWN_ROWS + of.row,
                                    u[k][j], v[k][j]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (slot < 4 * experts) {
            int begin = (int)((long)(slot % 4) * n / 4), end = (int)((long)(slot % 4 + 1) * n / 4);

            part[lid] = quarter_sum(term + (slot / 4 * n + begin) * TERMS * DOWN_ROWS + x_row,
                                    DOWN_ROWS, (end - begin) * TERMS, 0.0f);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int i = 0; i < experts && slot == 0; i++) {
            int s = first + i;
            float v = row_fold(part + 4 * i * DOWN_ROWS, x_row, DOWN_ROWS);

#if BIAS
            if (biased && row < rows)
                v = v + EXPERT_BIAS(tiles[s].z, bd)[row];
#endif
            sum = s ? fma(weights[s] * scale, v, sum) : weights[0] * scale * v;
        }
    } while ((first += at_once) < used);
#ifdef BROKEN_token_down
    sum = sum * 1.0000002f;
#endif
    if (slot == 0 && row < rows)
        atomic_xchg(words + row, as_uint(before + sum));
    norm_begin(nw, nb, 0, flags & 8 ? 0 : rows, flags, &ahead);

    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    int columns = last_of(arrivals, get_num_groups(0), &last) && !(flags & 8) ? rows : 0;

    for (int from = lid; from < columns; from += 8 * DOWN_ITEMS) {
        float v[8];

#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * DOWN_ITEMS < columns)
                v[k] = as_float(atomic_or(words + from + k * DOWN_ITEMS, 0u));
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * DOWN_ITEMS < columns)
                ((__local float *)room)[from + k * DOWN_ITEMS] = v[k];
    }
    norm_row(x, nw, nb, columns, inv_n, eps, flags, true, room, peak, lane_of, square, &ahead, h,
             hq, hd, hs);
}
#endif
