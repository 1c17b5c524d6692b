/* See record.h. */
#include "app/mcp/record.h"

#include "app/mcp/result.h"

#include <string.h>

static const char *const verdicts[] = {[ROUND_RAN] = "",
                                       [ROUND_FAILED] = "failed",
                                       [ROUND_REFUSED] = "refused",
                                       [ROUND_STOPPED] = "stopped"};

int record_calls(struct transcript *t, const json_t *calls, const char *plain, struct error *e)
{
    json_t *copy = json_deep_copy(calls);
    json_t *tools = json_pack("{s:o, s:s}", "tool_calls", copy, "content", plain);

    if (!tools)
        return error_set(e, ERR_MEMORY, "out of memory for the calls of tools");
    transcript_tools(t, t->n - 1, tools);
    return 0;
}

int record_result(struct transcript *t, const struct round *r, size_t i, struct error *e)
{
    const json_t *call = json_array_get(r->calls, i);
    const struct round_outcome *x = &r->outcomes[i];
    const struct mcp_tool *tool = mcp_tool_find(r->mcp, round_name(r, i));
    json_t *tools = json_pack("{s:O*, s:s, s:{s:s*, s:f, s:s*}}", "tool_call_id",
                              json_object_get(call, "id"), "name", round_name(r, i), "tool_run",
                              "server", tool ? tool->server : NULL, "seconds", x->seconds,
                              "verdict", x->verdict == ROUND_RAN ? NULL : verdicts[x->verdict]);
    int rc = tools && x->text ? transcript_append(t, ROLE_TOOL, x->text, e)
                              : error_set(e, ERR_MEMORY, "out of memory for the result of a tool");

    if (rc < 0)
        json_decref(tools);
    else
        transcript_tools(t, t->n - 1, tools);
    return rc;
}

void record_line(const struct transcript_entry *x, char *out, size_t size)
{
    const json_t *run = json_object_get(x->tools, "tool_run");
    const char *name = json_string_value(json_object_get(x->tools, "name")),
               *server = json_string_value(json_object_get(run, "server")),
               *verdict = json_string_value(json_object_get(run, "verdict"));
    double seconds = json_number_value(json_object_get(run, "seconds"));
    char line[200], took[32] = "";

    if (seconds > 0)
        snprintf(took, sizeof took, ", %.1f s", seconds);
    snprintf(line, sizeof line, "%.64s%s%.48s%s%s%.20s", name ? name : "", server ? " of " : "",
             server ? server : "", took, verdict ? ", " : "", verdict ? verdict : "");
    mcp_line(out, size, line);
}
