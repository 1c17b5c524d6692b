/* What the machine looks like to this process: physical cores it may use, their nodes, and the CPU share a container leaves it.
 * Read once with hwloc, on first use; immutable afterwards: any thread. */
#ifndef ENGINE_BASE_TOPOLOGY_H
#define ENGINE_BASE_TOPOLOGY_H

/* Physical cores this process may run on (affinity mask honoured); at least 1. */
int topology_cores(void);
/* Threads worth using by default: physical cores, or the container's CPU quota rounded up where that is less. */
int topology_default_threads(void);
/* One logical CPU number per physical core, at most max; cores of one node stand together. Returns how many. */
int topology_core_cpus(int *cpus, int max);
/* NUMA nodes that have cores of ours; at least 1. */
int topology_nodes(void);

/* Pure pieces, for the tests: the same answers from a synthetic description ("node:2 core:4 pu:2"), and from the text of a
 * cgroup's cpu.max ("200000 100000": 2; "max 100000": 0, no limit). The synthetic call returns -1 when hwloc refuses the text. */
int topology_from_synthetic(const char *description, int *cpus, int max, int *nodes);
int topology_quota(const char *cpu_max);

#endif
