/* The calls of tools in a chat (--mcp): when an answer ends with calls, each is asked about or run,
 * its result is added to the transcript, and the model answers again. UI thread; the servers have
 * threads of their own (app/mcp/client.h). */
#include "app/chat/internal.h"

#include "app/mcp/record.h"
#include "app/mcp/result.h"

#include <stdio.h>
#include <string.h>

#define REFUSED "Error: the user has refused this call."
#define NOT_ALLOWED "Error: this call is not allowed."
#define STOPPED "Error: the user has stopped this call."
#define TOO_MANY "Error: not run: this was one call too many for one message."

int conversation_tools_open(struct conversation *c, struct error *e)
{
    const struct options *o = c->options;

    if (!o->mcp)
        return 0;
    return mcp_open(&c->tools.mcp, o->mcp, o->mcp_timeout, o->mcp_allow.items, o->mcp_allow.n, e);
}

void conversation_tools_close(struct conversation *c)
{
    round_release(&c->tools.round);
    mcp_close(c->tools.mcp);
    c->tools.mcp = NULL;
    calls_text_release(&c->tools.text);
}

/* Failures of servers are told once each. */
static void tell_servers(struct conversation *c)
{
    for (size_t i = 0; i < mcp_servers(c->tools.mcp); i++) {
        struct mcp_status status;

        mcp_status(c->tools.mcp, i, &status);
        if (status.state == MCP_FAILED && c->tools.told[i] != MCP_FAILED)
            conversation_say(c, SAY_TROUBLE, "tool server %s: %s",
                             mcp_server(c->tools.mcp, i)->name, status.why);
        c->tools.told[i] = status.state;
    }
}

/* ---- a round ---- */

static void end_round(struct conversation *c)
{
    bool go_on = !c->tools.round.stopped;

    round_release(&c->tools.round);
    c->tools.asked_at = 0;
    conversation_turn_save(c);
    if (!go_on || c->worker_gone)
        return;
    c->tools.going_on = true;
    conversation_answer(c, false);
    c->tools.going_on = false;
}

/* Results that have come are messages; -1: out of memory. */
static int take_results(struct conversation *c)
{
    struct chat_tool_calls *t = &c->tools;
    struct error e = {0};

    for (; t->taken < t->round.at; t->taken++) {
        if (record_result(&c->transcript, &t->round, t->taken, &e) < 0) {
            conversation_say(c, SAY_TROUBLE, "%s", e.text);
            return -1;
        }
        if (c->hooks.added)
            c->hooks.added(c->hooks.ctx, &c->transcript.entries[c->transcript.n - 1]);
    }
    return 0;
}

/* The current call needs permission: it is asked for, or refused at once. */
static bool ask(struct conversation *c)
{
    struct chat_tool_calls *t = &c->tools;

    if (c->hooks.asks) {
        if (t->asked_at != t->round.at + 1)
            t->asked++;
        t->asked_at = t->round.at + 1;
        return true;
    }
    conversation_say(c, SAY_NOTICE, "tool %s is not run: --mcp-allow does not name it",
                     t->round.tool->name);
    round_permit(&t->round, false, NOT_ALLOWED);
    return false;
}

/* Goes on as far as possible without waiting. */
static void step(struct conversation *c)
{
    struct chat_tool_calls *t = &c->tools;

    while (round_on(&t->round)) {
        enum round_state state = round_step(&t->round);

        if (take_results(c) < 0)
            round_stop(&t->round, STOPPED);
        if (state == ROUND_OVER)
            end_round(c);
        if (state == ROUND_RUNS || (state == ROUND_ASKS && ask(c)))
            return;
        if (state == ROUND_OVER)
            return;
    }
}

/* The newest answer has ended: its calls, if any, begin a round. */
static void look_at_answer(struct conversation *c)
{
    struct chat_tool_calls *t = &c->tools;
    json_t *calls = calls_read(&t->text, mcp_tools(t->mcp), c->transcript.n);
    struct error e = {0};

    t->due = false;
    if (!calls)
        return;
    if (record_calls(&c->transcript, calls, strbuf_text(&t->text.plain), &e) < 0) {
        json_decref(calls);
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return;
    }
    t->taken = t->asked_at = 0;
    if (round_begin(&t->round, t->mcp, calls, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return;
    }
    if (t->rounds++ < c->options->mcp_rounds)
        return;
    conversation_say(c, SAY_NOTICE,
                     "these calls are not run: %d answer%s since your message called tools already "
                     "(--mcp-rounds)",
                     c->options->mcp_rounds, c->options->mcp_rounds == 1 ? "" : "s");
    round_stop(&t->round, TOO_MANY);
}

void conversation_tools_pump(struct conversation *c)
{
    if (!c->tools.mcp)
        return;
    mcp_noticed(c->tools.mcp);
    tell_servers(c);
    if (c->tools.due)
        look_at_answer(c);
    step(c);
}

void conversation_tools_stop(struct conversation *c)
{
    c->tools.due = false;
    if (round_on(&c->tools.round))
        round_stop(&c->tools.round, STOPPED);
    step(c);
}

void conversation_permit(struct conversation *c, enum tool_permission permission)
{
    struct tool_question q;

    if (!conversation_question(c, &q))
        return;
    if (permission == TOOL_ALWAYS)
        mcp_always(c->tools.mcp, q.tool);
    round_permit(&c->tools.round, permission != TOOL_NEVER, REFUSED);
    step(c);
}
