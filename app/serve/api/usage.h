/* What answers say of themselves in all APIs of OpenAI's. */
#ifndef APP_SERVE_API_USAGE_H
#define APP_SERVE_API_USAGE_H

#include "app/serve/request/job.h"

#define SYSTEM_FINGERPRINT "moetop-" MOETOP_VERSION

/* prompt_tokens, completion_tokens, total_tokens and their details. */
json_t *usage_openai(const struct job *j);

#endif
