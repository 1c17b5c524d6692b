/* Ollama's requests in the form of OpenAI's, which all else here reads. Request thread. */
#ifndef APP_SERVE_API_OLLAMA_INPUT_H
#define APP_SERVE_API_OLLAMA_INPUT_H

#include "app/serve/request/job.h"

/* Fields of j->body that chat and generate share: "options", "format", "think", "stream" (true if
 * absent). Replaced by OpenAI's fields, then read into j->wish, with j->stops and j->grammar. */
int ollama_fields(struct job *j, struct refusal *r);
/* "keep_alive": how long the model is to stay after this request, see registry_keep; *ns: -1 if the
 * request does not say. */
int ollama_keep_alive(const struct job *j, int64_t *ns, struct refusal *r);
/* Messages in OpenAI's form. A new reference; NULL: refused. */
json_t *ollama_messages(const json_t *list, struct refusal *r);
/* Refuses images, which no model here reads; an empty list passes. */
int ollama_no_images(const json_t *o, const char *param, struct refusal *r);

#endif
