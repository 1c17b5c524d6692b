/* Internals of a conversation, shared only by app/chat/conversation_*.c. UI thread. */
#ifndef APP_CHAT_INTERNAL_H
#define APP_CHAT_INTERNAL_H

#include "app/chat/autosave.h"
#include "app/chat/conversation.h"
#include "app/chat/export.h"
#include "app/chat/prompter.h"
#include "app/connect/remote.h"
#include "app/common/model_files.h"
#include "app/mcp/calls.h"
#include "app/mcp/round.h"
#include "app/setup/engine_options.h"
#include "app/setup/receipt.h"
#include "app/stats/run_stats.h"
#include "engine/base/strbuf.h"

/* A token of the newest answer: where its text begins, and its alternatives. */
struct answer_token {
    size_t at; /* SIZE_MAX: part of the reasoning */
    int id, candidates;
    float probability, share, forbidden;
    uint64_t compute_ns;
    struct logprobs_event likely;
};

#define ANSWERS_KEPT 8 /* earlier answers whose tokens can be inspected */

/* An earlier answer, identified by its text. */
struct answer_kept {
    char *text;
    struct answer_token *tokens;
    size_t n;
};

/* Data for the receipt of the running answer, and receipts that wait for the model's hash. */
struct chat_receipts {
    json_t *settings; /* of the answer; NULL: it gets no receipt */
    int *prompt, n_prompt;
    size_t begun;     /* bytes of it that existed before it was continued */
    const char *none; /* why it cannot be reproduced; NULL: it can */
    struct receipt_text said;
    json_t *unhashed;
    /* the hash: owned by the thread until `made` */
    pthread_t thread;
    bool hashed, running, small; /* it was started; it runs; it takes little time */
    atomic_bool made, unwanted;
    const struct weight_file *file;
    const char *folder;
    char model[DIGEST_HEX]; /* "": unknown */
};

/* The tools of --mcp, and the calls of the newest answer. */
struct chat_tool_calls {
    struct mcp *mcp;        /* NULL: no tools */
    struct calls_text text; /* of the running answer */
    bool due;               /* an answer has ended: its calls are looked at next */
    struct round round;     /* being asked about, or run */
    size_t taken;           /* results of it that are in the transcript */
    unsigned asked;         /* calls that were asked about, ever, */
    size_t asked_at;        /* the newest of them in the round, from 1; 0: none */
    int rounds;             /* since the user's message */
    bool going_on;          /* the next answer continues the round, no message of the user */
    /* the servers' states as they were told last */
    enum mcp_state told[MCP_SERVERS];
};

