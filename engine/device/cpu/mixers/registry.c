/* The mixers that the CPU computes, by kind. Constant data. */
#include "engine/device/cpu/cpu.h"

const struct cpu_mixer *const cpu_mixers[MIXER_KINDS] = {
    [MIXER_ATTENTION] = &cpu_attention_mixer,
    [MIXER_SHORT_CONVOLUTION] = &cpu_recurrent_mixer,
    [MIXER_DELTA_NET] = &cpu_recurrent_mixer,
    [MIXER_KIMI_DELTA] = &cpu_recurrent_mixer,
    [MIXER_MAMBA1] = &cpu_recurrent_mixer,
    [MIXER_MAMBA2] = &cpu_recurrent_mixer,
    [MIXER_MLA] = &cpu_mla_mixer,
    [MIXER_CONVOLVED] = &cpu_convolved_mixer,
};

struct prefetch_hint layer_hint(const struct cpu_device *d, int tid, int layer)
{
    return layer < d->model->hp.n_layers && shape_of(d, layer)->mixer.kind != MIXER_NONE
               ? mixer_of(d, layer)->first(d, tid, layer)
               : (struct prefetch_hint){0};
}
