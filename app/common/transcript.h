/* Conversations as files: JSON with the messages, data about each answer, and the settings of the
 * chat. Owner: the UI thread. A file is replaced as a whole (temporary file, fsync, rename), so a
 * crash or a full disk leaves the state of the last save. Input is untrusted: sizes, types and
 * texts are checked. */
#ifndef APP_COMMON_TRANSCRIPT_H
#define APP_COMMON_TRANSCRIPT_H

#include "engine/base/error.h"
#include "engine/base/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct json_t;

struct transcript_plan {
    char name[64];
    /* its first token computed under it, from 1; if the next plan's is the same: it only computed
     * prompt tokens */
    int first_token;
};

struct transcript_entry;

struct transcript_tail { /* a branch that is not on the current path, owned */
    struct transcript_entry *entries;
    size_t n;
};

struct transcript_tails {
    struct transcript_tail *tails;
    size_t n;
};

struct transcript_entry {
    enum role role;
    char *text; /* UTF-8, owned */
    /* of an answer: the reasoning before it, owned; NULL: none */
    char *reasoning;
    /* of a user's message: what the model sees instead of everything before it, owned; NULL:
     * nothing */
    char *summary;
    /* of an answer: its placements ("cpu", "cpu+gpu") and stop word; "" unknown */
    char plan[64], stop[16];
    char adapters[160]; /* applied adapters with their strengths, edits of experts; "": none */
    struct transcript_plan *plans; /* in order, owned; none: only their names are known */
    size_t n_plans;
    /* of an answer: its receipts (app/setup/receipt_chat.h), a list, owned; NULL: none */
    struct json_t *receipts;
    /* of an answer that calls tools: "tool_calls" in OpenAI's form, and "content": the text without
     * them; of a result (ROLE_TOOL): "tool_call_id", "name", and "tool_run" about how it came
     * about. An object, owned; NULL: none */
    struct json_t *tools;
    double seconds, tok_s; /* wall clock; rate of the computation; 0: unknown */
    bool paced;            /* seconds includes time spent waiting for the pace */
    int tokens;
    /* the other branches from here on, in the order they were made, and the index (from 0) of this
     * one among all of them */
    struct transcript_tails others;
    size_t which;
};

struct transcript_setting {
    char *key, *value;
};

struct transcript {
    struct transcript_entry *entries;
    size_t n, size;
    char *model;                         /* path or name, NULL: unknown */
    int64_t created;                     /* seconds since 1970; set by init, kept by load */
    struct transcript_setting *settings; /* in the order they were first set */
    size_t n_settings;
    /* A branch put aside by transcript_fork and its siblings, until it is replaced; n 0: none.
     * waiting_which: its index; waiting_at: where the path ended then. */
    struct transcript_tails waiting;
    size_t waiting_which, waiting_at;
    /* of the file it was read from; 0: none, or written by another program */
    int format;
};

void transcript_init(struct transcript *t);
void transcript_release(struct transcript *t);
/* copies; the plain fields are zero */
int transcript_append(struct transcript *t, enum role role, const char *text, struct error *e);
/* replaces the text of an entry */
int transcript_text(struct transcript *t, size_t i, const char *text, struct error *e);
/* Sets the reasoning that precedes answer i (copied); "" removes it. ERR_MEMORY: nothing changed.
 */
int transcript_reasoning(struct transcript *t, size_t i, const char *text, struct error *e);
/* Sets what the model sees instead of everything before entry i, a user's message (copied); "": it
 * sees all of it again. ERR_MEMORY: nothing changed. */
int transcript_summary(struct transcript *t, size_t i, const char *text, struct error *e);
/* The first entry after the system message that the model sees: the newest with a summary. */
size_t transcript_view(const struct transcript *t);
/* Records that answer i was computed under this placement from its token first_token (counted from
 * 1) on. ERR_MEMORY: nothing changed. */
int transcript_placed(struct transcript *t, size_t i, const char *plan, int first_token,
                      struct error *e);
/* Adds a receipt to answer i; takes it. ERR_MEMORY: nothing changed. */
int transcript_receipt(struct transcript *t, size_t i, struct json_t *receipt, struct error *e);
/* Sets what entry i has to do with tools (see struct transcript_entry); takes it. */
void transcript_tools(struct transcript *t, size_t i, struct json_t *tools);
void transcript_truncate(struct transcript *t, size_t n);
/* Sets the system message, the first entry; NULL or empty: none. ERR_MEMORY: nothing changed. */
int transcript_system(struct transcript *t, const char *text, struct error *e);
/* Branches (transcript_tree.c). The next entry appended at `at` starts a new branch; the entries
 * from there on leave the path but are kept. No effect at the end of the path. ERR_MEMORY: nothing
 * changed, here and below. */
