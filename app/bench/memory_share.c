/* See memory_share.h. */
#include "app/bench/memory_share.h"

#include "engine/base/error.h"
#include "engine/base/membw.h"
#include "engine/base/series.h"

#include <stdio.h>

double memory_meter_after(struct memory_meter *m, int threads)
{
    m->rate = m->read(m->ctx, threads);
    m->threads = threads;
    return m->rate;
}

double memory_meter_before(struct memory_meter *m, int threads)
{
    return m->threads == threads ? m->rate : memory_meter_after(m, threads);
}

int memory_share(const struct memory_sample *samples, size_t n, struct memory_share *out)
{
    struct series shares = {0};
    struct series_figures f;
    int rc = 0;

    *out = (struct memory_share){0};
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct memory_sample *s = &samples[i];
        double low = s->before < s->after ? s->before : s->after,
               high = s->before < s->after ? s->after : s->before;

        if (low <= 0)
            continue;
        out->lowest = out->lowest <= 0 || low < out->lowest ? low : out->lowest;
        out->highest = high > out->highest ? high : out->highest;
        if (!membw_swung(low, high) && s->reached > 0)
            rc = series_add(&shares, 2 * s->reached / (low + high));
    }
    if (rc == 0 && 2 * shares.n >= n && series_summarise(&shares, &f) == 0)
        out->share = f.median;
    series_release(&shares);
    return rc;
}

char *memory_share_text(const struct memory_share *m, char *out, size_t size)
{
    out[0] = 0;
    if (membw_swung(m->lowest, m->highest))
        snprintf(out, size, "memory speed swung %.0f-%.0f GB/s%s", m->lowest * 1e-9,
                 m->highest * 1e-9, m->share > 0 ? "" : ": no share");
    return out;
}
