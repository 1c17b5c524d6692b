/* Whole layers, and the head. Launches of one layer with one token: norm of the first layer, q+k+v,
 * rotary+cache+attention+merge, output+norm+routing (of many experts norm+routing by itself),
 * gate+up, down with the end of the layer and the norm of the next one; with many, or where kernels
 * are wide, each word of these is one. */
#include "gpu/blas.h"
#include "gpu/jobs.h"
#include "engine/base/hash.h"

/* The device computes the first layers of a job while the host enqueues the others. */
#define LAYERS_A_FLUSH 4

int jobs_head(struct device *d, const struct head_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct block *b = jobs_resident(d, BLOCK_HEAD, 0, 0, e);
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
            jobs_norm_rows(d, &hp->common.norms,
                           (struct norm_rows){d->x, b->norm_w, b->norm_b, d->h, .rows = n},
                           e) < 0 ||
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

    if (d->replay.now) {
        recordings_unfit(d, e);
        return NULL;
    }
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

/* A layer of a job that is being launched. */
struct layer_run {
    int layer, last; /* the job's layers end before `last` */
    int rows, base;  /* its choices are at that place of all_chosen and all_weights */
    int begin, end;  /* rows that need its experts */
    const struct block *a;
    const struct joined_experts *joined; /* NULL: they are bound one by one */
};

/* A layer's experts, after reading the router's choices back to the host. Needed if there are more
 * experts than one launch can bind (BANK) and they are not joined, if they differ in weight type or
 * in having a bias, or if a library's GEMMs, which take their sizes as arguments, compute them. */
static int layer_experts_by_host(struct device *d, const struct layer_run *r, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct ffn_shape *s = &jobs_shape(d, r->layer)->ffn;
    int used = hp->n_experts_used, n = 0, n_groups = 0,
        end = s->kind == FFN_DENSE_AND_ROUTED ? s->experts : hp->n_experts;
    const int *chosen = read_choices(d, r->base, r->rows * used, e);

    if (!chosen)
        return ERR_DEVICE;
    for (int x = 0; x < end; x++) { /* the shared one, too */
        int first = n;

        for (int i = r->begin * used; i < r->end * used; i++)
            if (chosen[i] == x) {
                d->host_row[n] = i / used;
                d->host_slot[n++] = i % used;
            }
        if (n > first)
            d->host_groups[n_groups++] = (struct expert_group){x, first, n - first};
    }
    struct experts_job j = {.layer = r->layer,
                            .rows = r->rows,
                            .n_groups = n_groups,
                            .groups = d->host_groups,
                            .row = d->host_row,
                            .slot = d->host_slot};

    return jobs_run_groups(d, &j, false, e);
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
        struct block *b = jobs_resident(d, BLOCK_EXPERT, layer, x, e);

        if (!b)
            return ERR_DEVICE;
        if (!joined || x == from)
            out->bank.at[out->bank.n++] = b;
    }
    return 0;
}

/* Their rows are grouped (more than one) or follow from the choice; the outputs go to out. */
static int run_bank(struct device *d, const struct layer_run *r, const struct layer_bank *b,
                    struct error *e)
{
    int used = d->base.config.model->hp.n_experts_used, many = r->rows > 1,
        entries = (r->end - r->begin) * (b->end - b->first),
        tile = kernel_set_tile(d, b->bank.at[0]->part[1].m->type, many),
        n_tiles = entries / tile + (b->n < entries ? b->n : entries);
    size_t items = (size_t)d->row_items;

    if (!many)
        return jobs_expert_tiles(d, &jobs_shape(d, r->layer)->ffn, &b->bank, b->first, b->end, 0,
                                 e);
    if (launch_args(d, d->core[CORE_GROUP], 0, e, "mmmiiiiiiiii", d->all_chosen, d->tiles,
                    d->entries, r->rows, used, b->from, b->n, r->base, tile, n_tiles, r->begin,
                    r->end) < 0 ||
        launch_core(d, CORE_GROUP, "group_rows", items, 1, 1, items, e) < 0)
        return ERR_DEVICE;
    return jobs_expert_tiles(d, &jobs_shape(d, r->layer)->ffn, &b->bank, 0, n_tiles, 1, e);
}

/* Experts that a bank of the layer has: of the routed ones, or a dense layer's only one. */
static int banked(const struct device *d, int layer)
{
    const struct ffn_shape *s = &jobs_shape(d, layer)->ffn;

    return s->kind == FFN_DENSE ? 1 : s->experts + joined_shared(d, layer);
}

