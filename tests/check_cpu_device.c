/* The CPU device as a whole: against a plain forward pass in double, and against itself bit by bit,
 * whatever the threads, the chunking, the kernel set, the packing width, and whether layers run as
 * single jobs or in one region. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/device.h"
#include "tests/support.h"
#include "tests/tiny_model.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TOKENS 40

struct setup {
    struct tiny_shape shape;
    enum kv_type kv;
    int threads, chunk, jobs; /* jobs: single jobs instead of layers */
    const char *kernels;
    bool exact;   /* activations are not rounded for BF16 weights */
    bool by_unit; /* tasks as on a machine with several memory nodes */
    int wanted;   /* one row in so many is; 0: all are */
    int *chosen;  /* NULL, or the experts of the last chunk; owned by the test */
    /* what other processes do to the threads */
    enum { UNDISTURBED, STOPPED, TAKEN_OFF } others;
};

static const struct tiny_shape base_shape = {.layers = 2,
                                             .hidden = 64,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 32,
                                             .ffn = 96,
                                             .experts = 6,
                                             .vocab = 77,
                                             .context = 640,
                                             .type = DTYPE_F32,
                                             .width = 8,
                                             .bias = 1,
                                             .seed = 7};

/* Single jobs, as the forward pass drives several devices. */
static void run_jobs(const struct device_ops *ops, struct device *dev, const struct hparams *hp,
                     int layer, int rows, int pos, const int *ids, float *x)
{
    size_t hidden = (size_t)hp->hidden;
    const struct norms_shape *norms = &hparams_layer(hp, layer)->norms;
    int used = hp->n_experts_used, n = 0, n_groups = 0;
    float *y = calloc((size_t)rows * hidden, 4), *h = calloc(2 * (size_t)rows * hidden, 4),
          *out = calloc((size_t)(rows * used) * hidden, 4),
          *before = calloc((size_t)rows * hidden, 4);
    float *weights = calloc((size_t)(rows * used), 4);
    int *experts = calloc((size_t)(rows * used), sizeof(int)),
        *row = calloc((size_t)(rows * used), sizeof(int)),
        *slot = calloc((size_t)(rows * used), sizeof(int));
    struct expert_group *groups = calloc((size_t)hp->n_experts, sizeof *groups);
    struct error e;

    struct attention_job a = {.layer = layer, .rows = rows, .pos = pos, .x = x, .y = y};

    if (hparams_layer(hp, layer)->mixer.kind != MIXER_NONE) {
        ck_assert_int_eq(ops->attention(dev, &a, &e), 0);
        ck_assert_int_eq(ops->wait(dev, &e), 0);
    }
    memcpy(before, x, (size_t)rows * hidden * sizeof *x);
    for (size_t i = 0; i < (size_t)rows * hidden; i++)
        x[i] = norms_sum(norms) ? y[i] : x[i] + y[i];
    struct route_job r = {.layer = layer,
                          .rows = rows,
                          .x = hparams_layer(hp, layer)->parallel ? before : x,
                          .before = before,
                          .h = h,
                          .scores = NULL,
                          .experts = experts,
                          .weights = weights,
                          .pos = 0,
                          .ids = ids};

    if (hparams_layer(hp, layer)->ffn.kind == FFN_NONE)
        goto out;
    ck_assert_int_eq(ops->route(dev, &r, &e), 0);
    for (int ex = 0; ex < hp->n_experts; ex++) {
        int first = n;

        for (int i = 0; i < rows * used; i++)
            if (experts[i] == ex) {
                row[n] = i / used;
                slot[n++] = i % used;
            }
        if (n > first)
            groups[n_groups++] = (struct expert_group){ex, first, n - first};
    }
    struct experts_job j = {layer, rows, h, n_groups, groups, row, slot, out, NULL, weights};

    ck_assert_int_eq(ops->experts(dev, &j, &e), 0);
    struct combine_job c = {.layer = layer, .rows = rows, .out = out, .weights = weights, .x = x};

    ck_assert_int_eq(ops->combine(dev, &c, &e), 0);
out:
    free(before), free(y), free(h), free(out), free(weights), free(experts), free(row), free(slot),
        free(groups);
}

/* Other processes, as a thread meets them: it stands still, wherever it is. `still` is a whole stop
 * in a thread that had nothing to do; else a moment. */
static atomic_int still, standing;

static void stand(int signal)
{
    struct timespec moment = {.tv_nsec = 300000};

    atomic_fetch_add(&standing, 1);
    do
        nanosleep(&moment, NULL);
    while (atomic_load(&still));
    atomic_fetch_sub(&standing, 1);
}

/* Signals the compute threads of this process; returns how many there are. */
static int signal_workers(void)
{
    DIR *dir = opendir("/proc/self/task");
    struct dirent *entry;
    int n = 0;

    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir))) {
        char path[300], name[32] = "";
        FILE *f;

        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        if (!(f = fopen(path, "re")))
            continue;
        if (fgets(name, sizeof name, f) && strncmp(name, "compute-", 8) == 0) {
            syscall(SYS_tgkill, getpid(), atoi(entry->d_name), SIGUSR1);
            n++;
        }
        fclose(f);
    }
    closedir(dir);
    return n;
}

static void *disturb(void *arg)
{
    while (!atomic_load((atomic_int *)arg)) {
        signal_workers();
        clock_sleep(CLOCK_MILLI / 2);
    }
    return NULL;
}

/* The checker of threads holds signals back until they suit it. */
static bool can_disturb(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#else
    return true;
#endif
}

static void stop_workers(int n)
{
    atomic_store(&still, 1);
    while (signal_workers() < n)
        clock_sleep(CLOCK_MILLI);
    while (atomic_load(&standing) < n)
        clock_sleep(CLOCK_MILLI);
}

