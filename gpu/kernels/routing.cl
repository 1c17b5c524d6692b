/* The router and the grouping of rows by expert (rule 10 of engine/device/numerics.h). Behind
 * core.cl and choice.cl. Defined by the host beyond that: ROUTE_ITEMS, work-items of a group of the
 * router, 1 where WIDE, else 64 or more. */

#if !WIDE
#define ROUTE_FOURS \
    (SMALL_LOCAL ? 4 : 8) /* times four values of the router that a work-item has on their way */
#define STAGE_COLS (ROUTE_ITEMS * ROUTE_FOURS / 4)

/* What a group of the router has in local memory: of its columns, STAGE_COLS at a time, the
 * router's values (sixteen experts, four columns each) and the row's; in token_route first a tile
 * of the row. */
struct route_room {
    float4 stage[STAGE_COLS * LANES > ROW_TILE ? STAGE_COLS *LANES / 4 : ROW_TILE / 4];
    float4 of_h[STAGE_COLS / 4];
};

/* A row that is normed where it is read. flags 4: it is already. */
struct route_row {
    __global const float *x, *w, *b;
    float mean, r;
    int flags;
};

/* What a work-item has on its way for a stage: of the router, and of the row, its norm's weights
 * and its biases. */
#define ROUTE_COLS (ROUTE_FOURS / 4)
struct route_ahead {
    float4 v[ROUTE_FOURS];
    float x[ROUTE_COLS], w[ROUTE_COLS], b[ROUTE_COLS];
};

/* Columns done .. of those from `begin` on, `count` of them; router: these columns' values for
 * sixteen experts, whose fours are `padded` experts apart. */
static inline void stage_load(const struct route_row *row, __global const float *router, int begin,
                              int done, int count, int padded, struct route_ahead *ahead)
{
    int lid = get_local_id(0);

#pragma unroll
    for (int k = 0; k < ROUTE_FOURS; k++) {
        int i = lid + k * ROUTE_ITEMS, four = done / 4 + i / LANES;

        ahead->v[k] = 4 * four < count ? FOUR_AT(router, (size_t)four * padded + i % LANES)
                                       : (float4)(0.0f);
    }
#pragma unroll
    for (int k = 0; k < ROUTE_COLS; k++) {
        int c = done + lid + k * ROUTE_ITEMS;

        ahead->x[k] = ahead->w[k] = ahead->b[k] = 0.0f;
        if (c < count)
            ahead->x[k] = row->x[begin + c];
        if (c < count && !(row->flags & 4))
            ahead->w[k] = row->w[begin + c];
        if (c < count && (row->flags & 1))
            ahead->b[k] = row->b[begin + c];
    }
}

/* The sums of columns begin .. end-1, a quarter, of sixteen experts by a work-group: all load, into
 * local memory and a stage ahead of the additions, which the first sixteen do in rule 3's order.
 * ahead: the first stage. A quarter is fours of columns, for a row is blocks of 32. Has barriers.
 */
static inline float router_sum(const struct route_row *row, __global const float *router, int begin,
                               int end, int padded, __local struct route_room *room,
                               struct route_ahead *ahead)
{
    int lid = get_local_id(0), count = end - begin, done = 0;
    float sum = 0.0f;

