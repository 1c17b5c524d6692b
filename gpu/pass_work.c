/* See pass_work.h. One function a kernel, in the order of jobs/. Loops whose loads a compiler can
 * move before their first use are taken for unrolled by four, as compilers do without being
 * asked. */
#include "gpu/pass_work.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"
#include "engine/file/format_traits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define UNROLLED 4
#define LAST_FAR 2    /* last_of, and reading what the other groups left */
#define CHUNK 256     /* of keys: attention.cl */
#define ROW_SLOTS 116 /* of a block of one token's row: nine loads, eight products, 64 others */
/* Of four rows at once: 24 loads (one of sixteen bytes of codes as four), 32 products, 104 others;
 * ptxas 13.0 has 197 instructions where it has 112 of one row. */
#define QUAD_SLOTS (24 * 4 + 32 * 2 + 104)
#define PROCESSORS 132     /* of the cards that times are known of */
#define LOAD_SLOTS 4       /* issue slots of a load, of local memory too */
#define DOT8_SLOTS 2       /* of four products of bytes and their sum */
#define ENGINE_SLOTS 8     /* of 16 rows by 8 tokens by a block on the matrix engine */
#define ACTIVATE_STEPS 100 /* an activation, and quantising a block behind it */

static double ceil_div(double a, double b)
{
    double q = (double)(long)(a / b);

    return q * b < a ? q + 1 : q;
}

static const struct layer_shape *shape_of(const struct device *d, int layer)
{
    return hparams_layer(&d->base.config.model->hp, layer);
}

/* The last entry's shape is the text. */
__attribute__((format(printf, 7, 8))) static void add(struct pass_work *p, const char *name,
                                                      double groups, double group, double ops,
                                                      struct kernel_work work, const char *format,
                                                      ...)
{
    struct launch_work *l;
    va_list ap;

    if (p->n == p->room) {
        int room = p->room ? 2 * p->room : 256;

        if (!(l = mem_resize(p->at, (size_t)room, sizeof *l))) {
            p->failed = true;
            return;
        }
        p->at = l;
        p->room = room;
    }
    l = &p->at[p->n++];
    *l = (struct launch_work){.name = name,
                              .items = (size_t)(groups * group),
                              .group = (size_t)group,
                              .ops = ops,
                              .work = work};
    va_start(ap, format);
    vsnprintf(l->shape, sizeof l->shape, format, ap);
    va_end(ap);
}

/* A kernel of single work-items, LINE of them a group. */
static void add_line(struct pass_work *p, const char *name, double x, double y,
                     struct kernel_work work, const char *rows, int n, int cols)
{
    add(p, name, ceil_div(x, CORE_ITEMS) * y, CORE_ITEMS, 0, work, "%d x %d%s", n, cols, rows);
}

/* Additions one after the other of a row's norm: an RMS norm takes no mean. */
static double norm_steps(const struct norms_shape *s, double n)
{
    return (s->kind == NORM_LAYER ? 2 : 1) * n / NUM_LANES;
}

/* Its weights come beside the row, sixteen values a work-item at once; outputs of experts one after
 * the other. */
static void add_norm(const struct device *d, struct pass_work *p, const struct norms_shape *s,
                     int rows, int used)
{
    double n = d->base.config.model->hp.hidden, items = d->row_items,
           lap = ceil_div(ceil_div(n, items), UNROLLED), blocks = ceil_div(n / 32, items);

    add(p, "norm", rows, items, 0,
        (struct kernel_work){.far = ceil_div(n, 16 * items),
                             .near = (used ? lap : 0) + blocks,
                             .steps = blocks * ACTIVATE_STEPS / 2,
                             .ahead = norm_steps(s, n),
                             .bytes = n * 4,
                             .slots = rows * n * 40},
        "%d x %d%s", rows, d->base.config.model->hp.hidden, used ? ", + experts" : "");
}

/* parts rows of n, and `more` of m. */
static void add_rms(const struct device *d, struct pass_work *p, int parts, int n, int more, int m)
{
    double items = d->wide ? 1 : 64;
    int most = n > m ? n : m;
    struct kernel_work w = {.far = 1,
                            .near = 1 + ceil_div(ceil_div(most, items), UNROLLED),
                            .steps = 20,
                            .ahead = most / (double)NUM_LANES,
                            .slots = ((double)parts * n + (double)more * m) * 20};

    if (n == m || !more)
        add(p, "rms_rows", parts + more, items, 0, w, "%d x %d", parts + more, n);
    else
        add(p, "rms_rows", parts + more, items, 0, w, "%d x %d, %d x %d", parts, n, more, m);
}

static double matrix_bytes(const struct matrix *m)
{
    return (double)m->bytes;
}

static int terms_of(enum dtype type)
{
    return format_of[type].minimum || format_of[type].halves == 2 ? 2 : 1;
}

