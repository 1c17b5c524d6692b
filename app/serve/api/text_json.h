/* Bytes as JSON strings: invalid UTF-8 becomes U+FFFD. Pure; any thread. */
#ifndef APP_SERVE_API_TEXT_JSON_H
#define APP_SERVE_API_TEXT_JSON_H

#include "engine/base/strbuf.h"

#include <jansson.h>
#include <stddef.h>

/* A new string; NULL: no memory. */
json_t *text_json(const char *bytes, size_t n);
/* The same, as text with its quotes: for answers so long that json_t values would take gigabytes.
 */
void text_json_put(struct strbuf *out, const char *bytes, size_t n);

#endif
