/* See scratch.h. */
#include "engine/device/cpu/backend/scratch.h"
#include "engine/device/cpu/pieces.h"

/* A bump allocator over the scratch mapping; with base NULL it only adds up. */
struct arena {
    uint8_t *base;
    size_t used;
};

static void *arena_take(struct arena *c, size_t count, size_t size)
{
    size_t at = c->used;

    c->used += (count * size + 63) & ~(size_t)63;
    return c->base ? c->base + at : NULL;
}

/* Most tokens in panels at once. */
static size_t panel_rows(const struct cpu_device *d)
{
    return (size_t)(d->max_rows < KERNEL_FLOAT_TOKENS && !d->base.config.float_library
                        ? d->max_rows
                        : KERNEL_FLOAT_TOKENS);
}

/* Maxima over all layers: values of a row's queries, of its attended heads, of its keys if those
 * are normed whole; heads; a head's widths; rows of a task of the QKV phase. */
struct attention_widths {
    size_t queries, attended, gates, normed_keys, heads, key_dim, value_dim, task, head_experts;
    /* of all mixers: input of the output projection; of recurrent ones: columns of a row */
    size_t outputs, mixed;
    /* a row's values of a chunk; MLA: a row's latents, of all heads, the input of a head's part of
     * k_b or v_b */
    size_t split, latent, q_latent, latents, absorbed;
    size_t ones; /* a head's values, if they are normed without weights */
    /* of convolved attention: inputs and outputs of the second convolution of a head, or a row's
     * values */
    size_t convolved;
    /* of indexers: a key, all heads, all weights, most keys chosen; bytes of a row that is */
    size_t index_dim, index_q, index_weights, chosen, selected;
    /* of MIXER_COMPRESSED: what a token gives to compressed rows; chunks that a query may have, in
     * chunks of the context, for compressed rows come to the tokens' own */
    size_t compressed, lists;
};

/* MLA: a query is as wide as a cached row, its values as the unrotated part of it. */
static void widen_latent(struct attention_widths *w, const struct mixer_shape *m)
{
    size_t heads = (size_t)m->heads, rank = (size_t)m->kv_rank, dims = rank + (size_t)m->rope_dims,
           nope = (size_t)(m->key_dim - m->rope_dims);

    w->queries = scratch_most(w->queries, heads * dims);
    w->key_dim = scratch_most(w->key_dim, dims);
    w->value_dim = scratch_most(w->value_dim, rank);
    w->split = scratch_most(w->split, heads * rank);
    w->latents = scratch_most(w->latents, heads * rank);
    w->latent = scratch_most(w->latent, dims);
    w->q_latent = scratch_most(w->q_latent, (size_t)m->q_rank);
    w->absorbed = scratch_most(w->absorbed, scratch_most(rank, nope));
    w->index_dim = scratch_most(w->index_dim, (size_t)m->index_dim);
    w->index_q = scratch_most(w->index_q, (size_t)m->index_heads * (size_t)m->index_dim);
    w->index_weights = scratch_most(w->index_weights, (size_t)m->index_heads);
    w->chosen = scratch_most(w->chosen, (size_t)m->index_top);
}

/* Attention to compressed keys: all values of a head, and each group's output. */
static void widen_compressed(struct attention_widths *w, const struct mixer_shape *m)
{
    size_t key = (size_t)m->key_dim, out = (size_t)m->out_groups * (size_t)m->out_rank;

    w->outputs = scratch_most(w->outputs, out);
    w->latents = scratch_most(w->latents, out);
    w->latent = scratch_most(w->latent, key);
    w->q_latent = scratch_most(w->q_latent, (size_t)m->q_rank);
    w->task = scratch_most(w->task, scratch_most(key, CPU_WIDE) + NUM_LANES);
    w->ones = scratch_most(w->ones, key);
    w->compressed = scratch_most(w->compressed, (size_t)shape_compressed(m));
    w->index_dim = scratch_most(w->index_dim, (size_t)shape_index_compressed(m));
    w->index_q = scratch_most(w->index_q, (size_t)m->index_heads * (size_t)m->index_dim);
    w->index_weights = scratch_most(w->index_weights, (size_t)m->index_heads);
    w->chosen = scratch_most(w->chosen, (size_t)m->index_top);
    w->lists = 2;
}