/* Logits of every token, (n, vocab). */
static float *forward(const struct setup *s, int n)
{
    struct tiny_model *t = tiny_model_new(&s->shape);
    const struct hparams *hp = &t->model.hp;
    struct device_config c = {.model = &t->model,
                              .n_threads = s->threads,
                              .max_rows = s->chunk,
                              .context = s->shape.context,
                              .kv_k = s->kv,
                              .kv_v = s->kv,
                              .exact = s->exact,
                              .rope_cos = {t->rope_cos},
                              .rope_sin = {t->rope_sin},
                              .second_cos = t->second_cos,
                              .second_sin = t->second_sin};
    float *logits = calloc((size_t)n * (size_t)hp->n_vocab, 4),
          *x = calloc((size_t)n * (size_t)hp->hidden, 4);
    size_t choices = (size_t)(hp->n_layers * n * hp->n_experts_used);
    int *experts = calloc(choices, sizeof(int));
    float *weights = calloc(choices, 4);
    unsigned seed = 99;
    bool *wanted = calloc((size_t)n, sizeof(bool));
    int *ids = calloc((size_t)n, sizeof *ids);
    atomic_int over = 0;
    struct device *dev;
    struct error e;
    pthread_t other;

    ck_assert_int_eq(cpu_kernels_select(s->kernels, &e), 0);
    ck_assert_msg(cpu_device_ops.open(&dev, &c, &e) == 0, "%s", e.text);
    if (s->by_unit)
        ((struct cpu_device *)dev)->by_unit = true;
    if (s->others == STOPPED)
        stop_workers(s->threads - 1);
    if (s->others == TAKEN_OFF)
        ck_assert_int_eq(pthread_create(&other, NULL, disturb, &over), 0);
    for (int i = 0; i < n * hp->hidden; i++)
        x[i] = tiny_random(&seed);
    for (int i = 0; s->wanted && i < n; i++)
        wanted[i] = i % s->wanted == 0;
    for (int i = 0; i < n; i++)
        ids[i] = i * 7 % hp->n_vocab;
    for (int pos = 0; pos < n; pos += s->chunk) {
        int rows = n - pos < s->chunk ? n - pos : s->chunk;
        float *at = x + (size_t)pos * (size_t)hp->hidden;
        struct layers_job l = {.first = 0,
                               .last = hp->n_layers,
                               .rows = rows,
                               .pos = pos,
                               .x = at,
                               .experts = experts,
                               .weights = weights,
                               .wanted = s->wanted ? wanted + pos : NULL,
                               .ids = ids + pos};
        struct head_job h = {rows, at, logits + (size_t)pos * (size_t)hp->n_vocab, NULL};

        if (s->jobs)
            for (int layer = 0; layer < hp->n_layers; layer++)
                run_jobs(&cpu_device_ops, dev, hp, layer, rows, pos, ids + pos, at);
        else
            ck_assert_int_eq(cpu_device_ops.layers(dev, &l, &e), 0);
        ck_assert_int_eq(cpu_device_ops.head(dev, &h, &e), 0);
    }
    atomic_store(&over, 1);
    atomic_store(&still, 0);
    if (s->others == TAKEN_OFF)
        pthread_join(other, NULL);
    cpu_device_ops.close(dev);
    cpu_kernels_select(NULL, &e);
    tiny_model_free(t);
    for (size_t i = 0; i < choices && s->chosen; i++)
        s->chosen[i] = experts[i];
    free(x), free(experts), free(weights), free(wanted), free(ids);
    return logits;
}

static bool plain_rounds; /* what meets BF16 weights */

static double *mul(const struct matrix *m, const double *x)
{
    double *y = calloc((size_t)m->rows, sizeof *y);

    for (int r = 0; r < m->rows; r++) {
        for (int c = 0; c < m->cols; c++)
            y[r] += (double)tiny_weight(m, r, c) *
                    (plain_rounds ? (double)num_from_bf16(num_to_bf16((float)x[c])) : x[c]);
        if (m->bias)
            y[r] += (double)m->bias[r];
    }
    return y;
}

static double *layer_norm(const struct norm_weights *w, const double *x, int n)
{
    double mean = 0, var = 0, *y = calloc((size_t)n, sizeof *y);

    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        y[i] = (x[i] - mean) / sqrt(var + 1e-5) * (double)w->weight[i] + (double)w->bias[i];
    return y;
}

static void rotate(double *x, int hd, int rot, int pos)
{
    for (int i = 0; i < rot / 2; i++) {
        double a = pos * pow(10000.0, -2.0 * i / rot), u = x[i], v = x[i + rot / 2];

        x[i] = u * cos(a) - v * sin(a);
        x[i + rot / 2] = v * cos(a) + u * sin(a);
    }
}

/* The model in double, written from the papers and not from the device. */
static float *plain_forward(const struct tiny_shape *s, int n)
{
    struct tiny_model *t = tiny_model_new(s);
    const struct hparams *hp = &t->model.hp;
    int H = hp->hidden;
    double *x = calloc((size_t)(n * H), sizeof *x), **k = calloc((size_t)n, sizeof *k),
           **v = calloc((size_t)n, sizeof *v);
    float *logits = calloc((size_t)(n * hp->n_vocab), 4);
    unsigned seed = 99;

    for (int i = 0; i < n * H; i++)
        x[i] = (double)tiny_random(&seed);
    for (int l = 0; l < hp->n_layers; l++) {
        const struct layer_weights *w = &t->model.layers[l];
        const struct mixer_shape *m = &hparams_layer(hp, l)->mixer;
        const struct ffn_shape *ffn = &hparams_layer(hp, l)->ffn;
        int hd = m->key_dim, vd = shape_value_dim(m);

        for (int p = 0; p < n; p++) {
            double *h = layer_norm(&w->attention_norm, x + p * H, H), *q = mul(&w->q, h),
                   *o = calloc((size_t)(m->heads * vd), sizeof *o), *y;

            k[p] = mul(&w->k, h);
            v[p] = mul(&w->v, h);
            for (int i = 0; i < m->heads; i++)
                rotate(q + i * hd, hd, m->rope_dims, p);
            for (int i = 0; i < m->kv_heads; i++)
                rotate(k[p] + i * hd, hd, m->rope_dims, p);
            for (int i = 0; i < m->heads; i++) {
                int kv = i / (m->heads / m->kv_heads),
                    lo = m->window && p >= m->window ? p - m->window + 1 : 0;
                double sum = 0, *a = calloc((size_t)n, sizeof *a), max = -1e30;

                for (int j = lo; j <= p; j++) {
                    for (int d = 0; d < hd; d++)
                        a[j] += q[i * hd + d] * k[j][kv * hd + d] / sqrt(hd);
                    max = a[j] > max ? a[j] : max;
                }
                for (int j = lo; j <= p; j++)
                    sum += a[j] = exp(a[j] - max);
                for (int j = lo; j <= p; j++)
                    for (int d = 0; d < vd; d++)
                        o[i * vd + d] += a[j] / sum * v[j][kv * vd + d];
                free(a);
            }
            y = mul(&w->o, o);
            for (int i = 0; i < H; i++)
                x[p * H + i] += y[i];
            free(h), free(q), free(o), free(y);
            h = layer_norm(&w->expert_norm, x + p * H, H);

            float scores[64], weights[2];
            int experts[2];

            for (int e = 0; e < hp->n_experts; e++) {
                double dot = 0;

                for (int i = 0; i < H; i++)
                    dot += (double)w->router[e * H + i] * h[i];
                scores[e] = (float)dot;
            }
            num_sparsemixer(scores, NULL, hp->n_experts, ffn->router.jitter, 2, experts, weights);
            for (int i = 0; i < 2; i++) {
                const struct expert_weights *ew = &w->experts[experts[i]];
                double *g = mul(&ew->gate, h), *u = mul(&ew->up, h), *e;

                for (int f = 0; f < ffn->width; f++)
                    g[f] = g[f] / (1 + exp(-g[f])) * u[f];
                e = mul(&ew->down, g);
                for (int c = 0; c < H; c++)
                    x[p * H + c] += (double)weights[i] * e[c];
                free(g), free(u), free(e);
            }
            free(h);
        }
        for (int p = 0; p < n; p++)
            free(k[p]), free(v[p]);
    }
    for (int p = 0; p < n; p++) {
        double *h = layer_norm(&t->model.output_norm, x + p * H, H), *y = mul(&t->model.head, h);

        for (int i = 0; i < hp->n_vocab; i++)
            logits[p * hp->n_vocab + i] = (float)y[i];
        free(h), free(y);
    }
    free(x), free(k), free(v);
    tiny_model_free(t);
    return logits;
}

