/* See tool_talk.h. */
#include "app/headless/tool_talk.h"

#include "app/common/signals.h"
#include "app/mcp/record.h"
#include "app/mcp/result.h"
#include "app/mcp/telling.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>

#define REFUSED "Error: this call is not allowed."

static bool interrupted(void *ctx)
{
    return signals_last() != 0;
}

static const struct stop stop_by_signal = {interrupted, NULL};

/* ---- the servers ---- */

/* Failed servers are told; returns how many work. */
static size_t tell_servers(struct mcp *m)
{
    size_t good = 0;

    for (size_t i = 0; i < mcp_servers(m); i++) {
        struct mcp_status status;

        mcp_status(m, i, &status);
        good += status.state == MCP_READY;
        if (status.state != MCP_READY)
            fprintf(stderr, "moetop: tool server %s is left out: %s\n", mcp_server(m, i)->name,
                    status.why);
    }
    return good;
}

/* Whether a name of --mcp-allow means anything. */
static bool is_known(struct mcp *m, const char *name)
{
    if (strcmp(name, "*") == 0 || mcp_tool_find(m, name))
        return true;
    for (size_t i = 0; i < mcp_servers(m); i++)
        if (strcmp(mcp_server(m, i)->name, name) == 0)
            return true;
    return false;
}

int tool_talk_open(const struct options *o, struct mcp **out, struct error *e)
{
    int rc;

    *out = NULL;
    if (!o->mcp)
        return 0;
    if ((rc = mcp_open(out, o->mcp, o->mcp_timeout, o->mcp_allow.items, o->mcp_allow.n, e)) < 0)
        return rc;
    rc = mcp_wait_started(*out, &stop_by_signal, e);
    if (rc == 0 && !tell_servers(*out) && mcp_servers(*out))
        rc = error_set(e, ERR_IO, "--mcp %s: no tool server could be started", o->mcp);
    if (rc < 0) {
        mcp_close(*out);
        *out = NULL;
        return rc;
    }
    mcp_refresh(*out);
    for (size_t i = 0; i < o->mcp_allow.n; i++)
        if (!is_known(*out, o->mcp_allow.items[i]))
            fprintf(stderr, "moetop: --mcp-allow %s: there is no such tool, and no such server\n",
                    o->mcp_allow.items[i]);
    return 0;
}

/* ---- the conversation ---- */

int tool_talk_begin(struct tool_talk *t, struct mcp *mcp, const struct options *o,
                    const char *where, const struct dialogue *said, struct error *e)
{
    int rc = 0;

    *t = (struct tool_talk){.mcp = mcp, .o = o, .where = where, .told = json_array()};
    transcript_init(&t->said);
    if (said->raw)
        return error_set(e, ERR_USAGE, "--mcp: a raw text is completed without tools");
    for (size_t i = 0; i < said->n_messages && rc == 0; i++)
        rc = transcript_append(&t->said, said->messages[i].role, said->messages[i].text, e);
    return rc;
}

void tool_talk_release(struct tool_talk *t)
{
    calls_text_release(&t->text);
    transcript_release(&t->said);
    json_decref(t->told);
    *t = (struct tool_talk){0};
}

int tool_talk_dialogue(const struct tool_talk *t, const struct chat_tools *knows,
                       struct dialogue *out, struct error *e)
{
    int rc;

    *out = (struct dialogue){0};
    rc = transcript_messages(&t->said, &out->messages, &out->n_messages, e);
    if (rc == 0)
        rc = telling_apply(out, mcp_tools(t->mcp), knows, e);
    if (rc < 0)
        dialogue_release(out);
    return rc;
}

void tool_talk_note(struct tool_talk *t, const struct event *ev)
{
    if (ev->kind == EVENT_TOKEN)
        calls_text_note(&t->text, &ev->token);
}

/* ---- calls ---- */

static void tell(const struct tool_talk *t, const char *name, const char *what)
{
    char safe[200];

    mcp_line(safe, sizeof safe, name);
    fprintf(stderr, "moetop: %stool %s %s\n", t->where, safe, what);
}

static void on_refused(void *ctx, const char *name)
{
    tell(ctx, name, "is not run: --mcp-allow does not name it");
}

/* The calls of a round are told, and its results become messages. */
static int take_round(struct tool_talk *t, const struct round *r, struct error *e)
{
    static const char *const verdicts[] = {[ROUND_RAN] = "ran",
                                           [ROUND_FAILED] = "failed",
                                           [ROUND_REFUSED] = "refused",
                                           [ROUND_STOPPED] = "stopped"};

    for (size_t i = 0; i < r->n; i++) {
        const struct round_outcome *x = &r->outcomes[i];
        const json_t *f = json_object_get(json_array_get(r->calls, i), "function");
        char what[120];

        snprintf(what, sizeof what, "%s: %.1f s, %zu bytes", verdicts[x->verdict], x->seconds,
                 x->text ? strlen(x->text) : 0);
        if (x->verdict != ROUND_REFUSED)
            tell(t, round_name(r, i), what);
        json_array_append_new(
            t->told, json_pack("{s:s, s:O*, s:s, s:s*, s:f}", "name", round_name(r, i), "arguments",
                               json_object_get(f, "arguments"), "verdict", verdicts[x->verdict],
                               "result", x->text, "seconds", x->seconds));
        if (record_result(&t->said, r, i, e) < 0)
            return e->code;
    }
    return 1;
}

static int run_round(struct tool_talk *t, json_t *calls, struct error *e)
{
    struct round round;
    int rc = round_begin(&round, t->mcp, calls, e);

    if (rc < 0)
        return rc;
    round_run(&round, &stop_by_signal, REFUSED, on_refused, t);
    rc = take_round(t, &round, e);
    round_release(&round);
    if (rc > 0 && signals_last())
        rc = error_set(e, ERR_CANCELLED, "interrupted");
    if (rc > 0)
        mcp_refresh(t->mcp); /* a server may have changed its tools */
    return rc;
}

int tool_talk_next(struct tool_talk *t, enum stop_reason stop, struct error *e)
{
    json_t *calls = NULL;
    int rc;

    if (stop == STOP_TOKEN || stop == STOP_STRING)
        calls = calls_read(&t->text, mcp_tools(t->mcp), t->said.n);
    if (calls && t->rounds >= t->o->mcp_rounds) {
        fprintf(stderr, "moetop: %sthe calls of the last answer are not run: --mcp-rounds is %d\n",
                t->where, t->o->mcp_rounds);
        json_decref(calls);
        return 0;
    }
    if (!calls)
        return 0;
    t->rounds++;
    if ((rc = transcript_append(&t->said, ROLE_ASSISTANT, strbuf_text(&t->text.plain), e)) < 0 ||
        (rc = record_calls(&t->said, calls, strbuf_text(&t->text.plain), e)) < 0) {
        json_decref(calls);
        return rc;
    }
    calls_text_clear(&t->text);
    return run_round(t, calls, e);
}