/* Of blocks of keys, for attention. */
static void widen_blocks(struct attention_widths *w, const struct mixer_shape *m)
{
    w->index_q = scratch_most(w->index_q, (size_t)m->index_heads * (size_t)m->index_dim);
    w->chosen = scratch_most(w->chosen, (size_t)m->index_top);
    w->task = scratch_most(w->task, (size_t)m->index_dim);
}

static struct attention_widths widest(const struct cpu_device *d)
{
    struct attention_widths w = {.lists = 1};

    for (int l = 0; l < d->model->hp.n_layers; l++) {
        const struct mixer_shape *m = &shape_of(d, l)->mixer;
        const struct layer_layout *a = layout_of(d, l);
        size_t heads = (size_t)m->heads, keys = (size_t)m->key_dim,
               values = (size_t)shape_value_dim(m);

        w.outputs = scratch_most(w.outputs, heads * values);
        w.mixed = scratch_most(w.mixed,
                               (size_t)(recurrent_width(d, l) + shape_convolved_columns(m)));
        w.outputs = scratch_most(w.outputs, (size_t)(m->a_rank + m->z_rank));
        if (m->kind == MIXER_NONE || shape_recurrent(m))
            continue;
        w.queries = scratch_most(w.queries, heads * keys);
        w.attended = scratch_most(w.attended, heads * values);
        if (m->gated)
            w.gates = scratch_most(w.gates, m->kind == MIXER_MLA ? heads : heads * values);
        if (m->qk_norm == QK_NORM_WHOLE)
            w.normed_keys = scratch_most(w.normed_keys, (size_t)m->kv_heads * keys);
        w.split = scratch_most(w.split, heads * values);
        if (m->kind == MIXER_MLA)
            widen_latent(&w, m);
        else if (m->index_top)
            widen_blocks(&w, m);
        if (m->kind == MIXER_CONVOLVED)
            w.convolved = scratch_most(w.convolved,
                                       scratch_most((size_t)(m->head_taps + 1) * keys + NUM_LANES,
                                                    2 * (size_t)shape_half_values(m)));
        if (m->kind == MIXER_COMPRESSED)
            widen_compressed(&w, m);
        if (m->kind == MIXER_COMPRESSED && m->index_heads)
            w.selected = scratch_most(w.selected, kv_type_bytes(d->kv_v, m->index_dim));
        if (m->index_top || m->kind == MIXER_COMPRESSED)
            w.selected = scratch_most(w.selected, a->key_block / NUM_LANES);
        if (m->value_norm)
            w.ones = scratch_most(w.ones, values);
        w.heads = scratch_most(w.heads, heads);
        w.head_experts = scratch_most(w.head_experts, (size_t)m->experts);
        w.key_dim = scratch_most(w.key_dim, keys);
        w.value_dim = scratch_most(w.value_dim, values);
        w.task = scratch_most(w.task, scratch_most((size_t)(shape_query_dim(m) * a->key_heads),
                                                   values * (size_t)a->value_heads));
    }
    return w;
}

static size_t whole_lanes(int n)
{
    return (size_t)(n + NUM_LANES - 1) / NUM_LANES * NUM_LANES;
}

/* What a layer's router multiplies with its matrix: the input, or a row made of it. */
static size_t router_cols(const struct cpu_device *d, int layer)
{
    int row = shape_of(d, layer)->ffn.router.row;

    return (size_t)(row ? row : d->model->hp.hidden);
}

