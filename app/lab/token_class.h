/* What a token's text is, for asking whether experts specialise by it. Any thread. */
#ifndef APP_LAB_TOKEN_CLASS_H
#define APP_LAB_TOKEN_CLASS_H

#include "app/lab/routing_trace.h"

struct tokenizer;

enum trace_class token_class(const struct tokenizer *t, int id);

#endif
