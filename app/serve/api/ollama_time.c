/* See ollama_time.h. */
#include "app/serve/api/ollama_time.h"

json_t *ollama_time(struct timespec t)
{
    char text[40];
    struct tm tm;

    gmtime_r(&t.tv_sec, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    return json_sprintf("%s.%09ldZ", text, t.tv_nsec);
}

json_t *ollama_time_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return ollama_time(now);
}