static double largest(const float *a, const float *b, size_t n)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);

        worst = diff > worst || diff != diff ? diff : worst;
    }
    return worst;
}

/* ThreadSanitizer looks at how threads share the work, which depends neither on the instruction set
 * nor on what comes out: there the last set does, and nothing is computed again without threads.
 * The other builds have it all. */
#if defined(__SANITIZE_THREAD__)
#define THREADS_ALONE true
#else
#define THREADS_ALONE false
#endif

static int first_set(void)
{
    int last = 0;

    while (THREADS_ALONE && kernels_at(last + 1))
        last++;
    return last;
}

static void check_against_plain(struct setup s, int n, double tolerance)
{
    float *got = forward(&s, n), *want;
    double worst;

    if (THREADS_ALONE) {
        free(got);
        return;
    }
    want = plain_forward(&s.shape, n);
    worst = largest(got, want, (size_t)n * (size_t)s.shape.vocab);
    ck_assert_msg(worst <= tolerance, "type %d, kv %d, kernels %s: off by %g", (int)s.shape.type,
                  (int)s.kv, s.kernels ? s.kernels : "best", worst);
    free(got), free(want);
}

START_TEST(test_float_model)
{
    for (int i = first_set(); kernels_at(i); i++) {
        struct setup s = {.shape = base_shape,
                          .kv = KV_F32,
                          .threads = 2,
                          .chunk = 16,
                          .kernels = kernels_at(i)->name};

        check_against_plain(s, TOKENS, 2e-5);
        s.shape.type = DTYPE_F16;
        check_against_plain(s, TOKENS, 2e-5);
        s.shape.type = DTYPE_BF16;
        s.exact = true;
        check_against_plain(s, TOKENS, 2e-5);
        s.exact = false;
        plain_rounds = true;
        check_against_plain(s, TOKENS, 2e-2); /* near a tie a number rounds the other way */
        plain_rounds = false;
        s.shape.type = DTYPE_F32;
        s.shape.window = 12;
        s.shape.rope_dims = 16;
        s.shape.bias = 0;
        check_against_plain(s, TOKENS, 2e-5);
        s.chunk = 1;
        s.kv = KV_F16;
        check_against_plain(s, TOKENS, 2e-2);
    }
}
END_TEST

/* Longer than a chunk of values, so that merging is met by both ways of attending; a head count
 * that is no power of two. */
START_TEST(test_long_context)
{
    struct setup s = {.shape = base_shape, .kv = KV_F32, .threads = 3, .chunk = 40};

    s.shape.layers = 1;
    s.shape.heads = 6;
    check_against_plain(s, 560, 2e-5);
    s.chunk = 5;
    s.shape.window = 300;
    check_against_plain(s, 560, 2e-5);
}
END_TEST

/* Two geometries of attention in one model, and values narrower and wider than keys. */
#define UNLIKE_FFN                                                             \
    .ffn = {.experts = 6, .used = 2, .width = 96, .router = {.jitter = 0.1f}}, \
    .norms = {.eps = 1e-5f, .before = true}
static const struct layer_shape unlike_layers[] = {
    {.mixer =
         {.heads = 4, .kv_heads = 2, .key_dim = 64, .value_dim = 32, .rope_dims = 32, .bias = true},
     UNLIKE_FFN},
    {.mixer = {.heads = 6,
               .kv_heads = 1,
               .key_dim = 32,
               .value_dim = 96,
               .rope_dims = 32,
               .bias = true,
               .window = 9},
     UNLIKE_FFN},
    {.mixer = {.heads = 2, .kv_heads = 2, .key_dim = 96, .rope_dims = 32, .bias = true},
     UNLIKE_FFN},
    /* tasks of the QKV phase of several heads, another number of them for values */
    {.mixer =
         {.heads = 4, .kv_heads = 4, .key_dim = 36, .value_dim = 20, .rope_dims = 32, .bias = true},
     UNLIKE_FFN},
};

static struct tiny_shape unlike_shape(int layers)
{
    struct tiny_shape s = base_shape;

    s.layers = layers;
    s.rope_dims = 32;
    s.shapes = unlike_layers;
    return s;
}

START_TEST(test_layers_of_other_widths)
{
    struct setup s = {.shape = unlike_shape(4), .kv = KV_F32, .threads = 3, .chunk = 1};

    check_against_plain(s, TOKENS, 2e-5);
    s.chunk = 16;
    check_against_plain(s, TOKENS, 2e-5);
    s.shape.layers = 2;
    s.chunk = 40;
    check_against_plain(s, 300, 2e-5);
}
END_TEST

/* Every variation of how the work is cut must leave the bits of the first. */
static void check_same_bits_exact(struct tiny_shape shape, enum kv_type kv, int n, bool exact)
{
    struct setup first = {
        .shape = shape, .kv = kv, .threads = 1, .chunk = 1, .kernels = "scalar", .exact = exact};
    float *want = forward(&first, n);

    for (size_t i = 0; i < (size_t)n * (size_t)shape.vocab; i++)
        ck_assert(isfinite(want[i]));
    for (int k = first_set(); kernels_at(k); k++)
        for (int v = 0; v < 7; v++) {
            static const int chunks[] = {1, 7, 16, 40, 13, 3, 1}, threads[] = {2, 1, 3, 2, 1, 2, 3},
                             jobs[] = {0, 1, 0, 1, 0, 1, 0}, widths[] = {8, 16, 16, 8, 8, 16, 16};
            struct setup s = {.shape = shape,
                              .kv = kv,
                              .threads = threads[v],
                              .chunk = chunks[v],
                              .jobs = jobs[v],
                              .kernels = kernels_at(k)->name,
                              .exact = exact,
                              .by_unit = v == 6};
            float *got;

            s.shape.width = widths[v];
            got = forward(&s, n);
            ck_assert_msg(memcmp(got, want, (size_t)n * (size_t)shape.vocab * 4) == 0,
                          "kernels %s, %d threads, chunks of %d, %s, width %d: off by %g",
                          s.kernels, s.threads, s.chunk, s.jobs ? "jobs" : "layers", s.shape.width,
                          largest(got, want, (size_t)n * (size_t)shape.vocab));
            free(got);
        }
    free(want);
}

static void check_same_bits(struct tiny_shape shape, enum kv_type kv, int n)
{
    check_same_bits_exact(shape, kv, n, false);
}

