/* See fake_device.h. */
#include "tests/fake_device.h"

#include "engine/base/clock.h"
#include "engine/device/selector.h"
#include "engine/base/mem.h"
#include "engine/placement/residency.h"
#include "engine/device/state.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_SESSIONS 16
#define LOOKS 3       /* at a job of layers that is not done */
#define SLOW_TIMES 30 /* of its jobs' mean time */

struct fake {
    struct device_base base;
    const struct device_ops *cpu; /* of inner */
    struct device *inner;
    /* bytes of each block that are there: layers, then layers * experts, then the head */
    uint64_t *put;
    struct experts_job pending;       /* done when waited for */
    struct layers_job pending_layers; /* likewise */
    int looks;                        /* at the job of layers in flight */
    bool has_layers, has_pending, streams, pending_wrong;
    struct {
        int layer, expert;
        bool guessed, wanted;
        uint64_t stamp;
    } slot[DEVICE_STREAM];
    bool state_open[FAKE_SESSIONS];
    uint64_t busy_ns; /* in the CPU's arithmetic */
    struct device_stats stats;
};

static struct fake_control control;
static bool processor;
static const struct device_ops *over = &cpu_device_ops;
static long calls, jobs;
static struct fake_work work;
static uint64_t largest;
static atomic_bool may_open;

void fake_device_control(const struct fake_control *c)
{
    control = c ? *c : (struct fake_control){0};
    calls = jobs = 0;
    work = (struct fake_work){0};
    largest = 0;
    atomic_store(&may_open, !control.hold_open);
}

void fake_device_processor(bool on)
{
    processor = on;
}

void fake_device_over(const struct device_ops *cpu)
{
    over = cpu ? cpu : &cpu_device_ops;
}

void fake_device_let_open(void)
{
    atomic_store(&may_open, true);
}

long fake_device_calls(void)
{
    return calls;
}

struct fake_work fake_device_work(void)
{
    return work;
}

long fake_device_jobs(void)
{
    return jobs;
}

uint64_t fake_device_largest_put(void)
{
    return largest;
}

/* The engine may not ask for this while layers are computed. */
static void between_jobs(const struct fake *f, const char *what)
{
    if (!f->has_layers)
        return;
    fprintf(stderr, "fake device: %s during a job\n", what);
    abort();
}

/* Whether it is fake:(which - 1). */
static bool is_device(const struct fake *f, int which)
{
    return which == 1 + selector_number(f->base.info.selector);
}

static int may_fail(struct fake *f, const char *what, struct error *e)
{
    calls++;
    if (control.delay_us && (!control.delayed || is_device(f, control.delayed)))
        usleep(control.delay_us);
    if (control.only && !is_device(f, control.only))
        return 0;
    if (!control.fail_at || calls < control.fail_at || (calls > control.fail_at && !control.lost))
        return 0;
    f->stats.failures++;
    if (f->has_layers) /* half-way: the residual stream is spoilt */
        memset(f->pending_layers.x, 0xff, sizeof *f->pending_layers.x);
    f->has_layers = f->has_pending = false;
    return error_set(e, ERR_DEVICE, "fake failure of call %ld (%s)", calls, what);
}

/* A job with results begins. 1: its results are to be wrong; ERR_MEMORY. */
static int job_fate(struct fake *f, struct error *e)
{
    jobs++;
    if (control.only && !is_device(f, control.only))
        return 0;
    if (control.slow_at && jobs >= control.slow_at && f->stats.weight_bytes > control.slow_bytes)
        clock_sleep(control.slow_us * 1000ull + SLOW_TIMES * (f->busy_ns / (uint64_t)jobs));
    if (control.memory_at && jobs >= control.memory_at &&
        jobs <= control.memory_at + control.memory_jobs) {
        f->stats.failures++;
        return error_set(e, ERR_MEMORY, "fake device: no memory for job %ld", jobs);
    }
    return control.wrong_at &&
           (jobs == control.wrong_at || (control.wrong_on && jobs > control.wrong_at));
}

/* The result of a job that was computed from `from` until now. */
static int timed(struct fake *f, uint64_t from, int rc)
{
    f->busy_ns += clock_now() - from;
    return rc;
}

static void flip(float *value)
{
    uint32_t bits;

    memcpy(&bits, value, sizeof bits);
    bits ^= 1;
    memcpy(value, &bits, sizeof bits);
}