/* What its experts leave to be added, `used` of a row. */
static struct expert_sum sum_of(const struct device *d, const struct layer_run *r, int used)
{
    const struct hparams *hp = &d->base.config.model->hp;

    return (struct expert_sum){used, r->base, hp->n_experts_used, hparams_residual(hp)};
}

static int run_routed(struct device *d, const struct layer_run *r, struct error *e)
{
    struct layer_bank b = {.first = 0, .end = jobs_shape(d, r->layer)->ffn.used};

    return take_bank(d, r->layer, 0, banked(d, r->layer), r->joined, &b, e) < 0
               ? ERR_DEVICE
               : run_bank(d, r, &b, e);
}

/* A shared expert unlike the routed ones. */
static int run_shared(struct device *d, const struct layer_run *r, struct error *e)
{
    const struct ffn_shape *s = &jobs_shape(d, r->layer)->ffn;
    struct layer_bank b = {.first = s->used, .end = s->used + 1};

    return take_bank(d, r->layer, s->experts, 1, NULL, &b, e) < 0 ? ERR_DEVICE
                                                                  : run_bank(d, r, &b, e);
}

/* The block whose norm follows a layer of a job, if one kernel may do both. */
static const struct block *norm_behind(struct device *d, const struct layer_run *r)
{
    const struct block *b = r->layer + 1 < r->last
                                ? memory_block(d,
                                               (struct block_id){BLOCK_ATTENTION, r->layer + 1, 0})
                                : NULL;

    return b && b->state == BLOCK_RESIDENT && kernel_set_token_norms(d) ? b : NULL;
}

/* Whether something comes behind the sum of the layer's experts. */
static bool ends_later(const struct layer_shape *s)
{
    return s->norms.after || s->scaled;
}

/* The same without a word from the host: the experts are joined or at most sixteen, and the device
 * groups its rows itself. left: said there if it is more than the outputs. */
static int layer_experts(struct device *d, const struct layer_run *r, struct between *left,
                         struct error *e)
{
    const struct layer_shape *shape = jobs_shape(d, r->layer);
    const struct ffn_shape *s = &shape->ffn;
    int n = banked(d, r->layer), used = shape_used(shape);
    struct layer_bank b = {.first = 0, .end = used};

    if (s->kind != FFN_DENSE && s->shared && n == s->experts)
        return run_routed(d, r, e) < 0 ? ERR_DEVICE : run_shared(d, r, e);
    if (take_bank(d, r->layer, 0, n, r->joined, &b, e) < 0)
        return ERR_DEVICE;
    if (r->rows > 1 || ends_later(shape) || !kernel_set_token_downs(d, b.bank.at[0]->part[2].m))
        return run_bank(d, r, &b, e);

    const struct block *next = norm_behind(d, r);
    struct norm_rows rows_next = {d->x, next ? next->norm_w : NULL, next ? next->norm_b : NULL,
                                  d->h, .rows = 1};
    struct expert_sum sum = sum_of(d, r, used);

    *left = (struct between){.normed = next != NULL};
    return (kernel_set_token_gates(d, b.bank.at[0]->part[1].m)
                ? jobs_token_gate_up(d, s, &b.bank, used, e)
                : jobs_gate_up(d, s, &b.bank, 0, used, 0, e)) < 0
               ? ERR_DEVICE
               : jobs_token_down(d, &b.bank, &sum,
                                 &jobs_shape(d, next ? r->layer + 1 : r->layer)->norms,
                                 next ? &rows_next : NULL, e);
}

static bool alike(struct device *d, int layer)
{
    const struct expert_weights *x = d->base.config.model->layers[layer].experts;
    int experts = jobs_shape(d, layer)->ffn.experts;

    for (int i = 1; i < experts; i++)
        if (x[i].up.type != x[0].up.type || x[i].down.type != x[0].down.type ||
            !x[i].up.bias != !x[0].up.bias || !x[i].down.bias != !x[0].down.bias)
            return false;
    return true;
}

static int norm_to_h(struct device *d, const struct layer_run *r, cl_mem w, cl_mem b,
                     struct error *e)
{
    return jobs_norm_rows(d, &jobs_shape(d, r->layer)->norms,
                          (struct norm_rows){d->x, w, b, d->h, .rows = r->rows}, e);
}

