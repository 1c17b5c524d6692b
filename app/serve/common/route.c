/* See route.h. */
#include "app/serve/common/route.h"

#include <stdio.h>
#include <string.h>

void route_name(const struct route *route, char *out, size_t size)
{
    const char *path = route->path;

    snprintf(out, size, "%s%s", strcmp(route->method, "POST") == 0 ? "" : "GET ",
             strncmp(path, "/v1/", 4) == 0 ? path + 4 : path + 1);
}
