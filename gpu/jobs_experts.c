/* Experts: by their kernels, and the rows of a job divided into launches. */
#include "gpu/blas.h"
#include "gpu/jobs.h"

#define BANKS 64 /* most launches of one experts job */

/* Arguments from `at` on: a matrix of each expert of a bank. */
static int bank_args(struct device *d, struct kernel *k, int at, const struct expert_bank *bank,
                     int part, bool bias, struct error *e)
{
    const struct joined_experts *j = bank->joined;

    for (int i = 0; i < BANK; i++) {
        const struct part *p = &bank->at[i < bank->n ? i : 0]->part[part];
        cl_mem mem = !j ? (bias ? p->bias : p->mem) : bias ? j->bias[part] : j->matrix[part];

        if (launch_args(d, k, at + i, e, "m", j && i ? NULL : mem) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* Matrices of a bank from argument `at` on, n of them from part `first` on; where the model's
 * experts have biases theirs, and whether these have any; then the steps from expert to expert, of
 * each matrix and of each bias, 0 where each is bound by itself. */
static int expert_args(struct device *d, struct kernel *k, int at, const struct expert_bank *bank,
                       int first, int n, struct error *e)
{
    const struct joined_experts *j = bank->joined;
    int last = first + n - 1;

    for (int i = 0; i < n; i++)
        if (bank_args(d, k, at + i * BANK, bank, first + i, false, e) < 0 ||
            (d->biased && bank_args(d, k, at + (n + i) * BANK, bank, first + i, true, e) < 0))
            return ERR_DEVICE;
    at += (d->biased ? 2 : 1) * n * BANK;
    if (d->biased && launch_args(d, k, at++, e, "i", bank->at[0]->part[last].m->bias != NULL) < 0)
        return ERR_DEVICE;
    return launch_args(d, k, at, e, "ii", j ? (int)j->step[last] : 0,
                       j ? (int)j->bias_step[last] : 0);
}

int jobs_gate_up(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                 int first, int end, int many, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct part *part = bank->at[0]->part;
    bool quant = dtype_is_quantised(part[1].m->type);
    struct group_shape gs = kernel_set_group(d, part[1].m->type, many, true);
    struct kernel *g = d->type[part[1].m->type].gate_up[many];
    int middle = part[1].m->rows, act = (int)s->activation;
    double limit = (double)s->limit;
    size_t n = (size_t)(end - first), ffn = (size_t)middle;

    if ((quant ? launch_args(d, g, 0, e, "mmmmmmmmiiiiif", d->hq.q, d->hq.d, d->hq.s, d->mq.q,
                             d->mq.d, d->mq.s, d->tiles, d->entries, first, end, hp->hidden, middle,
                             act, limit)
               : launch_args(d, g, 0, e, "mmmmiiiiif", d->h, d->mid, d->tiles, d->entries, first,
                             end, hp->hidden, middle, act, limit)) < 0 ||
        expert_args(d, g, quant ? 14 : 10, bank, 0, 2, e) < 0)
        return ERR_DEVICE;
    return launch(d, g, "gate_up", 2,
                  (size_t[]){n * gs.x, (quant ? ffn / 32 : jobs_up(ffn, 4) / 4) * gs.y},
                  (size_t[]){gs.x, gs.y}, e);
}

int jobs_token_gate_up(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                       int used, struct error *e)
{
    const struct part *part = bank->at[0]->part;
    enum dtype type = part[1].m->type;
    struct group_shape g = kernel_set_group(d, type, false, true);
    struct kernel *k = d->type[type].token_gate_up;
    int middle = part[1].m->rows;

    if (launch_args(d, k, 0, e, "mmmmmmmmmiiif", d->hq.q, d->hq.d, d->hq.s, d->mq.q, d->mq.d,
                    d->mq.s, d->tiles, d->gate_sums, d->gate_arrivals,
                    d->base.config.model->hp.hidden, middle, (int)s->activation,
                    (double)s->limit) < 0 ||
        expert_args(d, k, 13, bank, 0, 2, e) < 0)
        return ERR_DEVICE;
    return launch(d, k, "token_gate_up", 3,
                  (size_t[]){(size_t)used * g.x, (size_t)middle / 32 * g.y, 4},
                  (size_t[]){g.x, g.y, 1}, e);
}

int jobs_down(struct device *d, const struct expert_bank *bank, int first, int end, int many,
              struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    const struct part *part = bank->at[0]->part;
    bool quant = dtype_is_quantised(part[1].m->type);
    struct group_shape ds = kernel_set_group(d, part[2].m->type, many, false);
    struct kernel *dn = d->type[part[2].m->type].down[many];
    int middle = part[1].m->rows;
    size_t n = (size_t)(end - first), hidden = (size_t)hp->hidden;

    if ((quant ? launch_args(d, dn, 0, e, "mmmmmmiiii", d->mq.q, d->mq.d, d->mq.s, d->tiles,
                             d->entries, d->out, first, end, middle, hp->hidden)
               : launch_args(d, dn, 0, e, "mmmmiiii", d->mid, d->tiles, d->entries, d->out, first,
                             end, middle, hp->hidden)) < 0 ||
        expert_args(d, dn, quant ? 10 : 8, bank, 2, 1, e) < 0)
        return ERR_DEVICE;
    size_t step = kernel_set_rows(d, part[2].m->type, many);

    return launch(d, dn, "down", 2, (size_t[]){n * ds.x, jobs_up(hidden, step) / step * ds.y},
                  (size_t[]){ds.x, ds.y}, e);
}

int jobs_expert_tiles(struct device *d, const struct ffn_shape *s, const struct expert_bank *bank,
                      int first, int end, int many, struct error *e)
{
    return jobs_gate_up(d, s, bank, first, end, many, e) < 0
               ? ERR_DEVICE
               : jobs_down(d, bank, first, end, many, e);
}

int jobs_token_down(struct device *d, const struct expert_bank *bank, const struct expert_sum *sum,
                    const struct norms_shape *s, const struct norm_rows *next, struct error *e)
{
    const struct matrix *m = bank->at[0]->part[2].m;
    struct kernel *k = d->type[m->type].token_down;
    size_t items = kernel_set_token_items(d, m->type, TOKEN_DOWN),
           step = kernel_set_token_rows(d, m->type, TOKEN_DOWN),
           groups = jobs_up((size_t)m->rows, step) / step;

    if (launch_args(d, k, 0, e, "mmmmmmmmmmmmmiiiifffi", d->mq.q, d->mq.d, d->mq.s, d->tiles,
                    d->all_weights, d->x, d->arrivals, next ? next->w : NULL, next ? next->b : NULL,
                    d->h, d->hq.q, d->hq.d, d->hq.s, sum->base, sum->used, m->cols, m->rows,
                    (double)sum->scale, (double)(1.0f / (float)m->rows), (double)s->eps,
                    next ? jobs_norm_flags(s, next) : 8) < 0 ||
        expert_args(d, k, 21, bank, 2, 1, e) < 0)
        return ERR_DEVICE;
    return launch(d, k, "token_down", 1, (size_t[]){groups * items}, (size_t[]){items}, e);
}

/* Whether one kernel can run both, which takes one width. */
static bool same_kind(const struct block *a, const struct block *b)
{
    return a->part[1].m->type == b->part[1].m->type && a->part[2].m->type == b->part[2].m->type &&
           a->part[1].m->rows == b->part[1].m->rows && !a->part[1].m->bias == !b->part[1].m->bias &&
           !a->part[2].m->bias == !b->part[2].m->bias;
}

/* Reads rows of out back to the host's layout: in one piece if this device computed all of them,
 * row by row for one token, else through our buffer, which wait() scatters. */
static int read_outputs(struct device *d, const struct experts_job *j, int entries, bool compact,
                        struct error *e)
{
    size_t row = (size_t)d->base.config.model->hp.hidden * 4;
    int all = j->rows * d->base.config.model->hp.n_experts_used;

    if (!compact && entries == all)
        return launch_read(d, d->out, 0, j->out, (size_t)all * row, e);
    if (!compact) {
        for (int i = 0; i < entries; i++) {
            size_t at = (size_t)d->scatter_at[i];

            if (launch_read(d, d->out, at * row, (char *)j->out + at * row, row, e) < 0)
                return ERR_DEVICE;
        }
        return 0;
    }
    d->scatter_to = j->out;
    d->scatter_rows = j->rows;
    d->scatter_n = entries;
    return launch_read(d, d->out, 0, d->results, (size_t)entries * row, e);
}

/* ---- Experts: rows of groups become entries, entries tiles, tiles of up to BANK experts one
 * launch ---- */

/* Division of an experts job into launches. Entry n is the n-th row of the groups in order; its
 * output goes to row n of out (compact) or to slot * rows + row, which is kept in d->scatter_at in
 * either case. */
struct schedule {
    const struct experts_job *job; /* h and out are not used here */
    bool compact;
    int many; /* kernels for many tokens */
    int n_entries, n_tiles, n_banks;
    /* start of the k-th launch; one after the last marks the end */
    struct {
        int group, tile;
    } bank[BANKS + 1];
};

static struct block *expert_block(struct device *d, const struct schedule *s, int expert)
{
    return memory_block(d, (struct block_id){BLOCK_EXPERT, s->job->layer, expert});
}

static void schedule_begin(const struct device *d, struct schedule *s, const struct experts_job *j,
                           bool compact)
{
    *s = (struct schedule){.job = j, .compact = compact};
    for (int g = 0; g < j->n_groups; g++)
        s->many |= j->groups[g].count > 1;
}

/* A dense part beside routed experts has its own rows of h, after theirs. */
static void add_entries(struct device *d, struct schedule *s, const struct expert_group *g)
{
    const struct experts_job *j = s->job;
    const struct layer_shape *shape = jobs_shape(d, j->layer);
    int first = shape_normed_rows(shape) > 1 && g->expert == shape->ffn.experts ? j->rows : 0;

    for (int i = g->first; i < g->first + g->count; i++) {
        int n = s->n_entries++, to = j->slot[i] * j->rows + j->row[i];

        d->scatter_at[n] = to;
        d->entry_table[n] = (struct entry){first + j->row[i], s->compact ? n : to};
    }
}

/* Tiles of entries first .. first+count-1, of the expert at this place of its bank. */
static void add_tiles(struct device *d, struct schedule *s, const struct matrix *m, int first,
                      int count, int place)
{
    int step = kernel_set_tile(d, m->type, s->many);

    for (int i = 0; i < count; i += step)
        d->tile_table[s->n_tiles++] = (struct tile){first + i, count - i < step ? count - i : step,
                                                    place, 0};
}

/* Every group's entries, and the tiles of resident experts to be run by our kernels; collects the
 * streamed ones. */
static int schedule_groups(struct device *d, struct schedule *s, struct error *e)
{
    const struct experts_job *j = s->job;
    const struct block *previous = NULL;

    d->swap.n = 0;
    for (int g = 0; g < j->n_groups; g++) {
        const struct expert_group *x = &j->groups[g];
        const struct block *b = expert_block(d, s, x->expert);
        int first = s->n_entries;

        if (b->state != BLOCK_RESIDENT) {
            if (!d->swap.items)
                return jobs_resident(d, BLOCK_EXPERT, j->layer, x->expert, e) ? 0 : ERR_DEVICE;
            d->swap.items[d->swap.n++] =
                (struct swap_item){.expert = x->expert, .group = g, .entry = first};
        }
        add_entries(d, s, x);
        if (b->state != BLOCK_RESIDENT || blas_wants(d, b->part[1].m->type, x->count))
            continue;
        if (s->n_banks == 0 || g - s->bank[s->n_banks - 1].group >= BANK ||
            !same_kind(b, previous)) {
            if (s->n_banks == BANKS)
                return error_set(e, ERR_DEVICE, "OpenCL %s: more than %d experts in one job",
                                 d->target.info.name, BANKS * BANK);
            s->bank[s->n_banks].group = g;
            s->bank[s->n_banks++].tile = s->n_tiles;
        }
        previous = b;
        add_tiles(d, s, b->part[1].m, first, x->count, g - s->bank[s->n_banks - 1].group);
    }
    s->bank[s->n_banks].group = j->n_groups;
    s->bank[s->n_banks].tile = s->n_tiles;
    return 0;
}

/* Streamed experts come after the others, one per launch. */
static void schedule_swapped(struct device *d, struct schedule *s)
{
    const struct expert_weights *weights = d->base.config.model->layers[s->job->layer].experts;

    for (int i = 0; i < d->swap.n; i++) {
        struct swap_item *t = &d->swap.items[i];
        int count = s->job->groups[t->group].count;

        t->tile = s->n_tiles;
        if (!blas_wants(d, weights[t->expert].up.type, count))
            add_tiles(d, s, &weights[t->expert].up, t->entry, count, 0);
        t->end = s->n_tiles;
    }
}

static int schedule_upload(struct device *d, const struct schedule *s, struct error *e)
{
    if (s->n_tiles && launch_input(d, &d->tiles, d->tile_table,
                                   (size_t)s->n_tiles * sizeof *d->tile_table, e) < 0)
        return ERR_DEVICE;
    return launch_input(d, &d->entries, d->entry_table,
                        (size_t)s->n_entries * sizeof *d->entry_table, e);
}

static int run_banks(struct device *d, const struct schedule *s, struct error *e)
{
    for (int k = 0; k < s->n_banks; k++) {
        struct expert_bank bank = {.n = 0};

        for (int g = s->bank[k].group; g < s->bank[k + 1].group && bank.n < BANK; g++)
            bank.at[bank.n++] = expert_block(d, s, s->job->groups[g].expert);
        if (jobs_expert_tiles(d, &jobs_shape(d, s->job->layer)->ffn, &bank, s->bank[k].tile,
                              s->bank[k + 1].tile, s->many, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

static int run_library(struct device *d, const struct schedule *s, struct error *e)
{
    const struct experts_job *j = s->job;

    for (int g = 0, n = 0; g < j->n_groups; n += j->groups[g++].count) {
        const struct block *b = expert_block(d, s, j->groups[g].expert);

        if (b->state == BLOCK_RESIDENT && blas_wants(d, b->part[1].m->type, j->groups[g].count) &&
            blas_expert(d, &jobs_shape(d, j->layer)->ffn, b, n, j->groups[g].count, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

static int run_swapped(struct device *d, const struct schedule *s, struct error *e)
{
    const struct experts_job *j = s->job;

    for (int i = 0; i < d->swap.n; i++) {
        const struct swap_item *t = &d->swap.items[i];
        struct block *b = expert_swap_take(d, j->layer, t->expert, e);
        const struct ffn_shape *shape = &jobs_shape(d, j->layer)->ffn;
        int rc = !b ? ERR_DEVICE
                 : t->end > t->tile
                     ? jobs_expert_tiles(d, shape, &(struct expert_bank){{b}, 1, NULL}, t->tile,
                                         t->end, s->many, e)
                     : blas_expert(d, shape, b, t->entry, j->groups[t->group].count, e);

        if (rc < 0 || expert_swap_done(d, j->layer, t->expert, e) < 0)
            return ERR_DEVICE;
    }
    return 0;
}

/* Experts of a job's groups, from h (and hq) on the device to out. */
int jobs_run_groups(struct device *d, const struct experts_job *j, bool compact, struct error *e)
{
    struct schedule s;

    schedule_begin(d, &s, j, compact);
    d->table_busy = true;
    if (schedule_groups(d, &s, e) < 0)
        return ERR_DEVICE;
    schedule_swapped(d, &s);
    if (d->swap.n && expert_swap_begin(d, j->layer, e) < 0)
        return ERR_DEVICE;
    if (schedule_upload(d, &s, e) < 0 || run_banks(d, &s, e) < 0 || run_library(d, &s, e) < 0)
        return ERR_DEVICE;
    return run_swapped(d, &s, e);
}

int jobs_experts(struct device *d, const struct experts_job *j, struct error *e)
{
    const struct hparams *hp = &d->base.config.model->hp;
    int n = 0, normed = j->rows * shape_normed_rows(jobs_shape(d, j->layer)),
        blocks = normed * hp->hidden / 32;
    size_t row = (size_t)hp->hidden * 4;
    bool compact, there;

    if (d->table_busy && job_harvest(d, e) < 0)
        return ERR_DEVICE;
    for (int g = 0; g < j->n_groups; g++)
        n += j->groups[g].count;
    if (n == 0)
        return 0;
    if (job_begin(d, e) < 0 || launch_input(d, &d->h, j->h, (size_t)normed * row, e) < 0)
        return ERR_DEVICE;
    there = rows_bind(d, &d->out, j->out, (size_t)(j->rows * hp->n_experts_used) * row);
    compact = !there && n != j->rows * hp->n_experts_used && n > 4;
    if (launch_args(d, d->core[CORE_QUANTISE], 0, e, "mmmmi", d->h, d->hq.q, d->hq.d, d->hq.s,
                    blocks) < 0 ||
        launch_core(d, CORE_QUANTISE, "quantise", (size_t)blocks, 1, 1, CORE_ITEMS, e) < 0 ||
        jobs_run_groups(d, j, compact, e) < 0 || (!there && read_outputs(d, j, n, compact, e) < 0))
        return ERR_DEVICE;
    return job_end(d, e);
}