    do {
        __local const float4 *from = room->stage + lid;
        int fours = lid < LANES ? min(STAGE_COLS, count - done) / 4 : 0;

#pragma unroll
        for (int k = 0; k < ROUTE_FOURS; k++)
            room->stage[lid + k * ROUTE_ITEMS] = ahead->v[k];
#pragma unroll
        for (int k = 0; k < ROUTE_COLS; k++)
            ((__local float *)room->of_h)[lid + k * ROUTE_ITEMS] =
                normed(ahead->x[k], ahead->w[k], ahead->b[k], row->mean, row->r, row->flags);
        barrier(CLK_LOCAL_MEM_FENCE);
        stage_load(row, router, begin, done + STAGE_COLS, count, padded, ahead);
        sum = stage_sum(from, LANES, room->of_h, fours, sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    } while ((done += STAGE_COLS) < count);
    return sum;
}


/* The end of a group of the router: its sums are kept, unless it has none (quarter 4), and the last
 * group of a row chooses. */
static inline void route_end(__global uint *sums, int quarter, int from, float sum,
                             __global uint *arrivals, __global const float *score_bias,
                             __global const float *choice_bias, __global const float *expert_scale,
                             __global int *experts, __global float *weights, __global int4 *tiles,
                             __global int2 *entries, int n_experts, int padded, int used,
                             const struct route_rule *rule, __local struct choice *c,
                             __local int *last)
{
    int lid = get_local_id(0), flags = rule->flags, most = route_scores(n_experts, flags);

    if (lid < LANES && quarter < 4)
        atomic_xchg(sums + quarter * padded + from + lid, as_uint(sum));
    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    if (!last_of(arrivals, get_num_groups(0), last))
        n_experts = used = most = 0;
    for (int e = lid; e < most; e += ROUTE_ITEMS) {
        float q[4];

#pragma unroll
        for (int i = 0; i < 4; i++)
            q[i] = as_float(atomic_or(sums + i * padded + e, 0u));
        route_score(c, e, q, score_bias, n_experts, flags);
    }
    route_choose(c, choice_bias, expert_scale, experts, weights, tiles, entries, n_experts, used,
                 rule);
}
#endif

/* Rule 10: scores of one row with the router as memory_routing lays it out, then SparseMixer,
 * softmax or sigmoid, whose scores become probabilities in place; flags: ROUTE_.. above. The chosen
 * weights, if normalised over their sum plus the floor, times factor; shared: the shared expert's
 * weight where it has no gate. A row of experts has `used` slots, and one more where one is shared,
 * of `stride` places.
 * Groups: (1, rows) where WIDE; else (4 quarters of the columns of each sixteen scores, rows), of
 * which the last one that ends chooses. */
__kernel __attribute__((reqd_work_group_size(ROUTE_ITEMS, 1, 1))) void route(
    __global const float *h, __global const float *router, __global const float *score_bias,
    __global const float *choice_bias, __global const float *expert_scale, __global float *scores,
    __global uint *arrivals, __global int *experts, __global float *weights, __global int4 *tiles,
    __global int2 *entries, int base, int n, int n_experts, int padded, int used, float jitter,
    float floor, float factor, float shared, int flags, int groups, int groups_used, int stride)
{
    size_t row = get_group_id(1);
    const struct route_rule rule = {jitter, floor,  factor,      shared,
                                    flags,  groups, groups_used, stride};

    h += row * n;
    scores += row * 4 * padded;
    experts += base + row * stride;
    weights += base + row * stride;
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
        for (int i = 0; i < 16 && e + i < route_scores(n_experts, flags); i++)
            scores[e + i] = out[i];
    }
    float limit = 2.0f * jitter, sum_all = 0.0f;