struct conversation {
    struct options *options;
    struct conversation_hooks hooks;
    /* read by the engine thread: constant while the worker runs; owned */
    struct engine_setup *setup;
    struct {
        char *wanted; /* the next model to open once idle; owned */
        bool on;      /* it is being opened; on failure: */
        char *back;   /* reopen this one, NULL: the bundled one; owned */
    } change;
    struct model_files models; /* list of the last /model */
    struct worker *worker;
    struct client *client;    /* the worker's only client */
    struct remote *remote;    /* --connect: replaces the worker, which is NULL then */
    struct prompter prompter; /* of the answer being started */
    struct transcript transcript;
    struct autosave autosave;
    struct chat_exports exports;   /* of this chat */
    struct transcript_info *chats; /* the last list, n_chats; owned */
    size_t n_chats;
    char opened[320]; /* see conversation_greeting */
    bool save_said;   /* a save error was already reported */
    bool ready, busy, over, worker_gone;
    /* placements are to be measured after an answer; the measurement is running */
    bool auto_asked, auto_done, measuring;
    int calls;                   /* conversation_call's that have not finished yet */
    struct attention_look *look; /* /lens N attention, until its report; owned */
    struct beside *beside;       /* --beside; NULL: there is none */
    bool beside_busy;            /* it answers what the chat has answered, or will next */
    bool shadow_due; /* the next answer is lossy (fewer or deferred experts): measure its loss */
    struct strbuf answer, thought; /* text and reasoning of the running answer */
    enum answer_part part;         /* of its newest text */
    /* its tokens so far, including those before /continue */
    int answered;
    bool paced;                      /* the pace limited its rate */
    char plan[TELEMETRY_PLAN_NAMES]; /* in force, as EVENT_PLAN has it */
    /* placements: requested; the newest one to report when in force (by a command); decided */
    uint64_t places_sent, place_told, places_answered;
    size_t undone[64]; /* where each /undo ended the path, newest last; n_undone of them */
    size_t n_undone;
    bool reseeded; /* the answer being started uses its own seed: seed */
    uint64_t seed;
    struct answer_token *tokens; /* of the newest answer, since it was last continued; owned */
    size_t n_tokens, room_tokens;
    struct answer_kept kept[ANSWERS_KEPT]; /* newest at (n_kept - 1) % ANSWERS_KEPT */
    size_t n_kept;                         /* ever kept */
    struct logprobs_event likely;          /* alternatives of the next token */
    size_t
        dropped; /* entries behind the view's first one that did not fit into the newest prompt */
    bool compacting; /* the running answer is a summary, for entry compact_at */
    size_t compact_at;
    bool editing; /* the next message replaces the last one */
    char *waiting;
    double pace, pace_asked;
    struct chat_tool_calls tools;
    struct stats stats;
    struct chat_receipts receipts;
    struct cache_story story; /* of the newest answer, for /cache */
    bool has_story;
    struct error failure; /* the error that determines the exit code */
};

/* conversation_file.c */
/* Starts a file for a new or loaded chat. */
void conversation_file_begin(struct conversation *c);
/* The program's first chat: that of --continue or --chat, or a new one. Before the worker starts.
 */
int conversation_file_open(struct conversation *c, struct error *e);
void conversation_turn_save(struct conversation *c); /* errors are reported once */
/* Saves it; the display redraws it. */
void conversation_changed(struct conversation *c);
/* The next message becomes a branch beside what exists from entry `at` on. */
int conversation_fork(struct conversation *c, size_t at);

/* conversation_tools.c */
/* Starts the servers of --mcp, if any. */
int conversation_tools_open(struct conversation *c, struct error *e);
void conversation_tools_close(struct conversation *c);
/* Goes on with the calls of the newest answer; after the events. */
void conversation_tools_pump(struct conversation *c);
void conversation_tools_stop(struct conversation *c);

/* conversation_model.c */
/* The result of a model switch: reported, or the previous model is reopened; a switch that waits
 * for the end of an answer is started. */
void conversation_model_settle(struct conversation *c);

/* conversation_shadow.c */
/* A command that may be lossy: fn is called on the engine's thread with a copy of the wish, `size`
 * bytes; changes: it changes settings, not only prints them. 0, or -1 with a notice. */
int conversation_shadow_call(struct conversation *c,
                             int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                             const void *wish, size_t size, bool changes);
/* An answer has ended: if it was the first after such a command, its loss is measured and printed.
 */
void conversation_shadow_after(struct conversation *c, const struct turn_done_event *done);
/* "1 of the 2 experts a token, but none of less weight than 0.1"; the engine's thread. */
void shadow_words(const struct engine *g, char *out, size_t size);
/* "keys in q8_0, values in f16"; likewise. */
void shadow_kv_words(const struct engine *g, char *out, size_t size);
extern const char *const kv_words[3]; /* of enum kv_type */

