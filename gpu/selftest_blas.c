/* Whether CLBlast is right and faster on this driver, device and model; the verdict is kept on disk
 * (blas.h). Engine thread, inside open: this may allocate and wait. */
#include "gpu/blas.h"
#include "engine/base/cache.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/conformance/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One matrix: CLBlast against our own kernel, which passed the self-test; both timed, best of
 * three. */
static int test_matrix(struct device *d, const struct matrix *m, bool *right, uint64_t *own_ns,
                       uint64_t *blas_ns, struct error *e)
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
    for (size_t i = 0; i < n_x; i++)
        x[i] = reference_random(&seed);
    if (memory_buffer(d, m->bytes, &p.mem, "the self-test", e) < 0 ||
        memory_buffer(d, n_x * 4, &mx, "the self-test", e) < 0 ||
        memory_buffer(d, n_y * 4, &my, "the self-test", e) < 0 ||
        memory_upload(d, p.mem, m->data, m->bytes, e) < 0 ||
        memory_upload(d, mx, x, n_x * 4, e) < 0)
        goto out;
    for (int round = 0; round < 4; round++)
        for (int blas = 0; blas < 2; blas++) {
            struct output o = {&p, my};
            uint64_t start = clock_now(), ns;

            if (blas ? blas_multiply(d, mx, rows, &p, my, false, e) < 0
                     : jobs_multiply_own(d, mx, &d->hq, rows, &o, 1, false, e) < 0)
                goto out;
            if (cl_check(d, cl.Finish(d->queue), "clFinish", e) < 0)
                goto out;
            ns = clock_now() - start;
            if (round && ns < best[blas]) /* the first round compiles */
                best[blas] = ns;
            if (round == 3 && cl_check(d,
                                       cl.EnqueueReadBuffer(d->queue, my, CL_TRUE, 0, n_y * 4,
                                                            blas ? got : own, 0, NULL, NULL),
                                       "self-test", e) < 0)
                goto out;
        }
    *own_ns += best[0];
    *blas_ns += best[1];
    if (opencl_tuning()->broken && strcmp(opencl_tuning()->broken, "sgemm") == 0)
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
    static const enum matrix_part parts[] = {MATRIX_Q, MATRIX_O, MATRIX_GATE, MATRIX_DOWN};
    struct block_matrix list[BLOCK_MATRICES];

    for (struct block_id id = BLOCK_BEFORE; model_block_next(m, &id);)
        for (int i = 0, n = model_block_matrices(m, id, list); i < n; i++)
            if (list[i].part == parts[which] && !dtype_is_quantised(list[i].w->type))
                return list[i].w;
    return NULL;
}

/* Whether the model and the chunk size can use CLBlast at all. */
static bool concerned(const struct device *d)
{
    bool any = false;

    for (int i = 0; i < 4; i++)
        any = any || float_matrix(d->base.config.model, i);
    return any && d->base.config.max_rows >= BLAS_ROWS;
}

/* The stored verdict, "" if there is none; path: its file, "" without cache. */
static void kept(const struct device *d, uint64_t key, char *path, size_t path_size, char *word,
                 int word_size)
{
    const char *dir = d->base.config.cache_dir;
    char *text;
    size_t n;

    word[0] = path[0] = '\0';
    if (!dir || snprintf(path, path_size, "%s/opencl-blas-%016llx.verdict", dir,
                         (unsigned long long)key) >= (int)path_size) {
        path[0] = '\0';
        return;
    }
    if (cache_read(path, 4096, &text, &n, NULL) == 0 && text)
        snprintf(word, (size_t)word_size, "%s", text);
    mem_free(text);
}

size_t blas_footprint(struct device *d, uint64_t key)
{
    char path[1024], word[32];

    kept(d, key, path, sizeof path, word, sizeof word);
    return concerned(d) && strcmp(word, "use\n") == 0 && blas_load(NULL) == 0 ? blas_buffer_bytes(d)
                                                                              : 0;
}

int blas_open(struct device *d, uint64_t key, bool test, struct error *e)
{
    const struct device_config *c = &d->base.config;
    char path[1024], line[240], word[32];
    uint64_t own = 0, blas = 0;
    bool right = true;
    struct error missing;

    if (!concerned(d) || !d->core_usable)
        return 0;
    if (blas_load(&missing) < 0) {
        snprintf(line, sizeof line, "OpenCL: float weights use our own kernels: %.180s",
                 missing.text);
        log_line(d, line);
        d->blas.verdict = BLAS_MISSING;
        return 0;
    }
    kept(d, key, path, sizeof path, word, sizeof word);
    if (!test && (strcmp(word, "use\n") == 0 || strcmp(word, "slower\n") == 0 ||
                  strcmp(word, "wrong\n") == 0)) {
        if (strcmp(word, "wrong\n") == 0) {
            snprintf(line, sizeof line,
                     "OpenCL: CLBlast Sgemm computes wrong values on %.100s; own kernels are used",
                     d->target.info.name);
            log_line(d, line);
        }
        d->blas.verdict = word[0] == 'u' ? BLAS_USED : word[0] == 's' ? BLAS_SLOWER : BLAS_WRONG;
        d->blas.use = word[0] == 'u';
        return d->blas.use ? blas_buffers(d, e) : 0;
    }
    if (!test && d->target.info.is_cpu_type)
        return 0;
    snprintf(line, sizeof line,
             "OpenCL: compiling and testing CLBlast on %.120s (once per driver and model)",
             d->target.info.name);
    log_line(d, line);
    if (blas_buffers(d, e) < 0)
        return ERR_DEVICE;
    for (int i = 0; i < 4; i++) {
        const struct matrix *m = float_matrix(c->model, i);
        struct error why;

        if (m && d->type[m->type].usable && test_matrix(d, m, &right, &own, &blas, &why) < 0) {
            if (d->lost)
                return error_set(e, ERR_DEVICE, "%s", why.text);
            log_line(d, why.text);
            right = false;
        }
    }
    d->blas.verdict = !right ? BLAS_WRONG : blas < own ? BLAS_USED : BLAS_SLOWER;
    d->blas.gain = blas ? (double)own / (double)blas : 0;
    d->blas.use = d->blas.verdict == BLAS_USED ||
                  (d->blas.verdict == BLAS_SLOWER && opencl_tuning()->blas == 2);
    snprintf(word, sizeof word, "%s\n",
             d->blas.verdict == BLAS_USED    ? "use"
             : d->blas.verdict == BLAS_WRONG ? "wrong"
                                             : "slower");
    if (path[0])
        cache_write(path, word, strlen(word), NULL);
    if (d->blas.verdict == BLAS_WRONG)
        snprintf(line, sizeof line,
                 "OpenCL: CLBlast Sgemm computes wrong values on %.100s; own kernels are used",
                 d->target.info.name);
    else
        snprintf(line, sizeof line,
                 "OpenCL: CLBlast is right here and %.2f times as fast as our own kernels; %s used",
                 d->blas.gain, d->blas.use ? "it is" : "those are");
    log_line(d, line);
    if (!d->blas.use)
        blas_close(d);
    return 0;
}
