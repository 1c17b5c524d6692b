/* See report_format.h. */
#include "app/common/report_format.h"

#include <jansson.h>
#include <stdlib.h>

int report_json(FILE *f, struct json_t *o, size_t flags, struct error *e)
{
    char *text = o ? json_dumps(o, flags | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(o);
    if (!text)
        return error_set(e, ERR_MEMORY, "out of memory for the results");
    fprintf(f, "%s\n", text);
    free(text); /* jansson's own */
    return 0;
}

const char *report_spread(const struct series_figures *v, double value, char out[48])
{
    if (v->n == 1)
        snprintf(out, 48, "%.2f (1 run)", value);
    else
        snprintf(out, 48, "%.2f ± %.2f", value, v->sd);
    return out;
}
