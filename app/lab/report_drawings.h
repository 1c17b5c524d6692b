/* The drawings of a routing report, each as SVG and as the numbers in it (CSV). Pure; main
 * thread. */
#ifndef APP_LAB_REPORT_DRAWINGS_H
#define APP_LAB_REPORT_DRAWINGS_H

#include "app/lab/report.h"

#define REPORT_DRAWINGS 32 /* at most, of two traces */

struct report_drawing {
    int of;          /* index of the trace; -1: of both */
    char name[32];   /* of its files, without ending */
    char *svg, *csv; /* owned, mem_*; one line of names, then values with 17 digits */
};

struct report_drawings {
    struct report_drawing items[REPORT_DRAWINGS];
    int n;
};

/* c: NULL unless there are two. ERR_MEMORY; released in any case by the caller. */
int report_drawings_make(struct report_drawings *d, const struct trace_report *r, size_t n,
                         const struct trace_comparison *c, struct error *e);
void report_drawings_release(struct report_drawings *d);
/* NAME.svg and NAME.csv of each in this folder, which is made if there is none; the same report
 * gives the same bytes. ERR_IO, ERR_MEMORY. */
int report_drawings_write(const struct report_drawings *d, const char *folder, struct error *e);

#endif
