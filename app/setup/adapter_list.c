/* See adapter_list.h. */
#include "app/setup/adapter_list.h"

#include "engine/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRENGTH_MOST 1000.0f

static int add(struct adapter_list *l, const char *path, size_t n, float strength, struct error *e)
{
    if (l->n == LORA_ADAPTERS)
        return error_set(e, ERR_USAGE, "--lora: more than %d adapters", LORA_ADAPTERS);
    if (!n)
        return error_set(e, ERR_USAGE, "--lora: an empty name between commas");
    l->all[l->n] = (struct adapter_request){mem_string_n(path, n), strength};
    return l->all[l->n].path ? (l->n++, 0) : error_set(e, ERR_MEMORY, "out of memory for --lora");
}

/* FILE:STRENGTH */
static int add_scaled(struct adapter_list *l, const char *text, size_t n, struct error *e)
{
    char item[4096], *colon, *end;
    float strength;

    if (n >= sizeof item)
        return error_set(e, ERR_USAGE, "--lora-scaled: a name of %zu bytes", n);
    memcpy(item, text, n);
    item[n] = 0;
    colon = strrchr(item, ':');
    strength = colon && colon[1] ? strtof(colon + 1, &end) : NAN;
    if (!isfinite(strength) || *end || fabsf(strength) > STRENGTH_MOST)
        return error_set(e, ERR_USAGE,
                         "--lora-scaled %.200s: FILE:STRENGTH is expected, a number behind the "
                         "colon (at most %g)",
                         item, (double)STRENGTH_MOST);
    return add(l, item, (size_t)(colon - item), strength, e);
}

static int add_item(struct adapter_list *l, bool scaled, const char *text, size_t n,
                    struct error *e)
{
    return scaled ? add_scaled(l, text, n, e) : add(l, text, n, 1.0f, e);
}

/* One value of an option: names separated by commas, or a name that contains commas itself. */
static int add_value(struct adapter_list *l, bool scaled, const char *text, struct error *e)
{
    int rc = 0;

    if (!scaled && access(text, F_OK) == 0)
        return add(l, text, strlen(text), 1.0f, e);
    for (const char *p = text; rc == 0; p++) {
        size_t n = strcspn(p, ",");

        rc = add_item(l, scaled, p, n, e);
        if (!*(p += n))
            break;
    }
    return rc;
}

int adapter_list_init(struct adapter_list *l, const struct options *o, struct error *e)
{
    int rc = 0;

    *l = (struct adapter_list){.n = 0};
    for (size_t i = 0; i < o->lora.n && rc == 0; i++)
        rc = add_value(l, false, o->lora.items[i], e);
    for (size_t i = 0; i < o->lora_scaled.n && rc == 0; i++)
        rc = add_value(l, true, o->lora_scaled.items[i], e);
    if (rc < 0)
        adapter_list_release(l);
    return rc;
}

void adapter_list_release(struct adapter_list *l)
{
    for (int i = 0; i < l->n; i++)
        mem_free((char *)l->all[i].path);
    *l = (struct adapter_list){.n = 0};
}
