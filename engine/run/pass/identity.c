/* See identity.h. On the host, as routing is: a copy of a row costs less than any job. */
#include "engine/run/pass/identity.h"

#include <string.h>

void identity_outputs(const struct forward *f, int layer)
{
    const struct ffn_shape *s = &hparams_layer(&f->model->hp, layer)->ffn;
    size_t hidden = (size_t)f->model->hp.hidden, rows = (size_t)f->rows,
           stride = (size_t)f->model->hp.n_experts_used, first = (size_t)layer * rows * stride;

    for (size_t r = 0; r < rows && s->router.identities; r++)
        for (size_t i = 0; i < (size_t)s->used; i++) {
            size_t at = first + r * stride + i;

            if (f->experts[at] < 0 && f->weights[at] != 0.0f)
                memcpy(f->out + (i * rows + r) * hidden, f->h + r * hidden,
                       hidden * sizeof *f->out);
        }
}
