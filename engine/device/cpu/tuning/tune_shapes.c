/* Measures the tuning table on an opened CPU device (purpose: shape_table.h). Engine thread, no job
 * running: the device's own multiply runs with a table of one entry that forces one of the two
 * kernels, on synthetic weights, so that it does not depend on what is loaded or packed. One
 * thread: the others may be busy packing, and a threshold for one core is valid for all of them. */
#include "engine/base/hash.h"
#include "engine/device/cpu/cpu.h"
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/device/cpu/tuning/microbench.h"
#include "engine/layout/pack.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define WEIGHTS ((size_t)16 << 20) /* larger than second-level caches */
#define LINE 64
#define SAMPLE_NS 20000
#define BUDGET_NS (150 * CLOCK_MILLI)

static const int counts_quantised[TUNE_COUNTS] = {8, 12, 16, 24, 32, 48, 64, 96, 128};
static const int counts_float[TUNE_COUNTS] = {3, 4, 6, 8, 10, 12, 16, 24, 32};

/* One shape's matrix and its input. */
struct trial {
    struct cpu_device *d;
    struct matrix w;
    int rows, next; /* of a slice; where the next one begins */
    struct act_block *panel;
    float *x, *out;
};

static int default_of(const struct cpu_device *d, enum dtype type)
{
    return tune_default(type, d->k->small_batch_end, d->bf16);
}

/* Whether there are two kernels to choose from. */
static bool has_choice(const struct cpu_device *d, enum dtype type)
{
    return dtype_is_quantised(type) ? d->k->small_batch_set != NULL : d->library != NULL;
}

/* Evicts from all caches: prefill reads each slice from memory, and the kernels differ in how well
 * they prefetch. If the processor cannot, the last-level cache may answer. */
static void drop(const uint8_t *p, size_t bytes)
{
#if defined(__x86_64__)
    unsigned a, b = 0, c, d;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 23 & 1))
        return;
    for (size_t i = 0; i < bytes; i += LINE)
        __asm__ volatile("clflushopt %0" : : "m"(p[i]));
    __asm__ volatile("mfence" : : : "memory");
#elif defined(__aarch64__)
    for (size_t i = 0; i < bytes; i += LINE)
        __asm__ volatile("dc civac, %0" : : "r"(p + i) : "memory");
    __asm__ volatile("dsb ish" : : : "memory");
#endif
}

static uint64_t sample(struct trial *t, int n, int from, int repeat)
{
    struct tune forced = {
        .n = 1, .entry = {{.type = t->w.type, .rows = t->rows, .cols = t->w.cols, .from = from}}};
    struct input in = {
        .n = n, .cols = t->w.cols, .panels = t->panel, .rows = t->x, .stride = t->w.cols};
    const struct tune *old = t->d->thresholds;
    size_t row = dtype_row_bytes(t->w.type, t->w.cols);
    uint64_t start;

    t->d->thresholds = &forced;
    repeat = repeat * t->rows <= t->w.rows ? repeat : t->w.rows / t->rows;
    t->next = t->next + repeat * t->rows <= t->w.rows ? t->next : 0;
    drop((const uint8_t *)t->w.data + row * (size_t)t->next, row * (size_t)(repeat * t->rows));
    start = clock_now();
    for (int i = 0; i < repeat; i++) {
        gemm(t->d, 0, &t->w, t->next, t->next + t->rows, &in, 0, n, t->out, t->rows);
        t->next += t->rows;
    }
    start = clock_now() - start;
    t->d->thresholds = old;
    return start;
}

static int measure_shape(struct trial *t, int otherwise)
{
    const int *count = dtype_is_quantised(t->w.type) ? counts_quantised : counts_float;
    double small_batch[TUNE_COUNTS][TUNE_PAIRS], large_batch[TUNE_COUNTS][TUNE_PAIRS];

    for (int i = 0; i < TUNE_COUNTS; i++) {
        int repeat;

        sample(t, count[i], 2, 1); /* the library generates its code */
        sample(t, count[i], TUNE_NEVER, 1);
        repeat = 1 + (int)(SAMPLE_NS / (sample(t, count[i], 2, 1) + 1));
        for (int p = 0; p < TUNE_PAIRS; p++)
            for (int k = 0; k < 2; k++) {
                bool second = (k ^ p) & 1;

                (second ? large_batch : small_batch)[i][p] =
                    (double)sample(t, count[i], second ? 2 : TUNE_NEVER, repeat) + 1;
            }
    }
    return tune_choose(count, TUNE_COUNTS, (const double(*)[TUNE_PAIRS])small_batch,
                       (const double(*)[TUNE_PAIRS])large_batch, otherwise);
}

