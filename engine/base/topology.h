/* The machine as available to this process: physical cores it may use, their nodes, and the CPU
 * quota of its container. Read once with hwloc, on first use; immutable afterwards: any thread. */
#ifndef ENGINE_BASE_TOPOLOGY_H
#define ENGINE_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Physical cores this process may run on (affinity mask honoured), without those of low power
 * (topology_hybrid); at least 1. */
int topology_cores(void);
/* Their kinds, the fastest first, as hwloc tells them apart: cores[k] of each. Returns how many; 1:
 * all alike or not known. */
#define TOPOLOGY_KINDS 4
int topology_kinds(int cores[TOPOLOGY_KINDS]);
/* Default number of threads: those cores without the little ones (topology_big), or the container's
 * CPU quota rounded up if that is less. */
int topology_default_threads(void);
/* One logical CPU number for each of up to n threads: one per physical core, and on each node its
 * share of them (topology_assign), since every node adds its memory channels; threads of one node
 * are adjacent, and the fast cores of a node come first. Returns how many. */
int topology_core_cpus(int *cpus, int n);
/* The node of each of those CPUs. */
int topology_core_nodes(int *nodes, int n);
/* NUMA nodes with cores available to us; at least 1. */
int topology_nodes(void);
/* Spreads the pages of untouched memory evenly over the nodes: threads of all nodes read all
 * weights, in any order, so that every memory channel is used. No-op on one node. */
void topology_interleave(void *p, size_t bytes);
/* Places each slice's untouched pages on its node; if that is full they come from another one.
 * No-op on one node. */
struct topology_slice {
    size_t offset, bytes; /* of p; whole pages */
    int node;
};
void topology_bind(void *p, const struct topology_slice *slices, int n);

/* Pure pieces, for the tests: the same answers from a synthetic description ("node:2 core:4 pu:2"),
 * -1 when hwloc refuses the text, and from the files of a machine below `root`. */
int topology_from_synthetic(const char *description, int *cpus, int max, int *nodes);
/* node[i] of each of n_cores cores -> core[t] of each of n_threads <= n_cores threads: a node gets
 * threads in proportion to its cores, the rest going to the nodes that lose most by rounding, lower
 * ones first. Threads of a node take its first cores. */
void topology_assign(const int *node, int n_cores, int n_threads, int *core);
/* as topology_core_cpus would; node of each */
int topology_assign_synthetic(const char *description, int n_threads, int *cpus, int *nodes);
/* CPUs that the control groups leave (control_group.h), rounded up; 0: no limit. */
int topology_quota(const char *root);
/* Where cores are of several kinds (hwloc's, the slowest 0; -1: unknown): order[i] is the core at
 * place i, the fast kinds first, within a kind as they were. */
void topology_fast_first(const int *kind, int n, int *order);
/* How many of n cores are worth a thread: those with at least three fifths of the greatest capacity
 * (Linux' cpu_capacity, 1024 that of the fastest core; 0: unknown, which counts). A layer waits for
 * its slowest thread: a Cortex-A55 beside a Cortex-A76 would halve the speed. */
int topology_big(const int *capacity, int n);

/* A core of an x86 processor whose cores are of several kinds. */
struct topology_core {
    int cpu, node;
    int kind, capacity; /* hwloc's, -1: unknown; Linux', see topology_big */
    int mhz;            /* of its greatest clock; 0: unknown */
    uint64_t type;      /* hash of the processor's own word for it (Intel's Core, Atom); 0: none */
    bool shared_cache;  /* it is below a third-level cache */
};
/* Removes the cores of low power, which are for a display at rest: outside the third-level cache
 * that others share (Intel's LP-E cores on the tile of the system agent, from Meteor Lake on), or
 * with less than three fifths of the greatest clock. Returns how many are left, in their order. */
int topology_hybrid(struct topology_core *core, int n);

#endif
