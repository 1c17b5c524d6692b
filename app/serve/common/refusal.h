/* Why a request is not answered: an HTTP status and an error object in the form of the API that was
 * called. Plain data; any thread. A client's error is never a 5xx, since
 * clients retry those. */
#ifndef APP_SERVE_COMMON_REFUSAL_H
#define APP_SERVE_COMMON_REFUSAL_H

#include "engine/base/error.h"

#include <jansson.h>
#include <stdbool.h>

/* Whose API: the form of its errors. */
enum api_form { API_OPENAI, API_ANTHROPIC, API_OLLAMA };

struct refusal {
    int status;
    const char *code;     /* a literal, or NULL: null */
    char param[80];       /* the field that is wrong; empty: null */
    char text[512];       /* one line of UTF-8 */
    unsigned retry_after; /* seconds; 0: not sent */
};

/* Fills *r; returns -1, so that `return refuse(...)` does both. */
int refuse(struct refusal *r, int status, const char *code, const char *param, const char *format,
           ...) __attribute__((format(printf, 5, 6)));
/* For an error of the engine about a prompt or an answer: its code decides the status. */
int refuse_error(struct refusal *r, const struct error *e);
/* A new reference; NULL: no memory. */
json_t *refusal_json(const struct refusal *r, enum api_form form);

#endif
