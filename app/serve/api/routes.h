/* What the server answers: one table, by which requests are dispatched, `405` knows the methods,
 * and the manual is printed. Any thread. */
#ifndef APP_SERVE_API_ROUTES_H
#define APP_SERVE_API_ROUTES_H

#include "app/serve/common/route.h"

struct refusal;

const struct route *route_at(size_t i); /* NULL behind the last */
/* The route of a request. NULL: *r says why, with *allow (a literal) where the path has other
 * methods. argument: what the * stands for. HEAD is GET. */
const struct route *route_find(const char *method, const char *path, char *argument, size_t size,
                               const char **allow, struct refusal *r);

#endif
