/* See names.h. */
#include "app/mcp/names.h"

#include <stdio.h>
#include <string.h>

#define BETWEEN "__"

static void clean(char *out, size_t size, const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_-";
    size_t i;

    for (i = 0; text[i] && i + 1 < size; i++)
        out[i] = strchr(allowed, text[i]) ? text[i] : '_';
    out[i] = 0;
}

static void give_long(struct named *x)
{
    char server[NAMES_MOST / 2], own[NAMES_MOST];

    clean(server, sizeof server, x->server);
    clean(own, sizeof own, x->own);
    snprintf(x->name, sizeof x->name, "%s" BETWEEN "%.*s", server,
             (int)(sizeof x->name - strlen(server) - sizeof BETWEEN), own);
}

/* It could be taken for a tool of another server. */
static bool poses(const struct named *x, const struct named *list, size_t n)
{
    if (!strstr(x->name, BETWEEN))
        return false;
    for (size_t i = 0; i < n; i++) {
        char prefix[NAMES_MOST / 2 + sizeof BETWEEN];

        if (i && list[i].server == list[i - 1].server)
            continue;
        clean(prefix, NAMES_MOST / 2, list[i].server);
        strcat(prefix, BETWEEN);
        if (strcmp(list[i].server, x->server) != 0 && strncmp(x->name, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

static bool is_taken(const struct named *list, size_t n, size_t but)
{
    for (size_t i = 0; i < n; i++)
        if (i != but && strcmp(list[i].name, list[but].name) == 0)
            return true;
    return false;
}

/* A number at the end makes it unique among those before it. */
static void number(struct named *list, size_t at)
{
    char base[NAMES_MOST];

    memcpy(base, list[at].name, sizeof base);
    for (int k = 2; is_taken(list, at, at); k++) {
        char end[16];
        int n = snprintf(end, sizeof end, "_%d", k);

        snprintf(list[at].name, sizeof list[at].name, "%.*s%s", (int)sizeof base - 1 - n, base,
                 end);
    }
}

void names_give(struct named *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        clean(list[i].name, sizeof list[i].name, list[i].own);
    for (size_t i = 0; i < n; i++)
        list[i].shared = is_taken(list, n, i) || poses(&list[i], list, n);
    for (size_t i = 0; i < n; i++)
        if (list[i].shared)
            give_long(&list[i]);
    for (size_t i = 0; i < n; i++)
        number(list, i);
}
