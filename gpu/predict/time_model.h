/* How long a kernel takes on a GPU that is not at hand, from what one launch of it asks for: a sum
 * of waits, or the bytes, or the arithmetic, whichever lasts longest, after what a launch costs by
 * itself. Constants are fitted to kernels that were measured on the card (tests/check_gpu_time.c
 * has them and what each took). Pure; any thread. */
#ifndef GPU_TIME_MODEL_H
#define GPU_TIME_MODEL_H

/* What one launch asks for. Waits and steps: of the work-item that ends last, one after the other;
 * loads that a compiler issues together are one wait. */
struct kernel_work {
    double far;   /* waits for memory: weights, keys and values */
    double near;  /* waits for what the kernel before wrote, in the cache */
    double steps; /* ordered additions, with the local memory that each of them reads */
    double ahead; /* the same in loops that have what they add next on its way (rows.cl) */
    double own;   /* instructions of the work-items of one multiprocessor, as slots */
    double bytes; /* read from memory, each once */
    double slots; /* instructions of all work-items, weighed by what they take to issue */
};

struct time_model {
    const char *card;                      /* "h200" */
    const char *name;                      /* "NVIDIA H200" */
    double launch, far, near, step, ahead; /* microseconds each */
    double processors;
    double bytes, slots; /* a microsecond */
    /* what the card's compiler and driver offer, from which the kernels' shapes follow */
    int group_items, local_bytes;
    unsigned long align;
    int engine; /* ENGINE of gemm.cl */
};

/* NULL: no such card. */
const struct time_model *time_model_find(const char *card);
double time_model_seconds(const struct time_model *m, const struct kernel_work *w);

#endif