/* Work-items a row that compute terms: four rows at once are a quarter as many, which have four
 * times the slots. */
static double slots_of(const struct token_shape *s)
{
    return s->slots * s->load / 4.0;
}

/* One token's row of a matrix: row_sum of blocks.cl, or dot_rows of float.cl. per_round: its step.
 */
static struct kernel_work row_work(enum dtype type, double cols, int per_round,
                                   const struct token_shape *shape)
{
    double quarter = ceil_div(cols / 32, 4), rounds;
    int terms = terms_of(type);

    if (!dtype_is_quantised(type))
        return (struct kernel_work){
            .far = ceil_div(ceil_div(cols, 256), UNROLLED), .near = 1, .steps = cols / 256 + 64};
    per_round = per_round / terms > 1 ? per_round / terms : 1;
    per_round = per_round < quarter ? per_round : (int)quarter;
    rounds = ceil_div(quarter, per_round);
    return (struct kernel_work){.far = rounds * ceil_div(ceil_div(4.0 * per_round, slots_of(shape)),
                                                         shape->ahead),
                                .near = rounds,
                                .ahead = quarter * terms};
}

/* Instructions of one multiprocessor's work-groups, each with so many rows of so many blocks. */
static double own_slots(enum dtype type, const struct token_shape *s, double groups, double rows,
                        double blocks)
{
    return dtype_is_quantised(type)
               ? ceil_div(groups, PROCESSORS) * rows * blocks *
                     (s->load > 4 ? QUAD_SLOTS / 4.0 : ROW_SLOTS) * terms_of(type)
               : 0;
}

/* Issue slots of a work-item of a GEMM for one block. Four or eight tokens by 4 rows: products,
 * loads of codes and activations sixteen bytes at a time, factors, and its part of unpacking both.
 * The matrix engine, two rows by eight tokens: instructions as ptxas 13.0 has them in the loop over
 * blocks for sm_90, of Q4_0, what minima (Q4_K) and halves with factors (Q6_K) take besides; 16 of
 * them are loads, four the engine's; and a quarter of what a step of four blocks takes. */
static double gemm_slots(const struct device *d, enum dtype type, enum gemm_form form)
{
    int tokens = kernel_set_item_tokens(d, form), terms = terms_of(type);
    double products = 32 * tokens * DOT8_SLOTS, loads = 8 * (4 + tokens) * LOAD_SLOTS,
           sums = 4 * tokens * 5.0 * terms, factors = (4 * terms + 3 * tokens) * LOAD_SLOTS,
           staging = 82.0 / 4 * tokens;

    if (form == GEMM_ENGINE)
        return 183 + (format_of[type].minimum ? 151 : 0) + (format_of[type].halves ? 180 : 0) +
               16 * (LOAD_SLOTS - 1) + 4 * (ENGINE_SLOTS - 1) + 25;
    return products + loads + sums + factors + staging;
}

/* Of all its work-items for a work-group's tile. */
static double gemm_group_slots(const struct device *d, enum dtype type, enum gemm_form form)
{
    double tile = kernel_set_tile(d, type, true);

    return 16 * tile / kernel_set_item_tokens(d, form) * gemm_slots(d, type, form);
}

/* tiles x groups work-groups that multiply `rows` rows of `cols` columns with many tokens. */
static struct kernel_work tile_work(const struct device *d, enum dtype type, double groups,
                                    double cols)
{
    double tile = kernel_set_tile(d, type, true);

    if (!dtype_is_quantised(type)) /* four rows a group */
        return (struct kernel_work){.far = ceil_div(cols, 256),
                                    .steps = cols / 256 + 64,
                                    .slots = groups * cols * tile * (LOAD_SLOTS / 4 + 4)};
    return (struct kernel_work){.far = ceil_div(cols / 32, 4),
                                .steps = cols / 32 * terms_of(type),
                                .slots = groups * cols / 32 *
                                         gemm_group_slots(d, type, d->type[type].form)};
}

/* Of a launch's shape: the type, and with many tokens how its kernels work. */
struct type_words {
    char text[32];
};

static struct type_words words_of(const struct device *d, enum dtype type, bool many)
{
    enum gemm_form form = many ? d->type[type].form : GEMM_FOURS;
    struct type_words w;

    snprintf(w.text, sizeof w.text, "%s%s%s", dtype_info(type)->word, form == GEMM_FOURS ? "" : " ",
             form == GEMM_FOURS ? "" : kernel_set_form_word(form));
    return w;
}

/* Of the products of one work-group's shape: how many groups a matrix of so many rows takes. */
static double row_groups(const struct device *d, enum dtype type, bool many, int rows)
{
    return ceil_div(rows, (double)kernel_set_rows(d, type, many));
}