static void lay_deep_routers(struct cpu_device *d, struct arena *c)
{
    const struct hparams *hp = &d->model->hp;

    if (!hp->router_row)
        return;
    d->deep = arena_take(c, (size_t)hp->n_layers, sizeof *d->deep);
    d->router_rows = arena_take(c, (size_t)d->max_rows * 2 * (size_t)hp->router_row, sizeof(float));
    for (int l = 0; l < hp->n_layers; l++) {
        int n = shape_of(d, l)->ffn.router.row;
        float *in = arena_take(c, whole_lanes(n) * (size_t)(n ? hp->hidden : 0), sizeof(float)),
              *first = arena_take(c, whole_lanes(n) * (size_t)n, sizeof(float)),
              *second = arena_take(c, whole_lanes(n) * (size_t)n, sizeof(float));

        if (c->base)
            d->deep[l] = (struct deep_router){in, first, second};
    }
}

/* Of all heads of the layer, one after the other. */
static void lay_head_convolutions(struct cpu_device *d, struct arena *c)
{
    const struct hparams *hp = &d->model->hp;

    d->head_conv = arena_take(c, (size_t)hp->n_layers, sizeof *d->head_conv);
    for (int l = 0; l < hp->n_layers; l++) {
        const struct mixer_shape *m = &shape_of(d, l)->mixer;
        size_t n = m->kind == MIXER_CONVOLVED
                       ? (size_t)(m->heads + m->kv_heads) * whole_lanes(m->key_dim) *
                             (size_t)(m->head_taps * m->key_dim)
                       : 0;
        float *packed = arena_take(c, n, sizeof(float));

        if (c->base)
            d->head_conv[l] = packed;
    }
}

/* Most values that are normed without weights. */
static size_t ones_of(const struct cpu_device *d)
{
    const struct hparams *hp = &d->model->hp;

    return scratch_most(widest(d).ones, hparams_hyper(hp) ? (size_t)(hp->streams * hp->hidden) : 0);
}

/* Sizes that many parts have: rows of a job, experts of a row, values of the stream, of the widest
 * feed-forward, of the widest input of a product outside the experts, and of any; normed rows of a
 * row; chunks of a context. */
struct sizes {
    size_t rows, used, hidden, ffn, head, wide, normed, chunks;
    bool after;  /* something follows an operator's output, or its input is kept */
    bool sparse; /* some layer counts its largest gates alone */
    struct attention_widths a;
};

static struct sizes sizes_of(const struct cpu_device *d)
{
    const struct hparams *hp = &d->model->hp;
    struct sizes z = {.rows = (size_t)d->max_rows,
                      .used = (size_t)hp->n_experts_used,
                      .hidden = (size_t)hp->hidden,
                      .ffn = (size_t)d->widest_ffn,
                      .normed = 1,
                      .chunks = (size_t)d->chunks_max,
                      .after = shape_of(d, 0)->inputs > 0,
                      .a = widest(d)};

    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_shape *s = shape_of(d, l);

        z.normed = scratch_most(z.normed, (size_t)shape_normed_rows(s));
        z.after |= s->norms.after || s->weighted || shape_keeps_stream(s);
        z.sparse |= shape_sparse(&s->ffn);
        z.head = scratch_most(z.head, (size_t)s->mixer.ngrams.width);
    }
    z.head = scratch_most(z.head, scratch_most(z.hidden, (size_t)shape_of(d, 0)->inputs));
    z.head = scratch_most(z.head, scratch_most((size_t)d->model->head.cols,
                                               (size_t)d->model->mtp.join.cols));
    if (z.sparse)
        z.head = scratch_most(z.head, z.ffn);
    if (hparams_hyper(hp))
        z.head = scratch_most(z.head, scratch_most((size_t)hp->streams * z.hidden,
                                                   (size_t)hp->stream_rank));
    z.wide = scratch_most(scratch_most(z.head, z.a.outputs),
                          scratch_most(z.a.q_latent, z.a.latent));
    z.wide = scratch_most(z.wide, (size_t)hp->laurel);
    return z;
}

