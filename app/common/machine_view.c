/* See machine_view.h. */
#include "app/common/machine_view.h"

#include "app/common/devices.h"
#include "app/common/energy.h"
#include "app/common/system_sample.h"
#include "engine/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct machine_view {
    struct system *system;
    struct energy *energy;
    struct utilisation *watch;   /* of the GPU, by its kernel driver */
    struct system_sample sample; /* the newest; large */
    uint64_t busy_ns[DEVICE_MAX], busy_at;
};

struct machine_view *machine_view_new(void)
{
    struct machine_view *v = mem_alloc(1, sizeof *v);

    if (v && (!(v->system = system_new("")) || !(v->energy = energy_new("")) ||
              !(v->watch = devices_watch_new("")))) {
        machine_view_free(v);
        v = NULL;
    }
    return v;
}

void machine_view_free(struct machine_view *v)
{
    if (!v)
        return;
    system_free(v->system);
    energy_free(v->energy);
    devices_watch_free(v->watch);
    mem_free(v);
}

void machine_view_forget(struct machine_view *v, struct ui_model *m)
{
    memset(v->busy_ns, 0, sizeof v->busy_ns);
    for (int i = 0; i < DEVICE_MAX; i++)
        m->devices[i] =
            (struct ui_device){.use = NAN, .mhz = NAN, .temperature = NAN, .watts = NAN};
}

static void take_system(struct machine_view *v, struct ui_model *m)
{
    const struct system_sample *s = &v->sample;
    struct ui_system u = {.valid = true};
    struct energy_reading energy;

    u.n_cores = s->n_cores < UI_CORES ? s->n_cores : UI_CORES;
    memcpy(u.core_use, s->core_use, sizeof *u.core_use * (size_t)u.n_cores);
    memcpy(u.core_process_use, s->core_process_use, sizeof *u.core_process_use * (size_t)u.n_cores);
    u.system_use = s->system_use;
    u.process_cores = s->process_cores;
    u.mhz = s->mhz;
    u.temperature = s->temperature;
    energy_read(v->energy, &energy);
    u.watts = energy.watts[ENERGY_PACKAGE];
    u.battery_watts = energy.battery_watts;
    m->devices[1].watts = energy.watts[ENERGY_GPU];
    u.rss = s->rss;
    u.rss_peak = s->rss_peak;
    u.memory_total = s->memory_total;
    u.memory_available = s->memory_available;
    if (s->memory_limit != SYSTEM_UNKNOWN && s->memory_limit < s->memory_total) {
        /* the memory available to us, not the installed memory */
        u.memory_total = s->memory_limit;
        if (u.memory_available > u.memory_total)
            u.memory_available = u.memory_total > u.rss ? u.memory_total - u.rss : 0;
    }
    u.swap_used = s->swap_used;
    ui_model_system(m, &u);
}

static void take_device(struct machine_view *v, struct ui_model *m, const struct engine_info *info,
                        int i, uint64_t now)
{
    struct ui_device *d = &m->devices[i];
    uint64_t busy = m->live.devices[i].busy_ns;

    if (info && !d->name[0])
        snprintf(d->name, sizeof d->name, "%s", info->devices[i].name);
    d->mhz = d->temperature = NAN;
    d->why[0] = 0;
    if (v->busy_at && now > v->busy_at && busy >= v->busy_ns[i]) {
        d->use = (float)((double)(busy - v->busy_ns[i]) / (double)(now - v->busy_at));
        d->use = d->use > 1 ? 1 : d->use;
    } else {
        d->use = NAN;
        snprintf(d->why, sizeof d->why, "measured from the next answer on");
    }
    /* A real GPU's kernel driver is more accurate than our own events. A device that is the CPU has
     * none. */
    if (i == 1 && info && !info->devices[i].is_cpu_type) {
        float use;
        char why[sizeof d->why];

        devices_watch_read(v->watch, &use, &d->mhz, &d->temperature, why, sizeof why);
        if (!isnan(use))
            d->use = use;
    }
    v->busy_ns[i] = busy;
}

void machine_view_take(struct machine_view *v, struct ui_model *m, const struct engine_info *info,
                       uint64_t now)
{
    system_read(v->system, &v->sample);
    take_system(v, m);
    for (int i = 1; i < m->live.n_devices && i < DEVICE_MAX; i++)
        take_device(v, m, info, i, now);
    v->busy_at = now;
}
