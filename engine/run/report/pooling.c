/* See pooling.h. */
#include "engine/run/report/pooling.h"

#include "engine/base/mem.h"

#include <assert.h>

struct pooling {
    enum embed_pooling kind;
    int hidden, rows; /* rows: so many positions are pooled */
    double *sum;      /* (hidden), of the mean */
    float *normed;    /* (hidden), the newest kept row; the result */
};

int pooling_new(struct pooling **out, const struct hparams *hp, enum embed_pooling kind,
                struct error *e)
{
    struct pooling *p = *out = mem_alloc(1, sizeof *p);

    if (!p)
        return error_set(e, ERR_MEMORY, "no memory for an embedding");
    p->kind = kind;
    p->hidden = hp->hidden;
    p->sum = mem_alloc((size_t)hp->hidden, sizeof *p->sum);
    p->normed = mem_alloc((size_t)hp->hidden, sizeof *p->normed);
    return p->sum && p->normed ? 0 : error_set(e, ERR_MEMORY, "no memory for an embedding");
}

void pooling_free(struct pooling *p)
{
    if (!p)
        return;
    mem_free(p->sum);
    mem_free(p->normed);
    mem_free(p);
}

void pooling_rows(struct pooling *p, const struct model *m, int pos, int rows, const float *x)
{
    assert(pos <= p->rows); /* none was cached */
    for (int r = p->rows - pos; r < rows; r++) {
        const float *row = x + (size_t)r * (size_t)p->hidden;

        p->rows++;
        if (p->kind == EMBED_CLS && p->rows > 1)
            continue;
        model_norm(m, &m->output_norm, row, p->normed);
        for (int i = 0; p->kind == EMBED_MEAN && i < p->hidden; i++)
            p->sum[i] += (double)p->normed[i];
    }
}

float *pooling_take(struct pooling *p)
{
    float *out = p->rows ? p->normed : NULL;

    for (int i = 0; out && p->kind == EMBED_MEAN && i < p->hidden; i++)
        out[i] = (float)(p->sum[i] / p->rows);
    p->normed = out ? NULL : p->normed;
    return out;
}