START_TEST(test_same_bits)
{
    struct tiny_shape s = base_shape;

    s.type = DTYPE_Q8_0;
    check_same_bits(s, KV_F16, TOKENS);
    s.type = DTYPE_Q4_0;
    s.hidden = 96;
    s.window = 9;
    s.bias = 0;
    check_same_bits(s, KV_Q8_0, TOKENS);
}
END_TEST

START_TEST(test_same_bits_of_other_widths)
{
    struct tiny_shape s = unlike_shape(3);

    s.type = DTYPE_Q8_0;
    check_same_bits(s, KV_Q8_0, TOKENS);
    if (!THREADS_ALONE) {
        s = unlike_shape(4);
        s.type = DTYPE_F32;
        check_same_bits(s, KV_F16, TOKENS);
    }
}
END_TEST

/* Rows whose last layer nobody reads lack its experts there; the others and the routing of all are
 * as ever. */
START_TEST(test_wanted_rows)
{
    const size_t vocab = (size_t)base_shape.vocab;
    struct setup all = {.shape = base_shape, .threads = 2, .chunk = TOKENS};
    static const int one_in[] = {2, 3, TOKENS};
    int want[2 * TOKENS * 2], got[2 * TOKENS * 2];
    float *with;

    if (_i)
        all.shape.type = DTYPE_Q4_0;
    all.chosen = want;
    with = forward(&all, TOKENS);
    for (int k = 0; k < 3; k++) {
        struct setup some = all;
        float *without;

        some.wanted = one_in[k];
        some.chosen = got;
        without = forward(&some, TOKENS);
        ck_assert_mem_eq(got, want, sizeof want);
        for (int i = 0; i < TOKENS; i++)
            ck_assert_int_eq(memcmp(with + (size_t)i * vocab, without + (size_t)i * vocab,
                                    vocab * sizeof *with) == 0,
                             i % some.wanted == 0);
        free(without);
    }
    free(with);
}
END_TEST

/* Gated heads, no positions, no gates in experts: the work is cut in yet other ways. */
#define EXTRA_FFN(word)                                              \
    .ffn = {.experts = 6,                                            \
            .used = 2,                                               \
            .width = 96,                                             \
            .activation = word,                                      \
            .router = {.kind = ROUTER_SOFTMAX, .normalised = true}}, \
    .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}
static const struct layer_shape extra_layers[] = {
    {.mixer = {.heads = 4,
               .kv_heads = 2,
               .key_dim = 32,
               .rope_dims = 32,
               .qk_norm = QK_NORM_HEAD,
               .gated = true},
     EXTRA_FFN(ACTIVATION_RELU2)},
    {.mixer = {.heads = 4, .kv_heads = 1, .key_dim = 40, .rope = ROPE_NONE, .gated = true},
     EXTRA_FFN(ACTIVATION_GELU)},
    {.mixer = {.heads = 4, .kv_heads = 2, .key_dim = 32, .rope_dims = 32},
     EXTRA_FFN(ACTIVATION_GELU_PLAIN)},
    {.mixer =
         {.heads = 6, .kv_heads = 2, .key_dim = 32, .rope_dims = 32, .window = 9, .sinks = true},
     .ffn = {.experts = 5,
             .used = 3,
             .width = 64,
             .activation = ACTIVATION_CLAMPED_SWIGLU,
             .limit = 0.5f,
             .bias = true,
             .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
     .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}},
    {.mixer = {.heads = 6, .kv_heads = 2, .key_dim = 32, .rope_dims = 16, .value_factor = 0.6f},
     .ffn = {.experts = 5,
             .used = 3,
             .shared = 1,
             .width = 64,
             .shared_width = 64,
             .activation = ACTIVATION_BOUNDED_SILU,
             .limit = 0.2f,
             .shared_limit = 0.3f,
             .router = {.kind = ROUTER_SIGMOID, .normalised = true}},
     .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}},
};

START_TEST(test_same_bits_of_extras)
{
    struct tiny_shape s = base_shape;

    s.layers = 4;
    s.rope_dims = 32;
    s.shapes = extra_layers;
    s.type = DTYPE_Q8_0;
    check_same_bits(s, KV_F16, TOKENS);
}
END_TEST

/* Norms behind operators: of what they add, with a dense part beside the experts and values that
 * are keys; of the sum, with a head that is narrower than the stream. */
#define AROUND(how)                                                                         \
    .ffn = {.kind = FFN_DENSE_AND_ROUTED,                                                   \
            .experts = 6,                                                                   \
            .used = 2,                                                                      \
            .shared = 1,                                                                    \
            .width = 96,                                                                    \
            .shared_width = 64,                                                             \
            .activation = ACTIVATION_GELU,                                                  \
            .router = {.kind = ROUTER_SOFTMAX, .normalised = true, .expert_scales = true}}, \
    .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true, .after = true}, .scaled = how
static const struct layer_shape around_layers[] = {
    {.mixer = {.heads = 4,
               .kv_heads = 2,
               .key_dim = 32,
               .rope_dims = 32,
               .qk_norm = QK_NORM_HEAD,
               .value_norm = true,
               .window = 9},
     AROUND(true)},
    {.mixer = {.heads = 4,
               .kv_heads = 1,
               .key_dim = 64,
               .rope_dims = 16,
               .rope = ROPE_PROPORTIONAL,
               .second_rope = true,
               .qk_norm = QK_NORM_HEAD,
               .value_norm = true,
               .values_are_keys = true},
     AROUND(false)},
};
static const struct layer_shape behind_layers[] = {
    {.mixer = {.heads = 4, .kv_heads = 4, .key_dim = 32, .rope = ROPE_NONE, .bias = true},
     .ffn = {.kind = FFN_DENSE,
             .shared = 1,
             .shared_width = 96,
             .activation = ACTIVATION_RELU,
             .bias = true},
     .norms = {.kind = NORM_LAYER, .eps = 1e-5f, .after = true}},
};

START_TEST(test_same_bits_of_norms_behind)
{
    struct tiny_shape s = base_shape;

    s.layers = 2;
    s.rope_dims = 32;
    s.shapes = around_layers;
    s.type = DTYPE_Q8_0;
    check_same_bits(s, KV_F16, TOKENS);
    s.layers = 1;
    s.shapes = behind_layers;
    s.embedding_width = 64;
    check_same_bits(s, KV_F16, TOKENS);
    if (!THREADS_ALONE) {
        s.type = DTYPE_F32;
        check_same_bits(s, KV_F32, TOKENS);
        s.layers = 2;
        s.embedding_width = 0;
        s.shapes = around_layers;
        check_same_bits(s, KV_F32, TOKENS);
    }
}
END_TEST