static void describe(struct device_info *out, int number)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "Fake");
    snprintf(out->selector, sizeof out->selector, "fake:%d", number);
    snprintf(out->driver, sizeof out->driver, "1");
    out->is_cpu_type = processor;
    out->memory = out->max_alloc = control.says ? control.says : (uint64_t)1 << 30;
}

static int fake_probe(struct device_info *out, int max, char *why, size_t why_size)
{
    int n = control.devices ? control.devices : 1;

    if (why_size)
        why[0] = 0;
    for (int i = 0; i < n && i < max; i++)
        describe(&out[i], i);
    return n;
}

static size_t block_of(const struct fake *f, struct block_id id)
{
    const struct hparams *hp = &f->base.config.model->hp;

    switch (id.kind) {
    case BLOCK_ATTENTION: return (size_t)id.layer;
    case BLOCK_EXPERT: return (size_t)(hp->n_layers + id.layer * hp->n_experts + id.expert);
    case BLOCK_HEAD: break;
    }
    return (size_t)(hp->n_layers + hp->n_layers * hp->n_experts);
}

static uint64_t whole(const struct fake *f, struct block_id id)
{
    return model_block_bytes(f->base.config.model, id);
}

static int resident(const struct fake *f, enum block_kind kind, int layer, int expert,
                    struct error *e)
{
    struct block_id id = {kind, layer, expert};

    if (f->put[block_of(f, id)] >= whole(f, id))
        return 0;
    return error_set(e, ERR_DEVICE, "fake device: block %d of layer %d, expert %d is not here",
                     kind, layer, expert);
}

static void fake_close(struct device *d)
{
    struct fake *f = (struct fake *)d;

    if (f->inner)
        f->cpu->close(f->inner);
    mem_free(f->put);
    mem_free(f);
}

static int open_as(struct device **out, const struct device_config *c, const struct device_ops *ops,
                   struct error *e)
{
    struct fake *f = mem_alloc(1, sizeof *f);
    struct device_config inner = *c;
    const struct hparams *hp = &c->model->hp;
    int rc;

    if (!f)
        return error_set(e, ERR_MEMORY, "no memory for a fake device");
    for (int i = 0; !atomic_load(&may_open) && control.hold_open; i++) {
        if (i == 20000) {
            mem_free(f);
            return error_set(e, ERR_DEVICE, "fake device: nobody let it open");
        }
        usleep(1000);
    }
    if (c->log && control.hold_open)
        c->log(c->log_ctx, "fake device: opened");
    inner.n_threads = 1;
    f->cpu = over;
    f->base.ops = ops;
    f->state_open[0] = true;
    f->base.config = *c;
    describe(&f->base.info, c->selector ? selector_number(c->selector) : 0);
    f->put = mem_alloc((size_t)(hp->n_layers + hp->n_layers * hp->n_experts + 1), sizeof *f->put);
    rc = f->put ? f->cpu->open(&f->inner, &inner, e)
                : error_set(e, ERR_MEMORY, "no memory for a fake device");
    if (rc < 0) {
        fake_close((struct device *)f);
        return rc;
    }
    *out = (struct device *)f;
    return 0;
}

static int fake_open(struct device **out, const struct device_config *c, struct error *e)
{
    return open_as(out, c, &fake_device_ops, e);
}

static int fake_plain_open(struct device **out, const struct device_config *c, struct error *e)
{
    return open_as(out, c, &fake_device_plain_ops, e);
}

static bool fake_supports(const struct device *d, const struct layer_shape *shape,
                          enum block_kind kind, enum dtype type)
{
    const struct fake *f = (const struct fake *)d;

    return f->cpu->supports(f->inner, shape, kind, type);
}

static int fake_put(struct device *d, struct block_id id, size_t max_bytes, struct error *e)
{
    struct fake *f = (struct fake *)d;
    uint64_t *have = &f->put[block_of(f, id)], want = whole(f, id), step = want - *have;
    int rc = may_fail(f, "block_put", e);

    between_jobs(f, "block_put");
    if (rc < 0)
        return rc;
    if (control.memory && f->stats.weight_bytes + want - *have > control.memory)
        return error_set(e, ERR_MEMORY, "fake device: no room for block %d of layer %d", id.kind,
                         id.layer);
    if (max_bytes && step > max_bytes)
        step = max_bytes;
    largest = step > largest ? step : largest;
    *have += step;
    f->stats.weight_bytes += step;
    f->stats.uploaded_bytes += step;
    return *have >= want;
}

