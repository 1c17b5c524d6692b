/* A conversation's insides, shared by the files of app/chat/conversation_*.c alone. UI thread. */
#ifndef APP_CHAT_INTERNAL_H
#define APP_CHAT_INTERNAL_H

#include "app/chat/autosave.h"
#include "app/chat/conversation.h"
#include "app/chat/export.h"
#include "app/chat/prompter.h"
#include "app/connect/remote.h"
#include "app/common/model_files.h"
#include "app/setup/engine_options.h"
#include "app/setup/receipt.h"
#include "app/setup/run_stats.h"
#include "engine/base/strbuf.h"

/* A token of the newest answer: where its text begins there, and what else might have stood. */
struct answer_token {
    size_t at; /* SIZE_MAX: of what was thought before */
    int id, candidates;
    float probability, share, forbidden;
    uint64_t compute_ns;
    struct logprobs_event likely;
};

#define ANSWERS_KEPT 8 /* whose tokens can still be asked, the newest one aside */

/* An answer before the newest one, by its text. */
struct answer_kept {
    char *text;
    struct answer_token *tokens;
    size_t n;
};

/* What the receipt of the answer under way is made of, and those that wait for the model's hash. */
struct chat_receipts {
    json_t *settings; /* of the answer; NULL: it gets no receipt */
    int *prompt, n_prompt;
    size_t begun;     /* bytes of it that were there before */
    const char *none; /* why it cannot be derived again; NULL: it can */
    struct receipt_text said;
    json_t *unhashed;
    /* the hash: the thread's until `made` */
    pthread_t thread;
    bool hashed, running, small; /* it was begun; it runs; it takes no time */
    atomic_bool made, unwanted;
    const struct weight_file *file;
    const char *folder;
    char model[DIGEST_HEX]; /* "": not known */
};

struct conversation {
    struct options *options;
    struct conversation_hooks hooks;
    /* what the engine thread reads: nobody changes it from the worker's start to its end; owned */
    struct engine_setup *setup;
    struct {
        char *wanted; /* once nothing is computed: another model; owned */
        bool on;      /* it is being opened; if that fails: */
        char *back;   /* the one before, NULL: the bundled one; owned */
    } change;
    struct model_files models; /* as /model listed them last */
    struct worker *worker;
    struct client *client;    /* of it, the only one */
    struct remote *remote;    /* --connect: in the worker's place, which is NULL then */
    struct prompter prompter; /* of the answer that begins */
    struct transcript transcript;
    struct autosave autosave;
    struct chat_exports exports;   /* of this chat */
    struct transcript_info *chats; /* as listed last, n_chats; owned */
    size_t n_chats;
    char opened[320]; /* see conversation_greeting */
    bool save_said;   /* trouble with saving is said once */
    bool ready, busy, over, worker_gone;
    /* placements are to be measured after an answer; that is being done */
    bool auto_asked, auto_wanted, auto_done, measuring;
    int calls;       /* conversation_call's that have not reported yet */
    bool shadow_due; /* the next answer is of fewer or deferred experts: its cost is measured */
    struct strbuf answer, thought; /* text of the running answer, what was thought before it */
    enum answer_part part;         /* of its newest text */
    /* its tokens so far, with those that were there before /continue */
    int answered;
    bool paced;    /* a pace held it up */
    char plan[64]; /* in force */
    /* placements asked for; of them the newest that is told when it is in force (a command asked);
       how many were answered */
    uint64_t places_sent, place_told, places_answered;
    size_t undone[64]; /* where each /undo ended the path, the newest last; n_undone of them */
    size_t n_undone;
    bool reseeded; /* the answer that begins has a seed of its own: seed */
    uint64_t seed;
    struct answer_token *tokens; /* of the newest answer, since it went on last; owned */
    size_t n_tokens, room_tokens;
    struct answer_kept kept[ANSWERS_KEPT]; /* newest at (n_kept - 1) % ANSWERS_KEPT */
    size_t n_kept;                         /* ever */
    struct logprobs_event likely; /* of the token that comes next */
    size_t
        dropped; /* entries behind the view's first one that did not fit into the newest prompt */
    bool compacting; /* what is answered is a summary, for entry compact_at */
    size_t compact_at;
    bool editing; /* the next message takes the place of the last one */
    char *waiting;
    double pace, pace_asked;
    struct stats stats;
    struct chat_receipts receipts;
    struct cache_story story; /* of the newest answer, for /cache */
    bool has_story;
    struct error failure; /* what should become the exit code */
};