/* Logits of a model with a cap: num_softcap's bits, whatever the kernels. */
START_TEST(test_caps_logits)
{
    struct tiny_model *t = tiny_model_new(&base_shape);
    static float x[10000], want[10000];

    t->model.hp.logit_cap = 30.0f;
    for (int k = 0; kernels_at(k); k++) {
        struct device_config c = {.model = &t->model,
                                  .n_threads = 3,
                                  .max_rows = 1,
                                  .context = 32,
                                  .rope_cos = {t->rope_cos},
                                  .rope_sin = {t->rope_sin}};
        unsigned seed = 5;
        struct device *dev;
        struct error e;

        for (int i = 0; i < 10000; i++) {
            x[i] = tiny_random(&seed) * (i % 3 ? 60.0f : 4000.0f);
            want[i] = num_softcap(x[i], 30.0f, 1.0f / 30.0f);
        }
        ck_assert_int_eq(cpu_kernels_select(kernels_at(k)->name, &e), 0);
        ck_assert_msg(cpu_device_ops.open(&dev, &c, &e) == 0, "%s", e.text);
        ck_assert_int_eq(cpu_device_ops.cap(dev, x, 10000, &e), 0);
        ck_assert_msg(memcmp(x, want, sizeof x) == 0, "%s", kernels_at(k)->name);
        cpu_device_ops.close(dev);
    }
    cpu_kernels_select(NULL, &(struct error){0});
    tiny_model_free(t);
}
END_TEST

/* Latent attention behind two ways to queries, between layers that keep keys and values; its heads'
 * rows begin within groups of weight rows. */
static const struct layer_shape latent_layers[] = {
    {.mixer = {.kind = MIXER_MLA,
               .heads = 10,
               .kv_heads = 1,
               .key_dim = 72,
               .value_dim = 40,
               .q_rank = 64,
               .kv_rank = 64,
               .rope_dims = 32,
               .rope = ROPE_PAIRS,
               .latent_eps = 1e-6f},
     UNLIKE_FFN},
    {.mixer = {.heads = 4, .kv_heads = 2, .key_dim = 64, .rope_dims = 32}, UNLIKE_FFN},
    {.mixer = {.kind = MIXER_MLA,
               .heads = 4,
               .kv_heads = 1,
               .key_dim = 64,
               .value_dim = 64,
               .kv_rank = 96,
               .rope_dims = 32,
               .rope = ROPE_PAIRS,
               .latent_eps = 1e-6f},
     UNLIKE_FFN},
};

START_TEST(test_same_bits_latent)
{
    struct tiny_shape s = unlike_shape(3);

    s.shapes = latent_layers;
    s.type = DTYPE_F32; /* heads' widths are no whole blocks */
    check_same_bits(s, KV_F16, TOKENS);
    if (!THREADS_ALONE) {
        struct layer_shape whole[2] = {latent_layers[2], latent_layers[2]};

        whole[1].mixer.key_dim = 96; /* q, k_b: blocks, heads in the middle of a group of rows */
        whole[1].mixer.value_dim = 40;
        whole[0].mixer.q_rank = 64;
        s.layers = 2;
        s.shapes = whole;
        s.type = DTYPE_Q8_0;
        check_same_bits(s, KV_Q8_0, TOKENS);
    }
}
END_TEST

/* Compressed keys: none, of every block, of those that an indexer chooses; experts by token. */
#define ROOT_FFN(...)                              \
    .ffn = {.experts = 6,                          \
            .used = 2,                             \
            .shared = 1,                           \
            .width = 96,                           \
            .shared_width = 64,                    \
            .activation = ACTIVATION_CLAMPED_SILU, \
            .limit = 0.5f,                         \
            .router = {.kind = ROUTER_ROOT,        \
                       .normalised = true,         \
                       .floor = 1e-20f,            \
                       .factor = 1.5f,             \
                       __VA_ARGS__}},              \
    .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}
#define COMPRESSED_MIXER                                                                          \
    .kind = MIXER_COMPRESSED, .heads = 4, .kv_heads = 1, .key_dim = 64, .rope_dims = 32,          \
    .rope = ROPE_PAIRS, .index_rope = ROPE_PAIRS, .q_rank = 64, .window = 9, .latent_eps = 1e-6f, \
    .sinks = true, .out_groups = 2, .out_rank = 48
static const struct layer_shape compressed_layers[] = {
    {.mixer = {COMPRESSED_MIXER, .second_rope = true}, ROOT_FFN(.by_token = true)},
    {.mixer = {COMPRESSED_MIXER, .block = 6}, ROOT_FFN(.choice_bias = true)},
    {.mixer = {COMPRESSED_MIXER, .block = 4, .overlap = true, .index_heads = 3, .index_dim = 32,
               .index_top = 3},
     ROOT_FFN(.choice_bias = true)},
};

START_TEST(test_same_bits_compressed)
{
    struct tiny_shape s = base_shape;

    s.layers = 3;
    s.rope_dims = 32;
    s.shapes = compressed_layers;
    s.bias = 0;
    s.type = DTYPE_Q8_0;
    check_same_bits(s, KV_Q8_0, TOKENS);
    if (!THREADS_ALONE) {
        struct layer_shape narrow[3];

        memcpy(narrow, compressed_layers, sizeof narrow);
        for (int l = 0; l < 3; l++) { /* groups' rows begin within groups of weight rows */
            narrow[l].mixer.out_rank = 20;
            narrow[l].mixer.key_dim = 48;
        }
        s.shapes = narrow;
        s.type = DTYPE_F32;
        check_same_bits(s, KV_F16, TOKENS);
    }
}
END_TEST

/* Every recurrence, latent attention with gates, and layers of one operator: quantised whole, for
 * all widths that a matrix multiplies are blocks, but not all widths of heads are vectors. */
#define PLAIN_FFN(word)                                              \
    .ffn = {.experts = 6,                                            \
            .used = 2,                                               \
            .shared = 1,                                             \
            .width = 96,                                             \
            .shared_width = 64,                                      \
            .activation = word,                                      \
            .router = {.kind = ROUTER_SIGMOID, .normalised = true}}, \
    .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}
