/* Shortcut-connected experts: what the routed experts of a layer give is kept beside the stream and
 * added at the end of the next layer (enum shortcut; modeling_longcat_flash.py,
 * LongcatFlashDecoderLayer). A row is one task, so neither chunks nor threads show. Compute threads
 * (cpu.h). */
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

void shortcut_row(const struct cpu_device *d, int layer, const float *out, ptrdiff_t stride,
                  const float *weights, float *beside, float *x)
{
    const struct hparams *hp = &d->model->hp;
    const struct layer_shape *s = shape_of(d, layer);
    int used = s->ffn.used, hidden = hp->hidden;
    float *kept;

    assert(beside && !s->norms.after && !s->scaled);
    kept = beside + hparams_beside(hp) - 2 * hp->router_row - hidden;
    if (s->shortcut == SHORTCUT_ENTERS) {
        d->k->combine(x, out, stride, weights, shape_used(s), hidden, x);
        d->k->add(x, kept, hidden);
        return;
    }
    memset(kept, 0, (size_t)hidden * sizeof *kept);
    d->k->combine(kept, out, stride, weights, used, hidden, kept);
    if (s->ffn.shared)
        d->k->combine(x, out + used * stride, stride, weights + used, s->ffn.shared, hidden, x);
}
