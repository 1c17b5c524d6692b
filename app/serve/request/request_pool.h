/* Threads that read requests: JSON, templates and tokenizers take time, for which neither the
 * writing of answers nor the engine may wait. A few threads with one queue, and one reserved for
 * small bodies. */
#ifndef APP_SERVE_REQUEST_REQUEST_POOL_H
#define APP_SERVE_REQUEST_REQUEST_POOL_H

#include "app/serve/common/exchange.h"

struct request_pool;

int request_pool_open(struct request_pool **out, struct error *e);
/* Ends when all queued requests have been read. Accepts NULL. */
void request_pool_close(struct request_pool *d);
/* Runs its route's function on a thread of the pool. Takes a reference of its own. Any thread. -1:
 * no memory. */
int request_pool_submit(struct request_pool *d, struct exchange *x);

#endif
