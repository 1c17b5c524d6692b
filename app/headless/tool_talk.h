/* A conversation without a screen in which the model calls tools (--mcp): nobody can be asked, so
 * calls run if --mcp-allow names them, and are refused otherwise. What happens is told on standard
 * error. Main thread. */
#ifndef APP_HEADLESS_TOOL_TALK_H
#define APP_HEADLESS_TOOL_TALK_H

#include "app/common/transcript.h"
#include "app/mcp/calls.h"
#include "app/mcp/mcp.h"
#include "app/options/options.h"
#include "engine/text/chat_tools.h"

/* Starts the servers of --mcp and waits for them: *out; NULL: there is no --mcp. A server that
 * fails is told and left out; ERR_IO if all do. ERR_USAGE, ERR_CANCELLED, ERR_MEMORY. Free with
 * mcp_close.
 */
int tool_talk_open(const struct options *o, struct mcp **out, struct error *e);

struct tool_talk {
    struct mcp *mcp;
    const struct options *o;
    const char *where; /* "line 3: ", for what is told; "": nothing */
    struct transcript said;
    struct calls_text text; /* of the running answer */
    int rounds;             /* that were run */
    json_t *told;           /* the calls, for a batch's output: name, arguments, verdict */
};

/* Copies the dialogue's messages. ERR_USAGE: it is raw text. */
int tool_talk_begin(struct tool_talk *t, struct mcp *mcp, const struct options *o,
                    const char *where, const struct dialogue *said, struct error *e);
void tool_talk_release(struct tool_talk *t);
/* What is to be answered next; *out is the caller's. */
int tool_talk_dialogue(const struct tool_talk *t, const struct chat_tools *knows,
                       struct dialogue *out, struct error *e);
/* Every event of the answer. */
void tool_talk_note(struct tool_talk *t, const struct event *ev);
/* The answer has ended. 1: its calls were run, or refused: there is more to be answered; 0: it was
 * the last one. */
int tool_talk_next(struct tool_talk *t, enum stop_reason stop, struct error *e);

#endif
