/* Self-test of the matrix kernels of one element type: a product, and an expert from end to end. Quantised ones against the scalar kernels of
 * the CPU device, which are the contract written down (numerics.h), to the bit; float ones within a rounding of each product. */
#include "gpu/selftest.h"
#include "engine/base/mem.h"
#include "engine/device/cpu/kernels/kernels.h"
#include "engine/device/numerics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS_M 64                /* rows of a matrix compared */
#define TOKENS_MANY 11           /* a whole tile and a part of one */

/* Row r of a float matrix against x, and the sum of magnitudes that the tolerance goes by. */
static float float_dot(const struct matrix *m, int r, const float *x, double *size)
{
    const uint8_t *p = (const uint8_t *)m->data + (size_t)r * (size_t)m->cols * (size_t)dtype_info(m->type)->bytes;
    double sum = 0;

    *size = 0;
    for (int c = 0; c < m->cols; c++) {
        uint16_t h;
        float w;

        if (m->type == DTYPE_F32) {
            memcpy(&w, p + 4 * c, 4);
        } else {
            memcpy(&h, p + 2 * c, 2);
            w = m->type == DTYPE_F16 ? num_from_f16(h) : num_from_bf16(h);
        }
        sum += (double)w * (double)x[c];
        *size += fabs((double)w * (double)x[c]);
    }
    return (float)sum;
}

/* y[rows, padded] = the matrix times one row: act of a quantised matrix, x of a float one. size: what near() wants, 0 for quantised. */
static void reference(const struct matrix *m, const struct act_block *act, const float *x, float *y, double *size)
{
    if (m->width) {
        kernels_scalar.dot[m->type](m->data, (m->rows + m->width - 1) / m->width, m->width, m->cols, act, 1, y, 0);
        memset(size, 0, (size_t)m->rows * sizeof *size);
        return;
    }
    for (int r = 0; r < m->rows; r++)
        y[r] = float_dot(m, r, x, &size[r]);
}

static bool near(float got, float want, double size)
{
    return size == 0 ? num_bits(got) == num_bits(want) : fabs((double)got - (double)want) <= 1e-5 * size;
}

/* The first rows of a matrix as a part of its own. */
static int prefix(struct selftest *b, const struct matrix *m, int rows, struct matrix *out, cl_mem *mem)
{
    *out = *m;
    out->rows = m->rows < rows ? m->rows : rows;
    out->bytes = m->width ? m->bytes / (size_t)((m->rows + m->width - 1) / m->width) * (size_t)((out->rows + m->width - 1) / m->width)
                          : m->bytes / (size_t)m->rows * (size_t)out->rows;
    out->bias = NULL;
    return memory_buffer(b->d, out->bytes, mem, "the self-test", b->e) < 0 ? ERR_DEVICE : selftest_put(b, *mem, out->data, out->bytes);
}

struct inputs {                  /* rows of activations, on the host and on the device */
    float *x;
    struct act_block *act;       /* of row t: block b at t * cols / 32 + b */
};

static int inputs_make(struct selftest *b, struct inputs *in, int rows, int cols)
{
    struct device *d = b->d;
    size_t n = (size_t)rows * (size_t)cols;
    char *bytes = mem_alloc(n, 4);
    float *scales = mem_alloc(n / 32, 8), *sums = scales ? scales + n / 32 : NULL;
    int rc = ERR_DEVICE;

    in->x = selftest_randoms(b, n, 2.0f);
    in->act = mem_alloc(n / 32, sizeof *in->act);
    if (!in->x || !in->act || !bytes || !scales) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (int t = 0; t < rows; t++)
        kernels_scalar.quantise(in->x + (size_t)t * (size_t)cols, cols, in->act + (size_t)t * (size_t)(cols / 32), 1);
    for (size_t i = 0; i < n; i++) {
        const struct act_block *a = &in->act[i / 32];

        scales[i / 32] = a->d;
        sums[i / 32] = (float)a->sum;
        if (d->dot8)
            bytes[i] = a->q[i % 32];
        else
            ((float *)bytes)[i] = a->q[i % 32];
    }
    if (selftest_put(b, d->hq.q, bytes, n * (d->dot8 ? 1 : 4)) < 0 || selftest_put(b, d->hq.d, scales, n / 32 * 4) < 0 ||
        selftest_put(b, d->hq.s, sums, n / 32 * 4) < 0 || selftest_put(b, d->h, in->x, n * 4) < 0)
        goto out;
    rc = 0;
out:
    mem_free(bytes);
    mem_free(scales);
    return rc;
}

static void inputs_release(struct inputs *in)
{
    mem_free(in->x);
    mem_free(in->act);
}

void selftest_name(char *out, size_t size, const char *kernel, enum dtype type, int many)
{
    snprintf(out, size, "%s %s, %s", kernel, dtype_info(type)->word, many ? "many tokens" : "one token");
}

/* A matrix of the model with `hidden` columns. */
int selftest_matmul(struct selftest *b, const struct matrix *m, int many)
{
    struct device *d = b->d;
    int most = d->base.config.max_rows, rows = many ? (most < TOKENS_MANY ? most : TOKENS_MANY) : 1, rc = ERR_DEVICE;
    struct matrix sub;
    struct part part = {.m = &sub};
    struct output o = {&part, d->out};
    struct inputs in = {0};
    float got[ROWS_M * TOKENS_MANY], want[ROWS_M + 16];
    double size[ROWS_M];
    char name[48];
    bool ok = true;

    if (many && most < 2)
        return 0;
    if (inputs_make(b, &in, rows, m->cols) < 0 || prefix(b, m, ROWS_M, &sub, &part.mem) < 0 ||
        jobs_multiply(d, d->h, &d->hq, rows, &o, 1, false, b->e) < 0 || selftest_get(b, d->out, 0, got, (size_t)(sub.rows * rows) * 4) < 0)
        goto out;
    for (int t = 0; t < rows; t++) {
        reference(&sub, in.act + t * (m->cols / 32), in.x + t * m->cols, want, size);
        for (int r = 0; r < sub.rows; r++)
            ok = ok && near(got[t * sub.rows + r], want[r], size[r]);
    }
    selftest_name(name, sizeof name, "matmul", m->type, many);
    if (!ok)
        selftest_wrong(b, name);
    rc = 0;
out:
    memory_release(&part.mem);
    inputs_release(&in);
    return rc;
}

