/* A routing trace of JSON Lines as records (trace_read.h). A line is a layer of a token; those of
 * one token follow each other. Memory is one line and one token. */
#include "app/lab/trace_read.h"
#include "app/lab/trace_write.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES ((size_t)4 << 20)

struct lines {
    const char *path;
    int fd;
    struct trace_head *head;
    struct trace_columns columns;
    uint64_t n, line;
    /* the token whose layers are being read; layer -1: none yet */
    struct trace_token token;
    int layer;
    uint8_t *by;
    int16_t *experts;
    float *weights, *scores;
    uint8_t *records;
    size_t filled, room; /* of records */
};

static int wrong(const struct lines *s, const char *what, struct error *e)
{
    return error_set(e, ERR_INPUT, "%s: line %llu: %s", s->path, (unsigned long long)s->line, what);
}

static void forget(struct lines *s)
{
    const struct trace_head *h = s->head;

    for (int i = 0; i < h->layers * h->slots; i++) {
        s->experts[i] = -1;
        s->weights[i] = 0;
    }
    if (h->scores)
        memset(s->scores, 0, s->columns.bytes[COLUMN_SCORES]);
    memset(s->by, BY_ROUTER, (size_t)h->layers);
    s->layer = -1;
}

static int begin(struct lines *s, struct error *e)
{
    size_t cells = (size_t)(s->head->layers * s->head->slots);

    s->columns = trace_columns(s->head);
    s->room = ((size_t)1 << 20) / s->columns.record + 1;
    s->by = mem_alloc((size_t)s->head->layers, 1);
    s->experts = mem_alloc(cells, sizeof *s->experts);
    s->weights = mem_alloc(cells, sizeof *s->weights);
    s->scores = mem_alloc((size_t)s->head->layers * (size_t)s->head->experts, sizeof *s->scores);
    s->records = mem_alloc(s->room, s->columns.record);
    if (!s->by || !s->experts || !s->weights || !s->scores || !s->records)
        return error_set(e, ERR_MEMORY, "out of memory for %s", s->path);
    forget(s);
    return 0;
}

static int put_records(struct lines *s, struct error *e)
{
    if (file_write_all(s->fd, s->records, s->filled * s->columns.record) < 0)
        return error_set(e, ERR_IO, "%s: its temporary file cannot be written: %s", s->path,
                         strerror(errno));
    s->filled = 0;
    return 0;
}

static int end_token(struct lines *s, struct error *e)
{
    if (s->layer < 0)
        return 0;
    trace_record_put(s->head, &s->columns, s->records + s->filled * s->columns.record, &s->token,
                     s->by, s->experts, s->weights, s->scores);
    forget(s);
    s->filled++;
    s->n++;
    return s->filled < s->room ? 0 : put_records(s, e);
}

static bool int_of(const json_t *o, const char *key, int64_t least, int64_t most, int64_t *out)
{
    const json_t *v = json_object_get(o, key);

    *out = json_integer_value(v);
    return json_is_integer(v) && *out >= least && *out <= most;
}

static int word_of(const json_t *o, const char *key, const char *const *words, int n)
{
    const char *s = json_string_value(json_object_get(o, key));

    for (int i = 0; i < n && s; i++)
        if (!strcmp(words[i], s))
            return i;
    return -1;
}

/* null, or no such key: not known */
static bool read_logprob(const json_t *o, float *out)
{
    const json_t *v = json_object_get(o, "logprob");
    double x = json_number_value(v);

    *out = json_is_number(v) ? (float)x : NAN;
    return !v || json_is_null(v) || (json_is_number(v) && x <= 0 && x >= -(double)FLT_MAX);
}

static bool read_token(const json_t *o, const struct trace_head *h, struct trace_token *t,
                       int64_t *layer, int *by)
{
    int64_t sequence, position, token, message;
    int role = word_of(o, "role", trace_role_words, TRACE_ROLES),
        class = word_of(o, "class", trace_class_words, TRACE_CLASSES), script = 0, stopword = 0;

    *by = word_of(o, "by", trace_by_words, TRACE_BYS);
    if (h->version > 1) {
        script = word_of(o, "script", trace_script_words, TRACE_SCRIPTS);
        stopword = word_of(o, "stopword", trace_stopword_words, TRACE_STOPWORDS);
    }

    if (!int_of(o, "sequence", 0, INT32_MAX, &sequence) ||
        !int_of(o, "position", 0, INT32_MAX, &position) ||
        !int_of(o, "token", 0, INT32_MAX, &token) ||
        !int_of(o, "message", -1, INT32_MAX, &message) ||
        !int_of(o, "seed", INT64_MIN, INT64_MAX, &t->seed) ||
        !int_of(o, "layer", 0, h->layers - 1, layer) || !read_logprob(o, &t->logprob) || role < 0 ||
        class < 0 || *by < 0 || script < 0 || stopword < 0)
        return false;
    t->sequence = (int32_t)sequence;
    t->position = (int32_t)position;
    t->token = (int32_t)token;
    t->message = (int32_t)message;
    t->role = (uint8_t)role;
    t->class = (uint8_t) class;
    t->script = (uint8_t)script;
    t->stopword = (uint8_t)stopword;
    t->answer = json_is_true(json_object_get(o, "answer"));
    return true;
}

