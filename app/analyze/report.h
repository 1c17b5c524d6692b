/* An analysis as a table, and as JSON with stable keys. Main thread. */
#ifndef APP_ANALYZE_REPORT_H
#define APP_ANALYZE_REPORT_H

#include "app/analyze/count.h"
#include "app/analyze/hints.h"
#include "app/analyze/machine.h"

#include <jansson.h>

struct analysis {
    const struct model *model;
    int context; /* tokens in the context, for attention and KV cache */
    struct analysis_count count;
    struct analysis_machine machine;
    struct analysis_hints hints;
};

void analysis_print(const struct analysis *a, FILE *out);
/* NULL: out of memory. */
json_t *analysis_json(const struct analysis *a);

/* The same of tensors alone; why: the reason that the model is not opened. */
void analysis_print_tensors(const struct analysis_by_tensors *by, const char *why, FILE *out);
json_t *analysis_tensors_json(const struct analysis_by_tensors *by, const char *why);

#endif
