/* Low-rank adapters (LoRA, arXiv:2106.09685) as they hang on a weight matrix: y = W x becomes
 * y += sum over the adapters of strength * scale * B (A x), in F32 from the row as it is before any
 * rounding (rule 14 of engine/device/numerics.h). Plain data, filled by engine/adapter before a
 * device is opened, constant from then on: any thread. Strengths are not here: each session has its
 * own (struct attention_job). */
#ifndef ENGINE_LAYOUT_LORA_H
#define ENGINE_LAYOUT_LORA_H

#define LORA_ADAPTERS 16 /* of one model at most */

/* One adapter's share: `rank` rows of a and of b. */
struct lora_part {
    int adapter, rank;
    float scale; /* alpha / rank, or what the adapter says instead */
};

struct lora {
    int rank; /* of all parts together */
    int n_parts;
    const struct lora_part *parts; /* by rising number of their adapter */
    /* (rank, columns of the matrix); (rank, rows of the matrix): B turned, so that a task reads its
     * rows one behind the other. NULL where a model was only inspected */
    const float *a, *b;
};

#endif
