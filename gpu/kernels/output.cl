/* The end of one token's attention in one launch: the output projection, the row, its norm and the
 * router. Behind quant.cl and choice.cl, where the shape is the GPU's. */
#define OUT_ITEMS (OUT_ROWS * OUT_SLOTS)
#define OUT_TERMS TERMS_ROOM(STEP_OF(OUT_ROWS), OUT_ROWS)
#define OUT_MOST (SMALL_LOCAL ? 1024 : 2048)
/* Times four values of the router that a work-item has on their way to the next stage. */
#define OUT_FOURS (OUT_MOST / OUT_ITEMS < 8 ? OUT_MOST / OUT_ITEMS : 8)
#define OUT_STAGE (OUT_FOURS * OUT_ITEMS)
#define OUT_LARGER(a, b) ((a) > (b) ? (a) : (b))
#define OUT_ROOM OUT_LARGER(OUT_STAGE, OUT_LARGER(OUT_TERMS, ROW_TILE / 4))

/* The router's scores by one group: of its work-items the first `chains` have an expert and a
 * quarter of the columns each (rule 3): sixteen experts, four quarters, then the next sixteen
 * experts. fours: times four columns of a quarter, 0: nothing is read. */
struct out_router {
    __global const float *router, *h;
    int chains, fours, padded;
};

struct out_ahead {
    float4 v[OUT_FOURS], h;
};

/* The router's values of a stage, that from `done` times four columns on. */
static inline void out_load(const struct out_router *r, int done, struct out_ahead *ahead)
{
    int lid = get_local_id(0);

#pragma unroll
    for (int k = 0; k < OUT_FOURS; k++) {
        int i = lid + k * OUT_ITEMS, chain = i % r->chains, four = done + i / r->chains;
        size_t at = (size_t)(chain / LANES % 4 * r->fours + four) * r->padded +
                    chain / (4 * LANES) * LANES + chain % LANES;

        ahead->v[k] = four < r->fours ? FOUR_AT(r->router, at) : (float4)(0.0f);
    }
}

/* And the row's, of each quarter. */
static inline void out_load_row(const struct out_router *r, int done, struct out_ahead *ahead)
{
    int lid = get_local_id(0), step = OUT_STAGE / r->chains, four = done + lid % step;

    ahead->h = (float4)(0.0f);
    if (lid < 4 * step && four < r->fours)
        ahead->h = FOUR_AT(r->h, lid / step * r->fours + four);
}

/* For what a kernel calls twice with the same local arrays. Where LLVM does not inline it, it puts
 * the arrays into its body in place of the arguments, and PoCL 3.1, which gives each group its own
 * arrays in the kernel's body alone, then leaves them as variables of the process: groups on other
 * threads write to them, too. */
#define WITH_LOCAL static inline __attribute__((always_inline))

