/* A session of the engine as the server sees it: its client, the task it answers, and which tokens
 * it holds, so that a prompt finds the session that holds most of it. dispatcher thread. */
#ifndef APP_SERVE_DISPATCH_SLOT_H
#define APP_SERVE_DISPATCH_SLOT_H

#include "app/serve/request/job.h"

struct slot {
    struct server *server;
    int number;
    struct client *client;
    bool ready;
    struct task *task;              /* NULL: idle */
    int *held, n_held;              /* ids; what it holds at most */
    float strengths[LORA_ADAPTERS]; /* of adapters, with which that was computed */
    uint64_t used_ns;               /* when a task began; 0: never */
    /* of the task, or of the last one: tokens of its prompt, those that were there, those that are
     * there by now; tokens of the answer, and when the first and the newest came */
    int prompt, cached, read, made;
    uint64_t first_ns, newest_ns;
};

/* The idle session for a turn: the one that holds most of its prompt. One that would lose more
 * than half of what it holds is spared while another one is there that loses less, since a
 * beginning that sessions have in common is taken from there. Then the one used longest ago. NULL:
 * none is idle. */
struct slot *slot_choose(struct slot *slots, int n, const struct turn *t);
/* Sends the task's turn. -1: no memory. */
int slot_begin(struct slot *s, struct task *t);
/* Its task is over. */
void slot_end(struct slot *s);
/* Takes note of what the engine tells. */
void slot_note(struct slot *s, const struct event *ev);
/* Closes its client: whoever has drained it, or nobody has. */
void slot_release(struct slot *s);

#endif