/* Thresholds of these shapes. Those not measured in time keep `from` 0. */
static int measure(struct cpu_device *d, struct tune *shapes)
{
    size_t cols = 0, rows = 0, used = 0;
    uint64_t end;
    uint8_t *memory;
    int done = 0;

    for (int i = 0; i < shapes->n; i++) {
        cols = (size_t)shapes->entry[i].cols > cols ? (size_t)shapes->entry[i].cols : cols;
        rows = (size_t)shapes->entry[i].rows > rows ? (size_t)shapes->entry[i].rows : rows;
    }
    used = WEIGHTS +
           KERNEL_TILE * (cols * sizeof(float) + cols / NUM_BLOCK * sizeof(struct act_block) +
                          (rows + NUM_LANES) * sizeof(float));
    if (!(memory = mem_pages(used)))
        return 0;
    memset(memory, 0x11, WEIGHTS); /* small normal numbers in every type */
    end = clock_now() + BUDGET_NS;
    for (int i = 0; i < shapes->n && clock_now() < end; i++) {
        struct tune_entry *p = &shapes->entry[i];
        size_t bytes = dtype_row_bytes(p->type, p->cols);
        struct trial t = {.d = d,
                          .w = {.type = p->type,
                                .rows = (int)(WEIGHTS / bytes) / 16 * 16,
                                .cols = p->cols,
                                .width = pack_width(p->type, d->k->width),
                                .data = memory,
                                .bytes = WEIGHTS},
                          .rows = p->rows};

        t.panel = (struct act_block *)(void *)(memory + WEIGHTS);
        t.x = (float *)(void *)(t.panel + KERNEL_TILE * (cols / NUM_BLOCK));
        t.out = t.x + KERNEL_TILE * cols;
        if (t.w.rows < p->rows)
            continue;
        d->threads[0].panel_of = NULL;
        p->from = measure_shape(&t, default_of(d, p->type));
        done++;
    }
    d->threads[0].panel_of = NULL;
    mem_pages_free(memory, used);
    return done;
}

static void tell(const struct cpu_device *d, const char *line)
{
    if (d->base.config.log)
        d->base.config.log(d->base.config.log_ctx, line);
}

/* Key of the thresholds' validity. */
static void make_key(const struct cpu_device *d, char *key)
{
    unsigned signature = 0;

#if defined(__x86_64__)
    unsigned b, c, dx;

    __get_cpuid(1, &signature, &b, &c, &dx);
#endif
    /* asking for the version would open the library */
    snprintf(key, TUNE_KEY, TUNE_KEY_PREFIX "%.127s (%x), %s, oneDNN %s%s", d->base.info.name,
             signature, d->k->name, d->library ? onednn_version() : "not used",
             d->bf16 ? " in bf16" : "");
}

static bool make_path(const struct cpu_device *d, const char *key, char *path, size_t size)
{
    uint64_t h = hash_bytes(HASH_START, key, strlen(key));

    return d->base.config.cache_dir &&
           snprintf(path, size, "%s/" TUNE_FILE_PREFIX "%016llx" TUNE_FILE_SUFFIX,
                    d->base.config.cache_dir, (unsigned long long)h) < (int)size;
}

/* Whether what the file says stays, when a measurement so busy was made. */
static bool stays(const struct cpu_device *d, struct tune_when there, struct tune_when fresh)
{
    return d->base.config.tune != DEVICE_TUNE_AGAIN && there.busy <= fresh.busy;
}

/* Stores new choices in the file. Those that another process stored meanwhile take precedence, of
 * float weights always, else if the machine was no busier, unless a new measurement was requested:
 * fresh becomes what is stored. */
static int keep(struct cpu_device *d, struct tune *fresh, const char *path, const char *key,
                struct error *e)
{
    struct tune all;

    if (tune_read(&all, path, key, e) < 0)
        all.n = all.n_decode = all.n_pattern = 0;
    for (int i = 0; i < fresh->n_decode; i++) {
        struct tune_decode *p = &fresh->decode[i];
        const struct tune_decode *there = tune_decode_find(&all, p->type, p->threads);

        if (there && stays(d, there->when, p->when))
            *p = *there;
        else
            tune_decode_set(&all, *p);
    }
    for (int i = 0; i < fresh->n_pattern; i++) {
        struct tune_pattern *p = &fresh->pattern[i];
        const struct tune_pattern *there = tune_pattern(&all, p->type, p->cols, p->threads);

        if (there && stays(d, there->when, p->when))
            *p = *there;
        else
            tune_pattern_set(&all, *p);
    }
    for (int i = 0; i < fresh->n; i++) {
        struct tune_entry *p = &fresh->entry[i];
        const struct tune_entry *there = tune_find(&all, p->type, p->rows, p->cols);

        if (there && (stays(d, there->when, p->when) ||
                      (d->base.config.tune != DEVICE_TUNE_AGAIN && !dtype_is_quantised(p->type))))
            *p = *there;
        else if (p->from)
            tune_set(&all, *p);
    }
    return tune_write(&all, path, key, e);
}

