/* The command line of --bench: llama-bench's spellings, its lists and ranges, and the arms of a
 * comparison. Pure functions, main thread. Some of llama-bench's flags have other meanings than
 * ours (-p 512 is a length there, a text here), so they are renamed before the option table parses
 * the line: with --bench on it, -p becomes --bench-prompt and so on. The table remains the only
 * list of options. */
#ifndef APP_BENCH_ARGS_H
#define APP_BENCH_ARGS_H

#include "app/options/options.h"

/* Renames flags in argv in place if --bench is on the line (argv[i] may point to constants
 * afterwards), and always splits the two files of --bench-compare. */
void bench_respell(int argc, char **argv);

/* The i-th of those spellings ("-o") and the option it is then short for; NULL past the end. */
const char *bench_spelling(int i, const char **ours);

/* "512", "128,256", "1-4", "1-8+2", "1-16*2" of every item of the list. *out is mem_* memory.
 * ERR_USAGE names the item and the flag. */
int bench_numbers(const struct option_list *list, const char *flag, int **out, size_t *n,
                  struct error *e);
/* "512,128" or "512,128;256,64": pairs, both above 0, as 2 * *n numbers. */
int bench_pairs(const struct option_list *list, const char *flag, int **out, size_t *n,
                struct error *e);
/* Splits "-t 1; -t 2 --place gpu" at the semicolons into arms and each arm into words (quotes
 * group, a backslash escapes the next character). words[a] is a NULL-terminated array; everything
 * is in one mem_* block. */
int bench_arms(const char *text, char ****arms, size_t *n, struct error *e);

#endif
