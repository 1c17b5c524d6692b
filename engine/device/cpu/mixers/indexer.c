/* The lightning indexer of sparse latent attention (DeepSeek-V3.2-Exp's report; numerics.h, rule
 * 16): scores of all keys by thin heads of its own, and the choice of those that a row sees. Its
 * keys lie where values do in the layer's rows (state.h). The same of attention over blocks of keys
 * (modeling_qwen4_exp.py): a block's key is made of its positions' when it is scored, which is
 * little beside attention. What was chosen stays until the next job
 * of a layer with an indexer: later layers may share it. Compute threads, all together (cpu.h): a
 * job of few rows is divided by chunks of keys, then by rows; else a row is one task, whose scores
 * do not leave the core. */
#include "engine/device/cpu/cpu.h"

#include <math.h>
#include <string.h>

#define KEY_EPS 1e-6f /* modeling_deepseek_v32.py, DeepseekV32Indexer.k_norm */

static const struct mixer_shape *mixer_shape_of(const struct cpu_device *d, int layer)
{
    return &shape_of(d, layer)->mixer;
}

/* Rotates the first rope_dims values of one head, or the last ones (MIXER_COMPRESSED), as at a
 * position of row t's session. */
static void rotate_at(const struct cpu_device *d, const struct mixer_shape *m, int t, int position,
                      float *x)
{
    const struct span_place *at = &d->spans[d->span_of[t]];
    int half = m->rope_dims / 2;
    size_t turn = (size_t)position * (size_t)half;

    if (m->kind == MIXER_COMPRESSED)
        x += m->index_dim - m->rope_dims;
    (m->index_rope == ROPE_PAIRS ? d->k->rotary_pairs : d->k->rotary)(
        x, m->rope_dims, half, at->cos + turn, at->sin + turn, 1.0f);
}

static void rotate(const struct cpu_device *d, const struct mixer_shape *m, int t, float *x)
{
    rotate_at(d, m, t, row_position(d, t), x);
}

void indexer_finish_row(struct cpu_device *d, int layer, int t)
{
    const struct layer_weights *w = &d->model->layers[layer];
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int n = m->index_dim, heads = m->index_heads;
    float *key = d->index_keys + (size_t)t * (size_t)n,
          *weights = d->index_weights + (size_t)t * (size_t)heads,
          scale = (float)(1.0 / sqrt((double)heads * n));

    d->k->norm(key, n, w->index_norm, w->index_norm_bias, 1.0f / (float)n, KEY_EPS, key);
    rotate(d, m, t, key);
    kv_store_value(d, d->spans[d->span_of[t]].state, layer, 0, row_position(d, t), key);
    for (int h = 0; h < heads; h++)
        weights[h] = weights[h] * scale;
}

void indexer_finish_query(struct cpu_device *d, int layer, int t, float *x)
{
    const struct layer_shape *s = shape_of(d, layer);
    int n = s->mixer.index_dim;

    d->k->rms_norm(x, n, d->model->layers[layer].index_q_norm, 1.0f / (float)n, s->norms.eps, x);
    rotate(d, &s->mixer, t, x);
}

void indexer_store_key(struct cpu_device *d, int layer, int t, const float *key)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    float value[1024] = {0};

    memcpy(value, key, (size_t)m->index_dim * sizeof *key);
    kv_store_value(d, d->spans[d->span_of[t]].state, layer, m->kv_heads, row_position(d, t), value);
}

/* What row t chooses from, and how many of those: keys, or whole blocks of them. */
static int choices(const struct cpu_device *d, const struct mixer_shape *m, int t)
{
    int keys = row_position(d, t) + 1;

    return m->index_ratio ? keys / m->index_ratio : keys;
}

static int most_chosen(const struct mixer_shape *m)
{
    return m->index_ratio ? m->index_top / m->index_ratio : m->index_top;
}

static bool chooses(const struct cpu_device *d, const struct mixer_shape *m, int t)
{
    return choices(d, m, t) > most_chosen(m);
}

bool indexer_chooses(const struct cpu_device *d, int layer, int t0, int t1)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);

    while (t0 < t1 && !chooses(d, m, t0))
        t0++;
    return t0 < t1;
}

