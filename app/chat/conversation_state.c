/* Accessors for the state of a conversation, for the display and the other files, and its notices.
 * Calls none of those files except conversation_link.c. UI thread. */
#include "app/chat/internal.h"
#include "engine/base/log.h"

#include <stdarg.h>
#include <stdio.h>

void conversation_say(struct conversation *c, enum conversation_say kind, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_write(kind == SAY_TROUBLE ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, "%s", line);
    if (c->hooks.say)
        c->hooks.say(c->hooks.ctx, kind, line);
}

bool conversation_busy(const struct conversation *c)
{
    return c->busy || c->beside_busy || c->tools.due || round_on(&c->tools.round);
}

bool conversation_working(const struct conversation *c)
{
    return conversation_busy(c) || c->calls > 0;
}

int conversation_calls(const struct conversation *c)
{
    return c->calls;
}

bool conversation_ready(const struct conversation *c)
{
    return c->ready;
}

bool conversation_over(const struct conversation *c)
{
    return c->over || (c->worker_gone && !c->ready);
}

void conversation_quit(struct conversation *c)
{
    c->over = true;
}

const struct stats *conversation_stats(struct conversation *c)
{
    const struct engine_info *info = conversation_info(c);
    const struct telemetry *t = conversation_telemetry(c);

    if (!t || (!info && !c->remote))
        return NULL;
    stats_take(&c->stats, info, t);
    return &c->stats;
}

struct options *conversation_options(struct conversation *c)
{
    return c->options;
}

int conversation_tools_fd(const struct conversation *c)
{
    return c->tools.mcp ? mcp_fd(c->tools.mcp) : -1;
}

struct mcp *conversation_mcp(const struct conversation *c)
{
    return c->tools.mcp;
}

const struct mcp_tool *conversation_tool_running(const struct conversation *c)
{
    return round_on(&c->tools.round) && c->tools.round.permitted ? c->tools.round.tool : NULL;
}

bool conversation_question(const struct conversation *c, struct tool_question *out)
{
    const struct round *r = &c->tools.round;

    if (!round_on(r) || c->tools.asked_at != r->at + 1 || !r->tool || r->permitted)
        return false;
    *out = (struct tool_question){.serial = c->tools.asked,
                                  .tool = r->tool,
                                  .arguments = r->arguments,
                                  .at = r->at + 1,
                                  .of = r->n};
    return true;
}

const struct conversation_hooks *conversation_hooks(const struct conversation *c)
{
    return &c->hooks;
}
