/* What an answer must keep to: grammars made of "response_format", "json_schema" and "grammar", and
 * of the tools of which one must be called. What cannot be held is refused: never an answer that
 * only looks as if it kept to it. Request thread. */
#ifndef APP_SERVE_REQUEST_CONSTRAINT_H
#define APP_SERVE_REQUEST_CONSTRAINT_H

#include "app/serve/request/job.h"

/* The fields of j->body into j->grammar, which stays NULL where none says anything. */
int constraint_read(struct job *j, struct refusal *r);
/* The call of one of the tools, as an object of "name" and "arguments", in place of what j->grammar
 * was. name: of the only one that may be called; NULL: any. */
int constraint_call(struct job *j, const json_t *tools, const char *name, struct refusal *r);

#endif
