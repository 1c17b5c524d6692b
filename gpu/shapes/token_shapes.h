/* Shapes of work-groups of the matrix kernels for one token (gpu/kernels/blocks.cl): those that are
 * tried on a device, what they took there beside the shapes by rule, and the file that keeps it.
 * They change no bit. Pure but for the file; any thread. */
#ifndef GPU_TOKEN_SHAPES_H
#define GPU_TOKEN_SHAPES_H

#include "engine/file/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* matmul's shape is down's, too, gate_up's that of token_gate_up. */
enum token_kernel { TOKEN_MATMUL, TOKEN_GATE_UP, TOKEN_DOWN, TOKEN_OUTPUT, TOKEN_KERNELS };

struct token_shape {
    int rows;  /* of a work-group; gate_up: 32 of gate and the same of up */
    int slots; /* work-items a row, at least 4 */
    int ahead; /* blocks whose loads a work-item has on their way: 1 to 4 */
    int load;  /* bytes of weights that a work-item loads at once: 4, or 16: a word each of four
                  rows,  which lie beside each other in all formats (engine/layout/format.h) */
};

struct token_shapes {
    struct token_shape of[TOKEN_KERNELS];
};

#define TOKEN_CANDIDATES 9
#define TOKEN_SHAPES_TEXT 64

/* "matmul", "gate_up", "token_down", "token_output" */
const char *token_kernel_name(enum token_kernel k);
struct token_shape token_candidate(int i, enum token_kernel k);
bool token_shapes_same(const struct token_shapes *a, const struct token_shapes *b);
bool token_shape_same(const struct token_shape *a, const struct token_shape *b);
/* "16x32x2x4 32x16x2x4 16x32x2x4 16x32x1x16" */
void token_shapes_text(const struct token_shapes *s, char out[TOKEN_SHAPES_TEXT]);

/* What is known of an element type's kernels on a device. */
struct token_times {
    bool measured[TOKEN_CANDIDATES];
    /* time by that of the shape by rule; 0: the device cannot have it, or the model has no such
     * matrix */
    double ratio[TOKEN_CANDIDATES][TOKEN_KERNELS];
    enum { TOKEN_UNTESTED, TOKEN_RIGHT, TOKEN_WRONG } verdict; /* of these shapes together */
    char tested[TOKEN_SHAPES_TEXT];
};

/* The fastest candidate of a kernel, if it is clearly faster than the shape by rule; else -1. */
int token_fastest(const struct token_times *t, enum token_kernel k);

struct token_table {
    struct token_times of[DTYPE_COUNT];
};

/* key: of all that the times depend on. False: there is no such file, or it is damaged, of another
 * format or with another key; out is all zero then. */
bool token_table_read(const char *path, uint64_t key, struct token_table *out);
/* Failing means that it is measured again. */
void token_table_write(const char *path, uint64_t key, const struct token_table *t);

#endif
