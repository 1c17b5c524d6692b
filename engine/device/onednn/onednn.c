/* See onednn.h. A primitive is found by its shape in a small table per thread; data handles are set
 * for each call. */
#include "engine/device/onednn/onednn.h"
#include "engine/base/library.h"
#include "engine/base/mem.h"

#include <libraries.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

/* omp_set_num_threads is found in what the library needs: libgomp. */
/* clang-format off */
#define FUNCTIONS_OF_BOTH(X) \
    X(dnnl_engine_create) X(dnnl_engine_destroy) X(dnnl_memory_create) X(dnnl_memory_destroy) \
    X(dnnl_memory_set_data_handle) X(dnnl_primitive_create) X(dnnl_primitive_desc_destroy) \
    X(dnnl_primitive_destroy) X(dnnl_primitive_execute) X(dnnl_sgemm) X(dnnl_stream_create) \
    X(dnnl_stream_destroy) X(dnnl_stream_wait) X(dnnl_version) X(omp_set_num_threads)
#if DNNL_VERSION_MAJOR >= 3
#define FUNCTIONS(X) \
    X(dnnl_matmul_primitive_desc_create) X(dnnl_memory_desc_create_with_strides) \
    X(dnnl_memory_desc_destroy) \
    FUNCTIONS_OF_BOTH(X)
#else
#define FUNCTIONS(X) \
    X(dnnl_matmul_desc_init) X(dnnl_memory_desc_init_by_strides) X(dnnl_primitive_desc_create) \
    FUNCTIONS_OF_BOTH(X)
#endif
/* clang-format on */

static struct {
    FUNCTIONS(LIBRARY_POINTER)
} lib;
static const char *const names[] = {FUNCTIONS(LIBRARY_NAME)};
static struct library library = {.file = LIBRARY_DNNL,
                                 .names = names,
                                 .functions = &lib,
                                 .n = sizeof names / sizeof *names,
                                 .lock = PTHREAD_MUTEX_INITIALIZER};

/* most shapes per thread; a power of two. Models have a handful, times the token counts in
 * sixteens */
#define ENTRIES 256

struct shape {
    int rows, cols, tokens;
    ptrdiff_t x_stride, out_stride;
    bool bf16;
};

struct entry {
    struct shape shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t x, w, out;
};

struct lane {
    dnnl_stream_t stream;
    bool started;
    struct entry entries[ENTRIES];
};

struct onednn {
    dnnl_engine_t engine;
    int n;
    struct lane *lanes;
};

