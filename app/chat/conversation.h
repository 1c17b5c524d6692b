/* A chat without a screen: the worker, the transcript and the settings. The screen
 * (app/chat/screen/screen.c) and line mode both drive one and show what its hooks tell them. Owns
 * the transcript and its file (autosave.h): it is written after every turn, what streams is kept
 * beside it at once, and closing writes it a last time, so nothing that was shown is lost. Thread:
 * the UI thread (hooks are called from conversation_pump and conversation_submit). */
#ifndef APP_CHAT_CONVERSATION_H
#define APP_CHAT_CONVERSATION_H

#include "app/options/options.h"
#include "app/setup/run_stats.h"
#include "app/common/transcript.h"
#include "engine/run/worker/worker.h"

struct conversation;
struct model_files;

enum conversation_say { SAY_OUTPUT, SAY_NOTICE, SAY_TROUBLE };

struct conversation_hooks {
    void *ctx;
    /* Every event of the worker, before it is released. */
    void (*event)(void *ctx, const struct event *ev);
    /* Lines of the program: what a command prints (several lines), a notice, trouble. */
    void (*say)(void *ctx, enum conversation_say kind, const char *text);
    /* The transcript has a new last entry (a user's message, an answer that begins). */
    void (*added)(void *ctx, const struct transcript_entry *entry);
    /* The transcript was changed otherwise (/undo, /clear, /load, /system): show it anew. */
    void (*changed)(void *ctx);
    /* conversation_view has changed, and nothing else; NULL: nobody shows it. */
    void (*view)(void *ctx);
    /* Puts a text into the input line (/edit, /compact). */
    void (*edit)(void *ctx, const char *text);
    /* To the clipboard; false: there is none. */
    bool (*copy)(void *ctx, const char *text, size_t len);
    /* An option was changed by /set: theme, mouse and the like are the shower's affair. */
    void (*set)(void *ctx, const struct option *option);
    /* A placement was asked for, the conversation's wish number `wish`: the engine will tell which
     * one is in force then (EVENT_PLAN whose .wishes reach it), be it the one before. */
    void (*placing)(void *ctx, const char *plan, uint64_t wish);
    /* The engine goes, and another one will come (/model): what points to it is let go; NULL:
     * nothing does. EVENT_LOADING and EVENT_READY follow. */
    void (*closing)(void *ctx);
    /* Cells of a line of output; NULL: nobody knows, lines are kept below 80. */
    int (*columns)(void *ctx);
    /* the input is a pipe: no file in the folder of chats, unless /save asks for it */
    bool unkept;
    /* there are keys and panels: Esc stops, F1 helps; else only Ctrl-C does anything */
    bool keys;
};

/* Starts the worker; the model is loaded in the background. The chat that --continue or --chat name
 * is in the transcript already. o outlives the conversation and is
 * changed by /set. */
int conversation_open(struct conversation **out, struct options *o,
                      const struct conversation_hooks *hooks, struct error *e);
/* Stops the worker, saves. The error is the first of the session that should become the exit code
 * (the model could not be read …), or the save's. */
int conversation_close(struct conversation *c, struct error *e);

/* poll for reading, then conversation_pump */
int conversation_fd(const struct conversation *c);
void conversation_pump(struct conversation *c);
/* A message. While an answer runs it waits for its turn. 0; -1: refused (said why), the text stays
 * with the caller. */
int conversation_submit(struct conversation *c, const char *text);
/* the answer ends after the present token; async-signal-safe */
void conversation_stop(struct conversation *c);
bool conversation_busy(const struct conversation *c); /* an answer is being written */
/* busy, or a call has not reported yet */
bool conversation_working(const struct conversation *c);
bool conversation_ready(const struct conversation *c); /* the model is loaded */
bool conversation_over(const struct conversation *c);  /* /quit, or the worker has gone */
/* the message that waits, NULL: none */
const char *conversation_waiting(const struct conversation *c);
char *conversation_unqueue(struct conversation *c); /* takes it back, mem_* memory */

/* which tokens chose it; the answer comes as output */
int conversation_expert(struct conversation *c, int layer, int expert);
/* Runs fn on the engine's thread when no answer is being written; its text comes as output.
 * release(ctx) is always called. 0, or -1 (said why). */
int conversation_call(struct conversation *c,
                      int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                      void *ctx, void (*release)(void *ctx));
/* strategy or plan file; says what is wrong */
int conversation_place(struct conversation *c, const char *spec);
/* trace one token a second into the telemetry */
void conversation_timeline(struct conversation *c, bool on);
/* free, or the configured pace (40 when none) */
void conversation_pace_toggle(struct conversation *c);
double conversation_pace(const struct conversation *c); /* in force, 0: free */

/* One line to begin with: which chat goes on (--continue, --chat), or which one was the last; "":
 * nothing. The conversation's. */
