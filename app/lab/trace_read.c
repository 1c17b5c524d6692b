/* See trace_read.h. A file is believed only as far as it was checked: sizes before anything is
 * read, every value of every token once at open. */
#include "app/lab/trace_read.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define HEADER_MAX ((uint64_t)16 << 20)

static int read_head(struct trace *t, const json_t *header, struct error *e)
{
    const char *text = json_string_value(
        json_object_get(json_object_get(header, "__metadata__"), "moetop_routing"));
    json_t *head;
    int rc;

    if (!text)
        return error_set(
            e, ERR_INPUT,
            "%s: a safetensors file, but no routing trace: --routing-trace writes them", t->path);
    if (!(head = json_read(text, strlen(text), t->path, e)))
        return ERR_INPUT;
    rc = trace_head_read(&t->head, head, t->path, e);
    json_decref(head);
    return rc;
}

static void use_records(struct trace *t, uint64_t start, uint64_t n)
{
    struct trace_columns c = trace_columns(&t->head);

    t->n = n;
    for (int k = 0; k < TRACE_COLUMN_COUNT; k++) {
        t->column[k] = c.bytes[k] ? t->map.data + start + c.at[k] : NULL;
        t->stride[k] = c.record;
    }
}

/* Of a run that was ended: as many whole records as there are. */
static void read_part(struct trace *t, uint64_t start)
{
    uint64_t record = trace_columns(&t->head).record, bytes = t->map.size - start;

    use_records(t, start, bytes / record);
    t->torn = bytes % record != 0;
}

static int read_column(struct trace *t, const json_t *header, enum trace_column k, uint64_t start,
                       struct error *e)
{
    struct trace_columns c = trace_columns(&t->head);
    const json_t *o = json_object_get(header, c.name[k]), *at = json_object_get(o, "data_offsets"),
                 *shape = json_object_get(o, "shape");
    const char *type = json_string_value(json_object_get(o, "dtype"));
    json_int_t n = json_integer_value(json_array_get(shape, 0)),
               from = json_integer_value(json_array_get(at, 0)),
               to = json_integer_value(json_array_get(at, 1));
    uint64_t room = t->map.size - start;
    json_t *wanted;
    bool same;

    if (!c.bytes[k])
        return 0;
    if (k == 0)
        t->n = n > 0 ? (uint64_t)n : 0;
    wanted = trace_column_shape(&t->head, k, t->n);
    same = wanted && json_equal(wanted, shape);
    json_decref(wanted);
    if (!type || strcmp(type, c.type[k]) || !same || json_array_size(at) != 2 || from < 0 ||
        to < from || (uint64_t)to > room || t->n > room / c.bytes[k] ||
        (uint64_t)(to - from) != t->n * c.bytes[k])
        return error_set(e, ERR_INPUT,
                         "%s: damaged: its column %s has another type, shape or place than %llu "
                         "tokens of the model need",
                         t->path, c.name[k], (unsigned long long)t->n);
    t->column[k] = t->map.data + start + from;
    t->stride[k] = c.bytes[k];
    return 0;
}

static int read_safetensors(struct trace *t, struct error *e)
{
    uint64_t n = 0;
    json_t *header;
    int rc;

    if ((rc = mapping_open(&t->map, t->path, e)) < 0)
        return rc;
    if (t->map.size >= 8)
        memcpy(&n, t->map.data, 8);
    if (t->map.size < 8 || n > t->map.size - 8 || n > HEADER_MAX)
        return error_set(e, ERR_INPUT, "%s: no routing trace, or its head is cut off", t->path);
    if (!(header = json_read(t->map.data + 8, (size_t)n, t->path, e)))
        return e->code = ERR_INPUT;
    if ((rc = read_head(t, header, e)) == 0) {
        if (json_object_get(header, "records"))
            read_part(t, 8 + n);
        for (int k = 0; k < TRACE_COLUMN_COUNT && rc == 0 && !json_object_get(header, "records");
             k++)
            rc = read_column(t, header, (enum trace_column)k, 8 + n, e);
    }
    json_decref(header);
    return rc;
}