/* The cached keys of a dropped attention block become NaN, so that whoever uses them without
 * bringing them back is found out. */
static void forget_rows(struct fake *f, int layer)
{
    const struct device_config *c = &f->base.config;
    struct state_size s = state_size(&hparams_layer(&c->model->hp, layer)->mixer, c->kv_k, c->kv_v);
    size_t bytes = s.fixed_bytes ? s.fixed_bytes : (size_t)c->context * s.token_bytes;
    void *nan = mem_alloc(bytes, 1);

    if (nan)
        memset(nan, 0xff, bytes);
    for (int n = 0; nan && n < FAKE_SESSIONS; n++) {
        struct kv_move m = {.session = n,
                            .layer = layer,
                            .count = c->context,
                            .data = nan,
                            .write = true,
                            .fixed = s.fixed_bytes > 0};

        if (f->state_open[n])
            f->cpu->kv_rows(f->inner, &m, NULL);
    }
    mem_free(nan);
}

static void fake_drop(struct device *d, struct block_id id)
{
    struct fake *f = (struct fake *)d;
    uint64_t *have = &f->put[block_of(f, id)];

    between_jobs(f, "block_drop");
    f->stats.weight_bytes -= *have;
    if (id.kind == BLOCK_ATTENTION && *have)
        forget_rows(f, id.layer);
    *have = 0;
}

static uint64_t largest_expert(const struct fake *f)
{
    const struct hparams *hp = &f->base.config.model->hp;
    uint64_t most = 0;

    for (int i = 0; i < hp->n_layers * hp->n_experts; i++) {
        uint64_t b = whole(f,
                           (struct block_id){BLOCK_EXPERT, i / hp->n_experts, i % hp->n_experts});

        most = b > most ? b : most;
    }
    return most;
}

static int fake_stream(struct device *d, bool on, struct error *e)
{
    struct fake *f = (struct fake *)d;
    uint64_t bytes = DEVICE_STREAM * largest_expert(f);
    int rc = on ? may_fail(f, "stream", e) : 0;

    if (rc < 0)
        return rc;
    if (on && control.memory && f->stats.weight_bytes + bytes > control.memory)
        return error_set(e, ERR_MEMORY, "fake device: no room for streaming");
    f->streams = on;
    f->stats.stream_bytes = on ? bytes : 0;
    memset(f->slot, 0xff, sizeof f->slot);
    for (int i = 0; i < DEVICE_STREAM; i++)
        f->slot[i].guessed = f->slot[i].wanted = false, f->slot[i].stamp = 0;
    return 0;
}

/* Where an expert lies, or comes to lie in the slot filled longest ago that is not wanted; -1: no
 * slot. */
static int pass_through(struct fake *f, int layer, int expert, bool guess)
{
    int at = -1;

    for (int i = 0; i < DEVICE_STREAM; i++)
        if (f->slot[i].layer == layer && f->slot[i].expert == expert) {
            f->stats.prefetch_hits += !guess && f->slot[i].guessed;
            f->slot[i].guessed &= guess;
            return i;
        }
    for (int i = 0; i < DEVICE_STREAM; i++)
        if (!f->slot[i].wanted && (at < 0 || f->slot[i].stamp < f->slot[at].stamp))
            at = i;
    if (at < 0)
        return -1;
    f->slot[at].layer = layer;
    f->slot[at].expert = expert;
    f->slot[at].guessed = guess;
    f->slot[at].stamp = ++f->stats.streamed;
    f->stats.streamed_bytes += whole(f, (struct block_id){BLOCK_EXPERT, layer, expert});
    f->stats.uploaded_bytes += whole(f, (struct block_id){BLOCK_EXPERT, layer, expert});
    return at;
}

static void fake_prefetch(struct device *d, int layer, const int *experts, int n)
{
    struct fake *f = (struct fake *)d;

    for (int i = 0; i < DEVICE_STREAM; i++)
        f->slot[i].wanted = false;
    for (int i = 0; i < n && f->streams; i++) {
        uint64_t before = f->stats.streamed;
        int at = pass_through(f, layer, experts[i], true);

        if (at >= 0)
            f->slot[at].wanted = true;
        f->stats.prefetched += f->stats.streamed - before;
    }
}

