/* See trainer.h. */
#include "engine/train/trainer.h"

#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/train/attention.h"
#include "engine/train/layer.h"
#include "engine/train/loss.h"
#include "engine/train/optimizer.h"

#include <math.h>
#include <string.h>

#define GROWN_STEPS 8 /* consecutive losses above the bound: the run diverges */

struct trainer {
    struct train_config config;
    struct model *model; /* NULL: the caller's */
    struct base base;
    struct modules modules;
    struct train_data data, valid;
    struct crew crew;
    struct rope rope;
    struct pass pass;
    struct loss_room loss;
    float *d; /* gradient: (rows, hidden) */
    struct target *targets;
    float *memory;
    size_t memory_bytes;
    struct train_state at;
    const struct stop *stop;
};

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the training");
}

/* ---- opening ---- */

static int context_of(const struct trainer *t)
{
    int most = t->base.model->hp.context_max;

    return t->config.context && t->config.context < most ? t->config.context : most;
}

static int read_data(struct trainer *t, const struct trainer_options *o, struct error *e)
{
    int rc = train_data_read(&t->data, o->data, t->base.model, context_of(t), o->stop, e);

    if (rc == 0 && o->valid)
        rc = train_data_read(&t->valid, o->valid, t->base.model, context_of(t), o->stop, e);
    return rc;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static void lay_out(struct trainer *t, struct room *r, int rows)
{
    const struct hparams *hp = &t->base.model->hp;
    size_t n = (size_t)rows;

    tape_lay_out(&t->pass, r, rows, (size_t)t->config.keep_activations << 20);
    loss_lay_out(&t->loss, r, hp);
    t->d = room_take(r, n * (size_t)hp->hidden);
    t->pass.starts = (int *)(void *)room_take(r, n + 1);
    t->pass.ids = (int *)(void *)room_take(r, n);
    t->pass.positions = (int *)(void *)room_take(r, n);
    t->targets = (struct target *)(void *)room_take(r, 2 * n);
}

static int take_memory(struct trainer *t, int threads, struct error *e)
{
    const struct hparams *hp = &t->base.model->hp;
    int batch = t->config.batch,
        rows = larger(train_data_most(&t->data, batch), train_data_most(&t->valid, batch)),
        longest = larger(t->data.longest, t->valid.longest), rc;
    size_t scratch = products_scratch(&t->base, rows), heads = attention_scratch(longest);
    struct room r = {0};

    if (!(t->pass.layers = mem_alloc((size_t)hp->n_layers + 1, sizeof *t->pass.layers)))
        return no_memory(e);
    scratch = heads > scratch ? heads : scratch;
    if ((rc = crew_init(&t->crew, threads, scratch, e)) < 0 ||
        (rc = rope_init(&t->rope, hp, longest, e)) < 0)
        return rc;
    rope_reach(&t->rope, longest);
    t->pass.base = &t->base;
    t->pass.crew = &t->crew;
    t->pass.rope = &t->rope;
    lay_out(t, &r, rows);
    t->memory_bytes = r.used * sizeof *r.base;
    if (!(r.base = t->memory = mem_pages(t->memory_bytes)))
        return error_set(e, ERR_MEMORY,
                         "%.1f GB of memory for a batch are not there: try a smaller batch, with "
                         "more accumulation",
                         (double)t->memory_bytes / 1e9);
    r.used = 0;
    lay_out(t, &r, rows);
    return 0;
}

int trainer_open(struct trainer **out, const struct trainer_options *o, struct error *e)
{
    struct trainer *t = mem_alloc(1, sizeof *t);
    int rc;

    *out = NULL;
    if (!t)
        return no_memory(e);
    t->config = o->config;
    t->stop = o->stop;
    rc = o->loaded ? base_of(&t->base, o->loaded, o->config.base, e)
                   : base_open(&t->base, o->model, o->config.base, e);
    t->model = o->loaded ? NULL : t->base.model;
    if (rc == 0 && (rc = read_data(t, o, e)) == 0 &&
        (rc = train_config_settle(&t->config, t->data.n, e)) == 0 &&
        (rc = o->init ? modules_read(&t->modules, &t->base, &t->config, o->init, e)
                      : modules_new(&t->modules, &t->base, &t->config, e)) == 0 &&
        (rc = take_memory(t, o->threads, e)) == 0)
        memcpy(t->modules.good, t->modules.values, t->modules.n_values * sizeof(float));
    t->at.bound = 1.5 * log((double)(rc == 0 ? t->base.model->hp.n_vocab : 2));
    if (rc < 0) {
        trainer_close(t);
        t = NULL;
    }
    *out = t;
    return rc;
}

void trainer_close(struct trainer *t)
{
    if (!t)
        return;
    mem_pages_free(t->memory, t->memory_bytes);
    mem_free(t->pass.layers);
    if (t->rope.hp)
        rope_release(&t->rope);
    crew_release(&t->crew);
    modules_release(&t->modules);
    train_data_release(&t->data);
    train_data_release(&t->valid);
    base_release(&t->base);
    model_free(t->model);
    mem_free(t);
}

/* ---- a batch ---- */

static void embed_row(void *ctx, int row, float *scratch)
{
    const struct pass *p = ctx;

    base_embed(p->base, p->ids[row], p->positions[row],
               p->layers[0].x + (size_t)row * (size_t)p->base->model->hp.hidden, scratch);
}

/* Takes count lines from `first` on, cyclically; returns how many targets they have. */
static int fill(struct trainer *t, const struct train_data *d, int64_t first, int count)
{
    struct pass *p = &t->pass;
    int targets = 0;

    p->n = p->sequences = 0;
    for (int i = 0; i < count; i++) {
        const struct train_line *l = &d->lines[(first + i) % d->n];

        p->starts[p->sequences++] = p->n;
        for (int k = 0; k < l->n; k++) {
            p->ids[p->n + k] = l->ids[k];
            p->positions[p->n + k] = k;
            if (l->mask[k])
                t->targets[targets++] = (struct target){p->n + k - 1, l->ids[k]};
        }
        p->n += l->n;
    }
    p->starts[p->sequences] = p->n;
    return targets;
}

static bool ended(const struct trainer *t)
{
    return t->stop && t->stop->asked(t->stop->ctx);
}

static int forward(struct trainer *t, struct error *e)
{
    crew_each(&t->crew, t->pass.n, embed_row, &t->pass);
    for (int l = 0; l < t->base.model->hp.n_layers; l++) {
        if (ended(t))
            return error_set(e, ERR_CANCELLED, "interrupted");
        layer_forward(&t->pass, l, false);
    }
    return 0;
}

static int backward(struct trainer *t, struct error *e)
{
    for (int l = t->base.model->hp.n_layers - 1; l >= 0; l--) {
        if (ended(t))
            return error_set(e, ERR_CANCELLED, "interrupted");
        if (!t->pass.layers[l].kept)
            layer_forward(&t->pass, l, true);
        layer_backward(&t->pass, l, t->d);
    }
    return 0;
}

static int learned_of(const struct train_data *d, int64_t first, int count)
{
    int sum = 0;

    for (int i = 0; i < count; i++)
        sum += d->lines[(first + i) % d->n].learned;
    return sum;
}

int trainer_gradients(struct trainer *t, struct train_step *out, struct error *e)
{
    const struct train_config *c = &t->config;
    int64_t first = (int64_t)t->at.step * c->batch * c->accumulation;
    double sum = 0.0;
    int rc;

    *out = (struct train_step){.step = t->at.step + 1, .lr = train_config_lr(c, t->at.step)};
    out->learned = learned_of(&t->data, first, c->batch * c->accumulation);
    memset(t->modules.grads, 0, t->modules.n_values * sizeof(float));
    for (int i = 0; i < c->accumulation; i++) {
        int n = fill(t, &t->data, first + (int64_t)i * c->batch, c->batch);

        out->tokens += t->pass.n;
        if ((rc = forward(t, e)) < 0)
            return rc;
        sum += loss_of(&t->pass, &t->loss, t->targets, n, 1.0 / out->learned, t->d);
        if ((rc = backward(t, e)) < 0)
            return rc;
    }
    out->loss = sum / out->learned;
    out->grad_norm = optimizer_norm(&t->crew, &t->modules);
    return 0;
}

/* ---- steps ---- */

static int diverged(struct trainer *t, const struct train_step *s, struct error *e)
{
    size_t bytes = t->modules.n_values * sizeof(float);

    t->at.grown = s->loss > t->at.bound ? t->at.grown + 1 : 0;
    if (isfinite(s->loss) && isfinite(s->grad_norm) && t->at.grown < GROWN_STEPS) {
        if (!t->at.grown)
            memcpy(t->modules.good, t->modules.values, bytes);
        return 0;
    }
    memcpy(t->modules.values, t->modules.good, bytes);
    if (t->at.grown >= GROWN_STEPS)
        return error_set(e, ERR_VALUE,
                         "step %d: the loss has been above %.3g for %d steps, worse than guessing: "
                         "the run diverges; try a smaller lr (%g)",
                         s->step, t->at.bound, GROWN_STEPS, t->config.lr);
    return error_set(e, ERR_VALUE,
                     "step %d: the %s is no finite number: the run diverges; try a smaller lr (%g)",
                     s->step, isfinite(s->loss) ? "gradient" : "loss", t->config.lr);
}

int trainer_step(struct trainer *t, struct train_step *out, struct error *e)
{
    int rc = trainer_gradients(t, out, e);

    if (rc < 0 || (rc = diverged(t, out, e)) < 0)
        return rc;
    if (t->at.step == 0 && 1.5 * out->loss > t->at.bound)
        t->at.bound = 1.5 * out->loss;
    optimizer_step(&t->crew, &t->modules, &t->config, out->step, out->lr, out->grad_norm);
    t->at.step++;
    return 0;
}

int trainer_validate(struct trainer *t, double *loss, struct error *e)
{
    double sum = 0.0;
    int learned = learned_of(&t->valid, 0, t->valid.n), rc;

    for (int i = 0, n; i < t->valid.n; i += n) {
        int targets;

        n = t->valid.n - i < t->config.batch ? t->valid.n - i : t->config.batch;
        targets = fill(t, &t->valid, i, n);
        if ((rc = forward(t, e)) < 0)
            return rc;
        sum += loss_of(&t->pass, &t->loss, t->targets, targets, 0.0, NULL);
    }
    *loss = learned ? sum / learned : 0.0;
    return 0;
}

/* ---- queries ---- */

const struct train_config *trainer_config(const struct trainer *t)
{
    return &t->config;
}

const struct modules *trainer_modules(const struct trainer *t)
{
    return &t->modules;
}

const struct train_data *trainer_data(const struct trainer *t)
{
    return &t->data;
}

struct base *trainer_base(struct trainer *t)
{
    return &t->base;
}

struct train_state trainer_state(const struct trainer *t)
{
    return t->at;
}

void trainer_go_on(struct trainer *t, struct train_state s)
{
    t->at = s;
    memcpy(t->modules.good, t->modules.values, t->modules.n_values * sizeof(float));
}

uint64_t trainer_hash(const struct trainer *t)
{
    uint64_t h = hash_add(train_config_hash(&t->config), t->data.hash);

    for (int i = 0; i < t->modules.n; i++) {
        const struct module *m = &t->modules.list[i];

        h = hash_bytes(h, m->name, strlen(m->name));
        h = hash_add(hash_add(h, (uint64_t)m->rank), m->trained);
        h = hash_bytes(h, &m->scale, sizeof m->scale);
    }
    return t->base.model->file ? hash_add(h, weight_file_hash(t->base.model->file)) : h;
}

struct train_memory trainer_memory(const struct trainer *t)
{
    return (struct train_memory){t->base.bytes,
                                 5 * t->modules.n_values * sizeof(float),
                                 t->memory_bytes +
                                     (size_t)t->crew.n * t->crew.each * sizeof(float)};
}

double trainer_operations(const struct trainer *t)
{
    return t->crew.operations;
}
