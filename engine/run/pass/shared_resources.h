/* What engines of one process have in common, say a model and the one that drafts for it: the
 * thread pool, what a back end needs once for each device (OpenCL: context and queues), and the
 * bandwidth semaphore. Handed to engine_open (engine_config.resources); none of it belongs to an
 * engine or a device. Owner: the caller. It outlives the engines that were opened with it; these
 * close in any order. Thread: one thread opens, steps and closes all of these engines, makes this
 * and frees it. So a pass of one is over before another's begins, in the pool as in the queues
 * (pool.h asserts it); engines that are to compute at the same time have resources of their own.
 * Only the links of devices are asked for from a second thread, too, where one opens devices beside
 * an answer. */
#ifndef ENGINE_RUN_PASS_SHARED_RESOURCES_H
#define ENGINE_RUN_PASS_SHARED_RESOURCES_H

#include "engine/base/pool.h"
#include "engine/device/device.h"
#include "engine/placement/bandwidth.h"

struct shared_resources;

/* n_threads of the pool, 0: physical cores; engines that use it have so many, whatever their own
 * configuration says. ERR_MEMORY. */
int shared_resources_new(struct shared_resources **out, int n_threads, struct error *e);
void shared_resources_free(struct shared_resources *c);
struct pool *shared_resources_pool(const struct shared_resources *c);
struct bandwidth *shared_resources_bandwidth(struct shared_resources *c);
/* For device_config.link, while this device of the back end is opened, and no other; NULL: there is
 * no room for another. Every take is followed by a give. */
struct device_link **shared_resources_link_take(struct shared_resources *c,
                                                const struct device_ops *ops, const char *selector);
void shared_resources_link_give(struct shared_resources *c);

#endif