/* The norm before the experts, and which they are; tiles: of a single row, too. Of a parallel layer
 * h is what its attention had. */
static int norm_and_route(struct device *d, const struct layer_run *r, bool tiles, struct error *e)
{
    const struct layer_shape *s = jobs_shape(d, r->layer);
    const struct block *a = r->a;
    bool apart = s->ffn.kind == FFN_DENSE_AND_ROUTED;
    struct norm_rows n = {d->x, a->expert_norm_w, a->expert_norm_b, d->h, .rows = r->rows};

    if (s->ffn.router.early) /* they are known */
        return jobs_norm_rows(d, &s->norms, n, e);
    if (!s->parallel && !apart && s->ffn.kind == FFN_ROUTED && r->rows == 1 && d->token_route)
        return jobs_token_route(d, r->layer, &n, &a->routing, r->base, tiles, e);
    if (apart) {
        n.w = a->apart_w[APART_ROUTER];
        n.b = a->apart_b[APART_ROUTER];
    }
    if (!s->parallel && jobs_norm_rows(d, &s->norms, n, e) < 0)
        return ERR_DEVICE;
    return s->ffn.kind == FFN_DENSE
               ? jobs_choose_dense(d, r->layer, r->rows, r->base, e)
               : jobs_route(d, r->layer, &a->routing, d->h, r->rows, r->base, tiles, e);
}

/* What the experts of a layer gave, added to x; fresh: instead of x. */
static int combine(struct device *d, cl_mem x, int rows, const struct expert_sum *s, bool fresh,
                   struct error *e)
{
    int hidden = d->base.config.model->hp.hidden;

    if (launch_args(d, d->core[CORE_COMBINE], 0, e, "mmmiiiifii", d->out, d->all_weights, x,
                    s->base, rows, s->used, s->stride, (double)s->scale, hidden, fresh) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_COMBINE, "combine", (size_t)rows * (size_t)hidden, 1, 1, CORE_ITEMS,
                       e);
}

static int norm_behind_in_place(struct device *d, const struct layer_run *r, cl_mem x, cl_mem w,
                                cl_mem b, struct error *e)
{
    const struct norms_shape behind = norms_behind(&jobs_shape(d, r->layer)->norms);

    return jobs_norm_rows(d, &behind, (struct norm_rows){x, w, b, x, .rows = r->rows}, e);
}

/* A dense part and routed experts, each with its own norm before and behind, to their sum in y. The
 * host's tables for the routed ones take the place of the dense part's. */
static int experts_apart(struct device *d, const struct layer_run *r, bool by_host, struct error *e)
{
    const struct block *a = r->a;
    int used = jobs_shape(d, r->layer)->ffn.used;
    size_t row = (size_t)d->base.config.model->hp.hidden * 4;
    struct expert_sum sum = sum_of(d, r, used);

    if (norm_to_h(d, r, a->expert_norm_w, a->expert_norm_b, e) < 0 || run_shared(d, r, e) < 0 ||
        norm_to_h(d, r, a->apart_w[APART_ROUTED], a->apart_b[APART_ROUTED], e) < 0 ||
        (by_host ? layer_experts_by_host(d, r, e) : run_routed(d, r, e)) < 0 ||
        combine(d, d->y, r->rows, &sum, true, e) < 0 ||
        norm_behind_in_place(d, r, d->y, a->apart_w[APART_ROUTED_AFTER],
                             a->apart_b[APART_ROUTED_AFTER], e) < 0)
        return ERR_DEVICE;
    return launch_copy(d, d->out, (size_t)(used * r->rows) * row, d->h, (size_t)r->rows * row, e) <
                       0 ||
                   norm_behind_in_place(d, r, d->h, a->apart_w[APART_SHARED_AFTER],
                                        a->apart_b[APART_SHARED_AFTER], e) < 0
               ? ERR_DEVICE
               : jobs_add_rows(d, d->y, d->h, 1.0f, r->rows, e);
}

