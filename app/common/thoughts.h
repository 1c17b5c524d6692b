/* Prints a model's reasoning on standard error, dimmed if that is a terminal. Main thread. */
#ifndef APP_COMMON_THOUGHTS_H
#define APP_COMMON_THOUGHTS_H

#include "engine/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>

/* Zeroed: none yet. */
struct thoughts {
    bool open, line_open;
    struct utf8_marks marks; /* of what went to the terminal */
};

void thoughts_put(struct thoughts *t, const char *text, size_t n);
/* The answer begins, or ends. */
void thoughts_end(struct thoughts *t);

#endif
