/* JSON of servers that cut characters in two, and texts that are no UTF-8 on their way into JSON:
 * what cannot be taken is replaced, the rest stands. Pure; any thread. */
#ifndef APP_CONNECT_MEND_H
#define APP_CONNECT_MEND_H

#include <jansson.h>
#include <stddef.h>

/* The value, as jansson reads it; where it refuses, once more with malformed bytes and halves of
 * surrogate pairs replaced by U+FFFD. NULL: it is no JSON. */
json_t *mend_read(const char *text, size_t n);
/* The string of a text, what is no UTF-8 in it replaced likewise; NULL: out of memory. */
json_t *mend_string(const char *text);

#endif
