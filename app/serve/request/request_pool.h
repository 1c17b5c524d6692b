/* Where requests are read: JSON, templates and tokenizers take time, which neither those who write
 * answers nor the engine shall wait for. A few threads with one queue, and one that large bodies do
 * not occupy. */
#ifndef APP_SERVE_REQUEST_REQUEST_POOL_H
#define APP_SERVE_REQUEST_REQUEST_POOL_H

#include "app/serve/common/exchange.h"

struct request_pool;

int request_pool_open(struct request_pool **out, struct error *e);
/* Ends when all that was handed in is read. Accepts NULL. */
void request_pool_close(struct request_pool *d);
/* Its route's function runs on a thread of the pool. Takes a reference of its own. Any thread. -1:
 * no memory. */
int request_pool_submit(struct request_pool *d, struct exchange *x);

#endif
