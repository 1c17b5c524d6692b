/* What the server answers: one table, by which requests are dispatched, `405` knows the methods,
 * and the manual is printed. Any thread. */
#ifndef APP_SERVE_ROUTES_H
#define APP_SERVE_ROUTES_H

#include <stdbool.h>
#include <stddef.h>

struct exchange;
struct refusal;

struct route {
    const char *method, *path; /* a * at the end stands for the rest, which is not empty */
    void (*answer)(struct exchange *x);
    bool open;      /* needs no key */
    bool at_once;   /* answered on the HTTP thread: nothing is computed */
    bool anthropic; /* errors in that API's form */
    const char *help;
};

const struct route *route_at(size_t i); /* NULL behind the last */
/* As people read it: what all have in common is left out; "chat/completions", "GET models". */
void route_name(const struct route *route, char *out, size_t size);
/* The route of a request. NULL: *r says why, with *allow (a literal) where the path has other
 * methods. argument: what the * stands for. HEAD is GET. */
const struct route *route_find(const char *method, const char *path, char *argument, size_t size,
                               const char **allow, struct refusal *r);

#endif
