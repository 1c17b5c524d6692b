/* See onednn.h. A primitive is found by its shape in a small table per thread; data handles are set
 * for each call. */
#include "engine/device/onednn/onednn.h"
#include "engine/base/library.h"
#include "engine/base/mem.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* most shapes per thread; a power of two. Models have a handful, times the token counts in
 * sixteens */
#define ENTRIES 256

struct shape {
    int rows, cols, tokens;
    ptrdiff_t x_stride, out_stride;
    bool bf16;
};

/* What is called of the library that the headers belong to: its generation is part of its name. */
#if DNNL_VERSION_MAJOR >= 3
#define LIBRARY "libdnnl.so.3"
#define GENERATION(F)                  \
    F(matmul_primitive_desc_create)    \
    F(memory_desc_create_with_strides) \
    F(memory_desc_destroy)
#else
#define LIBRARY "libdnnl.so.2"
#define GENERATION(F)              \
    F(matmul_desc_init)            \
    F(memory_desc_init_by_strides) \
    F(primitive_desc_create)
#endif
#define FUNCTIONS(F)          \
    F(engine_create)          \
    F(engine_destroy)         \
    F(memory_create)          \
    F(memory_destroy)         \
    F(memory_set_data_handle) \
    F(primitive_create)       \
    F(primitive_desc_destroy) \
    F(primitive_destroy)      \
    F(primitive_execute)      \
    F(sgemm)                  \
    F(stream_create)          \
    F(stream_destroy)         \
    F(stream_wait)            \
    F(version)                \
    GENERATION(F)
#define MEMBER(name) __typeof__(dnnl_##name) *name;
#define NAME(name) "dnnl_" #name,

static struct {
    FUNCTIONS(MEMBER)
} dnnl;
static struct { /* of the OpenMP runtime that the library was built with */
    void (*set_num_threads)(int);
} omp;
static struct error failure; /* written once, as the tables are */

static void load(void)
{
    static const char *const names[] = {FUNCTIONS(NAME) NULL};
    static const char packages[] = "package libdnnl3, libdnnl2 or onednn";

    if (library_load(LIBRARY, packages, names, &dnnl, sizeof dnnl, &failure) == 0)
        library_load(LIBRARY, packages, (const char *const[]){"omp_set_num_threads", NULL}, &omp,
                     sizeof omp, &failure);
}

bool onednn_load(struct error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    if (failure.code)
        error_set(e, ERR_DEVICE, "%s", failure.text);
    return failure.code == 0;
}

/* The library's own threads would compete with ours. OpenMP keeps the number per thread. */
static void stay_alone(void)
{
    if (omp.set_num_threads)
        omp.set_num_threads(1);
}

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

    if (!onednn_load(NULL))
        return "none";
    v = dnnl.version();
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
        dnnl.primitive_destroy(p->primitive);
    if (p->x)
        dnnl.memory_destroy(p->x);
    if (p->w)
        dnnl.memory_destroy(p->w);
    if (p->out)
        dnnl.memory_destroy(p->out);
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
    return dnnl.memory_desc_create_with_strides(d, 2, dims, type, strides);
}

static void undescribe(description *d)
{
    if (*d)
        dnnl.memory_desc_destroy(*d);
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                      const description *x, const description *w,
                                      const description *out)
{
    return dnnl.matmul_primitive_desc_create(pd, engine, *x, *w, NULL, *out, NULL);
}
#else
typedef dnnl_memory_desc_t description;
#define GIVEN(d) (&(d))
static dnnl_status_t describe(description *d, const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return dnnl.memory_desc_init_by_strides(d, 2, dims, type, strides);
}

static void undescribe(description *d)
{
}

static dnnl_status_t describe_product(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                      const description *x, const description *w,
                                      const description *out)
{
    dnnl_matmul_desc_t product;
    dnnl_status_t status = dnnl.matmul_desc_init(&product, x, w, NULL, out);

    return status == dnnl_success ? dnnl.primitive_desc_create(pd, &product, NULL, engine, NULL)
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
         dnnl.primitive_create(&p->primitive, pd) == dnnl_success &&
         dnnl.memory_create(&p->x, GIVEN(x), o->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         dnnl.memory_create(&p->w, GIVEN(w), o->engine, DNNL_MEMORY_NONE) == dnnl_success &&
         dnnl.memory_create(&p->out, GIVEN(out), o->engine, DNNL_MEMORY_NONE) == dnnl_success;
    if (pd)
        dnnl.primitive_desc_destroy(pd);
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
    struct onednn *o;
    struct error missing;

    *out = NULL;
    if (!onednn_load(&missing))
        return error_set(e, ERR_DEVICE, "float weights use the program's own kernels: %.400s",
                         missing.text);
    o = mem_alloc(1, sizeof *o);
    if (!o || !(o->lanes = mem_alloc((size_t)n_threads, sizeof *o->lanes))) {
        mem_free(o);
        return error_set(e, ERR_MEMORY, "no memory for oneDNN's tables");
    }
    o->n = n_threads;
    if (dnnl.engine_create(&o->engine, dnnl_cpu, 0) != dnnl_success) {
        onednn_free(o);
        return error_set(e, ERR_DEVICE,
                         "oneDNN %s does not run here; float weights use the program's own kernels",
                         onednn_version());
    }
    for (int i = 0; i < n_threads; i++)
        if (dnnl.stream_create(&o->lanes[i].stream, o->engine, dnnl_stream_default_flags) !=
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
            dnnl.stream_destroy(o->lanes[i].stream);
    }
    if (o->engine)
        dnnl.engine_destroy(o->engine);
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
        stay_alone();
        lane->started = true;
    }
    p = entry_find(o, lane, &s);
    if (!p || dnnl.memory_set_data_handle(p->x, (void *)(uintptr_t)x) != dnnl_success ||
        dnnl.memory_set_data_handle(p->w, (void *)(uintptr_t)w) != dnnl_success ||
        dnnl.memory_set_data_handle(p->out, out) != dnnl_success)
        return ERR_DEVICE;

    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->x}, {DNNL_ARG_WEIGHTS, p->w}, {DNNL_ARG_DST, p->out}};

    return dnnl.primitive_execute(p->primitive, lane->stream, 3, args) == dnnl_success &&
                   dnnl.stream_wait(lane->stream) == dnnl_success
               ? 0
               : ERR_DEVICE;
}

int onednn_sgemm(bool a_turned, bool b_turned, int m, int n, int k, float alpha, const float *a,
                 ptrdiff_t lda, const float *b, ptrdiff_t ldb, float beta, float *c, ptrdiff_t ldc)
{
    static _Thread_local bool alone;

    if (!onednn_load(NULL))
        return ERR_DEVICE;
    if (!alone) {
        stay_alone();
        alone = true;
    }
    return dnnl.sgemm(a_turned ? 'T' : 'N', b_turned ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb,
                      beta, c, ldc) == dnnl_success
               ? 0
               : ERR_DEVICE;
}
