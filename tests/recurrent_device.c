/* See recurrent_device.h. Engine thread. */
#include "tests/recurrent_device.h"

#include "engine/base/mem.h"
#include "engine/device/state.h"

#include <stdlib.h>
#include <string.h>

#define SESSIONS 16

struct recurrent {
    struct device_base base;
    struct model file; /* as_the_file_says */
    struct device *cpu;
    float *state[SESSIONS]; /* (n_layers, hidden); NULL: not open */
    int *stands[SESSIONS];  /* n_layers */
};

static long rows_computed, jobs_left;
static void (*at_job)(void *ctx);
static void *at_ctx;

void recurrent_device_at(long n, void (*fn)(void *ctx), void *ctx)
{
    jobs_left = n;
    at_job = fn;
    at_ctx = ctx;
}

long recurrent_device_rows(void)
{
    return rows_computed;
}

static bool recurs(int layer)
{
    return layer % 2 == 1;
}

/* A recurrence in every other layer. Devices are opened beside passes too: what is so already is
 * not written. */
static void make_recurrent(struct model *m)
{
    struct hparams *hp = &m->hp;

    if (hp->layers && hp->layers[1].mixer.kind == MIXER_SHORT_CONVOLUTION)
        return;
    if (!hp->layers) {
        hp->layers = mem_alloc((size_t)hp->n_layers, sizeof *hp->layers);
        if (!hp->layers)
            abort();
        for (int l = 0; l < hp->n_layers; l++)
            hp->layers[l] = hp->common;
    }
    for (int l = 0; l < hp->n_layers; l++)
        if (recurs(l))
            hp->layers[l].mixer = (struct mixer_shape){
                .kind = MIXER_SHORT_CONVOLUTION, .heads = 1, .value_dim = hp->hidden, .taps = 2};
}

/* The CPU's device sees the model as its file says. Its layers are the caller's to free. */
static struct model as_the_file_says(const struct model *m)
{
    struct model file = *m;
    int n = m->hp.n_layers;

    file.hp.layers = mem_alloc((size_t)n, sizeof *file.hp.layers);
    if (!file.hp.layers)
        abort();
    for (int l = 0; l < n; l++) {
        file.hp.layers[l] = m->hp.layers ? m->hp.layers[l] : m->hp.common;
        if (recurs(l))
            file.hp.layers[l].mixer = m->hp.common.mixer;
    }
    return file;
}

static int recurrent_state_open(struct device *device, int session, struct error *e)
{
    struct recurrent *d = (struct recurrent *)device;
    const struct hparams *hp = &d->base.config.model->hp;
    int rc = session < 0 || session >= SESSIONS
                 ? error_set(e, ERR_MEMORY, "recurrent device: no session %d", session)
             : session ? cpu_device_ops.state_open(d->cpu, session, e)
                       : 0;

    if (rc < 0)
        return rc;
    d->state[session] = calloc((size_t)hp->n_layers * (size_t)hp->hidden, sizeof(float));
    d->stands[session] = calloc((size_t)hp->n_layers, sizeof(int));
    /* whoever does not begin with zeros is found out */
    memset(d->state[session], 0xff, (size_t)hp->n_layers * (size_t)hp->hidden * sizeof(float));
    return 0;
}

static void recurrent_state_close(struct device *device, int session)
{
    struct recurrent *d = (struct recurrent *)device;

    if (session)
        cpu_device_ops.state_close(d->cpu, session);
    free(d->state[session]);
    free(d->stands[session]);
    d->state[session] = NULL;
    d->stands[session] = NULL;
}

static void recurrent_close(struct device *device)
{
    struct recurrent *d = (struct recurrent *)device;

    for (int i = 0; i < SESSIONS; i++) {
        free(d->state[i]);
        free(d->stands[i]);
    }
    cpu_device_ops.close(d->cpu);
    mem_free(d->file.hp.layers);
    mem_free(d);
}

static int recurrent_open(struct device **out, const struct device_config *c, struct error *e)
{
    struct recurrent *d = mem_alloc(1, sizeof *d);
    struct device_config inner = *c;
    int rc;

    *out = NULL;
    if (!d)
        return error_set(e, ERR_MEMORY, "no memory for a recurrent device");
    d->file = as_the_file_says(c->model);
    inner.model = &d->file;
    rc = cpu_device_ops.open(&d->cpu, &inner, e);
    make_recurrent((struct model *)c->model);
    if (rc < 0) {
        mem_free(d->file.hp.layers);
        mem_free(d);
        return rc;
    }
    d->base = *(struct device_base *)d->cpu;
    d->base.config.model = c->model;
    d->base.ops = &recurrent_device_ops;
    *out = (struct device *)d;
    return recurrent_state_open(*out, 0, e);
}

