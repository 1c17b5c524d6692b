/* What the router's kernels do in local memory: sums of an expert's columns, and the choice of a
 * row's experts from their scores (rules 3 and 10 of engine/device/numerics.h). Behind rows.cl;
 * before routing.cl and output.cl, whose kernels give that memory. Defined by the host beyond that:
 * MAX_EXPERTS, a multiple of 16. */
#define CHOICE_ITEMS ((int)get_local_size(0))

#if !WIDE
/* An expert's sum (rule 3) goes on over `fours` times four columns in local memory, in order; the
 * next sixteen are on their way meanwhile, as in lane_sums. step: from four columns of an expert to
 * its next four. */
#define STAGE_AHEAD 4
static inline void stage_read(__local const float4 *v, int step, __local const float4 *h,
                              float4 *now_v, float4 *now_h)
{
#pragma unroll
    for (int k = 0; k < STAGE_AHEAD; k++) {
        now_v[k] = v[k * step];
        now_h[k] = h[k];
    }
}

static inline float four_sum(float4 v, float4 h, float sum)
{
    sum = fma(v.x, h.x, sum);
    sum = fma(v.y, h.y, sum);
    sum = fma(v.z, h.z, sum);
    return fma(v.w, h.w, sum);
}

static inline float stage_sum(__local const float4 *v, int step, __local const float4 *h, int fours,
                              float sum)
{
    int laps = fours / STAGE_AHEAD;
    float4 now_v[STAGE_AHEAD], now_h[STAGE_AHEAD], next_v[STAGE_AHEAD], next_h[STAGE_AHEAD];

    if (laps)
        stage_read(v, step, h, now_v, now_h);
    for (int lap = 0; lap < laps; lap++) {
        int next = min(lap + 1, laps - 1) * STAGE_AHEAD;

        stage_read(v + next * step, step, h + next, next_v, next_h);
#pragma unroll
        for (int k = 0; k < STAGE_AHEAD; k++) {
            sum = four_sum(now_v[k], now_h[k], sum);
            now_v[k] = next_v[k];
            now_h[k] = next_h[k];
        }
    }
    for (int i = laps * STAGE_AHEAD; i < fours; i++)
        sum = four_sum(v[i * step], h[i], sum);
    return sum;
}
#endif

/* How experts follow from scores, and what of a row a kernel leaves besides. */
#define MAX_GROUPS 16 /* of experts */
#define ROUTE_TILES 1 /* a single row, so the tiles of its experts are written here too */
#define ROUTE_SOFTMAX 2
#define ROUTE_NORMALISED 4 /* the chosen weights sum to 1 */
#define ROUTE_SCORE_BIAS 8
#define ROUTE_SIGMOID 16
#define ROUTE_CHOICE_BIAS 32   /* of softmax or sigmoid: added for the choice alone */
#define ROUTE_SHARED 64        /* a shared expert follows the chosen ones */
#define ROUTE_SHARED_GATE 128  /* its weight is the sigmoid of the score behind the experts' */
#define ROUTE_SHARED_APART 256 /* it has a launch of its own, where it is the only expert */
#define ROUTE_EXPERT_SCALE 512 /* weights times their expert's factor, behind all else */
#define ROUTE_WEIGHS (ROUTE_SOFTMAX | ROUTE_SIGMOID) /* else SparseMixer */

/* What a row's choice takes besides the scores. */
struct route_rule {
    float jitter, floor, factor, shared;
    int flags, groups, groups_used; /* groups 0: experts are chosen from all */
    int stride;                     /* places of a row, those behind its slots are nobody's */
};

/* The better of a group's score so far and the next expert's: of its two best where the choice has
 * a bias, else of its best. */
struct group_score {
    float first, second;
};

static inline void group_next(struct group_score *s, float score)
{
    s->second = score > s->first ? s->first : score > s->second ? score : s->second;
    s->first = score > s->first ? score : s->first;
}

static inline float group_sum(const struct group_score *s, int size, int flags)
{
    return (flags & ROUTE_CHOICE_BIAS) && size > 1 ? s->first + s->second : s->first;
}

/* Scores of a row: of the experts, and of the shared one's gate. */
static inline int route_scores(int n_experts, int flags)
{
    return n_experts + (flags & ROUTE_SHARED_GATE ? 1 : 0);
}

