/* The CPU device: opening, jobs. Called by the engine thread; each job is one parallel
 * region of the device's pool. All scratch is one mapping allocated at open, so computing allocates
 * nothing. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/backend/scratch.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/pieces.h"
#include "engine/layout/lora.h"
#include "engine/layout/pack.h"
#include "engine/model/finite.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int units(int rows)
{
    return (rows + CPU_UNIT - 1) / CPU_UNIT;
}

/* How large the tasks of one row's experts are. */
static void choose_pieces(struct cpu_device *d)
{
    for (int l = 0; l < d->model->hp.n_layers; l++) {
        const struct ffn_shape *s = &shape_of(d, l)->ffn;

        d->gate_piece[l] = d->by_unit ? 1
                                      : piece_units(s->used, units(s->width),
                                                    shape_further_used(s) * units(s->shared_width),
                                                    d->decoding_shares.share, d->n_threads);
    }
    d->down_piece = piece_units(1, units(d->model->hp.hidden), 0, d->decoding_shares.share,
                                d->n_threads);
}

/* Runs a job of so many rows, in which each of the weights counted in `work` is multiplied with
 * one. */
static void run(struct cpu_device *d, int rows, double work, void (*fn)(void *ctx, int tid, int n))
{
    struct crowd *c = rows == 1 ? &d->decoding : &d->reading;
    struct shares *s = rows == 1 ? &d->decoding_shares : &d->reading_shares;
    uint64_t start = clock_now(), end;

    for (int i = 0; i < d->n_threads; i++) {
        d->threads[i].phase = 0;
        d->threads[i].panel_of = NULL;
        d->threads[i].parts.of = NULL;
        d->threads[i].ordered[0].x = d->threads[i].ordered[1].x = NULL;
        d->threads[i].adapted[0].x = d->threads[i].adapted[1].x = NULL;
    }
    crowd_begin(c, d->pool);
    /* with several memory nodes a thread's part is what lies in its node */
    if (!d->by_unit)
        shares_begin(s, d->pool);
    pool_run_elastic(d->pool, fn, d);
    end = clock_now();
    if (!d->by_unit && shares_end(s, d->pool) && rows == 1)
        choose_pieces(d);
    crowd_end(c, d->pool, end, end - start, work);
    d->strengths = NULL;
    d->stats.busy_ns += end - start;
    d->stats.jobs++;
}

static int check_matrix(struct cpu_device *d, const struct matrix *w, const char *what,
                        struct error *e)
{
    if (!pack_supported(w->type) ||
        (dtype_is_quantised(w->type) && w->width != 8 && w->width != 16))
        return error_set(e, ERR_MODEL, "the CPU device has no kernel for %s weights (%s)",
                         dtype_info(w->type)->word, what);
    if (dtype_is_quantised(w->type))
        d->group_bytes = scratch_most(d->group_bytes,
                                      dtype_row_bytes(w->type, w->cols) * (size_t)w->width);
    d->has_quantised |= dtype_is_quantised(w->type);
    d->has_float |= matrix_takes_rows(w);
    d->has_order |= matrix_rounds_rows(w);
    if (w->lora && w->lora->rank > d->lora_rank)
        d->lora_rank = w->lora->rank;
    return 0;
}

static bool runs_heads(const struct mixer_shape *m)
{
    if (m->kind == MIXER_MLA)
        return m->kv_rank + m->rope_dims <= 1024 && m->kv_rank % NUM_LANES == 0 &&
               m->rope_dims % NUM_LANES == 0 && m->key_dim >= NUM_LANES &&
               m->value_dim >= NUM_LANES && m->index_dim % NUM_LANES == 0 && m->index_dim <= 1024;
    if (m->kind == MIXER_COMPRESSED)
        return m->key_dim <= 1024 && m->key_dim % NUM_LANES == 0 && m->rope_dims % 2 == 0 &&
               m->rope_dims <= m->key_dim && m->index_dim % NUM_LANES == 0 &&
               m->index_dim <= 1024 && (!m->index_heads || m->rope_dims <= m->index_dim) &&
               m->q_rank > 0 && m->block != 1 && m->window > 0 && m->out_groups > 0 &&
               m->heads % m->out_groups == 0;
    if (shape_recurrent(m))
        return m->taps <= KERNEL_TAPS && shape_state_keys(m) <= KERNEL_KEYS &&
               (m->kind == MIXER_SHORT_CONVOLUTION ||
                (shape_key_heads(m) > 0 && m->heads % shape_key_heads(m) == 0));
    if (m->experts && (m->heads != m->kv_heads * m->experts || m->experts > NUM_EXPERTS ||
                       m->used < 1 || m->used > CPU_USED_MAX || m->used > m->experts))
        return false;
    if (m->kind == MIXER_CONVOLVED &&
        (m->taps > KERNEL_TAPS || m->head_taps > KERNEL_TAPS || m->value_dim))
        return false;
    return (m->kind != MIXER_ATTENTION && m->kind != MIXER_CONVOLVED) ||
           (m->key_dim <= 1024 && m->key_dim % 4 == 0 && shape_value_dim(m) <= 1024 &&
            shape_value_dim(m) % 4 == 0 && m->heads % m->kv_heads == 0 &&
            (!m->index_heads ||
             (m->index_dim % NUM_LANES == 0 && m->index_dim <= INDEXER_DIM_MOST &&
              m->index_dim <= shape_value_dim(m) && m->index_dim >= m->rope_dims)));
}