/* What comes behind the layer's experts, whose sum is in y already, or still to be added up. */
static int end_layer(struct device *d, const struct layer_run *r, struct between *left,
                     struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct layer_shape *s = jobs_shape(d, r->layer);
    const struct block *a = r->a;
    const float *scale = d->base.config.model->layers[r->layer].scale;
    struct expert_sum sum = left->sum;

    *left = (struct between){.normed = false};
    if (s->norms.after) {
        if ((sum.used && combine(d, d->y, r->rows, &sum, true, e) < 0) ||
            norm_behind_in_place(d, r, d->y, a->expert_after_w, a->expert_after_b, e) < 0 ||
            jobs_add_rows(d, d->x, d->y, 1.0f, r->rows, e) < 0)
            return ERR_DEVICE;
    } else if (combine(d, d->x, r->rows, &sum, false, e) < 0) {
        return ERR_DEVICE;
    }
    if (!s->scaled)
        return 0;
    if (launch_args(d, d->core[CORE_SCALE], 0, e, "mfi", d->x, (double)*scale,
                    r->rows * hp->hidden) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_SCALE, "scale_rows", (size_t)(r->rows * hp->hidden), 1, 1,
                       CORE_ITEMS, e);
}

/* The choice by the stream before the mixer, which is normed then. */
static int route_early(struct device *d, const struct layer_run *r, struct between *from,
                       bool tiles, struct error *e)
{
    const struct block *a = r->a;

    if (!from->normed &&
        jobs_norm_rows(d, &jobs_shape(d, r->layer)->norms,
                       (struct norm_rows){d->x, a->norm_w, a->norm_b, d->h, r->rows, from->sum},
                       e) < 0)
        return ERR_DEVICE;
    *from = (struct between){.normed = true};
    return jobs_route(d, r->layer, &a->routing, d->x, r->rows, r->base, tiles, e);
}

/* One layer of a job, from what the one before left to what it leaves. */
static int whole_layer(struct device *d, struct layer_run *r, const struct spans *spans,
                       struct between *left, struct error *e)
{
    const struct layer_shape *s = jobs_shape(d, r->layer);
    struct block *a = jobs_resident(d, BLOCK_ATTENTION, r->layer, 0, e);
    enum dtype type = d->base.config.model->layers[r->layer].experts[0].up.type;
    int experts = s->ffn.experts ? s->ffn.experts : 1;
    bool after = s->norms.after, apart = s->ffn.kind == FFN_DENSE_AND_ROUTED, by_host;
    struct between from = *left;
    struct output_end end;
    bool ends;

