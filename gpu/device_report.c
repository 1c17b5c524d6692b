/* The report on a device without the user's model: tests every kernel and CLBlast with synthetic
 * weights, in the shapes of Phi-tiny, then measures a few rates. Main thread (--list-devices). The
 * verdict on CLBlast is kept on disk, so that a CPU device may use it afterwards. */
#include "gpu/blas.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"
#include "engine/layout/pack.h"

#include <stdio.h>
#include <string.h>

#define HIDDEN 4096
#define HEADS 16
#define KV_HEADS 4
#define DIM 128
#define FFN 448
#define EXPERTS 2
#define ROWS 64
#define READ_BYTES (256u << 20)

static const enum dtype types[] = {DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_F32, DTYPE_F16, DTYPE_BF16};
#define N_TYPES (int)(sizeof types / sizeof types[0])

struct report_model { /* one layer per type */
    struct model model;
    struct layer_weights layers[N_TYPES];
    struct expert_weights experts[N_TYPES][EXPERTS];
    float *pool, *norm, *cos, *sin;
    struct {
        void *data;
        size_t bytes;
    } owned[N_TYPES * 8];
    int n_owned;
    bool failed;
};

static void make_matrix(struct report_model *m, struct matrix *out, enum dtype type, int rows,
                        int cols)
{
    *out = (struct matrix){
        .type = type, .rows = rows, .cols = cols, .width = pack_width(type, cpu_pack_width())};
    out->bytes = pack_bytes(type, rows, cols, out->width);
    if (type == DTYPE_F32) {
        out->data = m->pool;
        return;
    }
    void *data = mem_pages(out->bytes);

    if (!data) {
        m->failed = true;
        return;
    }
    pack_rows(data, type, out->width, m->pool, DTYPE_F32, rows, cols, 0,
              pack_groups(rows, out->width));
    out->data = data;
    m->owned[m->n_owned].data = data;
    m->owned[m->n_owned++].bytes = out->bytes;
}

void report_model_free(struct report_model *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_owned; i++)
        mem_pages_free(m->owned[i].data, m->owned[i].bytes);
    mem_free(m->pool);
    mem_free(m->norm);
    mem_free(m);
}

struct report_model *report_model_new(void)
{
    struct report_model *m = mem_alloc(1, sizeof *m);
    size_t n = (size_t)HEADS * DIM * HIDDEN;
    unsigned seed = 1;

