/* Norms, matrices, attention, and the rows of the cache. */
#include "gpu/blas.h"
#include "gpu/jobs.h"

int jobs_norm_flags(const struct norms_shape *s, const struct norm_rows *n)
{
    return (n->b ? 1 : 0) | (s->kind == NORM_LAYER ? 0 : 2) | (n->w ? 0 : 4);
}

int jobs_norm_args(struct device *d, const struct norms_shape *s, const struct norm_rows *n,
                   struct error *e)
{
    int hidden = d->base.config.model->hp.hidden;

    return launch_args(d, d->core[CORE_NORM], 0, e, "mmmmmmmiffimmiiiif", n->x, n->w, n->b, n->h,
                       d->hq.q, d->hq.d, d->hq.s, hidden, (double)(1.0f / (float)hidden),
                       (double)s->eps, jobs_norm_flags(s, n), d->out, d->all_weights, n->sum.base,
                       n->rows, n->sum.used, n->sum.stride, (double)n->sum.scale);
}

int jobs_norm_rows(struct device *d, const struct norms_shape *s, struct norm_rows n,
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
    const struct layer_shape *s = jobs_shape(d, layer);
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
    const struct layer_shape *s = jobs_shape(d, layer);
    int n = s->mixer.key_dim, heads = rows * s->mixer.kv_heads;

    if (s->mixer.values_are_keys &&
        launch_copy(d, d->k, 0, d->v, (size_t)heads * (size_t)n * 4, e) < 0)
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
    size_t tile = (size_t)kernel_set_tile(d, m->type, many),
           tiles = jobs_up((size_t)rows, tile) / tile, groups = 0;

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

            groups += jobs_up((size_t)p->m->rows, step) / step;
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

int jobs_kv_place(struct device *d, const struct block *b, int layer, int session, int pos, int end,
                  struct kv_place *out, struct error *e)
{
    if (session < 0 || session >= d->kv_room || !d->kv_open[session])
        return error_set(e, ERR_DEVICE, "OpenCL %s: session %d is not open here",
                         d->target.info.name, session);
    *out = memory_kv_place(d, layer, b->kv[session]);
    if (!memory_kv_in_place(d))
        return 0;
    return memory_kv_ring(d, layer) ? rows_ring_place(d, layer, session, pos, end, out, e)
                                    : rows_state_place(d, layer, session, pos, end, out, e);
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

int jobs_chunks(const struct mixer_shape *m, int token, int *first)
{
    *first = m->window && token - m->window + 1 > 0 ? (token - m->window + 1) / 256 : 0;
    return token / 256 - *first + 1;
}

int jobs_token_attend(struct device *d, const struct mixer_shape *m, const struct token_place *t,
                      struct error *e)
{
    int first, chunks = jobs_chunks(m, t->token, &first);
    size_t items = (size_t)d->row_items;

    if (launch_args(d, d->core[CORE_TOKEN_ATTEND], 0, e, "mmmmmmmmmmmmmmmiiiiii" KV_ARGS "ifiiiim",
                    d->q, d->k, d->v, t->kv->rows, t->kv->pages,
                    m->second_rope ? d->second_cos : d->rope_cos[t->rope],
                    m->second_rope ? d->second_sin : d->rope_sin[t->rope], d->part,
                    d->head_arrivals, t->sinks, t->gates, d->heads_out, d->oq.q, d->oq.d, d->oq.s,
                    m->heads, m->kv_heads, m->key_dim, m->rope_dims, d->replay.now ? -1 : t->token,
                    t->row, KV_INTS(t->kv), m->window, (double)shape_score_scale_at(m, t->token),
                    jobs_rope_apart(m), first, chunks, jobs_merge_flags(m), d->replay.position) < 0)
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

    d->replay.unfit = true; /* its arguments tell the position */
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
    const struct mixer_shape *m = &jobs_shape(d, layer)->mixer;
    struct kv_place kv;
    int dim = m->key_dim, heads = m->heads, window = m->window, pos = s->pos - row0;
    int first = window && s->pos - window + 1 > 0 ? (s->pos - window + 1) / 256 : 0,
        chunks = (s->pos + s->rows - 1) / 256 - first + 1;
    size_t row_bytes = (size_t)heads * (size_t)chunks * (size_t)(dim + 2) * 4,
           items = (size_t)d->row_items;
    int step = (int)(d->part_bytes / row_bytes), end = row0 + s->rows;

    if (jobs_kv_place(d, b, layer, s->session, s->pos, s->pos + s->rows, &kv, e) < 0)
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

struct spans jobs_spans(const struct span *spans, int n, int rows, int pos)
{
    return (struct spans){spans, n, rows, {.pos = pos, .rows = rows}};
}

/* y = W h for q, k and v of a layer, those of one type in one launch. */
static int project(struct device *d, const struct output out[3], int n, int rows, struct error *e)
{
    struct output alike[3];

    for (int i = 0; i < n; i++) {
        enum dtype type = out[i].part->m->type;
        int count = 0;

        for (int k = 0; k < n; k++)
            if (out[k].part->m->type == type)
                alike[count++] = out[k];
        if (alike[0].part == out[i].part && /* else they are there */
            jobs_multiply(d, d->h, &d->hq, rows, alike, count, false, e) < 0)
            return ERR_DEVICE;
    }
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

int jobs_add_rows(struct device *d, cl_mem y, cl_mem x, float scale, int rows, struct error *e)
{
    int n = rows * d->base.config.model->hp.hidden;

    if (launch_args(d, d->core[CORE_ADD], 0, e, "mmfi", y, x, (double)scale, n) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_ADD, "add", (size_t)n, 1, 1, CORE_ITEMS, e);
}

/* The norm after attention, of y in place; without one before it, of x + y. */
static int norm_after(struct device *d, const struct block *b, int layer, int rows, cl_mem y,
                      struct error *e)
{
    const struct norms_shape *s = &jobs_shape(d, layer)->norms, behind = norms_behind(s);

    if (!s->after)
        return 0;
    if (norms_sum(s) && jobs_add_rows(d, y, d->x, 1.0f, rows, e) < 0)
        return ERR_DEVICE;
    return jobs_norm_rows(d, &behind,
                          (struct norm_rows){y, b->after_w, b->after_b, y, .rows = rows}, e);
}

int jobs_attention_block(struct device *d, struct block *b, int layer, const struct spans *s,
                         const struct between *from, cl_mem y, bool add,
                         const struct output_end *end, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *shape = jobs_shape(d, layer);
    struct output qkv[3] = {{&b->part[0],
                             shape_query_dim(&shape->mixer) > shape->mixer.key_dim ? d->raw : d->q},
                            {&b->part[1], d->k},
                            {&b->part[2], d->v}},
                  o = {&b->part[3], y}, gates = {&b->part[PART_GATES], d->gates};
    const struct span *span = s->at ? s->at : &s->one;
    int n = s->at ? s->n : 1, rows = s->rows, row = 0;

    if (!from->normed &&
        jobs_norm_rows(d, &shape->norms,
                       (struct norm_rows){d->x, b->norm_w, b->norm_b, d->h, rows, from->sum},
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
    if (end)
        return jobs_token_output(d, layer, &b->part[3], &end->norm, &b->routing, end->base,
                                 end->tiles, 0, e);
    if (add && hp->residual_scale != 0.0f) { /* rounded before it is added */
        o.y = d->y;
        return jobs_multiply(d, d->heads_out, &d->oq, rows, &o, 1, false, e) < 0
                   ? ERR_DEVICE
                   : jobs_add_rows(d, y, d->y, hp->residual_scale, rows, e);
    }
    if (jobs_multiply(d, d->heads_out, &d->oq, rows, &o, 1, add, e) < 0)
        return ERR_DEVICE;
    if (add)
        return 0;
    return scale_output(d, y, rows, e) < 0 ? ERR_DEVICE : norm_after(d, b, layer, rows, y, e);
}

struct block *jobs_resident(struct device *d, enum block_kind kind, int layer, int expert,
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
    struct block *b = jobs_resident(d, BLOCK_ATTENTION, j->layer, 0, e);
    struct spans spans = jobs_spans(j->spans, j->n_spans, j->rows, j->pos);
    size_t bytes = (size_t)j->rows * (size_t)hp->hidden * 4;
    bool there;

    if (!b || job_begin(d, e) < 0 || launch_input(d, &d->x, j->x, bytes, e) < 0)
        return ERR_DEVICE;
    there = rows_bind(d, &d->y, j->y, bytes);
    if (jobs_attention_block(d, b, j->layer, &spans, &(struct between){.normed = false}, d->y,
                             false, NULL, e) < 0 ||
        (!there && launch_read(d, d->y, 0, j->y, bytes, e) < 0))
        return ERR_DEVICE;
    return job_end(d, e);
}

/* Synchronous: rows are moved between tokens. */
int jobs_kv_rows(struct device *d, const struct kv_move *m, struct error *e)
{
    const struct mixer_shape *s = &jobs_shape(d, m->layer)->mixer;
    struct block *b = jobs_resident(d, BLOCK_ATTENTION, m->layer, 0, e);
    struct kv_place kv;
    int n = memory_kv_values(d, m->layer), step = d->base.config.max_rows, end = m->pos + m->count;
    size_t row = kv_type_bytes(d->base.config.kv_k, n) + kv_type_bytes(d->base.config.kv_v, n);
    uint64_t rows_before = d->stats.row_bytes; /* these are none of a job's */

    if (m->fixed)
        return error_set(e, ERR_DEVICE, "OpenCL %s: it keeps no recurrent state",
                         d->target.info.name);
    if (!b || jobs_kv_place(d, b, m->layer, m->session, m->write ? m->pos : end, end, &kv, e) < 0)
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
