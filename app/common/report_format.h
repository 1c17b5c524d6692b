/* Output formats of reports, in the order of the words of --bench-format: those of llama-bench. */
#ifndef APP_COMMON_REPORT_FORMAT_H
#define APP_COMMON_REPORT_FORMAT_H

#include "engine/base/error.h"
#include "engine/base/series.h"

#include <stdio.h>

enum report_format { REPORT_MD, REPORT_CSV, REPORT_JSON, REPORT_JSONL, REPORT_SQL };

struct json_t;

/* Writes o (taken; NULL: allocation failed) as a line, flags: of json_dumps. ERR_MEMORY. */
int report_json(FILE *f, struct json_t *o, size_t flags, struct error *e);
/* Writes a report into a file, whole or not at all: put writes its JSON. ERR_MEMORY, ERR_IO, and
 * what put returns. */
int report_file(const char *path, int (*put)(FILE *f, const void *ctx, struct error *e),
                const void *ctx, struct error *e);

/* A report of rows. row writes row i as Markdown or CSV, line break included; json makes its JSON
 * (NULL: no memory). Negative with *e filled ends the report. */
struct report_table {
    const char *option;   /* named in the error for SQL, "--bench-verify" */
    const char *md, *csv; /* header lines, line breaks included */
    size_t n;
    size_t indent; /* of REPORT_JSON: flags of json_dumps */
    int (*row)(FILE *f, enum report_format format, const void *ctx, size_t i, struct error *e);
    int (*json)(const void *ctx, size_t i, struct json_t **out, struct error *e);
    const void *ctx;
};

/* The whole table. ERR_USAGE: SQL. */
int report_table(FILE *f, enum report_format format, const struct report_table *t, struct error *e);
/* s as a JSON string, quotes included. */
void report_quoted(FILE *f, const char *s);
/* A cell of a table: "12.30 ± 0.40" with two decimals, for one sample "12.30 (1 run)". value: the
 * mean or the median of v. */
const char *report_spread(const struct series_figures *v, double value, char out[48]);

#endif