static int check_model(struct cpu_device *d, struct error *e)
{
    const struct model *m = d->model;
    const struct hparams *hp = &m->hp;
    struct block_matrix list[BLOCK_MATRICES];
    int code = model_computable(hp, e);

    if (code < 0 || (code = check_matrix(d, &m->head, "head", e)) < 0)
        return code;
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_shape *s = hparams_layer(hp, l);

        if (!runs_heads(&s->mixer))
            return error_set(
                e, ERR_MODEL,
                "the CPU device cannot run heads like layer %d's (%d of %d, %d of keys)", l,
                s->mixer.heads, s->mixer.key_dim, s->mixer.kv_heads);
        /* a shared expert is not chosen by the router */
        if (shape_used(s) > CPU_USED_MAX || shape_choices(&s->ffn) > NUM_EXPERTS)
            return error_set(e, ERR_MODEL, "the CPU device cannot run %d experts, %d used",
                             s->ffn.experts, shape_used(s));
        if (s->ffn.router.row > CPU_ROUTER_ROW)
            return error_set(e, ERR_MODEL, "the CPU device cannot run routers by a row of %d",
                             s->ffn.router.row);
    }
    for (struct block_id id = BLOCK_BEFORE; !code && model_block_next(m, &id);)
        for (int i = 0, n = model_block_matrices(m, id, list); i < n && !code; i++)
            code = check_matrix(d, list[i].w, matrix_part_name(list[i].part), e);
    return code;
}

static void cpu_close(struct device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;

    if (!d)
        return;
    if (d->own_pool)
        pool_free(d->pool);
    onednn_free(d->library);
    kv_pool_release(d);
    mem_pages_free(d->scratch, d->scratch_bytes);
    mem_free(d->layouts);
    mem_free(d);
}

/* Everything that follows from the configuration and the model's shapes; of memory it takes the
 * layers' layouts alone. */
static int lay_out(struct cpu_device *d, const struct device_config *c, struct error *e)
{
    int code;

    d->base.ops = &cpu_device_ops;
    d->base.config = *c;
    d->model = c->model;
    d->k = kernels_active();
    d->n_threads = c->pool            ? pool_threads(c->pool)
                   : c->n_threads > 0 ? c->n_threads
                                      : topology_default_threads();
    d->max_rows = c->max_rows > 0 ? c->max_rows : 1;
    d->context = c->context;
    d->chunks_max = (c->context + NUM_CHUNK - 1) / NUM_CHUNK;
    d->widest_ffn = 0;
    for (int l = 0; l < c->model->hp.n_layers; l++) {
        const struct ffn_shape *s = &hparams_layer(&c->model->hp, l)->ffn;
        int width = s->width > s->shared_width ? s->width : s->shared_width;

        d->widest_ffn = width > d->widest_ffn ? width : d->widest_ffn;
    }
    d->widest_ffn = (d->widest_ffn + NUM_BLOCK - 1) / NUM_BLOCK * NUM_BLOCK;
    d->by_unit = topology_nodes() > 1;
    d->pattern = pattern_here();
    d->kv_k = c->kv_k;
    d->kv_v = c->kv_v;
    if ((code = check_model(d, e)) < 0)
        return code;
    return kv_layout(d, e);
}

int cpu_device_footprint(const struct device_config *c, uint64_t *kv_bytes, uint64_t *scratch_bytes,
                         struct error *e)
{
    struct cpu_device *d = mem_alloc(1, sizeof *d);
    int code;

