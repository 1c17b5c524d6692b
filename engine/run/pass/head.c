/* The model's head: logits of rows of a pass, see forward.h. */
#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/run/pass/blocks.h"
#include "engine/run/pass/forward.h"
#include "engine/run/report/trace.h"

#include <assert.h>
#include <string.h>

/* Scaling and capping of logits, from whichever device. */
static int scale_logits(struct forward *f, float *logits, int rows, struct error *e)
{
    const struct hparams *hp = &f->model->hp;
    struct device_slot *cpu = &f->slots[0];
    float scale = hp->logit_divisor != 0.0f ? 1.0f / hp->logit_divisor : 1.0f;
    size_t n = (size_t)rows * (size_t)hp->n_vocab;

    for (size_t i = 0; i < n && scale != 1.0f; i++)
        logits[i] *= scale;
    return hp->logit_cap != 0.0f ? blocks_wait(cpu, cpu->ops->cap(cpu->device, logits, n, e), e)
                                 : 0;
}

static int run_head(struct forward *f, const float *x, const float *const *strengths, int rows,
                    float *logits, struct error *e)
{
    struct head_job j = {
        .rows = rows, .x = x, .logits = logits, .strengths = f->adapted ? strengths : NULL};
    int d = f->plan->head, rc;

    mem_guard_arm("head");
    for (;; d = 0) {
        struct device_slot *s = &f->slots[d];
        uint64_t start, end;
        bool audit = audit_due(&f->audit, d, BLOCK_HEAD, 0);

        start = clock_now();
        rc = blocks_wait(s, s->ops->head(s->device, &j, e), e);
        end = clock_now();
        if (rc == 0) {
            blocks_watch(f, d, SLOW_HEAD, rows, start, end, end - start);
            blocks_count_cost(f, &s->head, end - start, 1);
            trace_span(f->trace, TRACE_HEAD, f->model->hp.n_layers, d, start, end);
            if (audit)
                rc = blocks_audited(f, d, audit_head(&f->audit, d, &j), e);
            if (rc == 0)
                rc = scale_logits(f, logits, rows, e);
            break;
        }
        if (d == 0 || (rc = blocks_failed(f, d, "head", e)) < 0)
            break;
    }
    mem_guard_disarm();
    return rc;
}

int forward_head(struct forward *f, int first, int rows, float *logits, struct error *e)
{
    assert(first >= 0 && rows > 0 && first + rows <= f->rows);
    return run_head(f, f->x + (size_t)first * (size_t)f->model->hp.hidden, f->strengths + first,
                    rows, logits, e);
}

int forward_head_at(struct forward *f, const float *x, const float *const *strengths, int rows,
                    float *logits, struct error *e)
{
    return run_head(f, x, strengths, rows, logits, e);
}

int forward_head_of(struct forward *f, const int *rows, int n, float *logits, struct error *e)
{
    size_t hidden = (size_t)f->model->hp.hidden;

    assert(n > 0 && n <= f->rows);
    if (rows[n - 1] - rows[0] == n - 1)
        return forward_head(f, rows[0], n, logits, e);
    for (int k = 0; k < n; k++) { /* y is free by now */
        memcpy(f->y + (size_t)k * hidden, f->x + (size_t)rows[k] * hidden, hidden * sizeof *f->y);
        f->head_strengths[k] = f->strengths[rows[k]];
    }
    return run_head(f, f->y, f->head_strengths, n, logits, e);
}
