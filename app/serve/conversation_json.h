/* A conversation as OpenAI's chat writes it: messages, tools, and what the answer is to be. Desk
 * thread. */
#ifndef APP_SERVE_CONVERSATION_JSON_H
#define APP_SERVE_CONVERSATION_JSON_H

#include "app/serve/job.h"

/* What other APIs call the same. */
struct conversation_source {
    const json_t *list; /* of messages */
    const char *name;   /* of its field, for what is refused */
    const char *system; /* said before them; NULL: nothing */
};

/* The messages, and "tools" of j->body; *d is the caller's, also when refused. Sets wish.tools. */
int conversation_read(struct job *j, const struct conversation_source *from, struct dialogue *d,
                      struct refusal *r);

#endif