    if (!d)
        return error_set(e, ERR_MEMORY, "no memory for the CPU device");
    if ((code = lay_out(d, c, e)) == 0)
        *scratch_bytes = scratch_lay(d, NULL);
    else
        *scratch_bytes = 0;
    *kv_bytes = (d->kv_bytes + d->ring_bytes + d->fixed_bytes + d->drafts_bytes) *
                (size_t)(c->sessions > 1 ? c->sessions : 1);
    mem_free(d->layouts);
    mem_free(d);
    return code;
}

/* Opens oneDNN for float weights if the user chose it and it runs. */
static void open_library(struct cpu_device *d)
{
    const struct device_config *c = &d->base.config;
    struct error e;

#if defined(__SANITIZE_THREAD__)
    return; /* the static analyser cannot see the library's locks */
#endif
    if (!d->has_float || !c->float_library || d->k == &kernels_scalar)
        return;
    d->bf16 = cpu_uses_bf16(c->exact);
    if (onednn_new(&d->library, d->n_threads, &e) == 0)
        snprintf(e.text, sizeof e.text,
                 "oneDNN multiplies this model's float weights: its text may depend on what the KV "
                 "cache holds, "
                 "on -ub and on the order of a batch");
    if (c->log)
        c->log(c->log_ctx, e.text);
}

static int cpu_open(struct device **out, const struct device_config *c, struct error *e)
{
    struct cpu_device *d = mem_alloc(1, sizeof *d);
    char why[8];
    int code;

    *out = NULL;
    if (!d)
        return error_set(e, ERR_MEMORY, "no memory for the CPU device");
    cpu_probe(&d->base.info, 1, why, sizeof why);
    if ((code = lay_out(d, c, e)) < 0 || (code = kv_state_open(d, 0, e)) < 0)
        goto out;
    d->scratch_bytes = scratch_lay(d, NULL);
    d->scratch = mem_pages(d->scratch_bytes);
    if (!d->scratch) {
        code = error_set(e, ERR_MEMORY,
                         "no memory for computing %d tokens at once (%.1f MiB); use a smaller -ub",
                         d->max_rows, (double)d->scratch_bytes / 1048576.0);
        goto out;
    }
    scratch_lay(d, d->scratch);
    scratch_fill(d);
    shares_init(&d->reading_shares, d->n_threads);
    shares_init(&d->decoding_shares, d->n_threads);
    choose_pieces(d);
    d->pool = c->pool;
    d->own_pool = !c->pool;
    code = c->pool ? 0 : pool_new(&d->pool, d->n_threads, true, e);
    if (!code) {
        crowd_init(&d->reading, d->n_threads);
        crowd_init(&d->decoding, d->n_threads);
        open_library(d);
        tuning_open(d);
    }
out:
    if (code < 0) {
        cpu_close((struct device *)d);
        return code;
    }
    d->stats.weight_bytes = c->model->packed_bytes + c->model->mapped_bytes;
    d->stats.scratch_bytes = d->scratch_bytes;
    *out = (struct device *)d;
    return 0;
}

static bool cpu_supports(const struct device *device, const struct layer_shape *shape,
                         enum block_kind kind, enum dtype type)
{
    return pack_supported(type);
}

static int cpu_block_put(struct device *device, struct block_id id, size_t max_bytes,
                         struct error *e)
{
    return 1; /* the model's own copy is the CPU's */
}

static void cpu_block_drop(struct device *device, struct block_id id)
{
}

static int check_rows(const struct cpu_device *d, int rows, struct error *e)
{
    if (rows < 1 || rows > d->max_rows)
        return error_set(e, ERR_DEVICE, "%d rows in one job; this device was opened for %d", rows,
                         d->max_rows);
    return 0;
}

static int place_span(struct cpu_device *d, const struct span *s, int row, struct error *e)
{
    const struct device_config *c = &d->base.config;
    const struct kv_state *state;

    if (s->pos < 0 || s->rows > d->context - s->pos)
        return error_set(e, ERR_CONTEXT, "positions %d to %d lie beyond the context of %d tokens",
                         s->pos, s->pos + s->rows - 1, d->context);
    if (s->drafted < 0 || s->drafted >= s->rows ||
        (d->fixed_bytes && s->drafted > d->base.config.drafts))
        return error_set(e, ERR_DEVICE, "%d of %d rows are drafts; this device was opened for %d",
                         s->drafted, s->rows, d->base.config.drafts);
    if (s->rope < 0 || s->rope >= DEVICE_ROPES || !c->rope_cos[s->rope] || !c->rope_sin[s->rope])
        return error_set(e, ERR_DEVICE, "there is no rotary table %d", s->rope);
    if (!(state = kv_state_reserve(d, s->session, s->pos, s->pos + s->rows, e)))
        return ERR_DEVICE;
    for (int i = 0; i < s->rows; i++)
        d->span_of[row + i] = d->n_spans;
    d->spans[d->n_spans++] = (struct span_place){.state = state,
                                                 .cos = c->rope_cos[s->rope],
                                                 .sin = c->rope_sin[s->rope],
                                                 .second_cos = c->second_cos,
                                                 .second_sin = c->second_sin,
                                                 .pos = s->pos,
                                                 .rows = s->rows,
                                                 .drafted = s->drafted,
                                                 .row = row};
    return 0;
}

