/* Times as Ollama writes them: RFC 3339 with fractions of seconds, UTC. Any thread. */
#ifndef APP_SERVE_API_OLLAMA_TIME_H
#define APP_SERVE_API_OLLAMA_TIME_H

#include <jansson.h>
#include <time.h>

json_t *ollama_time(struct timespec t); /* a new reference */
json_t *ollama_time_now(void);

#endif