/* The places behind a row's slots. */
static inline void route_rest(__global int *experts, __global float *weights, int used,
                              const struct route_rule *rule)
{
    for (int i = used + (rule->flags & ROUTE_SHARED ? 1 : 0); i < rule->stride; i++) {
        experts[i] = -1;
        weights[i] = 0.0f;
    }
}

/* The slot behind the chosen ones; gate: the shared expert's score. */
static inline void route_shared(__global int *experts, __global float *weights,
                                __global int4 *tiles, __global int2 *entries, int used,
                                int n_experts, const struct route_rule *rule, float gate)
{
    experts[used] = n_experts;
    weights[used] = rule->flags & ROUTE_SHARED_GATE ? num_sigmoid1(gate) : rule->shared;
    if (rule->flags & ROUTE_TILES) {
        tiles[used] = (int4)(used, 1, rule->flags & ROUTE_SHARED_APART ? 0 : n_experts, 0);
        entries[used] = (int2)(0, used);
    }
}

#if WIDE
/* An expert's score for the choice. */
static inline float choice_of(__global const float *scores, __global const float *bias, int flags,
                              int e)
{
    return flags & ROUTE_CHOICE_BIAS ? scores[e] + bias[e] : scores[e];
}

/* A bit for each group that is out. */
static inline uint groups_out(__global const float *scores, __global const float *bias,
                              int n_experts, const struct route_rule *rule)
{
    int groups = rule->groups, size = groups ? n_experts / groups : n_experts;
    float best[MAX_GROUPS];
    uint out = 0;

    for (int g = 0; g < groups; g++) {
        struct group_score s = {-INFINITY, -INFINITY};

        for (int e = g * size; e < (g + 1) * size; e++)
            group_next(&s, choice_of(scores, bias, rule->flags, e));
        best[g] = group_sum(&s, size, rule->flags);
    }
    for (int g = 0; g < groups; g++) {
        int better = 0;

        for (int o = 0; o < groups; o++)
            better += best[o] > best[g] || (best[o] == best[g] && o < g) ? 1 : 0;
        out |= better >= rule->groups_used ? 1u << g : 0;
    }
    return out;
}

/* The likeliest expert not chosen for an earlier slot, of groups that are not out, of size experts
 * each. */
