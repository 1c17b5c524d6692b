/* "Did you mean …?": the word of a list nearest to a misspelled one. Pure functions, any thread. */
#ifndef APP_COMMON_DID_YOU_MEAN_H
#define APP_COMMON_DID_YOU_MEAN_H

#include <stddef.h>

/* Index of the nearest of n words, or -1 if none is near enough to be a likely misspelling (differs
 * in at most a third of its letters, or is a prefix). */
int nearest_word(const char *word, const char *const *words, size_t n);

#endif