    for (int e = 0; e < n_experts && flags & ROUTE_SCORE_BIAS; e++)
        scores[e] = scores[e] + score_bias[e];
    for (int e = 0; e < n_experts && flags & ROUTE_SIGMOID; e++)
        scores[e] = num_sigmoid1(scores[e]);
    if (flags & ROUTE_SOFTMAX) {
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
    uint out = groups_out(scores, choice_bias, n_experts, &rule);

    for (int slot = 0; slot < used; slot++) {
        int best = best_left(scores, choice_bias, flags, out,
                             groups ? n_experts / groups : n_experts, n_experts, experts, slot);
        float top = scores[best], total = 0.0f;

        for (int e = 0; e < n_experts && !(flags & ROUTE_WEIGHS); e++) {
            float a = fabs(scores[e]), f = a > top ? a : top;
            bool taken = false;

            for (int i = 0; i < slot; i++)
                taken = taken || experts[i] == e;
            if (taken || (e != best && top - scores[e] > limit * f))
                continue;
            total = total + num_exp1(scores[e] - top);
        }
        experts[slot] = best;
        weights[slot] = flags & ROUTE_WEIGHS ? top : num_recip1(total);
        sum_all = sum_all + top;
        if (flags & ROUTE_TILES) {
            tiles[slot] = (int4)(slot, 1, best, 0);
            entries[slot] = (int2)(0, slot);
        }
    }
    if (flags & ROUTE_WEIGHS) {
        float scale = (flags & ROUTE_NORMALISED ? num_recip1(sum_all + floor) : 1.0f) * factor;

        for (int slot = 0; slot < used; slot++)
            weights[slot] = weights[slot] * scale;
    }
    for (int slot = 0; slot < used && (flags & ROUTE_EXPERT_SCALE); slot++)
        weights[slot] = weights[slot] * expert_scale[experts[slot]];
    if (flags & ROUTE_SHARED)
        route_shared(experts, weights, tiles, entries, used, n_experts, &rule,
                     flags & ROUTE_SHARED_GATE ? scores[n_experts] : 0.0f);
    route_rest(experts, weights, used, &rule);
#else
    __local struct route_room room;
    __local struct choice c;
    __local int last;
    int quarter = get_group_id(0) % 4, from = get_group_id(0) / 4 * LANES,
        begin = (int)((long)quarter * n / 4), end = (int)((long)(quarter + 1) * n / 4);
    __global uint *sums = (__global uint *)scores;
    struct route_row in = {.x = h, .w = h, .b = h, .mean = 0.0f, .r = 1.0f, .flags = 4};
    struct route_ahead ahead;

    router += (size_t)begin * padded + 4 * from;
    stage_load(&in, router, begin, 0, end - begin, padded, &ahead);

    float sum = router_sum(&in, router, begin, end, padded, &room, &ahead);

    route_end(sums, quarter, from, sum, arrivals + row, score_bias, choice_bias, expert_scale,
              experts, weights, tiles, entries, n_experts, padded, used, &rule, &c, &last);
#endif
}

#if !WIDE
/* norm and route for one row, in one launch (norm_flags: norm's, flags: route's). Every group finds
 * the row's mean and factor for itself. Groups: those of route, and behind them four that write h
 * and its quantised form meanwhile, each a quarter, or the first of them everything where quarters
 * are no whole blocks. */
__kernel __attribute__((reqd_work_group_size(ROUTE_ITEMS, 1, 1))) void token_route(
    __global const float *x, __global const float *w, __global const float *b, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, __global const float *router,
    __global const float *score_bias, __global const float *choice_bias,
    __global const float *expert_scale, __global float *scores, __global uint *arrivals,
    __global int *experts, __global float *weights, __global int4 *tiles, __global int2 *entries,
    float inv_n, float eps, int norm_flags, int base, int n, int n_experts, int padded, int used,
    float jitter, float floor, float factor, float shared, int flags, int groups, int groups_used,
    int stride)
{
    __local struct route_room room;
    __local struct choice c;
    __local float lane[LANES], square[LANES], peak[ROW_TILE / 4];
    __local int last;
    __local float *values = (__local float *)room.stage;
    int quarter = get_group_id(0) % 4, writes = get_group_id(0) >= get_num_groups(0) - 4,
        from = writes ? 0 : get_group_id(0) / 4 * LANES, begin = (int)((long)quarter * n / 4),
        end = (int)((long)(quarter + 1) * n / 4), write_from = n % 128 ? 0 : begin,
        write_to = !writes   ? write_from
                   : n % 128 ? (quarter ? 0 : n)
                             : end;
    bool whole = n <= ROW_TILE;
    const struct route_rule rule = {jitter, floor,  factor,      shared,
                                    flags,  groups, groups_used, stride};
    struct route_row row = {.x = x, .w = w, .b = b, .mean = 0.0f, .r = 1.0f, .flags = norm_flags};
    struct route_ahead stage;
    struct norm_ahead ahead;

    /* nothing to add up for those that write */
    end = writes ? begin : end;
    router += (size_t)begin * padded + 4 * from;
    stage_load(&row, router, begin, 0, end - begin, padded, &stage);
    norm_begin(w, b, write_from, write_to, norm_flags, &ahead);
    for (int first = get_local_id(0); first < n / 4 && whole; first += 2 * FOURS * ROUTE_ITEMS) {
        float4 of_x[2 * FOURS];

#pragma unroll
        for (int k = 0; k < 2 * FOURS; k++)
            if (first + k * ROUTE_ITEMS < n / 4)
                of_x[k] = FOUR_AT(x, first + k * ROUTE_ITEMS);
#pragma unroll
        for (int k = 0; k < 2 * FOURS; k++)
            if (first + k * ROUTE_ITEMS < n / 4)
                room.stage[first + k * ROUTE_ITEMS] = of_x[k];
    }
    /* no branch: PoCL copies all that is behind a barrier in one */
    row.mean = row_lanes(x, norm_flags & 6 ? 0 : n, false, 0.0f, whole, values, lane) * inv_n;
    row.r = num_rsqrt(fma(
        row_lanes(x, norm_flags & 4 ? 0 : n, true, row.mean, whole, values, square), inv_n, eps));
    if (norm_flags & 4)
        row.r = 1.0f;
#ifdef BROKEN_token_route
    row.r = row.r * 1.0000002f;
#endif
    norm_columns(x, w, b, write_from, write_to, row.mean, row.r, norm_flags, whole, room.stage,
                 peak, &ahead, h, hq, hd, hs);
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum = router_sum(&row, router, begin, end, padded, &room, &stage);

    route_end((__global uint *)scores, writes ? 4 : quarter, from, sum, arrivals, score_bias,
              choice_bias, expert_scale, experts + base, weights + base, tiles, entries, n_experts,
              padded, used, &rule, &c, &last);
}
#endif

/* The choices of a dense layer, n places of `stride` a row, from `base` on: its only expert, the
 * others nobody. Of a single row its tile and entry, too. */
__kernel __attribute__((reqd_work_group_size(LINE, 1, 1))) void choose_dense(
    __global int *experts, __global float *weights, __global int4 *tiles, __global int2 *entries,
    int base, int n, int stride, float factor)
{
    int i = get_global_id(0);
    bool first = i % stride == 0;

    if (i < n) {
        experts[base + i] = first ? 0 : -1;
        weights[base + i] = first ? factor : 0.0f;
    }
    if (i == 0 && n == stride) {
        tiles[0] = (int4)(0, 1, 0, 0);
        entries[0] = (int2)(0, 0);
    }
}

/* Rows grouped by expert: entries (row, where its output goes), tiles (first entry, entries,
 * expert) of at most `tile` entries; tiles beyond the last are empty. Of the choices only experts
 * `from` on, n_experts of them, which are numbered from 0 there. One work-group; an expert's
 * entries are in any order. Rows before `begin` and from `end` on have none. */
__kernel __attribute__((reqd_work_group_size(ROW_ITEMS, 1, 1))) void group_rows(
    __global const int *experts, __global int4 *tiles, __global int2 *entries, int rows, int used,
    int from, int n_experts, int base, int tile, int max_tiles, int begin, int end)
{
    __local int counts[MAX_EXPERTS], next[MAX_EXPERTS];
    int lid = get_local_id(0), n = end * used;

    experts += base;
    for (int e = lid; e < n_experts; e += ROW_ITEMS)
        counts[e] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = begin * used + lid; i < n; i += ROW_ITEMS)
        if (experts[i] >= from && experts[i] < from + n_experts)
            atomic_inc(&counts[experts[i] - from]);
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
    for (int i = begin * used + lid; i < n; i += ROW_ITEMS)
        if (experts[i] >= from && experts[i] < from + n_experts)
            entries[atomic_inc(&next[experts[i] - from])] = (int2)(i / used,
                                                                   i % used * rows + i / used);
}
