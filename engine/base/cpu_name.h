/* The processor's name for people, from what Linux tells. Pure; any thread. */
#ifndef ENGINE_BASE_CPU_NAME_H
#define ENGINE_BASE_CPU_NAME_H

#include <stddef.h>

/* cpuinfo: the text of /proc/cpuinfo. x86: its "model name". 64-bit Arm has none: the names of its
 * kinds of cores, known by the numbers of their designer and part, the last kind first, for those
 * are the fast ones, behind the board's (/proc/device-tree/model, "" if there is none). `out` stays
 * as it is where nothing is known. */
void cpu_name_from(const char *cpuinfo, const char *board, char *out, size_t size);

#endif
