/* Between requests and the engine: the sessions, who has which, and who waits. One thread of its
 * own is the owner of the engine's clients; it gives waiting tasks to idle sessions, the one that
 * holds most of a prompt before others, drains the rings of their events into the answers, and ends
 * what nobody waits for any more. */
#ifndef APP_SERVE_HUB_H
#define APP_SERVE_HUB_H

#include "app/serve/job.h"
#include "engine/run/telemetry.h"

/* What happened so far, and what is going on. Plain data. */
struct hub_figures {
    uint64_t requests, completed, cancelled, failed;
    uint64_t prompt_tokens, cached_tokens, stored_tokens; /* cached; of these from the disk */
    uint64_t completion_tokens;                           /* of answers under way too */
    uint64_t drafted, accepted;
    uint64_t prefill_ns, decode_ns, ttft_ns,
        first_tokens;               /* sums; answers that had a first token */
    int running, waiting, sessions; /* tasks with a session, without; sessions */
    uint64_t held_tokens;           /* that sessions hold now */
    /* the engine's own, at most a second old */
    struct pass_figures passes;
    struct stored_figures stored;
    uint64_t kv_bytes, kv_used_bytes;
    double expert_entropy; /* bits, mean over layers, of the first session; 0: no experts */
    char plan[64];
};

/* Starts the thread and opens the sessions; the model may be loading still. */
int hub_start(struct server *s, struct error *e);
/* Waits until everything is answered, or `seconds` are over: then what is left is cancelled. */
void hub_drain(struct hub *h, int seconds);
void hub_stop(struct hub *h); /* accepts NULL */
/* How the engine failed; code 0: it has not. */
struct error hub_failure(struct hub *h);
void hub_look(struct hub *h, struct hub_figures *out);

/* Takes j. Any thread. -1: refused, j is still the caller's. */
int hub_submit(struct hub *h, struct job *j, struct refusal *r);

/* What a route's function does with a request that the engine answers: makes a job, lets `read`
 * fill it, and submits it, or says why not. Desk thread. */
void hub_answer(struct exchange *x, const struct dialect *dialect, const char *prefix,
                int (*read)(struct job *j, struct refusal *r));

#endif
