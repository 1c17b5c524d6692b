/* Strategies that put blocks on the target device in some order until it is full. Pure functions,
 * any thread. */
#include "engine/placement/planner_fill.h"

#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void filler_init(struct filler *f, const struct planner_spec *s, const struct planner_input *in,
                 struct plan *p)
{
    uint64_t limit = planner_limit(s, in, in->target);

    *f = (struct filler){
        .in = in, .p = p, .left = limit, .given = limit < in->devices[in->target].budget};
}

/* Whether a device before this one has the block: it is none that stays behind. */
static bool elsewhere(struct filler *f, int place)
{
    bool yes = place && place != f->in->target;

    f->placed += yes;
    return yes;
}

static bool take(struct filler *f, bool can, uint64_t bytes)
{
    if (!can) {
        f->unable++;
        return false;
    }
    if (bytes > f->left) {
        f->full++;
        return false;
    }
    if (f->left != PLANNER_NO_LIMIT)
        f->left -= bytes;
    f->placed++;
    return true;
}

bool filler_attention(struct filler *f, int layer)
{
    int d = f->in->target;

    assert(layer >= 0 && layer < f->in->n_layers);
    if (!f->in->attention_bytes[layer])
        return false; /* as below */
    if (elsewhere(f, f->p->attention[layer]) ||
        !take(f, planner_can_attention(f->in, d, layer), f->in->attention_bytes[layer]))
        return false;
    f->p->attention[layer] = (uint8_t)d;
    return true;
}

bool filler_expert(struct filler *f, int layer, int expert)
{
    int d = f->in->target, cell = layer * f->in->n_experts + expert;

    assert(layer >= 0 && layer < f->in->n_layers);
    assert(expert >= 0 && expert < f->in->n_experts);
    if (!planner_has_expert(f->in, layer, expert))
        return false; /* no such block, so none that stays behind */
    if (elsewhere(f, f->p->experts[cell]) ||
        !take(f, planner_can_expert(f->in, d, layer, expert), f->in->expert_bytes[cell]))
        return false;
    f->p->experts[cell] = (uint8_t)d;
    return true;
}

bool filler_head(struct filler *f)
{
    if (elsewhere(f, f->p->head) ||
        !take(f, f->in->devices[f->in->target].head_can, f->in->head_bytes))
        return false;
    f->p->head = (uint8_t)f->in->target;
    return true;
}

void filler_note(const struct filler *f, const struct planner_spec *s, bool wanted_all,
                 char note[PLANNER_NOTE])
{
    const char *name = f->in->devices[f->in->target].name;
    int total = f->placed + f->unable + f->full;

    if (f->unable)
        snprintf(note, PLANNER_NOTE,
                 "%s: %d of %d blocks are of a kind or type that %s cannot run, or have an "
                 "adapter, and stay on the CPU",
                 s->text, f->unable, total, name ? name : "the device");
    else if (f->full && (wanted_all || !f->placed))
        snprintf(note, PLANNER_NOTE, "%s: %d of %d blocks do not fit %s and stay on the CPU",
                 s->text, f->full, total,
                 f->given ? "into this size"
                 : name   ? name
                          : "the device");
}

const double *planner_usage(const struct planner_input *in)
{
    int cells = in->n_layers * in->n_experts;

    for (int i = 0; in->usage && i < cells; i++)
        if (in->usage[i] > 0)
            return in->usage;
    return NULL;
}

struct cell_key {
    double density;
    int layer, cell;
};

static int by_density(const void *a, const void *b)
{
    const struct cell_key *x = a, *y = b;

    if (x->density != y->density)
        return x->density > y->density ? -1 : 1;
    if (x->layer != y->layer)
        return x->layer > y->layer ? -1 : 1;
    return x->cell - y->cell;
}

