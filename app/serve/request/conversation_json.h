/* A conversation as OpenAI's chat writes it: messages, tools, and what the answer is to be.
 * Request thread. */
#ifndef APP_SERVE_REQUEST_CONVERSATION_JSON_H
#define APP_SERVE_REQUEST_CONVERSATION_JSON_H

#include "app/serve/request/job.h"

/* What other APIs call the same. */
struct conversation_source {
    const json_t *list; /* of messages */
    const char *name;   /* of its field, for what is refused */
    const char *system; /* said before them; NULL: nothing */
    bool counted;       /* nothing is answered: it may be longer than the context */
};

/* The messages, and "tools" of j->body, as ids, on to where a call begins that is demanded. Sets
 * wish.tools; refused where it is too long to be answered. out->ids are mem_* memory. */
int conversation_prompt(struct job *j, const struct conversation_source *from, struct prompt *out,
                        struct refusal *r);
/* The same as the text that the template makes of it, appended to *out. */
int conversation_text(struct job *j, const struct conversation_source *from, struct strbuf *out,
                      struct refusal *r);

#endif
