/* The jobs of the device contract as sequences of kernels. Engine thread; nothing here allocates or
 * waits, unless noted. Launches of one layer with one token: norm of the first layer, q+k+v,
 * rotary+cache+attention+merge, output, norm+routing, gate+up, down with the end of the layer and
 * the norm of the next one; with many, or where kernels are wide, each word of these is one. */
#include "gpu/blas.h"
#include "gpu/internal.h"

#include <string.h>

#define BANKS 64 /* most launches of one experts job */
/* The device computes the first layers of a job while the host enqueues the others. */
#define LAYERS_A_FLUSH 4

static size_t up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static const struct layer_shape *shape_of(const struct device *d, int layer)
{
    return hparams_layer(&d->base.config.model->hp, layer);
}

static int norm_flags(const struct norms_shape *s, const struct norm_rows *n)
{
    return (n->b ? 1 : 0) | (s->kind == NORM_LAYER ? 0 : 2) | (n->w ? 0 : 4);
}

int jobs_norm_args(struct device *d, const struct norms_shape *s, const struct norm_rows *n,
                   struct error *e)
{
    int hidden = d->base.config.model->hp.hidden;

    return launch_args(d, d->core[CORE_NORM], 0, e, "mmmmmmmiffimmiii", n->x, n->w, n->b, n->h,
                       d->hq.q, d->hq.d, d->hq.s, hidden, (double)(1.0f / (float)hidden),
                       (double)s->eps, norm_flags(s, n), d->out, d->all_weights, n->base, n->rows,
                       n->used);
}

static int norm_rows(struct device *d, const struct norms_shape *s, struct norm_rows n,
                     struct error *e)
{
    size_t items = (size_t)d->row_items;

    if (jobs_norm_args(d, s, &n, e) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_NORM, "norm", (size_t)n.rows * items, 1, 1, items, e);
}

int jobs_rms(struct device *d, const struct rms_rows *a, const struct rms_rows *b, float eps,
             struct error *e)
{
    static const struct rms_rows none = {.n = 1};
    size_t items = d->wide ? 1 : 64;

    b = b ? b : &none;
    if (launch_args(d, d->core[CORE_RMS], 0, e, "mmiffiimmif", a->x, a->w, a->n,
                    (double)(1.0f / (float)a->n), (double)eps, a->w != NULL, a->rows, b->x, b->w,
                    b->n, (double)(1.0f / (float)b->n)) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_RMS, "rms_rows", (size_t)(a->rows + b->rows) * items, 1, 1, items,
                       e);
}

/* Norms q and k in place, head by head or all heads of a row together. */
static int norm_heads(struct device *d, const struct block *b, int layer, int rows, struct error *e)
{
    const struct layer_shape *s = shape_of(d, layer);
    const struct mixer_shape *m = &s->mixer;
    bool whole = m->qk_norm == QK_NORM_WHOLE;

    if (m->qk_norm == QK_NORM_NONE)
        return 0;
    return jobs_rms(d,
                    &(struct rms_rows){d->q, b->q_norm, m->key_dim * (whole ? m->heads : 1),
                                       rows * (whole ? 1 : m->heads)},
                    &(struct rms_rows){d->k, b->k_norm, m->key_dim * (whole ? m->kv_heads : 1),
                                       rows * (whole ? 1 : m->kv_heads)},
                    s->norms.eps, e);
}

/* Makes the values: copies the projected keys if they are the values, and norms each head if
 * needed. */
static int make_values(struct device *d, int layer, int rows, struct error *e)
{
    const struct layer_shape *s = shape_of(d, layer);
    int n = s->mixer.key_dim, heads = rows * s->mixer.kv_heads;

    if (s->mixer.values_are_keys &&
        launch_copy(d, d->k, d->v, (size_t)heads * (size_t)n * 4, e) < 0)
        return ERR_DEVICE;
    if (!s->mixer.value_norm)
        return 0;
    return jobs_rms(d, &(struct rms_rows){d->v, NULL, n, heads}, NULL, s->norms.eps, e);
}

/* Separates queries from their gates after the projection. */
static int part_gates(struct device *d, const struct mixer_shape *s, int rows, struct error *e)
{
    int n = rows * s->heads * s->key_dim;

    if (!s->gated || s->gate != GATE_WITHIN)
        return 0;
    if (launch_args(d, d->core[CORE_PART_GATES], 0, e, "mmmii", d->raw, d->q, d->gates, s->key_dim,
                    n) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_PART_GATES, "part_gates", (size_t)n, 1, 1, CORE_ITEMS, e);
}

int jobs_multiply_own(struct device *d, cl_mem x, const struct rows_q *xq, int rows,
                      const struct output *out, int n, bool add, struct error *e)
{
    const struct matrix *m = out[0].part->m;
    const struct type_kernels *t = &d->type[m->type];
    int many = rows > 1, at = dtype_is_quantised(m->type) ? 5 : 3, flags = add ? 8 : 0;
    struct kernel *k = t->matmul[many];
    size_t tile = (size_t)kernel_set_tile(d, m->type, many), tiles = up((size_t)rows, tile) / tile,
           groups = 0;

    if (dtype_is_quantised(m->type)
            ? launch_args(d, k, 0, e, "mmmii", xq->q, xq->d, xq->s, m->cols, rows) < 0
            : launch_args(d, k, 0, e, "mii", x, m->cols, rows) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < 3; i++) {
        const struct part *p = i < n ? out[i].part : NULL;

        if (launch_args(d, k, at + 4 * i, e, "mmmi", p ? p->mem : NULL, p ? p->bias : NULL,
                        p ? out[i].y : NULL, p ? p->m->rows : 0) < 0)
            return ERR_DEVICE;
        if (p) {
            size_t step = kernel_set_rows(d, m->type, many);

            groups += up((size_t)p->m->rows, step) / step;
            flags |= p->bias ? 1 << i : 0;
        }
    }
    if (launch_args(d, k, at + 12, e, "i", flags) < 0)
        return ERR_DEVICE;

    struct group_shape g = kernel_set_group(d, m->type, many, false);

    return launch(d, k, "matmul", 2, (size_t[]){tiles * g.x, groups * g.y}, (size_t[]){g.x, g.y},
                  e);
}

int jobs_multiply(struct device *d, cl_mem x, const struct rows_q *xq, int rows,
                  const struct output *out, int n, bool add, struct error *e)
{
    if (!blas_wants(d, out[0].part->m->type, rows))
        return jobs_multiply_own(d, x, xq, rows, out, n, add, e);
    for (int i = 0; i < n; i++)
        if (blas_multiply(d, x, rows, out[i].part, out[i].y, add, e) < 0)
            return ERR_DEVICE;
    return 0;
}