int *planner_cells_by_use(const struct planner_input *in, const double *usage)
{
    int cells = in->n_layers * in->n_experts;
    struct cell_key *keys = mem_alloc((size_t)cells, sizeof *keys);
    int *order = mem_alloc((size_t)cells, sizeof *order);

    if (!keys || !order) {
        mem_free(keys);
        mem_free(order);
        return NULL;
    }
    for (int i = 0; i < cells; i++) {
        double use = usage ? usage[i] : 1.0;

        /* a NaN (a damaged profile) must not upset the order */
        keys[i].density = use > 0 ? use / (in->expert_bytes[i] ? (double)in->expert_bytes[i] : 1.0)
                                  : 0;
        keys[i].layer = i / in->n_experts;
        keys[i].cell = i;
    }
    qsort(keys, (size_t)cells, sizeof *keys, by_density);
    for (int i = 0; i < cells; i++)
        order[i] = keys[i].cell;
    mem_free(keys);
    return order;
}

static int fill_experts_by_use(struct filler *f)
{
    int cells = f->in->n_layers * f->in->n_experts,
        *order = planner_cells_by_use(f->in, planner_usage(f->in));

    if (!order)
        return ERR_MEMORY;
    for (int i = 0; i < cells; i++)
        filler_expert(f, order[i] / f->in->n_experts, order[i] % f->in->n_experts);
    mem_free(order);
    return 0;
}

int planner_fill_cpu(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                     char note[PLANNER_NOTE])
{
    return 0;
}

static int fill_everything(const struct planner_spec *s, const struct planner_input *in,
                           struct plan *p, bool wanted_all, char *note)
{
    struct filler f;
    int rc;

    filler_init(&f, s, in, p);
    for (int l = in->n_layers - 1; l >= 0; l--)
        filler_attention(&f, l);
    filler_head(&f);
    rc = fill_experts_by_use(&f);
    filler_note(&f, s, wanted_all, note);
    return rc;
}

int planner_fill_gpu(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                     char note[PLANNER_NOTE])
{
    return fill_everything(s, in, p, true, note);
}

int planner_fill_memory(const struct planner_spec *s, const struct planner_input *in,
                        struct plan *p, char note[PLANNER_NOTE])
{
    return fill_everything(s, in, p, false, note);
}

/* Everything that is on a device goes back to the CPU. */
static void take_back(struct plan *p, int device)
{
    for (int l = 0; l < p->n_layers; l++)
        p->attention[l] = p->attention[l] == device ? 0 : p->attention[l];
    for (int i = 0; i < p->n_layers * p->n_experts; i++)
        p->experts[i] = p->experts[i] == device ? 0 : p->experts[i];
    p->head = p->head == device ? 0 : p->head;
}

int planner_fill_stream(const struct planner_spec *s, const struct planner_input *in,
                        struct plan *p, char note[PLANNER_NOTE])
{
    const struct planner_device *d = &in->devices[in->target];
    const char *name = d->name ? d->name : "the device";
    int cells = in->n_layers * in->n_experts, passing = 0, there = 0;
    uint64_t limit = planner_limit(s, in, in->target);
    struct filler f;
    int rc = fill_everything(s, in, p, true, note);

    for (int i = 0; i < cells; i++)
        there += p->experts[i] != 0;
    if (rc < 0 || there == planner_experts(in) || in->n_also)
        return rc; /* all of it fits, or the rest may fit the next device: no streaming needed */
    if (!d->streams || d->stream_bytes > limit) {
        snprintf(note, PLANNER_NOTE, "%s: %s; what does not fit stays on the CPU", s->text,
                 d->streams ? "the buffers for streaming do not fit"
                            : "experts cannot be streamed through this device");
        return 0;
    }
    /* again, with memory reserved for the buffers */
    take_back(p, in->target);
    filler_init(&f, s, in, p);
    f.left -= limit == PLANNER_NO_LIMIT ? 0 : d->stream_bytes;
    for (int l = in->n_layers - 1; l >= 0; l--)
        filler_attention(&f, l);
    filler_head(&f);
    if ((rc = fill_experts_by_use(&f)) < 0)
        return rc;
    for (int i = 0; i < cells; i++)
        if (!p->experts[i] &&
            planner_can_expert(in, in->target, i / in->n_experts, i % in->n_experts)) {
            p->experts[i] = (uint8_t)in->target;
            p->streamed[i] = 1;
            passing++;
        }
    snprintf(note, PLANNER_NOTE,
             "%s: %d of %d experts do not fit and are copied to %s when a token asks for them%s",
             s->text, passing, planner_experts(in), name,
             d->unified ? " (which shares the host's memory: no gain)" : "");
    return 0;
}

