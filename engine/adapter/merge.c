/* See merge.h. */
#include "engine/adapter/merge.h"

#include "engine/adapter/reading.h"

#include <math.h>
#include <string.h>

void merge_row(const struct matrix *w, int row, const float *strengths, float *x)
{
    const struct lora *l = w->lora;
    int rows = l ? lora_rows(l, w->rows) : 1;
    const float *a = l ? lora_a(l, w->rows, w->cols, row) : NULL, *b = l ? l->b + row % rows : NULL;

    for (int i = 0; l && i < l->n_parts; i++) {
        float factor = strengths[l->parts[i].adapter] * l->parts[i].scale;

        for (int k = 0; k < l->parts[i].rank; k++, a += w->cols, b += rows) {
            float by = factor * *b;

            for (int c = 0; c < w->cols && by != 0.0f; c++)
                x[c] = fmaf(by, a[c], x[c]);
        }
    }
}

static struct matrix *part_of(const struct merge_tensor *t, int expert, int i)
{
    struct reading r = {.model = (struct model *)(uintptr_t)t->model};
    struct block_id id = t->id;

    id.expert += expert;
    return reading_matrix(&r, id, t->parts[i]);
}

static bool adapted(const struct merge_tensor *t)
{
    int blocks = t->experts ? t->experts : 1;

    for (int x = 0; x < blocks; x++)
        for (int i = 0; i < t->n_parts; i++)
            if (part_of(t, x, i) && part_of(t, x, i)->lora)
                return true;
    return false;
}

int merge_tensor_find(const struct model *m, const struct tensor_view *t, struct merge_tensor *out,
                      struct error *e)
{
    enum weight_format format = weight_file_format(m->file);
    struct reading r = {.model = (struct model *)(uintptr_t)m};
    struct place at;
    int row = 0, rc;

    if ((rc = family_of(&r.family, m->file, e)) < 0)
        return rc;
    while (place_of(&r, format, t->name, &row, &at)) {
        *out = (struct merge_tensor){.model = m};
        if (!place_parts(&r, &at, &out->id, &out->experts, out->parts, &out->n_parts) ||
            !adapted(out))
            continue;
        out->turned = family_tensor_turned(r.family, m->file, at.role, t);
        if (family_tensor_is(r.family, m->file, at.role, TENSOR_TURNS))
            return error_set(e, ERR_MODEL, "%s: its rows take turns: not written", t->name);
        return 1;
    }
    return 0;
}

/* The matrix of a row of stacked parts; *row becomes the row in that matrix. */
static const struct matrix *find_row(const struct merge_tensor *t, int64_t *row)
{
    for (int x = 0;; x++)
        for (int i = 0; i < t->n_parts; i++) {
            const struct matrix *w = part_of(t, x, i);

            if (*row < w->rows)
                return w;
            *row -= w->rows;
        }
}

/* One element of a transposed tensor. */
static float element(const struct matrix *w, int row, int column, const float *strengths)
{
    const struct lora *l = w->lora;
    int rows = l ? lora_rows(l, w->rows) : 1;
    const float *a = l ? lora_a(l, w->rows, w->cols, row) + column : NULL,
                *b = l ? l->b + row % rows : NULL;
    float sum = 0.0f;

    for (int i = 0; l && i < l->n_parts; i++) {
        float factor = strengths[l->parts[i].adapter] * l->parts[i].scale;

        for (int k = 0; k < l->parts[i].rank; k++, a += w->cols, b += rows)
            sum = fmaf(factor * *b, *a, sum);
    }
    return sum;
}

/* A row of a transposed tensor is a column of the parts. */
static void turned_row(const struct merge_tensor *t, int64_t row, const float *strengths, float *x)
{
    int cols = part_of(t, 0, 0)->cols, expert = (int)(row / cols);

    for (int i = 0; i < t->n_parts; i++) {
        const struct matrix *w = part_of(t, expert, i);

        for (int r = 0; r < w->rows; r++)
            *x++ += element(w, r, (int)(row % cols), strengths);
    }
}

/* A row of keys and values from a latent row: its head's keys are columns of k_b, and behind them
 * are its values' rows of v_b. */
static void latent_row(const struct merge_tensor *t, int64_t row, const float *strengths, float *x)
{
    const struct matrix *k = part_of(t, 0, 0), *v = part_of(t, 0, 1);
    int heads = hparams_layer(&t->model->hp, t->id.layer)->mixer.heads, values = v->rows / heads,
        head = (int)(row / (k->cols + values)), i = (int)(row % (k->cols + values));

    for (int c = 0; i < k->cols && c < v->cols; c++)
        x[c] += element(k, head * v->cols + c, i, strengths);
    if (i >= k->cols)
        merge_row(v, head * values + i - k->cols, strengths, x);
}

void merge_tensor_row(const struct merge_tensor *t, int64_t row, const float *strengths, float *x)
{
    const struct matrix *w;

    if (t->n_parts == 2 && t->parts[0] == MATRIX_K_B) {
        latent_row(t, row, strengths, x);
        return;
    }

    if (t->turned) {
        turned_row(t, row, strengths, x);
        return;
    }
    w = find_row(t, &row);
    merge_row(w, (int)row, strengths, x);
}

int merge_open(struct adapters **out, float strengths[LORA_ADAPTERS], struct model *m,
               const struct adapter_request *asked, int n, const char *in, struct error *e)
{
    int rc = adapters_open(out, m, asked, n, true, e);

    if (rc < 0)
        return rc;
    for (int i = 0; i < n; i++)
        strengths[i] = asked[i].strength;
    return m->hp.tied_embeddings && m->head.lora
               ? error_set(e, ERR_MODEL,
                           "%s: an adapter hangs on the head, which is the embeddings too: not "
                           "merged",
                           in)
               : 0;
}
