/* The "usage" object of all OpenAI APIs. */
#ifndef APP_SERVE_API_USAGE_H
#define APP_SERVE_API_USAGE_H

#include "app/serve/request/job.h"

#define SYSTEM_FINGERPRINT "moetop-" MOETOP_VERSION

/* prompt_tokens, completion_tokens, total_tokens and their details. */
json_t *usage_openai(const struct job *j);

#endif
