/* What a token's text is, for asking whether experts specialise by it. Any thread. */
#ifndef APP_LAB_TOKEN_CLASS_H
#define APP_LAB_TOKEN_CLASS_H

#include "app/lab/routing_trace.h"

#include <stddef.h>

struct tokenizer;

struct token_traits {
    uint8_t class, script, stopword; /* enum trace_class, trace_script; stop word of a language */
};

struct token_traits token_traits(const struct tokenizer *t, int id);
/* The script of the first letter of n bytes, and the language that has them, without blanks before
 * them, as a stop word. */
enum trace_script text_script(const char *text, size_t n);
int text_stopword(const char *text, size_t n);

#endif
