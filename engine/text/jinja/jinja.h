/* The subset of Jinja 2 for chat templates, with Hugging Face's settings (trim_blocks,
 * lstrip_blocks). Statements: if, for (else, if, unpacking, recursive, break, continue), set (also
 * blocks, with filters, and namespaces), macro (defaults, varargs, kwargs, caller), call, filter,
 * with, generation, raw. Expressions: Python's literals, operators, slices, % of strings,
 * conditional expressions, calls with * and **, the usual filters, tests and methods. A template is
 * untrusted code: steps, memory, depth and output are bounded, and it can access only the values it
 * is given. Every string carries a mask, one byte per byte of text: message contents stay marked as
 * such through concatenation, slices, trim and the rest, so that the caller can distinguish the
 * frame from users' text. Parsed templates are immutable: any thread. */
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

/* Input of a rendering: messages, variables of the template, and an abort callback (NULL: none).
 * globals: a JSON object whose members are variables too (NULL: none), read only:
 * "enable_thinking". given: likewise, but from the messages' author ("tools"), so that its texts
 * are no frame; it takes precedence over globals. now: current time for strftime_now; 0: the
 * clock. */
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

/* Message numbers in a mask wrap around after so many; the mask byte of `given`. */
#define JINJA_MESSAGES 254
#define JINJA_GIVEN 255

/* Output. mask (may be NULL): one byte for each byte of text, 0 for the frame, 1 + i %
 * JINJA_MESSAGES for text of message i, JINJA_GIVEN. begins (may be NULL): n_messages offsets into
 * text where the template's loop over the messages reached message i; SIZE_MAX: not written by such
 * a loop. wanted (may be NULL): the line of the template (from 1) that wrote the byte `offset` of
 * text; 0: none. */
struct jinja_line {
    size_t offset;
    int line;
};

struct jinja_output {
    struct strbuf *text, *mask;
    size_t *begins;
    struct jinja_line *wanted;
};

/* ERR_MODEL with the line of the error or of an unsupported feature. */
int jinja_parse(struct jinja **out, const char *text, size_t len, struct error *e);
void jinja_free(struct jinja *j);
/* Appends to text and mask. ERR_INPUT: the template raised an exception or failed, with its line;
 * ERR_CANCELLED; ERR_MEMORY. */
int jinja_render(const struct jinja *j, const struct jinja_input *in,
                 const struct jinja_output *out, struct error *e);

#endif
