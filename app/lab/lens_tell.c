/* See lens_tell.h. */
#include "app/lab/lens_tell.h"

#include "app/lab/lens_top.h"
#include "app/lab/said.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"
#include "engine/model/model.h"
#include "engine/run/lens/lens.h"

#include <stdio.h>
#include <string.h>

#define LOOKS 6 /* positions that are named */

struct tell {
    struct engine *g;
    const struct engine_info *info;
    struct lens *l;
    struct strbuf *out;
    float *logits, *by;
    const int *ids; /* of the session and the answer: position p's is ids[p] */
    int pos, target;
};

/* A token's text in so many columns. */
static void put_cell(struct tell *t, int id, size_t columns)
{
    struct strbuf b = {0};
    size_t used, n;

    said_token_put(&b, t->info, id);
    n = utf8_fit(strbuf_text(&b), b.len, columns, &used);
    strbuf_put(t->out, strbuf_text(&b), n);
    for (; used < columns; used++)
        strbuf_putc(t->out, ' ');
    strbuf_release(&b);
}

static int put_stream(struct tell *t, const char *name, int layer, struct error *e)
{
    int best[LENS_TOP], n = t->info->model->hp.n_vocab,
                        rc = engine_lens_logits(t->g, t->l, layer, t->logits, e);
    float values[LENS_TOP];

    if (rc < 0)
        return rc;
    lens_top(t->logits, n, best, values);
    strbuf_printf(t->out, "%-4s ", name);
    put_cell(t, best[0], 11);
    strbuf_printf(t->out, " %5d", lens_rank(t->logits, n, t->target) + 1);
    return 0;
}

/* " +0.31 E3 +0.20 E9 -0.04" */
static void put_parts(struct tell *t, int layer)
{
    const struct lens *l = t->l;
    const float *experts = t->by + 1 + l->layers + layer * l->slots;

    strbuf_printf(t->out, " %+7.2f", (double)t->by[1 + layer]);
    for (int i = 0; i < l->slots; i++)
        if (l->chosen[layer * l->slots + i] >= 0)
            strbuf_printf(t->out, " E%d %+.2f", l->chosen[layer * l->slots + i],
                          (double)experts[i]);
}

static int put_layers(struct tell *t, struct error *e)
{
    const struct lens *l = t->l;
    char name[24];
    int rc;

    strbuf_printf(t->out, "     would say    rank%s\n",
                  l->attributes ? "    att. and experts add" : "");
    if ((rc = put_stream(t, "in", 0, e)) < 0)
        return rc;
    if (l->attributes)
        strbuf_printf(t->out, " %+7.2f", (double)t->by[0]);
    strbuf_putc(t->out, '\n');
    for (int i = 0; i < l->layers; i++) {
        snprintf(name, sizeof name, "L%d", i);
        if ((rc = put_stream(t, name, i + 1, e)) < 0)
            return rc;
        if (l->attributes)
            put_parts(t, i);
        strbuf_putc(t->out, '\n');
    }
    return 0;
}

static void put_sum(struct tell *t)
{
    const struct lens *l = t->l;
    double attention = 0, experts = 0;

    for (int i = 0; i < l->layers; i++)
        attention += (double)t->by[1 + i];
    for (int i = 0; i < l->layers * l->slots; i++)
        experts += (double)t->by[1 + l->layers + i];
    strbuf_printf(
        t->out,
        "logit %.2f = embedding %.2f + attention %.2f + experts %.2f + constant %.2f, and "
        "rounding\n",
        (double)l->logits[t->target], (double)t->by[0], attention, experts,
        (double)t->by[1 + l->layers * (1 + l->slots)]);
}

/* The mean of the heads that have a pattern, of one layer and head or of all (-1), by position;
 * how many heads those are. */
static int mean_look(const struct tell *t, int layer, int head, double *look)
{
    const struct lens *l = t->l;
    int heads = 0;

    memset(look, 0, (size_t)(t->pos + 1) * sizeof *look);
    for (int i = 0; i < l->layers * l->heads; i++) {
        const float *row = l->pattern + (size_t)i * (size_t)l->positions;
        bool any = false;

        if ((layer >= 0 && i / l->heads != layer) || (head >= 0 && i % l->heads != head))
            continue;
        for (int p = 0; p <= t->pos; p++) {
            any |= row[p] > 0.0f;
            look[p] += (double)row[p];
        }
        heads += any;
    }
    for (int p = 0; p <= t->pos && heads; p++)
        look[p] /= heads;
    return heads;
}