static const struct token_shape *token_shape(const struct device *d, enum dtype type,
                                             enum token_kernel k)
{
    return &d->type[type].shapes.of[k];
}

static int step_of(const struct token_shape *s)
{
    return 256 / s->rows * 2; /* STEP_OF of blocks.cl */
}

static void add_matmul(const struct device *d, struct pass_work *p, const struct matrix *const *m,
                       int n, int rows)
{
    enum dtype type = m[0]->type;
    bool many = rows > 1;
    struct group_shape g = kernel_set_group(d, type, many, false);
    const struct token_shape *one = token_shape(d, type, TOKEN_MATMUL);
    double tiles = ceil_div(rows, kernel_set_tile(d, type, many)), groups = 0, bytes = 0, ops = 0;
    int total = 0;
    char tokens[24] = "";
    struct kernel_work w;

    for (int i = 0; i < n; i++) {
        groups += row_groups(d, type, many, m[i]->rows);
        bytes += matrix_bytes(m[i]);
        ops += 2.0 * m[i]->rows * m[i]->cols * rows;
        total += m[i]->rows;
    }
    w = many ? tile_work(d, type, tiles * groups, m[0]->cols)
             : row_work(type, m[0]->cols, step_of(one), one);
    w.bytes = bytes;
    w.own = many ? 0 : own_slots(type, one, groups, one->rows, m[0]->cols / 32);
    if (rows > 1)
        snprintf(tokens, sizeof tokens, ", %d rows", rows);
    add(p, "matmul", tiles * groups, (double)(g.x * g.y), ops, w, "%d x %d %s%s", total, m[0]->cols,
        words_of(d, type, many).text, tokens);
}

static void add_projection(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct layer_weights *l = &d->base.config.model->layers[layer];
    const struct matrix *qkv[3] = {&l->q, &l->k, &l->v}, *gates = &l->z;
    int n = shape_of(d, layer)->mixer.values_are_keys ? 2 : 3;

    for (int i = 0; i < n; i++) { /* those of one type together */
        const struct matrix *alike[3];
        int count = 0;

        for (int k = 0; k < n; k++)
            if (qkv[k]->type == qkv[i]->type)
                alike[count++] = qkv[k];
        if (alike[0] == qkv[i])
            add_matmul(d, p, alike, count, rows);
    }
    if (shape_gates(&shape_of(d, layer)->mixer))
        add_matmul(d, p, &gates, 1, rows);
}

/* Norms of values, queries and keys, and the gates' part. */
static void add_heads(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct mixer_shape *s = &shape_of(d, layer)->mixer;

    if (s->value_norm)
        add_rms(d, p, rows * s->kv_heads, s->key_dim, 0, 0);
    if (s->gated && s->gate == GATE_WITHIN)
        add_line(p, "part_gates", (double)rows * s->heads * s->key_dim, 1,
                 (struct kernel_work){.near = 1,
                                      .slots = (double)rows * s->heads * s->key_dim * 20},
                 "", rows, s->heads * s->key_dim);
    if (s->qk_norm == QK_NORM_WHOLE)
        add_rms(d, p, rows, s->key_dim * s->heads, rows, s->key_dim * s->kv_heads);
    else if (s->qk_norm != QK_NORM_NONE)
        add_rms(d, p, rows * s->heads, s->key_dim, rows * s->kv_heads, s->key_dim);
}

static double kv_bytes(const struct device *d, const struct mixer_shape *s)
{
    const struct device_config *c = &d->base.config;

    return (double)(kv_type_bytes(c->kv_k, s->kv_heads * s->key_dim) +
                    kv_type_bytes(c->kv_v, s->kv_heads * s->key_dim));
}

static void add_rope(const struct device *d, struct pass_work *p, const struct mixer_shape *s,
                     int rows)
{
    int heads = s->heads + 2 * s->kv_heads;

    add_line(p, "rope", s->key_dim, (double)heads * rows,
             (struct kernel_work){
                 .far = 1, .near = 1, .steps = 10, .slots = (double)rows * heads * s->key_dim * 60},
             "", rows * heads, s->key_dim);
}

/* Keys that row 0 .. rows-1 behind depth others see together. */
static double keys_seen(const struct mixer_shape *s, int rows, int depth)
{
    double keys = 0;

    for (int r = 0; r < rows; r++) {
        int n = depth + r + 1;

        keys += s->window && n > s->window ? s->window : n;
    }
    return keys;
}

