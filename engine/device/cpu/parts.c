/* Products of one token whose input is zero but for some equal parts (struct input_parts): their
 * weights alone are read, copied side by side into a thread's buffer and multiplied there by the
 * kernels that multiply whole rows. Zeros add nothing to a sum, so the bits are those of the whole
 * product, if each quarter of rule 2 keeps its columns: where it has fewer than another one it is
 * filled up with weights times zeros. Compute threads. */
#include "engine/device/cpu/cpu.h"

#include "engine/file/format_traits.h"

#include <string.h>

#define FILLER (-1) /* a unit of zeros */

/* Columns are chosen by units: superblocks, or as many floats as rule 11's pairs of lanes. */
static int unit_cols(const struct matrix *w)
{
    return NUM_BLOCK * (dtype_is_quantised(w->type) ? format_of[w->type].blocks : 1);
}

static int quarters_of(const struct matrix *w)
{
    return dtype_is_quantised(w->type) ? 4 : 1;
}

/* Bytes of a unit in a group of rows that are interleaved. */
static size_t unit_bytes(const struct matrix *w)
{
    if (dtype_is_quantised(w->type))
        return (size_t)(format_superblock(w->type) * w->width);
    return dtype_row_bytes(w->type, NUM_BLOCK);
}

/* Whether units of a row follow each other, quarters and parts begin with one. */
static bool divides(const struct matrix *w, const struct input_parts *p)
{
    int unit = unit_cols(w), units = w->cols / unit;
    size_t width = w->width ? (size_t)w->width : 1;

    return w->type != DTYPE_F8 && !w->order && w->cols % p->parts == 0 && w->cols % unit == 0 &&
           units % quarters_of(w) == 0 && (w->width || w->cols / p->parts % unit == 0) &&
           dtype_row_bytes(w->type, w->cols) * width == unit_bytes(w) * (size_t)units;
}

/* Lists the units of the parts, each once; counts those of each quarter. Returns their number. */
static int list_units(const struct matrix *w, const struct input_parts *p, int *units, int count[4])
{
    int unit = unit_cols(w), all = w->cols / unit, each = w->cols / p->parts, n = 0, next = 0;

    for (int k = 0; k < p->parts; k += p->period)
        for (int i = 0; i < p->used; i++) {
            int from = (k + p->chosen[i]) * each, end = (from + each - 1) / unit + 1;

            for (next = next > from / unit ? next : from / unit; next < end; next++) {
                count[next / (all / quarters_of(w))]++;
                units[n++] = next;
            }
        }
    return n;
}

/* Spreads n listed units so that each quarter has `most` of them, the last ones being fillers. */
static void fill_quarters(int *units, int n, const int count[4], int quarters, int most)
{
    for (int q = quarters - 1; q >= 0; q--) {
        n -= count[q];
        memmove(units + q * most, units + n, (size_t)count[q] * sizeof *units);
        for (int i = count[q]; i < most; i++)
            units[q * most + i] = FILLER;
    }
}

/* The activations of the listed units, or the floats. */
static void gather_input(const struct cpu_device *d, const struct matrix *w, const struct input *in,
                         struct parts_scratch *s)
{
    static const float zeros[NUM_BLOCK];
    int blocks = unit_cols(w) / NUM_BLOCK;

    for (int i = 0; i < s->n; i++)
        for (int b = 0; b < blocks; b++) {
            int to = i * blocks + b, from = s->units[i] * blocks + b;

            if (!w->width)
                memcpy(s->row + to * NUM_BLOCK, in->rows + from * NUM_BLOCK,
                       NUM_BLOCK * sizeof(float));
            else if (s->units[i] != FILLER)
                s->act[to] = in->panels[from];
            else
                d->k->quantise(zeros, NUM_BLOCK, s->act + to, 1);
        }
    if (!w->width && float_rounds(d, w))
        d->k->float_input(true, s->row, 0, s->n * NUM_BLOCK, 1, s->panel);
}

/* Once a phase: what is read of each row, and its input. false: all of it. */
static bool prepare(const struct cpu_device *d, struct thread_scratch *t, const struct matrix *w,
                    const struct input *in)
{
    struct parts_scratch *s = &t->parts;
    int all = w->cols / unit_cols(w), quarters = quarters_of(w), count[4] = {0}, most = 0, n;

    if (s->of == w && s->phase == t->phase)
        return s->n > 0;
    s->of = w;
    s->phase = t->phase;
    s->n = 0;
    if (!divides(w, in->only))
        return false;
    n = list_units(w, in->only, s->units, count);
    for (int q = 0; q < quarters; q++)
        most = count[q] > most ? count[q] : most;
    if (quarters * most >= all)
        return false;
    fill_quarters(s->units, n, count, quarters, most);
    s->n = quarters * most;
    gather_input(d, w, in, s);
    return true;
}

/* The listed units of a group of rows side by side; the next one's are asked for on the way. */
static void gather_weights(const struct matrix *w, const struct parts_scratch *s,
                           const uint8_t *group, uint8_t *to)
{
    size_t bytes = unit_bytes(w);

    for (int i = 0; i < s->n; i++, to += bytes) {
        const uint8_t *from = group + (size_t)(s->units[i] == FILLER ? 0 : s->units[i]) * bytes;

        if (i + 4 < s->n && s->units[i + 4] != FILLER)
            for (size_t b = 0; b < bytes; b += 64)
                __builtin_prefetch(group + (size_t)s->units[i + 4] * bytes + b, 0, 3);
        memcpy(to, from, bytes);
    }
}

bool gemv_parts(const struct cpu_device *d, int tid, const struct matrix *w, int r0, int r1,
                const struct input *in, float *out)
{
    struct thread_scratch *t = &d->threads[tid];
    struct parts_scratch *s = &t->parts;
    int width = w->width ? w->width : 1, cols;
    size_t step = dtype_row_bytes(w->type, w->cols) * (size_t)width;
    float ragged[NUM_LANES];

    if (!prepare(d, t, w, in))
        return false;
    cols = s->n * unit_cols(w);
    for (int r = r0; r < r1; r += width) {
        int n = min_int(width, r1 - r);
        struct kernel_gemv g = {.how = &pattern_of[READ_ONE_PLAIN],
                                .n = 1,
                                .at = {s->weights},
                                .out = {n < width ? ragged : out + (r - r0)}};

        gather_weights(w, s, (const uint8_t *)w->data + (size_t)(r / width) * step, s->weights);
        if (w->width)
            d->k->gemv[w->type](&g, cols, s->act);
        else
            d->k->gemv_float(w->type, float_rounds(d, w), &g, cols,
                             float_rounds(d, w) ? s->panel : s->row);
        if (n < width)
            memcpy(out + (r - r0), ragged, (size_t)n * sizeof *out);
    }
    return true;
}