#define NO_FFN .ffn = {.kind = FFN_NONE}, .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}
static const struct layer_shape recurrent_layers[] = {
    {.mixer = {.kind = MIXER_DELTA_NET,
               .rope = ROPE_NONE,
               .heads = 4,
               .kv_heads = 2,
               .key_dim = 32,
               .value_dim = 40,
               .gated = true,
               .taps = 4},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_MAMBA2,
               .rope = ROPE_NONE,
               .heads = 6,
               .value_dim = 16,
               .state = 32,
               .groups = 2,
               .taps = 4},
     NO_FFN},
    {.mixer = {.kind = MIXER_NONE, .rope = ROPE_NONE}, PLAIN_FFN(ACTIVATION_RELU2)},
    {.mixer = {.kind = MIXER_SHORT_CONVOLUTION,
               .rope = ROPE_NONE,
               .heads = 1,
               .value_dim = 64,
               .taps = 3},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_KIMI_DELTA,
               .rope = ROPE_NONE,
               .heads = 4,
               .kv_heads = 4,
               .key_dim = 24,
               .value_dim = 24,
               .gated = true,
               .taps = 4,
               .decay_bound = -5.0f},
     NO_FFN},
    {.mixer = {.kind = MIXER_DELTA_NET,
               .rope = ROPE_NONE,
               .heads = 4,
               .kv_heads = 2,
               .key_dim = 64,
               .value_dim = 72,
               .tiled = true,
               .gated = true,
               .taps = 4},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_KIMI_DELTA,
               .rope = ROPE_NONE,
               .heads = 3,
               .kv_heads = 3,
               .key_dim = 32,
               .value_dim = 32,
               .gated = true,
               .taps = 2},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_KIMI_DELTA,
               .rope = ROPE_NONE,
               .heads = 3,
               .kv_heads = 3,
               .key_dim = 32,
               .value_dim = 32,
               .gated = true,
               .taps = 4,
               .a_rank = 32,
               .z_rank = 64},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_MAMBA1,
               .rope = ROPE_NONE,
               .heads = 1,
               .value_dim = 160,
               .state = 13,
               .groups = 1,
               .a_rank = 32,
               .taps = 4},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_MLA,
               .heads = 4,
               .kv_heads = 1,
               .key_dim = 64,
               .value_dim = 40,
               .kv_rank = 96,
               .rope_dims = 32,
               .rope = ROPE_NONE,
               .latent_eps = 1e-6f},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.heads = 4, .kv_heads = 2, .key_dim = 64, .rope_dims = 32, .rope = ROPE_PAIRS},
     PLAIN_FFN(ACTIVATION_SILU),
     .parallel = true},
    {.mixer = {.heads = 4,
               .kv_heads = 2,
               .key_dim = 64,
               .rope_dims = 64,
               .rope = ROPE_PAIRS,
               .window = 5,
               .chunked = true,
               .qk_norm = QK_NORM_HEAD,
               .qk_norm_turned = true},
     .ffn = {.experts = 5,
             .used = 2,
             .shared = 1,
             .width = 96,
             .shared_width = 64,
             .router = {.kind = ROUTER_SIGMOID, .on_input = true}},
     .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}},
    {.mixer = {.heads = 4, .kv_heads = 2, .key_dim = 64, .rope_dims = 64},
     .ffn = {.experts = 5,
             .used = 2,
             .width = 96,
             .activation = ACTIVATION_REGLU,
             .router = {.kind = ROUTER_SIGMOID, .normalised = true, .early = true}},
     .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}},
    {.mixer = {.heads = 4,
               .kv_heads = 2,
               .key_dim = 64,
               .rope_dims = 32,
               .qk_norm = QK_NORM_HEAD,
               .qk_norm_turned = true},
     PLAIN_FFN(ACTIVATION_SILU)},
    {.mixer = {.kind = MIXER_MLA,
               .heads = 4,
               .kv_heads = 1,
               .key_dim = 64,
               .value_dim = 40,
               .kv_rank = 96,
               .rope_dims = 32,
               .rope = ROPE_PAIRS,
               .latent_eps = 1e-6f,
               .gated = true},
     PLAIN_FFN(ACTIVATION_SILU)},
};

static const enum dtype recurrent_types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_F32};
#define RECURRENT_TYPES \
    (THREADS_ALONE ? 1 : (int)(sizeof recurrent_types / sizeof *recurrent_types))

START_TEST(test_same_bits_recurrent)
{
    struct tiny_shape s = base_shape;

    s.layers = sizeof recurrent_layers / sizeof *recurrent_layers;
    s.shapes = recurrent_layers;
    s.rope_dims = 32;
    s.type = recurrent_types[_i];
    check_same_bits(s, KV_F16, TOKENS);
}
END_TEST

/* As many experts as a router chooses from, and a shared one (Qwen3-Next). */
START_TEST(test_same_bits_many_experts)
{
    static const struct layer_shape many = {
        .mixer = {.heads = 2, .kv_heads = 1, .key_dim = 32, .rope_dims = 32},
        .ffn = {.experts = NUM_EXPERTS,
                .used = 10,
                .shared = 1,
                .width = 32,
                .shared_width = 32,
                .shared_gate = SHARED_SIGMOID,
                .router = {.kind = ROUTER_SOFTMAX, .normalised = true}},
        .norms = {.kind = NORM_RMS, .eps = 1e-5f, .before = true}};
    struct tiny_shape s = base_shape;

    s.layers = 1;
    s.shapes = &many;
    s.type = DTYPE_Q8_0;
    check_same_bits(s, KV_F16, 9);
}
END_TEST

static const struct {
    enum dtype type;
    bool exact;
} float_kinds[] = {{DTYPE_F32, false}, {DTYPE_BF16, false}, {DTYPE_F16, false}, {DTYPE_BF16, true}};

/* The first two go all the ways that threads can share them. */
#define FLOAT_KINDS (THREADS_ALONE ? 2 : (int)(sizeof float_kinds / sizeof *float_kinds))

/* Rule 11: one row and many, whole tiles of rows and tokens and ragged ones, columns that end
 * within a step of the kernels. */
START_TEST(test_same_bits_float)
{
    struct tiny_shape s = base_shape;

    s.type = float_kinds[_i].type;
    check_same_bits_exact(s, KV_F32, TOKENS, float_kinds[_i].exact);
    s.hidden = 80;
    s.ffn = 112;
    s.window = 9;
    s.bias = 0;
    check_same_bits_exact(s, KV_F16, TOKENS, float_kinds[_i].exact);
}
END_TEST

/* More columns than one block of the kernels holds, and a prompt longer than one panel of tokens:
 * all at once, and token by token. */
START_TEST(test_same_bits_float_large)
{
    enum { N = 130 };
    struct setup s = {.shape = base_shape,
                      .kv = KV_F32,
                      .threads = 2,
                      .chunk = N,
                      .exact = float_kinds[_i].exact};
    float *want, *got;

    s.shape.type = float_kinds[_i].type;
    s.shape.layers = 1;
    s.shape.hidden = 1120;
    s.shape.ffn = 1056;
    s.shape.experts = 2;
    want = forward(&s, N);
    for (int chunk = THREADS_ALONE ? 100 : 1; chunk < N; chunk += chunk == 1 ? 99 : N) {
        s.chunk = chunk;
        s.threads = 3;
        got = forward(&s, N);
        ck_assert_msg(memcmp(got, want, (size_t)N * (size_t)s.shape.vocab * 4) == 0,
                      "chunks of %d: off by %g", chunk,
                      largest(got, want, (size_t)N * (size_t)s.shape.vocab));
        free(got);
    }
    free(want);
}
END_TEST

/* A thread that another process keeps from its core holds up no job, and one that loses it
 * anywhere, again and again, changes no bit: prompts and single tokens, layers and single jobs. */
