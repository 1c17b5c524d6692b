/* Several residual streams (alternating updates, Baykal et al., arXiv:2301.13310), the learned
 * residual beside a mixer, and dense layers of which only the largest gates count: Gemma 3n, after
 * modeling_gemma3n.py (Hugging Face). Compute threads, all together (cpu.h).
 *
 * Numbers as in numerics.h, F32 (n streams, the first one is x; a row of `beside` holds the others
 * behind what x was predicted to be): t_i = tanh, by num_softcap, of rule 3 of the router's row i
 * with rule 5 of x, times 1/hidden. Before a layer stream b becomes s_b + (v_b0 * s_0, then upwards
 * fma(v_ba, s_a, .)), v_ba = rule 3 of row b * n + a of the first matrix with t. After it stream i
 * becomes fma(c_i, x - predicted x, s_i), c_i = rule 3 of row i of the second matrix with t, + 1.
 * What the layer's own inputs give (rule 15; its gates from x times the weights) is added to all
 * but x. A matrix of the others makes them from the embedding, and another what is added to x at
 * the end, / n, each scaled to the root of x's mean square. The stream behind a mixer's output y:
 * ((x + y) + (h + norm(out(in(h))))) * sqrt(1/2). Gates count from their mean plus limit times
 * their deviation on (sums by rule 4): num_activate of max(gate - that, 0). */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define LEAST_SQUARE 1e-5f

static float *beside_of(const struct cpu_device *d, float *beside, int row, int stream)
{
    const struct hparams *hp = &d->model->hp;

    return beside + (size_t)row * (size_t)hparams_beside(hp) + hparams_inputs(hp) +
           (size_t)stream * (size_t)hp->hidden;
}

static float mean_square(const float *x, int n)
{
    float lanes[NUM_LANES] = {0};

    for (int i = 0; i < n; i++)
        lanes[i % NUM_LANES] = fmaf(x[i], x[i], lanes[i % NUM_LANES]);
    return num_fold(lanes) * (1.0f / (float)n);
}

static float root(float x)
{
    return x > 0.0f ? x * num_rsqrt(x) : 0.0f;
}

/* Scales a row so that its mean square is `square`. */
static void scale_to(float *x, int n, float square)
{
    float has = mean_square(x, n),
          by = root(square) * num_rsqrt(has > LEAST_SQUARE ? has : LEAST_SQUARE);

    for (int i = 0; i < n; i++)
        x[i] = x[i] * by;
}

/* How a layer mixes its streams, from its active one. row: scratch. */
static void mixing(const struct cpu_device *d, int layer, const float *x, float *row, float *t)
{
    int hidden = d->model->hp.hidden;
    float by = 1.0f / (float)hidden, scores[NUM_LANES];

    norm_row(d, &shape_of(d, layer)->norms, &d->model->layers[layer].stream_norm, x, row);
    for (int i = 0; i < hidden; i++)
        row[i] = row[i] * by;
    d->k->router(d->stream_router[layer], 1, hidden, row, scores);
    for (int i = 0; i < d->model->hp.streams; i++)
        t[i] = num_softcap(scores[i], 1.0f, 1.0f);
}

#define COLUMNS 128 /* of the streams, at a time */

/* x and the others become what the layer is predicted to begin with. */
static void predict_row(struct cpu_device *d, int tid, int layer, float *x, float *beside, int row)
{
    const float *predict = d->model->layers[layer].stream_predict;
    int hidden = d->model->hp.hidden, n = d->model->hp.streams;
    float t[HPARAMS_STREAMS_MOST], v[HPARAMS_STREAMS_MOST * HPARAMS_STREAMS_MOST],
        before[HPARAMS_STREAMS_MOST][COLUMNS];

    mixing(d, layer, x, d->threads[tid].row, t);
    for (int i = 0; i < n * n; i++)
        v[i] = num_dot(predict + i * n, t, n);
    for (int c = 0; c < hidden; c += COLUMNS) {
        int count = min_int(hidden - c, COLUMNS);

        for (int i = 0; i < n; i++)
            memcpy(before[i], (i ? beside_of(d, beside, row, i) : x) + c,
                   (size_t)count * sizeof *x);
        for (int i = 0; i < n; i++)
            d->k->combine(before[i], before[0], COLUMNS, v + i * n, n, count,
                          (i ? beside_of(d, beside, row, i) : x) + c);
    }
    memcpy(beside_of(d, beside, row, 0), x, (size_t)hidden * sizeof *x);
}

