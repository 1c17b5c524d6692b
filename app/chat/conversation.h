/* A chat without a screen: the worker, the transcript and the settings. The screen
 * (app/chat/screen/screen.c) and line mode both drive one and display what its hooks report. Owns
 * the transcript and its file (autosave.h): it is written after every turn, streamed text is saved
 * beside it at once, and closing writes it a last time, so nothing that was shown is lost. Thread:
 * the UI thread (hooks are called from conversation_pump and conversation_submit). */
#ifndef APP_CHAT_CONVERSATION_H
#define APP_CHAT_CONVERSATION_H

#include "app/options/options.h"
#include "app/stats/run_stats.h"
#include "app/common/transcript.h"
#include "app/mcp/mcp.h"
#include "engine/run/worker/worker.h"

struct conversation;
struct model_files;

enum conversation_say { SAY_OUTPUT, SAY_NOTICE, SAY_TROUBLE };

struct conversation_hooks {
    void *ctx;
    /* Every event of the worker, before it is released. */
    void (*event)(void *ctx, const struct event *ev);
    /* Lines to display: output of a command (several lines), a notice, an error. */
    void (*say)(void *ctx, enum conversation_say kind, const char *text);
    /* The transcript has a new last entry (a user's message, an answer that begins). */
    void (*added)(void *ctx, const struct transcript_entry *entry);
    /* The transcript was changed otherwise (/undo, /clear, /load, /system): redraw it. */
    void (*changed)(void *ctx);
    /* Only conversation_view has changed; NULL: it is not displayed. */
    void (*view)(void *ctx);
    /* Puts a text into the input line (/edit, /compact). */
    void (*edit)(void *ctx, const char *text);
    /* The second engine's answer (--beside): its name with no text as it begins, then pieces of
     * text; NULL: it has ended. NULL: it is not displayed. */
    void (*beside)(void *ctx, const char *name, const char *text, size_t len);
    /* Where a head looked: of each of the newest answer's n tokens, how many times as much as
     * evenly. name: "L3.H5". NULL: it is not displayed. */
    void (*attended)(void *ctx, const char *name, const float *times, size_t n);
    /* Copies to the clipboard; false: there is none. */
    bool (*copy)(void *ctx, const char *text, size_t len);
    /* An option was changed by /set; theme, mouse and the like are applied by the display. */
    void (*set)(void *ctx, const struct option *option);
    /* A placement was requested, as number `wish` of the conversation: the engine will report the
     * plan then in force (EVENT_PLAN whose .wishes has reached it), possibly the previous one. */
    void (*placing)(void *ctx, const char *plan, uint64_t wish);
    /* The engine will be closed and replaced (/model): drop pointers into it; NULL: there are none.
     * EVENT_LOADING and EVENT_READY follow. */
    void (*closing)(void *ctx);
    /* Width of a line of output in columns; NULL: unknown, lines are kept below 80. */
    int (*columns)(void *ctx);
    /* the input is a pipe: the chat is saved only by /save */
    bool unkept;
    /* there are keys and panels: Esc stops, F1 helps; else only Ctrl-C works */
    bool keys;
    /* somebody answers conversation_question; else calls that are not allowed are refused */
    bool asks;
};

/* Starts the worker; the model is loaded in the background. The chat named by --continue or --chat
 * is already in the transcript. o outlives the conversation and is changed by /set. */
int conversation_open(struct conversation **out, struct options *o,
                      const struct conversation_hooks *hooks, struct error *e);
/* Stops the worker, saves. The error is the session's first that determines the exit code (the
 * model could not be read …), or that of saving. */
int conversation_close(struct conversation *c, struct error *e);

/* poll for reading, then conversation_pump; -1: there is none */
int conversation_fd(const struct conversation *c);
/* likewise: something has changed about the tools of --mcp; -1: there are none */
int conversation_tools_fd(const struct conversation *c);
/* likewise: events of the second engine of --beside */
int conversation_beside_fd(const struct conversation *c);
void conversation_pump(struct conversation *c);
/* Submits a message. While an answer runs it is queued. 0; -1: refused with a notice; the caller
 * keeps the text. */
