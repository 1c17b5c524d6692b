/* See report_format.h. */
#include "app/common/report_format.h"

#include "engine/base/file.h"

#include <jansson.h>
#include <stdlib.h>

int report_json(FILE *f, struct json_t *o, size_t flags, struct error *e)
{
    char *text = o ? json_dumps(o, flags | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(o);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for the results");
    fprintf(f, "%s\n", text);
    free(text); /* allocated by jansson */
    return 0;
}

int report_file(const char *path, int (*put)(FILE *f, const void *ctx, struct error *e),
                const void *ctx, struct error *e)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    int rc;

    if (!f)
        return error_set(e, ERR_MEMORY, "out of memory for '%s'", path);
    rc = put(f, ctx, e);
    fclose(f);
    if (rc == 0)
        rc = file_replace(path, text, size, e);
    free(text);
    return rc;
}

static int put_array(FILE *f, const struct report_table *t, struct error *e)
{
    json_t *all = json_array(), *one = NULL;
    int rc = 0;

    for (size_t i = 0; i < t->n && rc == 0; i++)
        if ((rc = t->json(t->ctx, i, &one, e)) == 0)
            json_array_append_new(all, one);
    if (rc == 0)
        return report_json(f, all, t->indent, e);
    json_decref(all);
    return rc;
}

int report_table(FILE *f, enum report_format format, const struct report_table *t, struct error *e)
{
    json_t *one = NULL;
    int rc = 0;

    if (format == REPORT_SQL)
        return error_set(e, ERR_USAGE, "%s writes md, csv, json or jsonl (-o)", t->option);
    if (format == REPORT_JSON)
        return put_array(f, t, e);
    if (format != REPORT_JSONL)
        fputs(format == REPORT_MD ? t->md : t->csv, f);
    for (size_t i = 0; i < t->n && rc == 0; i++) {
        if (format != REPORT_JSONL)
            rc = t->row(f, format, t->ctx, i, e);
        else if ((rc = t->json(t->ctx, i, &one, e)) == 0)
            rc = report_json(f, one, JSON_COMPACT, e);
    }
    return rc;
}

void report_quoted(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(f, "\\u%04x", (unsigned char)*s);
        else
            fputc(*s, f);
    }
    fputc('"', f);
}

const char *report_spread(const struct series_figures *v, double value, char out[48])
{
    if (v->n == 1)
        snprintf(out, 48, "%.2f (1 run)", value);
    else
        snprintf(out, 48, "%.2f ± %.2f", value, v->sd);
    return out;
}
