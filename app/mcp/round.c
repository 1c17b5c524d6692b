/* See round.h. */
#include "app/mcp/round.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <string.h>

#define NAMES_TOLD 40 /* tools named where the model calls one that there is not */

int round_begin(struct round *r, struct mcp *m, json_t *calls, struct error *e)
{
    size_t n = json_array_size(calls);

    *r = (struct round){.mcp = m, .calls = calls, .n = n};
    if ((r->outcomes = mem_alloc(n + 1, sizeof *r->outcomes)))
        return 0;
    json_decref(calls);
    *r = (struct round){0};
    return error_set(e, ERR_MEMORY, "out of memory for the calls of tools");
}

void round_release(struct round *r)
{
    if (r->permitted && r->at < r->n)
        mcp_cancel(r->mcp);
    for (size_t i = 0; i < r->n; i++)
        mem_free(r->outcomes[i].text);
    mem_free(r->outcomes);
    json_decref(r->arguments);
    json_decref(r->calls);
    *r = (struct round){0};
}

bool round_on(const struct round *r)
{
    return r->calls != NULL;
}

const char *round_name(const struct round *r, size_t i)
{
    const json_t *f = json_object_get(json_array_get(r->calls, i), "function");
    const char *name = json_string_value(json_object_get(f, "name"));

    return name ? name : "";
}

/* ---- one call ---- */

/* Takes the text; the next call is the current one. */
static void end_call(struct round *r, enum round_verdict verdict, char *text, double seconds)
{
    r->outcomes[r->at++] = (struct round_outcome){text, verdict, seconds};
    json_decref(r->arguments);
    r->arguments = NULL;
    r->tool = NULL;
    r->permitted = false;
}

static char *unknown_text(const struct round *r)
{
    struct strbuf b = {0};
    const struct mcp_tool *t;
    char *text;

    strbuf_printf(&b, "Error: there is no tool %.100s.", round_name(r, r->at));
    for (size_t i = 0; i < NAMES_TOLD && (t = mcp_tool_at(r->mcp, i)); i++)
        strbuf_printf(&b, "%s%s", i ? ", " : " There are: ", t->name);
    text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    return text;
}

/* Looks at the current call; false: it ended at once, because it is wrong. */
static bool look_at(struct round *r)
{
    const json_t *f = json_object_get(json_array_get(r->calls, r->at), "function");
    const char *text = json_string_value(json_object_get(f, "arguments"));

    r->tool = mcp_tool_find(r->mcp, round_name(r, r->at));
    if (!r->tool) {
        end_call(r, ROUND_FAILED, unknown_text(r), 0);
        return false;
    }
    r->arguments = text && *text ? json_loads(text, JSON_ALLOW_NUL, NULL) : json_object();
    if (json_is_object(r->arguments))
        return true;
    end_call(r, ROUND_FAILED, mem_string("Error: the arguments are not a JSON object."), 0);
    return false;
}

static void start_call(struct round *r)
{
    struct error e = {0};

    if (mcp_call(r->mcp, r->tool, json_incref(r->arguments), &e) < 0)
        end_call(r, ROUND_FAILED, mem_string(e.text), 0);
    else
        r->permitted = true;
}

enum round_state round_step(struct round *r)
{
    while (r->at < r->n) {
        struct mcp_result result;

        if (r->stopped && !r->permitted) {
            end_call(r, ROUND_STOPPED, mem_string(r->stopped), 0);
            continue;
        }
        if (!r->tool && !look_at(r))
            continue;
        if (!r->permitted && !mcp_may_run(r->mcp, r->tool))
            return ROUND_ASKS;
        if (!r->permitted)
            start_call(r);
        if (!r->permitted)
            continue;
        if (!mcp_take(r->mcp, &result))
            return ROUND_RUNS;
        end_call(r,
                 result.stopped  ? ROUND_STOPPED
                 : result.failed ? ROUND_FAILED
                                 : ROUND_RAN,
                 result.text, result.seconds);
    }
    return ROUND_OVER;
}

void round_permit(struct round *r, bool run, const char *why)
{
    if (run)
        start_call(r);
    else
        end_call(r, ROUND_REFUSED, mem_string(why), 0);
}

void round_stop(struct round *r, const char *why)
{
    r->stopped = why;
    if (r->permitted)
        mcp_cancel(r->mcp);
}

void round_run(struct round *r, const struct stop *stop, const char *why,
               void (*refused)(void *ctx, const char *name), void *ctx)
{
    enum round_state state;

    while ((state = round_step(r)) != ROUND_OVER) {
        if (state == ROUND_ASKS) {
            if (refused)
                refused(ctx, r->tool->name);
            round_permit(r, false, why);
            continue;
        }
        mcp_wait(r->mcp);
        if (stop && stop->asked(stop->ctx))
            round_stop(r, why);
    }
}
