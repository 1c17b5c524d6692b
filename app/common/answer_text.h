/* What a transcript stores of an answer: its text, code blocks for tool calls, the reasoning before
 * it. Any thread that owns what it passes. */
#ifndef APP_COMMON_ANSWER_TEXT_H
#define APP_COMMON_ANSWER_TEXT_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"

/* Appends a token's text to one of the two; *part: of the text before it, PART_ANSWER at first. */
void answer_text_put(struct strbuf *answer, struct strbuf *thought, enum answer_part *part,
                     const struct token_event *t);

#endif
