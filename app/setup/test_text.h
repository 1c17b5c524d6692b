/* The texts used for measuring: of a file, or the prompts included in the program. Any thread:
 * nothing is kept. */
#ifndef APP_SETUP_TEST_TEXT_H
#define APP_SETUP_TEST_TEXT_H

#include "engine/base/error.h"
#include "engine/text/tokenizer.h"

#include <stddef.h>

#define TEST_TEXT_DEFAULT "default"

/* Whole file, "-" is standard input; *out is mem_* memory. ERR_IO. */
int test_text_read(const char *path, char **out, size_t *n, struct error *e);
/* The same for prompts, one per line; name NULL or "default": those included in the program. path
 * gets the file read. */
int test_prompts_read(const char *name, char path[4096], char **out, size_t *n, struct error *e);
/* The next prompt of a text: lines that are empty or begin with # are skipped. *rest is advanced
 * past it and is NULL at the end; the text is split at its line ends in place. NULL: no more. */
char *test_text_line(char **rest);
/* Tokenizes a text; name NULL or "default": the prompts included in the program. */
int test_text_ids(const char *name, const struct tokenizer *t, int **ids, int *n, struct error *e);

#endif
