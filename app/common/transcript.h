/* Conversations as files: JSON with the messages, what is known of each answer, and the settings of
 * the chat. Owner: the UI thread. A file is replaced as a whole (temporary file, fsync, rename), so
 * a crash or a full disk leaves the state of the last save. What is read back is hostile like any
 * file: sizes, types and texts are checked. */
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
    /* computed under it, from 1; that of the next plan too: this one only read from the prompt */
    int first_token;
};

struct transcript_entry;

struct transcript_tail { /* an end of the conversation that stands aside, owned */
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
    /* of an answer: what the model thought before it, owned; NULL: nothing */
    char *reasoning;
    /* of a user's message: what the model is given in place of all that was said before it, owned;
     * NULL: nothing */
    char *summary;
    /* of an answer: its placements ("cpu", "cpu+gpu") and stop word; "" unknown */
    char plan[64], stop[16];
    char adapters[160]; /* that counted, with their strengths: "stories 0.5, tone 1"; "": none */
    struct transcript_plan *plans; /* in order, owned; none: only their names are known */
    size_t n_plans;
    /* of an answer: how it came about (app/setup/receipt_chat.h), a list, owned; NULL: not known */
    struct json_t *receipts;
    double seconds, tok_s; /* wall clock; rate of the computing; 0: unknown */
    bool paced;            /* seconds holds time that was only waited */
    int tokens;
    /* what else was said from here on, in the order it was made, and which number (from 0) of all
     * of them this one is */
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
    /* An end that was put aside (transcript_fork) and what stood beside it, until something takes
     * its place; n 0: none. waiting_which: the one it was; waiting_at: the path ended there then.
     */
    struct transcript_tails waiting;
    size_t waiting_which, waiting_at;
    /* of the file it was read from; 0: of none, or of another program's */
    int format;
};

void transcript_init(struct transcript *t);
void transcript_release(struct transcript *t);
/* copies; the plain fields are zero */
int transcript_append(struct transcript *t, enum role role, const char *text, struct error *e);
/* replaces the text of an entry */
int transcript_text(struct transcript *t, size_t i, const char *text, struct error *e);
/* What was thought before answer i; "": nothing. ERR_MEMORY: as before. */
int transcript_reasoning(struct transcript *t, size_t i, const char *text, struct error *e);
/* What the model is given in place of all before entry i, a user's message; "": all of it again.
 * ERR_MEMORY: as before. */
int transcript_summary(struct transcript *t, size_t i, const char *text, struct error *e);
/* The first entry behind the system message that the model is given: the newest with a summary. */
size_t transcript_view(const struct transcript *t);
/* From its token first_token (counted from 1) on, answer i was computed under this placement.
 * ERR_MEMORY: as before. */
int transcript_placed(struct transcript *t, size_t i, const char *plan, int first_token,
                      struct error *e);
/* One more receipt of answer i; takes it. ERR_MEMORY: as before. */
int transcript_receipt(struct transcript *t, size_t i, struct json_t *receipt, struct error *e);
void transcript_truncate(struct transcript *t, size_t n);
/* The one system message, at the head; NULL or empty: none. On ERR_MEMORY everything is as before.
 */
int transcript_system(struct transcript *t, const char *text, struct error *e);
/* Branches (transcript_tree.c). What is appended next at `at` stands beside the entries from there
 * on, which leave the path but are not lost; at the end of the path nothing happens. ERR_MEMORY: as
 * before, here and below. */