/* A .jsonl becomes records in a file without a name. */
static int read_lines(struct trace *t, struct error *e)
{
    char name[64];
    FILE *f = tmpfile();
    int rc;

    if (!f)
        return error_set(e, ERR_IO, "%s: no temporary file for it: %s", t->path, strerror(errno));
    rc = trace_lines_read(t->path, fileno(f), &t->head, &t->n, &t->torn, e);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fileno(f));
    if (rc == 0 && (rc = mapping_open(&t->map, name, e)) == 0)
        use_records(t, 0, t->n);
    fclose(f);
    return rc;
}

/* ---- checks ---- */

static int broken(const struct trace *t, uint64_t i, const char *what, struct error *e)
{
    return error_set(e, ERR_INPUT, "%s: damaged: token %llu %s", t->path, (unsigned long long)i,
                     what);
}

static int check_layer(const struct trace *t, uint64_t i, int l, struct error *e)
{
    const struct trace_head *h = &t->head;

    if (trace_by(t, i, l) >= TRACE_BYS)
        return broken(t, i, "has experts that nobody known chose", e);
    for (int k = 0; k < h->slots; k++) {
        int x = trace_expert(t, i, l, k);

        if (x < -1 || x >= h->routed[l] || (k >= h->used[l] && x != -1))
            return broken(t, i, "has an expert that its layer has not", e);
        for (int j = 0; j < k && x >= 0; j++)
            if (trace_expert(t, i, l, j) == x)
                return broken(t, i, "has an expert twice in a layer", e);
        if (!isfinite(trace_weight(t, i, l, k)))
            return broken(t, i, "has a weight that is no finite number", e);
    }
    for (int x = 0; h->scores && x < h->routed[l]; x++)
        if (isnan(trace_score(t, i, l, x)))
            return broken(t, i, "has a score that is no number", e);
    return 0;
}

static int check_token(struct trace *t, uint64_t i, struct error *e)
{
    int sequence = trace_int(t, COLUMN_SEQUENCE, i);

    if (sequence < 0 || sequence > t->sequences)
        return broken(t, i, "is of a sequence that does not follow the ones before it", e);
    if (sequence == t->sequences)
        t->sequences++;
    if (trace_int(t, COLUMN_POSITION, i) < 0 || trace_int(t, COLUMN_TOKEN, i) < 0 ||
        trace_int(t, COLUMN_MESSAGE, i) < -1 || *trace_at(t, COLUMN_ROLE, i) >= TRACE_ROLES ||
        *trace_at(t, COLUMN_ANSWER, i) > 1 || *trace_at(t, COLUMN_CLASS, i) >= TRACE_CLASSES ||
        (t->column[COLUMN_SCRIPT] && (*trace_at(t, COLUMN_SCRIPT, i) >= TRACE_SCRIPTS ||
                                      *trace_at(t, COLUMN_STOPWORD, i) >= TRACE_STOPWORDS)))
        return broken(t, i, "has a position, id, message, role or class that does not exist", e);
    if (t->head.logprobs && !isnan(trace_logprob(t, i)) && !(trace_logprob(t, i) <= 0))
        return broken(t, i, "has a probability that is none", e);
    for (int l = 0; l < t->head.layers; l++)
        if (check_layer(t, i, l, e) < 0)
            return e->code;
    return 0;
}

int trace_open(struct trace **out, const char *path, struct error *e)
{
    struct trace *t = mem_alloc(1, sizeof *t);
    const char *dot = strrchr(path, '.');
    struct error own = {0};
    int rc;

    e = e ? e : &own;
    *out = NULL;
    if (!t || !(t->path = mem_string(path))) {
        mem_free(t);
        return error_set(e, ERR_MEMORY, "out of memory for %s", path);
    }
    rc = dot && !strcasecmp(dot, ".jsonl") ? read_lines(t, e) : read_safetensors(t, e);
    if (rc == 0 && t->n > INT32_MAX)
        rc = error_set(e, ERR_INPUT, "%s: more than %d tokens", path, INT32_MAX);
    for (uint64_t i = 0; rc == 0 && i < t->n; i++)
        rc = check_token(t, i, e);
    if (rc == 0)
        rc = mapping_check(&t->map, e);
    if (rc < 0) {
        trace_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void trace_close(struct trace *t)
{
    if (!t)
        return;
    mapping_close(&t->map);
    mem_free(t->path);
    mem_free(t);
}