int transcript_fork(struct transcript *t, size_t at, struct error *e);
/* Restores the branch that was put aside last, if it was not replaced. */
int transcript_unfork(struct transcript *t, struct error *e);
/* The newest entry starts the new branch beside the one put aside (transcript_append does this). */
void transcript_fork_join(struct transcript *t);
/* Removes the newest entry; the branch it replaced is put aside again. */
void transcript_unjoin(struct transcript *t);
/* number of branches at entry `at`, this one included; first entry of branch k (from 0) */
size_t transcript_siblings(const struct transcript *t, size_t at);
const struct transcript_entry *transcript_sibling(const struct transcript *t, size_t at, size_t k);
/* Switches the path to branch k from entry `at` on. */
int transcript_switch(struct transcript *t, size_t at, size_t k, struct error *e);
void transcript_tails_release(struct transcript_tails *l);
void transcript_entry_release(struct transcript_entry *x);
/* index of the last entry of a role; n: none */
size_t transcript_last(const struct transcript *t, enum role role);
int transcript_model(struct transcript *t, const char *model, struct error *e);
/* value NULL removes it. Values as in /set. */
int transcript_set(struct transcript *t, const char *key, const char *value, struct error *e);
/* NULL: not set */
const char *transcript_get(const struct transcript *t, const char *key);
/* Copies for a turn: mem_* array and texts. The system message and the entries from transcript_view
 * on, with a summary at the start of the first one. Calls of tools and their results are members of
 * the messages (app/mcp/telling.h makes them what a template reads). */
int transcript_messages(const struct transcript *t, struct message **out, size_t *n,
                        struct error *e);

/* Atomic; creates the folder. ERR_IO. A new file is readable only by its owner. */
int transcript_save(const struct transcript *t, const char *path, struct error *e);
/* Replaces *t (initialised) on success; else *t is unchanged. ERR_IO, ERR_INPUT (not a
 * conversation), ERR_MEMORY. */
int transcript_load(struct transcript *t, const char *path, struct error *e);
/* The same from the text of such a file; name is used in error messages. */
int transcript_read(struct transcript *t, const char *text, size_t n, const char *name,
                    struct error *e);
/* JSON with an array "messages", so probably a conversation */
bool transcript_recognised(const char *text, size_t n);
/* A new name under $XDG_STATE_HOME/moetop/chats. ERR_IO when there is no home. */
int transcript_default_path(char *out, size_t size, struct error *e);
/* The path of /load NAME or /save NAME: a name with a slash or ending in .md or .json is a path;
 * any other is that of a chat, NAME.json in the chats folder, which is created if missing.
 * ERR_USAGE, ERR_IO. */
int transcript_named_path(const char *name, char *out, size_t size, struct error *e);

/* The same for a name only: no path, no number. */
int transcript_chat_path(const char *name, char *out, size_t size, struct error *e);
/* Renames a chat's file and its part file; ERR_USAGE: the name is taken, ERR_IO. */
int transcript_move(const char *from, const char *to, struct error *e);

struct transcript_info {
    char name[96];  /* without folder and .json: what transcript_named_path takes */
    char title[96]; /* beginning of the first user message, one line, safe to print */
    /* time of the last write, part files included: seconds since 1970, and nanoseconds of that
     * second */
    int64_t changed, nanos;
    size_t n; /* messages */
};
/* It has a name given by the user, not its start time. */
bool transcript_is_named(const struct transcript_info *i);
/* The saved chats, newest first, at most 200; unreadable files are left out. mem_* array. */
int transcript_list(struct transcript_info **out, size_t *n, struct error *e);
/* The same, only those with a message that contains the words (ASCII case ignored); "" or NULL:
 * all. */
int transcript_search(const char *words, struct transcript_info **out, size_t *n, struct error *e);
/* The one used last; false: none. */
bool transcript_newest(struct transcript_info *out);
/* "just now", "12 min ago", "3 h ago", "5 days ago", "on 2026-03-01"; seconds since 1970. */
const char *transcript_ago(int64_t then, int64_t now, char out[32]);
/* Locks a saved chat: one program writes it at a time. false: another one has it. True: it is
 * locked until *fd is closed (-1: this file system has no locks). */
bool transcript_lock(const char *path, int *fd);

/* For reading: "you:" and "moetop:" headings, control characters and escape sequences removed, only
 * the beginning of a tool's result. ERR_IO. */
int transcript_print(const struct transcript *t, FILE *f, struct error *e);
/* The same as Markdown with a heading, and a line about each answer. */
int transcript_markdown(const struct transcript *t, FILE *f, struct error *e);
/* The content for a file named path: Markdown if it ends in .md, else the JSON of transcript_save.
 * *text is malloc'ed. ERR_MEMORY. */
int transcript_as(const struct transcript *t, const char *path, char **text, size_t *n,
                  struct error *e);

#endif
