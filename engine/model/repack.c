/* See repack.h. */
#include "engine/model/repack.h"

#include "engine/file/blocks.h"
#include "engine/file/packed.h"
#include "engine/layout/pack.h"
#include "engine/layout/quantize.h"
#include "engine/model/gather.h"

#include <string.h>

/* Rows of the matrix from a head's part of a split tensor. */
static int split_rows(const struct matrix_job *j)
{
    return j->split.across ? (int)j->tensor->dims[1] : j->split.rows;
}

/* The source of rows first .. end-1 of a split job: all of each of their heads. */
static struct piece split_piece(const struct matrix_job *j, int first, int end)
{
    int each = split_rows(j), from = first / each, to = (end - 1) / each + 1;
    size_t head = (size_t)j->split.stride *
                  dtype_row_bytes(j->tensor->type, (int)j->tensor->dims[1]);

    return (
        struct piece){.job = j, .offset = (size_t)from * head, .bytes = (size_t)(to - from) * head};
}

struct piece repack_piece(const struct matrix_job *j, int first, int count)
{
    const struct matrix *m = j->matrix;
    int width = m->width ? m->width : 1, groups = pack_groups(m->rows, m->width), end;
    size_t row = dtype_row_bytes(j->tensor->type, m->cols);
    struct piece p;

    count = groups - first < count ? groups - first : count;
    end = (first + count) * width < m->rows ? (first + count) * width : m->rows;
    if (j->split.stride) {
        p = split_piece(j, first * width, end);
        p.first = first;
        p.count = count;
        return p;
    }
    return (struct piece){.job = j,
                          .first = first,
                          .count = count,
                          .offset = j->from + (size_t)first * (size_t)width * row,
                          .bytes = (size_t)(end - first * width) * row};
}

int repack_groups(const struct matrix_job *j, size_t bytes)
{
    const struct matrix *m = j->matrix;

    if (j->split.stride)
        return split_rows(j) / (m->width ? m->width : 1) + 1; /* a head's part is read at once */
    return (int)(bytes /
                 (dtype_row_bytes(j->tensor->type, m->cols) * (size_t)(m->width ? m->width : 1))) +
           1;
}

struct piece repack_whole(const struct matrix_job *j)
{
    struct piece p = {.job = j, .count = pack_groups(j->matrix->rows, j->matrix->width)};

    gather_span(j, &p.offset, &p.bytes);
    return p;
}

/* Whether the rows are converted to a type that pack_rows does not quantise to. */
static bool is_rounded(const struct matrix_job *j)
{
    return !j->split.stride && job_type(j) != j->matrix->type && !row_writable(j->matrix->type);
}

static void round_groups(const struct piece *p, uint8_t *to, uint8_t *scratch)
{
    const struct matrix_job *j = p->job;
    const struct matrix *m = j->matrix;
    size_t from_bytes = dtype_row_bytes(j->tensor->type, m->cols),
           bytes = dtype_row_bytes(m->type, m->cols);
    float *row = (float *)(void *)scratch;
    uint8_t *rows = scratch + (size_t)m->cols * sizeof *row;

    for (int g = p->first; g < p->first + p->count; g++) {
        int n = m->rows - g * m->width < m->width ? m->rows - g * m->width : m->width;

        for (int r = 0; r < n; r++) {
            row_to_f32(j->tensor->type,
                       (const uint8_t *)j->tensor->data + j->from +
                           (size_t)(g * m->width + r) * from_bytes,
                       m->cols, row);
            quantise_row(m->type, row, NULL, m->cols, rows + (size_t)r * bytes);
        }
        pack_one(to + (size_t)g * (size_t)m->width * bytes, m->type, m->width, rows, n, m->cols, 0);
    }
}

/* Floats of a head's part of a split tensor. */
static size_t split_floats(const struct matrix_job *j)
{
    return (size_t)j->split.rows * (size_t)j->tensor->dims[1];
}

static void round_row(enum dtype type, const float *x, int cols, void *out)
{
    if (row_writable(type))
        row_from_f32(type, x, cols, out);
    else
        quantise_row(type, x, NULL, cols, out);
}

static const uint8_t *split_source(const struct matrix_job *j, int head, int row)
{
    return (const uint8_t *)j->tensor->data +
           (size_t)(head * j->split.stride + j->split.first + row) *
               dtype_row_bytes(j->tensor->type, (int)j->tensor->dims[1]);
}

static void split_values(const struct matrix_job *j, int head, int row, float *out)
{
    if (j->tensor->packed)
        packed_values(j->tensor, (int64_t)head * j->split.stride + j->split.first + row, out);
    else
        row_to_f32(j->tensor->type, split_source(j, head, row), (int)j->tensor->dims[1], out);
}

/* Row i of a split job in its matrix's type. *head: the head in `values`. */
static void split_row(const struct matrix_job *j, int i, int *head, float *values, float *row,
                      uint8_t *out)
{
    const struct matrix *m = j->matrix;
    int each = split_rows(j), h = i / each, at = i % each, cols = (int)j->tensor->dims[1];

    if (!j->split.across && m->type == j->tensor->type) {
        if (j->tensor->packed)
            packed_rows(j->tensor, (int64_t)h * j->split.stride + j->split.first + at, 1, 1, out);
        else
            memcpy(out, split_source(j, h, at), dtype_row_bytes(m->type, m->cols));
        return;
    }
    if (h != *head)
        for (int r = 0; r < j->split.rows; r++)
            split_values(j, h, r, values + (size_t)r * cols);
    *head = h;
    for (int c = 0; c < m->cols; c++)
        row[c] = j->split.across ? values[(size_t)c * cols + at] : values[(size_t)at * cols + c];
    round_row(m->type, row, m->cols, out);
}

