/* Sizes as people write them: "4M", "1.5G", "600MiB", "4096"; always binary units. Any thread, no
 * allocation. */
#ifndef ENGINE_BASE_SIZE_H
#define ENGINE_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* The number from 0 to most that *text begins with; *text is behind it then. -1: it begins with
 * none, or a larger one. */
int size_digits(const char **text, int most, int *out);
int size_parse(const char *text, uint64_t *out); /* 0, or -1 when text is no size */
/* "612 MiB", "1.5 GiB", "0 B": at most 16 bytes with the 0. Returns out. */
char *size_format(uint64_t bytes, char *out, size_t n);

#endif
