/* See audit.h. A difference is described by layer, kernel, type of weights, the first value that
 * differs, and a checksum of the job's input, by which two runs can be compared. */
#include "engine/run/pass/audit.h"

#include "engine/base/clock.h"
#include "engine/base/hash.h"
#include "engine/base/mem.h"
#include "engine/device/state.h"
#include "engine/model/expert_cache.h"
#include "engine/run/state/kv.h"

#include <stdio.h>
#include <string.h>

#define ENTRIES 64                    /* rows of experts compared at a time */
#define COPY_MOST ((size_t)256 << 20) /* bytes of earlier rows copied for one audit */
#define KEEP_EVERY 64                 /* audits at least so frequent keep the CPU's rows */

static bool exact(const struct model *m, struct block_id id)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(m, id, list);

    for (int i = 0; i < n; i++)
        if (!dtype_is_quantised(list[i].w->type) || list[i].w->type == DTYPE_F8)
            return false;
    return true;
}

static void find_exact(struct audit *a)
{
    const struct hparams *hp = &a->model->hp;

    for (int l = 0; l < hp->n_layers; l++) {
        a->exact_mixer[l] = exact(a->model, (struct block_id){BLOCK_ATTENTION, l, 0});
        a->exact_experts[l] = true;
        for (int x = 0; x < shape_experts(hparams_layer(hp, l)); x++)
            a->exact_experts[l] = a->exact_experts[l] &&
                                  exact(a->model, (struct block_id){BLOCK_EXPERT, l, x});
    }
    a->exact_head = exact(a->model, (struct block_id){BLOCK_HEAD, 0, 0});
}

static size_t widest_row(const struct kv *kv)
{
    size_t most = 0;

    for (int l = 0; l < kv->n_layers; l++) {
        const struct kv_layer *k = &kv->layers[l];
        size_t bytes = k->fixed_bytes ? k->fixed_bytes : k->row_bytes;

        most = bytes > most ? bytes : most;
    }
    return most;
}

int audit_open(struct audit *a, const struct model *m, struct device_slot *slots, struct kv *kv,
               int max_rows, struct error *e)
{
    const struct hparams *hp = &m->hp;
    size_t rows = (size_t)max_rows, hidden = (size_t)hp->hidden, layers = (size_t)hp->n_layers,
           used = rows * (size_t)hp->n_experts_used;

    if (a->open || a->every <= 0)
        return 0;
    *a = (struct audit){.every = a->every,
                        .model = m,
                        .slots = slots,
                        .kv = kv,
                        .random = 2463534242u,
                        .max_rows = max_rows,
                        .open = true,
                        .rows_bytes = widest_row(kv)};
    a->exact_mixer = mem_alloc(layers, sizeof *a->exact_mixer);
    a->exact_experts = mem_alloc(layers, sizeof *a->exact_experts);
    a->alone = mem_alloc(layers, sizeof *a->alone);
    a->y = mem_alloc(rows * hidden, sizeof *a->y);
    a->weights = mem_alloc(used + 1, sizeof *a->weights);
    a->experts = mem_alloc(used + 1, sizeof *a->experts);
    a->logits = mem_alloc((size_t)hp->n_vocab, sizeof *a->logits);
    a->h = mem_alloc(2 * ENTRIES * hidden, sizeof *a->h);
    a->out = mem_alloc(ENTRIES * hidden, sizeof *a->out);
    for (int i = 0; i < 2; i++)
        a->rows[i] = mem_alloc((i ? 1 : rows) * a->rows_bytes + 1, 1);
    if (!a->exact_mixer || !a->exact_experts || !a->alone || !a->y || !a->weights || !a->experts ||
        !a->logits || !a->h || !a->out || !a->rows[0] || !a->rows[1]) {
        audit_release(a);
        return error_set(e, ERR_MEMORY, "no memory for audits: nothing is audited (--audit 0)");
    }
    find_exact(a);
    return 0;
}

void audit_release(struct audit *a)
{
    mem_free(a->exact_mixer);
    mem_free(a->exact_experts);
    mem_free(a->alone);
    mem_free(a->y);
    mem_free(a->weights);
    mem_free(a->experts);
    mem_free(a->logits);
    mem_free(a->h);
    mem_free(a->out);
    mem_free(a->rows[0]);
    mem_free(a->rows[1]);
    *a = (struct audit){.slots = a->slots};
}

/* ---- which ---- */

