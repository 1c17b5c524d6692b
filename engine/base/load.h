/* How much of the machine other programs use between two looks, from /proc/stat and this process'
 * own CPU time. For whoever measures: what was measured beside others is true only beside them. Any
 * thread. */
#ifndef ENGINE_BASE_LOAD_H
#define ENGINE_BASE_LOAD_H

#include <stdint.h>

#define LOAD_STAT "/proc/stat"

struct load {
    uint64_t busy, all; /* ns of all CPUs together since the machine started; all 0: unknown */
    uint64_t own;       /* ns of this process */
    int cpus;
};

/* Reads the text of `path` (LOAD_STAT), proc(5). */
void load_look(struct load *l, const char *path);
/* Pure: parses it; tick: ns of its unit. own is not changed. */
void load_parse(struct load *l, const char *text, uint64_t tick);
/* Per cent of all CPUs that others used from one look to the next, 0 .. 100, what a hypervisor took
 * away included. Counters advance by ticks: one for each CPU is not counted, so a short while shows
 * too little rather than too much. 0 where it is unknown. */
int load_others(const struct load *from, const struct load *to, uint64_t tick);
/* ns of a tick of /proc/stat */
uint64_t load_tick(void);

#endif