/* conversation_beside.c */
/* The options of --beside; nothing is loaded yet. ERR_USAGE. */
int conversation_beside_open(struct conversation *c, struct error *e);
void conversation_beside_close(struct conversation *c);
/* An answer of the chat begins, with this seed; go_on: it continues an earlier one. */
void conversation_beside_begin(struct conversation *c, bool go_on, uint64_t seed);
/* An event of the chat's engine, while the answer is the running one. */
void conversation_beside_note(struct conversation *c, const struct event *ev);
/* Its own events; after the chat's. */
void conversation_beside_pump(struct conversation *c);
void conversation_beside_stop(struct conversation *c);

/* conversation_receipt.c */
/* An answer begins, with these settings; its prompt is ready. */
void conversation_receipt_begin(struct conversation *c, const struct turn *turn, bool go_on);
void conversation_receipt_prompt(struct conversation *c, const struct prompt *prompt);
/* Settings that affect the running answer have changed: it cannot be reproduced. */
void conversation_receipt_changed(struct conversation *c, const char *why);
/* It has ended, and is the transcript's last entry. */
void conversation_receipt_end(struct conversation *c, const struct turn_done_event *done);
/* The model is being closed: a slow hash computation is cancelled. */
void conversation_receipts_settle(struct conversation *c);
void conversation_receipts_release(struct conversation *c);

/* conversation_compact.c */
/* The finished summary is inserted, or nothing is changed. */
void conversation_compact_ended(struct conversation *c, enum stop_reason stop);
/* The new prompt leaves out this many messages after the system message; reported if there is no
 * screen to show it. */
void conversation_view_moved(struct conversation *c, int dropped);

/* conversation_answer.c */
/* Sends the dialogue to the model to be answered: takes both, also on failure (-1 with a notice).
 */
int conversation_turn_begin(struct conversation *c, struct dialogue *said, struct turn *turn);
/* The answer being started has no text yet. */
void conversation_answer_clear(struct conversation *c);
void conversation_answer_ended(struct conversation *c, enum stop_reason stop);
void conversation_answer_measured(struct conversation *c, const struct turn_done_event *d);
void conversation_answer_text(struct conversation *c, const struct token_event *t);
/* Sends the queued message, if possible now. */
void conversation_waiting_send(struct conversation *c);

/* conversation_tokens.c */
void conversation_answer_token(struct conversation *c, const struct token_event *t);
/* Another answer begins: keeps the tokens of the newest one. Before its text is released. */
void conversation_tokens_keep(struct conversation *c);
/* Forgets the tokens of all answers. */
void conversation_tokens_forget(struct conversation *c);
/* Of the chat's last answer, or of the running one; n 0: not kept. */
struct answer_kept conversation_answer_tokens(const struct conversation *c);
/* An engine's call has ended: what c->look asked for goes to the display, once it is there. */
void conversation_looked(struct conversation *c);
void attention_look_free(struct attention_look *k); /* accepts NULL */

/* conversation_link.c: the answerer, i.e. the worker's client or a server */
/* Opens what the options ask for. The transcript's model is known then. */
int conversation_link_open(struct conversation *c, struct error *e);
void conversation_link_close(struct conversation *c);
bool conversation_link_there(const struct conversation *c);
int conversation_link_next(struct conversation *c, struct event *out);
void conversation_link_cancel(struct conversation *c);
/* Calls and results in it become what the model's template renders; offer: with the tools as they
 * are now. ERR_MEMORY. */
int conversation_tell(struct conversation *c, struct dialogue *said, bool offer, struct error *e);
/* Takes both. */
int conversation_link_ask(struct conversation *c, struct dialogue *said, struct turn *turn,
                          struct error *e);

/* conversation_engine.c */
/* A worker that has ended needs no command; failure to send one is reported. */
void conversation_notify(struct conversation *c, struct command k);
void conversation_placed(struct conversation *c, const struct event *ev); /* EVENT_PLAN */
/* The newest answer is computed under the current plan from its next token on. */
void conversation_answer_placed(struct conversation *c);
/* Measures whether a GPU is faster, once, if that is due and the engine is idle. */
void conversation_measure_after(struct conversation *c);

#endif