/* 1 .. 2 * every - 1, each as likely (xorshift: Marsaglia 2003). */
static uint64_t next_in(struct audit *a)
{
    a->random ^= a->random << 13;
    a->random ^= a->random >> 17;
    a->random ^= a->random << 5;
    return 1 + a->random % (2 * (uint64_t)a->every - 1);
}

/* Counts a job; true: it is the one to be audited. */
static bool count(struct audit *a, int device, bool is_exact)
{
    struct device_health *h = &a->slots[device].health;

    h->jobs++;
    if (!is_exact)
        h->inexact++;
    if (!is_exact || !a->every || !a->open)
        return false;
    if (a->each)
        return true;
    if (!h->until)
        h->until = next_in(a);
    if (--h->until)
        return false;
    h->until = next_in(a);
    return true;
}

void audit_missed(struct audit *a, int device)
{
    a->slots[device].health.missed++;
}

bool audit_due(struct audit *a, int device, enum block_kind kind, int layer)
{
    if (!device)
        return false;
    if (!a->open) {
        a->slots[device].health.jobs++;
        return false;
    }
    return count(a, device,
                 kind == BLOCK_ATTENTION ? a->exact_mixer[layer]
                 : kind == BLOCK_EXPERT  ? a->exact_experts[layer]
                                         : a->exact_head);
}

int audit_reach(struct audit *a, int device, int first, int last, bool *due)
{
    struct device_health *h = &a->slots[device].health;

    *due = false;
    if (!device)
        return last;
    if (!a->open || !a->every) {
        h->jobs += (uint64_t)(last - first);
        return last;
    }
    for (int l = first; l < last; l++) {
        bool is_exact = a->exact_mixer[l] && a->exact_experts[l];

        if (is_exact && !h->until)
            h->until = next_in(a);
        if (is_exact && h->until == 1 && l > first)
            return l;
        if (count(a, device, is_exact)) {
            *due = true;
            return l + 1;
        }
    }
    return last;
}

bool audit_spares(struct audit *a, int device, int n)
{
    struct device_health *h = &a->slots[device].health;

    if (!a->open || !a->every)
        return true;
    if (!h->until)
        h->until = next_in(a);
    return !a->each && h->until > (uint64_t)n;
}

void audit_spared(struct audit *a, int device, enum block_kind kind, bool whole, int first,
                  int last)
{
    for (int l = first; l < last; l++)
        (void)count(a, device,
                    a->open && (kind == BLOCK_EXPERT || a->exact_mixer[l]) &&
                        (!(whole || kind == BLOCK_EXPERT) || a->exact_experts[l]));
}

/* ---- how ---- */

static int finish(struct audit *a, int device, int rc)
{
    struct device_slot *s = &a->slots[device];

    return rc < 0 ? rc : s->ops->wait(s->device, NULL);
}

struct subject {
    int device, layer; /* layer -1: the head */
    const char *kernel;
    enum dtype type; /* of its weights */
    const void *input;
    size_t input_bytes;
};

static void describe(struct audit *a, const struct subject *s, size_t n, size_t at,
                     const char *values)
{
    char layer[32] = "head";

    if (s->layer >= 0)
        snprintf(layer, sizeof layer, "layer %d, %s", s->layer, s->kernel);
    snprintf(a->found, sizeof a->found, "%s (%s): value %zu of %zu is %s; input checksum %016llx",
             layer, dtype_info(s->type)->word, at, n, values,
             (unsigned long long)hash_bytes(HASH_START, s->input, s->input_bytes));
}

/* 1 and a description if some of n values differ. */
static int compare(struct audit *a, const struct subject *s, const float *device, const float *cpu,
                   size_t n)
{
    size_t at = 0;
    uint32_t bits[2];
    char values[100];

    if (memcmp(device, cpu, n * sizeof *cpu) == 0)
        return 0;
    while (memcmp(device + at, cpu + at, sizeof *cpu) == 0)
        at++;
    memcpy(&bits[0], device + at, sizeof bits[0]);
    memcpy(&bits[1], cpu + at, sizeof bits[1]);
    snprintf(values, sizeof values, "%08x (%.7g), the CPU's %08x (%.7g)", bits[0],
             (double)device[at], bits[1], (double)cpu[at]);
    describe(a, s, n, at, values);
    return 1;
}

