/* The memory and the processor time that control groups leave to this process, of version 1
 * (separate hierarchies) or 2 (unified hierarchy), or of both if they are mixed. Any thread;
 * nothing is allocated. */
#ifndef ENGINE_BASE_CONTROL_GROUP_H
#define ENGINE_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMORY_GROUP_UNKNOWN UINT64_MAX /* system_sample.h hands it on as SYSTEM_UNKNOWN */

struct memory_group {
    /* bytes: the smallest limit on the path to the root; MEMORY_GROUP_UNKNOWN: none */
    uint64_t limit;
    /* bytes: the least that any of these groups has left, its file cache counted as free;
     * MEMORY_GROUP_UNKNOWN: unknown */
    uint64_t left;
    /* total microseconds in which something in this process's own group waited for memory (version
     * 2 only); MEMORY_GROUP_UNKNOWN: unknown */
    uint64_t stalled_us;
};

/* Of a text in the format of memory.pressure and /proc/pressure/memory, "some ... total=N";
 * MEMORY_GROUP_UNKNOWN: no such line. */
uint64_t memory_group_stalled(const char *text);

/* root: "" for this machine; a folder that holds proc/ and sys/ for tests. */
void memory_group_read(const char *root, struct memory_group *out);

/* Where the groups of this process are in both versions: finding them costs more than reading them,
 * and a process is rarely moved. */
struct memory_group_place {
    struct {
        bool there;
        char folder[2048];
        size_t top; /* length of the mount point, which it begins with */
    } tree[2];
};
void memory_group_find(const char *root, struct memory_group_place *out);
void memory_group_read_at(const char *root, const struct memory_group_place *at,
                          struct memory_group *out);

/* The CPUs' worth of time that the control groups give to this process, the smallest quota on the
 * path to the root: 0.5 is half a CPU; 0: no limit is known. root: as above. */
double cpu_group_quota(const char *root);

#endif