/* token_attend, of as many keys as a row before it sees. */
static void add_token_attend(const struct device *d, struct pass_work *p,
                             const struct mixer_shape *s, int depth)
{
    int first = s->window && depth - s->window + 1 > 0 ? (depth - s->window + 1) / CHUNK : 0,
        chunks = depth / CHUNK - first + 1, dim = s->key_dim,
        longest = depth + 1 < CHUNK ? depth + 1 : CHUNK;
    double items = d->row_items, laps = ceil_div(longest, items), turns = ceil_div(dim, items),
           tiles = ceil_div(longest * kv_bytes(d, s) / 2 / s->kv_heads, items * 128),
           keys = keys_seen(s, 1, depth), pairs = keys * s->heads * dim;

    /* before the keys the rotation; behind them atomics, parts of others if there are any, and the
     * norming of a head's output */
    add(p, "token_attend", (double)chunks * s->heads, items, 4 * pairs,
        (struct kernel_work){.far = 1 + laps * ceil_div(dim / 4, 16) + tiles - 1 + LAST_FAR +
                                    (chunks > 1 ? ceil_div(chunks, 8) : 0),
                             .near = 4,
                             .steps = laps * dim / 4 + 130 + 2 * chunks,
                             .ahead = turns * longest,
                             .bytes = keys * kv_bytes(d, s),
                             .slots = pairs * 2 * (LOAD_SLOTS + 2)},
        "%d heads, %d keys", s->heads, depth + 1);
}

static void add_attend(const struct device *d, struct pass_work *p, const struct mixer_shape *s,
                       int rows, int depth)
{
    int first = s->window && depth - s->window + 1 > 0 ? (depth - s->window + 1) / CHUNK : 0,
        chunks = (depth + rows - 1) / CHUNK - first + 1, dim = s->key_dim,
        step = (int)(d->part_bytes / ((size_t)s->heads * (size_t)chunks * (size_t)(dim + 2) * 4)),
        longest = depth + rows < CHUNK ? depth + rows : CHUNK;
    /* scores: 16 dimensions of four keys at once; values: 128 bytes a work-item at once, the first
     * of them beside the scores */
    double items = d->row_items, laps = ceil_div(longest, items), turns = ceil_div(dim, items),
           tiles = ceil_div(longest * kv_bytes(d, s) / 2 / s->kv_heads, items * 128);

    step = step < 1 ? 1 : step;
    for (int row = 0; row < rows; row += step) {
        int n = rows - row < step ? rows - row : step;
        double keys = keys_seen(s, n, depth + row), pairs = keys * s->heads * dim;

        add(p, "attend", (double)chunks * s->heads * n, items, 4 * pairs,
            (struct kernel_work){.far = laps * ceil_div(dim / 4, 16) + tiles - 1,
                                 .near = 1,
                                 .steps = laps * dim / 4 + 60,
                                 .ahead = turns * longest,
                                 .bytes = (n > 1 ? depth + row + n : keys) * kv_bytes(d, s),
                                 .slots = pairs * 2 * (LOAD_SLOTS + 2)},
            "%d x %d heads, %d keys", n, s->heads, depth + row + n);
        add(p, "attend_merge",
            ceil_div(s->heads * dim / (d->wide ? 32.0 : 1.0), CORE_ITEMS) * (double)n, CORE_ITEMS,
            0,
            (struct kernel_work){.near = 2 + 2 * ceil_div(chunks, UNROLLED),
                                 .steps = 60 + 60 * ceil_div(chunks, UNROLLED),
                                 .slots = (double)n * s->heads * dim * (100 + 60.0 * chunks)},
            "%d x %d, %d chunks", n, s->heads * dim, chunks);
    }
}

static void add_plain(struct pass_work *p, const char *name, int rows, int n)
{
    add_line(p, name, (double)rows * n, 1,
             (struct kernel_work){.near = 1, .slots = (double)rows * n * 20}, "", rows, n);
}

/* The router's part: work-groups, and what they ask for. */
struct router_work {
    double groups;
    struct kernel_work work;
};

static struct router_work router_work(const struct device *d, int layer, int rows)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    bool mixes = s->router.kind == ROUTER_SPARSEMIXER;
    double n = d->base.config.model->hp.hidden, experts = s->experts,
           scores = experts + (s->shared && s->shared_gate == SHARED_SIGMOID),
           slot = experts / 16 + 16 + 10 + (mixes ? experts + 25 : 0),
           choice = (mixes ? 0 : 2 * experts + 30) + s->used * slot;

    /* stages of 8 times 16 bytes a work-item: the additions of one outlast the wait for the next;
     * the last group of a row chooses */
    return (struct router_work){d->wide ? 1 : 4 * ceil_div(scores, 16),
                                {.far = 1 + LAST_FAR,
                                 .near = 1,
                                 .steps = choice,
                                 .ahead = n / 4,
                                 .bytes = n * d->padded_experts * 4,
                                 .slots = rows * n * d->padded_experts * (LOAD_SLOTS + 1)}};
}

