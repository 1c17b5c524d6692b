/* See expert_cache.h. Slots are of one size: the experts of a model differ little, and any slot
 * then fits any expert. */
#include "engine/model/expert_cache.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/model/expert_reader.h"

#include <assert.h>
#include <string.h>

#define PAGE 4096
#define DEPTH 8    /* most experts being read: more does not make a disk faster */
#define GUESSES 32 /* of a layer */
/* Predictions are followed while at least this share of the recent ones that needed a read was
 * right: a wrong one delays needed reads. */
#define GUESS_RIGHT 0.3f
#define GUESS_FADE 0.99f
#define GUESS_TRUST 10.0f /* initial count of right ones */
/* Use counts halve in 64 passes. */
#define FADE 0.98922801f /* 2^(-1/64) */

struct cell {
    struct matrix_job *jobs[EXPERT_MATRICES];
    int n;
    int slot;       /* -1: only on disk */
    float used;     /* decayed */
    uint64_t pass;  /* when it was last counted */
    uint32_t bytes; /* in the file, in whole pages: experts are small compared to 2^44 */
};

struct slot {
    struct read_task task;
    uint8_t *at;
    int cell; /* -1: free */
    int taken;
    bool gone;    /* its memory was freed */
    bool ahead;   /* predicted to be used next: kept until that is known */
    bool guessed; /* read for a prediction, and not used yet */
};

struct expert_cache {
    struct model *model;
    struct matrix_job *jobs;
    size_t n_jobs;
    struct cell *cells; /* (n_layers, n_experts) */
    int n_cells, n_experts, n_paged;
    struct slot *slots;
    int n_slots;
    size_t slot_bytes;
    uint8_t *memory;
    struct expert_reader *reader;
    uint64_t pass;
    float passes; /* decayed as uses are */
    int layer;    /* current layer of the pass */
    /* of the newest prediction, the experts not in memory; and how often such ones were right,
     * decayed */
    int guess[GUESSES], n_guess;
    float guessed, right;
    struct expert_cache_stats stats;
};

