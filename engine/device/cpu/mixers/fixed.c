/* Recurrent state: a block of fixed size per layer and session, allocated when the session's state
 * is opened. A block belongs to one number of tokens and can continue only there: a job that starts
 * anywhere else is refused, one at position 0 starts with zeros. Drafted rows leave it unchanged;
 * their columns are kept, and the next job first applies the accepted ones. For measurements
 * (trial) every layer works on one spare block. Engine thread; mixers read and write blocks on
 * compute threads, each its own part. */
#include "engine/base/mem.h"
#include "engine/base/topology.h"
#include "engine/device/cpu/cpu.h"

#include <assert.h>
#include <string.h>

static void release(const struct cpu_device *d, struct kv_state *s)
{
    mem_pages_free(s->fixed, d->fixed_bytes);
    mem_pages_free(s->drafts, d->drafts_bytes);
    mem_free(s->stands);
    mem_free(s->ahead);
    s->fixed = s->drafts = NULL;
    s->stands = s->ahead = NULL;
}

int fixed_open(struct cpu_device *d, struct kv_state *s, struct error *e)
{
    if (!d->fixed_bytes)
        return 0;
    s->stands = mem_alloc((size_t)d->model->hp.n_layers, sizeof *s->stands);
    s->ahead = mem_alloc((size_t)d->model->hp.n_layers, sizeof *s->ahead);
    if (s->stands && s->ahead && d->drafts_bytes)
        s->drafts = mem_pages(d->drafts_bytes);
    if (s->stands && s->ahead && !s->drafts == !d->drafts_bytes)
        s->fixed = mem_pages(d->fixed_bytes);
    if (!s->fixed) {
        release(d, s);
        return error_set(e, ERR_MEMORY, "no memory for a session's recurrent state (%.1f MiB)",
                         (double)d->fixed_bytes / 1048576.0);
    }
    topology_interleave(s->fixed, d->fixed_bytes);
    d->stats.kv_bytes += d->fixed_bytes + d->drafts_bytes;
    return 0;
}

void fixed_close(struct cpu_device *d, struct kv_state *s)
{
    if (s->fixed)
        d->stats.kv_bytes -= d->fixed_bytes + d->drafts_bytes;
    release(d, s);
}

float *kv_fixed(const struct cpu_device *d, const struct kv_state *s, int layer)
{
    const struct layer_layout *l = layout_of(d, layer);

    assert(layer >= 0 && layer < d->model->hp.n_layers && l->keeps.fixed_bytes);
    return (float *)(void *)(d->trial ? d->spare : s->fixed + l->fixed_at);
}

float *kv_drafts(const struct cpu_device *d, const struct kv_state *s, int layer)
{
    assert(s->drafts && layout_of(d, layer)->keeps.fixed_bytes);
    return (float *)(void *)(s->drafts + layout_of(d, layer)->drafts_at);
}

int fixed_behind(const struct cpu_device *d, const struct span_place *at, int layer)
{
    int behind = at->pos - at->state->stands[layer];

    return d->trial || at->pos == 0 || behind < 0 ? 0 : behind;
}

int fixed_begin(struct cpu_device *d, int first, int last, struct error *e)
{
    for (int l = first; l < last && d->fixed_bytes; l++)
        for (int i = 0; i < d->n_spans; i++) {
            const struct span_place *at = &d->spans[i];
            size_t bytes = layout_of(d, l)->keeps.fixed_bytes;

            if (!bytes)
                continue;
            if (d->trial || at->pos == 0)
                memset(kv_fixed(d, at->state, l), 0, bytes);
            else if (at->pos < at->state->stands[l] ||
                     at->pos > at->state->stands[l] + at->state->ahead[l])
                return error_set(e, ERR_DEVICE,
                                 "the state of layer %d stands after %d tokens, not after %d", l,
                                 at->state->stands[l], at->pos);
        }
    return 0;
}

void fixed_end(struct cpu_device *d, int first, int last)
{
    for (int l = first; l < last && d->fixed_bytes && !d->trial; l++)
        for (int i = 0; i < d->n_spans; i++) {
            const struct span_place *at = &d->spans[i];

            at->state->stands[l] = at->pos + at->rows - at->drafted;
            at->state->ahead[l] = at->drafted;
        }
}

int fixed_move(struct cpu_device *d, const struct kv_move *m, struct error *e)
{
    const struct kv_state *s;
    size_t bytes;

    if (m->layer < 0 || m->layer >= d->model->hp.n_layers || m->pos < 0 || m->pos > d->context ||
        !(bytes = layout_of(d, m->layer)->keeps.fixed_bytes))
        return error_set(e, ERR_DEVICE, "layer %d has no recurrent state after %d tokens", m->layer,
                         m->pos);
    if (!(s = kv_state_reserve(d, m->session, 0, 0, e)))
        return ERR_DEVICE;
    if (!m->write && s->stands[m->layer] != m->pos)
        return error_set(e, ERR_DEVICE,
                         "the state of layer %d stands after %d tokens, not after %d", m->layer,
                         s->stands[m->layer], m->pos);
    memcpy(m->write ? s->fixed + layout_of(d, m->layer)->fixed_at : m->data,
           m->write ? m->data : s->fixed + layout_of(d, m->layer)->fixed_at, bytes);
    s->stands[m->layer] = m->pos;
    if (m->write)
        s->ahead[m->layer] = 0;
    return 0;
}
