/* The texts that measuring runs on: a file's, or the prompts that come with the program. Any
 * thread: nothing is kept. */
#ifndef APP_SETUP_TEST_TEXT_H
#define APP_SETUP_TEST_TEXT_H

#include "engine/base/error.h"
#include "engine/text/tokenizer.h"

#include <stddef.h>

#define TEST_TEXT_DEFAULT "default"

/* Whole file, "-" is standard input; *out is mem_* memory. ERR_IO. */
int test_text_read(const char *path, char **out, size_t *n, struct error *e);
/* The same of prompts, a line each; name NULL or "default": the ones that come with the program.
 * path gets what was read. */
int test_prompts_read(const char *name, char path[4096], char **out, size_t *n, struct error *e);
/* The next prompt of a text: lines that are empty or begin with # are none. *rest moves behind it
 * and is NULL at the end; the text is cut at its ends of lines. NULL: no more. */
char *test_text_line(char **rest);
/* Reads a text as ids; name NULL or "default": the prompts that come with the program. */
int test_text_ids(const char *name, const struct tokenizer *t, int **ids, int *n, struct error *e);

#endif