/* to = fma(by, change, from), of n <= COLUMNS values. */
static void correct(const struct cpu_device *d, float by, const float *change, const float *from,
                    int n, float *to)
{
    static const float zero[COLUMNS];
    float of[2][COLUMNS], w[2] = {1.0f, by};

    memcpy(of[0], from, (size_t)n * sizeof *from);
    memcpy(of[1], change, (size_t)n * sizeof *change);
    d->k->combine(zero, of[0], COLUMNS, w, 2, n, to);
}

/* The streams after the layer, from what it made of x. */
static void correct_row(struct cpu_device *d, int tid, int layer, float *x, float *beside, int row)
{
    const float *by_row = d->model->layers[layer].stream_correct,
                *predicted = beside_of(d, beside, row, 0);
    int hidden = d->model->hp.hidden, n = d->model->hp.streams;
    float t[HPARAMS_STREAMS_MOST], by[HPARAMS_STREAMS_MOST], change[COLUMNS];

    mixing(d, layer, x, d->threads[tid].row, t);
    for (int i = 0; i < n; i++)
        by[i] = num_dot(by_row + i * n, t, n) + 1.0f;
    for (int c = 0; c < hidden; c += COLUMNS) {
        int count = min_int(hidden - c, COLUMNS);

        for (int i = 0; i < count; i++)
            change[i] = x[c + i] - predicted[c + i];
        for (int i = 1; i < n; i++) {
            float *s = beside_of(d, beside, row, i) + c;

            correct(d, by[i], change, s, count, s);
        }
        correct(d, by[0], change, predicted + c, count, x + c);
    }
}

static void predict_phase(struct cpu_device *d, int tid, int layer, int rows, float *beside,
                          float *x)
{
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        predict_row(d, tid, layer, x + (size_t)t * (size_t)d->model->hp.hidden, beside, t);
    phase_end(d, tid);
}

static void x_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    memmove(row, p->x + (size_t)t * (size_t)p->w->cols, (size_t)p->w->cols * sizeof *row);
}

void streams_begin(struct cpu_device *d, int tid, int rows, float *beside, float *x)
{
    int hidden = d->model->hp.hidden;

    for (int i = 1; i < d->model->hp.streams; i++) {
        struct product p = {&d->model->stream_in[i - 1], x_row, rows, d->added, .x = x};

        product_phases(d, tid, &p);
        phase_open(d, tid, rows);
        for (int t; (t = phase_take(d, tid, 1)) < rows;) {
            float *to = beside_of(d, beside, t, i);

            memcpy(to, d->added + (size_t)t * (size_t)hidden, (size_t)hidden * sizeof *to);
            scale_to(to, hidden, mean_square(x + (size_t)t * (size_t)hidden, hidden));
        }
        phase_end(d, tid);
    }
    if (d->model->hp.streams)
        predict_phase(d, tid, 0, rows, beside, x);
}

/* A row of one of the streams beside x. */
static void stream_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    const float *from = p->inputs + (size_t)t * (size_t)hparams_beside(&d->model->hp);

    memcpy(row, from, (size_t)p->w->cols * sizeof *row);
}

/* x becomes the mean of all streams; the place of the predicted one gathers their sum. */
static void end_phases(struct cpu_device *d, int tid, int rows, float *beside, float *x)
{
    int hidden = d->model->hp.hidden, n = d->model->hp.streams;

    for (int i = 1; i < n; i++) {
        struct product p = {&d->model->stream_out[i - 1], stream_row, rows, d->added,
                            .inputs = beside_of(d, beside, 0, i)};

        product_phases(d, tid, &p);
        phase_open(d, tid, rows);
        for (int t; (t = phase_take(d, tid, 1)) < rows;) {
            float *row = d->added + (size_t)t * (size_t)hidden, *sum = beside_of(d, beside, t, 0);
            const float *first = x + (size_t)t * (size_t)hidden;

            scale_to(row, hidden, mean_square(first, hidden));
            if (i == 1)
                memcpy(sum, first, (size_t)hidden * sizeof *sum);
            d->k->add(sum, row, hidden);
        }
        phase_end(d, tid);
    }
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        for (int c = 0; c < hidden; c++)
            x[(size_t)t * (size_t)hidden + (size_t)c] = beside_of(d, beside, t, 0)[c] *
                                                        (1.0f / (float)n);
    phase_end(d, tid);
}

void streams_corrected(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x)
{
    phase_open(d, tid, rows);
    for (int t; (t = phase_take(d, tid, 1)) < rows;)
        correct_row(d, tid, layer, x + (size_t)t * (size_t)d->model->hp.hidden, beside, t);
    phase_end(d, tid);
}

