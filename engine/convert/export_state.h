/* Inside engine/convert only: the state of one export, and the tensors to write. Owner of
 * everything: model_export's struct export. Thread: the one that exports. */
#ifndef ENGINE_CONVERT_EXPORT_STATE_H
#define ENGINE_CONVERT_EXPORT_STATE_H

#include "engine/adapter/merge.h"
#include "engine/base/error.h"
#include "engine/convert/export_types.h"
#include "engine/convert/importance.h"
#include "engine/file/gguf_write.h"
#include "engine/model/family.h"
#include "engine/model/model.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Row i of the output is row rows[i] of the matrix; columns are in groups of `each`, group i is
 * group columns[i]. NULL: unchanged (export_order.h). */
struct export_order {
    const int *rows, *columns;
    int each;
};

/* A tensor to write: matrices, each `rows` rows, or a tensor that is copied unchanged. */
struct part {
    char name[64];
    enum dtype type;
    int rows, matrices;
    /* rows of one matrix, or of several stacked ones: `count` of these, `stride` bytes apart */
    const struct matrix *matrix;
    int count;
    size_t stride;
    const void *copied;
    size_t copied_bytes;
    int n_dims;
    int64_t dims[TENSOR_DIMS];
    /* a matrix and the next one are written as one: gate, then up */
    bool paired;
    struct export_order order;
    int kind; /* of the report; -1: copied */
    /* a GGUF source's tensor with adapters; those of a folder are in the model */
    bool merges;
    struct merge_tensor merge;
};

struct export
{
    const struct export_options *o;
    struct export_report *report;
    struct model *m;
    const struct model *trunk; /* m, also while the MTP block is listed in its place */
    struct model *mtp;         /* a folder's MTP block; NULL: none */
    struct adapters *adapters; /* or NULL */
    float strengths[LORA_ADAPTERS];
    const struct family *family;
    /* the family's names for that block in the folder, and in the written file */
    struct family mtp_read, mtp_written;
    struct gguf_writer *w;
    struct importance *importance; /* or NULL */
    pcre2_code **patterns;         /* of the overrides */
    struct matrix *views;          /* of a GGUF source's tensors */
    struct part *parts;
    int n_parts, room;
    void **kept; /* memory that `parts` point to, besides the model */
    int n_kept;
    struct pool *pool;
    uint8_t *piece;
    uint64_t done, total, told;
    double squares[EXPORT_KINDS], errors[EXPORT_KINDS];
};

/* Allocates memory that lives as long as the list of tensors. NULL: no memory. */
void *export_keep(struct export *x, size_t bytes);
void export_keep_release(struct export *x);

#endif