/* Of a layer's own inputs and of several streams. */
static void lay_streams(struct cpu_device *d, struct arena *c, const struct sizes *z)
{
    const struct hparams *hp = &d->model->hp;
    size_t inputs = (size_t)shape_of(d, 0)->inputs, n = (size_t)hp->streams;

    if (inputs) {
        d->projected = arena_take(c, z->rows * (size_t)hparams_inputs(hp), sizeof(float));
        d->input_gates = arena_take(c, z->rows * inputs, sizeof(float));
    }
    if (hp->laurel) {
        d->laurel_in = arena_take(c, z->rows * (size_t)hp->laurel, sizeof(float));
        d->laurel_out = arena_take(c, z->rows * z->hidden, sizeof(float));
    }
    if (hparams_hyper(hp)) {
        d->hyper_low = arena_take(c, z->rows * (size_t)hp->stream_rank, sizeof(float));
        d->hyper_gates = arena_take(c, hp->stream_rank ? z->rows * n * z->hidden : 0,
                                    sizeof(float));
        d->hyper_mix = arena_take(c, z->rows * n * (n + 2), sizeof(float));
    }
}

/* Of n-grams: of the widest layer that has some. */
static void lay_ngrams(struct cpu_device *d, struct arena *c, const struct sizes *z)
{
    size_t width = 0, channels = 0;

    for (int l = 0; l < d->model->hp.n_layers; l++) {
        const struct ngram_shape *s = &shape_of(d, l)->mixer.ngrams;

        width = scratch_most(width, (size_t)s->width);
        channels = scratch_most(channels, (size_t)s->channels);
    }
    if (!channels)
        return;
    d->ngrams.embedded = arena_take(c, z->rows * width, sizeof(float));
    d->ngrams.keys = arena_take(c, z->rows * channels, sizeof(float));
    d->ngrams.values = arena_take(c, z->rows * z->hidden, sizeof(float));
    d->ngrams.convolved = arena_take(c, z->rows * channels, sizeof(float));
    d->ngrams.x = arena_take(c, z->rows * z->hidden, sizeof(float));
}

/* Of mixers that choose or compress keys. */
static void lay_chosen(struct cpu_device *d, struct arena *c, const struct sizes *z)
{
    const struct attention_widths *a = &z->a;

    if (a->chosen) {
        d->chosen_most = min_int((int)a->chosen, d->context);
        d->index_keys = arena_take(c, z->rows * a->index_dim, sizeof(float));
        d->index_q = arena_take(c, z->rows * a->index_q, sizeof(float));
        d->index_weights = arena_take(c, z->rows * a->index_weights, sizeof(float));
        d->index_scores = arena_take(c, CPU_SPLIT_ROWS * z->chunks * NUM_CHUNK, sizeof(float));
        d->chosen = arena_take(c, z->rows * (size_t)d->chosen_most, sizeof *d->chosen);
    }
    if (a->compressed) {
        d->compress_keys = arena_take(c, z->rows * a->compressed, sizeof(float));
        d->compress_gates = arena_take(c, z->rows * a->compressed, sizeof(float));
        if (a->index_dim)
            d->index_gates = arena_take(c, z->rows * a->index_dim, sizeof(float));
    }
}

static void lay_mixers(struct cpu_device *d, struct arena *c, const struct sizes *z)
{
    const struct attention_widths *a = &z->a;
    size_t split = CPU_SPLIT_ROWS * z->chunks * a->lists, fixed = 0;

    d->mixed = arena_take(c, z->rows * a->mixed, sizeof(float));
    d->q = arena_take(c, z->rows * a->queries, sizeof(float));
    if (a->gates)
        d->gates = arena_take(c, z->rows * a->gates, sizeof(float));
    if (a->normed_keys)
        d->keys = arena_take(c, z->rows * a->normed_keys, sizeof(float));
    d->attended = arena_take(c, z->rows * a->attended, sizeof(float));
    if (a->latent) {
        d->latent = arena_take(c, z->rows * a->latent, sizeof(float));
        d->q_latent = arena_take(c, z->rows * a->q_latent, sizeof(float));
        d->latents = arena_take(c, z->rows * a->latents, sizeof(float));
    }
    lay_chosen(d, c, z);
    d->list_chunks = (int)(z->chunks * a->lists);
    d->chunk_o = arena_take(c, split * a->split, sizeof(float));
    d->chunk_max = arena_take(c, split * a->heads, sizeof(float));
    d->chunk_sum = arena_take(c, split * a->heads, sizeof(float));
    for (int l = 0; l < d->model->hp.n_layers; l++)
        fixed = scratch_most(fixed, layout_of(d, l)->keeps.fixed_bytes);
    if (fixed)
        d->spare = arena_take(c, fixed, 1);
}

