/* What an answer is made of, told apart while it streams: what is said to the reader, what the
 * model thought before, and calls of tools. Models mark these by words or control tokens of their
 * own; one row of answer_formats.h says how. A marker is never part of any text; what stands within
 * a call is (tool_calls.h), but that harmony names the tool in a header: its calls are told as
 * {"name": …, "arguments": …}. Any thread; a
 * struct answer_parts belongs to one answer. Nothing is allocated. */
#ifndef ENGINE_TEXT_ANSWER_PARTS_H
#define ENGINE_TEXT_ANSWER_PARTS_H

#include "engine/text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

enum answer_part { PART_ANSWER, PART_REASONING, PART_TOOL_CALL, PART_COUNT };
const char *answer_part_word(enum answer_part part); /* "answer", "reasoning", "tool call" */

/* What stands between two parts where they are shown as one text: a call of a tool is a block of
 * code. "" for most. */
const char *answer_part_border(enum answer_part from, enum answer_part to);

#define ANSWER_MARKER 32 /* bytes of a marker, and of a channel's name, at most */

/* How a model marks its parts; all zero: it marks none. */
struct answer_format {
    unsigned known; /* bit i: the i-th row of answer_formats.h */
    bool harmony;   /* channels */
};

/* By its template's text and the tokens it has; both may be NULL. */
struct answer_format answer_format_of(const char *template_source, const struct tokenizer *t);
/* It marks calls of tools as Hermes does, whatever else it knows: its prompt says so. */
void answer_format_learn(struct answer_format *f);
/* Does a text end in an opened reasoning? A generation prompt may: its answer begins there. */
bool answer_format_opens(const struct answer_format *f, const char *text, size_t n);

struct answer_parts {
    struct answer_format format;
    enum answer_part part;
    const char *close; /* what ends the part; NULL: nothing does */
    bool header;       /* between a start or channel and its message */
    bool opened;       /* a message was */
    bool blank;        /* no text of this part came yet: blanks at its beginning are left out */
    bool called;       /* a call was told before: the next one is on a line of its own */
    char held[8 * ANSWER_MARKER]; /* what may become a marker; a channel's header */
    size_t n;
};

/* Called with text of one part, in order. */
typedef void answer_put(void *ctx, enum answer_part part, const char *text, size_t n);

/* reasoning: the prompt has opened it already. */
void answer_parts_init(struct answer_parts *p, struct answer_format f, bool reasoning);
/* The text of a token; control: the name of a control token, which is text only where it marks
 * something. */
void answer_parts_push(struct answer_parts *p, const char *text, size_t n, bool control,
                       answer_put *put, void *ctx);
/* The answer ends here: what was held back is text. */
void answer_parts_end(struct answer_parts *p, answer_put *put, void *ctx);

#endif
