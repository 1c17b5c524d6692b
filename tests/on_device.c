#include "tests/on_device.h"
#include "gpu/driver/tuning.h"
#include "gpu/opencl.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char on_device_cache[256];

const struct tiny_shape on_device_shape = {.layers = 2,
                                           .hidden = 64,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .head_dim = 32,
                                           .ffn = 96,
                                           .experts = 6,
                                           .vocab = 77,
                                           .context = 640,
                                           .type = DTYPE_Q8_0,
                                           .width = 16,
                                           .bias = 1,
                                           .seed = 7};

void on_device_log(void *ctx, const char *line)
{
    (void)ctx, (void)line;
    if (getenv("CHECK_LOG"))
        fprintf(stderr, "%s\n", line);
}

const char *on_device_selector(void)
{
    return getenv("CHECK_OPENCL");
}

bool on_device_there(int shape)
{
    struct device_info info[DEVICE_MAX];
    char why[256];
    int n = opencl_device_ops.probe(info, DEVICE_MAX, why, sizeof why),
        at = on_device_selector() ? atoi(on_device_selector() + 7) : 0;
    struct opencl_tuning t = {.shape = shape};

    if (n <= at || info[at].why_not[0]) {
        fprintf(stderr, "skipped: %s\n", n > at ? info[at].why_not : why);
        return false;
    }
    if (shape == 2 && strncmp(info[at].driver, "rusticl", 7) == 0) {
        fprintf(stderr, "skipped: vector kernels are not for %s\n", info[at].driver);
        return false;
    }
    opencl_tune(&t);
    return true;
}

struct device_config on_device_config(const struct tiny_model *t, const struct on_device *s)
{
    return (struct device_config){.model = &t->model,
                                  .n_threads = 1,
                                  .max_rows = s->chunk,
                                  .context = s->shape.context,
                                  .kv_k = s->kv,
                                  .kv_v = s->kv,
                                  .exact = true,
                                  .selector = on_device_selector(),
                                  .cache_dir = on_device_cache,
                                  .rope_cos = {t->rope_cos},
                                  .rope_sin = {t->rope_sin},
                                  .log = on_device_log};
}

void on_device_put_all(const struct device_ops *ops, struct device *d, const struct hparams *hp)
{
    struct error e;
    int rc;

    for (int l = 0; l < hp->n_layers; l++)
        for (int x = -1; x < shape_experts(hparams_layer(hp, l)); x++) {
            struct block_id id = {x < 0 ? BLOCK_ATTENTION : BLOCK_EXPERT, l, x < 0 ? 0 : x};

            while ((rc = ops->block_put(d, id, 1000, &e)) == 0)
                ;
            ck_assert_msg(rc == 1, "%s", e.text);
        }
    while ((rc = ops->block_put(d, (struct block_id){BLOCK_HEAD, 0, 0}, 1 << 20, &e)) == 0)
        ;
    ck_assert_msg(rc == 1, "%s", e.text);
}

/* Single jobs, as the forward pass drives several devices: what a back end has not, the CPU does.
 * split: every split-th expert is computed by the CPU at the same time (0: all by dev; negative:
 * the first -split, so that the last ones of a layer are on the device). */