static void lay_experts(struct cpu_device *d, struct arena *c, const struct sizes *z)
{
    size_t entries = z->rows * z->used;

    if (d->has_quantised) {
        d->act = arena_take(
            c, scratch_most(entries * (z->hidden / NUM_BLOCK), z->rows * (z->wide / NUM_BLOCK)),
            sizeof *d->act);
        d->act_down = arena_take(c, entries * (z->ffn / NUM_BLOCK), sizeof *d->act_down);
    }
    if (d->has_float) {
        d->gathered = arena_take(c, entries * z->hidden, sizeof(float));
        d->ffn = arena_take(c, entries * z->ffn, sizeof(float));
    }
    if (z->sparse)
        d->sparse = arena_take(c, 2 * z->rows * z->ffn, sizeof(float));
    d->out = arena_take(c, entries * z->hidden, sizeof(float));
    d->entry_row = arena_take(c, entries, sizeof(int));
    d->entry_slot = arena_take(c, entries, sizeof(int));
    d->groups = arena_take(c, (size_t)d->model->hp.n_experts, sizeof *d->groups);
    d->gate_piece = arena_take(c, (size_t)d->model->hp.n_layers, sizeof *d->gate_piece);
}

static void lay_routers(struct cpu_device *d, struct arena *c, const struct sizes *z)
{
    size_t layers = (size_t)d->model->hp.n_layers;

    d->router = arena_take(c, layers, sizeof *d->router);
    d->head_router = arena_take(c, layers, sizeof *d->head_router);
    d->stream_router = arena_take(c, layers, sizeof *d->stream_router);
    for (int l = 0; l < d->model->hp.n_layers; l++) {
        size_t groups = (size_t)router_groups(&shape_of(d, l)->ffn),
               of_heads = (size_t)head_groups(&shape_of(d, l)->mixer),
               of_streams = d->model->hp.streams && !hparams_hyper(&d->model->hp) ? 1 : 0;
        float *r = arena_take(c, groups * NUM_LANES * router_cols(d, l), sizeof(float)),
              *h = arena_take(c, of_heads * NUM_LANES * z->hidden, sizeof(float)),
              *s = arena_take(c, of_streams * NUM_LANES * z->hidden, sizeof(float));

        if (c->base) {
            d->router[l] = r;
            d->head_router[l] = h;
            d->stream_router[l] = s;
        }
    }
    lay_deep_routers(d, c);
    lay_head_convolutions(d, c);
}

/* What a thread has for products. */
static void lay_products(const struct cpu_device *d, struct arena *c, const struct sizes *z,
                         struct thread_scratch *s)
{
    size_t tokens = CPU_TOKENS_MOST, wide = scratch_most(z->wide, z->ffn);