/* The positions most looked at: " fox 41 %, the 20 %". */
static void put_most(struct tell *t, const double *look)
{
    int at[LOOKS], have = 0;

    for (int p = 0; p <= t->pos; p++) {
        int k;

        for (k = have; k > 0 && look[p] > look[at[k - 1]]; k--)
            if (k < LOOKS)
                at[k] = at[k - 1];
        if (k < LOOKS) {
            at[k] = p;
            have += have < LOOKS;
        }
    }
    for (int i = 0; i < have && (!i || look[at[i]] >= 0.005); i++) {
        strbuf_puts(t->out, i ? ", " : " ");
        said_token_put(t->out, t->info, t->ids[at[i]]);
        strbuf_printf(t->out, " %.0f %%", 100 * look[at[i]]);
    }
}

static int put_looks(struct tell *t, struct error *e)
{
    double *look = mem_alloc((size_t)(t->pos + 1), sizeof *look);

    if (!look)
        return error_set(e, ERR_MEMORY, "no memory for a lens");
    if (mean_look(t, -1, -1, look)) {
        strbuf_puts(t->out, "its heads look at");
        put_most(t, look);
        strbuf_puts(t->out, " (the mean of all)\n");
    }
    mem_free(look);
    return 0;
}

static int put_swaps(struct tell *t, struct error *e)
{
    const struct lens *l = t->l;
    int n = t->info->model->hp.n_vocab;

    strbuf_puts(t->out, "with the runner-up in the place of its layer's least expert:\n");
    for (int i = 0; i < l->layers; i++) {
        int other = lens_runner_up(t->g, l, i), best[LENS_TOP], rc;
        float values[LENS_TOP];

        if (other < 0)
            continue;
        if ((rc = engine_lens_swap(t->g, l, i, t->logits, e)) < 0)
            return rc;
        lens_top(t->logits, n, best, values);
        strbuf_printf(t->out, "L%-3d E%-4d ", i, other);
        put_cell(t, best[0], 11);
        strbuf_printf(t->out, " %5d\n", lens_rank(t->logits, n, t->target) + 1);
    }
    return 0;
}

struct question {
    bool swaps;
    /* of lens_attention */
    int layer, head, place;
    float *times;
};

static int look(struct tell *t, const struct question *q, struct error *e)
{
    int rc = engine_lens(t->g, t->l, t->ids[t->pos], t->pos, e);

    if (rc == 0 && t->l->attributes)
        rc = engine_lens_parts(t->g, t->l, t->target, t->by, e);
    if (rc == 0)
        rc = put_layers(t, e);
    if (rc < 0)
        return rc;
    if (t->l->attributes)
        put_sum(t);
    if ((rc = put_looks(t, e)) < 0)
        return rc;
    return q->swaps ? put_swaps(t, e) : 0;
}

static void put_whose(struct tell *t, const struct question *q)
{
    if (q->head >= 0)
        strbuf_printf(t->out, "L%d.H%d looks at", q->layer, q->head);
    else if (q->layer >= 0)
        strbuf_printf(t->out, "the heads of L%d look at", q->layer);
    else
        strbuf_puts(t->out, "the heads look at");
}

static int attend(struct tell *t, const struct question *q, struct error *e)
{
    double *look, before = 0, within = 0;
    int rc = engine_lens(t->g, t->l, t->ids[t->pos], t->pos, e);

    if (rc < 0)
        return rc;
    if (!(look = mem_alloc((size_t)(t->pos + 1), sizeof *look)))
        return error_set(e, ERR_MEMORY, "no memory for a lens");
    if (!mean_look(t, q->layer, q->head, look)) {
        mem_free(look);
        return error_set(e, ERR_USAGE, "there is no softmax attention: nothing looks back");
    }
    for (int p = 0; p <= t->pos; p++) {
        *(p < q->place ? &before : &within) += look[p];
        if (p >= q->place)
            q->times[p - q->place] = (float)(look[p] * (t->pos + 1));
    }
    put_whose(t, q);
    put_most(t, look);
    strbuf_printf(t->out, "; %.0f %% within the answer, %.0f %% before it", 100 * within,
                  100 * before);
    if (before + within < 0.995)
        strbuf_printf(t->out, ", %.0f %% at a sink", 100 * (1 - before - within));
    mem_free(look);
    return 0;
}

