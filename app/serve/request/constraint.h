/* Constraints of an answer: grammars made of "response_format", "json_schema" and "grammar", and of
 * tools if a call is required. Constraints that cannot be enforced are refused, never approximated.
 * Request thread. */
#ifndef APP_SERVE_REQUEST_CONSTRAINT_H
#define APP_SERVE_REQUEST_CONSTRAINT_H

#include "app/serve/request/job.h"

/* The fields of j->body into j->grammar, which stays NULL if there are none. */
int constraint_read(struct job *j, struct refusal *r);
/* A grammar for a call of one of the tools, as an object of "name" and "arguments"; replaces
 * j->grammar. name: the only one allowed; NULL: any. */
int constraint_call(struct job *j, const json_t *tools, const char *name, struct refusal *r);

#endif
