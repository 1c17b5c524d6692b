/* The router and the grouping of rows by expert (rule 10 of engine/device/numerics.h). Behind
 * core.cl. Defined by the host beyond that: ROUTE_ITEMS, work-items of a group of the router, 1
 * where WIDE, else 64 or more; MAX_EXPERTS, a multiple of 16. */

#if !WIDE
#define ROUTE_FOURS \
    (SMALL_LOCAL ? 4 : 8) /* times four values of the router that a work-item has on their way */
#define STAGE_COLS (ROUTE_ITEMS * ROUTE_FOURS / 4)

/* Columns done .. of those that begin at `router`, `count` of them, sixteen experts each. */
static inline void stage_load(__global const float *router, int done, int count, int padded,
                              float4 *v)
{
#pragma unroll
    for (int k = 0; k < ROUTE_FOURS; k++) {
        int i = get_local_id(0) + k * ROUTE_ITEMS, column = done + i / 4;

        v[k] = column < count ? FOUR_AT(router + (size_t)column * padded, i % 4) : (float4)(0.0f);
    }
}

/* What a group of the router has in local memory: of its columns, STAGE_COLS at a time, the
 * router's values (sixteen experts each) and the row's; in token_route first a tile of the row. */
struct route_room {
    float4 stage[STAGE_COLS * LANES > ROW_TILE ? STAGE_COLS * LANES / 4 : ROW_TILE / 4];
    float of_h[STAGE_COLS];
};

/* A row that is normed (core.cl) where it is read. flags 4: it is already. */
struct route_row {
    __global const float *x, *w, *b;
    float mean, r;
    int flags;
};

/* The sums of columns begin .. end-1, a quarter, of sixteen experts by a work-group: all load, into
 * local memory and a stage ahead of the additions, which the first sixteen do in rule 3's order. v:
 * the first stage. Has barriers. */