/* The session's tokens and the answer's, of which the last may wait to be computed: *place is the
 * answer's first. */
static int gather(struct engine *g, const int *ids, int n, int **all, int *place, struct error *e)
{
    const int *tokens;
    int before = engine_session_tokens(g, &tokens), from;

    for (from = before - n; from <= before - n + 1; from++)
        if (from > 0 && memcmp(tokens + from, ids, (size_t)(before - from) * sizeof *ids) == 0)
            break;
    if (from > before - n + 1)
        return error_set(e, ERR_USAGE, "the session does not hold this answer any more");
    if (!(*all = mem_alloc((size_t)(from + n), sizeof **all)))
        return error_set(e, ERR_MEMORY, "no memory for a lens");
    memcpy(*all, tokens, (size_t)before * sizeof **all);
    memcpy(*all + from, ids, (size_t)n * sizeof **all);
    *place = from;
    return 0;
}

/* Rewinds the session to what said the token, asks, and has it compute the answer's rest again. */
static int ask(struct engine *g, const int *ids, int n, int at, struct question *q, char **text,
               struct error *e)
{
    struct strbuf out = {0};
    struct tell t = {.g = g, .info = engine_info(g), .out = &out};
    int *all = NULL, again, rc = gather(g, ids, n, &all, &q->place, e);
    struct error later = {0};

    if (rc < 0)
        return rc;
    t.ids = all;
    t.pos = q->place + at - 1;
    t.target = ids[at];
    if ((rc = lens_new(&t.l, g, t.pos + 1, e)) < 0)
        goto out;
    t.logits = mem_alloc((size_t)t.info->model->hp.n_vocab, sizeof *t.logits);
    t.by = mem_alloc((size_t)(2 + t.l->layers * (1 + t.l->slots)), sizeof *t.by);
    if (!t.logits || !t.by) {
        rc = error_set(e, ERR_MEMORY, "no memory for a lens");
        goto out;
    }
    engine_counting_set(g, false);
    engine_session_rewind(g, t.pos);
    rc = q->times ? attend(&t, q, e) : look(&t, q, e);
    engine_session_rewind(g, t.pos);
    again = engine_eval(g, all + t.pos, q->place + n - t.pos, NULL, false, &later);
    engine_counting_set(g, true);
    if (rc == 0 && again < 0) {
        *e = later;
        rc = again;
    }
    if (rc == 0 && !(*text = strbuf_take(&out, NULL)))
        rc = error_set(e, ERR_MEMORY, "no memory for a report");
out:
    strbuf_release(&out);
    lens_free(t.l);
    mem_free(t.logits);
    mem_free(t.by);
    mem_free(all);
    return rc;
}

int lens_tell(struct engine *g, const int *ids, int n, int at, bool swaps, char **text,
              struct error *e)
{
    return ask(g, ids, n, at, &(struct question){.swaps = swaps}, text, e);
}

int lens_attention(struct engine *g, const int *ids, int n, int at, int layer, int head,
                   float *times, char **text, struct error *e)
{
    const struct hparams *hp = &engine_info(g)->model->hp;
    int heads = layer < hp->n_layers && layer >= 0 ? hparams_layer(hp, layer)->mixer.heads : 0;

    if (layer >= hp->n_layers)
        return error_set(e, ERR_USAGE, "the model's layers are L0 to L%d", hp->n_layers - 1);
    if (layer >= 0 && head >= heads)
        return error_set(e, ERR_USAGE, "the heads of layer %d are H0 to H%d", layer, heads - 1);
    return ask(g, ids, n, at, &(struct question){.layer = layer, .head = head, .times = times},
               text, e);
}
