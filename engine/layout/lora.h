/* Low-rank adapters (LoRA, arXiv:2106.09685) attached to a weight matrix: y = W x becomes y += sum
 * over the adapters of strength * scale * B (A x), in F32 from the row before any rounding (rule 14
 * of engine/device/numerics.h). Plain data, filled by engine/adapter before a device is opened,
 * constant from then on: any thread. Strengths are per session (struct attention_job). */
#ifndef ENGINE_LAYOUT_LORA_H
#define ENGINE_LAYOUT_LORA_H

#include <stddef.h>

#define LORA_ADAPTERS 16 /* most adapters of a model */

/* One adapter's share: `rank` rows of a and of b. */
struct lora_part {
    int adapter, rank;
    float scale; /* alpha / rank, or the adapter's explicit value */
};

struct lora {
    int rank; /* of all parts together */
    /* 0; or the matrix's rows are equal parts of so many heads, each with an A of its own, and all
     * with the same B: (heads, rank, columns) and (rank, rows / heads) */
    int heads;
    int n_parts;
    const struct lora_part *parts; /* in ascending order of their adapter */
    /* (rank, columns of the matrix); (rank, rows of the matrix): B transposed, so that a task reads
     * its rows consecutively. NULL where a model was only inspected */
    const float *a, *b;
};

/* Rows that B spans, of a matrix of `rows`: those of a head, or all. */
static inline int lora_rows(const struct lora *l, int rows)
{
    return l->heads ? rows / l->heads : rows;
}

/* The A that a row of a (rows, cols) matrix is multiplied with. */
static inline const float *lora_a(const struct lora *l, int rows, int cols, int row)
{
    return l->a + (size_t)(row / lora_rows(l, rows)) * (size_t)l->rank * (size_t)cols;
}

#endif
