/* The trained adapters: their modules, values, gradients and moments. Owner: the trainer. Thread:
 * the one that trains; gradients of a module are written by one task at a time. */
#ifndef ENGINE_TRAIN_MODULES_H
#define ENGINE_TRAIN_MODULES_H

#include "engine/adapter/names.h"
#include "engine/train/base.h"
#include "engine/train/config.h"

/* y += scale B (A x): a (rank, cols), b (rows, rank), both in modules.values at these offsets. */
struct module {
    char name[200]; /* name in PEFT files, without the common prefix */
    struct block_id id;
    enum matrix_part parts[NAME_PARTS]; /* their rows are stacked in b */
    int n_parts;
    int rows, cols, rank;
    float scale, alpha;
    bool trained;
    const float *a, *b;
    float *grad_a, *grad_b; /* of the whole step, before it is clipped */
};

struct modules {
    struct module *list;
    int n, n_trained;
    bool peft; /* PEFT has a name for each of them */
    size_t n_values;                     /* of all a and b, module after module, a first */
    float *values, *grads, *m1, *m2;     /* n_values each; the moments of AdamW */
    float *good;                         /* values of the last step with a valid loss */
};

/* New adapters at the places that c selects: A uniform in +-1/sqrt(cols) (PEFT's initialisation), B
 * 0, determined by the seed. Each linear of b gets its module. ERR_MODEL: no matching matrix;
 * ERR_MEMORY. */
int modules_new(struct modules *m, struct base *b, const struct train_config *c, struct error *e);
/* The modules, ranks, scales and values of the adapter at path (any format that is read). */
int modules_read(struct modules *m, struct base *b, const struct train_config *c, const char *path,
                 struct error *e);
void modules_release(struct modules *m);
/* Number of trained values. */
size_t modules_trained(const struct modules *m);
/* Values of one module, both matrices: a, and b right after it. */
size_t module_values(const struct module *m);
/* Sum of the squares of its gradient, before clipping; 0: not trained. Any thread while no step is
 * running. */
double module_gradient(const struct module *m);

#endif