static size_t paged(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The index of the expert that a matrix belongs to. */
static int cell_of(const struct model *m, const struct matrix *x)
{
    return (int)(((const char *)x - (const char *)m->layers[0].experts) /
                 (ptrdiff_t)sizeof(struct expert_weights));
}

static size_t cell_room(const struct cell *c)
{
    size_t bytes = 0;

    for (int i = 0; i < c->n; i++)
        bytes += paged(c->jobs[i]->matrix->bytes);
    return bytes;
}

/* Copies the jobs that stay on disk, or the others; returns how many. to may be `jobs`. */
static size_t pick_jobs(const struct matrix_job *jobs, size_t n, bool stays, struct matrix_job *to)
{
    size_t picked = 0;

    for (size_t i = 0; i < n; i++)
        if (jobs[i].paged == stays)
            to[picked++] = jobs[i];
    return picked;
}

static void fill_cells(struct expert_cache *c)
{
    for (int i = 0; i < c->n_cells; i++)
        c->cells[i].slot = -1;
    for (size_t i = 0; i < c->n_jobs; i++) {
        struct cell *x = &c->cells[cell_of(c->model, c->jobs[i].matrix)];

        assert(x->n < EXPERT_MATRICES);
        c->n_paged += x->n == 0;
        x->jobs[x->n++] = &c->jobs[i];
        x->bytes +=
            (uint32_t)(((size_t)c->jobs[i].matrix->rows *
                            dtype_row_bytes(c->jobs[i].tensor->type, c->jobs[i].matrix->cols) +
                        PAGE - 1) /
                       PAGE);
    }
    for (int i = 0; i < c->n_cells; i++)
        if (cell_room(&c->cells[i]) > c->slot_bytes)
            c->slot_bytes = cell_room(&c->cells[i]);
}

/* Number of slots in so much memory, and their total bytes including the readers'. */
static int slots_in(const struct expert_cache *c, uint64_t bytes, uint64_t buffers)
{
    uint64_t n = bytes > buffers ? (bytes - buffers) / c->slot_bytes : 0;

    return n < (uint64_t)c->n_paged ? (int)n : c->n_paged;
}

static int take_slots(struct expert_cache *c, uint64_t bytes, uint64_t buffers, struct error *e)
{
    uint64_t least = buffers + 2 * c->slot_bytes;

    c->n_slots = slots_in(c, bytes, buffers);
    if (c->n_slots < 2 && c->n_slots < c->n_paged)
        return error_set(e, ERR_FIT,
                         "an expert cache of %.1f MiB (--expert-cache) does not hold two experts "
                         "of this model and what reads them: it takes %.1f MiB at least",
                         (double)bytes / (1 << 20), (double)least / (1 << 20));
    c->slots = mem_alloc((size_t)c->n_slots, sizeof *c->slots);
    c->memory = mem_pages((size_t)c->n_slots * c->slot_bytes);
    if (!c->slots || !c->memory)
        return error_set(e, ERR_MEMORY, "%.1f GB of memory for the expert cache are not there",
                         (double)bytes / 1e9);
    for (int i = 0; i < c->n_slots; i++) {
        c->slots[i].at = c->memory + (size_t)i * c->slot_bytes;
        c->slots[i].cell = -1;
    }
    c->stats.slots = c->n_slots;
    c->stats.experts = c->n_paged;
    c->stats.bytes = (uint64_t)c->n_slots * c->slot_bytes + buffers;
    return 0;
}

/* Moves the jobs that stay on disk out of the binding. */
static int take_jobs(struct expert_cache *c, struct binding *b, struct error *e)
{
    c->n_cells = b->model->hp.n_layers * b->model->hp.n_experts;
    c->n_experts = b->model->hp.n_experts;
    c->jobs = mem_alloc(b->n_matrices, sizeof *c->jobs);
    c->cells = mem_alloc((size_t)c->n_cells, sizeof *c->cells);
    if (!c->jobs || !c->cells)
        return error_set(e, ERR_MEMORY, "out of memory for the expert cache");
    c->n_jobs = pick_jobs(b->matrices, b->n_matrices, true, c->jobs);
    b->n_matrices = pick_jobs(b->matrices, b->n_matrices, false, b->matrices);
    fill_cells(c);
    return 0;
}

int expert_cache_new(struct expert_cache **out, struct model *m, struct binding *b, struct error *e)
{
    struct expert_cache *c;
    int rc;

    *out = NULL;
    if (!b->total.on_disk)
        return 0;
    if (!(c = mem_alloc(1, sizeof *c)))
        return error_set(e, ERR_MEMORY, "out of memory for the expert cache");
    c->model = m;
    c->guessed = c->right = GUESS_TRUST;
    if ((rc = take_jobs(c, b, e)) == 0 &&
        (rc = take_slots(c, b->options->expert_cache, expert_reader_footprint(c->jobs, c->n_jobs),
                         e)) == 0)
        rc = expert_reader_new(&c->reader, m->file, c->jobs, c->n_jobs, e);
    if (rc < 0) {
        expert_cache_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void expert_cache_free(struct expert_cache *c)
{
    if (!c)
        return;
    expert_reader_free(c->reader);
    if (c->memory)
        mem_pages_free(c->memory, (size_t)c->n_slots * c->slot_bytes);
    mem_free(c->slots);
    mem_free(c->cells);
    mem_free(c->jobs);
    mem_free(c);
}

/* Sets or clears the data pointers of an expert with a slot, after its read. */
static void show(struct expert_cache *c, struct cell *x, bool there)
{
    struct slot *s = &c->slots[x->slot];
    uint8_t *at = s->at;

    for (int i = 0; i < x->n; i++) {
        x->jobs[i]->matrix->data = there ? at : NULL;
        at += paged(x->jobs[i]->matrix->bytes);
    }
}

static enum read_state state_of(const struct slot *s)
{
    return (enum read_state)atomic_load_explicit(&s->task.state, memory_order_acquire);
}

static void leave(struct expert_cache *c, struct slot *s)
{
    show(c, &c->cells[s->cell], false);
    c->cells[s->cell].slot = -1;
    s->cell = -1;
    s->ahead = s->guessed = false;
}

/* In how many passes an expert is expected to be used again. */
static float expected(const struct expert_cache *c, int cell)
{
    const struct cell *x = &c->cells[cell];
    int layers = c->model->hp.n_layers, ahead = cell / c->n_experts - c->layer;

    return (c->passes + 1.0f) / (x->used + 0.25f) +
           (float)(ahead > 0 ? ahead : ahead + layers) / (float)layers;
}

/* The slot that is free or has the expert expected last; NULL: all are needed. */
static struct slot *victim(struct expert_cache *c)
{
    struct slot *best = NULL;
    float most = -1.0f;

    for (int i = 0; i < c->n_slots; i++) {
        struct slot *s = &c->slots[i];
        float when;

        if (s->gone)
            continue;
        if (s->cell < 0)
            return s;
        if (s->taken || s->ahead || state_of(s) == READ_QUEUED)
            continue;
        when = expected(c, s->cell);
        if (when > most) {
            most = when;
            best = s;
        }
    }
    return best;
}

/* Starts reading an expert into a slot; NULL: no slot. */
static struct slot *fetch(struct expert_cache *c, int cell, bool guess)
{
    struct cell *x = &c->cells[cell];
    struct slot *s = victim(c);
    uint8_t *at;

    if (!s)
        return NULL;
    if (s->cell >= 0)
        leave(c, s);
    s->cell = cell;
    x->slot = (int)(s - c->slots);
    at = s->at;
    s->task.n = x->n;
    for (int i = 0; i < x->n; i++) {
        s->task.jobs[i] = x->jobs[i];
        s->task.to[i] = at;
        at += paged(x->jobs[i]->matrix->bytes);
    }
    expert_reader_queue(c->reader, &s->task, guess);
    return s;
}

void expert_cache_pass(struct expert_cache *c)
{
    if (!c)
        return;
    c->pass++;
    c->passes = c->passes * FADE + 1.0f;
    for (int i = 0; i < c->n_cells; i++)
        c->cells[i].used *= FADE;
}

static bool is_paged(const struct expert_cache *c, int layer, int expert)
{
    return c && c->cells[layer * c->n_experts + expert].n > 0;
}

bool expert_cache_has(const struct expert_cache *c, int layer, int expert)
{
    const struct cell *x = is_paged(c, layer, expert) ? &c->cells[layer * c->n_experts + expert]
                                                      : NULL;

    return !x || (x->slot >= 0 && state_of(&c->slots[x->slot]) == READ_DONE);
}

/* Counts a hit or a miss, once per pass. */
static void count(struct expert_cache *c, struct cell *x, struct slot *s)
{
    bool there = s && state_of(s) == READ_DONE;

    for (int i = 0; i < c->n_guess; i++)
        c->right += c->guess[i] == (int)(x - c->cells);
    if (s && s->guessed)
        c->stats.guess_hits++;
    if (x->pass == c->pass)
        return;
    x->pass = c->pass;
    x->used += 1.0f;
    c->stats.hits += there;
    c->stats.misses += !there;
    /* one that was prefetched but is still being read counts as missed */
    c->stats.missed_bytes += there && !s->guessed ? 0 : (uint64_t)x->bytes * PAGE;
}

static enum expert_place take(struct expert_cache *c, int cell, bool counts)
{
    struct cell *x = &c->cells[cell];
    struct slot *s = x->slot < 0 ? NULL : &c->slots[x->slot];
    enum read_state state;

    c->layer = cell / c->n_experts;
    if (s && state_of(s) == READ_FAILED && !s->taken) {
        leave(c, s);
        s = NULL;
    }
    if (!s && !victim(c))
        return EXPERT_NO_SLOT;
    if (counts)
        count(c, x, s);
    if (!s)
        s = fetch(c, cell, false);
    else if (state_of(s) == READ_QUEUED)
        expert_reader_want(c->reader, &s->task);
    s->ahead = s->guessed = false;
    s->taken++;
    state = state_of(s);
    if (state != READ_DONE)
        return EXPERT_COMING;
    show(c, x, true);
    return EXPERT_HERE;
}

enum expert_place expert_cache_take(struct expert_cache *c, int layer, int expert)
{
    return is_paged(c, layer, expert) ? take(c, layer * c->n_experts + expert, true) : EXPERT_HERE;
}

bool expert_cache_came(struct expert_cache *c, int layer, int expert)
{
    struct cell *x;

    if (!is_paged(c, layer, expert))
        return true;
    x = &c->cells[layer * c->n_experts + expert];
    assert(x->slot >= 0);
    if (state_of(&c->slots[x->slot]) != READ_DONE)
        return false;
    show(c, x, true);
    return true;
}

int expert_cache_wait(struct expert_cache *c, int layer, int expert, struct error *e)
{
    struct cell *x;
    uint64_t start;
    int rc;

    if (expert_cache_came(c, layer, expert))
        return 0;
    x = &c->cells[layer * c->n_experts + expert];
    start = clock_now();
    rc = expert_reader_wait(c->reader, &c->slots[x->slot].task, e);
    c->stats.wait_ns += clock_now() - start;
    if (rc == 0)
        show(c, x, true);
    return rc;
}

void expert_cache_give(struct expert_cache *c, int layer, int expert)
{
    struct slot *s;

    if (!is_paged(c, layer, expert))
        return;
    s = &c->slots[c->cells[layer * c->n_experts + expert].slot];
    assert(s->taken > 0);
    if (--s->taken == 0 && state_of(s) == READ_FAILED)
        leave(c, s);
}

int expert_cache_hold(struct expert_cache *c, int layer, int expert, struct error *e)
{
    int rc;

    if (!is_paged(c, layer, expert))
        return 0;
    expert_cache_known(c); /* drop predictions to free slots */
    if (take(c, layer * c->n_experts + expert, false) == EXPERT_NO_SLOT)
        return error_set(e, ERR_MEMORY, "the expert cache has no room for one expert more");
    if ((rc = expert_cache_wait(c, layer, expert, e)) < 0)
        expert_cache_give(c, layer, expert);
    return rc;
}

int expert_cache_depth(const struct expert_cache *c)
{
    return c->n_slots < 2 * DEPTH ? (c->n_slots + 1) / 2 : DEPTH;
}

void expert_cache_guess(struct expert_cache *c, int layer, const int *experts, int n)
{
    int free_slots = 0;
    bool follow;

    if (!c)
        return;
    follow = c->right >= GUESS_RIGHT * c->guessed;
    c->n_guess = 0;
    for (int i = 0; i < c->n_slots; i++)
        free_slots += !c->slots[i].gone && !c->slots[i].taken && !c->slots[i].ahead &&
                      state_of(&c->slots[i]) != READ_QUEUED;
    for (int i = 0; i < n; i++) {
        int cell = layer * c->n_experts + experts[i];
        struct slot *s;

        if (c->cells[cell].n == 0)
            continue;
        if (c->cells[cell].slot >= 0) { /* keep it until it is used */
            c->slots[c->cells[cell].slot].ahead |= free_slots-- > 2 * n;
            continue;
        }
        if (c->n_guess < GUESSES) {
            c->guess[c->n_guess++] = cell;
            c->guessed = c->guessed * GUESS_FADE + 1.0f;
            c->right *= GUESS_FADE;
        }
        if (!follow)
            continue;
        if (free_slots-- <= 2 * n || !(s = fetch(c, cell, true)))
            return;
        s->ahead = s->guessed = true;
        c->stats.guesses++;
    }
}

void expert_cache_known(struct expert_cache *c)
{
    if (c)
        c->n_guess = 0; /* right ones are already counted */
    for (int i = 0; c && i < c->n_slots; i++) {
        struct slot *s = &c->slots[i];

        if (!s->ahead)
            continue;
        s->ahead = s->guessed = false;
        if (state_of(s) == READ_QUEUED && expert_reader_cancel(c->reader, &s->task))
            leave(c, s);
    }
}

uint64_t expert_cache_shrink(struct expert_cache *c, uint64_t bytes)
{
    int least = 2 * c->model->hp.n_experts_used + 2;
    uint64_t given = 0;

    expert_cache_known(c); /* predictions are evicted first */
    while (given < bytes && c->stats.slots > least) {
        struct slot *s = victim(c);

        if (!s)
            break;
        if (s->cell >= 0)
            leave(c, s);
        s->gone = true;
        mem_pages_forget(s->at, c->slot_bytes);
        c->stats.slots--;
        c->stats.bytes -= c->slot_bytes;
        given += c->slot_bytes;
    }
    return given;
}

uint64_t expert_cache_grow(struct expert_cache *c, uint64_t bytes)
{
    uint64_t taken = 0;

    for (int i = 0; i < c->n_slots && taken + c->slot_bytes <= bytes; i++)
        if (c->slots[i].gone) {
            c->slots[i].gone = false;
            c->stats.slots++;
            c->stats.bytes += c->slot_bytes;
            taken += c->slot_bytes;
        }
    return taken;
}

struct expert_cache_stats expert_cache_stats(const struct expert_cache *c)
{
    struct expert_cache_stats s = {0};
    struct read_totals t;

    if (!c)
        return s;
    s = c->stats;
    t = expert_reader_totals(c->reader);
    s.read_bytes = t.bytes;
    s.read_ns = t.ns;
    for (int i = 0; i < c->n_slots; i++)
        s.here += c->slots[i].cell >= 0 && state_of(&c->slots[i]) == READ_DONE;
    return s;
}

void expert_cache_map(const struct expert_cache *c, uint8_t *out)
{
    for (int i = 0; i < c->n_cells; i++)
        out[i] = c->cells[i].n == 0 ||
                 (c->cells[i].slot >= 0 && state_of(&c->slots[c->cells[i].slot]) == READ_DONE);
}

/* The same computation as in new, without keeping the cells. */
uint64_t expert_cache_footprint(const struct model *m, const struct binding *b, uint64_t *least)
{
    struct expert_cache c = {.model = (struct model *)m};
    struct matrix_job *jobs = mem_alloc(b->n_matrices, sizeof *jobs);
    uint64_t bytes = b->options->expert_cache, buffers;
    int used = m->hp.n_experts_used;

    *least = 0;
    c.n_cells = m->hp.n_layers * m->hp.n_experts;
    c.cells = mem_alloc((size_t)c.n_cells, sizeof *c.cells);
    if (jobs && c.cells && b->total.on_disk) {
        c.n_jobs = pick_jobs(b->matrices, b->n_matrices, true, jobs);
        c.jobs = jobs;
        fill_cells(&c);
        buffers = expert_reader_footprint(c.jobs, c.n_jobs);
        bytes = (uint64_t)slots_in(&c, bytes, buffers) * c.slot_bytes + buffers;
        *least = (uint64_t)(used > 2 ? used : 2) * c.slot_bytes + buffers;
    }
    mem_free(c.cells);
    mem_free(jobs);
    return bytes;
}
