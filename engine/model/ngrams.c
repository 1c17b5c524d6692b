/* Embeddings of n-grams (struct ngram_weights): a token's rows of a table that stays in the mapped
 * file. After modeling_qwen4_exp.py (Hugging Face). Any thread, nothing is allocated. */
#include "engine/file/packed.h"
#include "engine/layout/pack.h"
#include "engine/model/finite.h"

/* The remainder that has the divisor's sign, as torch.remainder. */
static int64_t remainder_of(int64_t x, int64_t by)
{
    int64_t r = x % by;

    return r < 0 ? r + by : r;
}

void model_ngram_rows(const struct ngram_weights *w, const struct ngram_shape *s, const int *ids,
                      int64_t *rows)
{
    uint64_t mixed = 0;
    bool cut = false;

    for (int back = 0; back < s->size; back++) {
        int id = ids[back];

        cut = cut || id < 0 || (back && id == s->end);
        mixed ^= (uint64_t)(cut ? s->end : id) * (uint64_t)w->multipliers[back];
        for (int i = 0; i < s->each && back; i++) {
            int h = (back - 1) * s->each + i;

            rows[h] = w->offsets[h] + remainder_of((int64_t)mixed, w->sizes[h]);
        }
    }
}

const struct tensor_view *model_ngram_at(const struct ngram_weights *w, int64_t row,
                                         int64_t *within)
{
    *within = row % w->part_rows;
    return w->parts[row / w->part_rows];
}

bool model_ngrams(const struct model *m, int layer, const int *ids, float *out, const char **tensor)
{
    const struct ngram_weights *w = &m->layers[layer].ngrams;
    const struct ngram_shape *s = &hparams_layer(&m->hp, layer)->mixer.ngrams;
    int64_t rows[NGRAM_HASHES_MOST], row;

    model_ngram_rows(w, s, ids, rows);
    for (int h = 0; h < ngram_hashes(s); h++) {
        const struct tensor_view *t = model_ngram_at(w, rows[h], &row);
        int n = (int)t->dims[1];

        if (t->packed)
            packed_values(t, row, out);
        else
            row_to_f32(t->type,
                       (const uint8_t *)t->data + (size_t)row * dtype_row_bytes(t->type, n), n,
                       out);
        if (!values_finite(out, n)) {
            *tensor = t->name;
            return false;
        }
        out += n;
    }
    return true;
}
