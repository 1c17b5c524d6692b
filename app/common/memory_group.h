/* The memory a control group leaves to this process, of version 1 (a folder of its own for memory)
 * or 2 (one tree for everything), or of both where they are mixed. Any thread; nothing is
 * allocated. */
#ifndef APP_COMMON_MEMORY_GROUP_H
#define APP_COMMON_MEMORY_GROUP_H

#include <stdint.h>

#define MEMORY_GROUP_UNKNOWN UINT64_MAX /* as SYSTEM_UNKNOWN of system_sample.h */

struct memory_group {
    /* bytes: the smallest on the way up to the root; MEMORY_GROUP_UNKNOWN: none */
    uint64_t limit;
    /* bytes: the least that any of these groups still gives, its file cache counted as free;
     * MEMORY_GROUP_UNKNOWN: not told */
    uint64_t left;
    /* microseconds so far in which something of this process's own group waited for memory
     * (version 2 alone); MEMORY_GROUP_UNKNOWN: not told */
    uint64_t stalled_us;
};

/* Of a text as memory.pressure and /proc/pressure/memory have it, "some ... total=N";
 * MEMORY_GROUP_UNKNOWN: it says nothing. */
uint64_t memory_group_stalled(const char *text);

/* root: "" for this machine; a folder that holds proc/ and sys/ for tests. */
void memory_group_read(const char *root, struct memory_group *out);

#endif