    r->a = a;
    r->joined = banked(d, r->layer) > BANK ? joined_experts(d, r->layer) : NULL;
    by_host = !alike(d, r->layer) || (banked(d, r->layer) > BANK && !r->joined) ||
              blas_wants(d, type, r->rows * shape_used(s) / experts + 1);
    *left = (struct between){.sum = sum_of(d, r, shape_used(s))};
    ends = a && r->rows == 1 && kernel_set_token_outputs(d, r->layer);
    if (ends)
        end = (struct output_end){
            {d->x, a->expert_norm_w, a->expert_norm_b, d->h, .rows = 1}, r->base, !by_host};
    if (!a || (s->ffn.router.early && route_early(d, r, &from, r->rows == 1 && !by_host, e) < 0) ||
        jobs_attention_block(d, a, r->layer, spans, &from, after ? d->y : d->x, !after,
                             ends ? &end : NULL, e) < 0 ||
        (after && jobs_add_rows(d, d->x, d->y, 1.0f, r->rows, e) < 0) ||
        (!ends && norm_and_route(d, r, r->rows == 1 && (apart || !by_host), e) < 0))
        return ERR_DEVICE;
    if (r->begin == r->end) { /* nobody reads what they add */
        left->sum.used = 0;
        return 0;
    }
    if (apart) {
        left->sum.used = 0;
        if (experts_apart(d, r, by_host, e) < 0)
            return ERR_DEVICE;
    } else if ((by_host ? layer_experts_by_host(d, r, e) : layer_experts(d, r, left, e)) < 0) {
        return ERR_DEVICE;
    }
    return ends_later(s) ? end_layer(d, r, left, e) : 0;
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

/* The rows from the first to the last that somebody reads behind the layer. */
static void wanted_rows(const struct device *d, const struct layers_job *j, struct layer_run *r)
{
    r->begin = 0;
    r->end = j->rows;
    if (!j->wanted || r->layer + 1 < d->base.config.model->hp.n_layers)
        return;
    while (r->begin < r->end && !j->wanted[r->begin])
        r->begin++;
    while (r->begin < r->end && !j->wanted[r->end - 1])
        r->end--;
}

/* All launches of the job, from x to x; base: place of its first layer's choices. */
static int launch_layers(struct device *d, const struct layers_job *j, const struct spans *spans,
                         int base, struct error *e)
{
    int per_layer = j->rows * d->base.config.model->hp.n_experts_used;
    struct between left = {.normed = false};

    for (int l = j->first; l < j->last; l++, base += per_layer) {
        struct layer_run r = {.layer = l, .last = j->last, .rows = j->rows, .base = base};

        wanted_rows(d, j, &r);
        if (whole_layer(d, &r, spans, &left, e) < 0 ||
            ((l - j->first) % LAYERS_A_FLUSH == 0 && job_flush(d, e) < 0))
            return ERR_DEVICE;
    }
    return left.sum.used ? combine(d, d->x, j->rows, &left.sum, false, e) : 0;
}

/* Stands for the launches of a token's layers and for all their arguments but its position: blocks
 * and scratch are the same until a buffer is released (recordings_find). False: it has no such key,
 * or its launches will fail. */
static bool token_key(struct device *d, const struct layers_job *j, const struct span *s, int base,
                      uint64_t *key)
{
    const int numbers[] = {j->first,   j->last, base,
                           s->session, s->rope, j->wanted ? j->wanted[0] : 1};
    const cl_mem rows[] = {d->x, d->all_chosen, d->all_weights};
    uint64_t h = hash_bytes(hash_bytes(HASH_START, numbers, sizeof numbers), rows, sizeof rows);

    for (int l = j->first; l < j->last; l++) {
        const struct mixer_shape *m = &jobs_shape(d, l)->mixer;
        struct block *b = memory_block(d, (struct block_id){BLOCK_ATTENTION, l, 0});
        struct kv_place kv;
        struct error ignored;
        int first, chunks = jobs_chunks(m, s->pos, &first);

        if (b->state != BLOCK_RESIDENT || m->scale_growth != 0.0f ||
            !kernel_set_token_attends(d, m, chunks) ||
            jobs_kv_place(d, b, l, s->session, s->pos, s->pos + 1, &kv, &ignored) < 0)
            return false;

        const int place[] = {first, chunks, KV_INTS(&kv)};

        h = hash_bytes(h, place, sizeof place);
        h = hash_bytes(hash_bytes(h, &kv.rows, sizeof kv.rows), &kv.pages, sizeof kv.pages);
    }
    *key = h;
    return true;
}

/* The launches of one token at once, recorded when one with the same key comes for the second time.
 * 1: they are enqueued; 0: they are not. */
static int replay_layers(struct device *d, const struct layers_job *j, const struct spans *spans,
                         int base, struct error *e)
{
    const struct span *s = spans->at ? spans->at : &spans->one;
    struct token_recording *r;
    uint64_t key;

    if (!d->replay.usable || d->trace || j->rows != 1 || s->rows != 1 || rows_parts(d) ||
        !token_key(d, j, s, base, &key))
        return 0;
    r = recordings_find(d, key);
    if (!r && (!recordings_worth(d, key) || !recordings_begin(d, key, e) ||
               !(r = recordings_end(d, launch_layers(d, j, spans, base, e), e))))
        return 0;
    return recordings_run(d, r, s->pos, e);
}

int jobs_layers(struct device *d, const struct layers_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    struct spans spans = jobs_spans(j->spans, j->n_spans, j->rows, j->pos);
    int per_layer = j->rows * hp->n_experts_used, base = 0;
    size_t bytes = (size_t)j->rows * (size_t)hp->hidden * 4,
           choices = (size_t)(j->last - j->first) * (size_t)per_layer * 4;
    bool x_there, chosen_there;
    int done;

    if (job_begin(d, e) < 0)
        return ERR_DEVICE;
    x_there = rows_bind(d, &d->x, j->x, bytes);
    chosen_there = bind_choices(d, j, choices, &base);
    if (!x_there && launch_write(d, d->x, 0, j->x, bytes, e) < 0)
        return ERR_DEVICE;
    done = replay_layers(d, j, &spans, base, e);
    if (done < 0 || (!done && launch_layers(d, j, &spans, base, e) < 0) ||
        (!x_there && launch_read(d, d->x, 0, j->x, bytes, e) < 0) ||
        (!chosen_there && (launch_read(d, d->all_chosen, 0, j->experts, choices, e) < 0 ||
                           launch_read(d, d->all_weights, 0, j->weights, choices, e) < 0)))
        return ERR_DEVICE;
    return job_end(d, e);
}