int transcript_fork(struct transcript *t, size_t at, struct error *e);
/* The end that was put aside last is the path's again, when nothing took its place. */
int transcript_unfork(struct transcript *t, struct error *e);
/* The newest entry takes its place beside what was put aside (transcript_append does this). */
void transcript_fork_join(struct transcript *t);
/* Takes the newest entry away, and what it took the place of waits again. */
void transcript_unjoin(struct transcript *t);
/* how many stand at entry `at`, that one included; the first entry of number k (from 0) */
size_t transcript_siblings(const struct transcript *t, size_t at);
const struct transcript_entry *transcript_sibling(const struct transcript *t, size_t at, size_t k);
/* The path goes on with number k from entry `at` on. */
int transcript_switch(struct transcript *t, size_t at, size_t k, struct error *e);
void transcript_tails_release(struct transcript_tails *l);
void transcript_entry_release(struct transcript_entry *x);
/* index of the last entry of a role; n: none */
size_t transcript_last(const struct transcript *t, enum role role);
int transcript_model(struct transcript *t, const char *model, struct error *e);
/* value NULL removes it. Values are what /set would take. */
int transcript_set(struct transcript *t, const char *key, const char *value, struct error *e);
/* NULL: not set */
const char *transcript_get(const struct transcript *t, const char *key);
/* Copies for a turn: mem_* array and texts. The system message and what transcript_view leaves, a
 * summary at the head of its first one. */
int transcript_messages(const struct transcript *t, struct message **out, size_t *n,
                        struct error *e);

/* Atomic; makes the folder. ERR_IO. A new file is readable by its owner only. */
int transcript_save(const struct transcript *t, const char *path, struct error *e);
/* Replaces *t (initialised) when everything is right; else *t is as before. ERR_IO, ERR_INPUT (not
 * a conversation), ERR_MEMORY. */
int transcript_load(struct transcript *t, const char *path, struct error *e);
/* The same from the text of such a file; name is for error messages. */
int transcript_read(struct transcript *t, const char *text, size_t n, const char *name,
                    struct error *e);
/* JSON with an array "messages", so meant as a conversation */
bool transcript_recognised(const char *text, size_t n);
/* A new name under $XDG_STATE_HOME/moetop/chats. ERR_IO when there is no home. */
int transcript_default_path(char *out, size_t size, struct error *e);
/* What a user means by /load NAME or /save NAME: a name with a slash and one that ends in .md or
 * .json is a path; any other is that of a chat, NAME.json in the folder of chats, which is made
 * when it is missing. ERR_USAGE, ERR_IO. */
int transcript_named_path(const char *name, char *out, size_t size, struct error *e);

/* The same for a name alone: no path, no number. */
int transcript_chat_path(const char *name, char *out, size_t size, struct error *e);
/* Moves a chat's file, and the part of an answer beside it; ERR_USAGE: the name is taken, ERR_IO.
 */
int transcript_move(const char *from, const char *to, struct error *e);

struct transcript_info {
    char name[96];   /* without folder and .json: what transcript_named_path takes */
    char title[96];  /* beginning of the first user message, one line, safe to show */
    /* when it was written last, the beginning of an unfinished answer included: seconds since
     * 1970, and nanoseconds of that second */
    int64_t changed, nanos;
    size_t n;        /* messages */
};
/* Somebody gave it a name: it is not called after the time at which it began. */
bool transcript_is_named(const struct transcript_info *i);
/* The saved chats, newest first, at most 200; unreadable files are left out. mem_* array. */
int transcript_list(struct transcript_info **out, size_t *n, struct error *e);
/* The same of those in which some message holds the words (ASCII case aside); "" or NULL: all. */
int transcript_search(const char *words, struct transcript_info **out, size_t *n, struct error *e);
/* The one used last; false: none. */
bool transcript_newest(struct transcript_info *out);
/* "just now", "12 min ago", "3 h ago", "5 days ago", "on 2026-03-01"; seconds since 1970. */
const char *transcript_ago(int64_t then, int64_t now, char out[32]);
/* A saved chat is written by one program at a time. false: another one has it. True: it is the
 * caller's until *fd is closed (-1: this place knows no locks). */
bool transcript_lock(const char *path, int *fd);

/* For people: "you:" and "moetop:" headings, control characters and escape sequences removed.
 * ERR_IO. */
int transcript_print(const struct transcript *t, FILE *f, struct error *e);
/* The same as Markdown with a heading, and a line about each answer. */
int transcript_markdown(const struct transcript *t, FILE *f, struct error *e);
/* What a file named path would hold: Markdown when it ends in .md, else the JSON of
 * transcript_save. *text is malloc'ed. ERR_MEMORY. */
int transcript_as(const struct transcript *t, const char *path, char **text, size_t *n,
                  struct error *e);

#endif
