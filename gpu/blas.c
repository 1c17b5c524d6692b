/* See blas.h. CLBlast has no BF16 and its F16 adds up in 16 bits, so both are expanded into an F32 tile that is reused. */
#include "gpu/blas.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/numerics.h"

#include <clblast_c.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TILE_BYTES (16u << 20)
#define LINE 32

static int core(struct device *d, enum core_kernel k, const char *name, size_t x, size_t y, struct error *e)
{
    const size_t global[2] = {(x + LINE - 1) / LINE * LINE, y}, local[2] = {LINE, 1};

    return launch(d, d->core[k], name, 2, global, local, e);
}

bool blas_wants(const struct device *d, enum dtype type, int rows)
{
    return d->blas.use && rows >= BLAS_ROWS && (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16);
}

static int gemm(struct device *d, cl_mem x, int rows, int k, cl_mem w, int n, cl_mem y, size_t y_offset, int ld, bool add, struct error *e)
{
    cl_event ev = NULL;
    cl_int rc = CL_SUCCESS;
    CLBlastStatusCode status = CLBlastSuccess;

    if (!cl_injected(&rc))
        status = CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo, CLBlastTransposeYes, (size_t)rows, (size_t)n, (size_t)k, 1.0f, x, 0,
                              (size_t)k, w, 0, (size_t)k, add ? 1.0f : 0.0f, y, y_offset, (size_t)ld, &d->queue, &ev);
    if (status != CLBlastSuccess && rc == CL_SUCCESS)
        rc = status < 0 && status > -1000 ? (cl_int)status : CL_INVALID_OPERATION;
    if (cl_check(d, rc, "CLBlast Sgemm", e) < 0)
        return ERR_DEVICE;
    launch_keep(d, ev);
    return 0;
}

int blas_multiply(struct device *d, cl_mem x, int rows, const struct part *p, cl_mem y, bool add, struct error *e)
{
    const struct matrix *m = p->m;
    int step = m->type == DTYPE_F32 ? m->rows : (int)(TILE_BYTES / 4 / (size_t)m->cols);

    for (int row = 0; row < m->rows; row += step) {
        int n = m->rows - row < step ? m->rows - row : step;
        cl_mem w = m->type == DTYPE_F32 ? p->mem : d->blas.tile;

        if (m->type != DTYPE_F32 &&
            (launch_args(d, d->core[CORE_EXPAND], 0, e, "mmiii", p->mem, w, row * m->cols, n * m->cols, m->type == DTYPE_F16) < 0 ||
             core(d, CORE_EXPAND, "expand", (size_t)n * (size_t)m->cols, 1, e) < 0))
            return ERR_DEVICE;
        if (gemm(d, x, rows, m->cols, w, n, y, (size_t)row, m->rows, add, e) < 0)
            return ERR_DEVICE;
    }
    if (!p->bias)
        return 0;
    if (launch_args(d, d->core[CORE_BIAS], 0, e, "mmi", y, p->bias, m->rows) < 0)
        return ERR_DEVICE;
    return core(d, CORE_BIAS, "add_bias", (size_t)m->rows, (size_t)rows, e);
}

int blas_expert(struct device *d, const struct block *b, int first, int count, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    int n = count * hp->expert_ffn;

    if (launch_args(d, d->core[CORE_GATHER], 0, e, "mmmii", d->h, d->entries, d->blas.x, first, hp->hidden) < 0 ||
        core(d, CORE_GATHER, "gather", (size_t)hp->hidden, (size_t)count, e) < 0 ||
        blas_multiply(d, d->blas.x, count, &b->part[0], d->blas.gate, false, e) < 0 ||
        blas_multiply(d, d->blas.x, count, &b->part[1], d->blas.up, false, e) < 0 ||
        launch_args(d, d->core[CORE_SILU], 0, e, "mmi", d->blas.gate, d->blas.up, n) < 0 || core(d, CORE_SILU, "silu_mul", (size_t)n, 1, e) < 0 ||
        blas_multiply(d, d->blas.gate, count, &b->part[2], d->blas.x, false, e) < 0 ||
        launch_args(d, d->core[CORE_SCATTER], 0, e, "mmmii", d->blas.x, d->entries, d->out, first, hp->hidden) < 0)
        return ERR_DEVICE;
    return core(d, CORE_SCATTER, "scatter", (size_t)hp->hidden, (size_t)count, e);
}