void indexer_query(struct cpu_device *d, int tid, int layer, int head, const struct input *in,
                   int t0, int t1)
{
    const struct matrix *w = &d->model->layers[layer].index_q;
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int n = m->index_dim, r0 = head * n;
    float *out = d->index_q + (size_t)t0 * (size_t)w->rows + r0;

    if (in->n == 1) {
        gemv(d, tid, w, r0, r0 + n, in, out, (struct prefetch_hint){0});
    } else {
        gemm_observe(d, w, r0, in, t0, t1);
        gemm_rows(d, tid, w, r0, r0 + n, in, t0, t1, out, w->rows);
    }
    for (int t = t0; t < t1; t++, out += w->rows)
        rotate(d, m, t, out);
}

/* The key of row t's block: the mean of its positions', normed and rotated as its first one is. */
static void block_key(struct cpu_device *d, int layer, int t, int block, float *key)
{
    const struct layer_shape *s = shape_of(d, layer);
    const struct mixer_shape *m = &s->mixer;
    const struct layer_layout *l = layout_of(d, layer);
    const struct span_place *at = &d->spans[d->span_of[t]];
    int n = m->index_dim, first = block * m->index_ratio, end = first + m->index_ratio;
    float mean[1024], by[NUM_CHUNK];

    for (int i = 0; i < min_int(m->index_ratio, NUM_CHUNK); i++)
        by[i] = 1.0f / (float)m->index_ratio;
    for (int pos = first, to; pos < end; pos = to) {
        const uint8_t *rows = kv_values(d, at->state, layer, m->kv_heads, pos / NUM_CHUNK) +
                              (size_t)(pos % NUM_CHUNK) * l->value_row;

        to = min_int(end, (pos / NUM_CHUNK + 1) * NUM_CHUNK);
        d->k->values[d->kv_v](rows, l->keeps.value_dim, by, 1, to - pos, pos > first, mean,
                              l->keeps.value_dim, rows);
    }
    d->k->rms_norm(mean, n, d->model->layers[layer].index_norm, 1.0f / (float)n, s->norms.eps, key);
    rotate_at(d, m, t, first, key);
}

/* Adds what heads say of n keys, rows of dim of a type; w: their weights, or NULL: 1. */
static void add_scores(struct cpu_device *d, struct thread_scratch *s, const void *keys,
                       enum kv_type type, int n, const struct mixer_shape *m, const float *q,
                       const float *w, float *out)
{
    int heads = m->index_heads, dim = m->index_dim;

    memset(out, 0, (size_t)n * sizeof *out);
    for (int h = 0; h < heads; h += KERNEL_QUERIES) {
        int nq = min_int(heads - h, KERNEL_QUERIES);

        d->k->latent_scores[type](keys, n, dim, q + h * dim, nq, s->scores);
        for (int i = 0; i < nq; i++) {
            const float *dots = s->scores + i * NUM_CHUNK;
            float by = w ? w[h + i] : 1.0f;

            for (int k = 0; k < n; k++)
                out[k] = out[k] + by * (dots[k] > 0.0f ? dots[k] : 0.0f);
        }
    }
}

void indexer_scores(struct cpu_device *d, struct thread_scratch *s, int layer, int t,
                    const void *keys, int n, float *out)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);

    add_scores(d, s, keys, d->kv_v, n, m,
               d->index_q + (size_t)t * (size_t)(m->index_heads * m->index_dim),
               d->index_weights + (size_t)t * (size_t)m->index_heads, out);
}

/* Scores of a row with the n first of a chunk that it chooses from, to out. */
static void score(struct cpu_device *d, struct thread_scratch *s, int layer, int t, int chunk,
                  int n, float *out)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    const float *q = d->index_q + (size_t)t * (size_t)(m->index_heads * m->index_dim);
    _Alignas(64) float keys[NUM_LANES * INDEXER_DIM_MOST];

    if (!m->index_ratio) {
        add_scores(d, s, kv_values(d, d->spans[d->span_of[t]].state, layer, 0, chunk), d->kv_v, n,
                   m, q, d->index_weights + (size_t)t * (size_t)m->index_heads, out);
        return;
    }
    for (int k = 0, some; k < n; k += some) {
        some = min_int(n - k, NUM_LANES);
        for (int i = 0; i < some; i++)
            block_key(d, layer, t, chunk * NUM_CHUNK + k + i, keys + i * m->index_dim);
        add_scores(d, s, keys, KV_F32, some, m, q, NULL, out + k);
    }
}

