/* Memory that is available now without swapping: of the machine, and of the control groups of this
 * process. Any thread; nothing is allocated. */
#ifndef APP_COMMON_MEMORY_LEFT_H
#define APP_COMMON_MEMORY_LEFT_H

#include <stdint.h>

/* Bytes; UINT64_MAX: unknown. root: "" for this machine; a folder that holds proc/ and sys/ for
 * tests. */
uint64_t memory_left(const char *root);
/* Total microseconds in which something waited for memory (PSI): in this process's control group,
 * else on the machine; UINT64_MAX: unknown. root: as above. */
uint64_t memory_stalled(const char *root);

#endif
