/* A training run's state for the screen: progress, losses, rates, and the gradient norms of each
 * layer's attention and of each of its experts, as plain data. Filled by the run
 * (app/train/view.c), read by panels; a copy owned by the UI thread. */
#ifndef UI_TRAINING_H
#define UI_TRAINING_H

#include <stdbool.h>
#include <stdint.h>

#define UI_CURVE 512 /* points of a curve */
#define UI_RATES 128 /* samples of the learning rate schedule */

/* Consecutive steps: the mean of their losses, the smallest and the largest. */
struct ui_curve_point {
    int last; /* of the steps */
    float mean, low, high;
};

/* At most UI_CURVE points, each of `each` steps; when full, pairs are merged. */
struct ui_curve {
    struct ui_curve_point points[UI_CURVE];
    int n, each; /* each 0: empty */
    int open;    /* steps in the newest point, < each while it grows */
};

struct ui_training {
    int steps, step; /* total; done */
    int from;        /* steps done when this process started */
    int batch, accumulation, lines;
    int rank, matrices;         /* the adapter's largest rank; matrices with an adapter */
    double loss, grad_norm, lr; /* of the newest step; grad_norm before clipping */
    double clip;                /* largest norm that is not clipped; 0: none */
    double step_s;              /* seconds of the newest step */
    double tok_s;  /* tokens a second, targets or not, mean since the process started; 0: none */
    double left_s; /* at the mean speed so far, with validations; negative: not known */
    struct ui_curve loss_curve, valid_curve; /* valid: a point for each validation */
    double valid, valid_best;                /* newest, smallest; NAN: none yet */
    int valid_at, best_at;                   /* after so many steps */
    bool has_valid, validating, ending;
    float rates[UI_RATES];          /* learning rate from the first step to the last */
    uint64_t base, adapter, memory; /* bytes: frozen weights; adapter, gradients and moments; batch
                                     */
    /* (layers, 1 + blocks): norm of the gradient of the attention's adapters, then of each
     * expert's; a dense layer has one block. NAN: nothing is trained there. */
    int layers, blocks;
    float *newest;          /* of the newest step */
    float *mean;            /* root mean square since the process started */
    const uint16_t *routed; /* (layers): routed experts; the block after them is always used */
    char text[160];         /* the program's newest message; "": none */
};

/* Adds a step's loss to the curve. */
void ui_curve_add(struct ui_curve *c, int step, double loss);

#endif
