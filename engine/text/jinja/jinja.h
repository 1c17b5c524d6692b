/* The part of Jinja 2 that chat templates use, with Hugging Face's settings (trim_blocks,
 * lstrip_blocks). Statements: if, for (else, if, unpacking, recursive, break, continue), set (also
 * blocks, with filters, and namespaces), macro (defaults, varargs, kwargs, caller), call, filter,
 * with, generation, raw. Expressions: Python's literals, operators, slices, % of strings,
 * conditional expressions, calls with * and **, the usual filters, tests and methods.
 * A template is foreign code: steps, memory, depth and output are bounded, there is no way out of
 * the values it is given. Every string carries a mask, one byte per byte of text: what came from a
 * message stays known as such through concatenation, slices, trim and the rest, so that the caller
 * can tell the frame from what people typed. Parsed templates are immutable: any thread. */
#ifndef ENGINE_TEXT_JINJA_JINJA_H
#define ENGINE_TEXT_JINJA_JINJA_H

#include "engine/base/error.h"
#include "engine/base/strbuf.h"
#include "engine/base/message.h"
#include "engine/base/stop.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define JINJA_TEMPLATE_MAX ((size_t)1 << 20) /* bytes */

struct jinja;

struct jinja_variable {
    const char *name, *text; /* text NULL: not defined */
    size_t len;
};

/* What a rendering gets: messages, what the template finds by name, and who may end it (NULL:
 * nobody). globals: a JSON object whose members the template finds by name too (NULL: none), read
 * alone: "enable_thinking". given: likewise, but from whoever wrote the messages ("tools"), so that
 * its texts are no frame; it goes before globals. now: what strftime_now takes for the present; 0:
 * the clock. */
struct jinja_input {
    const struct message *messages;
    size_t n_messages;
    bool add_generation_prompt;
    const struct jinja_variable *variables;
    size_t n_variables;
    const struct stop *stop;
    const json_t *globals, *given;
    time_t now;
};

/* Numbers of messages in a mask go round after so many; the byte for what was given beside them. */
#define JINJA_MESSAGES 254
#define JINJA_GIVEN 255

/* What it gives. mask (may be NULL): one byte for each byte of text, 0 for the frame, 1 + i %
 * JINJA_MESSAGES for text of message i, JINJA_GIVEN. begins (may be NULL): n_messages offsets into
 * text where the template's loop over the messages came to message i; SIZE_MAX: no such loop wrote
 * it. wanted (may be NULL): which line of the template (from 1) wrote the byte `offset` of text; 0:
 * none did. */
struct jinja_line {
    size_t offset;
    int line;
};

struct jinja_output {
    struct strbuf *text, *mask;
    size_t *begins;
    struct jinja_line *wanted;
};

/* ERR_MODEL with the line where the template is wrong or asks for what is not there. */
int jinja_parse(struct jinja **out, const char *text, size_t len, struct error *e);
void jinja_free(struct jinja *j);
/* Appends to text and mask. ERR_INPUT: the template raised an exception or failed, with its line;
 * ERR_CANCELLED; ERR_MEMORY. */
int jinja_render(const struct jinja *j, const struct jinja_input *in,
                 const struct jinja_output *out, struct error *e);

#endif