static size_t buffer_bytes(const struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;

    return (size_t)d->base.config.max_rows * (size_t)(hp->hidden + 2 * hp->expert_ffn) * 4 + TILE_BYTES;
}

static int buffers(struct device *d, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    size_t rows = (size_t)d->base.config.max_rows, hidden = rows * (size_t)hp->hidden * 4, ffn = rows * (size_t)hp->expert_ffn * 4;

    if (memory_buffer(d, hidden, &d->blas.x, "working memory", e) < 0 || memory_buffer(d, ffn, &d->blas.gate, "working memory", e) < 0 ||
        memory_buffer(d, ffn, &d->blas.up, "working memory", e) < 0 || memory_buffer(d, TILE_BYTES, &d->blas.tile, "working memory", e) < 0)
        return ERR_DEVICE;
    d->stats.scratch_bytes += buffer_bytes(d);
    return 0;
}

void blas_close(struct device *d)
{
    if (d->blas.x && d->blas.tile)
        d->stats.scratch_bytes -= buffer_bytes(d);
    memory_release(&d->blas.x);
    memory_release(&d->blas.gate);
    memory_release(&d->blas.up);
    memory_release(&d->blas.tile);
    d->blas.use = false;
}

/* One matrix: CLBlast against our own kernel, whose values the self-test has judged; both timed, best of three. */
static int test_matrix(struct device *d, const struct matrix *m, bool *right, uint64_t *own_ns, uint64_t *blas_ns, struct error *e)
{
    int rows = d->base.config.max_rows < 64 ? d->base.config.max_rows : 64, rc = ERR_DEVICE;
    size_t n_x = (size_t)rows * (size_t)m->cols, n_y = (size_t)rows * (size_t)m->rows;
    float *x = mem_alloc(n_x, 4), *own = mem_alloc(n_y, 4), *got = mem_alloc(n_y, 4);
    uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
    struct matrix plain = *m;
    struct part p = {.m = &plain};
    cl_mem mx = NULL, my = NULL;
    unsigned seed = 7;

    plain.bias = NULL;
    if (!x || !own || !got) {
        error_set(e, ERR_MEMORY, "OpenCL: out of memory for the self-test");
        goto out;
    }
    for (size_t i = 0; i < n_x; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int)(seed >> 8) / 8388608.0f - 1.0f;
    }
    if (memory_buffer(d, m->bytes, &p.mem, "the self-test", e) < 0 || memory_buffer(d, n_x * 4, &mx, "the self-test", e) < 0 ||
        memory_buffer(d, n_y * 4, &my, "the self-test", e) < 0 || memory_upload(d, p.mem, m->data, m->bytes, e) < 0 ||
        memory_upload(d, mx, x, n_x * 4, e) < 0)
        goto out;
    for (int round = 0; round < 4; round++)
        for (int blas = 0; blas < 2; blas++) {
            struct output o = {&p, my};
            uint64_t start = clock_now(), ns;

            if (blas ? blas_multiply(d, mx, rows, &p, my, false, e) < 0 : jobs_multiply_own(d, mx, &d->hq, rows, &o, 1, false, e) < 0)
                goto out;
            if (cl_check(d, clFinish(d->queue), "clFinish", e) < 0)
                goto out;
            ns = clock_now() - start;
            if (round && ns < best[blas])        /* the first round compiles */
                best[blas] = ns;
            if (round == 3 && cl_check(d, clEnqueueReadBuffer(d->queue, my, CL_TRUE, 0, n_y * 4, blas ? got : own, 0, NULL, NULL), "self-test", e) < 0)
                goto out;
        }
    *own_ns += best[0];
    *blas_ns += best[1];
    if (opencl_tuning_now.broken && strcmp(opencl_tuning_now.broken, "sgemm") == 0)
        got[n_y / 2] += 1.0f;
    for (size_t i = 0; i < n_y; i++) {
        float limit = 1e-4f * (1.0f + sqrtf((float)m->cols) * 0.1f);

        *right = *right && fabsf(got[i] - own[i]) <= limit;
    }
    rc = 0;
out:
    memory_release(&p.mem);
    memory_release(&mx);
    memory_release(&my);
    mem_free(x);
    mem_free(own);
    mem_free(got);
    return rc;
}

