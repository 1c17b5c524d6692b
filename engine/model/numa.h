/* Placement of packed weights on a machine with several memory nodes. Decoding reads all weights of
 * a token once, at the speed of memory, and each compute thread takes the same part of every
 * phase's rows first (pool.h): the parts of a node's threads should be in that node's memory.
 * Prefill is bound by computing and its tasks go to any free thread, so it does not matter here.
 * Float weights are read from the mapped file: they are where the page cache has them. Slices end
 * at pages of 4 KiB, so those of small experts lose huge pages: some per cent of the read speed,
 * less than the loss by reading another node's memory. Any thread; pure except numa_bind. */
#ifndef ENGINE_MODEL_NUMA_H
#define ENGINE_MODEL_NUMA_H

#include "engine/base/topology.h"
#include "engine/model/model.h"

/* each may become a separate mapping, and a process may have some 65,000 */
#define NUMA_SLICES 16384

/* The slices of `base` .. base + bytes for node[t] of each of n_threads: those matrices that are
 * there, in any order, adjacent ones of one node merged. Matrices of one phase are divided as one:
 * the rows of q, k and v together into n_threads parts; o, gate, up, down and the head each
 * separately. Returns how many, -1: more than max. All node numbers equal: 0. */
int numa_slices(const struct model *m, const void *base, size_t bytes, const int *node,
                int n_threads, struct topology_slice *out, int max);
/* Places untouched memory at base for n_threads pinned threads: slices to their nodes, the rest
 * interleaved; with one node nothing, with more threads than cores (they are not pinned then) or
 * more slices than NUMA_SLICES all interleaved. */
void numa_bind(const struct model *m, void *base, size_t bytes, int n_threads);

#endif
