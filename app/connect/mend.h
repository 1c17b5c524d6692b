/* Repairs JSON from servers that split UTF-8 characters, and invalid UTF-8 on its way into JSON:
 * invalid parts are replaced, the rest is kept. Pure; any thread. */
#ifndef APP_CONNECT_MEND_H
#define APP_CONNECT_MEND_H

#include <jansson.h>
#include <stddef.h>

/* Parses with jansson; if that fails, again with malformed bytes and unpaired surrogates replaced
 * by U+FFFD. NULL: it is not JSON. */
json_t *mend_read(const char *text, size_t n);
/* A JSON string of the text, with invalid UTF-8 replaced likewise; NULL: out of memory. */
json_t *mend_string(const char *text);

#endif