/* Rows pos .. end - 1 of a session's layer will be written. */
static int span_kv(struct device *d, const struct block *b, int layer, int session, int pos,
                   int end, struct kv_place *out, struct error *e)
{
    if (session < 0 || session >= d->kv_room || !d->kv_open[session])
        return error_set(e, ERR_DEVICE, "OpenCL %s: session %d is not open here",
                         d->target.info.name, session);
    *out = memory_kv_place(d, layer, b->kv[session]);
    return memory_kv_in_place(d, layer) ? rows_state_place(d, layer, session, pos, end, out, e) : 0;
}

int jobs_merge_flags(const struct mixer_shape *s)
{
    return (s->sinks ? 1 : 0) | (s->gated ? 2 : 0) | (s->gate == GATE_HEADS ? 4 : 0) |
           (s->gate_softplus ? 8 : 0);
}

size_t jobs_merge_items(const struct device *d, const struct mixer_shape *s)
{
    return (size_t)(s->heads * s->key_dim) / (d->wide ? 32 : 1);
}

int jobs_rope_apart(const struct mixer_shape *s)
{
    return s->rope == ROPE_PAIRS          ? 1
           : s->rope == ROPE_PROPORTIONAL ? s->key_dim / 2
                                          : s->rope_dims / 2;
}

int jobs_token_attend(struct device *d, const struct mixer_shape *m, const struct token_place *t,
                      struct error *e)
{
    int first = m->window && t->token - m->window + 1 > 0 ? (t->token - m->window + 1) / 256 : 0,
        chunks = t->token / 256 - first + 1;
    size_t items = (size_t)d->row_items;

    if (launch_args(d, d->core[CORE_TOKEN_ATTEND], 0, e, "mmmmmmmmmmmmmmmiiiiii" KV_ARGS "ifiiii",
                    d->q, d->k, d->v, t->kv->rows, t->kv->pages,
                    m->second_rope ? d->second_cos : d->rope_cos[t->rope],
                    m->second_rope ? d->second_sin : d->rope_sin[t->rope], d->part,
                    d->head_arrivals, t->sinks, t->gates, d->heads_out, d->oq.q, d->oq.d, d->oq.s,
                    m->heads, m->kv_heads, m->key_dim, m->rope_dims, t->token, t->row,
                    KV_INTS(t->kv), m->window, (double)shape_score_scale_at(m, t->token),
                    jobs_rope_apart(m), first, chunks, jobs_merge_flags(m)) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_TOKEN_ATTEND, "token_attend", (size_t)chunks * items,
                       (size_t)m->heads, 1, items, e);
}

/* Rotation and cache of a span's rows, job's rows from row0 on; a launch for each stretch of rows
 * whose scores have the same scale. pos: of the job's row 0. */
