/* What a route is. The table of routes (app/serve/api/routes.h) depends on every API; code that
 * only needs a request's route (form of its errors, name, function) uses this. Constant; any
 * thread. */
#ifndef APP_SERVE_COMMON_ROUTE_H
#define APP_SERVE_COMMON_ROUTE_H

#include "app/serve/common/refusal.h"

#include <stdbool.h>
#include <stddef.h>

struct exchange;

/* What answering takes. */
enum route_needs {
    NEEDS_NOTHING, /* answered on the HTTP thread */
    NEEDS_THREAD,  /* computation, or files: a request thread */
    NEEDS_MODEL    /* the same, and the model: if it was unloaded it is loaded first */
};

struct route {
    const char *method, *path; /* a * at the end matches the non-empty rest */
    void (*answer)(struct exchange *x);
    bool open; /* needs no key */
    enum route_needs needs;
    enum api_form form;
    const char *help;
};

/* A short name without the common prefix: "chat/completions", "GET models". */
void route_name(const struct route *route, char *out, size_t size);

#endif
