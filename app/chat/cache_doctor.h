/* Why a turn computed tokens again: the first token at which the new prompt differs from the
 * session's KV cache, the text there, and what can be done. Any thread that owns what it passes. */
#ifndef APP_CHAT_CACHE_DOCTOR_H
#define APP_CHAT_CACHE_DOCTOR_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"
#include "engine/run/prompt.h"

/* The common prefix of the new prompt and the old tokens, and where they diverge. */
struct cache_story {
    int held, alike; /* tokens in the session; length of the common prefix with the prompt */
    int prompt;      /* tokens of the prompt */
    /* Where they diverge, if they do (alike < held and alike < prompt): */
    int message;          /* number in the conversation, from 1; 0: after the last one */
    enum role role;       /* of that message */
    bool in_text;         /* in the message's text; else in what the template adds around it */
    char was[48], is[48]; /* some tokens from there on, escaped */
    int line;             /* of the template that produced it, from 1; 0: unknown */
    char line_text[100];  /* text of that line, truncated and escaped */
    const char *why, *advice;
    /* known when the turn has ended */
    int reused, stored, lost; /* stored: those of reused that were read from disk */
    double seconds;           /* spent on the lost tokens */
};

/* Everything known before the turn. old: the n_old ids in the session; prompt: the new ones, of
 * `said`, whose `dropped` oldest messages after the system message were left out (dropped_before of
 * them already in old). */
void cache_story_begin(struct cache_story *s, const struct engine_info *info, const int *old,
                       int n_old, const struct prompt *prompt, const struct dialogue *said,
                       int dropped_before, int dropped);
/* The cost of the turn. */
void cache_story_end(struct cache_story *s, const struct turn_done_event *done);
/* The report, two to five lines. */
void cache_story_print(const struct cache_story *s, struct strbuf *b);

#endif