/* Bits of a score in the order of numbers. No score is -0: they are sums that begin with +0. */
static inline uint32_t rank_of(float score)
{
    uint32_t bits = num_bits(score);

    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

#define DIGITS 11 /* bits of a rank that are counted at a time */

/* The k-th largest rank of n; *ties becomes how many of those that are equal to it are among the k.
 */
static uint32_t kth_rank(const float *scores, int n, int k, int *ties)
{
    uint32_t rank = 0, known = 0;

    for (int shift = 32 - DIGITS, bits = DIGITS; bits; shift -= bits) {
        int count[1 << DIGITS] = {0}, digit = (1 << bits) - 1;
        uint32_t mask = ((uint32_t)1 << bits) - 1;

        for (int i = 0; i < n; i++) {
            uint32_t r = rank_of(scores[i]);

            if ((r & known) == rank)
                count[r >> shift & mask]++;
        }
        for (; digit > 0 && count[digit] < k; digit--)
            k -= count[digit];
        rank |= (uint32_t)digit << shift;
        known |= mask << shift;
        bits = shift < bits ? shift : bits;
    }
    *ties = k;
    return rank;
}

void indexer_choose(const float *scores, int n, int k, int *chosen)
{
    int ties, found = 0;
    uint32_t least = kth_rank(scores, n, k, &ties);

    for (int i = 0; i < n && found < k; i++) {
        uint32_t r = rank_of(scores[i]);

        if (r > least || (r == least && ties-- > 0))
            chosen[found++] = i;
    }
}

int *indexer_choice(const struct cpu_device *d, int t)
{
    return d->chosen + (size_t)t * (size_t)d->chosen_most;
}

const int *indexer_chosen(const struct cpu_device *d, int layer, int t)
{
    return chooses(d, mixer_shape_of(d, layer), t) ? indexer_choice(d, t) : NULL;
}

void indexer_hide(const struct cpu_device *d, int layer, int t, int begin, int end, float *scores)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    int ratio = m->index_ratio, k = 0, n = most_chosen(m);
    const int *chosen = indexer_choice(d, t);

    if (!chooses(d, m, t))
        return;
    end = min_int(end, choices(d, m, t) * ratio); /* behind them all are seen */
    for (int pos = begin; pos < end; pos++) {
        while (k < n && chosen[k] < pos / ratio)
            k++;
        if (k == n || chosen[k] != pos / ratio)
            scores[pos - begin] = -INFINITY;
    }
}

/* What a row chooses from in a chunk of those; 0 or less: nothing. */
static int keys_in(const struct cpu_device *d, const struct mixer_shape *m, int t, int chunk)
{
    return min_int(choices(d, m, t) - chunk * NUM_CHUNK, NUM_CHUNK);
}

static void scores_phase(struct cpu_device *d, int tid, int layer, int rows, int chunks)
{
    size_t stride = (size_t)d->chunks_max * NUM_CHUNK;
    int total = rows * chunks;

    phase_open(d, tid, total);
    for (int task; (task = phase_take(d, tid, 1)) < total;) {
        const struct mixer_shape *m = mixer_shape_of(d, layer);
        int t = task / chunks, chunk = task % chunks, n = keys_in(d, m, t, chunk);

        if (chooses(d, m, t) && n > 0)
            score(d, &d->threads[tid], layer, t, chunk, n,
                  d->index_scores + (size_t)t * stride + (size_t)chunk * NUM_CHUNK);
    }
    phase_end(d, tid);
}

void indexer_phases(struct cpu_device *d, int tid, int layer, int rows)
{
    const struct mixer_shape *m = mixer_shape_of(d, layer);
    size_t stride = (size_t)d->chunks_max * NUM_CHUNK;
    bool split = rows <= CPU_SPLIT_ROWS;
    int last = 0;

    if (!indexer_chooses(d, layer, 0, rows))
        return;
    for (int t = 0; t < rows; t++)
        last = choices(d, m, t) > last + 1 ? choices(d, m, t) - 1 : last;
    if (split)
        scores_phase(d, tid, layer, rows, last / NUM_CHUNK + 1);
    phase_open(d, tid, rows);
    for (int task; (task = phase_take(d, tid, 1)) < rows;) {
        int t = rows - 1 - task; /* the longest first */
        float *scores = split ? d->index_scores + (size_t)t * stride : d->threads[tid].index_scores;

        if (!chooses(d, m, t))
            continue;
        for (int c = 0, n; !split && (n = keys_in(d, m, t, c)) > 0; c++)
            score(d, &d->threads[tid], layer, t, c, n, scores + c * NUM_CHUNK);
        indexer_choose(scores, choices(d, m, t), most_chosen(m), indexer_choice(d, t));
    }
    phase_end(d, tid);
}
