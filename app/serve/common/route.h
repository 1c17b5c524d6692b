/* What a route is. The table of all of them (app/serve/api/routes.h) knows every API; who only asks
 * what the route of a request is (its errors' form, its name, its function) knows this. Constant;
 * any thread. */
#ifndef APP_SERVE_COMMON_ROUTE_H
#define APP_SERVE_COMMON_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;

struct route {
    const char *method, *path; /* a * at the end stands for the rest, which is not empty */
    void (*answer)(struct exchange *x);
    bool open;      /* needs no key */
    bool at_once;   /* answered on the HTTP thread: nothing is computed */
    bool anthropic; /* errors in that API's form */
    const char *help;
};

/* As people read it: what all have in common is left out; "chat/completions", "GET models". */
void route_name(const struct route *route, char *out, size_t size);

#endif
