/* Where packed weights lie on a machine with several memory nodes. Decoding reads all weights of a
 * token once, at the speed of memory, and each compute thread takes the same part of every phase's
 * rows first (pool.h): the parts of a node's threads belong into that node's memory. Prompts are
 * bound by computing and their tasks go to whoever is free, so they do not matter here. Float
 * weights are read where the file is mapped: they lie where the page cache has them. Slices end at
 * pages of 4 KiB, so those of small experts lose huge pages: some per cent of the read speed,
 * against the part of it that other nodes' memory is slower by. Any thread; pure but for numa_bind.
 */
#ifndef ENGINE_MODEL_NUMA_H
#define ENGINE_MODEL_NUMA_H

#include "engine/base/topology.h"
#include "engine/model/model.h"

/* each may become a mapping of its own, and a process may have some 65,000 */
#define NUMA_SLICES 16384

/* The slices of `base` .. base + bytes that node[t] of each of n_threads gets: those matrices that
 * lie there, in any order, neighbours of one node as one. Matrices of one phase are cut as one:
 * rows of q, k and v, one behind the other, into n_threads parts; o, gate, up, down and the head
 * each for itself. Returns how many, -1: more than max. All node numbers alike: 0. */
int numa_slices(const struct model *m, const void *base, size_t bytes, const int *node,
                int n_threads, struct topology_slice *out, int max);
/* Memory at base that nobody has touched yet, for n_threads pinned threads: slices to their nodes,
 * what is left interleaved; with one node nothing, with more threads than cores (they are not
 * pinned then) or more slices than NUMA_SLICES all interleaved. */
void numa_bind(const struct model *m, void *base, size_t bytes, int n_threads);

#endif
