/* See second.h. */
#include "app/lab/second.h"

#include "app/common/model_places.h"

#include <stdio.h>
#include <string.h>

bool second_wanted(const struct options *o)
{
    return o->beside || o->beside_set.n;
}

static int set_one(struct options *o, const char *item, struct error *e)
{
    const char *equals = strchr(item, '=');
    const struct option *option = NULL;
    char key[64];

    if (equals && equals > item && (size_t)(equals - item) < sizeof key) {
        snprintf(key, sizeof key, "%.*s", (int)(equals - item), item);
        option = options_find(key);
    }
    if (!option || !(option->place & OPTION_FILE))
        return error_set(e, ERR_USAGE,
                         "--beside-set %s: KEY=VALUE is wanted, KEY an option as in config.yaml "
                         "(place=gpu, lora=FILE, cache-type-k=q8_0)",
                         item);
    return options_set(o, option, equals + 1, ORIGIN_CHAT, "--beside-set", e);
}

int second_options(struct options *to, const struct options *o, struct error *e)
{
    int rc;

    *to = (struct options){0};
    if (o->connect)
        return error_set(e, ERR_USAGE,
                         "--beside: both models are computed here; leave --connect out");
    if (o->routing_trace || o->routing_replay)
        return error_set(e, ERR_USAGE,
                         "--beside: a routing trace is of one model; leave --routing-trace and "
                         "--routing-replay out");
    if ((rc = options_copy(to, o, e)) < 0)
        return rc;
    if (o->beside && (rc = options_set(to, &option_table[OPTION_ID_model], o->beside, ORIGIN_CHAT,
                                       "--beside", e)) < 0)
        return rc;
    for (size_t i = 0; i < o->beside_set.n; i++)
        if ((rc = set_one(to, o->beside_set.items[i], e)) < 0)
            return rc;
    return 0;
}

void second_name(const char *path, const struct option_list *set, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    size_t n;

    if (strstr(path, "/snapshots/")) { /* there the folder's name is a revision */
        model_places_name(path, out, size);
        n = strlen(out);
    } else {
        n = (size_t)snprintf(out, size, "%s", slash && slash[1] ? slash + 1 : path);
    }
    for (size_t i = 0; set && i < set->n && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, " %s", set->items[i]);
}
