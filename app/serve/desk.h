/* Where requests are read: JSON, templates and tokenizers take time, which neither those who write
 * answers nor the engine shall wait for. A few threads with one queue, and one that large bodies do
 * not occupy. */
#ifndef APP_SERVE_DESK_H
#define APP_SERVE_DESK_H

#include "app/serve/exchange.h"

struct desk;

int desk_open(struct desk **out, struct error *e);
/* Ends when all that was handed in is read. Accepts NULL. */
void desk_close(struct desk *d);
/* Its route's function runs on a thread of the desk. Takes a reference of its own. Any thread. -1:
 * no memory. */
int desk_hand_in(struct desk *d, struct exchange *x);

#endif