/* Whether a device before this one has any of the layer. */
static bool layer_elsewhere(const struct planner_input *in, const struct plan *p, int layer)
{
    int d = p->attention[layer];

    for (int x = 0; x < p->n_experts && (!d || d == in->target); x++)
        d = plan_expert(p, layer, x);
    return d && d != in->target;
}

int planner_fill_layers(const struct planner_spec *s, const struct planner_input *in,
                        struct plan *p, char note[PLANNER_NOTE])
{
    int n = planner_count(s, in, in->target);
    struct filler f;

    filler_init(&f, s, in, p);
    for (int i = 0; i < in->n_layers && n > 0; i++) {
        int l = s->first ? i : in->n_layers - 1 - i;

        if (layer_elsewhere(in, p, l))
            continue;
        filler_attention(&f, l);
        for (int x = 0; x < in->n_experts; x++)
            filler_expert(&f, l, x);
        n--;
    }
    filler_note(&f, s, true, note);
    if (!note[0] && s->count > in->n_layers)
        snprintf(note, PLANNER_NOTE, "%s: the model has %d layers; all of them are on the GPU",
                 s->text, in->n_layers);
    return 0;
}

/* How many of the first experts of a layer devices before this one have. */
static int experts_elsewhere(const struct planner_input *in, const struct plan *p, int layer)
{
    int n = 0;

    while (n < p->n_experts && plan_expert(p, layer, n) && plan_expert(p, layer, n) != in->target)
        n++;
    return n;
}

int planner_fill_experts(const struct planner_spec *s, const struct planner_input *in,
                         struct plan *p, char note[PLANNER_NOTE])
{
    int n = planner_count(s, in, in->target);
    struct filler f;

    filler_init(&f, s, in, p);
    for (int k = 0; k < n && k < in->n_experts; k++)
        for (int l = in->n_layers - 1; l >= 0; l--)
            if (k + experts_elsewhere(in, p, l) < in->n_experts)
                filler_expert(&f, l, k + experts_elsewhere(in, p, l));
    filler_note(&f, s, true, note);
    if (!note[0] && s->count > in->n_experts)
        snprintf(note, PLANNER_NOTE,
                 "%s: the model has %d experts a layer; all of them are on the GPU", s->text,
                 in->n_experts);
    return 0;
}

int planner_fill_hot(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                     char note[PLANNER_NOTE])
{
    struct filler f;
    int rc;

    filler_init(&f, s, in, p);
    rc = fill_experts_by_use(&f);
    filler_note(&f, s, false, note);
    if (!note[0] && f.full && !planner_usage(in))
        snprintf(note, PLANNER_NOTE,
                 "%s: nothing is known yet about which experts are used; the last layers' were "
                 "taken (try again after an answer, or give a --profile)",
                 s->text);
    return rc;
}

int planner_fill_attention_gpu(const struct planner_spec *s, const struct planner_input *in,
                               struct plan *p, char note[PLANNER_NOTE])
{
    struct filler f;

    filler_init(&f, s, in, p);
    for (int l = in->n_layers - 1; l >= 0; l--)
        filler_attention(&f, l);
    filler_note(&f, s, true, note);
    return 0;
}

int planner_fill_experts_gpu(const struct planner_spec *s, const struct planner_input *in,
                             struct plan *p, char note[PLANNER_NOTE])
{
    struct filler f;
    int rc;

    filler_init(&f, s, in, p);
    rc = fill_experts_by_use(&f);
    filler_note(&f, s, true, note);
    return rc;
}

/* dynamic: an expert outside replaces the coldest one inside only if it is used a quarter more and
 * at least half a (decayed) token more, per byte: otherwise the two would swap in every plan. */