static void add_route(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    struct router_work r = router_work(d, layer, rows);

    add(p, "route", r.groups * rows, d->route_items,
        2.0 * rows * d->base.config.model->hp.hidden * s->experts, r.work, "%d x %d of %d", rows,
        s->used + joined_shared(d, layer), s->experts);
}

/* token_output: the projection; the last group that ends norms the row and chooses, alone: the
 * router's additions outlast its loads, of which two stages are on their way. */
static void add_token_output(const struct device *d, struct pass_work *p, int layer)
{
    const struct layer_shape *s = shape_of(d, layer);
    const struct matrix *o = &d->base.config.model->layers[layer].o;
    const struct token_shape *shape = token_shape(d, o->type, TOKEN_OUTPUT);
    double hidden = o->rows, groups = ceil_div(hidden, shape->rows),
           items = (double)shape->rows * shape->slots;
    struct kernel_work w = row_work(o->type, o->cols, step_of(shape), shape);
    struct router_work r = {0};

    if (s->ffn.kind == FFN_ROUTED) {
        r = router_work(d, layer, 1);
        w.near += 2; /* h, and the first stages' values */
        w.steps += r.work.steps;
        w.ahead += r.work.ahead;
    }
    w.far += LAST_FAR;
    w.near += ceil_div(hidden, 8 * items);
    w.steps += ceil_div(hidden / 4, items) * ACTIVATE_STEPS / 2;
    w.ahead += norm_steps(&s->norms, hidden);
    w.bytes = matrix_bytes(o) + r.work.bytes;
    w.own = own_slots(o->type, shape, groups, shape->rows, o->cols / 32);
    add(p, "token_output", groups, items, 2 * hidden * o->cols, w, "%d x %d %s, + norm%s", o->rows,
        o->cols, dtype_info(o->type)->word, s->ffn.kind == FFN_ROUTED ? " + router" : "");
}

/* Whether token_output ends a layer's attention. */
static bool output_ends(const struct device *d, int layer, int rows, bool fused)
{
    return fused && rows == 1 && kernel_set_token_outputs(d, layer);
}

static void add_attention(const struct device *d, struct pass_work *p, int layer, int rows,
                          int depth, int used, bool normed, bool fused)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *s = shape_of(d, layer);
    const struct matrix *o = &d->base.config.model->layers[layer].o;

    if (!normed)
        add_norm(d, p, &s->norms, rows, used);
    if (fused && s->ffn.router.early)
        add_route(d, p, layer, rows);
    add_projection(d, p, layer, rows);
    add_heads(d, p, layer, rows);
    if (rows == 1 && kernel_set_token_attends(d, &s->mixer, depth / CHUNK + 1)) {
        add_token_attend(d, p, &s->mixer, depth);
    } else {
        add_rope(d, p, &s->mixer, rows);
        add_attend(d, p, &s->mixer, rows, depth);
    }
    if (output_ends(d, layer, rows, fused)) {
        add_token_output(d, p, layer);
        return;
    }
    add_matmul(d, p, &o, 1, rows);
    if (hp->residual_scale != 0.0f)
        add_plain(p, fused && !s->norms.after ? "add" : "scale_rows", rows, hp->hidden);
    if (norms_sum(&s->norms))
        add_plain(p, "add", rows, hp->hidden);
    if (s->norms.after)
        add_norm(d, p, &s->norms, rows, 0);
    if (s->norms.after && fused)
        add_plain(p, "add", rows, hp->hidden);
}

/* gate_up of n_tiles tiles of experts like x, entries of which are real. */
static void add_gate_up(const struct device *d, struct pass_work *p, const struct expert_weights *x,
                        int n_experts, int n_tiles, int entries, bool many)
{
    int hidden = d->base.config.model->hp.hidden, ffn = x->up.rows;
    bool gated = x->gate.rows > 0, quant = dtype_is_quantised(x->up.type);
    enum dtype up = x->up.type;
    struct group_shape g = kernel_set_group(d, up, many, true);
    double groups = n_tiles * ceil_div(ffn, quant ? 32 : 4), sides = gated ? 2 : 1;
    const struct token_shape *one = token_shape(d, up, TOKEN_GATE_UP);
    struct kernel_work w = many ? tile_work(d, up, groups, hidden)
                                : row_work(up, hidden, d->small_local ? 8 : 16, one);

    if (!many && !quant) { /* one after the other */
        w.far *= sides;
        w.near *= sides;
        w.steps *= sides;
    }
    w.near += 2;
    w.steps += ACTIVATE_STEPS;
    w.bytes = n_experts * (sides * matrix_bytes(&x->up));
    w.own = many ? 0 : own_slots(up, one, groups, 32 * sides, hidden / 32);
    add(p, "gate_up", groups, (double)(g.x * g.y), 2 * sides * entries * (double)ffn * hidden, w,
        "%d x %d x %d %s", n_experts, (int)sides * ffn, hidden, words_of(d, up, many).text);
}