/* The same for bytes of cached rows. */
static int compare_rows(struct audit *a, const struct subject *s, const uint8_t *device,
                        const uint8_t *cpu, int pos, size_t n)
{
    size_t at = 0;
    char values[100];

    if (memcmp(device, cpu, n) == 0)
        return 0;
    while (device[at] == cpu[at])
        at++;
    snprintf(values, sizeof values, "byte %02x, the CPU's %02x (cached, position %d)", device[at],
             cpu[at], pos);
    describe(a, s, n, at, values);
    return 1;
}

static enum dtype type_of(const struct audit *a, struct block_id id)
{
    struct block_matrix list[BLOCK_MATRICES];
    int n = model_block_matrices(a->model, id, list);

    return n ? list[n - 1].w->type : DTYPE_F32;
}

/* Ends an audit that began at `start`. */
static int done(struct audit *a, int device, uint64_t start, int rc)
{
    struct device_health *h = &a->slots[device].health;

    h->audit_ns += clock_now() - start;
    h->audited += rc == 0;
    return rc;
}

static size_t rows_before(const struct audit *a, int layer, const struct span *s)
{
    const struct kv_layer *k = &a->kv->layers[layer];
    int have = kv_valid(a->kv, s->session, layer, 0), first = k->ring ? s->pos - k->window : 0;

    first = have > first ? have : first;
    return s->pos > first ? (size_t)(s->pos - first) * k->row_bytes : 0;
}

bool audit_ready(struct audit *a, int layer, const struct span *spans, int n)
{
    const struct kv_layer *k = &a->kv->layers[layer];
    size_t bytes = 0;

    a->alone[layer] = true;
    for (int i = 0; i < n; i++) {
        bytes += k->fixed_bytes ? k->fixed_bytes : rows_before(a, layer, &spans[i]);
        if (kv_valid(a->kv, spans[i].session, layer, 0) > 0)
            a->alone[layer] = false;
    }
    if (bytes > COPY_MOST)
        return false;
    for (int i = 0; i < n; i++) {
        const struct span *s = &spans[i];

        if (!kv_there(a->kv, s->session, layer, 0, s->pos) &&
            kv_step(a->kv, s->session, layer, 0, s->pos, UINT64_MAX, NULL, NULL) < 0)
            return false;
    }
    return true;
}

static int read_rows(struct audit *a, int device, void *to, struct kv_move m)
{
    const struct device_slot *s = &a->slots[device];

    m.data = to;
    return finish(a, device, s->ops->kv_rows(s->device, &m, NULL));
}

/* Where the device writes the CPU's rows in place, those of the job before the CPU does. */
static int keep_rows(struct audit *a, int device, int layer, const struct span *spans, int n)
{
    uint8_t *to = a->rows[0];
    int rc = 0;

    for (int i = 0; i < n && rc == 0 && kv_in_place(a->kv, layer, device); i++) {
        struct kv_move m = {.session = spans[i].session,
                            .layer = layer,
                            .pos = spans[i].pos,
                            .count = spans[i].rows};

        rc = read_rows(a, 0, to, m);
        to += (size_t)spans[i].rows * a->kv->layers[layer].row_bytes;
    }
    return rc;
}

/* The rows that the spans wrote, or the state that they left, on both. */
static int compare_state(struct audit *a, const struct subject *s, const struct span *spans, int n)
{
    const struct kv_layer *k = &a->kv->layers[s->layer];
    bool in_place = kv_in_place(a->kv, s->layer, s->device);
    uint8_t *kept = a->rows[0];
    int rc = 0;

    for (int i = 0; i < n && rc == 0; i++) {
        const struct span *p = &spans[i];

        /* the state does not contain drafted rows, and cannot be read while there are some */
        for (int r = 0; r < (k->fixed_bytes ? !p->drafted
                             : k->row_bytes ? p->rows
                                            : 0) &&
                        rc == 0;
             r++) {
            int pos = k->fixed_bytes ? p->pos + p->rows : p->pos + r;
            struct kv_move m = {.session = p->session,
                                .layer = s->layer,
                                .pos = pos,
                                .count = 1,
                                .fixed = k->fixed_bytes > 0};

            if ((rc = in_place ? 0 : read_rows(a, s->device, kept, m)) == 0 &&
                (rc = read_rows(a, 0, a->rows[1], m)) == 0)
                rc = compare_rows(a, s, kept, a->rows[1], pos,
                                  k->fixed_bytes ? k->fixed_bytes : k->row_bytes);
            kept += in_place ? k->row_bytes : 0;
        }
    }
    return rc;
}

