/* See trace_write.h. The columns of a safetensors file lie one behind the other, so their places
 * are known only once the last token is: until then the tokens are records in FILE.part, itself a
 * safetensors file of a head and as many bytes as were written. At the end one pass over it writes
 * all columns side by side; memory is a block of records. */
#include "app/lab/trace_write.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 20) /* bytes kept between flushes, at most */
#define BLOCK ((size_t)4 << 20)  /* bytes of records turned into columns at a time */

struct trace_writer {
    struct trace_head head;
    struct trace_columns columns;
    bool lines, broken; /* broken: a write failed, and the file ends there */
    int fd;
    char *path, *part; /* part: of records */
    uint64_t n, start; /* records, and where the first one is */
    struct strbuf buffer;
    uint8_t *record;
};

static const char *ending(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot : "";
}

bool trace_path_known(const char *path)
{
    return !strcasecmp(ending(path), ".jsonl") || !strcasecmp(ending(path), ".safetensors");
}

static int failed(const char *path, struct error *e)
{
    return error_set(e, ERR_IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* Length, JSON and the blanks behind it, to a multiple of 8 bytes. Takes o. */
static int put_header(struct strbuf *b, json_t *o, struct error *e)
{
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    uint64_t n;

    json_decref(o);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for the head of a trace");
    n = (strlen(text) + 7) / 8 * 8;
    strbuf_put(b, (const char *)&n, sizeof n);
    strbuf_puts(b, text);
    for (size_t i = strlen(text); i < n; i++)
        strbuf_putc(b, ' ');
    free(text); /* jansson's */
    return b->failed ? error_set(e, ERR_MEMORY, "out of memory for the head of a trace") : 0;
}

/* safetensors' metadata are strings. */
static json_t *metadata(const struct trace_head *h)
{
    json_t *head = trace_head_json(h);
    char *text = head ? json_dumps(head, JSON_COMPACT) : NULL;
    json_t *o = text ? json_pack("{s:s, s:s}", "format", "moetop-routing", "moetop_routing", text)
                     : NULL;

    json_decref(head);
    free(text); /* jansson's */
    return o;
}

static int put_part_header(struct trace_writer *w, struct error *e)
{
    json_t *o = json_pack("{s:o, s:{s:s, s:[i, I], s:[i, i]}}", "__metadata__", metadata(&w->head),
                          "records", "dtype", "U8", "shape", 0, (json_int_t)w->columns.record,
                          "data_offsets", 0, 0);
    int rc = put_header(&w->buffer, o, e);

    w->start = w->buffer.len;
    return rc;
}

static int put_line_header(struct trace_writer *w, struct error *e)
{
    json_t *o = trace_head_json(&w->head);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for the head of a trace");
    strbuf_puts(&w->buffer, text);
    strbuf_putc(&w->buffer, '\n');
    free(text); /* jansson's */
    return 0;
}

int trace_writer_open(struct trace_writer **out, const char *path, const struct trace_head *h,
                      struct error *e)
{
    struct trace_writer *w;
    int rc;

    *out = NULL;
    if (!trace_path_known(path))
        return error_set(e, ERR_USAGE,
                         "%s: a routing trace is a .jsonl or a .safetensors file, by its ending",
                         path);
    if (!(w = mem_alloc(1, sizeof *w)))
        return error_set(e, ERR_MEMORY, "out of memory for a routing trace");
    w->fd = -1;
    w->head = *h;
    w->columns = trace_columns(h);
    w->lines = !strcasecmp(ending(path), ".jsonl");
    w->path = mem_string(path);
    w->part = mem_alloc(strlen(path) + 8, 1);
    w->record = mem_alloc(w->columns.record, 1);
    if (!w->path || !w->part || !w->record) {
        rc = error_set(e, ERR_MEMORY, "out of memory for a routing trace");
        goto out;
    }
    sprintf(w->part, "%s.part", path);
    w->fd = file_open_write(w->lines ? path : w->part, O_CREAT | O_TRUNC, 0666, e);
    rc = w->fd < 0 ? w->fd : w->lines ? put_line_header(w, e) : put_part_header(w, e);
    if (rc == 0)
        rc = trace_writer_flush(w, e);
out:
    if (rc < 0) {
        if (w->fd >= 0)
            close(w->fd);
        mem_free(w->path);
        mem_free(w->part);
        mem_free(w->record);
        strbuf_release(&w->buffer);
        mem_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

int trace_writer_flush(struct trace_writer *w, struct error *e)
{
    int rc = 0;

    if (w->buffer.failed) {
        w->broken = true;
        return error_set(e, ERR_MEMORY, "out of memory for the routing trace %s", w->path);
    }
    if (w->buffer.len && file_write_all(w->fd, w->buffer.data, w->buffer.len) < 0)
        rc = failed(w->lines ? w->path : w->part, e);
    w->broken = w->broken || rc < 0;
    strbuf_clear(&w->buffer);
    return rc;
}

void trace_record_put(const struct trace_head *h, const struct trace_columns *c, uint8_t *record,
                      const struct trace_token *t, const uint8_t *by, const int16_t *experts,
                      const float *weights, const float *scores)
{
    memcpy(record + c->at[COLUMN_SEED], &t->seed, 8);
    memcpy(record + c->at[COLUMN_SEQUENCE], &t->sequence, 4);
    memcpy(record + c->at[COLUMN_POSITION], &t->position, 4);
    memcpy(record + c->at[COLUMN_TOKEN], &t->token, 4);
    memcpy(record + c->at[COLUMN_MESSAGE], &t->message, 4);
    memcpy(record + c->at[COLUMN_LOGPROB], &t->logprob, c->bytes[COLUMN_LOGPROB]);
    memcpy(record + c->at[COLUMN_WEIGHTS], weights, c->bytes[COLUMN_WEIGHTS]);
    if (h->scores)
        memcpy(record + c->at[COLUMN_SCORES], scores, c->bytes[COLUMN_SCORES]);
    memcpy(record + c->at[COLUMN_EXPERTS], experts, c->bytes[COLUMN_EXPERTS]);
    record[c->at[COLUMN_ROLE]] = t->role;
    record[c->at[COLUMN_ANSWER]] = t->answer;
    memcpy(record + c->at[COLUMN_BY], by, c->bytes[COLUMN_BY]);
    record[c->at[COLUMN_CLASS]] = t->class;
    if (c->bytes[COLUMN_SCRIPT]) {
        record[c->at[COLUMN_SCRIPT]] = t->script;
        record[c->at[COLUMN_STOPWORD]] = t->stopword;
    }
}

/* Nine digits give the same F32 back; what is no number is null. */
static void put_float(struct strbuf *b, float v)
{
    if (isfinite(v))
        strbuf_printf(b, "%.9g", (double)v);
    else
        strbuf_puts(b, "null");
}

static void put_line(struct trace_writer *w, const struct trace_token *t, int layer,
                     enum trace_by by, const int16_t *experts, const float *weights,
                     const float *scores)
{
    const struct trace_head *h = &w->head;
    struct strbuf *b = &w->buffer;

    strbuf_printf(b,
                  "{\"sequence\":%d,\"position\":%d,\"token\":%d,\"message\":%d,\"role\":\"%s\","
                  "\"class\":\"%s\",\"script\":\"%s\",\"stopword\":\"%s\",\"answer\":%s,"
                  "\"seed\":%lld,\"layer\":%d,\"by\":\"%s\",",
                  t->sequence, t->position, t->token, t->message, trace_role_words[t->role],
                  trace_class_words[t->class], trace_script_words[t->script],
                  trace_stopword_words[t->stopword], t->answer ? "true" : "false",
                  (long long)t->seed, layer, trace_by_words[by]);
    if (h->logprobs) {
        strbuf_puts(b, "\"logprob\":");
        put_float(b, t->logprob);
        strbuf_putc(b, ',');
    }
    strbuf_puts(b, "\"experts\":[");
    for (int k = 0; k < h->used[layer]; k++)
        strbuf_printf(b, k ? ",%d" : "%d", experts[k]);
    strbuf_puts(b, "],\"weights\":[");
    for (int k = 0; k < h->used[layer]; k++) {
        strbuf_puts(b, k ? "," : "");
        put_float(b, weights[k]);
    }
    if (h->scores)
        strbuf_puts(b, "],\"scores\":[");
    for (int x = 0; h->scores && x < h->routed[layer]; x++) {
        strbuf_puts(b, x ? "," : "");
        put_float(b, scores[x]);
    }
    strbuf_puts(b, "]}\n");
}

int trace_writer_token(struct trace_writer *w, const struct trace_token *t, const uint8_t *by,
                       const int16_t *experts, const float *weights, const float *scores,
                       struct error *e)
{
    const struct trace_head *h = &w->head;

    if (w->lines) {
        for (int l = 0; l < h->layers; l++)
            if (h->used[l])
                put_line(w, t, l, (enum trace_by)by[l], experts + l * h->slots,
                         weights + l * h->slots, scores ? scores + l * h->experts : NULL);
    } else {
        trace_record_put(h, &w->columns, w->record, t, by, experts, weights, scores);
        strbuf_put(&w->buffer, (const char *)w->record, w->columns.record);
        w->n++;
    }
    return w->buffer.len < BUFFER ? 0 : trace_writer_flush(w, e);
}

/* ---- columns ---- */

static json_t *columns_json(const struct trace_head *h, const struct trace_columns *c, uint64_t n,
                            uint64_t start[TRACE_COLUMN_COUNT])
{
    json_t *o = json_pack("{s:o}", "__metadata__", metadata(h));
    uint64_t at = 0;

    for (int i = 0; i < TRACE_COLUMN_COUNT && o; i++) {
        start[i] = at;
        at += n * c->bytes[i];
        if (c->bytes[i])
            json_object_set_new(o, c->name[i],
                                json_pack("{s:s, s:o, s:[I, I]}", "dtype", c->type[i], "shape",
                                          trace_column_shape(h, (enum trace_column)i, n),
                                          "data_offsets", (json_int_t)start[i], (json_int_t)at));
    }
    return o;
}

static int write_at(int fd, const uint8_t *data, size_t n, uint64_t at, const char *path,
                    struct error *e)
{
    while (n) {
        ssize_t done = pwrite(fd, data, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return failed(path, e);
        data += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static int read_at(int fd, uint8_t *data, size_t n, uint64_t at, const char *path, struct error *e)
{
    while (n) {
        ssize_t done = pread(fd, data, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return error_set(e, ERR_IO, "%s: its records cannot be read again: %s", path,
                             done ? strerror(errno) : "they have become fewer");
        data += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

static int turn_records(const struct trace_columns *c, int from, uint64_t at, uint64_t n, int to,
                        uint64_t data, const uint64_t *start, const char *path, struct error *e)
{
    size_t most = BLOCK / c->record ? BLOCK / c->record : 1;
    uint8_t *records = mem_alloc(most, c->record), *column = mem_alloc(most, c->record);
    int rc = records && column ? 0 : error_set(e, ERR_MEMORY, "out of memory for %s", path);

    for (uint64_t i = 0; i < n && rc == 0; i += most) {
        size_t m = n - i < most ? (size_t)(n - i) : most;

        rc = read_at(from, records, m * c->record, at + i * c->record, path, e);
        for (int k = 0; k < TRACE_COLUMN_COUNT && rc == 0; k++) {
            size_t bytes = c->bytes[k];

            for (size_t r = 0; r < m && bytes; r++)
                memcpy(column + r * bytes, records + r * c->record + c->at[k], bytes);
            rc = write_at(to, column, m * bytes, data + start[k] + i * bytes, path, e);
        }
    }
    mem_free(records);
    mem_free(column);
    return rc;
}

int trace_columns_write(const char *path, const struct trace_head *h, int fd, uint64_t at,
                        uint64_t n, struct error *e)
{
    struct trace_columns c = trace_columns(h);
    uint64_t start[TRACE_COLUMN_COUNT];
    struct strbuf head = {0};
    char *beside = mem_alloc(strlen(path) + 16, 1);
    int to = -1, rc = beside ? 0 : error_set(e, ERR_MEMORY, "out of memory for %s", path);

    if (rc == 0)
        rc = put_header(&head, columns_json(h, &c, n, start), e);
    if (rc == 0) {
        sprintf(beside, "%s.columns", path);
        if ((to = file_open_write(beside, O_CREAT | O_TRUNC, 0666, e)) < 0)
            rc = to;
    }
    if (rc == 0)
        rc = write_at(to, (const uint8_t *)head.data, head.len, 0, path, e);
    if (rc == 0)
        rc = turn_records(&c, fd, at, n, to, head.len, start, path, e);
    if (rc == 0 && (fsync(to) < 0 || rename(beside, path) < 0))
        rc = failed(path, e);
    if (to >= 0)
        close(to);
    if (rc < 0 && to >= 0)
        unlink(beside);
    strbuf_release(&head);
    mem_free(beside);
    return rc;
}

int trace_writer_close(struct trace_writer *w, struct error *e)
{
    int rc, from;

    if (!w)
        return 0;
    rc = w->broken ? error_set(e, ERR_IO, "%s: not all of the trace was written", w->path)
                   : trace_writer_flush(w, e);
    if (close(w->fd) < 0 && rc == 0)
        rc = failed(w->lines ? w->path : w->part, e);
    if (rc == 0 && !w->lines) {
        if ((from = open(w->part, O_RDONLY | O_CLOEXEC)) < 0)
            rc = failed(w->part, e);
        else
            rc = trace_columns_write(w->path, &w->head, from, w->start, w->n, e);
        if (from >= 0)
            close(from);
        if (rc == 0)
            unlink(w->part);
        else
            error_prefix(e, "the trace is %s", w->part);
    }
    mem_free(w->path);
    mem_free(w->part);
    mem_free(w->record);
    strbuf_release(&w->buffer);
    mem_free(w);
    return rc;
}
