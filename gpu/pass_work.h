/* The launches of a pass through a model whose blocks are all on the device, as jobs/ makes them,
 * with what each asks of the device: what --microbench measures, and what a time model predicts
 * from. Pure, but for the list's memory; the device need not be open. */
#ifndef GPU_PASS_WORK_H
#define GPU_PASS_WORK_H

#include "gpu/internal.h"
#include "gpu/predict/time_model.h"

struct launch_work {
    const char *name; /* the kernel's function */
    char shape[DEVICE_KERNEL_SHAPE];
    size_t items, group;     /* work-items, those of a work-group */
    double ops;              /* multiply-adds count two */
    struct kernel_work work; /* waits and steps: of the shape for GPUs */
};

struct pass_work {
    struct launch_work *at;
    int n, room;
    int layers;  /* of the model that the device runs */
    bool failed; /* out of memory */
};

/* rows tokens of session 0 behind depth others, then the head for one of them. The layers from
 * `first` on, at most `layers`; of them only those whose mixer the device runs. ERR_MEMORY. */
int pass_work_list(struct device *d, int first, int layers, int rows, int depth,
                   struct pass_work *out, struct error *e);
void pass_work_release(struct pass_work *p);
/* For a device that is not there: the forms of the kernels for many tokens, as it would choose. */
void pass_work_forms(struct device *d);
/* Whether the device runs this layer. */
bool pass_work_runs(const struct device *d, int layer);
/* Experts that row 0 .. rows-1 use where the host decides: of entry i of rows * used. */
int pass_work_expert(const struct ffn_shape *s, int entry);

#endif
