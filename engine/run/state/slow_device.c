/* See slow_device.h. */
#include "engine/run/state/slow_device.h"

#include "engine/base/clock.h"

#include <string.h>

#define TIMES 10.0f                /* of its median, a job is slow */
#define LEAST 8                    /* samples of a median */
#define SHORT CLOCK_MILLI          /* never slow */
#define RUN 4                      /* slow jobs in a row ... */
#define RUN_NS (200 * CLOCK_MILLI) /* ... that take so long */
#define PAUSE_NS CLOCK_SECOND

static int class_of(int n, int shift)
{
    int class = 0;

    while (n > 1 && class < SLOW_CLASSES - 1) {
        n >>= shift;
        class ++;
    }
    return class;
}

static float median(const float *ns, int n)
{
    float sorted[SLOW_SAMPLES];

    for (int i = 0; i < n; i++) {
        int k = i;

        for (; k > 0 && sorted[k - 1] > ns[i]; k--)
            sorted[k] = sorted[k - 1];
        sorted[k] = ns[i];
    }
    return sorted[n / 2];
}

enum slow_verdict slow_device_job(struct slow_device *s, const struct slow_job *j)
{
    struct slow_class *c;
    uint64_t took = j->end_ns - j->start_ns, before = s->last_ns;
    float ns = (float)took / (float)(j->units > 0 ? j->units : 1);
    int rows = class_of(j->rows, 1), depth = class_of(j->depth / 64, 2);

    s->last_ns = j->end_ns;
    if (!before || j->start_ns > before + PAUSE_NS)
        return SLOW_UNKNOWN;
    c = &s->of[j->kind][rows][depth];
    if (c->n >= LEAST && took > SHORT && ns > TIMES * median(c->ns, c->n)) {
        if (2 * j->waited_ns < took)
            return SLOW_UNKNOWN;
        s->run++;
        s->run_ns += took;
        if (s->run < RUN || s->run_ns < RUN_NS)
            return SLOW_UNKNOWN;
        s->run_ns = 0; /* the run goes on */
        return SLOW_SURE;
    }
    if (c->n < LEAST && s->run) /* what it takes now is no measure */
        return SLOW_UNKNOWN;
    if (c->n >= LEAST)
        s->run = 0, s->run_ns = 0;
    c->ns[c->at] = ns;
    c->at = (uint8_t)((c->at + 1) % SLOW_SAMPLES);
    c->n = (uint8_t)(c->n < SLOW_SAMPLES ? c->n + 1 : c->n);
    return c->n > LEAST ? SLOW_NOT : SLOW_UNKNOWN;
}