int conversation_submit(struct conversation *c, const char *text);
/* the answer ends after the current token; calls of tools end, and those to come are not run */
void conversation_stop(struct conversation *c);
/* an answer is being written, or its calls of tools are asked about or run */
bool conversation_busy(const struct conversation *c);
/* busy, or a conversation_call has not finished yet */
bool conversation_working(const struct conversation *c);
/* conversation_call's that have not finished yet; each ends with an EVENT_REPORT, in their order */
int conversation_calls(const struct conversation *c);
bool conversation_ready(const struct conversation *c); /* the model is loaded */
bool conversation_over(const struct conversation *c);  /* /quit, or the worker has ended */
/* the queued message, NULL: none */
const char *conversation_waiting(const struct conversation *c);
char *conversation_unqueue(struct conversation *c); /* removes it from the queue; mem_* memory */

/* A call of a tool that waits for permission. */
struct tool_question {
    unsigned serial; /* 1, 2, 3 …: another one is another question */
    const struct mcp_tool *tool;
    const json_t *arguments; /* of the model: untrusted */
    size_t at, of;           /* which call of the answer, from 1 */
};
enum tool_permission { TOOL_ONCE, TOOL_ALWAYS, TOOL_NEVER };
/* False: nothing is asked. Valid until the next call of any function but the accessors. */
bool conversation_question(const struct conversation *c, struct tool_question *out);
/* ALWAYS: this tool for the rest of the chat. NEVER: this call. */
void conversation_permit(struct conversation *c, enum tool_permission permission);
/* The tool whose call runs; NULL: none does. */
const struct mcp_tool *conversation_tool_running(const struct conversation *c);
/* The servers of --mcp; NULL: none. */
struct mcp *conversation_mcp(const struct conversation *c);

/* prints which tokens chose the expert, as output */
int conversation_expert(struct conversation *c, int layer, int expert);
/* Runs fn on the engine's thread while no answer is being written; its text is printed as output.
 * release(ctx) is always called. 0, or -1 with a notice. */
int conversation_call(struct conversation *c,
                      int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                      void *ctx, void (*release)(void *ctx));
/* strategy or plan file; reports errors as a notice */
int conversation_place(struct conversation *c, const char *spec);
/* trace one token per second into the telemetry */
void conversation_timeline(struct conversation *c, bool on);
/* unlimited, or the configured pace (default 40) */
void conversation_pace_toggle(struct conversation *c);
double conversation_pace(const struct conversation *c); /* current one in tokens/s, 0: unlimited */

/* The greeting line: which chat is resumed (--continue, --chat), or which was the last; "":
 * nothing. Owned by the conversation. */
const char *conversation_greeting(struct conversation *c);
/* it had messages when it was opened */
bool conversation_goes_on(const struct conversation *c);
const struct transcript *conversation_transcript(const struct conversation *c);
/* see worker_telemetry */
const struct telemetry *conversation_telemetry(struct conversation *c);
/* NULL before the model is loaded, and with a server */
const struct engine_info *conversation_info(const struct conversation *c);
/* --connect: NULL before it is connected, and without a server */
struct server;
struct figures;
struct remote_engine;
const struct server *conversation_server(const struct conversation *c);
/* what that server reports of itself; false: no server */
bool conversation_figures(struct conversation *c, struct figures *out);
/* whether it waits for that server (remote_waits) */
bool conversation_remote_waits(struct conversation *c, char *out, size_t size);
/* The engine of a server that reports its state, as telemetry; false: none. */
bool conversation_remote_engine(struct conversation *c, struct remote_engine *out);
/* "127.0.0.1:8080"; "": no server */
const char *conversation_host(const struct conversation *c);
/* KV cache reuse of the newest answer's prompt; NULL: nothing was answered yet, or by a server,
 * which does not report it. */
struct cache_story;
const struct cache_story *conversation_cache(const struct conversation *c);
/* as of now; NULL before the model is loaded */
const struct stats *conversation_stats(struct conversation *c);
struct options *conversation_options(struct conversation *c);
const char *conversation_path(const struct conversation *c); /* of the transcript; "": none */
int conversation_save(struct conversation *c, struct error *e);
/* see chat_export */
int conversation_export(struct conversation *c, const char *path, bool replace, struct error *e);

/* /edit: the last message is in the input line; the next message replaces it and everything after
 * it. Nothing is removed before that. */
void conversation_edit(struct conversation *c);
/* cancels the edit with a notice; false: nothing was being edited */
bool conversation_edit_end(struct conversation *c);

/* The first entry after the system message that the model sees; the entry right after it if it sees
 * all. */
size_t conversation_view(const struct conversation *c);
/* Replaces what the model no longer sees by a summary, or everything before the last message if it
 * sees all: text, or NULL: the model is asked to write one; if there is one already, it is put into
 * the input line for editing. -1 with a notice. */
