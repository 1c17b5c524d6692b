/* The mixers that the CPU computes, by kind. Constant data. */
#include "engine/device/cpu/cpu.h"

const struct cpu_mixer *const cpu_mixers[MIXER_KINDS] = {
    [MIXER_ATTENTION] = &cpu_attention_mixer,
};

struct prefetch_hint layer_hint(const struct cpu_device *d, int tid, int layer)
{
    return layer < d->model->hp.n_layers ? mixer_of(d, layer)->first(d, tid, layer)
                                         : (struct prefetch_hint){0};
}
