/* See sse.h. */
#include "app/connect/sse.h"

#include <string.h>

void sse_init(struct sse *s)
{
    *s = (struct sse){.line = {.limit = SSE_MOST}, .data = {.limit = SSE_MOST}};
}

void sse_release(struct sse *s)
{
    strbuf_release(&s->line);
    strbuf_release(&s->data);
}

/* Start of the value in a data line; 0: another kind of line. */
static size_t value_at(const char *line, size_t n)
{
    static const char *const fields[] = {"data:", "error:"};

    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        size_t len = strlen(fields[i]);

        if (n >= len && memcmp(line, fields[i], len) == 0)
            return len + (n > len && line[len] == ' ');
    }
    return 0;
}

static int line_end(struct sse *s, int (*on_data)(void *ctx, const char *text, size_t n), void *ctx)
{
    const char *line = s->line.data;
    size_t n = s->line.len, from;
    int rc = 0;

    if (!s->begun && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0)
        line += 3, n -= 3;
    s->begun = true;
    if (n == 0) {
        if (s->data.len > 1) /* without the line end after the last one */
            rc = on_data(ctx, s->data.data, s->data.len - 1);
        strbuf_clear(&s->data);
    } else if ((from = value_at(line, n)) != 0) {
        strbuf_put(&s->data, line + from, n - from);
        strbuf_putc(&s->data, '\n');
    }
    strbuf_clear(&s->line);
    return s->data.failed ? -1 : rc;
}

int sse_feed(struct sse *s, const char *bytes, size_t n,
             int (*on_data)(void *ctx, const char *text, size_t n), void *ctx)
{
    while (n) {
        size_t part = 0;
        int rc;

        if (s->after_return && *bytes == '\n') {
            bytes++, n--;
            s->after_return = false;
            continue;
        }
        s->after_return = false;
        while (part < n && bytes[part] != '\n' && bytes[part] != '\r')
            part++;
        strbuf_put(&s->line, bytes, part);
        if (s->line.failed)
            return -1;
        bytes += part;
        n -= part;
        if (!n)
            break;
        s->after_return = *bytes == '\r';
        bytes++, n--;
        if ((rc = line_end(s, on_data, ctx)) != 0)
            return rc;
    }
    return 0;
}

int sse_end(struct sse *s, bool (*is_whole)(const char *text, size_t n),
            int (*on_data)(void *ctx, const char *text, size_t n), void *ctx)
{
    bool line = s->line.len > 0, whole;

    if (line && line_end(s, on_data, ctx) != 0)
        return -1;
    if (!s->data.len)
        return line ? -1 : 0;
    whole = is_whole(s->data.data, s->data.len - 1); /* without the line end after the last one */
    if (whole)
        on_data(ctx, s->data.data, s->data.len - 1);
    strbuf_clear(&s->data);
    return whole ? 0 : -1;
}