static inline float router_sum(struct route_row row, __global const float *router, int begin,
                               int end, int padded, __local struct route_room *room, float4 *v)
{
    int lid = get_local_id(0), count = end - begin, done = 0;
    float sum = 0.0f;

    do {
        __local const float *from = (__local const float *)room->stage + lid;
        int adds = lid < LANES ? min(STAGE_COLS, count - done) : 0;

#pragma unroll
        for (int k = 0; k < ROUTE_FOURS; k++)
            room->stage[lid + k * ROUTE_ITEMS] = v[k];
        for (int c = lid; c < STAGE_COLS; c += ROUTE_ITEMS)
            room->of_h[c] = done + c < count ? normed(row.x, row.w, row.b, begin + done + c,
                                                      row.mean, row.r, row.flags)
                                             : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        stage_load(router, done + STAGE_COLS, count, padded, v);
#pragma unroll 16
        for (int c = 0; c < adds; c++)
            sum = fma(from[c * LANES], room->of_h[c], sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    } while ((done += STAGE_COLS) < count);
    return sum;
}

#endif

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

/* The end of a group of the router: its sums are kept, and the last group of a row chooses. */
static inline void route_end(__global uint *sums, int quarter, int from, float sum,
                             __global uint *arrivals, __global const float *score_bias,
                             __global int *experts, __global float *weights, __global int4 *tiles,
                             __global int2 *entries, int n_experts, int padded, int used,
                             float jitter, float factor, int flags, __local struct choice *c,
                             __local int *last)
{
    int lid = get_local_id(0);

    if (lid < LANES)
        atomic_xchg(sums + quarter * padded + from + lid, as_uint(sum));
    /* The others run through: PoCL 3.1 miscompiles a return before a barrier. */
    if (!last_of(arrivals, get_num_groups(0), last))
        n_experts = used = 0;
    for (int e = lid; e < n_experts; e += ROUTE_ITEMS) {
        float q[4], score;

#pragma unroll
        for (int i = 0; i < 4; i++)
            q[i] = as_float(atomic_or(sums + i * padded + e, 0u));
        score = (q[0] + q[1]) + (q[2] + q[3]);
        c->score[e] = flags & 8 ? score + score_bias[e] : score;
        c->taken[e] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float limit = 2.0f * jitter, sum_all = 0.0f;

    route_softmax(c, flags & 2 ? n_experts : 0);
    int slot = 0;

    do {
        int best = max(route_best(c, n_experts), 0);
        float top = c->score[best], weight;

        route_terms(c, flags & 2 ? 0 : n_experts, best, limit);
        barrier(CLK_LOCAL_MEM_FENCE);
        weight = flags & 2 ? top : route_weight(c, n_experts);
        sum_all = sum_all + top;
        if (lid == 0 && used) {
            c->taken[best] = 1;
            experts[slot] = best;
            weights[slot] = weight;
            if (flags & 1) {
                tiles[slot] = (int4)(slot, 1, best, 0);
                entries[slot] = (int2)(0, slot);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    } while (++slot < used);
    if ((flags & 2) && lid == 0 && used) {
        float scale = (flags & 4 ? num_recip1(sum_all) : 1.0f) * factor;

        for (int slot = 0; slot < used; slot++)
            weights[slot] = weights[slot] * scale;
    }
}
#endif

/* Rule 10: scores of one row with the transposed router (n, padded experts), then SparseMixer, or
 * (flags 2) softmax, whose scores become probabilities in place; flags 4: the chosen weights sum to
 * 1; factor: times this. flags 1: a single row, so the tiles of its experts are written here too;
 * 8: scores have a bias. Groups: (1, rows) where WIDE; else (4 quarters of the columns of each
 * sixteen experts, rows), of which the last one that ends chooses. */
__kernel __attribute__((reqd_work_group_size(ROUTE_ITEMS, 1, 1))) void route(
    __global const float *h, __global const float *router, __global const float *score_bias,
    __global float *scores, __global uint *arrivals, __global int *experts, __global float *weights,
    __global int4 *tiles, __global int2 *entries, int base, int n, int n_experts, int padded,
    int used, float jitter, float factor, int flags)
{
    size_t row = get_group_id(1);

    h += row * n;
    scores += row * 4 * padded;
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
    __local struct route_room room;
    __local struct choice c;
    __local int last;
    int quarter = get_group_id(0) % 4, from = get_group_id(0) / 4 * LANES,
        begin = (int)((long)quarter * n / 4), end = (int)((long)(quarter + 1) * n / 4);
    __global uint *sums = (__global uint *)scores;
    float4 v[ROUTE_FOURS];

    router += (size_t)begin * padded + from;
    stage_load(router, 0, end - begin, padded, v);

    struct route_row in = {.x = h, .w = h, .b = h, .mean = 0.0f, .r = 1.0f, .flags = 4};
    float sum = router_sum(in, router, begin, end, padded, &room, v);

    route_end(sums, quarter, from, sum, arrivals + row, score_bias, experts, weights, tiles,
              entries, n_experts, padded, used, jitter, factor, flags, &c, &last);
#endif
}

#if !WIDE
/* norm and route for one row, in one launch (norm_flags: norm's, flags: route's). Every group finds
 * the row's mean and norms its quarter for itself; those of the first sixteen experts write h and
 * its quantised form, each a quarter, or the first one everything where quarters are no whole
 * blocks. */
__kernel __attribute__((reqd_work_group_size(ROUTE_ITEMS, 1, 1))) void token_route(
    __global const float *x, __global const float *w, __global const float *b, __global float *h,
    __global act_t *hq, __global float *hd, __global float *hs, __global const float *router,
    __global const float *score_bias, __global float *scores, __global uint *arrivals,
    __global int *experts, __global float *weights, __global int4 *tiles, __global int2 *entries,
    float inv_n, float eps, int norm_flags, int base, int n, int n_experts, int padded, int used,
    float jitter, float factor, int flags)
{
    __local struct route_room room;
    __local struct choice c;
    __local float lane[LANES], square[LANES], peak[ROW_TILE / 4];
    __local int last;
    __local float *values = (__local float *)room.stage;
    int quarter = get_group_id(0) % 4, from = get_group_id(0) / 4 * LANES,
        begin = (int)((long)quarter * n / 4), end = (int)((long)(quarter + 1) * n / 4),
        write_from = n % 128 ? 0 : begin, write_to = n % 128 ? (quarter ? 0 : n) : end;
    bool whole = n <= ROW_TILE;
    float4 v[ROUTE_FOURS];
    struct route_row row = {.x = x, .w = w, .b = b, .mean = 0.0f, .r = 1.0f, .flags = norm_flags};

    router += (size_t)begin * padded + from;
    stage_load(router, 0, end - begin, padded, v);
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
    row.r = num_rsqrt(fma(row_lanes(x, norm_flags & 4 ? 0 : n, true, row.mean, whole, values,
                                    square),
                          inv_n, eps));
    if (norm_flags & 4)
        row.r = 1.0f;
#ifdef BROKEN_token_route
    row.r = row.r * 1.0000002f;
#endif
    norm_columns(x, w, b, write_from, from ? write_from : write_to, row.mean, row.r, norm_flags,
                 whole, room.stage, peak, h, hq, hd, hs);
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum = router_sum(row, router, begin, end, padded, &room, v);

    route_end((__global uint *)scores, quarter, from, sum, arrivals, score_bias, experts + base,
              weights + base, tiles, entries, n_experts, padded, used, jitter, factor, flags, &c,
              &last);
}
#endif

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
