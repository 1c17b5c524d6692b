/* Where the time of one token goes: spans by layer and device, recorded while a trace is active,
 * for the timeline panel and for files in the Trace Event Format (chrome://tracing, Perfetto).
 * Thread: the engine's. While a trace is active, layers run job by job even where a device could
 * fuse them, so that every block has its span. Recording allocates nothing; spans beyond the room
 * are counted, not stored. */
#ifndef ENGINE_RUN_TRACE_H
#define ENGINE_RUN_TRACE_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, displayed word */
/* clang-format off */
#define TRACE_TABLE(X)              \
    X(TRACE_ATTENTION, "attention") \
    X(TRACE_ROUTE,     "route")     \
    X(TRACE_EXPERTS,   "experts")   \
    X(TRACE_COMBINE,   "combine")   \
    X(TRACE_LAYERS,    "layers")    \
    X(TRACE_HEAD,      "head")      \
    X(TRACE_SAMPLE,    "sample")
/* clang-format on */

enum trace_kind {
#define X(name, word) name,
    TRACE_TABLE(X)
#undef X
        TRACE_KINDS
};

struct trace_entry {
    uint64_t start_ns, end_ns;
    int16_t layer;
    uint8_t kind, device;
    int32_t token; /* position in the sequence */
};

struct trace {
    struct trace_entry *entries;
    size_t n, room, dropped;
    int token; /* position being computed */
    bool active;
};

int trace_init(struct trace *t, size_t room); /* 0 or ERR_MEMORY */
void trace_release(struct trace *t);
void trace_add(struct trace *t, enum trace_kind kind, int layer, int device, uint64_t start,
               uint64_t end);
const char *trace_word(enum trace_kind kind);
/* The whole trace as Trace Event JSON (mem_* memory): one process, one thread line per device.
 * device_name may be NULL. ERR_MEMORY. */
int trace_json(const struct trace *t, const char *(*device_name)(void *ctx, int device), void *ctx,
               char **text, size_t *len, struct error *e);

static inline bool trace_active(const struct trace *t)
{
    return t && t->active;
}

static inline void trace_span(struct trace *t, enum trace_kind kind, int layer, int device,
                              uint64_t start, uint64_t end)
{
    if (trace_active(t))
        trace_add(t, kind, layer, device, start, end);
}

#endif
