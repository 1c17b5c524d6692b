/* See time_model.h. */
#include "gpu/predict/time_model.h"

#include <stddef.h>
#include <string.h>

/* H200 (OpenCL 3.0 CUDA, driver 580): launch: an empty kernel; far: a block's chain of loads,
 * 1.3 to 2.5 us for two to four of them; near: the norm's 128 groups of four loads, 21 us, and the
 * 270 cycles of its second cache that are published (Luo et al., arXiv 2402.13499); step: norm and
 * router from local memory, 512 and 1160 additions; bytes: the largest matrix-vector product;
 * slots: three products of matrices between 7 and 35 Top/s. ahead, of the second: what ptxas 13.0
 * schedules for an addition in such loops, four to seven cycles of 1.8 GHz. */
#define H200                                                                        \
    .name = "NVIDIA H200", .launch = 4.8, .far = 0.55, .near = 0.15, .step = 0.012, \
    .processors = 132, .bytes = 3.1e6, .slots = 27e6, .group_items = 1024,          \
    .local_bytes = 48 << 10, .align = 512, .engine = 1
static const struct time_model models[] = {
    {.card = "h200", .ahead = 0.012, H200},
    {.card = "h200-ahead", .ahead = 0.0036, H200},
};

const struct time_model *time_model_find(const char *card)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].card, card) == 0)
            return &models[i];
    return NULL;
}

double time_model_seconds(const struct time_model *m, const struct kernel_work *w)
{
    double chain = w->far * m->far + w->near * m->near + w->steps * m->step + w->ahead * m->ahead +
                   w->own * m->processors / m->slots,
           read = w->bytes / m->bytes, issue = w->slots / m->slots, most = chain;

    most = read > most ? read : most;
    most = issue > most ? issue : most;
    return (m->launch + most) * 1e-6;
}