/* scratch: the values of a head's part, of a row, the rows of a group. */
static void split_groups(const struct piece *p, uint8_t *to, uint8_t *scratch)
{
    const struct matrix_job *j = p->job;
    const struct matrix *m = j->matrix;
    int width = m->width ? m->width : 1, head = -1;
    size_t bytes = dtype_row_bytes(m->type, m->cols);
    float *values = (float *)(void *)scratch, *row = values + split_floats(j);
    uint8_t *rows = (uint8_t *)(row + m->cols);

    for (int g = p->first; g < p->first + p->count; g++) {
        int n = m->rows - g * width < width ? m->rows - g * width : width;

        for (int r = 0; r < n; r++)
            split_row(j, g * width + r, &head, values, row, rows + (size_t)r * bytes);
        if (m->width)
            pack_one(to + (size_t)g * (size_t)m->width * bytes, m->type, m->width, rows, n, m->cols,
                     0);
        else
            memcpy(to + (size_t)g * bytes, rows, bytes);
    }
}

bool repack_look(const struct piece *p)
{
    const struct tensor_view *t = p->job->tensor;

    return gathered(p->job) ||
           blocks_finite(t->type, (const uint8_t *)t->data + p->offset, p->bytes);
}

static bool rows_finite(const struct matrix_job *j, int n, const uint8_t *rows)
{
    size_t row = dtype_row_bytes(job_type(j), j->matrix->cols);

    if (job_type(j) != DTYPE_F8)
        return blocks_finite(job_type(j), rows, (size_t)n * row);
    for (int r = 0; r < n; r++)
        if (!f8_finite(rows + (size_t)r * row, j->matrix->cols))
            return false;
    return true;
}

/* A group's rows of a packed tensor in another type than it has. scratch: a row of floats. */
static bool convert_packed(const struct matrix_job *j, int first, int n, float *scratch,
                           uint8_t *out)
{
    const struct matrix *m = j->matrix;
    bool finite = true;

    for (int r = 0; r < n; r++, out += dtype_row_bytes(m->type, m->cols)) {
        gather_values(j, first + r, scratch);
        finite &= blocks_finite(DTYPE_F32, scratch, (size_t)m->cols * sizeof *scratch);
        round_row(m->type, scratch, m->cols, out);
    }
    return finite;
}

/* Gathered, checked and packed a group of rows at a time. */
static bool pack_gathered(const struct piece *p, uint8_t *to, uint8_t *scratch)
{
    const struct matrix_job *j = p->job;
    const struct matrix *m = j->matrix;
    int wide = m->width ? m->width : GATHER_ROWS;
    size_t from_bytes = dtype_row_bytes(job_type(j), m->cols),
           bytes = dtype_row_bytes(m->type, m->cols);
    uint8_t *rows = scratch + (size_t)m->cols * sizeof(float),
            *rounded = rows + (size_t)wide * from_bytes;
    bool finite = true;

    for (int first = 0; first < m->rows; first += wide, to += (size_t)wide * bytes) {
        int n = m->rows - first < wide ? m->rows - first : wide;

        if (j->tensor->packed && !j->beside && m->type != j->tensor->type) {
            finite &= convert_packed(j, first, n, (float *)(void *)scratch, rounded);
            pack_rows(to, m->type, m->width, rounded, m->type, n, m->cols, 0,
                      pack_groups(n, m->width));
            continue;
        }
        gather_rows(j, first, n, rows);
        finite &= rows_finite(j, n, rows);
        if (!is_rounded(j)) {
            pack_rows(to, m->type, m->width, rows, job_type(j), n, m->cols, 0,
                      pack_groups(n, m->width));
            continue;
        }
        for (int r = 0; r < n; r++) {
            row_to_f32(job_type(j), rows + (size_t)r * from_bytes, m->cols,
                       (float *)(void *)scratch);
            quantise_row(m->type, (float *)(void *)scratch, NULL, m->cols,
                         rounded + (size_t)r * bytes);
        }
        pack_one(to, m->type, m->width, rounded, n, m->cols, 0);
    }
    return finite;
}

size_t repack_scratch(const struct matrix_job *j)
{
    const struct matrix *m = j->matrix;
    size_t bytes = (size_t)m->cols * sizeof(float) +
                   (size_t)(m->width ? m->width : GATHER_ROWS) * dtype_row_bytes(m->type, m->cols);

    if (!is_rounded(j) && !j->split.stride && !gathered(j))
        return 0;
    bytes += j->split.stride ? split_floats(j) * sizeof(float) + dtype_row_bytes(m->type, m->cols)
             : gathered(j)   ? GATHER_ROWS * dtype_row_bytes(job_type(j), m->cols)
                             : 0;
    return (bytes + 63) / 64 * 64;
}

bool repack(const struct piece *p, uint8_t *to, uint8_t *scratch)
{
    const struct matrix_job *j = p->job;
    const struct matrix *m = j->matrix;

    if (j->split.stride)
        split_groups(p, to, scratch);
    else if (gathered(j))
        return pack_gathered(p, to, scratch);
    else if (is_rounded(j))
        round_groups(p, to, scratch);
    else
        pack_rows(to, m->type, m->width, (const uint8_t *)j->tensor->data + j->from,
                  j->tensor->type, m->rows, m->cols, p->first, p->count);
    return true;
}
