/* Tools as text in the format of Hermes (NousResearch/Hermes-Function-Calling), which most models
 * trained on tools know: for templates that render no tools, calls or results themselves. Any
 * thread. */
#ifndef ENGINE_TEXT_HERMES_H
#define ENGINE_TEXT_HERMES_H

#include "engine/base/strbuf.h"

#include <jansson.h>

/* The part of a system message that lists tools of OpenAI's form and says how to call them. mem_*;
 * NULL: no memory. */
char *hermes_tools(const json_t *list);
/* A call; arguments: an object, or its text. */
void hermes_put_call(struct strbuf *out, const json_t *name, const json_t *arguments);
/* A result. */
void hermes_put_result(struct strbuf *out, const char *text);

#endif