int conversation_compact(struct conversation *c, const char *text);
/* Removes the summaries: the model sees everything again. */
int conversation_compact_none(struct conversation *c);
/* The available models, as found by model_places.h, with the bundled one and the current one; the
 * previous list unless `anew`. Owned by the conversation. */
const struct model_files *conversation_models(struct conversation *c, bool anew, struct error *e);
/* Reopens the engine with this model after the running answer, and the chat continues; if it cannot
 * be opened, with the previous one. -1 with a notice: nothing has changed. */
int conversation_model(struct conversation *c, const char *path);
/* The path of the current model, or of the one being opened. */
const char *conversation_model_path(const struct conversation *c);

/* --beside: what one of the two said to the last message; NULL: there are not two answers. */
struct said;
const struct said *conversation_beside_said(const struct conversation *c, bool second);
/* Keeps in the votes' file which was better: "1", "2", "both", "neither"; why: may be empty. -1
 * with a notice. */
int conversation_vote(struct conversation *c, const char *vote, const char *why);

/* For app/chat/commands. */
void conversation_say(struct conversation *c, enum conversation_say kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void conversation_quit(struct conversation *c);
/* answers the transcript as it is; go_on: continues its last answer */
int conversation_answer(struct conversation *c, bool go_on);
/* Removes the last message and what follows from the chat, until conversation_redo, or until a new
 * message is sent, which then becomes a branch beside them. -1 with a notice. */
int conversation_undo(struct conversation *c);
/* If the chat is not visible (hooks.keys): prints how its last message and answer begin. */
void conversation_end_say(struct conversation *c);
int conversation_redo(struct conversation *c);
/* Answers the last message again, as a branch beside its present answer. */
int conversation_regen(struct conversation *c);
/* Switches the chat to branch k (from 0) at entry `at`. */
int conversation_switch(struct conversation *c, size_t at, size_t k);
/* Of the chat's last answer: the number of tokens since it was last continued (0: they are not
 * kept; only those of the newest nine computed answers are); the text of a token (as in the
 * answer), at most size-1 bytes and a NUL. */
size_t conversation_tokens(const struct conversation *c);
/* The chat ends with the newest computed answer, not another branch or an older one. */
bool conversation_answer_shown(const struct conversation *c);
void conversation_token_text(const struct conversation *c, int id, char *out, size_t size);
/* Prints token `at` (from 0) of it and the alternatives, as output. -1 with a notice. */
int conversation_token_say(struct conversation *c, size_t at);
/* What token `at` of the newest computed answer was made of, layer by layer, as output; swaps: also
 * with each layer's runner-up expert. -1 with a notice. */
int conversation_lens(struct conversation *c, size_t at, bool swaps);
/* Says where a head looked as that token was said (lens_attention), and reports it by
 * hooks.attended. layer, head -1: all. */
int conversation_attention(struct conversation *c, size_t at, int layer, int head);
/* Branches that answer: its text up to token `at` (from 0), then token id instead of it, then
 * continued. -1 with a notice. */
int conversation_token_branch(struct conversation *c, size_t at, int id);
/* The id of the k-th most probable alternative at that token, -1: there are not so many. */
int conversation_token_alternative(const struct conversation *c, size_t at, size_t k);
/* Index of the newest entry, at most `most`, that has branches; the number of entries: none. */
size_t conversation_fork_before(const struct conversation *c, size_t most);
int conversation_system(struct conversation *c, const char *text); /* NULL or empty: none */
int conversation_load(struct conversation *c, const char *path, struct error *e);
/* The other saved chats with a message that contains the words ("": all), as transcript_search;
 * owned by the conversation until the next call. NULL: the previous list. */
int conversation_chats(struct conversation *c, const char *words,
                       const struct transcript_info **out, size_t *n, struct error *e);
/* Names this chat NAME among the saved ones; its previous name is dropped. ERR_USAGE (the name is
 * taken, or empty), ERR_IO. */
int conversation_rename(struct conversation *c, const char *name, struct error *e);
/* Saves a chat that was not to be saved, from now on. */
void conversation_keep(struct conversation *c);
/* conversation_place, with a notice when the plan is in force */
int conversation_place_told(struct conversation *c, const char *spec);
/* a fresh transcript in a file of its own */
void conversation_new(struct conversation *c);
/* after options_set */
void conversation_apply(struct conversation *c, const struct option *option);
const struct conversation_hooks *conversation_hooks(const struct conversation *c);

#endif