#define DYNAMIC_GAIN 1.25
#define DYNAMIC_STEP 0.5

struct swap_state {
    const struct planner_input *in;
    struct plan *p;
    const double *use;
    uint64_t left;
};

static int coldest(const struct swap_state *w)
{
    int cells = w->in->n_layers * w->in->n_experts, best = -1;

    for (int i = 0; i < cells; i++)
        if (w->p->experts[i] == w->in->target && (best < 0 || w->use[i] < w->use[best]))
            best = i;
    return best;
}

/* Frees memory for cell by moving colder experts back to the CPU; all or nothing. */
static bool make_room(struct swap_state *w, int cell)
{
    uint64_t need = w->in->expert_bytes[cell], left = w->left;
    int out[8], n = 0;
    double lost = 0;

    while (left < need) {
        int v = n < 8 ? coldest(w) : -1;

        if (v < 0 || w->use[cell] <= (lost + w->use[v]) * DYNAMIC_GAIN + DYNAMIC_STEP) {
            while (n)
                w->p->experts[out[--n]] = (uint8_t)w->in->target;
            return false;
        }
        lost += w->use[v];
        w->p->experts[v] = 0;
        out[n++] = v;
        left += w->in->expert_bytes[v];
    }
    w->left = left;
    return true;
}

/* Bytes of experts that go to devices before this one. */
static uint64_t moved_before(const struct planner_input *in, const struct plan *p)
{
    uint64_t bytes = 0;

    for (int i = 0; i < in->n_layers * in->n_experts; i++)
        if (p->experts[i] && (!in->current || in->current->experts[i] != p->experts[i]))
            bytes += in->expert_bytes[i];
    return bytes;
}

int planner_fill_dynamic(const struct planner_spec *s, const struct planner_input *in,
                         struct plan *p, char note[PLANNER_NOTE])
{
    int cells = in->n_layers * in->n_experts, *order;
    uint64_t moved = moved_before(in, p);
    struct swap_state w = {in, p, in->recent ? in->recent : in->usage,
                           planner_limit(s, in, in->target)};

    if (!w.use)
        return 0;
    order = planner_cells_by_use(in, w.use);
    if (!order)
        return ERR_MEMORY;
    /* keep the current ones, hottest first, as far as the (possibly reduced) budget allows */
    for (int i = 0; i < cells && in->current; i++) {
        int c = order[i];

        if (!p->experts[c] && in->current->experts[c] == in->target &&
            planner_can_expert(in, in->target, c / in->n_experts, c % in->n_experts) &&
            in->expert_bytes[c] <= w.left) {
            p->experts[c] = (uint8_t)in->target;
            w.left -= w.left == PLANNER_NO_LIMIT ? 0 : in->expert_bytes[c];
        }
    }
    for (int i = 0; i < cells; i++) {
        int c = order[i];
        uint64_t bytes = in->expert_bytes[c];

        if (!(w.use[c] > 0) || (moved && in->move_bytes && moved + bytes > in->move_bytes))
            break;
        if (p->experts[c] ||
            !planner_can_expert(in, in->target, c / in->n_experts, c % in->n_experts))
            continue;
        if (bytes > w.left && !make_room(&w, c))
            break;
        p->experts[c] = (uint8_t)in->target;
        w.left -= w.left == PLANNER_NO_LIMIT ? 0 : bytes;
        moved += bytes;
        if (in->move_bytes && moved >= in->move_bytes)
            break;
    }
    mem_free(order);
    return 0;
}

/* Without a verdict; with one its strategy is run instead (planner_run). */
int planner_fill_auto(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                      char note[PLANNER_NOTE])
{
    if (in->verdict)
        snprintf(note, PLANNER_NOTE,
                 "auto: the stored verdict '%.40s' is no strategy; everything stays on the CPU",
                 in->verdict);
    else
        snprintf(note, PLANNER_NOTE,
                 "auto: nothing was measured yet for this model and device; everything stays on "
                 "the CPU");
    return 0;
}
