/* /mcp: the tool servers of --mcp. UI thread. */
#include "app/chat/commands/internal.h"

#include "engine/base/utf8.h"

#include <string.h>

#define DESCRIBED 60 /* columns of a tool's description */

static const char *state_word(enum mcp_state state)
{
    return state == MCP_READY ? "ready" : state == MCP_STARTING ? "starting" : "failed";
}

static void put_server(struct strbuf *b, struct mcp *m, size_t i)
{
    struct mcp_status s;

    mcp_status(m, i, &s);
    strbuf_printf(b, "%s: %s", mcp_server(m, i)->name, state_word(s.state));
    if (s.state == MCP_FAILED)
        strbuf_printf(b, ", %s", s.why);
    if (s.about[0])
        strbuf_printf(b, " (%s)", s.about);
    if (s.starts)
        strbuf_printf(b, ", started in %.1f s%s", s.start_s,
                      s.starts > 1 ? ", not the first time" : "");
    if (s.calls)
        strbuf_printf(b, ", %u call%s in %.1f s, %u failed", s.calls, s.calls == 1 ? "" : "s",
                      s.call_s, s.failures);
    if (s.left_out)
        strbuf_printf(b, ", %zu tools too many are left out", s.left_out);
    strbuf_putc(b, '\n');
}

/* A tool's name, and the beginning of what its server says about it. */
static void put_tool(struct strbuf *b, const struct conversation *c, const struct mcp *m,
                     const struct mcp_tool *t)
{
    const char *text = json_string_value(json_object_get(t->described, "description"));
    size_t columns = chat_columns(c, 30), n;
    char line[4 * DESCRIBED + 1] = "";

    if (text) {
        utf8_escape(line, sizeof line, text, strcspn(text, "\n"), 0);
        n = utf8_fit(line, strlen(line), columns, NULL);
        line[n] = 0;
    }
    strbuf_printf(b, "  %-24s %s%s\n", t->name, mcp_may_run(m, t) ? "(allowed) " : "", line);
}

static int list(struct conversation *c, struct mcp *m)
{
    struct strbuf b = {0};

    if (!conversation_busy(c))
        mcp_refresh(m);
    for (size_t i = 0; i < mcp_servers(m); i++) {
        const struct mcp_tool *t;

        put_server(&b, m, i);
        for (size_t k = 0; (t = mcp_tool_at(m, k)); k++)
            if (t->at == i)
                put_tool(&b, c, m, t);
    }
    if (!b.len)
        strbuf_puts(&b, "the file of --mcp names no servers\n");
    return chat_output(c, &b);
}

int chat_mcp(struct conversation *c, const char *arguments)
{
    struct mcp *m = conversation_mcp(c);

    if (!m) {
        conversation_say(c, SAY_NOTICE, "there are no tools: --mcp FILE names servers of them");
        return -1;
    }
    if (!arguments[0])
        return list(c, m);
    if (strcmp(arguments, "ask") == 0) {
        mcp_always_none(m);
        conversation_say(c, SAY_NOTICE, "every tool is asked about again");
        return 0;
    }
    for (size_t i = 0; i < mcp_servers(m); i++)
        if (strcmp(mcp_server(m, i)->name, arguments) == 0) {
            mcp_restart(m, i);
            conversation_say(c, SAY_NOTICE, "restarting %s", arguments);
            return 0;
        }
    conversation_say(c, SAY_NOTICE, "there is no tool server %s; /mcp lists them", arguments);
    return -1;
}

void chat_complete_mcp(struct conversation *c, const char *line, const char *word, char ***list,
                       size_t *n)
{
    struct mcp *m = conversation_mcp(c);

    for (size_t i = 0; m && i < mcp_servers(m); i++)
        chat_completion_add(list, n, mcp_server(m, i)->name, word);
    if (m)
        chat_completion_add(list, n, "ask", word);
}