/* Whether a shape was never measured, or not as well as it can be now. */
static bool missing(const struct cpu_device *d, const struct tune_entry *shape)
{
    const struct tune_entry *p = tune_find(&d->tune, shape->type, shape->rows, shape->cols);

    return !p || (dtype_is_quantised(shape->type) && tune_again(p->when, d->busy));
}

/* Measures those of the model's shapes that are missing, float ones or quantised ones. */
static int add_missing(struct cpu_device *d, bool quantised)
{
    char path[4096], key[TUNE_KEY], line[sizeof((struct error *)0)->text + 80];
    struct tune shapes, fresh = {0};
    struct tuning_watch watch;
    struct error e;
    int done, busy;
    bool kept;

    make_key(d, key);
    kept = make_path(d, key, path, sizeof path);
    tune_shapes(d->model, &shapes);
    for (int i = 0; i < shapes.n; i++)
        if (dtype_is_quantised(shapes.entry[i].type) == quantised &&
            has_choice(d, shapes.entry[i].type) && missing(d, &shapes.entry[i]))
            tune_set(&fresh, shapes.entry[i]);
    if (!fresh.n || !kept)
        return 0;
    tuning_watch(d, &watch, 1);
    if (!(done = measure(d, &fresh)))
        return 0;
    busy = tuning_busy(d, &watch);
    for (int i = 0; i < fresh.n; i++) {
        fresh.entry[i].when.busy = busy;
        if (!quantised && !fresh.entry[i].from) /* float shapes are decided permanently */
            fresh.entry[i].from = default_of(d, fresh.entry[i].type);
    }
    if (keep(d, &fresh, path, key, &e) < 0) {
        snprintf(line, sizeof line,
                 "%s; which kernel is fastest for which shape will be measured again", e.text);
        tell(d, line);
        if (!quantised)
            return 0;
    }
    for (int i = 0; i < fresh.n; i++)
        if (fresh.entry[i].from) {
            fresh.entry[i].when.here = true;
            tune_set(&d->tune, fresh.entry[i]);
        }
    return done;
}

void tuning_open(struct cpu_device *d)
{
    char path[4096], key[TUNE_KEY], line[sizeof((struct error *)0)->text + 80];
    struct tune shapes, stored;
    struct error e;
    const struct tune_decode *decode;

    d->thresholds = &d->tune;
    d->busy = TUNE_BUSY_MOST;
    if (d->base.config.tune == DEVICE_TUNE_OFF)
        return;
    tuning_watch(d, &d->since, d->n_threads);
    make_key(d, key);
    if (d->base.config.tune != DEVICE_TUNE_AGAIN && make_path(d, key, path, sizeof path)) {
        if (tune_read(&stored, path, key, &e) < 0) {
            snprintf(line, sizeof line, "%s; measured anew", e.text);
            tell(d, line);
        }
        tune_shapes(d->model, &shapes);
        for (int i = 0; i < shapes.n; i++) {
            const struct tune_entry *p = tune_find(&stored, shapes.entry[i].type,
                                                   shapes.entry[i].rows, shapes.entry[i].cols);

            if (p)
                tune_set(&d->tune, *p);
        }
        for (int i = 0; i < stored.n_pattern; i++)
            tune_pattern_set(&d->tune, stored.pattern[i]);
        decode = tune_decode_find(&stored, d->model->type, d->n_threads);
        if (decode && d->base.config.fewer_threads) {
            tune_decode_set(&d->tune, *decode);
            crowd_init(&d->decoding, decode->use);
        }
    }
    add_missing(d, false);
}