/* The CPU has computed the spans' rows of a layer, too: they are its own if they are right and
 * wanted, else void, and their memory goes back. */
static void settle(struct audit *a, int device, int layer, const struct span *spans, int n,
                   bool right)
{
    bool keep = right && (a->every <= KEEP_EVERY || !a->alone[layer]);

    for (int i = 0; i < n && !kv_in_place(a->kv, layer, device); i++) {
        const struct span *s = &spans[i];

        if (keep)
            kv_written_too(a->kv, s->session, layer, 0, s->pos, s->rows, s->drafted);
        else
            kv_failed(a->kv, s->session, layer, 0, s->pos + s->rows);
        if (!keep && a->alone[layer])
            kv_forget(a->kv, s->session, layer, 0);
    }
}

static int cpu_attention(struct audit *a, const struct attention_job *j)
{
    struct device_slot *cpu = &a->slots[0];
    struct attention_job own = *j;

    own.y = a->y;
    return finish(a, 0, cpu->ops->attention(cpu->device, &own, NULL));
}

int audit_attention(struct audit *a, int device, const struct attention_job *j)
{
    size_t n = (size_t)j->rows * (size_t)a->model->hp.hidden;
    const struct subject s = {.device = device,
                              .layer = j->layer,
                              .kernel = "attention",
                              .type = type_of(a, (struct block_id){BLOCK_ATTENTION, j->layer, 0}),
                              .input = j->x,
                              .input_bytes = n * sizeof *j->x};
    uint64_t start = clock_now();
    int rc = keep_rows(a, device, j->layer, j->spans, j->n_spans);

    if (rc == 0)
        rc = cpu_attention(a, j);
    if (rc == 0)
        rc = compare(a, &s, j->y, a->y, n);
    if (rc == 0)
        rc = compare_state(a, &s, j->spans, j->n_spans);
    settle(a, device, j->layer, j->spans, j->n_spans, rc == 0);
    return done(a, device, start, rc);
}

/* Entries at .. at + n - 1 of a job, all of one expert. */
static int some_entries(struct audit *a, int device, const struct experts_job *j, int expert,
                        int at, int n)
{
    struct device_slot *cpu = &a->slots[0];
    struct expert_cache *cache = a->model->cache;
    size_t hidden = (size_t)a->model->hp.hidden;
    int normed = shape_normed_rows(hparams_layer(&a->model->hp, j->layer)), row[ENTRIES],
        slot[ENTRIES] = {0}, rc;
    const struct expert_group group = {.expert = expert, .first = 0, .count = n};
    const struct experts_job own = {.layer = j->layer,
                                    .rows = n,
                                    .h = a->h,
                                    .n_groups = 1,
                                    .groups = &group,
                                    .row = row,
                                    .slot = slot,
                                    .out = a->out};

    for (int i = 0; i < n; i++)
        row[i] = i;
    for (int k = 0; k < normed; k++)
        for (int i = 0; i < n; i++)
            memcpy(a->h + (size_t)(k * n + i) * hidden,
                   j->h + ((size_t)k * (size_t)j->rows + (size_t)j->row[at + i]) * hidden,
                   hidden * sizeof *a->h);
    if (cache && (rc = expert_cache_hold(cache, j->layer, expert, NULL)) < 0)
        return rc;
    rc = finish(a, 0, cpu->ops->experts(cpu->device, &own, NULL));
    if (cache)
        expert_cache_give(cache, j->layer, expert);
    for (int i = 0; i < n && rc == 0; i++) {
        size_t place = (size_t)j->slot[at + i] * (size_t)j->rows + (size_t)j->row[at + i];
        char kernel[32];
        const struct subject s = {
            .device = device,
            .layer = j->layer,
            .kernel = kernel,
            .type = type_of(a, (struct block_id){BLOCK_EXPERT, j->layer, expert}),
            .input = a->h + (size_t)i * hidden,
            .input_bytes = hidden * sizeof *a->h};

        snprintf(kernel, sizeof kernel, "expert %d", expert);
        rc = compare(a, &s, j->out + place * hidden, a->out + (size_t)i * hidden, hidden);
    }
    return rc;
}

int audit_experts(struct audit *a, int device, const struct experts_job *j)
{
    uint64_t start = clock_now();
    int rc = 0;

    for (int g = 0; g < j->n_groups; g++)
        for (int i = 0; i < j->groups[g].count && rc == 0; i += ENTRIES) {
            int left = j->groups[g].count - i;

            rc = some_entries(a, device, j, j->groups[g].expert, j->groups[g].first + i,
                              left < ENTRIES ? left : ENTRIES);
        }
    return done(a, device, start, rc);
}