/* conversation_file.c */
/* A chat begins, or one that was read goes on: in a file of its own. */
void conversation_file_begin(struct conversation *c);
/* The first one of the program: what --continue and --chat ask for, or a fresh one. Before the
 * worker starts. */
int conversation_file_open(struct conversation *c, struct error *e);
void conversation_turn_save(struct conversation *c); /* trouble is said once */
/* Saves it; who shows it shows it anew. */
void conversation_changed(struct conversation *c);
/* What is said next stands beside what there is from entry `at` on. */
int conversation_fork(struct conversation *c, size_t at);

/* conversation_model.c */
/* What came of a change of the model: told, or the one before is opened again; and one that waits
 * for the end of an answer begins. */
void conversation_model_settle(struct conversation *c);

/* conversation_shadow.c */
/* A command that may lose something: fn is called on the engine's thread with a copy of the wish,
 * `size` bytes; changes: it does not only tell. 0, or -1: said why. */
int conversation_shadow_call(struct conversation *c,
                             int (*fn)(void *ctx, struct engine *g, char **text, struct error *e),
                             const void *wish, size_t size, bool changes);
/* An answer has ended: where it was the first one after such a command, what that cost is measured
 * and told. */
void conversation_shadow_after(struct conversation *c, const struct turn_done_event *done);
/* "1 of the 2 experts a token, but none of less weight than 0.1"; the engine's thread. */
void shadow_words(const struct engine *g, char *out, size_t size);
/* "keys in q8_0, values in f16"; likewise. */
void shadow_kv_words(const struct engine *g, char *out, size_t size);
extern const char *const kv_words[3]; /* of enum kv_type */

/* conversation_receipt.c */
/* An answer begins, with these settings; its prompt is made. */
void conversation_receipt_begin(struct conversation *c, const struct turn *turn, bool go_on);
void conversation_receipt_prompt(struct conversation *c, const struct prompt *prompt);
/* What an answer is drawn with has changed while it is written: it cannot be derived again. */
void conversation_receipt_changed(struct conversation *c, const char *why);
/* It has ended, and is the transcript's last entry. */
void conversation_receipt_end(struct conversation *c, const struct turn_done_event *done);
/* The model goes: a hash that takes long is given up. */
void conversation_receipts_settle(struct conversation *c);
void conversation_receipts_release(struct conversation *c);

/* conversation_compact.c */
/* The summary that was written takes its place, or nothing is changed. */
void conversation_compact_ended(struct conversation *c, enum stop_reason stop);
/* A prompt was made that leaves out so many of the messages behind the system's; told where nobody
 * sees the rule. */
void conversation_view_moved(struct conversation *c, int dropped);

/* conversation_answer.c */
/* What is said to the model, to be answered: takes both, also on failure (said why, -1). */
int conversation_turn_begin(struct conversation *c, struct dialogue *said, struct turn *turn);
/* The answer that begins has no text yet. */
void conversation_answer_clear(struct conversation *c);
void conversation_answer_ended(struct conversation *c, enum stop_reason stop);
void conversation_answer_measured(struct conversation *c, const struct turn_done_event *d);
void conversation_answer_text(struct conversation *c, const struct token_event *t);
/* The message that waits, if it may go now. */
void conversation_waiting_send(struct conversation *c);

/* conversation_tokens.c */
void conversation_answer_token(struct conversation *c, const struct token_event *t);
/* Another answer begins: the newest one's are kept beside it. Before its text is gone. */
void conversation_tokens_keep(struct conversation *c);
/* None is known any more. */
void conversation_tokens_forget(struct conversation *c);
/* Of the answer that the chat ends with, or that is being written; n 0: not kept. */
struct answer_kept conversation_answer_tokens(const struct conversation *c);

/* conversation_link.c: whoever answers, the worker's client or a server */
/* Opens what the options ask for. The transcript knows its model then. */
int conversation_link_open(struct conversation *c, struct error *e);
void conversation_link_close(struct conversation *c);
bool conversation_link_there(const struct conversation *c);
int conversation_link_next(struct conversation *c, struct event *out);
void conversation_link_cancel(struct conversation *c);
/* Takes both. */
int conversation_link_ask(struct conversation *c, struct dialogue *said, struct turn *turn,
                          struct error *e);

/* conversation_engine.c */
/* A worker that has gone need not hear it; one that could not be told is said. */
void conversation_notify(struct conversation *c, struct command k);
void conversation_placed(struct conversation *c, const struct event *ev); /* EVENT_PLAN */
/* The newest answer is computed under the plan in force from its next token on. */
void conversation_answer_placed(struct conversation *c);
/* Measures what a GPU is worth, once, where that is due and nobody waits. */
void conversation_measure_after(struct conversation *c);

#endif
