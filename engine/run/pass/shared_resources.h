/* Resources shared by the engines of a process, say a model and its draft model: the thread pool,
 * what a back end needs once per device (OpenCL: context and queues), and the bandwidth semaphore.
 * Passed to engine_open (engine_config.resources); no engine or device owns any of it. Owner: the
 * caller. It outlives the engines opened with it; these close in any order. Thread: one thread
 * creates and frees this and opens, steps and closes all of these engines. So a pass of one is over
 * before another's begins, in the pool as in the queues (pool.h asserts it); engines that compute
 * at the same time need separate resources. Only the device links are also used by a second thread,
 * when it opens devices during an answer. */
#ifndef ENGINE_RUN_PASS_SHARED_RESOURCES_H
#define ENGINE_RUN_PASS_SHARED_RESOURCES_H

#include "engine/base/pool.h"
#include "engine/device/device.h"
#include "engine/placement/bandwidth.h"

struct shared_resources;

/* n_threads of the pool, 0: physical cores; overrides the n_threads of the engines that use it.
 * ERR_MEMORY. */
int shared_resources_new(struct shared_resources **out, int n_threads, struct error *e);
void shared_resources_free(struct shared_resources *c);
struct pool *shared_resources_pool(const struct shared_resources *c);
struct bandwidth *shared_resources_bandwidth(struct shared_resources *c);
/* Locks the link for device_config.link while this device of the back end is opened; NULL: no free
 * entry. Every take is followed by a give. */
struct device_link **shared_resources_link_take(struct shared_resources *c,
                                                const struct device_ops *ops, const char *selector);
void shared_resources_link_give(struct shared_resources *c);

#endif