void streams_add(const struct cpu_device *d, int row, float *beside, const float *added)
{
    for (int i = 1; i < d->model->hp.streams; i++)
        d->k->add(beside_of(d, beside, row, i), added, d->model->hp.hidden);
}

void streams_next(struct cpu_device *d, int tid, int layer, int rows, float *beside, float *x)
{
    if (layer + 1 < d->model->hp.n_layers)
        predict_phase(d, tid, layer + 1, rows, beside, x);
    else
        end_phases(d, tid, rows, beside, x);
}

/* ---- The learned residual ---- */

static void normed_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    norm_row(d, &shape_of(d, p->layer)->norms, &d->model->layers[p->layer].attention_norm,
             p->x + (size_t)t * (size_t)p->w->cols, row);
}

void laurel_phases(struct cpu_device *d, int tid, int layer, int rows, const float *x)
{
    const struct layer_weights *w = &d->model->layers[layer];
    struct product in = {&w->laurel_in, normed_row, rows, d->laurel_in, .x = x, .layer = layer},
                   out = {&w->laurel_out, x_row, rows, d->laurel_out, .x = d->laurel_in};

    product_phases(d, tid, &in);
    product_phases(d, tid, &out);
}

void laurel_row(struct cpu_device *d, int tid, int layer, int t, const float *x, float *y)
{
    const struct layer_weights *w = &d->model->layers[layer];
    const struct norms_shape *s = &shape_of(d, layer)->norms;
    int hidden = d->model->hp.hidden;
    float *h = d->threads[tid].row, *out = d->laurel_out + (size_t)t * (size_t)hidden,
          half = (float)sqrt(0.5);

    norm_row(d, s, &w->attention_norm, x, h);
    norm_row(d, s, &w->laurel_after, out, out);
    for (int i = 0; i < hidden; i++)
        y[i] = ((x[i] + y[i]) + (h[i] + out[i])) * half;
}

/* ---- Gates of which the largest count ---- */

/* From where on gates count. */
static float cutoff(const float *gate, int n, float limit)
{
    int whole = n / NUM_LANES * NUM_LANES;
    float lanes[NUM_LANES] = {0}, mean, square, by = 1.0f / (float)n;

    for (int i = 0; i < whole; i += NUM_LANES)
        for (int j = 0; j < NUM_LANES; j++)
            lanes[j] += gate[i + j];
    for (int i = whole; i < n; i++)
        lanes[i % NUM_LANES] += gate[i];
    mean = num_fold(lanes) * by;
    memset(lanes, 0, sizeof lanes);
    for (int i = 0; i < n; i++) {
        float x = gate[i] - mean;

        lanes[i % NUM_LANES] = fmaf(x, x, lanes[i % NUM_LANES]);
    }
    square = num_fold(lanes) * by;
    return fmaf(root(square), limit, mean);
}

/* A row of the down projection's input. */
static void sparse_row(struct cpu_device *d, int tid, const struct product *p, int t, float *row)
{
    int n = p->w->cols, whole = n / NUM_LANES * NUM_LANES;
    const float *gate = p->x + (size_t)t * (size_t)n, *up = p->inputs + (size_t)t * (size_t)n;
    float from = cutoff(gate, n, shape_of(d, p->layer)->ffn.limit), rest[2][NUM_LANES] = {{0}};

    for (int i = 0; i < n; i++)
        row[i] = num_relu(gate[i] - from);
    d->k->activate[ACTIVATION_GELU](row, up, whole, 0.0f, row);
    memcpy(rest[0], row + whole, (size_t)(n - whole) * sizeof *row);
    memcpy(rest[1], up + whole, (size_t)(n - whole) * sizeof *row);
    d->k->activate[ACTIVATION_GELU](rest[0], rest[1], NUM_LANES, 0.0f, rest[0]);
    memcpy(row + whole, rest[0], (size_t)(n - whole) * sizeof *row);
}

void sparse_phases(struct cpu_device *d, int tid, int layer, int rows, const float *h, float *out)
{
    const struct expert_weights *w = &d->model->layers[layer].experts[0];
    float *up = d->sparse + (size_t)d->max_rows * (size_t)d->widest_ffn;
    struct product gates = {&w->gate, x_row, rows, d->sparse, .x = h},
                   ups = {&w->up, x_row, rows, up, .x = h},
                   down = {&w->down,       sparse_row,   rows,          out,
                           .x = d->sparse, .inputs = up, .layer = layer};

    product_phases(d, tid, &gates);
    product_phases(d, tid, &ups);
    product_phases(d, tid, &down);
}