static void run_jobs(const struct device_ops *ops, struct device *dev, struct device *cpu,
                     const struct hparams *hp, int layer, int rows, int pos, int split, float *x)
{
    size_t hidden = (size_t)hp->hidden;
    int used = hp->n_experts_used, n = 0, n_groups[2] = {0, 0};
    float *y = calloc((size_t)rows * hidden, 4), *h = calloc((size_t)rows * hidden, 4),
          *out = calloc((size_t)(rows * used) * hidden, 4);
    float *weights = calloc((size_t)(rows * used), 4);
    int *experts = calloc((size_t)(rows * used), sizeof(int)),
        *row = calloc((size_t)(rows * used), sizeof(int)),
        *slot = calloc((size_t)(rows * used), sizeof(int));
    struct expert_group *groups = calloc((size_t)hp->n_experts * 2, sizeof *groups);
    struct error e;
    struct attention_job a = {.layer = layer, .rows = rows, .pos = pos, .x = x, .y = y};

    ck_assert_msg(ops->attention(dev, &a, &e) == 0, "%s", e.text);
    ck_assert_msg(ops->wait(dev, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < (size_t)rows * hidden; i++)
        x[i] = x[i] + y[i];
    struct route_job r = {.layer = layer,
                          .rows = rows,
                          .x = x,
                          .h = h,
                          .scores = NULL,
                          .experts = experts,
                          .weights = weights,
                          .pos = 0};

    ck_assert_int_eq(cpu_device_ops.route(cpu, &r, &e), 0);
    for (int ex = 0; ex < hp->n_experts; ex++) {
        int first = n, to = split > 0 ? ex % split == 0 : ex < -split;

        for (int i = 0; i < rows * used; i++)
            if (experts[i] == ex) {
                row[n] = i / used;
                slot[n++] = i % used;
            }
        if (n > first)
            groups[to * hp->n_experts + n_groups[to]++] = (struct expert_group){ex, first,
                                                                                n - first};
    }
    struct experts_job j = {layer, rows, h, n_groups[0], groups, row, slot, out, NULL, weights},
                       host = j;

    host.n_groups = n_groups[1];
    host.groups = groups + hp->n_experts;
    ck_assert_msg(!n_groups[0] || ops->experts(dev, &j, &e) == 0, "%s", e.text);
    if (n_groups[1])
        ck_assert_int_eq(cpu_device_ops.experts(cpu, &host, &e), 0);
    ck_assert_msg(ops->wait(dev, &e) == 0, "%s", e.text);
    struct combine_job c = {.layer = layer, .rows = rows, .out = out, .weights = weights, .x = x};

    ck_assert_int_eq(cpu_device_ops.combine(cpu, &c, &e), 0);
    free(y), free(h), free(out), free(weights), free(experts), free(row), free(slot), free(groups);
}

float *on_device_forward(const struct device_ops *ops, const struct on_device *s, int n, int split)
{
    struct tiny_model *t = tiny_model_new(&s->shape);
    const struct hparams *hp = &t->model.hp;
    struct device_config c = on_device_config(t, s);
    float *logits = calloc((size_t)n * (size_t)hp->n_vocab, 4),
          *x = calloc((size_t)n * (size_t)hp->hidden, 4);
    int *experts = calloc((size_t)(hp->n_layers * n * 2), sizeof(int));
    float *weights = calloc((size_t)(hp->n_layers * n * 2), 4);
    unsigned seed = 99;
    struct device *dev, *cpu;
    struct device_stats stats;
    struct error e;

    ck_assert_msg(ops->open(&dev, &c, &e) == 0, "%s", e.text);
    ck_assert_msg(cpu_device_ops.open(&cpu, &c, &e) == 0, "%s", e.text);
    if (ops != &cpu_device_ops)
        on_device_put_all(ops, dev, hp);
    for (int i = 0; i < n * hp->hidden; i++)
        x[i] = tiny_random(&seed);
    for (int pos = 0; pos < n; pos += s->chunk) {
        int rows = n - pos < s->chunk ? n - pos : s->chunk;
        float *at = x + (size_t)pos * (size_t)hp->hidden;
        struct layers_job l = {.first = 0,
                               .last = hp->n_layers,
                               .rows = rows,
                               .pos = pos,
                               .x = at,
                               .experts = experts,
                               .weights = weights};
        struct head_job h = {rows, at, logits + (size_t)pos * (size_t)hp->n_vocab, NULL};

        if (s->jobs)
            for (int layer = 0; layer < hp->n_layers; layer++)
                run_jobs(ops, dev, cpu, hp, layer, rows, pos, split, at);
        else
            ck_assert_msg(ops->layers(dev, &l, &e) == 0 && ops->wait(dev, &e) == 0, "%s", e.text);
        ck_assert_msg(ops->head(dev, &h, &e) == 0 && ops->wait(dev, &e) == 0, "%s", e.text);
    }
    if (ops != &cpu_device_ops) {
        ops->stats(dev, &stats);
        ck_assert_uint_gt(stats.busy_ns, 0);
        ck_assert_uint_gt(stats.weight_bytes, 0);
    }
    ops->close(dev);
    cpu_device_ops.close(cpu);
    tiny_model_free(t);
    free(x), free(experts), free(weights);
    return logits;
}

double on_device_difference(const float *a, const float *b, size_t n)
{
    double worst = 0;

    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);

        worst = diff > worst || diff != diff ? diff : worst;
    }
    return worst;
}