/* Sets the spans of a job. spans NULL: `rows` rows of session 0 from pos on. */
static int place_rows(struct cpu_device *d, int rows, int pos, const struct span *spans, int n,
                      struct error *e)
{
    const struct span one = {.pos = pos, .rows = rows};
    int code = check_rows(d, rows, e), sum = 0;

    if (!spans)
        spans = &one, n = 1;
    d->n_spans = 0;
    for (int i = 0; i < n && !code; sum += spans[i++].rows)
        code = spans[i].rows < 1 || spans[i].rows > rows - sum
                   ? error_set(e, ERR_DEVICE, "the spans of a job are not its %d rows", rows)
                   : place_span(d, &spans[i], sum, e);
    if (!code && sum != rows)
        code = error_set(e, ERR_DEVICE, "the spans of a job are not its %d rows", rows);
    return code;
}

/* Applies the norm after the mixer, and the weights of the stream, to the rows in `added`: the
 * result is the job's y; residual NULL, or the stream that it replaces or is added to. */
static void mixer_norm_phase(struct cpu_device *d, int tid, int layer, int rows, const float *x,
                             float *added, float *residual)
{
    const struct norms_shape *s = &shape_of(d, layer)->norms;
    const struct norms_shape behind = norms_behind(s);
    const struct norm_weights *w = &d->model->layers[layer].attention_after;
    int hidden = d->model->hp.hidden;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;) {
        size_t at = (size_t)t * (size_t)hidden;
        float *row = added + at;

        if (norms_sum(s))
            d->k->add(row, x + at, hidden);
        norm_row(d, &behind, w, row, row);
        if (shape_of(d, layer)->weighted)
            residual_row(d, &d->model->layers[layer].mixed, row, x + at, row);
        if (d->model->hp.laurel)
            laurel_row(d, tid, layer, t, x + at, row);
        if (residual && !norms_sum(s) && !d->model->hp.laurel && !shape_of(d, layer)->weighted)
            d->k->add(residual + at, row, hidden);
        else if (residual)
            memcpy(residual + at, row, (size_t)hidden * sizeof *row);
    }
    phase_end(d, tid);
}

/* cpu_mixer.phases followed by the norm. */
static void mixer_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x,
                         float *y, float *residual)
{
    bool after = shape_of(d, layer)->norms.after || shape_of(d, layer)->weighted;
    float *added = after && !y ? d->added : y;

    mixer_of(d, layer)->phases(d, tid, layer, rows, x, added, after ? NULL : residual);
    if (d->model->hp.laurel)
        laurel_phases(d, tid, layer, rows, x);
    if (after)
        mixer_norm_phase(d, tid, layer, rows, x, added, residual);
}

static void attention_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    const struct attention_job *j = d->attention_job;

    const float *x = j->x;

    if (shape_of(d, j->layer)->mixer.ngrams.size && j->inputs)
        x = ngram_phases(d, tid, j);
    mixer_phases(d, tid, j->layer, j->rows, x, j->y, NULL);
}

/* Whether the job met a broken row of a table of n-grams. */
static int check_ngrams(struct cpu_device *d, struct error *e)
{
    const char *broken = atomic_exchange(&d->ngrams.broken, NULL);

    return broken ? tensor_broken(d->model->file, broken, e) : 0;
}

