/* Bytes as JSON can hold them: what is no UTF-8 becomes U+FFFD. Pure; any thread. */
#ifndef APP_SERVE_TEXT_JSON_H
#define APP_SERVE_TEXT_JSON_H

#include <jansson.h>
#include <stddef.h>

/* A new string; NULL: no memory. */
json_t *text_json(const char *bytes, size_t n);

#endif
