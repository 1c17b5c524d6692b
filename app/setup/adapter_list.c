/* See adapter_list.h. */
#include "app/setup/adapter_list.h"

#include "engine/base/mem.h"
#include "engine/base/size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRENGTH_MOST 1000.0f

static int add(struct adapter_list *l, const char *path, size_t n, float strength, struct error *e)
{
    if (l->n == LORA_ADAPTERS)
        return error_set(e, ERR_USAGE, "%s: more than %d files", l->option, LORA_ADAPTERS);
    if (!n)
        return error_set(e, ERR_USAGE, "%s: an empty name between commas", l->option);
    l->all[l->n] = (struct adapter_request){mem_string_n(path, n), strength};
    return l->all[l->n].path ? (l->n++, 0)
                             : error_set(e, ERR_MEMORY, "out of memory for %s", l->option);
}

/* FILE:STRENGTH */
static int add_scaled(struct adapter_list *l, const char *text, size_t n, struct error *e)
{
    char item[4096], *colon, *end;
    float strength;

    if (n >= sizeof item)
        return error_set(e, ERR_USAGE, "%s-scaled: a name of %zu bytes", l->option, n);
    memcpy(item, text, n);
    item[n] = 0;
    colon = strrchr(item, ':');
    strength = colon && colon[1] ? strtof(colon + 1, &end) : NAN;
    if (!isfinite(strength) || *end || fabsf(strength) > STRENGTH_MOST)
        return error_set(e, ERR_USAGE,
                         "%s-scaled %.200s: FILE:STRENGTH is expected, a number behind the "
                         "colon (at most %g)",
                         l->option, item, (double)STRENGTH_MOST);
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

    *l = (struct adapter_list){.option = "--lora"};
    for (size_t i = 0; i < o->lora.n && rc == 0; i++)
        rc = add_value(l, false, o->lora.items[i], e);
    for (size_t i = 0; i < o->lora_scaled.n && rc == 0; i++)
        rc = add_value(l, true, o->lora_scaled.items[i], e);
    if (rc < 0)
        adapter_list_release(l);
    return rc;
}

int control_list_init(struct control_list *c, const struct options *o, struct error *e)
{
    const struct option_list *range = &o->control_vector_layer_range;
    int *const ends[] = {&c->first, &c->last};
    int rc = 0;

    *c = (struct control_list){.files.option = "--control-vector"};
    for (size_t i = 0; i < o->control_vector.n && rc == 0; i++)
        rc = add_value(&c->files, false, o->control_vector.items[i], e);
    for (size_t i = 0; i < o->control_vector_scaled.n && rc == 0; i++)
        rc = add_value(&c->files, true, o->control_vector_scaled.items[i], e);
    if (rc == 0 && range->n && (range->n != 2 || !c->files.n))
        rc = error_set(e, ERR_USAGE,
                       "--control-vector-layer-range START END goes with "
                       "--control-vector FILE, once");
    for (size_t i = 0; i < range->n && rc == 0; i++) {
        const char *p = range->items[i];

        if (size_digits(&p, 1 << 20, ends[i]) < 0 || *p || (i && !c->last))
            rc = error_set(e, ERR_USAGE,
                           "--control-vector-layer-range %s: two numbers of layers are expected",
                           range->items[i]);
    }
    if (rc < 0)
        adapter_list_release(&c->files);
    return rc;
}

void adapter_list_release(struct adapter_list *l)
{
    for (int i = 0; i < l->n; i++)
        mem_free((char *)l->all[i].path);
    *l = (struct adapter_list){.n = 0};
}
