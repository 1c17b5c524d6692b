/* Sizes as people write them: "4M", "1.5G", "600MiB", "4096"; always binary units. Any thread, no
 * allocation. */
#ifndef ENGINE_BASE_SIZE_H
#define ENGINE_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

int size_parse(const char *text, uint64_t *out); /* 0, or -1 when text is no size */
/* "612 MiB", "1.5 GiB", "0 B": at most 16 bytes with the 0. Returns out. */
char *size_format(uint64_t bytes, char *out, size_t n);

#endif
