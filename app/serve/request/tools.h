/* Tools as a request brings them. A model whose chat template knows tools is told of them by it,
 * and of what was called and answered; else, and where a call is demanded that its own way cannot
 * be held to, all of it is text in the form of Hermes (NousResearch/Hermes-Function-Calling), which
 * most models that know tools were taught. Request thread. */
#ifndef APP_SERVE_REQUEST_TOOLS_H
#define APP_SERVE_REQUEST_TOOLS_H

#include "app/serve/request/job.h"
#include "engine/text/chat_tools.h"

/* How a conversation tells of tools. */
struct telling {
    struct chat_tools knows; /* what is left to the template; zeros: nothing */
    char *text;              /* mem_*: what the system message says of tools; NULL: nothing */
};

/* "tools" and "tool_choice" of j->body, checked. Sets j->wish.tools and, where a call is demanded,
 * j->wish.call and j->grammar. */
int tools_read(struct job *j, struct telling *t, struct refusal *r);
/* What the template finds by name: "tools", if it is told of them, and "chat_template_kwargs".
 * *given: a new reference; NULL: nothing. */
int tools_given(const struct job *j, const struct telling *t, json_t **given, struct refusal *r);
/* Where the answer is to be a call, its prompt goes on to where that begins; and answers mark calls
 * as Hermes does too, whatever its own template knows. */
int tools_prompt(const struct job *j, struct prompt *p, struct refusal *r);
/* What tools_prompt adds, for what is only shown; "": nothing. */
const char *tools_opening(const struct job *j);
/* A call of OpenAI's form, as the model would have said it. */
int tools_put_call(struct strbuf *out, const json_t *call, const char *param, struct refusal *r);
/* The same for a template; NULL: refused. */
json_t *tools_call_value(const struct chat_tools *knows, const json_t *call, const char *param,
                         struct refusal *r);
/* The id of a call, as the template wants it: id, or what is written to own. */
#define TOOLS_SHORT_ID 10
const char *tools_id(const struct chat_tools *knows, const char *id, char own[TOOLS_SHORT_ID]);

#endif
