/* Which kernel multiplies which shape, and how weights are read. Two kernels can serve most slices
 * of weight rows: one that is best with few tokens and one that is best with many (the matrix unit
 * beside the vector kernels; if the user chose it, oneDNN beside our own float kernels), and the
 * number of tokens from which the second one is faster differs by type, by shape and by machine: so
 * it is measured, once, and kept in a file of the cache folder.
 *
 * Quantised weights: both kernels give the same bits, so the text cannot depend on the measurement;
 * it is done after an answer. Float weights: oneDNN adds in a different order, so the choice must
 * not change during use. It is made once, when a model with such shapes is opened for the first
 * time, before its first token; it takes effect only once it is stored, and is never measured again
 * without a request.
 *
 * Read patterns (patterns.h): for one token, by type, row length and number of threads; all give
 * the same bits, so they are measured after an answer.
 *
 * A measurement while other programs compute is marked with how busy the machine was, and repeated,
 * except of float weights, by a later start that finds it half as busy. The less busy one is kept.
 *
 * Pure functions except tune_read, tune_write and tune_folder_count; any thread. */
#ifndef ENGINE_DEVICE_CPU_SHAPE_TABLE_H
#define ENGINE_DEVICE_CPU_SHAPE_TABLE_H

#include "engine/base/error.h"
#include "engine/device/cpu/kernels/patterns.h"
#include "engine/model/model.h"

#include <stdbool.h>
#include <stddef.h>

/* least weight rows of a task: one activation block */
#define CPU_UNIT 32
/* for a task whose results are written token by token: half a KiB each */
#define CPU_WIDE (4 * CPU_UNIT)

/* most shapes of a table, of all models on this machine together */
#define TUNE_MAX 256
#define TUNE_NEVER 100000 /* tokens: the kernel for many is never used */
#define TUNE_COUNTS 9     /* token counts that are measured */
#define TUNE_PAIRS 7      /* samples of both kernels at each */
#define TUNE_KEY 320
#define TUNE_DECODE_MAX 32
#define TUNE_PATTERN_MAX 96
/* per cent of the machine, or of the measuring threads' time, that others take (tune_busy.c): less
 * is a quiet machine; no measurement is marked with TUNE_BUSY_MOST */
#define TUNE_BUSY 10
#define TUNE_BUSY_MOST 100
/* least bytes of a type and row length for measuring their pattern: fewer fit in a cache */
#define TUNE_PATTERN_LEAST ((size_t)64 << 20)

/* When a choice was measured. */
struct tune_when {
    int busy;  /* per cent, 0 .. TUNE_BUSY_MOST; in the file 0 stands for less than TUNE_BUSY */
    bool here; /* by this process, which does not repeat it; not in the file */
};

struct tune_entry {
    enum dtype type;
    int rows, cols; /* of one task's slice */
    int from;       /* tokens from which the kernel for many is used, 2 .. TUNE_NEVER */
    struct tune_when when;
};

/* The number of a pool's threads that decodes fastest for a model whose weights are mostly of this
 * type: fewer may saturate the memory. */
struct tune_decode {
    enum dtype type;
    int threads, use;
    struct tune_when when;
};

/* The fastest pattern for so many threads reading weights of a type with rows of `cols`. */
struct tune_pattern {
    enum dtype type;
    int cols, threads;
    enum pattern_id id;
    struct tune_when when;
};

struct tune {
    int n, n_decode, n_pattern;
    struct tune_entry entry[TUNE_MAX];
    struct tune_decode decode[TUNE_DECODE_MAX];
    struct tune_pattern pattern[TUNE_PATTERN_MAX];
};

/* The threshold for a slice; if it is missing, that of a slice with other rows (the last slice of a
 * matrix is shorter); none: otherwise. */
int tune_from(const struct tune *t, enum dtype type, int rows, int cols, int otherwise);
const struct tune_entry *tune_find(const struct tune *t, enum dtype type, int rows, int cols);
/* Sets or replaces one. False: the table is full. */
bool tune_set(struct tune *t, struct tune_entry entry);
/* NULL: not known; and the number alone, 0: not known. */
const struct tune_decode *tune_decode_find(const struct tune *t, enum dtype type, int threads);
int tune_decode(const struct tune *t, enum dtype type, int threads);
bool tune_decode_set(struct tune *t, struct tune_decode entry);
/* NULL: not known. */
const struct tune_pattern *tune_pattern(const struct tune *t, enum dtype type, int cols,
                                        int threads);
bool tune_pattern_set(struct tune *t, struct tune_pattern entry);
/* The threshold of an unmeasured slice: quantised_from, the kernel set's (kernels.h); for float
 * weights oneDNN's, which multiplies BF16 weights directly if bf16. */
int tune_default(enum dtype type, int quantised_from, bool bf16);
/* The distinct slices of this model that the CPU device's tasks multiply with several tokens,
 * `from` 0. */
void tune_shapes(const struct model *m, struct tune *out);
/* Heads of so many weight rows that one task multiplies: rows are in groups of 8 or 16, so at most
 * 16. */
int tune_heads(int head_dim);

/* The threshold among count[0..n-1] (ascending) and never, from paired samples ns[count][pair].
 * `otherwise` is kept unless another one is at least 5 % faster, beyond the noise of the pairs,
 * over the counts that it would change. */
int tune_choose(const int *count, int n, const double small_batch[][TUNE_PAIRS],
                const double large_batch[][TUNE_PAIRS], int otherwise);

/* The fastest of n kinds of samples, `otherwise` unless another one is faster by tune_faster; -1 if
 * samples of that kind vary so much that the machine was busy with something else. */
int tune_fastest(const double ns[][TUNE_PAIRS], int n, int otherwise);

/* Whether b, paired with a, is at least 5 % faster and beyond the noise. */
bool tune_faster(const double a[TUNE_PAIRS], const double b[TUNE_PAIRS]);

/* Whether a choice is to be measured again while the machine is this busy. */
bool tune_again(struct tune_when w, int busy);

/* The file's text: a line identifying the machine, kernels and library, then a line each: "type
 * rows cols tokens" or "… never", "decode type threads use", "pattern type cols threads word", each
 * with " busy N" at its end if the machine was. parse: ERR_INPUT for anything else, and the table
 * is empty. */
size_t tune_text(const struct tune *t, const char *key, char *out, size_t size);
int tune_parse(struct tune *t, const char *key, const char *text, size_t n, struct error *e);
/* 0 with an empty table if there is no file or it is for another machine; ERR_INPUT, ERR_IO. */
int tune_read(struct tune *t, const char *path, const char *key, struct error *e);
/* Temporary file and rename: a reader sees the old or the new one. ERR_IO. */
int tune_write(const struct tune *t, const char *path, const char *key, struct error *e);

/* The choices that this version keeps in a folder, for whichever kernels. */
struct tune_count {
    int choices, busy; /* all; measured on a busy machine */
    int floats;        /* of the busy ones: of float weights, which only `--tune again` repeats */
    int most;          /* per cent, the busiest */
};
void tune_folder_count(const char *folder, struct tune_count *out);
/* The files' names in that folder, and what their first lines begin with. */
#define TUNE_FILE_PREFIX "kernels-"
#define TUNE_FILE_SUFFIX ".tune"
#define TUNE_KEY_PREFIX "moetop " MOETOP_VERSION " thresholds 5: "

#endif