static bool recurrent_supports(const struct device *device, const struct layer_shape *shape,
                               enum block_kind kind, enum dtype type)
{
    return cpu_device_ops.supports(((const struct recurrent *)device)->cpu, shape, kind, type);
}

static int recurrent_put(struct device *device, struct block_id id, size_t max, struct error *e)
{
    return 1;
}

static void recurrent_drop(struct device *device, struct block_id id)
{
}

static int recur(struct recurrent *d, const struct attention_job *j, const struct span *at, int row,
                 struct error *e)
{
    int n = d->base.config.model->hp.hidden, *stands = &d->stands[at->session][j->layer];
    float *s = d->state[at->session] + (size_t)j->layer * (size_t)n;

    if (at->pos == 0)
        memset(s, 0, (size_t)n * sizeof *s);
    else if (*stands != at->pos)
        return error_set(e, ERR_DEVICE, "layer %d stands after %d tokens, not after %d", j->layer,
                         *stands, at->pos);
    for (int r = row; r < row + at->rows; r++)
        for (int i = 0; i < n; i++) {
            s[i] = 0.875f * s[i] + 0.25f * j->x[r * n + i];
            j->y[r * n + i] = s[i];
        }
    *stands = at->pos + at->rows;
    rows_computed += j->layer == 1 ? at->rows : 0;
    return 0;
}

static int recurrent_attention(struct device *device, const struct attention_job *j,
                               struct error *e)
{
    struct recurrent *d = (struct recurrent *)device;
    const struct span one = {.pos = j->pos, .rows = j->rows};
    int n = j->spans ? j->n_spans : 1, rc = 0;

    if (jobs_left > 0 && --jobs_left == 0)
        at_job(at_ctx);
    if (!recurs(j->layer))
        return cpu_device_ops.attention(d->cpu, j, e);
    for (int i = 0, row = 0; i < n && !rc && !j->trial; i++) {
        const struct span *at = j->spans ? &j->spans[i] : &one;

        rc = recur(d, j, at, row, e);
        row += at->rows;
    }
    return rc;
}

static int recurrent_route(struct device *device, const struct route_job *j, struct error *e)
{
    return cpu_device_ops.route(((struct recurrent *)device)->cpu, j, e);
}

static int recurrent_experts(struct device *device, const struct experts_job *j, struct error *e)
{
    return cpu_device_ops.experts(((struct recurrent *)device)->cpu, j, e);
}

static int recurrent_combine(struct device *device, const struct combine_job *j, struct error *e)
{
    return cpu_device_ops.combine(((struct recurrent *)device)->cpu, j, e);
}

static int recurrent_head(struct device *device, const struct head_job *j, struct error *e)
{
    return cpu_device_ops.head(((struct recurrent *)device)->cpu, j, e);
}

static int recurrent_wait(struct device *device, struct error *e)
{
    return 0;
}

static int recurrent_kv_rows(struct device *device, const struct kv_move *m, struct error *e)
{
    struct recurrent *d = (struct recurrent *)device;
    size_t n = (size_t)d->base.config.model->hp.hidden;
    float *s;

    if (recurs(m->layer) != m->fixed)
        return error_set(e, ERR_DEVICE, "layer %d keeps nothing of this form", m->layer);
    if (!m->fixed)
        return cpu_device_ops.kv_rows(d->cpu, m, e);
    s = d->state[m->session] + (size_t)m->layer * n;
    if (!m->write && d->stands[m->session][m->layer] != m->pos)
        return error_set(e, ERR_DEVICE, "layer %d stands after %d tokens, not after %d", m->layer,
                         d->stands[m->session][m->layer], m->pos);
    memcpy(m->write ? (void *)s : m->data, m->write ? m->data : (void *)s, n * sizeof *s);
    d->stands[m->session][m->layer] = m->pos;
    return 0;
}

static void recurrent_stats(const struct device *device, struct device_stats *out)
{
    cpu_device_ops.stats(((const struct recurrent *)device)->cpu, out);
}

static int recurrent_probe(struct device_info *out, int max, char *why, size_t why_size)
{
    return cpu_device_ops.probe(out, max, why, why_size);
}

const struct device_ops recurrent_device_ops = {
    .name = "cpu",
    .summary = "for tests",
    .probe = recurrent_probe,
    .open = recurrent_open,
    .close = recurrent_close,
    .state_open = recurrent_state_open,
    .state_close = recurrent_state_close,
    .supports = recurrent_supports,
    .block_put = recurrent_put,
    .block_drop = recurrent_drop,
    .attention = recurrent_attention,
    .route = recurrent_route,
    .experts = recurrent_experts,
    .combine = recurrent_combine,
    .head = recurrent_head,
    .wait = recurrent_wait,
    .kv_rows = recurrent_kv_rows,
    .stats = recurrent_stats,
};
