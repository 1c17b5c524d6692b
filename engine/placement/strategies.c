/* The table of strategies, and the parsers of their arguments. Constant data and pure functions:
 * any thread. */
#include "engine/placement/planner_fill.h"

#include "engine/base/size.h"

#include <string.h>

static int parse_layers(struct planner_spec *s, const char *a, struct error *e)
{
    if (a && strncmp(a, "first:", 6) == 0) {
        s->first = true;
        a += 6;
    }
    if (!a || planner_parse_number(a, &s->count) < 0)
        return error_set(e, ERR_USAGE,
                         "placement '%s': give a number of layers: layers:N for the last N, "
                         "layers:first:N for the first N",
                         s->text);
    return 0;
}

static int parse_experts(struct planner_spec *s, const char *a, struct error *e)
{
    if (!a || planner_parse_number(a, &s->count) < 0)
        return error_set(e, ERR_USAGE,
                         "placement '%s': give a number of experts of every layer: experts:N",
                         s->text);
    return 0;
}

static int parse_size_optional(struct planner_spec *s, const char *a, struct error *e)
{
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
    {"gpu", "gpu", "everything on the GPU, as far as it fits: attention, head, then experts by use",
     false, false, NULL, planner_fill_gpu},
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
    {"attention-gpu", "attention-gpu", "attention on the GPU, experts on the CPU", false, false,
     NULL, planner_fill_attention_gpu},
    {"experts-gpu", "experts-gpu", "experts on the GPU, attention on the CPU", false, false, NULL,
     planner_fill_experts_gpu},
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