START_TEST(test_same_bits_disturbed)
{
    struct setup s = {.shape = base_shape, .kv = KV_F16, .threads = 1, .chunk = TOKENS};
    float *want, *got;

    if (!can_disturb())
        return;
    s.shape.type = DTYPE_Q8_0;
    want = forward(&s, TOKENS);
    signal(SIGUSR1, stand);
    for (int v = 0; v < 12; v++) {
        static const int chunks[] = {TOKENS, 1, 3};

        s.threads = 2 + v / 6;
        s.chunk = chunks[v % 3];
        s.jobs = v % 2;
        for (s.others = STOPPED; s.others <= TAKEN_OFF; s.others++) {
            got = forward(&s, TOKENS);
            ck_assert_msg(memcmp(got, want, (size_t)TOKENS * (size_t)s.shape.vocab * 4) == 0,
                          "%d threads, chunks of %d, %s, %s", s.threads, s.chunk,
                          s.jobs ? "jobs" : "layers",
                          s.others == STOPPED ? "stopped" : "taken off");
            free(got);
        }
    }
    free(want);
}
END_TEST

/* Heads narrower than a group of weight rows, and an odd number of them. */
START_TEST(test_same_bits_narrow)
{
    struct tiny_shape s = base_shape;

    s.type = DTYPE_Q8_0;
    s.heads = 12;
    s.kv_heads = 3;
    s.head_dim = 8;
    check_same_bits(s, KV_F16, TOKENS);
    s.heads = 8;
    s.kv_heads = 2;
    s.head_dim = 20;
    check_same_bits(s, KV_F32, 11);
}
END_TEST

START_TEST(test_same_bits_long)
{
    struct tiny_shape s = base_shape;

    s.type = DTYPE_Q8_0;
    s.layers = 1;
    s.heads = 2;
    s.kv_heads = 1;
    s.experts = 3;
    check_same_bits(s, KV_F32, 290);
}
END_TEST

/* The quantised model stays near the same weights in double: a root mean square, since a routing
 * decision may tip over. */
START_TEST(test_quantised_model)
{
    struct setup s = {.shape = base_shape, .kv = KV_F16, .threads = 2, .chunk = 16};

    for (int i = 0; i < 2; i++) {
        float *got, *want;
        double diff = 0, size = 0;

        s.shape.type = i ? DTYPE_Q4_0 : DTYPE_Q8_0;
        got = forward(&s, TOKENS);
        want = plain_forward(&s.shape, TOKENS);
        for (int k = 0; k < TOKENS * s.shape.vocab; k++) {
            diff += ((double)got[k] - (double)want[k]) * ((double)got[k] - (double)want[k]);
            size += (double)want[k] * (double)want[k];
        }
        ck_assert_msg(sqrt(diff / size) < 0.05, "off by %g of the size", sqrt(diff / size));
        free(got), free(want);
    }
}
END_TEST

/* `n` windows of a machine on which all threads get `all` done and fewer `few`, while `waiting`
 * threads wait where all compute. */
static void windows(struct crowd *c, uint64_t *now, int n, double all, double few, int waiting)
{
    for (int i = 0; i < n; i++) {
        bool full = c->use == c->most;

        *now += CROWD_WINDOW;
        crowd_judge(c, *now, full ? all : few, full ? waiting : 0);
    }
}

/* How many threads compute beside others: nothing is tried while nobody waits, the better number
 * stays, and all come back when the others go. */
START_TEST(test_crowd)
{
    struct crowd c;
    uint64_t now = 0;

    crowd_init(&c, 8);
    windows(&c, &now, 100, 1, 9, 0);
    ck_assert_int_eq(c.use, 8);
    windows(&c, &now, CROWD_SEEN - 1, 1, 9, 3);
    windows(&c, &now, 1, 1, 9, 0);
    windows(&c, &now, CROWD_SEEN - 1, 1, 9, 3); /* once in a while is no crowd */
    ck_assert_int_eq(c.use, 8);
    windows(&c, &now, 1 + CROWD_SETTLE + CROWD_MEASURE, 1, 2, 3);
    ck_assert_int_eq(c.use, 5);
    ck_assert_int_eq(c.state, CROWD_HELD);
    windows(&c, &now, 1000, 1, 2, 3); /* tried anew, kept each time */
    ck_assert_int_eq(c.fewer, 5);
    windows(&c, &now, (int)(CROWD_HOLD_MOST / CROWD_WINDOW) + 1, 2, 1, 0);
    /* the others are gone: seen at the next trial at the latest */
    ck_assert_int_eq(c.use, 8);
    ck_assert_int_eq(c.state, CROWD_QUIET);
    windows(&c, &now, CROWD_SEEN + CROWD_SETTLE + CROWD_MEASURE, 2, 1, 8);
    /* all of them are wanted, fewer were slower */
    ck_assert_int_eq(c.use, 8);
    ck_assert_int_eq(c.fewer, 4);
    ck_assert_int_eq(c.state, CROWD_HELD);
    crowd_init(&c, 2);
    windows(&c, &now, CROWD_SEEN + CROWD_SETTLE + CROWD_MEASURE, 1, 2, 2);
    ck_assert_int_eq(c.use, 1);
}
END_TEST

/* Windows are made of jobs; a pool knows how long its threads have waited. */
START_TEST(test_crowd_job)
{
    uint64_t before[2];
    struct crowd c;
    struct pool *p;
    struct error e;

    ck_assert_int_eq(pool_new(&p, 2, false, &e), 0);
    before[0] = pool_waited(p, 0);
    before[1] = pool_waited(p, 1);
    crowd_init(&c, 2);
    for (int i = 1; i <= 40; i++) {
        crowd_begin(&c, p);
        ck_assert_int_eq(crowd_end(&c, p, (uint64_t)i, CROWD_WINDOW / 4, 1.0), i % 4 == 0);
    }
    for (int i = 0; i < 2; i++)
        ck_assert(pool_waited(p, i) >= before[i]);
    pool_free(p);
}
END_TEST

/* A window of threads that work at these speeds. */
static bool shares_window(struct shares *s, const double *speed)
{
    double phases[POOL_MAX], ns[POOL_MAX];

    for (int i = 0; i < s->n; i++) {
        ns[i] = 1e7;
        phases[i] = speed[i] * 1e-4 * ns[i];
    }
    return shares_judge(s, phases, ns);
}

/* Shares follow measured speeds where they differ, and stay where they do not. */
START_TEST(test_shares)
{
    static const double same[] = {1, 0.97, 1, 0.95}, half[] = {2, 2, 1, 1}, none[] = {0, 0, 0, 0},
                        absent[] = {2, 2, 1, 0};
    struct shares s;
    int moves = 0;

    shares_init(&s, 4);
    for (int i = 0; i < 10; i++)
        ck_assert(!shares_window(&s, same));
    ck_assert(!s.differ);
    ck_assert(!shares_window(&s, none)); /* nothing was done */
    for (int i = 0; i < 30; i++)
        moves += shares_window(&s, half);
    ck_assert(s.differ);
    ck_assert_int_ge(moves, 1);
    ck_assert_int_le(moves, 20); /* it comes to rest */
    ck_assert_int_eq(s.share[0], POOL_SHARE);
    ck_assert_int_le(abs(s.share[2] - POOL_SHARE / 2), POOL_SHARE / 20);
    ck_assert(!shares_window(&s, half));
    for (int i = 0; i < 10; i++) /* a thread that had nothing to do keeps what is known of it */
        shares_window(&s, absent);
    ck_assert_int_le(abs(s.share[3] - POOL_SHARE / 2), POOL_SHARE / 20);
    for (int i = 0; i < 30; i++)
        shares_window(&s, same);
    ck_assert(!s.differ);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(s.share[i], POOL_SHARE);
}
END_TEST

