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

#endif