/* The which-th kind of float matrix, from the first layer that has it. */
static const struct matrix *float_matrix(const struct model *m, int which)
{
    for (int i = 0; i < m->hp.n_layers; i++) {
        const struct layer_weights *l = &m->layers[i];
        const struct matrix *list[] = {&l->q, &l->o, &l->experts[0].gate, &l->experts[0].down};

        if (!dtype_is_quantised(list[which]->type))
            return list[which];
    }
    return NULL;
}

static void tell(struct device *d, const char *line)
{
    if (d->base.config.log)
        d->base.config.log(d->base.config.log_ctx, line);
}

/* Whether the model and the chunks have anything for CLBlast. */
static bool concerned(const struct device *d)
{
    bool any = false;

    for (int i = 0; i < 4; i++)
        any = any || float_matrix(d->base.config.model, i);
    return any && d->base.config.max_rows >= BLAS_ROWS;
}

/* The verdict kept from before, "" where there is none; path: its file, "" where nothing is kept. */
static void kept(const struct device *d, uint64_t key, char *path, size_t path_size, char *word, int word_size)
{
    const char *dir = d->base.config.cache_dir;
    char *text;
    size_t n;

    word[0] = path[0] = '\0';
    if (!dir || snprintf(path, path_size, "%s/opencl-blas-%016llx.verdict", dir, (unsigned long long)key) >= (int)path_size) {
        path[0] = '\0';
        return;
    }
    if (cache_read(path, 4096, &text, &n, NULL) == 0 && text)
        snprintf(word, (size_t)word_size, "%s", text);
    mem_free(text);
}

size_t blas_needs(struct device *d, uint64_t key)
{
    char path[1024], word[32];

    kept(d, key, path, sizeof path, word, sizeof word);
    return concerned(d) && strcmp(word, "use\n") == 0 ? buffer_bytes(d) : 0;
}

int blas_open(struct device *d, uint64_t key, bool test, struct error *e)
{
    const struct device_config *c = &d->base.config;
    char path[1024], line[240], word[32];
    uint64_t own = 0, blas = 0;
    bool right = true;

    if (!concerned(d) || !d->core_usable)
        return 0;
    kept(d, key, path, sizeof path, word, sizeof word);
    if (!test && (strcmp(word, "use\n") == 0 || strcmp(word, "slower\n") == 0 || strcmp(word, "wrong\n") == 0)) {
        if (strcmp(word, "wrong\n") == 0) {
            snprintf(line, sizeof line, "OpenCL: CLBlast Sgemm computes wrong values on %.100s; own kernels are used", d->target.info.name);
            tell(d, line);
        }
        d->blas.verdict = word[0] == 'u' ? BLAS_USED : word[0] == 's' ? BLAS_SLOWER : BLAS_WRONG;
        d->blas.use = word[0] == 'u';
        return d->blas.use ? buffers(d, e) : 0;
    }
    if (!test && d->target.info.is_cpu_type)
        return 0;
    snprintf(line, sizeof line, "OpenCL: compiling and testing CLBlast on %.120s (once per driver and model)", d->target.info.name);
    tell(d, line);
    if (buffers(d, e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < 4; i++) {
        const struct matrix *m = float_matrix(c->model, i);
        struct error why;

        if (m && d->type[m->type].usable && test_matrix(d, m, &right, &own, &blas, &why) < 0) {
            if (d->lost)
                return error_set(e, ERR_DEVICE, "%s", why.text);
            tell(d, why.text);
            right = false;
        }
    }
    d->blas.verdict = !right ? BLAS_WRONG : blas < own ? BLAS_USED : BLAS_SLOWER;
    d->blas.gain = blas ? (double)own / (double)blas : 0;
    d->blas.use = d->blas.verdict == BLAS_USED || (d->blas.verdict == BLAS_SLOWER && opencl_tuning_now.blas == 2);
    snprintf(word, sizeof word, "%s\n", d->blas.verdict == BLAS_USED ? "use" : d->blas.verdict == BLAS_WRONG ? "wrong" : "slower");
    if (path[0])
        cache_write(path, word, strlen(word), NULL);
    if (d->blas.verdict == BLAS_WRONG)
        snprintf(line, sizeof line, "OpenCL: CLBlast Sgemm computes wrong values on %.100s; own kernels are used", d->target.info.name);
    else
        snprintf(line, sizeof line, "OpenCL: CLBlast is right here and %.2f times as fast as our own kernels; %s used", d->blas.gain,
                 d->blas.use ? "it is" : "those are");
    tell(d, line);
    if (!d->blas.use)
        blas_close(d);
    return 0;
}