const char *conversation_greeting(struct conversation *c);
/* something was said in it before */
bool conversation_goes_on(const struct conversation *c);
const struct transcript *conversation_transcript(const struct conversation *c);
/* see worker_telemetry */
const struct telemetry *conversation_telemetry(struct conversation *c);
/* NULL before the model is loaded, and where it is a server's */
const struct engine_info *conversation_info(const struct conversation *c);
/* --connect: NULL before it was reached, and where there is none */
struct server;
struct figures;
struct remote_engine;
const struct server *conversation_server(const struct conversation *c);
/* what that server tells of itself; false: there is none */
bool conversation_figures(struct conversation *c, struct figures *out);
/* The engine of a server that tells all of it, whose telemetry is that engine's; false: none. */
bool conversation_remote_engine(struct conversation *c, struct remote_engine *out);
/* "127.0.0.1:8080"; "": there is none */
const char *conversation_host(const struct conversation *c);
/* What the newest answer's prompt found in the cache; NULL: nothing was answered yet, or a server
 * did, which tells none. */
struct cache_story;
const struct cache_story *conversation_cache(const struct conversation *c);
/* as of now; NULL before the model is loaded */
const struct stats *conversation_stats(struct conversation *c);
struct options *conversation_options(struct conversation *c);
const char *conversation_path(const struct conversation *c); /* of the transcript file; "": none */
int conversation_save(struct conversation *c, struct error *e);
/* see chat_export */
int conversation_export(struct conversation *c, const char *path, bool replace, struct error *e);

/* /edit: the last message is in the input line; what is sent next takes its place and that of all
 * behind it. Nothing is cut before. */
void conversation_edit(struct conversation *c);
/* all stays as it was (said so); false: nothing was being edited */
bool conversation_edit_end(struct conversation *c);

/* The first entry behind the system message that the model is given whole; that one if it sees all.
 */
size_t conversation_view(const struct conversation *c);
/* A summary takes the place of what the model sees no more, or of all before the last message,
 * where it still sees all: text, or NULL: it is asked to write one; where that is done already, it
 * goes into the input line to be edited. -1: said why. */
int conversation_compact(struct conversation *c, const char *text);
/* The summaries are dropped: the model is given all again. */
int conversation_compact_none(struct conversation *c);
/* The models at hand, as model_places.h finds them, with the bundled one and the one in use; as
 * they were listed last unless `anew`. The conversation's. */
const struct model_files *conversation_models(struct conversation *c, bool anew, struct error *e);
/* The engine is opened anew with this model, after the answer under way, and the chat goes on; when
 * it cannot be opened, with the one before. -1: said why, all is as before. */
int conversation_model(struct conversation *c, const char *path);
/* The path of the one in use, or being opened. */
const char *conversation_model_path(const struct conversation *c);

/* For app/chat/commands. */
void conversation_say(struct conversation *c, enum conversation_say kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void conversation_quit(struct conversation *c);
/* answers the transcript as it stands; go_on: continues its last answer */
int conversation_answer(struct conversation *c, bool go_on);
/* The last message and what follows leave the chat until conversation_redo, or until something is
 * said in their place, which then stands beside them. -1: said why. */
int conversation_undo(struct conversation *c);
/* Where the chat is not seen (hooks.keys): how its last message and answer begin, in words. */
void conversation_end_say(struct conversation *c);
int conversation_redo(struct conversation *c);
/* Answers the last message once more, beside the answer it has. */
int conversation_regen(struct conversation *c);
/* The chat goes on with number k (from 0) of what stands at entry `at`. */
int conversation_switch(struct conversation *c, size_t at, size_t k);
/* Of the answer that the chat ends with: how many tokens it has since it went on last (0: they are
 * not kept; those of the newest nine computed are); the text of a token (as it would stand in the
 * answer), at most size-1 bytes and a NUL. */
size_t conversation_tokens(const struct conversation *c);
/* The newest answer computed is the chat's last message, not another branch or an older one. */
bool conversation_answer_shown(const struct conversation *c);
void conversation_token_text(const struct conversation *c, int id, char *out, size_t size);
/* Its token `at` (from 0) and what else was likely there, in words, as output. -1: said why. */
int conversation_token_say(struct conversation *c, size_t at);
/* That answer up to its token `at` (from 0), then token id instead of it, goes on beside the
 * one there is. -1: said why. */
int conversation_token_branch(struct conversation *c, size_t at, int id);
/* The id of number k (from 0) of what was likeliest at that token, -1: there are not so many. */
int conversation_token_alternative(const struct conversation *c, size_t at, size_t k);
/* The newest entry, `most` at the most, where more than one thing was said; n: none. */
size_t conversation_fork_before(const struct conversation *c, size_t most);
int conversation_system(struct conversation *c, const char *text); /* NULL or empty: none */
int conversation_load(struct conversation *c, const char *path, struct error *e);
/* The saved chats but this one in which some message holds the words ("": all), as
 * transcript_search; the conversation's until it is asked anew. NULL: as they were listed last. */
int conversation_chats(struct conversation *c, const char *words,
                       const struct transcript_info **out, size_t *n, struct error *e);
/* This chat is called NAME among the saved ones from now on; what it was called is gone. ERR_USAGE
 * (the name is taken, or none), ERR_IO. */
int conversation_rename(struct conversation *c, const char *name, struct error *e);
/* A chat that was not to be kept is from now on. */
void conversation_keep(struct conversation *c);
/* conversation_place, told in the chat when it is in force */
int conversation_place_told(struct conversation *c, const char *spec);
/* a fresh transcript in a file of its own */
void conversation_new(struct conversation *c);
/* after options_set */
void conversation_apply(struct conversation *c, const struct option *option);
const struct conversation_hooks *conversation_hooks(const struct conversation *c);

#endif
