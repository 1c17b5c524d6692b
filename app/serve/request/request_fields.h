/* Fields of requests that the APIs share: the model, sampling, stops, streaming; and the
 * conversation in OpenAI's form. Request thread. */
#ifndef APP_SERVE_REQUEST_REQUEST_FIELDS_H
#define APP_SERVE_REQUEST_REQUEST_FIELDS_H

#include "app/serve/request/job.h"

/* The body of x as a JSON object; NULL: refused. */
json_t *request_json(const struct exchange *x, struct refusal *r);
/* Whether the model that j->body names is loaded. -1 without a refusal: it is another one
 * (j->other_model) or was unloaded, see request_waits. */
int request_model(struct job *j, struct refusal *r);
/* The body into j->body, and request_model. */
int request_body(struct job *j, struct refusal *r);
/* A request that was not read because it is for another model waits for that: j is freed, its
 * exchange is read again. false: it was refused. */
bool request_waits(struct job *j, struct refusal *r);
/* The common fields into j->wish, and constraints of the answer into j->grammar. */
int request_common(struct job *j, struct refusal *r);
/* "stop", a string or a list of them; name: of the field. */
int request_stops(struct job *j, const char *name, struct refusal *r);
/* Text of a message: a string, or a list of text parts, which are joined; mem_*. null (allowed if
 * optional) is "". */
char *request_content(const json_t *v, bool optional, const char *param, struct refusal *r);

#endif