    if (!m || !(m->pool = mem_alloc(n, 4)) || !(m->norm = mem_alloc(HIDDEN, 4))) {
        report_model_free(m);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        m->pool[i] = reference_random(&seed) * 0.03f;
    for (int i = 0; i < HIDDEN; i++)
        m->norm[i] = 1.0f + m->pool[i];
    m->model.hp = (struct hparams){.n_layers = N_TYPES,
                                   .hidden = HIDDEN,
                                   .common.mixer.heads = HEADS,
                                   .common.mixer.kv_heads = KV_HEADS,
                                   .common.mixer.key_dim = DIM,
                                   .n_vocab = HIDDEN,
                                   .common.ffn.experts = EXPERTS,
                                   .common.ffn.used = 2,
                                   .common.ffn.width = FFN,
                                   .context_max = 512,
                                   .common.mixer.rope_dims = DIM,
                                   .common.norms.eps = 1e-5f,
                                   .common.ffn.router.jitter = 0.01f};
    hparams_count(&m->model.hp);
    m->model.layers = m->layers;
    m->model.output_norm = (struct norm_weights){m->norm, NULL};
    for (int t = 0; t < N_TYPES && !m->failed; t++) {
        struct layer_weights *l = &m->layers[t];

        l->attention_norm = l->expert_norm = (struct norm_weights){m->norm, m->pool};
        l->router = m->pool;
        l->experts = m->experts[t];
        make_matrix(m, &l->q, types[t], HEADS * DIM, HIDDEN);
        make_matrix(m, &l->k, types[t], KV_HEADS * DIM, HIDDEN);
        l->v = l->k;
        make_matrix(m, &l->o, types[t], HIDDEN, HEADS * DIM);
        make_matrix(m, &m->experts[t][0].gate, types[t], FFN, HIDDEN);
        m->experts[t][0].up = m->experts[t][0].gate;
        make_matrix(m, &m->experts[t][0].down, types[t], HIDDEN, FFN);
        for (int x = 1; x < EXPERTS; x++)
            m->experts[t][x] = m->experts[t][0];
    }
    m->model.head = m->layers[0].q;
    if (m->failed) {
        report_model_free(m);
        return NULL;
    }
    return m;
}

/* Best of some rounds of one product; 0 when it fails. */
static uint64_t time_product(struct device *d, const struct part *p, cl_mem x, cl_mem y, int rows,
                             int rounds, bool blas)
{
    struct output o = {p, y};
    uint64_t best = UINT64_MAX;
    struct error e;

    for (int i = 0; i < rounds; i++) {
        uint64_t start = clock_now(), ns;

        if ((blas ? blas_multiply(d, x, rows, p, y, false, &e)
                  : jobs_multiply_own(d, x, &d->hq, rows, &o, 1, false, &e)) < 0 ||
            cl.Finish(d->queue) != CL_SUCCESS)
            return 0;
        ns = clock_now() - start;
        if (i && ns < best)
            best = ns;
    }
    return best;
}

static void measure(struct device *d, const struct report_model *m, struct device_report *out)
{
    size_t bytes = READ_BYTES, limit = d->target.info.max_alloc < d->target.info.memory / 8
                                           ? d->target.info.max_alloc
                                           : d->target.info.memory / 8;
    struct matrix big = m->layers[0].q;
    struct part p = {.m = &big};
    cl_mem y = NULL;
    void *host = NULL;
    uint64_t ns;
    struct error e;

    bytes = bytes < limit ? bytes : limit;
    big.rows = (int)(bytes / (size_t)(HIDDEN / 32 * 34)) / 16 * 16;
    big.bytes = pack_bytes(big.type, big.rows, HIDDEN, big.width);
    if (d->type[DTYPE_Q8_0].usable && memory_buffer(d, big.bytes, &p.mem, "measuring", &e) == 0 &&
        memory_buffer(d, (size_t)big.rows * 4 + 64, &y, "measuring", &e) == 0) {
        if ((ns = time_product(d, &p, d->h, y, 1, 5, false)))
            out->read_rate = (double)big.bytes * 1e9 / (double)ns;
        if ((host = mem_pages(32u << 20))) {
            uint64_t best = UINT64_MAX;

            memset(host, 1, 32u << 20);
            for (int i = 0; i < 4; i++) {
                uint64_t start = clock_now();

                if (cl.EnqueueWriteBuffer(d->queue, p.mem, CL_TRUE, 0, 32u << 20, host, 0, NULL,
                                          NULL) != CL_SUCCESS)
                    break;
                ns = clock_now() - start;
                best = ns < best ? ns : best;
            }
            out->copy_rate = best == UINT64_MAX ? 0 : (double)(32u << 20) * 1e9 / (double)best;
            mem_pages_free(host, 32u << 20);
        }
    }
    memory_release(&p.mem);
    memory_release(&y);
    for (int t = 0; t < 2; t++) {
        const struct matrix *q = &m->layers[t ? 2 : 0].q;
        struct part one = {.m = q};
        double work = 2.0 * ROWS * q->rows * q->cols;

        if (!d->type[q->type].usable || memory_buffer(d, q->bytes, &one.mem, "measuring", &e) < 0)
            continue;
        if (memory_upload(d, one.mem, q->data, q->bytes, &e) == 0 &&
            (ns = time_product(d, &one, d->h, d->q, ROWS, 4, false))) {
            if (t)
                out->f32_rate = work * 1e9 / (double)ns;
            else
                out->q8_rate = work * 1e9 / (double)ns;
            if (t && d->blas.x && (ns = time_product(d, &one, d->h, d->q, ROWS, 4, true)))
                out->library_rate = work * 1e9 / (double)ns;
        }
        memory_release(&one.mem);
    }
}

static void describe(struct device *d, struct device_report *out)
{
    static const char *const verdicts[] = {"not tested", "right and faster: used",
                                           "right, but slower than our own kernels: not used",
                                           "wrong values: not used"};
    struct error missing;
    size_t n = 0;

    out->supported[0] = '\0';
    for (int k = 0; k < 3; k++) {
        static const char *const kinds[] = {"attention", "experts", "head"};
        bool any = false;

        for (int t = 0; t < N_TYPES; t++)
            if (kernel_set_supports(d, (enum block_kind)k, types[t])) {
                n += (size_t)snprintf(out->supported + n, sizeof out->supported - n, "%s%s%s%s",
                                      any ? " "
                                      : n ? "; "
                                          : "",
                                      any ? "" : kinds[k], any ? "" : " ",
                                      dtype_info(types[t])->word);
                any = true;
                if (n >= sizeof out->supported)
                    return;
            }
    }
    if (n == 0)
        snprintf(out->supported, sizeof out->supported, "nothing");
    snprintf(out->selftest, sizeof out->selftest, "%s", d->verdict);
    snprintf(out->shapes, sizeof out->shapes, "%s", d->shapes);
    if (d->blas.verdict == BLAS_MISSING)
        snprintf(out->library, sizeof out->library, "CLBlast: %.*s: not used",
                 (int)sizeof out->library - 24, blas_load(&missing) < 0 ? missing.text : "");
    else if (d->blas.gain > 0)
        snprintf(out->library, sizeof out->library, "CLBlast: %s (%.2f times our speed)",
                 verdicts[d->blas.verdict], d->blas.gain);
    else
        snprintf(out->library, sizeof out->library, "CLBlast: %s", verdicts[d->blas.verdict]);
}

struct device_config report_model_config(const struct report_model *m)
{
    return (struct device_config){.model = &m->model,
                                  .n_threads = 1,
                                  .max_rows = ROWS,
                                  .context = 512,
                                  .kv_k = KV_F16,
                                  .kv_v = KV_F16};
}

void device_report_fill(struct device *d, const struct report_model *m, struct device_report *out)
{
    measure(d, m, out);
    describe(d, out);
}
