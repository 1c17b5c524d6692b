/* See blas.h. CLBlast has no BF16 and its F16 accumulates in 16 bits, so both are converted to a
 * reusable F32 tile. */
#include "gpu/blas.h"
#include "engine/base/library.h"

#include <clblast_c.h>
#include <pthread.h>

#define TILE_BYTES (16u << 20)

#define CLBLAST_FUNCTIONS(F) F(CLBlastSgemm)
static struct {
    CLBLAST_FUNCTIONS(LIBRARY_MEMBER)
} clblast;
static struct error failure; /* written once, as the table is */

static void load(void)
{
    static const char *const names[] = {CLBLAST_FUNCTIONS(LIBRARY_NAME) NULL};

    library_load("libclblast.so.1", "package libclblast1 or clblast", names, &clblast,
                 sizeof clblast, &failure);
}

int blas_load(struct error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    return failure.code ? error_set(e, failure.code, "%s", failure.text) : 0;
}

bool blas_wants(const struct device *d, enum dtype type, int rows)
{
    return d->blas.use && rows >= BLAS_ROWS &&
           (type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16);
}

static int gemm(struct device *d, cl_mem x, int rows, int k, cl_mem w, int n, cl_mem y,
                size_t y_offset, int ld, bool add, struct error *e)
{
    cl_event ev = NULL;
    cl_int rc = CL_SUCCESS;
    CLBlastStatusCode status = CLBlastSuccess;

    if (!cl_injected(&rc))
        status = clblast.CLBlastSgemm(CLBlastLayoutRowMajor, CLBlastTransposeNo,
                                      CLBlastTransposeYes, (size_t)rows, (size_t)n, (size_t)k, 1.0f,
                                      x, 0, (size_t)k, w, 0, (size_t)k, add ? 1.0f : 0.0f, y,
                                      y_offset, (size_t)ld, &d->queue, &ev);
    if (status != CLBlastSuccess && rc == CL_SUCCESS)
        rc = status < 0 && status > -1000 ? (cl_int)status : CL_INVALID_OPERATION;
    if (cl_check(d, rc, "CLBlast Sgemm", e) < 0)
        return ERR_DEVICE;
    launch_keep(d, ev);
    return 0;
}

int blas_multiply(struct device *d, cl_mem x, int rows, const struct part *p, cl_mem y, bool add,
                  struct error *e)
{
    const struct matrix *m = p->m;
    int step = m->type == DTYPE_F32 ? m->rows : (int)(TILE_BYTES / 4 / (size_t)m->cols);

    for (int row = 0; row < m->rows; row += step) {
        int n = m->rows - row < step ? m->rows - row : step;
        cl_mem w = m->type == DTYPE_F32 ? p->mem : d->blas.tile;

        if (m->type != DTYPE_F32 &&
            (launch_args(d, d->core[CORE_EXPAND], 0, e, "mmiii", p->mem, w, row * m->cols,
                         n * m->cols, m->type == DTYPE_F16) < 0 ||
             launch_core(d, CORE_EXPAND, "expand", (size_t)n * (size_t)m->cols, 1, 1, CORE_ITEMS,
                         e) < 0))
            return ERR_DEVICE;
        if (gemm(d, x, rows, m->cols, w, n, y, (size_t)row, m->rows, add, e) < 0)
            return ERR_DEVICE;
    }
    if (!m->bias)
        return 0;
    if (launch_args(d, d->core[CORE_BIAS], 0, e, "mmi", y, p->bias, m->rows) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_BIAS, "add_bias", (size_t)m->rows, (size_t)rows, 1, CORE_ITEMS, e);
}

int blas_expert(struct device *d, const struct ffn_shape *s, const struct block *b, int first,
                int count, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    int n = count * b->part[1].m->rows;

    if (launch_args(d, d->core[CORE_GATHER], 0, e, "mmmii", d->h, d->entries, d->blas.x, first,
                    hp->hidden) < 0 ||
        launch_core(d, CORE_GATHER, "gather", (size_t)hp->hidden, (size_t)count, 1, CORE_ITEMS, e) <
            0 ||
        (b->part[0].m &&
         blas_multiply(d, d->blas.x, count, &b->part[0], d->blas.gate, false, e) < 0) ||
        blas_multiply(d, d->blas.x, count, &b->part[1], d->blas.up, false, e) < 0 ||
        launch_args(d, d->core[CORE_ACTIVATE], 0, e, "mmifi", d->blas.gate, d->blas.up,
                    (int)s->activation, (double)s->limit, n) < 0 ||
        launch_core(d, CORE_ACTIVATE, "activate", (size_t)n, 1, 1, CORE_ITEMS, e) < 0 ||
        blas_multiply(d, d->blas.gate, count, &b->part[2], d->blas.x, false, e) < 0 ||
        launch_args(d, d->core[CORE_SCATTER], 0, e, "mmmii", d->blas.x, d->entries, d->out, first,
                    hp->hidden) < 0)
        return ERR_DEVICE;
    return launch_core(d, CORE_SCATTER, "scatter", (size_t)hp->hidden, (size_t)count, 1, CORE_ITEMS,
                       e);
}

size_t blas_buffer_bytes(const struct device *d)
{
    const struct hparams *hp = &d->base.config.model->hp;

    return (size_t)d->base.config.max_rows * (size_t)(hp->hidden + 2 * d->most_ffn) * 4 +
           TILE_BYTES;
}

int blas_buffers(struct device *d, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    size_t rows = (size_t)d->base.config.max_rows, hidden = rows * (size_t)hp->hidden * 4,
           ffn = rows * (size_t)d->most_ffn * 4;

    if (memory_buffer(d, hidden, &d->blas.x, "working memory", e) < 0 ||
        memory_buffer(d, ffn, &d->blas.gate, "working memory", e) < 0 ||
        memory_buffer(d, ffn, &d->blas.up, "working memory", e) < 0 ||
        memory_buffer(d, TILE_BYTES, &d->blas.tile, "working memory", e) < 0)
        return ERR_DEVICE;
    d->stats.scratch_bytes += blas_buffer_bytes(d);
    return 0;
}

void blas_close(struct device *d)
{
    if (d->blas.x && d->blas.tile)
        d->stats.scratch_bytes -= blas_buffer_bytes(d);
    memory_release(&d->blas.x);
    memory_release(&d->blas.gate);
    memory_release(&d->blas.up);
    memory_release(&d->blas.tile);
    d->blas.use = false;
}
