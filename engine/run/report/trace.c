/* See trace.h. */
#include "engine/run/report/trace.h"

#include "engine/base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int trace_init(struct trace *t, size_t room)
{
    memset(t, 0, sizeof *t);
    t->entries = mem_alloc(room, sizeof *t->entries);
    t->room = t->entries ? room : 0;
    return t->entries ? 0 : ERR_MEMORY;
}

void trace_release(struct trace *t)
{
    mem_free(t->entries);
    memset(t, 0, sizeof *t);
}

void trace_add(struct trace *t, enum trace_kind kind, int layer, int device, uint64_t start,
               uint64_t end)
{
    assert(t->active && end >= start);
    assert((unsigned)kind < TRACE_KINDS && layer >= 0 && device >= 0 && device <= UINT8_MAX);
    if (t->n == t->room) {
        t->dropped++;
        return;
    }
    t->entries[t->n++] = (struct trace_entry){.start_ns = start,
                                              .end_ns = end,
                                              .layer = (int16_t)layer,
                                              .kind = (uint8_t)kind,
                                              .device = (uint8_t)device,
                                              .token = t->token};
}

const char *trace_word(enum trace_kind kind)
{
    static const char *const words[] = {
#define X(name, word) word,
        TRACE_TABLE(X)
#undef X
    };

    return (unsigned)kind < TRACE_KINDS ? words[kind] : "unknown";
}

/* Device names come from drivers: keeps only characters that need no escape in JSON. */
static void plain_name(char *out, size_t size, const char *name)
{
    size_t n = 0;

    for (; *name && n + 1 < size; name++)
        if ((unsigned char)*name >= 0x20 && (unsigned char)*name < 0x7f && *name != '"' &&
            *name != '\\')
            out[n++] = *name;
    out[n] = 0;
}

int trace_json(const struct trace *t, const char *(*device_name)(void *ctx, int device), void *ctx,
               char **text, size_t *len, struct error *e)
{
    size_t size = 4096 + t->n * 200, n = 0;
    char *out = mem_alloc(size, 1);
    uint64_t origin = t->n ? t->entries[0].start_ns : 0;
    bool named[256] = {false};

    if (!out)
        return error_set(e, ERR_MEMORY, "no memory for a trace of %zu spans", t->n);
    for (size_t i = 0; i < t->n; i++)
        if (t->entries[i].start_ns < origin)
            origin = t->entries[i].start_ns;
    n += (size_t)snprintf(
        out + n, size - n,
        "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped\":\"%zu\"},\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"moetop\"}}",
        t->dropped);
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_entry *s = &t->entries[i];

        if (!named[s->device]) {
            char name[64] = "device";

            if (device_name)
                plain_name(name, sizeof name, device_name(ctx, s->device));
            if (n + 400 < size)
                n += (size_t)snprintf(out + n, size - n,
                                      ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_"
                                      "name\",\"args\":{\"name\":\"%s\"}}",
                                      s->device, name);
            named[s->device] = true;
        }
        if (n + 200 > size)
            break;
        n += (size_t)snprintf(
            out + n, size - n,
            ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
            "\"args\":{\"layer\":%d,\"token\":%d}}",
            s->device, trace_word(s->kind), (double)(s->start_ns - origin) * 1e-3,
            (double)(s->end_ns - s->start_ns) * 1e-3, s->layer, s->token);
    }
    n += (size_t)snprintf(out + n, size - n, "\n]}\n");
    *text = out;
    if (len)
        *len = n;
    return 0;
}