static int cpu_attention(struct device *device, const struct attention_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int code = place_rows(d, j->rows, j->pos, j->spans, j->n_spans, e);

    assert(j->layer >= 0 && j->layer < d->model->hp.n_layers && j->rows > 0);
    d->trial = j->trial;
    if (!code)
        code = fixed_begin(d, j->layer, j->layer + 1, e);
    if (!code) {
        d->attention_job = j;
        d->strengths = j->strengths;
        d->kept_scores = j->scores;
        d->kept_stride = j->score_stride;
        d->kept_pos = row_position(d, j->rows - 1);
        if (shape_of(d, j->layer)->mixer.ngrams.size && j->inputs)
            ngram_ahead(d, j);
        run(d, j->rows, mixer_of(d, j->layer)->work(d, j->layer, j->rows), attention_region);
        d->kept_scores = NULL;
        fixed_end(d, j->layer, j->layer + 1);
        code = check_ngrams(d, e);
    }
    d->trial = false;
    return code;
}

static void route_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    const struct route_job *j = d->route_job;
    const struct hparams *hp = &d->model->hp;
    const struct layer_shape *shape = shape_of(d, j->layer);

    if (shape->ffn.router.row)
        router_row_phases(d, tid, j);
    phase_open(d, tid, j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < j->rows;) {
        size_t at = (size_t)t * (size_t)hp->hidden;
        const float *before = shape->ffn.router.row ? router_row_of(d, j, t)
                                                    : (j->before ? j->before : j->x) + at;
        float *h = j->h + at, *second = h + (size_t)j->rows * (size_t)hp->hidden,
              *scores = d->threads[tid].router;

        route_row(d, j->layer, t, j->imposed, j->edits ? j->edits[t] : NULL, j->x + at, before, h,
                  second, scores, j->experts + t * hp->n_experts_used,
                  j->weights + t * hp->n_experts_used);
        if (j->scores)
            memcpy(j->scores + (size_t)t * (size_t)hp->n_experts, scores,
                   (size_t)shape_choices(&shape->ffn) * sizeof *scores);
    }
    phase_end(d, tid);
}

static int cpu_route(struct device *device, const struct route_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int code = j->imposed ? place_rows(d, j->rows, j->pos, j->spans, j->n_spans, e)
                          : check_rows(d, j->rows, e);

    assert(j->layer >= 0 && j->layer < d->model->hp.n_layers && j->rows > 0);
    if (code < 0)
        return code;
    d->route_job = j;
    d->ids = j->ids;
    run(d, j->rows, 0, route_region);
    return 0;
}

static void experts_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;

    experts_phases(d, tid, d->experts_job->layer, d->experts_job, d->entries, NULL);
}

static int cpu_experts(struct device *device, const struct experts_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int code = check_rows(d, j->rows, e), entries = 0;

    assert(j->layer >= 0 && j->layer < d->model->hp.n_layers && j->rows > 0);
    d->entries = 0;
    for (int g = 0; g < j->n_groups; g++) {
        entries = entries > j->groups[g].first + j->groups[g].count
                      ? entries
                      : j->groups[g].first + j->groups[g].count;
        d->entries += j->groups[g].count;
    }
    if (!code && entries > d->max_rows * d->model->hp.n_experts_used)
        code = error_set(e, ERR_DEVICE, "%d expert rows in one job; this device was opened for %d",
                         entries, d->max_rows * d->model->hp.n_experts_used);
    if (code < 0)
        return code;
    d->experts_job = j;
    d->strengths = j->strengths;
    run(d, j->rows, experts_work(d, j->layer, d->entries), experts_region);
    return 0;
}

static void combine_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    const struct combine_job *j = d->combine_job;
    int hidden = d->model->hp.hidden, stride = d->model->hp.n_experts_used;
    size_t beside = (size_t)hparams_beside(&d->model->hp);
    bool hyper = hparams_hyper(&d->model->hp);

    phase_open(d, tid, j->rows);
    for (int t; (t = phase_take(d, tid, 1)) < j->rows;) {
        if (hyper) /* the streams gain the sum alone */
            memset(j->x + (size_t)t * (size_t)hidden, 0, (size_t)hidden * sizeof *j->x);
        combine_row(d, tid, j->layer, j->out + (size_t)t * (size_t)hidden,
                    (ptrdiff_t)j->rows * hidden, j->weights + t * stride,
                    j->inputs ? j->inputs + (size_t)t * beside : NULL,
                    j->x + (size_t)t * (size_t)hidden);
    }
    phase_end(d, tid);
    inputs_phases(d, tid, j->layer, j->rows, j->inputs, j->x);
}

static int cpu_combine(struct device *device, const struct combine_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int code = check_rows(d, j->rows, e);

    assert(j->rows > 0 && j->x && j->out);
    if (code < 0)
        return code;
    d->combine_job = j;
    d->strengths = j->strengths;
    run(d, j->rows, 0, combine_region);
    return 0;
}

