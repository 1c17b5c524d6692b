/* See usage.h. */
#include "app/serve/api/usage.h"

json_t *usage_openai(const struct job *j)
{
    struct usage u = job_usage(j);

    return json_pack("{s:i, s:i, s:i, s:{s:i, s:i, s:i}, s:{s:i, s:i, s:i, s:i}}", "prompt_tokens",
                     u.prompt, "completion_tokens", u.completion, "total_tokens",
                     u.prompt + u.completion, "prompt_tokens_details", "cached_tokens", u.cached,
                     "stored_tokens", u.stored, "audio_tokens", 0, "completion_tokens_details",
                     "reasoning_tokens", u.reasoning, "audio_tokens", 0,
                     "accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0);
}