/* One expert of the model as the jobs run it, whole: gate, up, SiLU, quantisation again, down. */
int selftest_expert(struct selftest *b, const struct expert_weights *x, int many)
{
    struct device *d = b->d;
    const struct hparams *hp = &d->base.config.model->hp;
    int most = d->base.config.max_rows * hp->n_experts_used, ffn = hp->expert_ffn, hidden = hp->hidden, rc = ERR_DEVICE;
    int rows = many ? (d->base.config.max_rows < TOKENS_MANY ? d->base.config.max_rows : TOKENS_MANY) : 1;
    int n_tiles = 0, tiles[4 * TOKENS_MANY], entries[2 * TOKENS_MANY], blocks = ffn / 32;
    struct block block = {.n_parts = 3}, *bank[1] = {&block};
    const struct matrix *m[3] = {&x->gate, &x->up, &x->down};
    int most_rows = (ffn > hidden ? ffn : hidden) + 16;
    struct inputs in = {0};
    float *mid = mem_alloc((size_t)(rows * ffn), 4), *got = mem_alloc((size_t)(rows * hidden), 4), *want = mem_alloc((size_t)most_rows, 8);
    double *size = mem_alloc((size_t)most_rows, sizeof *size);
    struct act_block *act = mem_alloc((size_t)blocks, sizeof *act);
    bool gate_ok = true, down_ok = true;
    char name[48];

    if ((many && rows < 2) || most < rows) {
        rc = 0;
        goto out;
    }
    if (!mid || !got || !want || !size || !act) {
        error_set(b->e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (int i = 0; i < rows; i++) {
        entries[2 * i] = rows - 1 - i;       /* gathered, not in order */
        entries[2 * i + 1] = i;
    }
    for (int i = 0; i < rows; i += many ? d->tile : 1, n_tiles++) {
        int left = rows - i;

        tiles[4 * n_tiles] = i;
        tiles[4 * n_tiles + 1] = many ? (left < d->tile ? left : d->tile) : 1;
        tiles[4 * n_tiles + 2] = tiles[4 * n_tiles + 3] = 0;
    }
    for (int i = 0; i < 3; i++) {
        block.part[i].m = m[i];
        if (memory_buffer(d, m[i]->bytes, &block.part[i].mem, "the self-test", b->e) < 0 || selftest_put(b, block.part[i].mem, m[i]->data, m[i]->bytes) < 0)
            goto out;
    }
    if (inputs_make(b, &in, rows, hidden) < 0 || selftest_put(b, d->tiles, tiles, (size_t)n_tiles * 16) < 0 || selftest_put(b, d->entries, entries, (size_t)rows * 8) < 0 ||
        jobs_expert_tiles(d, bank, 1, 0, n_tiles, many, b->e) < 0 || selftest_get(b, d->out, 0, got, (size_t)(rows * hidden) * 4) < 0)
        goto out;
    for (int i = 0; i < rows; i++) {
        int t = entries[2 * i];
        float *up = want + most_rows;

        reference(m[0], in.act + t * (hidden / 32), in.x + t * hidden, want, size);
        reference(m[1], in.act + t * (hidden / 32), in.x + t * hidden, up, size);
        for (int r = 0; r < ffn; r++)
            mid[i * ffn + r] = num_silu(want[r]) * up[r];
    }
    if (m[0]->width) {
        if (selftest_same_quantised(b, &d->mq, mid, rows, ffn, &gate_ok) < 0)
            goto out;
    } else {
        float *device_mid = mem_alloc((size_t)(rows * ffn), 4);

        if (!device_mid || selftest_get(b, d->mid, 0, device_mid, (size_t)(rows * ffn) * 4) < 0) {
            mem_free(device_mid);
            goto out;
        }
        for (int i = 0; i < rows * ffn; i++) {
            gate_ok = gate_ok && fabsf(device_mid[i] - mid[i]) <= 1e-3f * (1.0f + fabsf(mid[i]));
            mid[i] = device_mid[i];              /* the next kernel is judged on what it was given */
        }
        mem_free(device_mid);
    }
    for (int i = 0; i < rows && gate_ok; i++) {
        if (m[2]->width)
            kernels_scalar.quantise(mid + i * ffn, ffn, act, 1);
        reference(m[2], act, mid + i * ffn, want, size);
        for (int r = 0; r < hidden; r++)
            down_ok = down_ok && near(got[i * hidden + r], want[r], size[r]);
    }
    selftest_name(name, sizeof name, "gate_up", m[0]->type, many);
    if (!gate_ok)
        selftest_wrong(b, name);
    selftest_name(name, sizeof name, "down", m[2]->type, many);
    if (!down_ok)
        selftest_wrong(b, name);
    rc = 0;
out:
    for (int i = 0; i < 3; i++)
        memory_release(&block.part[i].mem);
    inputs_release(&in);
    mem_free(mid);
    mem_free(got);
    mem_free(want);
    mem_free(size);
    mem_free(act);
    return rc;
}