static int rope_span(struct device *d, const struct mixer_shape *m, const struct kv_place *kv,
                     const struct span *s, int row0, struct error *e)
{
    int end = row0 + s->rows, pos = s->pos - row0, n;

    for (int row = row0; row < end; row += n) {
        int period = m->scale_growth == 0.0f ? 0 : m->scale_period,
            rest = period ? period - (pos + row + m->scale_ahead) % period : end - row;

        n = end - row < rest ? end - row : rest;
        if (launch_args(d, d->core[CORE_ROPE], 0, e, "mmmmmmmmiiiiii" KV_ARGS "fi", d->q, d->k,
                        d->v, d->qr, kv->rows, kv->pages,
                        m->second_rope ? d->second_cos : d->rope_cos[s->rope],
                        m->second_rope ? d->second_sin : d->rope_sin[s->rope], m->heads,
                        m->kv_heads, m->key_dim, m->rope_dims, pos, row, KV_INTS(kv),
                        (double)shape_score_scale_at(m, pos + row), jobs_rope_apart(m)) < 0 ||
            launch_core(d, CORE_ROPE, "rope", (size_t)m->key_dim,
                        (size_t)(m->heads + 2 * m->kv_heads), (size_t)n, CORE_ITEMS, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* From q, k and v of a span, the job's rows from row0 on, to heads_out: rotation, cache, attention
 * within its session. The kernels count positions relative to the job's row 0. */
static int attend_span(struct device *d, struct block *b, int layer, const struct span *s, int row0,
                       struct error *e)
{
    const struct mixer_shape *m = &shape_of(d, layer)->mixer;
    struct kv_place kv;
    int dim = m->key_dim, heads = m->heads, window = m->window, pos = s->pos - row0;
    int first = window && s->pos - window + 1 > 0 ? (s->pos - window + 1) / 256 : 0,
        chunks = (s->pos + s->rows - 1) / 256 - first + 1;
    size_t row_bytes = (size_t)heads * (size_t)chunks * (size_t)(dim + 2) * 4,
           items = (size_t)d->row_items;
    int step = (int)(d->part_bytes / row_bytes), end = row0 + s->rows;

    if (span_kv(d, b, layer, s->session, s->pos, s->pos + s->rows, &kv, e) < 0)
        return ERR_DEVICE;
    if (s->rows == 1 && kernel_set_token_attends(d, m, chunks))
        return jobs_token_attend(
            d, m, &(struct token_place){&kv, b->sinks, d->gates, s->pos, row0, s->rope}, e);
    if (rope_span(d, m, &kv, s, row0, e) < 0)
        return ERR_DEVICE;
    for (int row = row0; row < end; row += step) {
        int n = end - row < step ? end - row : step;

        if (launch_args(d, d->core[CORE_ATTEND], 0, e, "mmmmiiiiii" KV_ARGS "ii", d->qr, kv.rows,
                        kv.pages, d->part, heads, m->kv_heads, dim, pos, row, window, KV_INTS(&kv),
                        first, chunks) < 0 ||
            launch_core(d, CORE_ATTEND, "attend", (size_t)chunks * items, (size_t)heads, (size_t)n,
                        items, e) < 0 ||
            launch_args(d, d->core[CORE_MERGE], 0, e, "mmmmmmmiiiiiiiii", d->part, b->sinks,
                        d->gates, d->heads_out, d->oq.q, d->oq.d, d->oq.s, heads, dim, pos, row, n,
                        window, first, chunks, jobs_merge_flags(m)) < 0 ||
            launch_core(d, CORE_MERGE, "attend_merge", jobs_merge_items(d, m), (size_t)n, 1,
                        CORE_ITEMS, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* The spans of a job; spans NULL: session 0's, from pos on. */
struct spans {
    const struct span *at;
    int n, rows;
    struct span one;
};

static struct spans spans_of(const struct span *spans, int n, int rows, int pos)
{
    return (struct spans){spans, n, rows, {.pos = pos, .rows = rows}};
}

/* y = W h for q, k and v of a layer, in as few launches as their types allow. */
static int project(struct device *d, const struct output out[3], int n, int rows, struct error *e)
{
    bool same = true;

    for (int i = 1; i < n; i++)
        same = same && out[i].part->m->type == out[0].part->m->type;
    if (same)
        return jobs_multiply(d, d->h, &d->hq, rows, out, n, false, e);
    for (int i = 0; i < n; i++)
        if (jobs_multiply(d, d->h, &d->hq, rows, &out[i], 1, false, e) < 0)
            return ERR_DEVICE;
    return 0;
}

static int scale_output(struct device *d, cl_mem y, int rows, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;

    if (hp->residual_scale == 0.0f)
        return 0;
    if (launch_args(d, d->core[CORE_SCALE], 0, e, "mfi", y, (double)hp->residual_scale,
                    rows * hp->hidden) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_SCALE, "scale_rows", (size_t)(rows * hp->hidden), 1, 1, CORE_ITEMS,
                       e);
}

/* y = y + x */
static int add_rows(struct device *d, cl_mem y, cl_mem x, int rows, struct error *e)
{
    int n = rows * d->base.config.model->hp.hidden;

    if (launch_args(d, d->core[CORE_ADD], 0, e, "mmi", y, x, n) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_ADD, "add", (size_t)n, 1, 1, CORE_ITEMS, e);
}

/* The norm after attention, of y in place; without one before it, of x + y. */
static int norm_after(struct device *d, const struct block *b, int layer, int rows, cl_mem y,
                      struct error *e)
{
    const struct norms_shape *s = &shape_of(d, layer)->norms, behind = norms_behind(s);

    if (!s->after)
        return 0;
    if (norms_sum(s) && add_rows(d, y, d->x, rows, e) < 0)
        return ERR_DEVICE;
    return norm_rows(d, &behind, (struct norm_rows){y, b->after_w, b->after_b, y, .rows = rows}, e);
}

/* What the layers of a job leave between them. */
struct between {
    int before;  /* place of the choices whose experts' outputs x still lacks, or -1 */
    bool normed; /* h and hq are x, normed as the next layer begins */
};

/* The attention block from x to y (add: y is the residual stream itself; of layers with nothing
 * scaled or normed behind it). */
static int attention_block(struct device *d, struct block *b, int layer, const struct spans *s,
                           const struct between *from, cl_mem y, bool add, struct error *e)
{
    int used = from->before < 0 ? 0 : d->base.config.model->hp.n_experts_used;
    const struct layer_shape *shape = shape_of(d, layer);
    struct output qkv[3] = {{&b->part[0],
                             shape_query_dim(&shape->mixer) > shape->mixer.key_dim ? d->raw : d->q},
                            {&b->part[1], d->k},
                            {&b->part[2], d->v}},
                  o = {&b->part[3], y}, gates = {&b->part[PART_GATES], d->gates};
    const struct span *span = s->at ? s->at : &s->one;
    int n = s->at ? s->n : 1, rows = s->rows, row = 0;

    if (!from->normed && norm_rows(d, &shape->norms,
                                   (struct norm_rows){d->x, b->norm_w, b->norm_b, d->h, rows, used,
                                                      used ? from->before : 0},
                                   e) < 0)
        return ERR_DEVICE;
    if (project(d, qkv, shape->mixer.values_are_keys ? 2 : 3, rows, e) < 0 ||
        make_values(d, layer, rows, e) < 0)
        return ERR_DEVICE;
    if (shape_gates(&shape->mixer) && jobs_multiply(d, d->h, &d->hq, rows, &gates, 1, false, e) < 0)
        return ERR_DEVICE;
    if (part_gates(d, &shape->mixer, rows, e) < 0 || norm_heads(d, b, layer, rows, e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < n; row += span[i++].rows)
        if (attend_span(d, b, layer, &span[i], row, e) < 0)
            return ERR_DEVICE;
    if (jobs_multiply(d, d->heads_out, &d->oq, rows, &o, 1, add, e) < 0)
        return ERR_DEVICE;
    return scale_output(d, y, rows, e) < 0 ? ERR_DEVICE : norm_after(d, b, layer, rows, y, e);
}

static struct block *resident(struct device *d, enum block_kind kind, int layer, int expert,
                              struct error *e)
{
    struct block *b = memory_block(d, (struct block_id){kind, layer, expert});

    if (b->state == BLOCK_RESIDENT)
        return b;
    error_set(e, ERR_DEVICE, "OpenCL %s: layer %d is asked for a block that is not there",
              d->target.info.name, layer);
    return NULL;
}

int jobs_attention(struct device *d, const struct attention_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct block *b = resident(d, BLOCK_ATTENTION, j->layer, 0, e);
    struct spans spans = spans_of(j->spans, j->n_spans, j->rows, j->pos);
    size_t bytes = (size_t)j->rows * (size_t)hp->hidden * 4;
    bool there;

    if (!b || job_begin(d, e) < 0 || launch_input(d, &d->x, j->x, bytes, e) < 0)
        return ERR_DEVICE;
    there = rows_bind(d, &d->y, j->y, bytes);
    if (attention_block(d, b, j->layer, &spans, &(struct between){-1, false}, d->y, false, e) < 0 ||
        (!there && launch_read(d, d->y, 0, j->y, bytes, e) < 0))
        return ERR_DEVICE;
    return job_end(d, e);
}

/* Arguments from `at` on: a matrix of each expert of a bank. */
static int bank_args(struct device *d, struct kernel *k, int at, const struct expert_bank *bank,
                     int part, bool bias, struct error *e)
{
    const struct joined_experts *j = bank->joined;

    for (int i = 0; i < BANK; i++) {
        const struct part *p = &bank->at[i < bank->n ? i : 0]->part[part];
        cl_mem mem = !j ? (bias ? p->bias : p->mem) : bias ? j->bias[part] : j->matrix[part];

        if (launch_args(d, k, at + i, e, "m", j && i ? NULL : mem) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* Matrices of a bank from argument `at` on, n of them from part `first` on; where the model's
 * experts have biases theirs, and whether these have any; then the steps from expert to expert, of
 * each matrix and of each bias, 0 where each is bound by itself. */
static int expert_args(struct device *d, struct kernel *k, int at, const struct expert_bank *bank,
                       int first, int n, struct error *e)
{
    const struct joined_experts *j = bank->joined;
    int last = first + n - 1;

    for (int i = 0; i < n; i++)
        if (bank_args(d, k, at + i * BANK, bank, first + i, false, e) < 0 ||
            (d->biased && bank_args(d, k, at + (n + i) * BANK, bank, first + i, true, e) < 0))
            return ERR_DEVICE;
    at += (d->biased ? 2 : 1) * n * BANK;
    if (d->biased && launch_args(d, k, at++, e, "i", bank->at[0]->part[last].m->bias != NULL) < 0)
        return ERR_DEVICE;
    return launch_args(d, k, at, e, "ii", j ? (int)j->step[last] : 0,
                       j ? (int)j->bias_step[last] : 0);
}

int jobs_gate_up(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                 int first, int end, int many, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct part *part = bank->at[0]->part;
    bool quant = dtype_is_quantised(part[1].m->type);
    struct group_shape gs = kernel_set_group(d, part[1].m->type, many, true);
    struct kernel *g = d->type[part[1].m->type].gate_up[many];
    int middle = part[1].m->rows, act = (int)s->activation;
    double limit = (double)s->limit;
    size_t n = (size_t)(end - first), ffn = (size_t)middle;

    if ((quant ? launch_args(d, g, 0, e, "mmmmmmmmiiiiif", d->hq.q, d->hq.d, d->hq.s, d->mq.q,
                             d->mq.d, d->mq.s, d->tiles, d->entries, first, end, hp->hidden, middle,
                             act, limit)
               : launch_args(d, g, 0, e, "mmmmiiiiif", d->h, d->mid, d->tiles, d->entries, first,
                             end, hp->hidden, middle, act, limit)) < 0 ||
        expert_args(d, g, quant ? 14 : 10, bank, 0, 2, e) < 0)
        return ERR_DEVICE;
    return launch(d, g, "gate_up", 2,
                  (size_t[]){n * gs.x, (quant ? ffn / 32 : up(ffn, 4) / 4) * gs.y},
                  (size_t[]){gs.x, gs.y}, e);
}

int jobs_token_gate_up(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                       int used, struct error *e)
{
    const struct part *part = bank->at[0]->part;
    enum dtype type = part[1].m->type;
    struct group_shape g = kernel_set_group(d, type, false, true);
    struct kernel *k = d->type[type].token_gate_up;
    int middle = part[1].m->rows;

    if (launch_args(d, k, 0, e, "mmmmmmmmmiiif", d->hq.q, d->hq.d, d->hq.s, d->mq.q, d->mq.d,
                    d->mq.s, d->tiles, d->gate_sums, d->gate_arrivals,
                    d->base.config.model->hp.hidden, middle, (int)s->activation,
                    (double)s->limit) < 0 ||
        expert_args(d, k, 13, bank, 0, 2, e) < 0)
        return ERR_DEVICE;
    return launch(d, k, "token_gate_up", 3,
                  (size_t[]){(size_t)used * g.x, (size_t)middle / 32 * g.y, 4},
                  (size_t[]){g.x, g.y, 1}, e);
}

int jobs_down(struct device *d, const struct expert_bank *bank, int first, int end, int many,
              struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct part *part = bank->at[0]->part;
    bool quant = dtype_is_quantised(part[1].m->type);
    struct group_shape ds = kernel_set_group(d, part[2].m->type, many, false);
    struct kernel *dn = d->type[part[2].m->type].down[many];
    int middle = part[1].m->rows;
    size_t n = (size_t)(end - first), hidden = (size_t)hp->hidden;

    if ((quant ? launch_args(d, dn, 0, e, "mmmmmmiiii", d->mq.q, d->mq.d, d->mq.s, d->tiles,
                             d->entries, d->out, first, end, middle, hp->hidden)
               : launch_args(d, dn, 0, e, "mmmmiiii", d->mid, d->tiles, d->entries, d->out, first,
                             end, middle, hp->hidden)) < 0 ||
        expert_args(d, dn, quant ? 10 : 8, bank, 2, 1, e) < 0)
        return ERR_DEVICE;
    size_t step = kernel_set_rows(d, part[2].m->type, many);

    return launch(d, dn, "down", 2, (size_t[]){n * ds.x, up(hidden, step) / step * ds.y},
                  (size_t[]){ds.x, ds.y}, e);
}

int jobs_expert_tiles(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                      int first, int end, int many, struct error *e)
{
    return jobs_gate_up(d, s, bank, first, end, many, e) < 0
               ? ERR_DEVICE
               : jobs_down(d, bank, first, end, many, e);
}

int jobs_token_down(struct device *d, const struct expert_bank *bank, int used, int base,
                    const struct norms_shape *s, const struct norm_rows *next, struct error *e)
{
    const struct matrix *m = bank->at[0]->part[2].m;
    struct kernel *k = d->type[m->type].token_down;
    size_t items = (size_t)(d->width * d->slots),
           groups = up((size_t)m->rows, (size_t)d->width) / (size_t)d->width;

    if (launch_args(d, k, 0, e, "mmmmmmmmmmmmmiiiiffi", d->mq.q, d->mq.d, d->mq.s, d->tiles,
                    d->all_weights, d->x, d->arrivals, next ? next->w : NULL, next ? next->b : NULL,
                    d->h, d->hq.q, d->hq.d, d->hq.s, base, used, m->cols, m->rows,
                    (double)(1.0f / (float)m->rows), (double)s->eps,
                    next ? norm_flags(s, next) : 8) < 0 ||
        expert_args(d, k, 20, bank, 2, 1, e) < 0)
        return ERR_DEVICE;
    return launch(d, k, "token_down", 1, (size_t[]){groups * items}, (size_t[]){items}, e);
}

/* Whether one kernel can run both, which takes one width. */
static bool same_kind(const struct block *a, const struct block *b)
{
    return a->part[1].m->type == b->part[1].m->type && a->part[2].m->type == b->part[2].m->type &&
           a->part[1].m->rows == b->part[1].m->rows && !a->part[1].m->bias == !b->part[1].m->bias &&
           !a->part[2].m->bias == !b->part[2].m->bias;
}

/* Reads rows of out back to the host's layout: in one piece if this device computed all of them,
 * row by row for one token, else through our buffer, which wait() scatters. */
static int read_outputs(struct device *d, const struct experts_job *j, int entries, bool compact,
                        struct error *e)
{
    size_t row = (size_t)d->base.config.model->hp.hidden * 4;
    int all = j->rows * d->base.config.model->hp.n_experts_used;

    if (!compact && entries == all)
        return launch_read(d, d->out, 0, j->out, (size_t)all * row, e);
    if (!compact) {
        for (int i = 0; i < entries; i++) {
            size_t at = (size_t)d->scatter_at[i];

            if (launch_read(d, d->out, at * row, (char *)j->out + at * row, row, e) < 0)
                return ERR_DEVICE;
        }
        return 0;
    }
    d->scatter_to = j->out;
    d->scatter_rows = j->rows;
    d->scatter_n = entries;
    return launch_read(d, d->out, 0, d->results, (size_t)entries * row, e);
}

/* ---- Experts: rows of groups become entries, entries tiles, tiles of up to BANK experts one
 * launch ---- */

/* Division of an experts job into launches. Entry n is the n-th row of the groups in order; its
 * output goes to row n of out (compact) or to slot * rows + row, which is kept in d->scatter_at in
 * either case. */
struct schedule {
    const struct experts_job *job; /* h and out are not used here */
    bool compact;
    int many; /* kernels for many tokens */
    int n_entries, n_tiles, n_banks;
    /* start of the k-th launch; one after the last marks the end */
    struct {
        int group, tile;
    } bank[BANKS + 1];
};

static struct block *expert_block(struct device *d, const struct schedule *s, int expert)
{
    return memory_block(d, (struct block_id){BLOCK_EXPERT, s->job->layer, expert});
}

static void schedule_begin(const struct device *d, struct schedule *s, const struct experts_job *j,
                           bool compact)
{
    *s = (struct schedule){.job = j, .compact = compact};
    for (int g = 0; g < j->n_groups; g++)
        s->many |= j->groups[g].count > 1;
}

/* A dense part beside routed experts has its own rows of h, after theirs. */
static void add_entries(struct device *d, struct schedule *s, const struct expert_group *g)
{
    const struct experts_job *j = s->job;
    const struct layer_shape *shape = shape_of(d, j->layer);
    int first = shape_normed_rows(shape) > 1 && g->expert == shape->ffn.experts ? j->rows : 0;

    for (int i = g->first; i < g->first + g->count; i++) {
        int n = s->n_entries++, to = j->slot[i] * j->rows + j->row[i];

        d->scatter_at[n] = to;
        d->entry_table[n] = (struct entry){first + j->row[i], s->compact ? n : to};
    }
}

/* Tiles of entries first .. first+count-1, of the expert at this place of its bank. */
static void add_tiles(struct device *d, struct schedule *s, const struct matrix *m, int first,
                      int count, int place)
{
    int step = kernel_set_tile(d, m->type, s->many);

    for (int i = 0; i < count; i += step)
        d->tile_table[s->n_tiles++] = (struct tile){first + i, count - i < step ? count - i : step,
                                                    place, 0};
}

/* Every group's entries, and the tiles of resident experts to be run by our kernels; collects the
 * streamed ones. */
static int schedule_groups(struct device *d, struct schedule *s, struct error *e)
{
    const struct experts_job *j = s->job;
    const struct block *previous = NULL;

    d->swap.n = 0;
    for (int g = 0; g < j->n_groups; g++) {
        const struct expert_group *x = &j->groups[g];
        const struct block *b = expert_block(d, s, x->expert);
        int first = s->n_entries;

        if (b->state != BLOCK_RESIDENT) {
            if (!d->swap.items)
                return resident(d, BLOCK_EXPERT, j->layer, x->expert, e) ? 0 : ERR_DEVICE;
            d->swap.items[d->swap.n++] =
                (struct swap_item){.expert = x->expert, .group = g, .entry = first};
        }
        add_entries(d, s, x);
        if (b->state != BLOCK_RESIDENT || blas_wants(d, b->part[1].m->type, x->count))
            continue;
        if (s->n_banks == 0 || g - s->bank[s->n_banks - 1].group >= BANK ||
            !same_kind(b, previous)) {
            if (s->n_banks == BANKS)
                return error_set(e, ERR_DEVICE, "OpenCL %s: more than %d experts in one job",
                                 d->target.info.name, BANKS * BANK);
            s->bank[s->n_banks].group = g;
            s->bank[s->n_banks++].tile = s->n_tiles;
        }
        previous = b;
        add_tiles(d, s, b->part[1].m, first, x->count, g - s->bank[s->n_banks - 1].group);
    }
    s->bank[s->n_banks].group = j->n_groups;
    s->bank[s->n_banks].tile = s->n_tiles;
    return 0;
}

/* Streamed experts come after the others, one per launch. */
static void schedule_swapped(struct device *d, struct schedule *s)
{
    const struct expert_weights *weights = d->base.config.model->layers[s->job->layer].experts;

    for (int i = 0; i < d->swap.n; i++) {
        struct swap_item *t = &d->swap.items[i];
        int count = s->job->groups[t->group].count;

        t->tile = s->n_tiles;
        if (!blas_wants(d, weights[t->expert].up.type, count))
            add_tiles(d, s, &weights[t->expert].up, t->entry, count, 0);
        t->end = s->n_tiles;
    }
}

static int schedule_upload(struct device *d, const struct schedule *s, struct error *e)
{
    if (s->n_tiles && launch_input(d, &d->tiles, d->tile_table,
                                   (size_t)s->n_tiles * sizeof *d->tile_table, e) < 0)
        return ERR_DEVICE;
    return launch_input(d, &d->entries, d->entry_table,
                        (size_t)s->n_entries * sizeof *d->entry_table, e);
}

static int run_banks(struct device *d, const struct schedule *s, struct error *e)
{
    for (int k = 0; k < s->n_banks; k++) {
        struct expert_bank bank = {.n = 0};

        for (int g = s->bank[k].group; g < s->bank[k + 1].group && bank.n < BANK; g++)
            bank.at[bank.n++] = expert_block(d, s, s->job->groups[g].expert);
        if (jobs_expert_tiles(d, &shape_of(d, s->job->layer)->ffn, &bank, s->bank[k].tile,
                              s->bank[k + 1].tile, s->many, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

static int run_library(struct device *d, const struct schedule *s, struct error *e)
{
    const struct experts_job *j = s->job;

    for (int g = 0, n = 0; g < j->n_groups; n += j->groups[g++].count) {
        const struct block *b = expert_block(d, s, j->groups[g].expert);

        if (b->state == BLOCK_RESIDENT && blas_wants(d, b->part[1].m->type, j->groups[g].count) &&
            blas_expert(d, &shape_of(d, j->layer)->ffn, b, n, j->groups[g].count, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

static int run_swapped(struct device *d, const struct schedule *s, struct error *e)
{
    const struct experts_job *j = s->job;

    for (int i = 0; i < d->swap.n; i++) {
        const struct swap_item *t = &d->swap.items[i];
        struct block *b = expert_swap_take(d, j->layer, t->expert, e);
        const struct ffn_shape *shape = &shape_of(d, j->layer)->ffn;
        int rc = !b ? ERR_DEVICE
                 : t->end > t->tile
                     ? jobs_expert_tiles(d, shape, &(struct expert_bank){{b}, 1, NULL}, t->tile,
                                         t->end, s->many, e)
                     : blas_expert(d, shape, b, t->entry, j->groups[t->group].count, e);

        if (rc < 0 || expert_swap_done(d, j->layer, t->expert, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* Experts of a job's groups, from h (and hq) on the device to out. */
static int run_groups(struct device *d, const struct experts_job *j, bool compact, struct error *e)
{
    struct schedule s;

    schedule_begin(d, &s, j, compact);
    d->table_busy = true;
    if (schedule_groups(d, &s, e) < 0)
        return ERR_DEVICE;
    schedule_swapped(d, &s);
    if (d->swap.n && expert_swap_begin(d, j->layer, e) < 0)
        return ERR_DEVICE;
    if (schedule_upload(d, &s, e) < 0 || run_banks(d, &s, e) < 0 || run_library(d, &s, e) < 0)
        return ERR_DEVICE;
    return run_swapped(d, &s, e);
}

int jobs_experts(struct device *d, const struct experts_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    int n = 0, normed = j->rows * shape_normed_rows(shape_of(d, j->layer)),
        blocks = normed * hp->hidden / 32;
    size_t row = (size_t)hp->hidden * 4;
    bool compact, there;

    if (d->table_busy && job_harvest(d, e) < 0)
        return ERR_DEVICE;
    for (int g = 0; g < j->n_groups; g++)
        n += j->groups[g].count;
    if (n == 0)
        return 0;
    if (job_begin(d, e) < 0 || launch_input(d, &d->h, j->h, (size_t)normed * row, e) < 0)
        return ERR_DEVICE;
    there = rows_bind(d, &d->out, j->out, (size_t)(j->rows * hp->n_experts_used) * row);
    compact = !there && n != j->rows * hp->n_experts_used && n > 4;
    if (launch_args(d, d->core[CORE_QUANTISE], 0, e, "mmmmi", d->h, d->hq.q, d->hq.d, d->hq.s,
                    blocks) < 0 ||
        launch_core(d, CORE_QUANTISE, "quantise", (size_t)blocks, 1, 1, CORE_ITEMS, e) < 0 ||
        run_groups(d, j, compact, e) < 0 || (!there && read_outputs(d, j, n, compact, e) < 0))
        return ERR_DEVICE;
    return job_end(d, e);
}

int jobs_head(struct device *d, const struct head_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct block *b = resident(d, BLOCK_HEAD, 0, 0, e);
    struct output o = {b ? &b->part[0] : NULL, d->logits};
    int step = d->base.config.max_rows < HEAD_ROWS ? d->base.config.max_rows : HEAD_ROWS;

    if (!b || job_begin(d, e) < 0)
        return ERR_DEVICE;
    for (int row = 0; row < j->rows; row += step) {
        int n = j->rows - row < step ? j->rows - row : step;
        float *to = j->logits + (size_t)row * (size_t)hp->n_vocab;
        size_t bytes = (size_t)n * (size_t)hp->n_vocab * 4;
        bool there = rows_bind(d, &d->logits, to, bytes);

        o.y = d->logits;
        if (launch_input(d, &d->x, j->x + (size_t)row * (size_t)hp->hidden,
                         (size_t)n * (size_t)hp->hidden * 4, e) < 0 ||
            norm_rows(d, &hp->common.norms,
                      (struct norm_rows){d->x, b->norm_w, b->norm_b, d->h, .rows = n}, e) < 0 ||
            jobs_multiply(d, d->h, &d->hq, n, &o, 1, false, e) < 0 ||
            (!there && launch_read(d, d->logits, 0, to, bytes, e) < 0) ||
            cl_check(d, rows_end(d), "giving rows back to the host", e) < 0)
            return ERR_DEVICE;
    }
    return job_end(d, e);
}

/* Waits for the choices of a layer. NULL: failed. */
static const int *read_choices(struct device *d, int base, int entries, struct error *e)
{
    const int *there = rows_bound(d, &d->all_chosen);
    cl_int rc = CL_SUCCESS;

    if (cl_injected(&rc))
        ;
    else if (there)
        rc = cl.Finish(d->queue);
    else
        rc = cl.EnqueueReadBuffer(d->queue, d->all_chosen, CL_TRUE, (size_t)base * 4,
                                  (size_t)entries * 4, d->host_chosen, 0, NULL, NULL);
    if (cl_check(d, rc, "reading the routing", e) < 0)
        return NULL;
    d->stats.downloaded_bytes += there ? 0 : (uint64_t)entries * 4;
    d->stats.row_bytes += there ? 0 : (uint64_t)entries * 4;
    return there ? there + base : d->host_chosen;
}

/* A layer's experts, after reading the router's choices back to the host. Needed if there are more
 * experts than one launch can bind (BANK) and they are not joined, if they differ in weight type or
 * in having a bias, or if a library's GEMMs, which take their sizes as arguments, compute them. */
static int layer_experts_by_host(struct device *d, int layer, int rows, int base, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    int entries = rows * hp->n_experts_used, n = 0, n_groups = 0;
    const int *chosen = read_choices(d, base, entries, e);

    if (!chosen)
        return ERR_DEVICE;
    for (int x = 0; x < hp->n_experts; x++) { /* the shared one, too */
        int first = n;

        for (int i = 0; i < entries; i++)
            if (chosen[i] == x) {
                d->host_row[n] = i / hp->n_experts_used;
                d->host_slot[n++] = i % hp->n_experts_used;
            }
        if (n > first)
            d->host_groups[n_groups++] = (struct expert_group){x, first, n - first};
    }
    struct experts_job j = {.layer = layer,
                            .rows = rows,
                            .n_groups = n_groups,
                            .groups = d->host_groups,
                            .row = d->host_row,
                            .slot = d->host_slot};

    return run_groups(d, &j, false, e);
}

/* Experts that one launch can compute, and their rows: choices of experts `from` on, n of them; of
 * a single row slots first .. end - 1. */
struct layer_bank {
    struct expert_bank bank;
    int from, n, first, end;
};

/* Experts `from` on, n of them; joined: all of them are. */
static int take_bank(struct device *d, int layer, int from, int n,
                     const struct joined_experts *joined, struct layer_bank *out, struct error *e)
{
    out->bank = (struct expert_bank){.n = 0, .joined = joined};
    out->from = from;
    out->n = n;
    for (int x = from; x < from + n; x++) {
        struct block *b = resident(d, BLOCK_EXPERT, layer, x, e);

        if (!b)
            return ERR_DEVICE;
        if (!joined || x == from)
            out->bank.at[out->bank.n++] = b;
    }
    return 0;
}

/* Their rows are grouped (more than one) or follow from the choice; the outputs go to out. */
static int run_bank(struct device *d, int layer, const struct layer_bank *b, int rows, int base,
                    struct error *e)
{
    int used = d->base.config.model->hp.n_experts_used, many = rows > 1,
        entries = rows * (b->end - b->first),
        tile = kernel_set_tile(d, b->bank.at[0]->part[1].m->type, many),
        n_tiles = entries / tile + (b->n < entries ? b->n : entries);
    size_t items = (size_t)d->row_items;

    if (!many)
        return jobs_expert_tiles(d, &shape_of(d, layer)->ffn, &b->bank, b->first, b->end, 0, e);
    if (launch_args(d, d->core[CORE_GROUP], 0, e, "mmmiiiiiii", d->all_chosen, d->tiles, d->entries,
                    rows, used, b->from, b->n, base, tile, n_tiles) < 0 ||
        launch_core(d, CORE_GROUP, "group_rows", items, 1, 1, items, e) < 0)
        return ERR_DEVICE;
    return jobs_expert_tiles(d, &shape_of(d, layer)->ffn, &b->bank, 0, n_tiles, 1, e);
}

/* Experts that a bank of the layer's routed ones has. */
static int banked(const struct device *d, int layer)
{
    return shape_of(d, layer)->ffn.experts + joined_shared(d, layer);
}

/* The same without a word from the host: the experts are joined or at most sixteen, and the device
 * groups its rows itself. next: the attention block of the next layer, whose norm may come with it;
 * NULL: there is none. left: said there if it is more than the outputs. */
static int layer_experts(struct device *d, int layer, const struct joined_experts *joined, int rows,
                         int base, const struct block *next, struct between *left, struct error *e)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    int used = d->base.config.model->hp.n_experts_used, n = banked(d, layer);
    bool apart = s->shared && n == s->experts;
    struct layer_bank routed = {.first = 0, .end = apart ? s->used : used},
                      shared = {.first = s->used, .end = used};

    if (take_bank(d, layer, 0, n, joined, &routed, e) < 0)
        return ERR_DEVICE;
    if (apart)
        return take_bank(d, layer, s->experts, 1, NULL, &shared, e) < 0 ||
                       run_bank(d, layer, &routed, rows, base, e) < 0
                   ? ERR_DEVICE
                   : run_bank(d, layer, &shared, rows, base, e);
    if (rows > 1 || shape_of(d, layer)->norms.after ||
        !kernel_set_token_downs(d, routed.bank.at[0]->part[2].m))
        return run_bank(d, layer, &routed, rows, base, e);

    struct norm_rows rows_next = {d->x, next ? next->norm_w : NULL, next ? next->norm_b : NULL,
                                  d->h, .rows = 1};

    *left = (struct between){-1, next != NULL};
    return (kernel_set_token_gates(d, routed.bank.at[0]->part[1].m)
                ? jobs_token_gate_up(d, s, &routed.bank, used, e)
                : jobs_gate_up(d, s, &routed.bank, 0, used, 0, e)) < 0
               ? ERR_DEVICE
               : jobs_token_down(d, &routed.bank, used, base,
                                 &shape_of(d, next ? layer + 1 : layer)->norms,
                                 next ? &rows_next : NULL, e);
}

static bool alike(struct device *d, int layer)
{
    const struct expert_weights *x = d->base.config.model->layers[layer].experts;
    int experts = shape_of(d, layer)->ffn.experts;

    for (int i = 1; i < experts; i++)
        if (x[i].up.type != x[0].up.type || x[i].down.type != x[0].down.type ||
            !x[i].up.bias != !x[0].up.bias || !x[i].down.bias != !x[0].down.bias)
            return false;
    return true;
}

/* Of the kernels in routing.cl, by the same names there. */
enum {
    ROUTE_TILES = 1,
    ROUTE_SOFTMAX = 2,
    ROUTE_NORMALISED = 4,
    ROUTE_SCORE_BIAS = 8,
    ROUTE_SIGMOID = 16,
    ROUTE_CHOICE_BIAS = 32,
    ROUTE_SHARED = 64,
    ROUTE_SHARED_GATE = 128,
    ROUTE_SHARED_APART = 256,
};

static int route_flags(const struct device *d, int layer, const struct routing *w, bool tiles)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    int flags = (tiles ? ROUTE_TILES : 0) | (r->kind == ROUTER_SOFTMAX ? ROUTE_SOFTMAX : 0) |
                (r->kind == ROUTER_SIGMOID ? ROUTE_SIGMOID : 0) |
                (r->normalised ? ROUTE_NORMALISED : 0) | (w->score_bias ? ROUTE_SCORE_BIAS : 0) |
                (w->choice_bias ? ROUTE_CHOICE_BIAS : 0);

    if (!s->shared)
        return flags;
    return flags | ROUTE_SHARED | (s->shared_gate == SHARED_SIGMOID ? ROUTE_SHARED_GATE : 0) |
           (joined_shared(d, layer) ? 0 : ROUTE_SHARED_APART);
}

/* Of experts; 0: they are chosen from all. */
static int route_groups(const struct router_shape *r)
{
    return r->groups > 1 ? r->groups : 0;
}

/* Work-groups of the router: four for each sixteen scores, the shared expert's gate among them. */
static size_t route_work(const struct ffn_shape *s)
{
    int scores = s->experts + (s->shared && s->shared_gate == SHARED_SIGMOID);

    return 4 * (up((size_t)scores, 16) / 16);
}

static double route_factor(const struct router_shape *r)
{
    return r->factor != 0.0f ? (double)r->factor : 1.0;
}

int jobs_route(struct device *d, int layer, const struct routing *w, int rows, int base, bool tiles,
               struct error *e)
{
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    size_t items = (size_t)d->route_items, groups = d->wide ? 1 : route_work(s);

    if (launch_args(d, d->core[CORE_ROUTE], 0, e, "mmmmmmmmmmiiiiiffffiii", d->h, w->router,
                    w->score_bias, w->choice_bias, d->scores, d->arrivals, d->all_chosen,
                    d->all_weights, d->tiles, d->entries, base, d->base.config.model->hp.hidden,
                    s->experts, d->padded_experts, s->used, (double)r->jitter, (double)r->floor,
                    route_factor(r), (double)shape_shared_factor(s),
                    route_flags(d, layer, w, tiles), route_groups(r), r->groups_used) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_ROUTE, "route", groups * items, (size_t)rows, 1, items, e);
}

int jobs_token_route(struct device *d, int layer, const struct norm_rows *n,
                     const struct routing *w, int base, bool tiles, struct error *e)
{
    const struct norms_shape *norms = &shape_of(d, layer)->norms;
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    const struct router_shape *r = &s->router;
    size_t items = (size_t)d->route_items, groups = route_work(s) + 4;
    int hidden = d->base.config.model->hp.hidden;

    if (launch_args(d, d->core[CORE_TOKEN_ROUTE], 0, e, "mmmmmmmmmmmmmmmmffiiiiiiffffiii", n->x,
                    n->w, n->b, n->h, d->hq.q, d->hq.d, d->hq.s, w->router, w->score_bias,
                    w->choice_bias, d->scores, d->arrivals, d->all_chosen, d->all_weights, d->tiles,
                    d->entries, (double)(1.0f / (float)hidden), (double)norms->eps,
                    norm_flags(norms, n), base, hidden, s->experts, d->padded_experts, s->used,
                    (double)r->jitter, (double)r->floor, route_factor(r),
                    (double)shape_shared_factor(s), route_flags(d, layer, w, tiles),
                    route_groups(r), r->groups_used) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_TOKEN_ROUTE, "token_route", groups * items, 1, 1, items, e);
}

/* The norm before the experts, and which they are. */
static int norm_and_route(struct device *d, int layer, const struct block *a, int rows, int base,
                          bool tiles, struct error *e)
{
    struct norm_rows n = {d->x, a->expert_norm_w, a->expert_norm_b, d->h, .rows = rows};

    if (rows == 1 && d->token_route)
        return jobs_token_route(d, layer, &n, &a->routing, base, tiles, e);
    return norm_rows(d, &shape_of(d, layer)->norms, n, e) < 0
               ? ERR_DEVICE
               : jobs_route(d, layer, &a->routing, rows, base, tiles, e);
}

/* The block whose norm follows a layer of a job that ends before layer `last`, if one kernel may do
 * both. */
static const struct block *norm_behind(struct device *d, int layer, int last)
{
    const struct block *b = layer + 1 < last
                                ? memory_block(d, (struct block_id){BLOCK_ATTENTION, layer + 1, 0})
                                : NULL;

    return b && b->state == BLOCK_RESIDENT && kernel_set_token_norms(d) ? b : NULL;
}

/* What the experts of a layer gave, added to x; fresh: instead of x. */
static int combine(struct device *d, cl_mem x, int rows, int base, bool fresh, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;

    if (launch_args(d, d->core[CORE_COMBINE], 0, e, "mmmiiiii", d->out, d->all_weights, x, base,
                    rows, hp->n_experts_used, hp->hidden, fresh) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_COMBINE, "combine", (size_t)rows * (size_t)hp->hidden, 1, 1,
                       CORE_ITEMS, e);
}

/* The same where a norm follows: of their sum, which is then added. */
static int combine_normed(struct device *d, const struct layer_shape *s, const struct block *a,
                          int rows, int base, struct error *e)
{
    struct norm_rows n = {d->y, a->expert_after_w, a->expert_after_b, d->y, .rows = rows};

    return combine(d, d->y, rows, base, true, e) < 0 || norm_rows(d, &s->norms, n, e) < 0
               ? ERR_DEVICE
               : add_rows(d, d->x, d->y, rows, e);
}

/* One layer of a job before layer `last`, from what the one before left to what it leaves. Its
 * choices go to place `base` of all_chosen and all_weights. */
static int whole_layer(struct device *d, int layer, int last, const struct spans *spans,
                       struct between *left, int base, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *s = shape_of(d, layer);
    struct block *a = resident(d, BLOCK_ATTENTION, layer, 0, e);
    enum dtype type = d->base.config.model->layers[layer].experts[0].up.type;
    int used = hp->n_experts_used, rows = spans->rows;
    struct between from = *left;
    const struct joined_experts *joined = banked(d, layer) > BANK ? joined_experts(d, layer) : NULL;
    bool by_host = !alike(d, layer) || (banked(d, layer) > BANK && !joined) ||
                   blas_wants(d, type, rows * used / s->ffn.experts + 1);

    *left = (struct between){s->norms.after ? -1 : base, false};
    if (!a ||
        attention_block(d, a, layer, spans, &from, s->norms.after ? d->y : d->x, !s->norms.after,
                        e) < 0 ||
        (s->norms.after && add_rows(d, d->x, d->y, rows, e) < 0) ||
        norm_and_route(d, layer, a, rows, base, rows == 1 && !by_host, e) < 0)
        return ERR_DEVICE;
    if ((by_host ? layer_experts_by_host(d, layer, rows, base, e)
                 : layer_experts(d, layer, joined, rows, base, norm_behind(d, layer, last), left,
                                 e)) < 0)
        return ERR_DEVICE;
    return s->norms.after ? combine_normed(d, s, a, rows, base, e) : 0;
}

/* The choices of the job's layers are in place: from element *base on of all_chosen and
 * all_weights.
 */
static bool bind_choices(struct device *d, const struct layers_job *j, size_t bytes, int *base)
{
    size_t experts, weights;
    int bound = d->host_rows.n_bound;

    if (rows_bind_at(d, &d->all_chosen, j->experts, bytes, &experts) &&
        rows_bind_at(d, &d->all_weights, j->weights, bytes, &weights) && experts == weights) {
        *base = (int)(experts / 4);
        return true;
    }
    rows_unbind(d, bound);
    return false;
}

int jobs_layers(struct device *d, const struct layers_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct spans spans = spans_of(j->spans, j->n_spans, j->rows, j->pos);
    int per_layer = j->rows * hp->n_experts_used, base = 0;
    size_t bytes = (size_t)j->rows * (size_t)hp->hidden * 4,
           choices = (size_t)(j->last - j->first) * (size_t)per_layer * 4;
    struct between left = {-1, false};
    bool x_there, chosen_there;

    if (job_begin(d, e) < 0)
        return ERR_DEVICE;
    x_there = rows_bind(d, &d->x, j->x, bytes);
    chosen_there = bind_choices(d, j, choices, &base);
    if (!x_there && launch_write(d, d->x, 0, j->x, bytes, e) < 0)
        return ERR_DEVICE;
    for (int l = j->first; l < j->last; l++, base += per_layer)
        if (whole_layer(d, l, j->last, &spans, &left, base, e) < 0 ||
            ((l - j->first) % LAYERS_A_FLUSH == 0 && job_flush(d, e) < 0))
            return ERR_DEVICE;
    if ((left.before >= 0 && combine(d, d->x, j->rows, left.before, false, e) < 0) ||
        (!x_there && launch_read(d, d->x, 0, j->x, bytes, e) < 0) ||
        (!chosen_there && (launch_read(d, d->all_chosen, 0, j->experts, choices, e) < 0 ||
                           launch_read(d, d->all_weights, 0, j->weights, choices, e) < 0)))
        return ERR_DEVICE;
    return job_end(d, e);
}

/* Synchronous: rows are moved between tokens. */
int jobs_kv_rows(struct device *d, const struct kv_move *m, struct error *e)
{
    const struct mixer_shape *s = &shape_of(d, m->layer)->mixer;
    struct block *b = resident(d, BLOCK_ATTENTION, m->layer, 0, e);
    struct kv_place kv;
    int n = memory_kv_values(d, m->layer), step = d->base.config.max_rows, end = m->pos + m->count;
    size_t row = kv_type_bytes(d->base.config.kv_k, n) + kv_type_bytes(d->base.config.kv_v, n);
    uint64_t rows_before = d->stats.row_bytes; /* these are none of a job's */

    if (m->fixed)
        return error_set(e, ERR_DEVICE, "OpenCL %s: it keeps no recurrent state",
                         d->target.info.name);
    if (!b || span_kv(d, b, m->layer, m->session, m->write ? m->pos : end, end, &kv, e) < 0)
        return ERR_DEVICE;
    for (int at = 0; at < m->count; at += step) {
        int count = m->count - at < step ? m->count - at : step;
        char *data = (char *)m->data + (size_t)at * row;

        if (job_begin(d, e) < 0 ||
            (m->write && launch_write(d, d->kv_rows, 0, data, (size_t)count * row, e) < 0) ||
            launch_args(d, d->core[CORE_KV], 0, e, "mmmiiii" KV_ARGS "i", kv.rows, kv.pages,
                        d->kv_rows, s->kv_heads, s->key_dim, m->pos + at, count, KV_INTS(&kv),
                        m->write ? 1 : 0) < 0 ||
            launch_core(d, CORE_KV, "kv_copy", (size_t)(2 * n), (size_t)count, 1, CORE_ITEMS, e) <
                0 ||
            (!m->write && launch_read(d, d->kv_rows, 0, data, (size_t)count * row, e) < 0) ||
            job_end(d, e) < 0 || job_harvest(d, e) < 0)
            return ERR_DEVICE;
    }
    d->stats.row_bytes = rows_before;
    return 0;
}
