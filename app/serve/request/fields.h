/* The plain fields of a request's JSON object: a table of names, types and ranges, so that a wrong
 * value is refused naming the field, and never accepted silently. Fields that are in no table are
 * ignored: clients send many. null means absent. Pure; any thread. */
#ifndef APP_SERVE_REQUEST_FIELDS_H
#define APP_SERVE_REQUEST_FIELDS_H

#include "app/serve/common/refusal.h"

#include <stddef.h>

enum field_type {
    FIELD_BOOL, /* bool */
    FIELD_INT,  /* int64_t */
    FIELD_REAL, /* double */
    FIELD_TEXT  /* const char *: owned by the request */
};

struct field {
    const char *name;
    enum field_type type;
    double least, most; /* INT, REAL */
    size_t offset;      /* of its value in *out */
};

/* Absent fields leave *out unchanged. -1: refused. */
int fields_read(const json_t *o, const struct field *table, size_t n, void *out, struct refusal *r);
/* NULL also for null. */
const json_t *field_get(const json_t *o, const char *name);

#endif
