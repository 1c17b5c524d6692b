/* Tools of a request. If the model's chat template supports tools, it renders them, their calls and
 * results; otherwise, and if a call is required that the model's own format cannot be constrained
 * to, all of it is text in the format of Hermes (NousResearch/Hermes-Function-Calling), which most
 * models trained on tools know. Request thread. */
#ifndef APP_SERVE_REQUEST_TOOLS_H
#define APP_SERVE_REQUEST_TOOLS_H

#include "app/serve/request/job.h"
#include "engine/text/chat_tools.h"

/* How a conversation presents tools. */
struct telling {
    struct chat_tools knows; /* what the template renders; zeros: nothing */
    char *text;              /* mem_*: the text about tools in the system message; NULL: none */
};

/* Member of a request's body: the tools that its "tool_choice" does not allow. */
#define TOOLS_FORBIDDEN "moetop_forbidden_tools"

/* Checks "tools" and "tool_choice" of j->body; with allowed_tools the others are moved from "tools"
 * to TOOLS_FORBIDDEN. Sets j->wish.tools and, if a call is required,
 * j->wish.call and j->grammar. */
int tools_read(struct job *j, struct telling *t, struct refusal *r);
/* The template's variables: "tools", if it supports them, and "chat_template_kwargs". *given: a new
 * reference; NULL: none. */
int tools_given(const struct job *j, const struct telling *t, json_t **given, struct refusal *r);
/* If a call is required, extends the prompt by the start of a call; calls in the answer are then
 * parsed in the Hermes format too, whatever the template supports. */
int tools_prompt(const struct job *j, struct prompt *p, struct refusal *r);
/* What tools_prompt adds, for display only; "": nothing. */
const char *tools_opening(const struct job *j);
/* A call of OpenAI's form, as text in the model's format. */
int tools_put_call(struct strbuf *out, const json_t *call, const char *param, struct refusal *r);
/* The same for a template; NULL: refused. */
json_t *tools_call_value(const struct chat_tools *knows, const json_t *call, const char *param,
                         struct refusal *r);
/* The id of a call in the form that the template needs: id, or one written to own. */
#define TOOLS_SHORT_ID 10
const char *tools_id(const struct chat_tools *knows, const char *id, char own[TOOLS_SHORT_ID]);

#endif