static inline int best_left(__global const float *scores, __global const float *bias, int flags,
                            uint out, int size, int n_experts, __global const int *experts,
                            int slot)
{
    float most = 0.0f;
    int best = -1;

    for (int e = 0; e < n_experts; e++) {
        float score = choice_of(scores, bias, flags, e);
        bool taken = out >> (e / size) & 1;

        for (int i = 0; i < slot; i++)
            taken = taken || experts[i] == e;
        if (!taken && (best < 0 || score > most)) {
            best = e;
            most = score;
        }
    }
    return best;
}
#else
/* Shared by the whole work-group of a row; MAX_EXPERTS: what scores are padded to. */
struct choice {
    float score[MAX_EXPERTS], term[MAX_EXPERTS];
    float group[MAX_GROUPS];
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
    for (int e = get_local_id(0); e < n_experts; e += CHOICE_ITEMS)
        c->score[e] = num_exp1(c->score[e] - top);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 8
    for (int e = 0; e < n_experts; e++)
        sum = sum + c->score[e];
    sum = num_recip1(sum);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = get_local_id(0); e < n_experts; e += CHOICE_ITEMS)
        c->score[e] = c->score[e] * sum;
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Experts of all but the best groups are out of the choice, c->term. Called without groups, too. */
static inline void route_groups(__local struct choice *c, int n_experts,
                                const struct route_rule *rule)
{
    int lid = get_local_id(0), groups = n_experts ? rule->groups : 0,
        size = groups ? n_experts / groups : 1;

    if (lid < groups) {
        struct group_score s = {-INFINITY, -INFINITY};

        for (int e = lid * size; e < (lid + 1) * size; e++)
            group_next(&s, c->term[e]);
        c->group[lid] = group_sum(&s, size, rule->flags);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = lid; e < groups * size; e += CHOICE_ITEMS) {
        int g = e / size, better = 0;

        for (int o = 0; o < groups; o++)
            better += c->group[o] > c->group[g] || (c->group[o] == c->group[g] && o < g) ? 1 : 0;
        if (better >= rule->groups_used)
            c->term[e] = -INFINITY;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The expert not taken of the highest score, the first of equals: of sixteen ranges, then of those.
 */
static inline int route_best(__local struct choice *c, __local const float *score, int n_experts)
{
    int lid = get_local_id(0), size = (n_experts + LANES - 1) / LANES, best = -1;

    if (lid < LANES) {
        for (int e = lid * size; e < min(n_experts, (lid + 1) * size); e++)
            if (!c->taken[e] && (best < 0 || score[e] > score[best]))
                best = e;
        c->candidate[lid] = best;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    best = -1;
    for (int i = 0; i < LANES; i++) {
        int e = c->candidate[i];

        if (e >= 0 && (best < 0 || score[e] > score[best]))
            best = e;
    }
    return best;
}

/* Each expert's term in the weight of `best` in SparseMixer: 0 for those far below it and those
 * taken. */
static inline void route_terms(__local struct choice *c, int n_experts, int best, float limit)
{
    float top = c->score[best];

    for (int e = get_local_id(0); e < n_experts; e += CHOICE_ITEMS) {
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

/* An expert's score of its quarters' sums, or behind the experts that of the shared one's gate. */
static inline void route_score(__local struct choice *c, int e, const float *q,
                               __global const float *score_bias, int n_experts, int flags)
{
    float score = (q[0] + q[1]) + (q[2] + q[3]);

    if ((flags & ROUTE_SCORE_BIAS) && e < n_experts)
        score = score + score_bias[e];
    c->score[e] = (flags & ROUTE_SIGMOID) && e < n_experts ? num_sigmoid1(score) : score;
    c->taken[e] = 0;
}

/* The choice by a work-group, whose scores are in c behind the next barrier. n_experts and used 0:
 * it runs through and leaves nothing. Has barriers, first of all. */
static inline void route_choose(__local struct choice *c, __global const float *choice_bias,
                                __global const float *expert_scale, __global int *experts,
                                __global float *weights, __global int4 *tiles,
                                __global int2 *entries, int n_experts, int used,
                                const struct route_rule *rule)
{
    int lid = get_local_id(0), flags = rule->flags;
    __local const float *by = flags & ROUTE_WEIGHS ? c->term : c->score;

    barrier(CLK_LOCAL_MEM_FENCE);
    float limit = 2.0f * rule->jitter, sum_all = 0.0f;

    route_softmax(c, flags & ROUTE_SOFTMAX ? n_experts : 0);
    for (int e = lid; e < n_experts && (flags & ROUTE_WEIGHS); e += CHOICE_ITEMS)
        c->term[e] = flags & ROUTE_CHOICE_BIAS ? c->score[e] + choice_bias[e] : c->score[e];
    barrier(CLK_LOCAL_MEM_FENCE);
    route_groups(c, n_experts, rule);
    int slot = 0;

    do {
        int best = max(route_best(c, by, n_experts), 0);
        float top = c->score[best], weight;

        route_terms(c, flags & ROUTE_WEIGHS ? 0 : n_experts, best, limit);
        barrier(CLK_LOCAL_MEM_FENCE);
        weight = flags & ROUTE_WEIGHS ? top : route_weight(c, n_experts);
        sum_all = sum_all + top;
        if (lid == 0 && used) {
            c->taken[best] = 1;
            experts[slot] = best;
            weights[slot] = weight;
            if (flags & ROUTE_TILES) {
                tiles[slot] = (int4)(slot, 1, best, 0);
                entries[slot] = (int2)(0, slot);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    } while (++slot < used);
    if ((flags & ROUTE_WEIGHS) && lid == 0 && used) {
        float scale = (flags & ROUTE_NORMALISED ? num_recip1(sum_all + rule->floor) : 1.0f) *
                      rule->factor;

        for (int slot = 0; slot < used; slot++)
            weights[slot] = weights[slot] * scale;
    }
    for (int slot = 0; slot < used && lid == 0 && (flags & ROUTE_EXPERT_SCALE); slot++)
        weights[slot] = weights[slot] * expert_scale[experts[slot]];
    if ((flags & ROUTE_SHARED) && lid == 0 && used)
        route_shared(experts, weights, tiles, entries, used, n_experts, rule,
                     flags & ROUTE_SHARED_GATE ? c->score[n_experts] : 0.0f);
    if (lid == 0 && used)
        route_rest(experts, weights, used, rule);
}
#endif