/* token_gate_up: a quarter of each row a group. */
static void add_token_gate_up(const struct device *d, struct pass_work *p,
                              const struct expert_weights *x, int used)
{
    int hidden = d->base.config.model->hp.hidden, ffn = x->up.rows;
    double sides = x->gate.rows > 0 ? 2 : 1, quarter = ceil_div(hidden / 32, 4),
           groups = used * 4 * ceil_div(ffn, 32),
           at_once = 4.0 * (d->small_local ? 8 : 16) / terms_of(x->up.type),
           rounds = ceil_div(quarter, at_once);
    struct group_shape g = kernel_set_group(d, x->up.type, false, true);
    const struct token_shape *shape = token_shape(d, x->up.type, TOKEN_GATE_UP);
    struct kernel_work w = {
        .far = rounds * ceil_div(ceil_div(quarter < at_once ? quarter : at_once, slots_of(shape)),
                                 shape->ahead) +
               LAST_FAR,
        .near = rounds + 2,
        .steps = ACTIVATE_STEPS,
        .ahead = quarter * terms_of(x->up.type),
        .bytes = used * (sides * matrix_bytes(&x->up)),
        .own = own_slots(x->up.type, shape, groups, 32 * sides, quarter)};

    add(p, "token_gate_up", groups, (double)(g.x * g.y), 2 * sides * used * (double)ffn * hidden, w,
        "%d x %d x %d %s", used, (int)sides * ffn, hidden, dtype_info(x->up.type)->word);
}

/* The same of down. */
static void add_down(const struct device *d, struct pass_work *p, const struct expert_weights *x,
                     int n_experts, int n_tiles, int entries, bool many)
{
    int hidden = d->base.config.model->hp.hidden, ffn = x->up.rows;
    enum dtype down = x->down.type;
    struct group_shape dn = kernel_set_group(d, down, many, false);
    double out = n_tiles * row_groups(d, down, many, hidden);
    struct kernel_work w;

    const struct token_shape *one = token_shape(d, down, TOKEN_MATMUL);

    w = many ? tile_work(d, down, out, ffn) : row_work(down, ffn, step_of(one), one);
    w.near += 2;
    w.own = many ? 0 : own_slots(down, one, out, one->rows, ffn / 32);
    w.bytes = n_experts * matrix_bytes(&x->down);
    add(p, "down", out, (double)(dn.x * dn.y), 2.0 * entries * (double)ffn * hidden, w,
        "%d x %d x %d %s", n_experts, hidden, ffn, words_of(d, down, many).text);
}

/* token_down: blocks of several experts at once; norms: the last group that ends norms the row,
 * after two waits for atomics. */
static void add_token_down(const struct device *d, struct pass_work *p,
                           const struct expert_weights *x, int used,
                           const struct norms_shape *norms)
{
    const struct matrix *m = &x->down;
    const struct token_shape *shape = token_shape(d, m->type, TOKEN_DOWN);
    double hidden = m->rows, n = m->cols / 32, items = (double)shape->rows * shape->slots,
           groups = ceil_div(hidden, shape->rows),
           fit = (double)(long)(4.0 * step_of(shape) / terms_of(m->type) / n),
           at_once = fit < shape->slots / 4 ? fit : shape->slots / 4;
    struct kernel_work w = {.near = 2};

    for (double left = used; left > 0; left -= at_once) {
        double blocks = (left < at_once ? left : at_once) * n;

        w.far += ceil_div(ceil_div(blocks, slots_of(shape)), shape->ahead);
        w.near += 1;
        w.steps += 4 * blocks / n;
        w.ahead += ceil_div(n, 4) * terms_of(m->type);
    }
    if (norms) {
        w.far += LAST_FAR;
        w.near += ceil_div(hidden, 8 * items);
        w.steps += ceil_div(hidden / 4, items) * ACTIVATE_STEPS / 2;
        w.ahead += norm_steps(norms, hidden);
    }
    w.bytes = used * matrix_bytes(m);
    w.own = own_slots(m->type, shape, groups, shape->rows, used * n);
    add(p, "token_down", groups, items, 2.0 * used * hidden * m->cols, w, "%d x %d x %d %s%s", used,
        m->rows, m->cols, dtype_info(m->type)->word, norms ? ", + norm" : "");
}

/* Experts like x in launches of their own: tiles of `experts` of them. */
static void add_bank(const struct device *d, struct pass_work *p, const struct expert_weights *x,
                     int experts, int entries, int rows)
{
    int few = experts < entries ? experts : entries,
        n_tiles = rows > 1 ? entries / kernel_set_tile(d, x->up.type, true) + few : entries;

    if (rows > 1)
        add(p, "group_rows", 1, d->row_items, 0,
            (struct kernel_work){.near = ceil_div(2.0 * entries / d->row_items, UNROLLED),
                                 .steps = 4 * experts + 2.0 * entries / d->row_items},
            "%d entries", entries);
    add_gate_up(d, p, x, few, n_tiles, entries, rows > 1);
    add_down(d, p, x, few, n_tiles, entries, rows > 1);
}