static int fake_attention(struct device *d, const struct attention_job *j, struct error *e)
{
    struct fake *f = (struct fake *)d;
    size_t n = (size_t)j->rows * (size_t)f->base.config.model->hp.hidden;
    int rc = resident(f, BLOCK_ATTENTION, j->layer, 0, e), fate = 0;
    uint64_t from;

    between_jobs(f, "attention");
    if (rc == 0)
        rc = may_fail(f, "attention", e);
    if (rc == 0 && (fate = job_fate(f, e)) < 0)
        rc = fate;
    if (rc < 0) {
        memset(j->y, 0xff, n * sizeof *j->y);
        return rc;
    }
    f->stats.jobs++;
    work.attention += j->rows;
    if (control.instant)
        return memset(j->y, 0, n * sizeof *j->y), 0;
    from = clock_now();
    rc = timed(f, from, f->cpu->attention(f->inner, j, e));
    if (fate)
        flip(j->y + n / 2);
    return rc;
}

static int do_layers(struct fake *f, struct error *e)
{
    const struct layers_job *j = &f->pending_layers;
    uint64_t from = clock_now();
    int rc = timed(f, from, f->cpu->layers(f->inner, j, e));

    f->has_layers = false;
    if (rc == 0 && f->pending_wrong)
        flip(j->x + f->base.config.model->hp.hidden / 2);
    return rc;
}

static int do_pending(struct fake *f, struct error *e)
{
    const struct experts_job *j = &f->pending;
    size_t at = (size_t)(j->slot[j->groups[0].first] * j->rows + j->row[j->groups[0].first]);
    uint64_t from = clock_now();
    int rc = timed(f, from, f->cpu->experts(f->inner, j, e));

    f->has_pending = false;
    if (rc == 0 && f->pending_wrong)
        flip(j->out + at * (size_t)f->base.config.model->hp.hidden);
    return rc;
}

static int fake_experts(struct device *d, const struct experts_job *j, struct error *e)
{
    struct fake *f = (struct fake *)d;
    int rc = 0, fate = 0;

    between_jobs(f, "experts");
    for (int i = 0; i < DEVICE_STREAM; i++)
        f->slot[i].wanted = false;
    for (int i = 0; i < j->n_groups && rc == 0; i++)
        if (f->put[block_of(f, (struct block_id){BLOCK_EXPERT, j->layer, j->groups[i].expert})] ==
                0 &&
            f->streams)
            pass_through(f, j->layer, j->groups[i].expert, false);
        else
            rc = resident(f, BLOCK_EXPERT, j->layer, j->groups[i].expert, e);
    if (rc < 0 || (rc = may_fail(f, "experts", e)) < 0 || (fate = job_fate(f, e)) < 0)
        return rc < 0 ? rc : fate;
    for (int i = 0; i < j->n_groups; i++)
        work.experts += j->groups[i].count;
    if (control.instant)
        return 0;
    /* one job in flight is enough */
    if (f->has_pending && (rc = do_pending(f, e)) < 0)
        return rc;
    f->pending = *j;
    f->has_pending = true;
    f->pending_wrong = fate > 0;
    f->stats.jobs++;
    return 0;
}

static int fake_head(struct device *d, const struct head_job *j, struct error *e)
{
    struct fake *f = (struct fake *)d;
    int rc = resident(f, BLOCK_HEAD, 0, 0, e), fate = 0;
    uint64_t from;

    between_jobs(f, "head");
    if (rc < 0 || (rc = may_fail(f, "head", e)) < 0 || (fate = job_fate(f, e)) < 0)
        return rc < 0 ? rc : fate;
    f->stats.jobs++;
    work.head += j->rows;
    if (control.instant)
        return 0;
    from = clock_now();
    rc = timed(f, from, f->cpu->head(f->inner, j, e));
    if (fate)
        flip(j->logits);
    return rc;
}

