/* The part of Jinja 2 that chat templates use, with Hugging Face's settings (trim_blocks, lstrip_blocks). Statements: if, for (else, if,
 * unpacking, break, continue), set (also blocks and namespaces), macro, generation, raw. Expressions: Python's literals, operators, slices,
 * conditional expressions, calls, the usual filters, tests and methods.
 * A template is foreign code: steps, memory, depth and output are bounded, there is no way out of the values it is given.
 * Every string carries a mask, one byte per byte of text: what came from a message stays known as such through concatenation, slices,
 * trim and the rest, so that the caller can tell the frame from what people typed. Parsed templates are immutable: any thread. */
#ifndef ENGINE_MODEL_JINJA_H
#define ENGINE_MODEL_JINJA_H

#include "engine/base/error.h"
#include "engine/base/strbuf.h"
#include "engine/model/message.h"

#include <stdbool.h>
#include <stddef.h>

struct jinja;

struct jinja_variable {
    const char *name, *text;     /* text NULL: not defined */
    size_t len;
};

/* ERR_MODEL with the line where the template is wrong or asks for what is not there. */
int jinja_parse(struct jinja **out, const char *text, size_t len, struct error *e);
void jinja_free(struct jinja *j);
/* Appends to text, and to mask (may be NULL) one byte for each byte: 0 for the frame, 1 + i % 255 for text of message i.
 * ERR_INPUT: the template raised an exception or failed, with its line; ERR_MEMORY. */
int jinja_render(const struct jinja *j, const struct message *m, size_t n, bool add_generation_prompt,
                 const struct jinja_variable *variables, size_t n_variables, struct strbuf *text, struct strbuf *mask, struct error *e);

#endif
