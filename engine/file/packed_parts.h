/* Where the parts of a packed matrix (packed.h) are in the file. Plain data. */
#ifndef ENGINE_FILE_PACKED_PARTS_H
#define ENGINE_FILE_PACKED_PARTS_H

#include "engine/file/packing.h"
#include "engine/file/tensor.h"

struct packed {
    enum packing_kind kind;
    /* the parts in the file; data NULL: absent */
    struct tensor_view codes, scales, zeros, groups, further;
    int64_t rows, cols; /* rows: of all matrices of the tensor */
    int64_t group;      /* columns per scale, unless given by `groups` */
    int zero_more;      /* to be added to the stored zero points */
    int bits, per;      /* of a code; codes in a word of 32 */
    /* NULL, or the file's column at each place in the rows of Q4_0, Q5_0 and Q8_0 */
    uint16_t *order;
    enum dtype type;    /* NVFP4, TABLE, MLX, NVFP4_BLOCKS: as which it is shown */
    int64_t nested;     /* TABLE: factors whose own factor is the same; 0: they are floats */
    float added;        /* TABLE: to them */
    int row_type;       /* ROWS: of row_scaled.c's table */
    int64_t matrix;     /* FP8: rows of one matrix of the tensor */
    int64_t tall, wide; /* FP8: rows and columns of a scale */
};

#endif