/* Adds up a stage, and loads the next but one. Has barriers. */
WITH_LOCAL float out_stage(const struct out_router *r, int done, __local float4 *room,
                           __local float4 *of_h, struct out_ahead *ahead, float sum)
{
    int lid = get_local_id(0), step = OUT_STAGE / r->chains,
        fours = lid < r->chains ? clamp(r->fours - done, 0, step) : 0;

#pragma unroll
    for (int k = 0; k < OUT_FOURS; k++)
        room[lid + k * OUT_ITEMS] = ahead->v[k];
    if (lid < 4 * step)
        of_h[lid] = ahead->h;
    barrier(CLK_LOCAL_MEM_FENCE);
    out_load(r, done + 2 * step, ahead);
    out_load_row(r, done + 2 * step, ahead);
    sum = stage_sum(room + lid, r->chains, of_h + lid / LANES % 4 * step, fours, sum);
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

/* Two stages are on their way: router, the first ones', comes while the row is normed. */
WITH_LOCAL float out_scores(const struct out_router *r, __local float4 *room, __local float4 *of_h,
                            struct out_ahead *even, struct out_ahead *odd)
{
    int step = OUT_STAGE / r->chains, done = 0;
    float sum = 0.0f;

    out_load_row(r, 0, even);
    out_load_row(r, step, odd);
    do {
        sum = out_stage(r, done, room, of_h, even, sum);
        sum = out_stage(r, done + step, room, of_h, odd, sum);
    } while ((done += 2 * step) < r->fours);
    return sum;
}

/* x += W a (+ bias) for one token, and by the last group that ends, of a row of at most ROW_TILE
 * columns: norm to h and its quantised form, scores of the router and the choice of experts (rules
 * 2, 5, 1, 3 and 10). Groups: row groups. norm_flags as in norm, flags as in route; ROUTE_DENSE: no
 * router, the layer's only expert is chosen. At most MAX_EXPERTS scores, 64 work-items for each
 * sixteen of them. arrivals: last_of. first: the row group of group 0, others have those behind it
 * and then those before: 0, but in the self-test, where so any of them ends last. */
#define ROUTE_DENSE 1024
__kernel __attribute__((reqd_work_group_size(OUT_ITEMS, 1, 1))) void token_output(
    __global const act_t *a, __global const float *ad, __global const float *as,
    __global const uchar *m, __global const float *bias, __global float *x, __global uint *arrivals,
    __global const float *nw, __global const float *nb, __global float *h, __global act_t *hq,
    __global float *hd, __global float *hs, __global const float *router,
    __global const float *score_bias, __global const float *choice_bias,
    __global const float *expert_scale, __global int *experts, __global float *weights,
    __global int4 *tiles, __global int2 *entries, int first, int cols, int rows, int biased,
    float inv_n, float eps, int norm_flags, int base, int n_experts, int padded, int used,
    float jitter, float floor, float factor, float shared, int flags, int groups, int groups_used,
    int stride)
{
    __local float4 room[OUT_ROOM], of_h[OUT_STAGE / LANES];
    __local float part[OUT_LARGER(4 * OUT_ROWS, 4 * MAX_EXPERTS)], peak[ROW_TILE / 4], lanes[LANES],
        square[LANES];
    __local struct choice c;
    __local int last;
    int lid = get_local_id(0), x_row = lid % OUT_ROWS, slot = lid / OUT_ROWS, n = cols / 32,
        group = ((int)get_group_id(0) + first) % (int)get_num_groups(0),
        row = group * OUT_ROWS + x_row, dense = flags & ROUTE_DENSE,
        most = dense ? 0 : route_scores(n_experts, flags);
    struct terms_of of = terms_of(lid, OUT_ROWS, OUT_SLOTS);
    int there = there_of(group * OUT_ROWS + of.row, rows);
    __global uint *words = (__global uint *)x;
    const struct route_rule rule = {jitter, floor,  factor,      shared,
                                    flags,  groups, groups_used, stride};
    struct norm_ahead ahead;
    struct out_ahead even, odd;
    float before = 0.0f;

    experts += base;
    weights += base;
    /* an atomic, for the last group reads it by one */
    if (slot == 0 && row < rows)
        before = as_float(atomic_or(words + row, 0u));
    row_quarters(ROW_AT(m, there, n), n, a, ad, as, there % WIDTH, of, x_row, OUT_ROWS,
                 STEP_OF(OUT_ROWS), slot, OUT_AHEAD, (__local float2 *)room, part);
    if (slot == 0 && row < rows) {
        float v = row_fold(part, x_row, OUT_ROWS);

        if (biased)
            v = v + bias[row];
#ifdef BROKEN_token_output
        v = v * 1.0000002f;
#endif
        atomic_xchg(words + row, as_uint(before + v));
    }
    norm_begin(nw, nb, 0, rows, norm_flags, &ahead);

    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    int columns = last_of(arrivals, get_num_groups(0), &last) ? rows : 0;
    struct out_router r = {router, h, 4 * LANES * max(1, (most + LANES - 1) / LANES),
                           most ? columns / 16 : 0, padded};

    out_load(&r, 0, &even);
    out_load(&r, OUT_STAGE / r.chains, &odd);
    for (int from = lid; from < columns; from += 8 * OUT_ITEMS) {
        float v[8];

#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * OUT_ITEMS < columns)
                v[k] = as_float(atomic_or(words + from + k * OUT_ITEMS, 0u));
#pragma unroll
        for (int k = 0; k < 8; k++)
            if (from + k * OUT_ITEMS < columns)
                ((__local float *)room)[from + k * OUT_ITEMS] = v[k];
    }
    norm_row(x, nw, nb, columns, inv_n, eps, norm_flags, true, room, peak, lanes, square, &ahead, h,
             hq, hd, hs);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);

    float sum = out_scores(&r, room, of_h, &even, &odd);

    if (lid < r.chains)
        part[lid] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    most = columns ? most : 0;
    n_experts = most ? n_experts : 0;
    used = most ? used : 0;
    for (int e = lid; e < most; e += OUT_ITEMS) {
        float q[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            q[i] = part[e / LANES * (4 * LANES) + i * LANES + e % LANES];
        route_score(&c, e, q, score_bias, n_experts, flags);
    }
    route_choose(&c, choice_bias, expert_scale, experts, weights, tiles, entries, n_experts, used,
                 &rule);
    if (dense && columns && lid == 0) {
        experts[0] = 0;
        weights[0] = shared;
        tiles[0] = (int4)(0, 1, 0, 0);
        entries[0] = (int2)(0, 0);
        for (int i = 1; i < stride; i++) {
            experts[i] = -1;
            weights[i] = 0.0f;
        }
    }
}