static int fake_layers(struct device *d, const struct layers_job *j, struct error *e)
{
    struct fake *f = (struct fake *)d;
    const struct hparams *hp = &f->base.config.model->hp;
    int rc = 0, fate = 0;

    for (int l = j->first; l < j->last && rc == 0; l++) {
        rc = resident(f, BLOCK_ATTENTION, l, 0, e);
        for (int x = 0; x < hp->n_experts && rc == 0; x++)
            rc = resident(f, BLOCK_EXPERT, l, x, e);
    }
    if (rc == 0)
        rc = may_fail(f, "layers", e);
    if (rc == 0 && (fate = job_fate(f, e)) < 0)
        rc = fate;
    if (rc < 0) { /* half-way: the residual stream is spoilt */
        memset(j->x, 0xff, (size_t)hp->hidden * sizeof *j->x);
        return rc;
    }
    f->stats.jobs++;
    work.attention += (long)j->rows * (j->last - j->first);
    work.experts += (long)j->rows * hp->n_experts_used * (j->last - j->first);
    if (control.instant) /* routing is read as it stands: expert 0 */
        return memset(j->experts, 0,
                      (size_t)(j->last - j->first) * (size_t)(j->rows * hp->n_experts_used) *
                          sizeof *j->experts),
               0;
    between_jobs(f, "layers");
    f->pending_layers = *j;
    f->has_layers = true;
    f->pending_wrong = fate > 0;
    f->looks = 0;
    return 0;
}

/* A job of layers takes some time: it is not done when first looked at. */
static bool fake_done(const struct device *d)
{
    struct fake *f = (struct fake *)(uintptr_t)d;

    return !f->has_pending && (!f->has_layers || ++f->looks > LOOKS);
}

static int fake_wait(struct device *d, struct error *e)
{
    struct fake *f = (struct fake *)d;
    int rc = may_fail(f, "wait", e);

    f->stats.waits++;
    if (rc == 0 && f->has_layers)
        return do_layers(f, e);
    return rc < 0 || !f->has_pending ? rc : do_pending(f, e);
}

static int fake_kv_rows(struct device *d, const struct kv_move *m, struct error *e)
{
    struct fake *f = (struct fake *)d;
    int rc = may_fail(f, "kv_rows", e);

    between_jobs(f, "kv_rows");
    *(m->write ? &work.rows_written : &work.rows_read) += m->count;
    return rc < 0 ? rc : f->cpu->kv_rows(f->inner, m, e);
}

/* Attention blocks that are here, times the sessions there would be with `more`. */
static int states_with(const struct fake *f, int more)
{
    int blocks = 0, sessions = more;

    for (int l = 0; l < f->base.config.model->hp.n_layers; l++)
        blocks += f->put[block_of(f, (struct block_id){BLOCK_ATTENTION, l, 0})] > 0;
    for (int n = 0; n < FAKE_SESSIONS; n++)
        sessions += f->state_open[n];
    return blocks * sessions;
}

static int fake_state_open(struct device *d, int session, struct error *e)
{
    struct fake *f = (struct fake *)d;
    int rc = session < FAKE_SESSIONS ? may_fail(f, "state_open", e)
                                     : error_set(e, ERR_MEMORY, "fake device: too many sessions");

    between_jobs(f, "state_open");
    if (rc == 0 && control.states && states_with(f, 1) > control.states)
        rc = error_set(e, ERR_MEMORY, "fake device: no room for session %d", session);
    if (rc == 0 && (rc = f->cpu->state_open(f->inner, session, e)) == 0)
        f->state_open[session] = true;
    return rc;
}

static void fake_state_close(struct device *d, int session)
{
    struct fake *f = (struct fake *)d;

    between_jobs(f, "state_close");
    f->cpu->state_close(f->inner, session);
    f->state_open[session] = false;
}

static void fake_stats(const struct device *d, struct device_stats *out)
{
    *out = ((const struct fake *)d)->stats;
}

#define COMMON                                                                                  \
    .name = "fake", .summary = "fails on demand", .probe = fake_probe, .close = fake_close,     \
    .supports = fake_supports, .block_put = fake_put, .block_drop = fake_drop,                  \
    .attention = fake_attention, .experts = fake_experts, .head = fake_head, .wait = fake_wait, \
    .stream = fake_stream, .prefetch = fake_prefetch, .kv_rows = fake_kv_rows,                  \
    .state_open = fake_state_open, .state_close = fake_state_close, .stats = fake_stats

const struct device_ops fake_device_ops = {COMMON, .open = fake_open, .layers = fake_layers,
                                           .done = fake_done};
const struct device_ops fake_device_plain_ops = {COMMON, .open = fake_plain_open};