    s->act = arena_take(c, z->wide / NUM_BLOCK + 1, sizeof *s->act);
    s->row = arena_take(c, wide, sizeof(float));
    if (z->normed > 1 || d->model->project_out) {
        s->second = arena_take(c, z->hidden, sizeof(float));
        if (d->has_quantised)
            s->second_act = arena_take(c, z->hidden / NUM_BLOCK + 1, sizeof *s->second_act);
    }
    s->tile = arena_take(c,
                         scratch_most(tokens * scratch_most(z->a.task, CPU_WIDE),
                                      PIECE_UNITS_MOST * CPU_UNIT * scratch_most(z->used, 2)),
                         sizeof(float));
    if (z->a.latent && d->has_quantised)
        s->panels = arena_take(c, tokens * (z->a.absorbed / NUM_BLOCK), sizeof *s->panels);
    if (d->has_quantised)
        s->groups = arena_take(c, CPU_RAW_GROUPS, d->group_bytes);
    if (d->has_order) {
        s->ordered_row = arena_take(c, wide, sizeof(float));
        for (int k = 0; k < 2; k++)
            s->ordered[k].panels = arena_take(c, tokens * (wide / NUM_BLOCK + 1),
                                              sizeof(struct act_block));
    }
    for (int k = 0; k < 2 && d->lora_rank; k++)
        s->adapted[k].w = arena_take(c, tokens * (size_t)d->lora_rank, sizeof(float));
    if (d->has_float) {
        s->panel = arena_take(c, panel_rows(d) * (size_t)kernel_float_cols((int)wide),
                              sizeof(float));
        if (d->base.config.float_library)
            s->widened = arena_take(c, CPU_WIDEN * wide, sizeof(float));
    }
}

/* What a thread has for the output projections of heads that are routed. */
static void lay_parts(const struct cpu_device *d, struct arena *c, struct thread_scratch *s)
{
    size_t cols = 0, bytes = 0;

    for (int l = 0; l < d->model->hp.n_layers; l++) {
        const struct matrix *o = &d->model->layers[l].o;
        size_t own = parts_cols(&shape_of(d, l)->mixer);

        cols = scratch_most(cols, own);
        if (own)
            bytes = scratch_most(bytes, NUM_LANES * dtype_row_bytes(o->type, o->cols));
    }
    s->parts.units = arena_take(c, cols / NUM_BLOCK + 1, sizeof *s->parts.units);
    s->parts.weights = arena_take(c, bytes, 1);
    s->parts.act = arena_take(c, cols / NUM_BLOCK + 1, sizeof *s->parts.act);
    s->parts.row = arena_take(c, cols, sizeof(float));
    s->parts.panel = arena_take(c, cols, sizeof(float));
}

/* What a thread has for mixers and routers. */
static void lay_attention(const struct cpu_device *d, struct arena *c, const struct sizes *z,
                          struct thread_scratch *s)
{
    const struct attention_widths *a = &z->a;
    size_t parts = a->chosen ? (size_t)(d->chosen_most + NUM_CHUNK - 1) / NUM_CHUNK : 1;

    s->scores = arena_take(c, KERNEL_QUERIES * NUM_CHUNK, sizeof(float));
    s->queries = arena_take(c, KERNEL_QUERIES * a->key_dim, sizeof(float));
    if (a->selected)
        s->selected = arena_take(c, parts * NUM_CHUNK, a->selected);
    if (a->chosen) {
        s->selected_for = arena_take(c, parts, sizeof *s->selected_for);
        s->index_scores = arena_take(c, z->chunks * NUM_CHUNK, sizeof(float));
    }
    s->partial = arena_take(c, KERNEL_QUERIES * z->chunks * a->lists * (a->value_dim + 2),
                            sizeof(float));
    s->router =
        arena_take(c, scratch_most((size_t)d->model->hp.n_experts, a->head_experts) + 2 * NUM_LANES,
                   sizeof(float));
    s->convolved = arena_take(c, a->convolved, sizeof(float));
}

size_t scratch_lay(struct cpu_device *d, uint8_t *base)
{
    struct arena arena = {.base = base}, *c = &arena;
    const struct sizes z = sizes_of(d);

    d->threads = arena_take(c, (size_t)d->n_threads, sizeof *d->threads);
    d->normed = arena_take(c, scratch_most(z.normed * z.rows * z.hidden, z.rows * z.head),
                           sizeof(float));
    if (z.after)
        d->added = arena_take(c, z.rows * z.hidden, sizeof(float));
    d->ones = arena_take(c, ones_of(d), sizeof(float));
    d->spans = arena_take(c, z.rows, sizeof *d->spans);
    d->span_of = arena_take(c, z.rows, sizeof *d->span_of);
    lay_streams(d, c, &z);
    lay_ngrams(d, c, &z);
    lay_experts(d, c, &z);
    lay_mixers(d, c, &z);
    lay_routers(d, c, &z);
    for (int i = 0; i < d->n_threads; i++) {
        struct thread_scratch s = {0};

        lay_products(d, c, &z, &s);
        lay_attention(d, c, &z, &s);
        lay_parts(d, c, &s);
        if (base)
            d->threads[i] = s;
    }
    return arena.used;
}