/* _i: of which layer, of layers that are alike (0) or not */
START_TEST(test_kv_moves)
{
    for (int kv = 0; kv < 3; kv++) {
        struct tiny_shape unlike = unlike_shape(3);
        struct tiny_model *t = tiny_model_new(_i ? &unlike : &base_shape);
        const struct hparams *hp = &t->model.hp;
        struct device_config c = {.model = &t->model,
                                  .n_threads = 2,
                                  .max_rows = 20,
                                  .context = 64,
                                  .kv_k = (enum kv_type)kv,
                                  .kv_v = (enum kv_type)kv,
                                  .rope_cos = {t->rope_cos},
                                  .rope_sin = {t->rope_sin},
                                  .second_cos = t->second_cos,
                                  .second_sin = t->second_sin};
        static const size_t bytes[] = {128, 64, 34};
        const struct mixer_shape *m = &hparams_layer(hp, 1)->mixer;
        size_t token = bytes[kv] * (size_t)(m->kv_heads * (m->key_dim + shape_value_dim(m)) / 32);
        unsigned char *a = calloc(20, token), *b = calloc(20, token);
        float x[20 * 64], y[20 * 64], z[64], again[64];
        struct device *one, *two;
        unsigned seed = 5;
        struct error e;

        for (int i = 0; i < 20 * 64; i++)
            x[i] = tiny_random(&seed);
        ck_assert_int_eq(cpu_device_ops.open(&one, &c, &e), 0);
        ck_assert_int_eq(cpu_device_ops.open(&two, &c, &e), 0);
        struct attention_job job = {.layer = 1, .rows = 20, .pos = 0, .x = x, .y = y},
                             next = {.layer = 1, .rows = 1, .pos = 20, .x = x, .y = z};
        struct kv_move read = {.layer = 1, .pos = 0, .count = 20, .data = a, .write = false},
                       write = {.layer = 1, .pos = 0, .count = 20, .data = a, .write = true},
                       back = {.layer = 1, .pos = 3, .count = 17, .data = b, .write = false},
                       bad = {.layer = 1, .pos = 60, .count = 5, .data = a, .write = false};

        ck_assert_int_eq(cpu_device_ops.attention(one, &job, &e), 0);
        ck_assert_int_eq(cpu_device_ops.kv_rows(one, &read, &e), 0);
        ck_assert_int_eq(cpu_device_ops.kv_rows(two, &write, &e), 0);
        ck_assert_int_eq(cpu_device_ops.kv_rows(two, &back, &e), 0);
        ck_assert_mem_eq(a + 3 * token, b, 17 * token);
        ck_assert_int_eq(cpu_device_ops.attention(one, &next, &e), 0);
        memcpy(again, z, sizeof again);
        ck_assert_int_eq(cpu_device_ops.attention(two, &next, &e), 0);
        ck_assert_mem_eq(again, z, sizeof again);
        ck_assert_int_lt(cpu_device_ops.kv_rows(one, &bad, &e), 0);
        cpu_device_ops.close(one);
        cpu_device_ops.close(two);
        free(a), free(b);
        tiny_model_free(t);
    }
}
END_TEST

START_TEST(test_refusals)
{
    struct tiny_model *t = tiny_model_new(&base_shape);
    struct device_config c = {.model = &t->model,
                              .n_threads = 1,
                              .max_rows = 4,
                              .context = 32,
                              .kv_k = KV_F16,
                              .kv_v = KV_F16};
    float x[8 * 64] = {0}, y[8 * 64];
    struct device_stats stats;
    struct device *d;
    struct error e;

    ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), 0);
    struct attention_job job = {.layer = 0, .rows = 1, .pos = 0, .x = x, .y = y};

    /* no rotary table */
    ck_assert_int_eq(cpu_device_ops.attention(d, &job, &e), ERR_DEVICE);
    cpu_device_ops.close(d);
    c.rope_cos[0] = t->rope_cos;
    c.rope_sin[0] = t->rope_sin;
    ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), 0);
    ck_assert_int_eq(cpu_device_ops.attention(d, &job, &e), 0);
    job.rows = 5;
    ck_assert_int_eq(cpu_device_ops.attention(d, &job, &e), ERR_DEVICE);
    job.rows = 4;
    job.pos = 29;
    ck_assert_int_eq(cpu_device_ops.attention(d, &job, &e), ERR_CONTEXT);
    cpu_device_ops.stats(d, &stats);
    ck_assert_int_eq((int)stats.jobs, 1);
    ck_assert_int_gt((int)stats.scratch_bytes, 0);
    cpu_device_ops.close(d);
    t->model.layers[0].q.type = DTYPE_I32;
    ck_assert_int_eq(cpu_device_ops.open(&d, &c, &e), ERR_MODEL);
    ck_assert_int_eq(cpu_kernels_select("mmx", &e), ERR_USAGE);
    tiny_model_free(t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("cpu_device");
    TCase *t = tcase_create("cpu_device");

    tcase_set_timeout(t, 240);
    tcase_add_test(t, test_float_model);
    tcase_add_test(t, test_long_context);
    tcase_add_test(t, test_same_bits);
    tcase_add_test(t, test_layers_of_other_widths);
    tcase_add_loop_test(t, test_wanted_rows, 0, 2);
    tcase_add_test(t, test_same_bits_of_other_widths);
    tcase_add_test(t, test_same_bits_of_extras);
    tcase_add_test(t, test_same_bits_of_norms_behind);
    tcase_add_test(t, test_caps_logits);
    tcase_add_test(t, test_same_bits_latent);
    tcase_add_test(t, test_same_bits_compressed);
    tcase_add_loop_test(t, test_same_bits_recurrent, 0, RECURRENT_TYPES);
    tcase_add_test(t, test_same_bits_many_experts);
    tcase_add_loop_test(t, test_same_bits_float, 0, FLOAT_KINDS);
    tcase_add_loop_test(t, test_same_bits_float_large, 0, FLOAT_KINDS);
    tcase_add_test(t, test_same_bits_disturbed);
    tcase_add_test(t, test_crowd);
    tcase_add_test(t, test_crowd_job);
    tcase_add_test(t, test_shares);
    tcase_add_test(t, test_same_bits_narrow);
    tcase_add_test(t, test_same_bits_long);
    tcase_add_test(t, test_quantised_model);
    tcase_add_loop_test(t, test_kv_moves, 0, 2);
    tcase_add_test(t, test_refusals);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    support_kernel_sets();
    return support_run(suite());
}