/* The head's input for a row of the stream. */
static void head_input(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    const struct model *m = d->model;
    const float *x = p->head->x + (size_t)t * (size_t)m->hp.hidden;

    if (!m->project_out) {
        norm_row(d, &m->hp.common.norms, &m->output_norm, x, row);
        return;
    }
    norm_row(d, &m->hp.common.norms, &m->output_norm, x, d->threads[tid].second);
    model_project(m->project_out, m->hp.embedding_width, m->hp.hidden, d->threads[tid].second, row);
}

static void join_input(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    const struct model *m = d->model;
    const struct join_job *j = p->join;
    size_t hidden = (size_t)m->hp.hidden, at = (size_t)t * hidden;

    norm_row(d, &m->hp.common.norms, &m->mtp.embedding_norm, j->embeddings + at, row);
    norm_row(d, &m->hp.common.norms, &m->mtp.hidden_norm, j->states + at, row + hidden);
}

static void multiply_input(struct cpu_device *d, int tid, const struct product *p, int t,
                           float *row)
{
    const struct multiply_job *j = p->multiply;

    memcpy(row, j->x + (size_t)t * (size_t)j->w->cols, (size_t)j->w->cols * sizeof *row);
}

static void product_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;

    product_phases(d, tid, &d->product);
}

static int run_product(struct cpu_device *d, struct product p, struct error *e)
{
    int code = check_rows(d, p.rows, e);

    if (code < 0)
        return code;
    d->product = p;
    run(d, p.rows, (double)p.rows * p.w->rows * p.w->cols, product_region);
    return 0;
}

static int cpu_head(struct device *device, const struct head_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct product p = {&d->model->head, head_input, j->rows, j->logits, .head = j};

    assert(j->rows > 0 && j->x && j->logits);
    d->strengths = j->strengths;
    return run_product(d, p, e);
}

static int cpu_multiply(struct device *device, const struct multiply_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct product p = {j->w, multiply_input, j->rows, j->y, .multiply = j};

    assert(j->rows > 0 && j->x && j->y && j->w->cols == d->model->hp.hidden);
    d->strengths = NULL;
    return run_product(d, p, e);
}

static void join_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;

    hyper_join(d, tid, d->join_job);
}

static int join_streams(struct cpu_device *d, const struct join_job *j, struct error *e)
{
    const struct matrix *w = &d->model->mtp.join;
    int code = check_rows(d, j->rows, e);

    assert(j->inputs);
    if (code < 0)
        return code;
    d->join_job = j;
    d->strengths = NULL;
    run(d, j->rows, (double)j->rows * d->model->hp.streams * w->rows * w->cols, join_region);
    return 0;
}

static int cpu_join(struct device *device, const struct join_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    struct product p = {&d->model->mtp.join, join_input, j->rows, j->x, .join = j};

    assert(j->rows > 0 && j->embeddings && j->x && p.w->rows);
    if (hparams_hyper(&d->model->hp))
        return join_streams(d, j, e);
    assert(j->states);
    return run_product(d, p, e);
}

static int cpu_inputs(struct device *device, const struct inputs_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int code = check_rows(d, j->rows, e);
    const struct matrix *w = &d->model->input_project;

    assert(j->rows > 0 && j->x && j->inputs);
    if (code < 0)
        return code;
    d->inputs_job = j;
    d->strengths = j->strengths;
    run(d, j->rows, (double)j->rows * w->rows * w->cols, inputs_region);
    return 0;
}

static void streams_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    const struct streams_job *j = d->streams_job;

    hyper_mixed(d, tid, j->layer, j->rows, j->inputs, j->y, j->x);
}

static int cpu_streams(struct device *device, const struct streams_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int code = check_rows(d, j->rows, e);

    if (code < 0)
        return code;
    d->streams_job = j;
    d->strengths = j->strengths;
    run(d, j->rows, 0, streams_region);
    return 0;
}

#define CAP_PIECE 4096 /* logits per task */

/* num_softcap of many: twice a sigmoid is exact, so that its fma is a subtraction. */
static void cap_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    float cap = d->model->hp.logit_cap, inverse = 1.0f / cap;
    int total = (int)((d->cap_job.n + CAP_PIECE - 1) / CAP_PIECE);

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        size_t from = (size_t)task * CAP_PIECE, left = d->cap_job.n - from;
        int count = left < CAP_PIECE ? (int)left : CAP_PIECE;
        float *x = d->cap_job.logits + from;

        for (int i = 0; i < count; i++)
            x[i] = 2.0f * (x[i] * inverse);
        d->k->sigmoid(x, count);
        for (int i = 0; i < count; i++)
            x[i] = cap * (2.0f * x[i] - 1.0f);
    }
    phase_end(d, tid);
}