/* The norm before a layer's experts and their choice. */
static void add_choice(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct layer_shape *shape = shape_of(d, layer);
    const struct ffn_shape *s = &shape->ffn;
    double n = d->base.config.model->hp.hidden, items = d->route_items;
    struct router_work r = router_work(d, layer, rows);

    if (output_ends(d, layer, rows, true))
        return;
    if (rows == 1 && d->token_route && s->kind == FFN_ROUTED && !shape->parallel &&
        !s->router.early) {
        /* the first stage comes while the row is normed */
        r.work.far = LAST_FAR;
        r.work.near += 1 + ceil_div(n / 4, 8 * items);
        r.work.ahead += norm_steps(&shape->norms, n);
        add(p, "token_route", r.groups + 4, items, 2.0 * n * s->experts, r.work,
            "%d x %d, %d of %d", rows, d->base.config.model->hp.hidden,
            s->used + joined_shared(d, layer), s->experts);
        return;
    }
    if (!shape->parallel)
        add_norm(d, p, &shape->norms, rows, 0);
    if (s->kind == FFN_DENSE)
        add_plain(p, "choose_dense", rows, d->base.config.model->hp.n_experts_used);
    else if (!s->router.early)
        add_route(d, p, layer, rows);
}

/* A dense part and routed experts, each with its norms, and their sum. */
static void add_apart(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    const struct norms_shape *norms = &shape_of(d, layer)->norms;
    const struct expert_weights *x = d->base.config.model->layers[layer].experts;
    int hidden = d->base.config.model->hp.hidden;

    add_norm(d, p, norms, rows, 0);
    add_bank(d, p, &x[s->experts], 1, rows, rows);
    add_norm(d, p, norms, rows, 0);
    add_bank(d, p, &x[0], s->experts, rows * s->used, rows);
    add_plain(p, "combine", rows, hidden);
    add_norm(d, p, norms, rows, 0);
    add_norm(d, p, norms, rows, 0);
    add_plain(p, "add", rows, hidden);
}

/* What comes behind the sum of a layer's experts, which is there in one that is apart. */
static void add_end(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct layer_shape *s = shape_of(d, layer);
    int hidden = d->base.config.model->hp.hidden;

    if (s->ffn.kind != FFN_DENSE_AND_ROUTED || !s->norms.after)
        add_plain(p, "combine", rows, hidden);
    if (s->norms.after) {
        add_norm(d, p, &s->norms, rows, 0);
        add_plain(p, "add", rows, hidden);
    }
    if (s->scaled)
        add_plain(p, "scale_rows", rows, hidden);
}

/* The device routes and groups the rows by itself. last: no layer behind it belongs to its job.
 * What it leaves: 0: outputs of its experts; 1: x has them; 2: is normed for the next one, too. */
static int add_routed(const struct device *d, struct pass_work *p, int layer, int rows, bool last)
{
    const struct layer_shape *shape = shape_of(d, layer);
    const struct ffn_shape *s = &shape->ffn;
    const struct expert_weights *x = d->base.config.model->layers[layer].experts;
    bool like = joined_shared(d, layer), ends = shape->norms.after || shape->scaled;
    int experts = s->kind == FFN_DENSE ? 1 : s->experts + like,
        used = s->kind == FFN_DENSE ? 1 : s->used + like;

    add_choice(d, p, layer, rows);
    if (s->kind == FFN_DENSE_AND_ROUTED) {
        add_apart(d, p, layer, rows);
    } else if (rows > 1 || ends || (s->kind == FFN_ROUTED && s->shared && !like) ||
               !kernel_set_token_downs(d, &x[0].down)) {
        add_bank(d, p, &x[0], experts, rows * used, rows);
        if (s->kind == FFN_ROUTED && s->shared && !like)
            add_bank(d, p, &x[s->experts], 1, rows, rows);
    } else {
        last = last || !kernel_set_token_norms(d);
        if (kernel_set_token_gates(d, &x[0].up))
            add_token_gate_up(d, p, &x[0], used);
        else
            add_gate_up(d, p, &x[0], used, used, used, false);
        add_token_down(d, p, &x[0], used, last ? NULL : &shape_of(d, layer + 1)->norms);
        return last ? 1 : 2;
    }
    if (!ends && s->kind != FFN_DENSE_AND_ROUTED)
        return 0;
    add_end(d, p, layer, rows);
    return 1;
}

