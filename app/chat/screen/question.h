/* The question whether a tool may be called: the call and its arguments above the input line, the
 * answer by one key. What was typed before the question could be read must not answer it: keys
 * count only after it has stood on the screen for a moment in which none came. Pure but for the
 * struct; time is passed in. UI thread. */
#ifndef APP_CHAT_SCREEN_QUESTION_H
#define APP_CHAT_SCREEN_QUESTION_H

#include "app/chat/conversation.h"
#include "engine/base/strbuf.h"
#include "ui/key_decoder.h"

struct question {
    bool on;
    unsigned serial;      /* of the conversation's question */
    uint64_t quiet_from;  /* since when it has been on the screen and no key came; 0: not drawn */
    bool armed;           /* keys count */
    int top, lines, rows; /* the first line shown; of all; shown */
    struct strbuf body;   /* all lines */
    struct strbuf shown;  /* those on the screen */
};

enum question_reply {
    QUESTION_OTHER, /* not a key of the question: Ctrl-C and the like */
    QUESTION_TAKEN, /* dropped, or it scrolled */
    QUESTION_ONCE,
    QUESTION_ALWAYS,
    QUESTION_NEVER
};

/* Takes over what the conversation asks. True: the screen has to be drawn. */
bool question_take(struct question *q, const struct conversation *c);
/* The lines above the input line on a screen of so many columns and rows, and the prompt. */
const char *question_above(struct question *q, const struct conversation *c, int columns, int rows);
const char *question_prompt(const struct question *q);
/* It has been drawn. */
void question_drawn(struct question *q, uint64_t now);
/* When the prompt changes by itself; UINT64_MAX: not. question_tick then returns true. */
uint64_t question_due(const struct question *q);
bool question_tick(struct question *q, uint64_t now);
enum question_reply question_key(struct question *q, const struct input_event *ev, uint64_t now);
void question_release(struct question *q);

#endif
