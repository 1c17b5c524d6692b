/* See replay.h. */
#include "app/lab/replay.h"

#include "app/lab/record.h"
#include "app/lab/trace_read.h"
#include "engine/base/mem.h"
#include "engine/model/model.h"

/* A sequence of the trace: its tokens by position. */
struct tale {
    int *at; /* (n) index in the trace */
    int n;
    bool taken, holes;
};

struct teller { /* a session, and what it repeats */
    const struct session *session;
    struct tale *tale;
    int reached; /* the first position of it that was not asked for yet */
};

struct routing_replay {
    struct trace *trace;
    struct tale *tales;
    int *places; /* what all tales' at point into */
    struct teller *tellers;
    size_t n_tellers;
    int used; /* of the model: values of a row */
};

/* A later token at a position holds: there the text went on otherwise. */
static void add(struct tale *t, int pos, int i)
{
    if (pos > t->n)
        t->holes = true;
    if (pos > t->n || t->holes)
        return;
    t->at[pos] = i;
    t->n = pos + 1;
}

int routing_replay_open(struct routing_replay **out, const char *path, struct error *e)
{
    struct routing_replay *r = mem_alloc(1, sizeof *r);
    int rc = r ? trace_open(&r->trace, path, e) : error_set(e, ERR_MEMORY, "out of memory"), n;
    int *count = NULL, *next;

    *out = NULL;
    if (rc < 0)
        goto out;
    n = (int)r->trace->n;
    if (!n) {
        rc = error_set(e, ERR_INPUT, "%s: it holds no token", path);
        goto out;
    }
    r->tales = mem_alloc((size_t)r->trace->sequences, sizeof *r->tales);
    r->places = mem_alloc((size_t)n, sizeof *r->places);
    count = mem_alloc((size_t)r->trace->sequences, sizeof *count);
    if (!r->tales || !r->places || !count) {
        rc = error_set(e, ERR_MEMORY, "out of memory for %s", path);
        goto out;
    }
    for (int i = 0; i < n; i++)
        count[trace_int(r->trace, COLUMN_SEQUENCE, (uint64_t)i)]++;
    next = r->places;
    for (int i = 0; i < r->trace->sequences; next += count[i++])
        r->tales[i].at = next;
    for (int i = 0; i < n; i++)
        add(&r->tales[trace_int(r->trace, COLUMN_SEQUENCE, (uint64_t)i)],
            trace_int(r->trace, COLUMN_POSITION, (uint64_t)i), i);
out:
    mem_free(count);
    if (rc < 0) {
        routing_replay_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

int routing_replay_model(struct routing_replay *r, const struct engine_info *info, struct error *e)
{
    struct trace_head head;

    if (recorder_head(&head, info->model, false, e) < 0 ||
        trace_head_match(&r->trace->head, r->trace->path, &head, head.model, e) < 0) {
        e->code = ERR_INPUT;
        return error_prefix(e, "--routing-replay");
    }
    r->used = info->model->hp.n_experts_used;
    r->n_tellers = 0;
    return 0;
}

/* How many of the ids at pos are also the tale's. */
static int alike(const struct routing_replay *r, const struct tale *t, int pos, const int *ids,
                 int rows)
{
    int i = 0;

    while (i < rows && pos + i < t->n &&
           trace_int(r->trace, COLUMN_TOKEN, (uint64_t)t->at[pos + i]) == ids[i])
        i++;
    return i;
}

static struct tale *choose(struct routing_replay *r, const int *ids, int rows)
{
    struct tale *again = NULL;

    for (int i = 0; i < r->trace->sequences; i++) {
        struct tale *t = &r->tales[i];

        if (alike(r, t, 0, ids, rows) < rows)
            continue;
        if (!t->taken)
            return t;
        again = again ? again : t;
    }
    return again;
}

/* Its sequence is not at its end: these rows are computed again (another rotary table, a device
 * that failed). */
static bool goes_on(const struct routing_replay *r, const struct teller *who, const int *ids,
                    int rows)
{
    return who->tale && who->reached < who->tale->n && alike(r, who->tale, 0, ids, rows) == rows;
}

/* NULL: no memory. */
static struct teller *teller_of(struct routing_replay *r, const struct session *s)
{
    for (size_t i = 0; i < r->n_tellers; i++)
        if (r->tellers[i].session == s)
            return &r->tellers[i];
    if (!MEM_FIT(r->tellers, r->n_tellers + 1))
        return NULL;
    r->tellers[r->n_tellers] = (struct teller){.session = s};
    return &r->tellers[r->n_tellers++];
}

static int part(const struct routing_replay *r, const struct tale *t, int pos, const int *ids,
                int same, struct error *e)
{
    const char *path = r->trace->path;

    if (!t)
        return error_set(e, ERR_INPUT,
                         "--routing-replay %s: none of its %d sequences begins with this text",
                         path, r->trace->sequences);
    if (pos + same >= t->n)
        return error_set(e, ERR_INPUT,
                         "--routing-replay %s: the sequence ends at position %d: the trace is too "
                         "short for this text",
                         path, t->n);
    return error_set(e, ERR_INPUT,
                     "--routing-replay %s: token %d at position %d, the trace has %d there: "
                     "the texts differ from here on",
                     path, ids[same], pos + same,
                     trace_int(r->trace, COLUMN_TOKEN, (uint64_t)t->at[pos + same]));
}

int routing_replay_rows(struct routing_replay *r, const struct session *s, int pos, const int *ids,
                        int rows, uint16_t *experts, float *weights, size_t stride, struct error *e)
{
    const struct trace_head *h = &r->trace->head;
    struct teller *who = teller_of(r, s);
    int same;

    if (!who)
        return error_set(e, ERR_MEMORY, "out of memory for --routing-replay");
    if (pos == 0 && !goes_on(r, who, ids, rows)) {
        *who = (struct teller){.session = s, .tale = choose(r, ids, rows)};
        if (who->tale)
            who->tale->taken = true;
    }
    same = who->tale ? alike(r, who->tale, pos, ids, rows) : 0;
    who->reached = pos + same > who->reached ? pos + same : who->reached;
    if (same < rows)
        return part(r, who->tale, pos, ids, same, e);
    for (int i = 0; i < rows; i++) {
        uint64_t at = (uint64_t)who->tale->at[pos + i];

        for (int l = 0; l < h->layers; l++)
            for (int k = 0; k < h->used[l]; k++) {
                size_t cell = (size_t)l * stride + (size_t)(i * r->used + k);
                int expert = trace_expert(r->trace, at, l, k);

                if (expert < 0)
                    return error_set(e, ERR_INPUT,
                                     "--routing-replay %s: layer %d has no expert at position %d: "
                                     "a trace of --experts-weight cannot be replayed",
                                     r->trace->path, l, pos + i);
                experts[cell] = (uint16_t)expert;
                weights[cell] = trace_weight(r->trace, at, l, k);
            }
    }
    return mapping_check(&r->trace->map, e);
}

void routing_replay_close(struct routing_replay *r)
{
    if (!r)
        return;
    trace_close(r->trace);
    mem_free(r->tales);
    mem_free(r->places);
    mem_free(r->tellers);
    mem_free(r);
}
