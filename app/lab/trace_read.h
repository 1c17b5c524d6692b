/* A routing trace opened for reading: FILE.safetensors, the FILE.safetensors.part of a run that was
 * ended, FILE.jsonl. Everything in it has been checked at open: experts exist and are distinct
 * within a layer, weights and scores are finite, sequences are counted from 0. The columns stay on
 * disk (mapped); of a .jsonl, in a temporary file. The owner closes it; any thread reads. */
#ifndef APP_LAB_TRACE_READ_H
#define APP_LAB_TRACE_READ_H

#include "app/lab/routing_trace.h"
#include "engine/base/mapping.h"

#include <string.h>

struct trace {
    struct trace_head head;
    uint64_t n; /* tokens */
    int sequences;
    bool torn; /* its last line or record is not whole, and left away */
    char *path;
    struct mapping map;
    /* per column: its first value (NULL: no such column), and the bytes from token to token */
    const uint8_t *column[TRACE_COLUMN_COUNT];
    size_t stride[TRACE_COLUMN_COUNT];
};

/* ERR_IO, ERR_MEMORY; ERR_INPUT: no trace, or a damaged one. */
int trace_open(struct trace **out, const char *path, struct error *e);
void trace_close(struct trace *t); /* accepts NULL */

static inline const uint8_t *trace_at(const struct trace *t, enum trace_column c, uint64_t i)
{
    return t->column[c] + i * t->stride[c];
}

static inline int trace_int(const struct trace *t, enum trace_column c, uint64_t i)
{
    int32_t v;

    memcpy(&v, trace_at(t, c, i), sizeof v);
    return v;
}

/* Slot k of a layer; -1: empty. */
static inline int trace_expert(const struct trace *t, uint64_t i, int layer, int k)
{
    int16_t v;

    memcpy(&v, trace_at(t, COLUMN_EXPERTS, i) + 2 * (layer * t->head.slots + k), sizeof v);
    return v;
}

static inline float trace_weight(const struct trace *t, uint64_t i, int layer, int k)
{
    float v;

    memcpy(&v, trace_at(t, COLUMN_WEIGHTS, i) + 4 * (layer * t->head.slots + k), sizeof v);
    return v;
}

static inline enum trace_by trace_by(const struct trace *t, uint64_t i, int layer)
{
    return (enum trace_by)trace_at(t, COLUMN_BY, i)[t->head.version < 2 ? 0 : layer];
}

/* head.logprobs; NAN: it has none */
static inline float trace_logprob(const struct trace *t, uint64_t i)
{
    float v;

    memcpy(&v, trace_at(t, COLUMN_LOGPROB, i), sizeof v);
    return v;
}

/* head.scores */
static inline float trace_score(const struct trace *t, uint64_t i, int layer, int expert)
{
    float v;

    memcpy(&v, trace_at(t, COLUMN_SCORES, i) + 4 * (layer * t->head.experts + expert), sizeof v);
    return v;
}

/* trace_lines.c: the records of a .jsonl, written to fd, which is empty. torn: the last line is not
 * whole. ERR_INPUT, ERR_IO, ERR_MEMORY. */
int trace_lines_read(const char *path, int fd, struct trace_head *h, uint64_t *n, bool *torn,
                     struct error *e);

#endif