static int cpu_cap(struct device *device, float *logits, size_t n, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;

    assert(d->model->hp.logit_cap > 0.0f);
    d->cap_job.logits = logits;
    d->cap_job.n = n;
    run(d, 1, 0, cap_region);
    return 0;
}

/* Keeps the stream that the mixer adds to: experts of a parallel layer see it as it was, or its
 * router does. */
static const float *keep_phase(struct cpu_device *d, int tid, int rows, const float *x)
{
    size_t hidden = (size_t)d->model->hp.hidden;

    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        memcpy(d->added + (size_t)t * hidden, x + (size_t)t * hidden, hidden * sizeof *x);
    phase_end(d, tid);
    return d->added;
}

/* Layers with a shortcut, identities, hyper-connections, a router by a row or a weighted stream run
 * as single jobs. */
static bool cpu_fuses(const struct device *device, int layer)
{
    const struct layer_shape *s = shape_of((const struct cpu_device *)device, layer);

    return s->shortcut == SHORTCUT_NONE && !s->ffn.router.identities && !s->ffn.router.row &&
           !s->weighted && !hparams_hyper(&((const struct cpu_device *)device)->model->hp);
}

static void layers_region(void *ctx, int tid, int n)
{
    struct cpu_device *d = ctx;
    const struct layers_job *j = d->layers_job;
    int used = d->model->hp.n_experts_used;

    for (int l = j->first; l < j->last; l++) {
        int *experts = j->experts + (size_t)(l - j->first) * (size_t)(j->rows * used);
        float *weights = j->weights + (size_t)(l - j->first) * (size_t)(j->rows * used);
        const float *before = j->x, *seen;

        if (shape_keeps_stream(shape_of(d, l)))
            before = keep_phase(d, tid, j->rows, j->x);
        seen = shape_of(d, l)->parallel ? before : j->x;
        if (shape_of(d, l)->mixer.kind != MIXER_NONE)
            mixer_phases(d, tid, l, j->rows, j->x, NULL, j->x);
        if (shape_of(d, l)->ffn.kind == FFN_NONE)
            continue;
        if (shape_sparse(&shape_of(d, l)->ffn))
            experts_sparse(d, tid, l, j->rows, j->x, experts, weights);
        else if (j->rows == 1)
            experts_one_row(d, tid, l, seen, before, j->x, experts, weights);
        else
            experts_many_rows(d, tid, l, j->rows, seen, before, j->x, experts, weights);
        inputs_phases(d, tid, l, j->rows, j->inputs, j->x);
    }
}

static double layer_work(const struct cpu_device *d, const struct layers_job *j, int layer)
{
    const struct layer_shape *s = shape_of(d, layer);

    return (s->mixer.kind == MIXER_NONE ? 0.0 : mixer_of(d, layer)->work(d, layer, j->rows)) +
           experts_work(d, layer, experts_wanted(d, j, layer) * shape_used(s));
}

static void choose_nobody(const struct layers_job *j, int layer, int n)
{
    for (int i = (layer - j->first) * n; i < (layer - j->first + 1) * n; i++) {
        j->experts[i] = -1;
        j->weights[i] = 0.0f;
    }
}

static int cpu_layers(struct device *device, const struct layers_job *j, struct error *e)
{
    struct cpu_device *d = (struct cpu_device *)device;
    double work = 0.0;
    int code = place_rows(d, j->rows, j->pos, j->spans, j->n_spans, e);

    assert(j->first >= 0 && j->first < j->last && j->last <= d->model->hp.n_layers);
    if (code < 0 || (code = fixed_begin(d, j->first, j->last, e)) < 0)
        return code;
    for (int l = j->first; l < j->last; l++) {
        work += layer_work(d, j, l);
        if (shape_of(d, l)->ffn.kind == FFN_NONE)
            choose_nobody(j, l, j->rows * d->model->hp.n_experts_used);
    }
    d->layers_job = j;
    d->ids = j->ids;
    d->strengths = j->strengths;
    run(d, j->rows, work, layers_region);
    fixed_end(d, j->first, j->last);
    return 0;
}

static int cpu_wait(struct device *device, struct error *e)
{
    return 0; /* jobs are done when they return */
}

