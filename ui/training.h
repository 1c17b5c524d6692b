/* What the screen shows of a training run: how far it is, its losses, its rates, and how large the
 * gradient of each layer's attention and of each of its experts is, as plain data. Filled by the
 * run (app/train/view.c), read by panels; a copy of the UI thread's own. */
#ifndef UI_TRAINING_H
#define UI_TRAINING_H

#include <stdbool.h>
#include <stdint.h>

#define UI_CURVE 512 /* points of a curve */
#define UI_RATES 128 /* samples of the learning rate's plan */

/* Some steps in a row: the mean of their losses, the smallest and the largest. */
struct ui_curve_point {
    int last; /* of the steps */
    float mean, low, high;
};

/* At most UI_CURVE points, each of `each` steps; when there are more, two become one. */
struct ui_curve {
    struct ui_curve_point points[UI_CURVE];
    int n, each; /* each 0: nothing was added yet */
    int open;    /* steps in the newest point, < each while it grows */
};

struct ui_training {
    int steps, step; /* of the whole run; done */
    int from;        /* done when this process began */
    int batch, accumulation, lines;
    int rank, matrices;         /* the adapter's largest rank; matrices that have one */
    double loss, grad_norm, lr; /* of the newest step; grad_norm before clipping */
    double clip;                /* largest norm that is not clipped; 0: none */
    double step_s;              /* seconds of the newest step */
    double tok_s;  /* tokens a second, learned and not, mean since the process began; 0: none */
    double left_s; /* at the mean speed so far, validations included; negative: not known */
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
    float *mean;            /* root of the mean square since the process began */
    const uint16_t *routed; /* (layers): experts that are chosen; a block behind them is always met
                             */
    char text[160];         /* the newest that the program had to say; "": nothing */
};

/* A step's loss onto the curve. */
void ui_curve_add(struct ui_curve *c, int step, double loss);

#endif
