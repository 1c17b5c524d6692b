/* See routes.h. */
#include "app/serve/api/routes.h"

#include "app/serve/api/apis.h"
#include "app/serve/common/refusal.h"

#include <string.h>

static const struct route routes[] = {
#define ROUTE(method, path, answer, open, needs, form, help) \
    {method, path, answer, open, needs, form, help},
#include "app/serve/api/routes.def"
#undef ROUTE
};

#define ROUTES (sizeof routes / sizeof *routes)

const struct route *route_at(size_t i)
{
    return i < ROUTES ? &routes[i] : NULL;
}

/* What the * matches, or "" if there is none; NULL: the path does not match. */
static const char *match(const struct route *route, const char *path)
{
    size_t n = strlen(route->path);

    if (route->path[n - 1] != '*')
        return strcmp(route->path, path) == 0 ? "" : NULL;
    return strncmp(route->path, path, n - 1) == 0 && path[n - 1] ? path + n - 1 : NULL;
}

/* The Allow header for the path of a request; NULL: no route has it. */
static const char *methods_of(const char *path)
{
    static const char *const words[] = {
        NULL,
        "GET, HEAD, OPTIONS",
        "POST, OPTIONS",
        "GET, HEAD, POST, OPTIONS",
        "DELETE, OPTIONS",
        "GET, HEAD, DELETE, OPTIONS",
        "POST, DELETE, OPTIONS",
        "GET, HEAD, POST, DELETE, OPTIONS",
    };
    unsigned has = 0;

    for (size_t i = 0; i < ROUTES; i++)
        if (match(&routes[i], path))
            has |= routes[i].method[0] == 'G' ? 1 : routes[i].method[0] == 'P' ? 2 : 4;
    return words[has];
}

const struct route *route_find(const char *method, const char *path, char *argument, size_t size,
                               const char **allow, struct refusal *r)
{
    const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;

    *allow = NULL;
    for (size_t i = 0; i < ROUTES; i++) {
        const char *rest = match(&routes[i], path);

        if (!rest)
            continue;
        if (strcmp(routes[i].method, wanted) == 0 && strlen(rest) < size) {
            strcpy(argument, rest);
            return &routes[i];
        }
    }
    if ((*allow = methods_of(path)))
        refuse(r, 405, "method_not_allowed", NULL, "%.20s is not for %.100s: use %s", method, path,
               *allow);
    else
        refuse(r, 404, "not_found", NULL,
               "there is no %.100s here; `man moetop` lists what there is", path);
    return NULL;
}