static int cpu_kv_rows(struct device *device, const struct kv_move *m, struct error *e)
{
    return kv_move_rows((struct cpu_device *)device, m, e);
}

static int cpu_state_types(struct device *device, enum kv_type k, enum kv_type v, struct error *e)
{
    return kv_types_set((struct cpu_device *)device, k, v, e);
}

static int cpu_state_open(struct device *device, int session, struct error *e)
{
    return kv_state_open((struct cpu_device *)device, session, e);
}

static void cpu_state_close(struct device *device, int session)
{
    kv_state_close((struct cpu_device *)device, session);
}

static void cpu_state_memory(const struct device *device, struct state_memory *out)
{
    kv_state_memory((const struct cpu_device *)device, out);
}

static void cpu_state_rings(const struct device *device, int session, struct state_memory *out)
{
    kv_state_rings((const struct cpu_device *)device, session, out);
}

static size_t cpu_state_at(const struct device *device, int layer)
{
    return layout_of((const struct cpu_device *)device, layer)->at;
}

static uint8_t *const *cpu_state_pages(struct device *device, int session, int pos, int end,
                                       struct error *e)
{
    return kv_state_pages((struct cpu_device *)device, session, pos, end, e);
}

static int cpu_state_share(struct device *device, int from, int to, int n)
{
    return kv_state_share((struct cpu_device *)device, from, to, n);
}

static void cpu_state_cut(struct device *device, int session, int pos)
{
    kv_state_cut((struct cpu_device *)device, session, pos);
}

static uint64_t cpu_state_trim(struct device *device)
{
    return kv_state_trim((struct cpu_device *)device);
}

static int cpu_tune(struct device *device, int pos)
{
    struct cpu_device *d = (struct cpu_device *)device;
    int n;

    d->trial = true;
    n = tuning_later(d, pos);
    d->trial = false;
    return n;
}

static void kinds_stats(const struct cpu_device *d, struct device_stats *out)
{
    int cores[TOPOLOGY_KINDS];
    double share = 0;

    if (d->by_unit || topology_kinds(cores) < 2)
        return;
    out->fast_threads = (uint64_t)min_int(cores[0], d->decoding.use);
    out->slow_threads = (uint64_t)d->decoding.use - out->fast_threads;
    for (int i = cores[0]; i < d->decoding.use; i++)
        share += (double)d->decoding_shares.share[i] / POOL_SHARE;
    if (out->slow_threads)
        out->slow_share = (uint64_t)(1000 * share / (double)out->slow_threads + 0.5);
}

static void cpu_stats(const struct device *device, struct device_stats *out)
{
    const struct cpu_device *d = (const struct cpu_device *)device;
    size_t pages = (size_t)d->pool_kv.n_segments * (size_t)d->chunks_max - d->pool_kv.n_free;

    *out = d->stats;
    kinds_stats(d, out);
    out->kv_used_bytes = pages * d->page_bytes + (size_t)d->pool_kv.n_open * d->fixed_bytes;
    for (int i = 0; i < d->pool_kv.n_states && d->ring_bytes; i++)
        if (d->pool_kv.states[i].rings)
            out->kv_used_bytes += kv_rings_used(d, &d->pool_kv.states[i]);
}

static void cpu_observe(struct device *device, const struct device_observer *o)
{
    ((struct cpu_device *)device)->observer = o;
}

const struct device_ops cpu_device_ops = {
    .drafts = true,
    .name = "cpu",
    .summary = "the processor: vector kernels chosen at run time",
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .state_open = cpu_state_open,
    .state_close = cpu_state_close,
    .state_types = cpu_state_types,
    .state_share = cpu_state_share,
    .state_memory = cpu_state_memory,
    .state_rings = cpu_state_rings,
    .state_at = cpu_state_at,
    .state_pages = cpu_state_pages,
    .state_cut = cpu_state_cut,
    .state_trim = cpu_state_trim,
    .supports = cpu_supports,
    .block_put = cpu_block_put,
    .block_drop = cpu_block_drop,
    .attention = cpu_attention,
    .route = cpu_route,
    .experts = cpu_experts,
    .combine = cpu_combine,
    .fuses = cpu_fuses,
    .head = cpu_head,
    .cap = cpu_cap,
    .multiply = cpu_multiply,
    .join = cpu_join,
    .inputs = cpu_inputs,
    .streams = cpu_streams,
    .layers = cpu_layers,
    .wait = cpu_wait,
    .kv_rows = cpu_kv_rows,
    .tune = cpu_tune,
    .observe = cpu_observe,
    .stats = cpu_stats,
};