/* Packs row e of the router's matrix into groups of 16, one per lane; lanes beyond the last are
 * zero. */
static void pack_router_row(const float *from, int hidden, int e, float *to)
{
    for (int c = 0; c < hidden; c++)
        to[((size_t)(e / NUM_LANES) * (size_t)hidden + (size_t)c) * NUM_LANES +
           (size_t)(e % NUM_LANES)] = from[c];
}

static void pack_router(const struct cpu_device *d, int layer, float *to)
{
    const struct layer_weights *w = &d->model->layers[layer];
    const struct ffn_shape *s = &shape_of(d, layer)->ffn;
    int cols = (int)router_cols(d, layer);

    for (int e = 0; w->head_router && e < shape_of(d, layer)->mixer.experts; e++)
        pack_router_row(w->head_router + (size_t)e * (size_t)d->model->hp.hidden,
                        d->model->hp.hidden, e, d->head_router[layer]);
    for (int i = 0; w->stream_router && i < d->model->hp.streams; i++)
        pack_router_row(w->stream_router + (size_t)i * (size_t)d->model->hp.hidden,
                        d->model->hp.hidden, i, d->stream_router[layer]);
    for (int e = 0; e < shape_choices(s); e++)
        pack_router_row(w->router + (size_t)e * (size_t)cols, cols, e, to);
    if (router_rows(s) > shape_choices(s))
        pack_router_row(w->shared_router, cols, shape_choices(s), to);
}

static void pack_deep_router(const struct cpu_device *d, int layer)
{
    const struct router_weights *w = &d->model->layers[layer].router_row;
    int n = shape_of(d, layer)->ffn.router.row, hidden = d->model->hp.hidden;

    for (int i = 0; i < n; i++) {
        pack_router_row(w->in + (size_t)i * (size_t)hidden, hidden, i, d->deep[layer].in);
        pack_router_row(w->first + (size_t)i * (size_t)n, n, i, d->deep[layer].first);
        pack_router_row(w->second + (size_t)i * (size_t)n, n, i, d->deep[layer].second);
    }
}

/* A row of a head's matrix holds its taps one after the other. */
static void pack_head_convolution(const struct cpu_device *d, int layer)
{
    const struct mixer_shape *m = &shape_of(d, layer)->mixer;
    const float *from = d->model->layers[layer].head_conv;
    size_t n = (size_t)m->key_dim, cols = n * (size_t)m->head_taps,
           channels = (size_t)shape_channels(m), head = whole_lanes(m->key_dim) * cols;

    for (size_t c = 0; m->kind == MIXER_CONVOLVED && c < channels; c++)
        for (size_t i = 0; i < cols; i++)
            d->head_conv[layer][c / n * head + (c % n / NUM_LANES * cols + i) * NUM_LANES +
                                c % n % NUM_LANES] = from[(i / n * channels + c) * n + i % n];
}

static void pack_weights(const struct cpu_device *d, int layer)
{
    pack_router(d, layer, d->router[layer]);
    if (shape_of(d, layer)->ffn.router.row)
        pack_deep_router(d, layer);
    pack_head_convolution(d, layer);
}

void scratch_fill(struct cpu_device *d)
{
    for (int l = 0; l < d->model->hp.n_layers; l++)
        pack_weights(d, l);
    for (size_t i = 0, n = ones_of(d); i < n; i++)
        d->ones[i] = 1.0f;
}
