/* Splits an answer into its parts while it streams: the answer proper, the model's reasoning, and
 * tool calls. Models mark these with words or control tokens; each row of answer_formats.h is one
 * way. A marker is never part of any text; tool_calls.h parses the text of a call, except that
 * harmony names the tool in a header: its calls are output as {"name": …, "arguments": …}. Any
 * thread; a struct answer_parts belongs to one answer. Nothing is allocated. */
#ifndef ENGINE_TEXT_ANSWER_PARTS_H
#define ENGINE_TEXT_ANSWER_PARTS_H

#include "engine/text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

enum answer_part { PART_ANSWER, PART_REASONING, PART_TOOL_CALL, PART_COUNT };
const char *answer_part_word(enum answer_part part); /* "answer", "reasoning", "tool call" */

/* Separator of two parts shown as one text: a tool call is a code block. "" for most. */
const char *answer_part_border(enum answer_part from, enum answer_part to);

#define ANSWER_MARKER 32 /* most bytes of a marker, and of a channel's name */

/* How a model marks its parts; all zero: not at all. */
struct answer_format {
    unsigned known; /* bit i: the i-th row of answer_formats.h */
    bool harmony;   /* channels */
    bool atem;      /* the same frame, told by whom a message is for: Muse Glimmer's */
};

/* By its template's text and its tokens; both may be NULL. */
struct answer_format answer_format_of(const char *template_source, const struct tokenizer *t);
/* Adds Hermes' markers of tool calls, because the prompt asks for them. */
void answer_format_learn(struct answer_format *f);
/* Whether a text ends inside reasoning. A generation prompt may: the answer then starts there. */
bool answer_format_opens(const struct answer_format *f, const char *text, size_t n);

struct answer_parts {
    struct answer_format format;
    enum answer_part part;
    const char *close; /* end marker of the part; NULL: none */
    bool header;       /* between a start or channel and its message */
    bool opened;       /* a message was opened */
    bool blank;        /* no text of this part came yet: blanks at its beginning are dropped */
    bool called;       /* a call was output before: the next one starts a new line */
    char held[8 * ANSWER_MARKER]; /* a possible marker; a channel's header */
    size_t n;
};

/* Called with text of one part, in order. */
typedef void answer_put(void *ctx, enum answer_part part, const char *text, size_t n);

/* reasoning: the prompt has opened reasoning already. */
void answer_parts_init(struct answer_parts *p, struct answer_format f, bool reasoning);
/* The text of a token; control: the name of a control token, which counts only as a marker. */
void answer_parts_push(struct answer_parts *p, const char *text, size_t n, bool control,
                       answer_put *put, void *ctx);
/* End of the answer: flushes held text. */
void answer_parts_end(struct answer_parts *p, answer_put *put, void *ctx);

#endif
