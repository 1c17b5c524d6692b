/* The routes of the server: one table, used to dispatch requests, for the methods of status 405,
 * and to print the manual. Any thread. */
#ifndef APP_SERVE_API_ROUTES_H
#define APP_SERVE_API_ROUTES_H

#include "app/serve/common/route.h"

struct refusal;

const struct route *route_at(size_t i); /* NULL after the last */
/* The route of a request. NULL: *r says why, with *allow (a literal) if the path has other methods.
 * argument: what the * matches. HEAD is treated as GET. */
const struct route *route_find(const char *method, const char *path, char *argument, size_t size,
                               const char **allow, struct refusal *r);

#endif