int pass_work_expert(const struct ffn_shape *s, int entry)
{
    int used = s->used + s->shared, row = entry / used, slot = entry % used;

    return slot < s->used ? (row * s->used + slot) % s->experts : s->experts;
}

static bool like(const struct expert_weights *a, const struct expert_weights *b)
{
    return a->up.type == b->up.type && a->down.type == b->down.type && a->up.rows == b->up.rows &&
           !a->up.bias == !b->up.bias && !a->down.bias == !b->down.bias;
}

static int count_of(const struct ffn_shape *s, int expert, int rows)
{
    int n = 0;

    for (int i = 0; i < rows * (s->used + s->shared); i++)
        n += pass_work_expert(s, i) == expert;
    return n;
}

/* Rows come from the host with their groups: like experts, at most BANK of them, are a launch. */
static void add_grouped(const struct device *d, struct pass_work *p, int layer, int rows)
{
    const struct layer_shape *shape = shape_of(d, layer);
    const struct ffn_shape *s = &shape->ffn;
    const struct expert_weights *x = d->base.config.model->layers[layer].experts, *first = NULL;
    int hidden = d->base.config.model->hp.hidden, normed = rows * shape_normed_rows(shape), n = 0,
        tiles = 0, entries = 0;
    bool many = false;

    for (int i = 0; i < shape_experts(shape); i++)
        many = many || count_of(s, i, rows) > 1;
    add_line(p, "quantise", (double)normed * hidden / 32, 1,
             (struct kernel_work){.near = 1, .steps = 60, .slots = (double)normed * hidden * 10},
             "", normed, hidden);
    for (int i = 0; i < shape_experts(shape); i++) {
        int count = count_of(s, i, rows), step = kernel_set_tile(d, x[i].up.type, many);

        if (!count)
            continue;
        if (first && (n == BANK || !like(first, &x[i]))) {
            add_gate_up(d, p, first, n, tiles, entries, many);
            add_down(d, p, first, n, tiles, entries, many);
            n = tiles = entries = 0;
        }
        first = n ? first : &x[i];
        tiles += (count + step - 1) / step;
        entries += count;
        n++;
    }
    if (!first)
        return;
    add_gate_up(d, p, first, n, tiles, entries, many);
    add_down(d, p, first, n, tiles, entries, many);
}

void pass_work_forms(struct device *d)
{
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int f = GEMM_EIGHTS; f < GEMM_FORMS; f++)
            if (kernel_set_may(d, t, f) &&
                gemm_group_slots(d, t, f) < gemm_group_slots(d, t, d->type[t].form))
                d->type[t].form = f;
}

bool pass_work_runs(const struct device *d, int layer)
{
    const struct layer_shape *s = shape_of(d, layer);

    return kernel_set_runs(d, s, BLOCK_ATTENTION, d->base.config.model->layers[layer].q.type) &&
           shape_experts(s) > 0 &&
           kernel_set_runs(d, s, BLOCK_EXPERT,
                           d->base.config.model->layers[layer].experts[0].up.type);
}

/* Whether the next layer belongs to the job of this one; more: layers that are listed behind it. */
static bool continues(const struct device *d, int layer, int more)
{
    int next = layer + 1;

    return more > 0 && next < d->base.config.model->hp.n_layers && kernel_set_fuses(d, next) &&
           pass_work_runs(d, next);
}

int pass_work_list(struct device *d, int first, int layers, int rows, int depth,
                   struct pass_work *out, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct matrix *head = &d->base.config.model->head;
    bool open = false,
         normed = false; /* a layer before this one has not ended; has normed its row */

    memset(out, 0, sizeof *out);
    for (int l = first; l < hp->n_layers && out->layers < layers; l++) {
        bool fuses = kernel_set_fuses(d, l);

        if (!pass_work_runs(d, l))
            continue;
        out->layers++;
        if (open && !fuses)
            add_plain(out, "combine", rows, hp->hidden);
        add_attention(d, out, l, rows, depth, open && fuses ? hp->n_experts_used : 0, normed,
                      fuses);
        normed = open = false;
        if (fuses) {
            int left = add_routed(d, out, l, rows, !continues(d, l, layers - out->layers));

            open = left == 0;
            normed = left == 2;
        } else {
            add_grouped(d, out, l, rows);
        }
    }
    if (open)
        add_plain(out, "combine", rows, hp->hidden);
    if (kernel_set_runs(d, NULL, BLOCK_HEAD, head->type)) {
        add_norm(d, out, &hp->common.norms, 1, 0);
        add_matmul(d, out, &head, 1, 1);
    }
    if (!out->failed)
        return 0;
    pass_work_release(out);
    return error_set(e, ERR_MEMORY, "OpenCL: out of memory for a list of kernels");
}

void pass_work_release(struct pass_work *p)
{
    mem_free(p->at);
    memset(p, 0, sizeof *p);
}