/* After a layer differed: whether its attention does, computed once more by both, by itself. Not
 * where it cannot be computed twice. */
static bool attention_differs(struct audit *a, const struct subject *s, const struct layers_job *j,
                              const float *x_before, float *device_y)
{
    const struct device_slot *d = &a->slots[s->device];
    const struct kv_layer *k = &a->kv->layers[j->first];
    const struct attention_job own = {.layer = j->first,
                                      .rows = j->rows,
                                      .x = x_before,
                                      .y = device_y,
                                      .spans = j->spans,
                                      .n_spans = j->n_spans,
                                      .strengths = j->strengths};

    if (k->fixed_bytes || k->ring || !k->row_bytes ||
        finish(a, s->device, d->ops->attention(d->device, &own, NULL)) < 0 ||
        cpu_attention(a, &own) < 0)
        return false;
    return compare(a, s, device_y, a->y, (size_t)j->rows * (size_t)a->model->hp.hidden);
}

/* The chosen experts and their weights. */
static int compare_routing(struct audit *a, struct subject *s, const struct layers_job *j)
{
    size_t n = (size_t)(j->rows * a->model->hp.n_experts_used), at = 0;
    char values[60];

    s->kernel = "router";
    s->type = DTYPE_F32;
    if (memcmp(j->experts, a->experts, n * sizeof *a->experts) == 0)
        return compare(a, s, j->weights, a->weights, n);
    while (j->experts[at] == a->experts[at])
        at++;
    snprintf(values, sizeof values, "expert %d, the CPU's %d", j->experts[at], a->experts[at]);
    describe(a, s, n, at, values);
    return 1;
}

int audit_layer(struct audit *a, int device, const struct layers_job *j, const float *x_before,
                float *device_y)
{
    struct device_slot *cpu = &a->slots[0];
    size_t n = (size_t)j->rows * (size_t)a->model->hp.hidden;
    struct layers_job own = *j;
    const struct subject attention = {
        .device = device,
        .layer = j->first,
        .kernel = "attention",
        .type = type_of(a, (struct block_id){BLOCK_ATTENTION, j->first, 0}),
        .input = x_before,
        .input_bytes = n * sizeof *x_before};
    struct subject s = attention;
    uint64_t start = clock_now();
    bool state_differs;
    int rc;

    own.x = a->y;
    own.experts = a->experts;
    own.weights = a->weights;
    memcpy(a->y, x_before, n * sizeof *x_before);
    if ((rc = keep_rows(a, device, j->first, j->spans, j->n_spans)) == 0)
        rc = finish(a, 0, cpu->ops->layers(cpu->device, &own, NULL));
    if (rc == 0)
        rc = compare_state(a, &s, j->spans, j->n_spans);
    state_differs = rc == 1;
    if (rc == 0)
        rc = compare_routing(a, &s, j);
    if (rc == 0) {
        s.kernel = "experts";
        s.type = type_of(a, (struct block_id){BLOCK_EXPERT, j->first, 0});
        rc = compare(a, &s, j->x, a->y, n);
    }
    if (rc == 1 && !state_differs)
        attention_differs(a, &attention, j, x_before, device_y); /* then that is described */
    settle(a, device, j->first, j->spans, j->n_spans, rc == 0);
    return done(a, device, start, rc);
}

int audit_head(struct audit *a, int device, const struct head_job *j)
{
    struct device_slot *cpu = &a->slots[0];
    size_t hidden = (size_t)a->model->hp.hidden, n = (size_t)a->model->hp.n_vocab;
    uint64_t start = clock_now();
    int rc = 0;

    for (int i = 0; i < j->rows && rc == 0; i++) {
        const struct subject s = {.device = device,
                                  .layer = -1,
                                  .type = type_of(a, (struct block_id){BLOCK_HEAD, 0, 0}),
                                  .input = j->x + (size_t)i * hidden,
                                  .input_bytes = hidden * sizeof *j->x};
        struct head_job own = {.rows = 1, .x = s.input, .logits = a->logits};

        if ((rc = finish(a, 0, cpu->ops->head(cpu->device, &own, NULL))) == 0)
            rc = compare(a, &s, j->logits + (size_t)i * n, a->logits, n);
    }
    return done(a, device, start, rc);
}