static bool read_floats(const json_t *a, float *out, size_t n)
{
    if (json_array_size(a) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(a, i);
        double x = json_number_value(v);

        if (!json_is_number(v) || !(fabs(x) <= (double)FLT_MAX))
            return false;
        out[i] = (float)x;
    }
    return true;
}

static int read_line(struct lines *s, const char *text, size_t n, struct error *e)
{
    const struct trace_head *h = s->head;
    struct trace_token t = {0};
    json_error_t why;
    json_t *o = json_loadb(text, n, 0, &why);
    const json_t *experts = json_object_get(o, "experts");
    int64_t layer = 0;
    int rc = 0, by = 0;

    if (!o || !read_token(o, h, &t, &layer, &by) || json_array_size(experts) != h->used[layer]) {
        rc = wrong(s, o ? "no layer of a token, or of another model" : why.text, e);
        goto out;
    }
    if (s->layer >= 0 && (layer <= s->layer || memcmp(&t, &s->token, sizeof t)) &&
        (rc = end_token(s, e)) < 0)
        goto out;
    s->token = t;
    s->layer = (int)layer;
    if (h->version < 2) /* all layers' */
        memset(s->by, by, (size_t)h->layers);
    s->by[layer] = (uint8_t)by;
    for (int k = 0; k < h->used[layer]; k++) {
        const json_t *v = json_array_get(experts, (size_t)k);

        if (!json_is_integer(v) || json_integer_value(v) < -1 ||
            json_integer_value(v) >= h->routed[layer]) {
            rc = wrong(s, "an expert that its layer has not", e);
            goto out;
        }
        s->experts[layer * h->slots + k] = (int16_t)json_integer_value(v);
    }
    if (!read_floats(json_object_get(o, "weights"), s->weights + layer * h->slots,
                     h->used[layer]) ||
        (h->scores && !read_floats(json_object_get(o, "scores"), s->scores + layer * h->experts,
                                   h->routed[layer])))
        rc = wrong(s, "weights or scores are missing or no finite numbers", e);
out:
    json_decref(o);
    return rc;
}

static int read_first(struct lines *s, const char *text, size_t n, struct error *e)
{
    json_error_t why;
    json_t *o = json_loadb(text, n, 0, &why);
    int rc = trace_head_read(s->head, o, s->path, e);

    json_decref(o);
    return rc < 0 ? rc : begin(s, e);
}

int trace_lines_read(const char *path, int fd, struct trace_head *h, uint64_t *n, bool *torn,
                     struct error *e)
{
    static const struct file_kind kind = {"routing trace", SIZE_MAX, ERR_INPUT};
    struct lines s = {.path = path, .fd = fd, .head = h, .layer = -1};
    int from = file_open(path, &kind, e), rc = 0;
    FILE *f = from < 0 ? NULL : fdopen(from, "r");
    char *line = mem_alloc(LINE_MAX_BYTES, 1);

    *torn = false;
    *n = 0;
    if (from >= 0 && (!f || !line))
        rc = error_set(e, ERR_MEMORY, "out of memory for %s", path);
    if (from < 0)
        rc = from;
    while (rc == 0 && fgets(line, (int)LINE_MAX_BYTES, f)) {
        size_t got = strlen(line);

        s.line++;
        if (!got || line[got - 1] != '\n') {
            *torn = feof(f) != 0;
            if (!*torn)
                rc = wrong(&s, "longer than any line of a trace, or no text", e);
            break;
        }
        rc = s.line == 1 ? read_first(&s, line, got, e) : read_line(&s, line, got, e);
    }
    if (rc == 0 && ferror(f))
        rc = error_set(e, ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    if (rc == 0 && !s.records)
        rc = error_set(e, ERR_INPUT, "%s: no routing trace: it has no whole line", path);
    if (rc == 0 && *torn && s.layer >= 0 && s.layer < h->layers - 1) {
        int last = h->layers - 1;

        while (last >= 0 && !h->used[last])
            last--;
        if (s.layer < last) /* only some layers of the last token came through */
            forget(&s);
    }
    if (rc == 0)
        rc = end_token(&s, e);
    if (rc == 0)
        rc = put_records(&s, e);
    *n = s.n;
    if (f)
        fclose(f);
    else if (from >= 0)
        close(from);
    mem_free(line);
    mem_free(s.by);
    mem_free(s.experts);
    mem_free(s.weights);
    mem_free(s.scores);
    mem_free(s.records);
    return rc;
}
