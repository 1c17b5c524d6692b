/* Why a turn computed again what was computed before: the first token in which the new prompt
 * differs from what the session holds, what stands there, and what can be done. Any thread that
 * owns what it passes. */
#ifndef APP_CHAT_CACHE_DOCTOR_H
#define APP_CHAT_CACHE_DOCTOR_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"
#include "engine/run/prompt.h"

/* What the new prompt and the old tokens have in common, and where they part. */
struct cache_story {
    int held, alike; /* tokens the session had; how many of them the prompt begins with */
    int prompt;      /* tokens of it */
    /* Where it parts, when it does (alike < held and alike < prompt): */
    int message;          /* number in the conversation, from 1; 0: behind the last one */
    enum role role;       /* of that message */
    bool in_text;         /* in what was said; else in what the template puts around it */
    char was[48], is[48]; /* some tokens from there on, escaped */
    int line;             /* of the template that wrote it, from 1; 0: not known */
    char line_text[100];  /* what stands there, cut and escaped */
    const char *why, *advice;
    /* known when the turn is over */
    int reused, stored, lost; /* stored: of those reused, from the disk */
    double seconds; /* that the lost tokens took */
};

/* Everything that is known before the turn. old: n_old ids that the session holds; prompt: the new
 * ones, of `said`, whose `dropped` oldest messages behind the system's were left out
 * (dropped_before of them already in the old). */
void cache_story_begin(struct cache_story *s, const struct engine_info *info, const int *old,
                       int n_old, const struct prompt *prompt, const struct dialogue *said,
                       int dropped_before, int dropped);
/* What the turn took. */
void cache_story_end(struct cache_story *s, const struct turn_done_event *done);
/* Two to five lines of it. */
void cache_story_print(const struct cache_story *s, struct strbuf *b);

#endif
