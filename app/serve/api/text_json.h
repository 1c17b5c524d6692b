/* Bytes as JSON can hold them: what is no UTF-8 becomes U+FFFD. Pure; any thread. */
#ifndef APP_SERVE_API_TEXT_JSON_H
#define APP_SERVE_API_TEXT_JSON_H

#include "engine/base/strbuf.h"

#include <jansson.h>
#include <stddef.h>

/* A new string; NULL: no memory. */
json_t *text_json(const char *bytes, size_t n);
/* The same, written with its quotes: for answers so long that values would take gigabytes. */
void text_json_put(struct strbuf *out, const char *bytes, size_t n);

#endif
