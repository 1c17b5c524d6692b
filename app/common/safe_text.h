/* A model's text on a stream: it is untrusted, so on a terminal its control characters are made
 * visible and piles of combining marks are cut; elsewhere it is written as it is. Any thread that
 * owns the stream. */
#ifndef APP_COMMON_SAFE_TEXT_H
#define APP_COMMON_SAFE_TEXT_H

#include "engine/base/utf8.h"

#include <stdbool.h>
#include <stdio.h>

/* marks: of what went to this terminal before. False: it could not be written (errno). */
bool safe_text_put(FILE *out, bool tty, struct utf8_marks *marks, const char *text, size_t n);

#endif
