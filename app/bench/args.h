/* The command line of --bench: llama-bench's spellings, its lists and ranges, and the arms of a
 * comparison. Pure functions, main thread. llama-bench's flags mean other things than ours (-p 512
 * is a length there, a text here), so they are respelled before the option table reads the line:
 * with --bench on it, -p becomes --bench-prompt and so on. The table stays the only list of
 * options. */
#ifndef APP_BENCH_ARGS_H
#define APP_BENCH_ARGS_H

#include "app/options/options.h"

/* Respells argv in place where --bench is on the line (argv[i] may point to constants afterwards),
 * and everywhere gives --bench-compare its two files. */
void bench_respell(int argc, char **argv);

/* The i-th of those spellings ("-o") and the option it then means; NULL past the end. */
const char *bench_spelling(int i, const char **ours);

/* "512", "128,256", "1-4", "1-8+2", "1-16*2" of every item of the list. *out is mem_* memory.
 * ERR_USAGE names the item and the flag. */
int bench_numbers(const struct option_list *list, const char *flag, int **out, size_t *n,
                  struct error *e);
/* "512,128" or "512,128;256,64": pairs, both above 0, as 2 * *n numbers. */
int bench_pairs(const struct option_list *list, const char *flag, int **out, size_t *n,
                struct error *e);
/* Cuts "-t 1; -t 2 --place gpu" at the semicolons into arms and each arm into words (quotes group,
 * a backslash keeps the next character). words[a] is a NULL-terminated array; the whole is one
 * mem_* block. */
int bench_arms(const char *text, char ****arms, size_t *n, struct error *e);

#endif