/* A device that is not opened, with the fields needed for the table. */
int cpu_choices(const struct model *m, const char *cache_dir, bool exact, bool float_library,
                int n_threads, struct microbench_choice *out, int max, int *decode)
{
    struct cpu_device *d = mem_alloc(1, sizeof *d);
    struct tune shapes, stored = {0};
    char path[4096], key[TUNE_KEY], why[8];
    int n;

    *decode = 0;
    if (!d)
        return 0;
    d->k = kernels_active();
    d->base.config.cache_dir = cache_dir;
    cpu_probe(&d->base.info, 1, why, sizeof why);
    tune_shapes(m, &shapes);
    for (int i = 0; i < shapes.n; i++)
        d->has_float |= !dtype_is_quantised(shapes.entry[i].type);
    d->bf16 = d->has_float && float_library && d->k != &kernels_scalar && cpu_uses_bf16(exact);
    make_key(d, key);
    if (!make_path(d, key, path, sizeof path) || tune_read(&stored, path, key, NULL) < 0)
        stored.n = stored.n_decode = stored.n_pattern = 0;
    *decode = tune_decode(&stored, m->type, n_threads);
    n = shapes.n < max ? shapes.n : max;
    for (int i = 0; i < n; i++) {
        const struct tune_entry *p = &shapes.entry[i],
                                *kept = tune_find(&stored, p->type, p->rows, p->cols);
        bool quantised = dtype_is_quantised(p->type);

        out[i] = (struct microbench_choice){.type = p->type,
                                            .rows = p->rows,
                                            .cols = p->cols,
                                            .small_batch = d->k->name,
                                            .measured = kept != NULL,
                                            .busy = kept ? kept->when.busy : 0};
        if (quantised ? d->k->small_batch_set != NULL : float_library && d->k != &kernels_scalar) {
            out[i].small_batch = quantised ? d->k->small_batch_set->name : d->k->name;
            out[i].large_batch = quantised ? d->k->name : "oneDNN";
            out[i].from = kept ? kept->from : default_of(d, p->type);
        }
    }
    mem_free(d);
    return n;
}

enum pattern_id cpu_pattern_chosen(const char *cache_dir, enum dtype type, int cols, int n_threads,
                                   bool *measured)
{
    struct cpu_device *d = mem_alloc(1, sizeof *d);
    const struct tune_pattern *p = NULL;
    enum pattern_id id = pattern_for(pattern_here(), type);
    char path[4096], key[TUNE_KEY], why[8];
    struct tune stored = {0};

    if (d) {
        d->k = kernels_active();
        d->base.config.cache_dir = cache_dir;
        cpu_probe(&d->base.info, 1, why, sizeof why);
        make_key(d, key);
        if (make_path(d, key, path, sizeof path) && tune_read(&stored, path, key, NULL) == 0)
            p = tune_pattern(&stored, type, cols, n_threads);
        mem_free(d);
    }
    *measured = p != NULL;
    return p ? p->id : id;
}

/* Measures decoding with all threads and with fewer. */
static int add_decode(struct cpu_device *d, int pos)
{
    struct tune fresh = {.n_decode = 1,
                         .decode = {{.type = d->model->type, .threads = d->n_threads}}};
    const struct tune_decode *known = tune_decode_find(&d->tune, d->model->type, d->n_threads);
    struct tune_decode *p = &fresh.decode[0];
    char path[4096], key[TUNE_KEY];
    struct tuning_watch watch;
    struct error e;

    make_key(d, key);
    if ((known && !tune_again(known->when, d->busy)) || !make_path(d, key, path, sizeof path))
        return 0;
    tuning_watch(d, &watch, d->n_threads);
    if (!(p->use = tuning_decode(d, pos))) {
        if (known)
            crowd_init(&d->decoding, known->use);
        return 0;
    }
    p->when.busy = tuning_busy(d, &watch);
    keep(d, &fresh, path, key, &e);
    p->when.here = true;
    tune_decode_set(&d->tune, *p);
    crowd_init(&d->decoding, p->use);
    return 1;
}

/* Measures read patterns for one token. */
static int add_patterns(struct cpu_device *d)
{
    char path[4096], key[TUNE_KEY];
    struct tune fresh = {0};
    struct error e;

    make_key(d, key);
    if (!make_path(d, key, path, sizeof path) || !tuning_patterns(d, TUNE_PATTERN_LEAST, &fresh))
        return 0;
    keep(d, &fresh, path, key, &e);
    for (int i = 0; i < fresh.n_pattern; i++) {
        fresh.pattern[i].when.here = true;
        tune_pattern_set(&d->tune, fresh.pattern[i]);
    }
    return fresh.n_pattern;
}

int tuning_later(struct cpu_device *d, int pos)
{
    int n;

    if (d->base.config.tune == DEVICE_TUNE_OFF)
        return 0;
    d->busy = tuning_busy(d, &d->since);
    n = (d->k->small_batch_set ? add_missing(d, true) : 0) + add_patterns(d) + add_decode(d, pos);
    tuning_watch(d, &d->since, d->n_threads);
    return n;
}