const char *onednn_version(void)
{
    static _Thread_local char text[32];
    const dnnl_version_t *v;

    if (library_open(&library, NULL) < 0)
        return "";
    v = lib.dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

bool onednn_has_bf16(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

static void entry_release(struct entry *p)
{
    if (p->primitive)
        lib.dnnl_primitive_destroy(p->primitive);
    if (p->x)
        lib.dnnl_memory_destroy(p->x);
    if (p->w)
        lib.dnnl_memory_destroy(p->w);
    if (p->out)
        lib.dnnl_memory_destroy(p->out);
    *p = (struct entry){0};
}

/* The two generations of the C interface differ in who owns a memory descriptor and in how a
 * primitive is described. */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;
#define GIVEN(d) (d)
static dnnl_status_t describe(description *d, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return lib.dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides);
}

static void undescribe(description *d)
{
    if (*d)
        lib.dnnl_memory_desc_destroy(*d);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                      const description *x, const description *w,
                                      const description *out)
{
    return lib.dnnl_matmul_primitive_desc_create(pd, engine, *x, *w, NULL, *out, NULL);
}
#else
typedef dnnl_memory_desc_t description;
#define GIVEN(d) (&(d))
static dnnl_status_t describe(description *d, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return lib.dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static void undescribe(description *d)
{
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                      const description *x, const description *w,
                                      const description *out)
{
    dnnl_matmul_desc_t product;
    dnnl_status_t status = lib.dnnl_matmul_desc_init(&product, x, w, NULL, out);

    return status == dnnl_success ? lib.dnnl_primitive_desc_create(pd, &product, NULL, engine, NULL)
                                  : status;
}
#endif

static int entry_make(struct onednn *o, struct entry *p, const struct shape *s)
{
    const dnnl_dims_t x_dims = {s->tokens, s->cols}, x_strides = {s->x_stride, 1};
    /* the file's rows are the columns of the product */
    const dnnl_dims_t w_dims = {s->cols, s->rows}, w_strides = {1, s->cols};
    const dnnl_dims_t out_dims = {s->tokens, s->rows}, out_strides = {s->out_stride, 1};
    dnnl_data_type_t type = s->bf16 ? dnnl_bf16 : dnnl_f32;
    dnnl_primitive_desc_t pd = NULL;
    description x, w, out;
    int ok;

    memset(&x, 0, sizeof x);
    memset(&w, 0, sizeof w);
    memset(&out, 0, sizeof out);
    p->shape = *s;
    ok = describe(&x, x_dims, type, x_strides) == dnnl_success &&
         describe(&w, w_dims, type, w_strides) == dnnl_success &&
         describe(&out, out_dims, dnnl_f32, out_strides) == dnnl_success &&
         describe_product(&pd, o->engine, &x, &w, &out) == dnnl_success &&
         lib.dnnl_primitive_create(&p->primitive, pd) == dnnl_success &&
         lib.dnnl_memory_create(&p->x, GIVEN(x), o->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         lib.dnnl_memory_create(&p->w, GIVEN(w), o->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         lib.dnnl_memory_create(&p->out, GIVEN(out), o->engine, DNNL_MEMORY_NONE) == dnnl_success;
    if (pd)
        lib.dnnl_primitive_desc_destroy(pd);
    undescribe(&x);
    undescribe(&w);
    undescribe(&out);
    if (!ok)
        entry_release(p);
    return ok ? 0 : ERR_DEVICE;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->tokens == b->tokens &&
           a->x_stride == b->x_stride && a->out_stride == b->out_stride && a->bf16 == b->bf16;
}

/* The entry of a shape, created if new; evicts the first of a full neighbourhood. NULL: oneDNN
 * failed. */
static struct entry *entry_find(struct onednn *o, struct lane *lane, const struct shape *s)
{
    unsigned hash = (unsigned)s->rows * 31u + (unsigned)s->cols * 7u + (unsigned)s->tokens * 131u +
                    (unsigned)s->out_stride * 17u + (unsigned)s->bf16;
    struct entry *p;

    for (unsigned i = 0; i < 8; i++) {
        p = &lane->entries[(hash + i) & (ENTRIES - 1)];
        if (!p->primitive)
            return entry_make(o, p, s) == 0 ? p : NULL;
        if (same_shape(&p->shape, s))
            return p;
    }
    p = &lane->entries[hash & (ENTRIES - 1)];
    entry_release(p);
    return entry_make(o, p, s) == 0 ? p : NULL;
}

int onednn_new(struct onednn **out, int n_threads, struct error *e)
{
    struct onednn *o = mem_alloc(1, sizeof *o);

    *out = NULL;
    if (library_open(&library, e) < 0) {
        mem_free(o);
        return ERR_DEVICE;
    }
    if (!o || !(o->lanes = mem_alloc((size_t)n_threads, sizeof *o->lanes))) {
        mem_free(o);
        return error_set(e, ERR_MEMORY, "no memory for oneDNN's tables");
    }
    o->n = n_threads;
    if (lib.dnnl_engine_create(&o->engine, dnnl_cpu, 0) != dnnl_success) {
        onednn_free(o);
        return error_set(e, ERR_DEVICE,
                         "oneDNN %s does not run here; float weights use the program's own kernels",
                         onednn_version());
    }
    for (int i = 0; i < n_threads; i++)
        if (lib.dnnl_stream_create(&o->lanes[i].stream, o->engine, dnnl_stream_default_flags) !=
            dnnl_success) {
            onednn_free(o);
            return error_set(
                e, ERR_DEVICE,
                "oneDNN %s gives no stream; float weights use the program's own kernels",
                onednn_version());
        }
    *out = o;
    return 0;
}

void onednn_free(struct onednn *o)
{
    if (!o)
        return;
    for (int i = 0; i < o->n; i++) {
        for (int k = 0; k < ENTRIES; k++)
            entry_release(&o->lanes[i].entries[k]);
        if (o->lanes[i].stream)
            lib.dnnl_stream_destroy(o->lanes[i].stream);
    }
    if (o->engine)
        lib.dnnl_engine_destroy(o->engine);
    mem_free(o->lanes);
    mem_free(o);
}

int onednn_multiply(struct onednn *o, int tid, bool bf16, const void *w, int rows, int cols,
                    const void *x, ptrdiff_t x_stride, int tokens, float *out, ptrdiff_t out_stride)
{
    struct shape s = {rows, cols, tokens, x_stride, out_stride, bf16};
    struct lane *lane = &o->lanes[tid];
    struct entry *p;

    if (!lane->started) {
        lib.omp_set_num_threads(1); /* of this thread: OpenMP keeps the number per thread */
        lane->started = true;
    }
    p = entry_find(o, lane, &s);
    if (!p || lib.dnnl_memory_set_data_handle(p->x, (void *)(uintptr_t)x) != dnnl_success ||
        lib.dnnl_memory_set_data_handle(p->w, (void *)(uintptr_t)w) != dnnl_success ||
        lib.dnnl_memory_set_data_handle(p->out, out) != dnnl_success)
        return ERR_DEVICE;

    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->w}, {DNNL_ARG_DST, p->out}};

    return lib.dnnl_primitive_execute(p->primitive, lane->stream, 3, args) == dnnl_success &&
                   lib.dnnl_stream_wait(lane->stream) == dnnl_success
               ? 0
               : ERR_DEVICE;
}

int onednn_sgemm(bool a_turned, bool b_turned, int m, int n, int k, float alpha, const float *a,
                 ptrdiff_t lda, const float *b, ptrdiff_t ldb, float beta, float *c, ptrdiff_t ldc)
{
    static _Thread_local bool alone;

    if (!alone) {
        if (library_open(&library, NULL) < 0)
            return ERR_DEVICE;
        lib.omp_set_num_threads(1); /* of this thread */
        alone = true;
    }
    return lib.dnnl_sgemm(a_turned ? 'T' : 'N', b_turned ? 'T' : 'N', m, n, k, alpha, a, lda, b,
                          ldb, beta, c, ldc) == dnnl_success
               ? 0
               : ERR_DEVICE;
}
