/* What memory can be had at this moment without swapping: of the machine, and of the control groups
 * this process is in. Any thread; nothing is allocated. */
#ifndef APP_COMMON_MEMORY_LEFT_H
#define APP_COMMON_MEMORY_LEFT_H

#include <stdint.h>

/* Bytes; UINT64_MAX: nobody tells. root: "" for this machine; a folder that holds proc/ and sys/
 * for tests. */
uint64_t memory_left(const char *root);
/* Microseconds so far in which somebody waited for memory (PSI): of this process's control group,
 * else of the machine; UINT64_MAX: nobody tells. root: as above. */
uint64_t memory_stalled(const char *root);

#endif
