/* A session of the engine as the server sees it: its client, its task, and the tokens in its KV
 * cache, so that a prompt is given to the session with the longest prefix of it. dispatcher thread.
 */
#ifndef APP_SERVE_DISPATCH_SLOT_H
#define APP_SERVE_DISPATCH_SLOT_H

#include "app/serve/request/job.h"

struct slot {
    struct server *server;
    int number;
    struct client *client;
    bool ready;
    struct task *task;              /* NULL: idle */
    int *held, n_held;              /* ids in the KV cache; their maximum */
    float strengths[LORA_ADAPTERS]; /* of adapters, with which they were computed */
    struct expert_edits *edits;     /* likewise; a reference, NULL: none */
    uint64_t used_ns;               /* when a task began; 0: never */
    /* of the task, or of the last one: tokens of its prompt, the cached ones, those computed by
     * now; tokens of the answer, and when the first and the newest were made */
    int prompt, cached, read, made;
    uint64_t first_ns, newest_ns;
};

/* The idle session for a turn: the one with the longest prefix of its prompt. A session that would
 * lose more than half of its tokens is avoided if another one loses less, since a common prefix is
 * copied from it. Among equals the least recently used. NULL: none is idle. */
struct slot *slot_choose(struct slot *slots, int n, const struct turn *t);
/* Makes t the slot's task, and sends its turn to the engine. -1: no memory. */
int slot_begin(struct slot *s, struct task *t);
/* Its task is over. */
void slot_end(struct slot *s);
/* Updates the slot from an event of the engine. */
void slot_note(struct slot *s, const struct event *ev);
/* Closes its client, after its events were drained or if they are not needed. */
void slot_release(struct slot *s);

#endif
