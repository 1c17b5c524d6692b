/* The table of strategies, and the parsers of their arguments. Constant data and pure functions:
 * any thread. */
#include "engine/placement/planner_fill.h"

#include "engine/base/size.h"

#include <string.h>

/* "4G", or "all". */
static int share_size(const char *text, uint64_t *out)
{
    if (strcmp(text, "all") != 0)
        return size_parse(text, out);
    *out = PLANNER_NO_LIMIT;
    return 0;
}

/* One "1=VALUE" of a list. */
static int parse_share(struct planner_spec *s, char *item, bool sizes)
{
    struct planner_share *share = &s->share[s->n_shares];
    char *value = strchr(item, '=');

    if (s->n_shares == PLANNER_DEVICES || !value)
        return -1;
    *value++ = 0;
    *share = (struct planner_share){.size = PLANNER_NO_LIMIT};
    if (planner_parse_number(item, &share->number) < 0 ||
        (sizes ? share_size(value, &share->size) : planner_parse_number(value, &share->count)) < 0)
        return -1;
    for (int i = 0; i < s->n_shares; i++)
        if (s->share[i].number == share->number)
            return -1;
    s->n_shares++;
    return 0;
}

/* "0=4G,1=2G": devices by their numbers, with sizes or with counts. 1: it is such a list; 0: it is
 * none. */
static int parse_shares(struct planner_spec *s, const char *a, bool sizes, struct error *e)
{
    char list[PLAN_NAME], *rest = list, *item;

    if (!a || !strchr(a, '='))
        return 0;
    memcpy(list, a, strlen(a) + 1); /* a part of s->text */
    while ((item = strsep(&rest, ",")))
        if (parse_share(s, item, sizes) < 0)
            return error_set(e, ERR_USAGE,
                             "placement '%s': write each device's number once and its %s, for "
                             "example %s:%s",
                             s->text, sizes ? "size" : "count", s->planner->name,
                             sizes ? "0=4G,1=2G" : "0=12,1=8");
    return 1;
}

/* "1" or "1+0": devices by their numbers, to be filled in this order. */
static int parse_devices(struct planner_spec *s, const char *a, struct error *e)
{
    char list[PLAN_NAME], *rest = list, *item;

    if (!a)
        return 0;
    memcpy(list, a, strlen(a) + 1); /* a part of s->text */
    while ((item = strsep(&rest, "+"))) {
        struct planner_share *share = &s->share[s->n_shares];
        bool good = s->n_shares < PLANNER_DEVICES &&
                    planner_parse_number(item, &share->number) == 0;

        for (int i = 0; i < s->n_shares && good; i++)
            good = s->share[i].number != share->number;
        if (!good)
            return error_set(e, ERR_USAGE,
                             "placement '%s': write each device's number once, for example %s:1 or "
                             "%s:1+0",
                             s->text, s->planner->name, s->planner->name);
        share->size = PLANNER_NO_LIMIT;
        s->n_shares++;
    }
    return 0;
}

static int parse_layers(struct planner_spec *s, const char *a, struct error *e)
{
    int rc;

    if (a && strncmp(a, "first:", 6) == 0) {
        s->first = true;
        a += 6;
    }
    if ((rc = parse_shares(s, a, false, e)))
        return rc < 0 ? rc : 0;
    if (!a || planner_parse_number(a, &s->count) < 0)
        return error_set(e, ERR_USAGE,
                         "placement '%s': give a number of layers: layers:N for the last N, "
                         "layers:first:N for the first N",
                         s->text);
    return 0;
}

static int parse_experts(struct planner_spec *s, const char *a, struct error *e)
{
    int rc = parse_shares(s, a, false, e);

    if (rc)
        return rc < 0 ? rc : 0;
    if (!a || planner_parse_number(a, &s->count) < 0)
        return error_set(e, ERR_USAGE,
                         "placement '%s': give a number of experts of every layer: experts:N",
                         s->text);
    return 0;
}

static int parse_size_optional(struct planner_spec *s, const char *a, struct error *e)
{
    int rc = parse_shares(s, a, true, e);

    if (rc)
        return rc < 0 ? rc : 0;
    if (a && size_parse(a, &s->size) < 0)
        return error_set(e, ERR_USAGE,
                         "placement '%s': '%s' is no size; sizes look like 600M or 2G", s->text, a);
    return 0;
}

static int parse_size(struct planner_spec *s, const char *a, struct error *e)
{
    if (!a)
        return error_set(e, ERR_USAGE,
                         "placement '%s': give a size, for example memory:600M or memory:2G",
                         s->text);
    return parse_size_optional(s, a, e);
}

const struct planner planners[] = {
    {"cpu", "cpu", "everything on the CPU", false, true, NULL, planner_fill_cpu},
    {"gpu", "gpu[:N]",
     "everything on the GPU (number N), as far as it fits: attention, head, then experts by use",
     false, false, parse_devices, planner_fill_gpu},
    {"layers", "layers:[first:]N", "the last (or first) N whole layers on the GPU", false, false,
     parse_layers, planner_fill_layers},
    {"experts", "experts:N", "the first N experts of every layer on the GPU", false, false,
     parse_experts, planner_fill_experts},
    {"hot", "hot[:SIZE]", "the most used experts on the GPU, within SIZE or what is free", false,
     false, parse_size_optional, planner_fill_hot},
    {"memory", "memory:SIZE",
     "as much as fits in SIZE: attention first, then the head, then experts by use", false, false,
     parse_size, planner_fill_memory},
    {"stream", "stream[:SIZE]",
     "everything on the GPU; experts beyond SIZE, or what is free, are copied there when a token "
     "asks "
     "for them",
     false, false, parse_size_optional, planner_fill_stream},
    {"attention-gpu", "attention-gpu[:N]", "attention on the GPU, experts on the CPU", false, false,
     parse_devices, planner_fill_attention_gpu},
    {"experts-gpu", "experts-gpu[:N]", "experts on the GPU, attention on the CPU", false, false,
     parse_devices, planner_fill_experts_gpu},
    {"balanced", "balanced[:SIZE]",
     "the split with the shortest modelled token, from measured costs", false, false,
     parse_size_optional, planner_fill_balanced},
    {"dynamic", "dynamic[:SIZE]",
     "follows the use while it talks: swaps cold experts for hot ones, a little at a time", true,
     false, parse_size_optional, planner_fill_dynamic},
    {"auto", "auto", "what was measured to be fastest with this model on this machine, else cpu",
     false, true, NULL, planner_fill_auto},
};
const int n_planners = (int)(sizeof planners / sizeof *planners);
