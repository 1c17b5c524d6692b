/* A conversation in OpenAI's chat format: messages, tools, and settings of the answer. Request
 * thread. */
#ifndef APP_SERVE_REQUEST_CONVERSATION_JSON_H
#define APP_SERVE_REQUEST_CONVERSATION_JSON_H

#include "app/serve/request/job.h"

/* Names of the same fields in other APIs. */
struct conversation_source {
    const json_t *list; /* of messages */
    const char *name;   /* of its field, for errors */
    const char *system; /* system message before them; NULL: none */
    bool counted;       /* only counted, not answered: it may be longer than the context */
};

/* The messages and "tools" of j->body as ids, extended by the start of a call if one is required.
 * Sets wish.tools; refused if it is too long to be answered. out->ids are mem_* memory. */
int conversation_prompt(struct job *j, const struct conversation_source *from, struct prompt *out,
                        struct refusal *r);
/* The same as the text rendered by the template, appended to *out. */
int conversation_text(struct job *j, const struct conversation_source *from, struct strbuf *out,
                      struct refusal *r);

#endif
