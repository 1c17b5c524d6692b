/* The dispatcher's figures, for /metrics and the status. */
#ifndef APP_SERVE_DISPATCH_DISPATCHER_FIGURES_H
#define APP_SERVE_DISPATCH_DISPATCHER_FIGURES_H

#include "engine/run/report/telemetry.h"

/* Totals and current state. Plain data. */
struct dispatcher_figures {
    uint64_t requests, completed, cancelled, failed;
    uint64_t prompt_tokens, cached_tokens, stored_tokens; /* cached; of these read from disk */
    uint64_t completion_tokens;                           /* of running answers too */
    uint64_t drafted, accepted;
    uint64_t prefill_ns, decode_ns, ttft_ns,
        first_tokens;               /* sums; answers that had a first token */
    int running, waiting, sessions; /* tasks with a session, without; sessions */
    uint64_t held_tokens;           /* in the KV caches of the sessions */
    /* the engine's own, at most a second old */
    struct pass_figures passes;
    struct at_once_figures at_once;
    uint64_t audited; /* jobs of devices (telemetry.h, health) */
    int devices_wrong, devices_lost;
    struct disk_figures stored;
    uint64_t kv_bytes, kv_used_bytes;
    double expert_entropy; /* bits, mean over layers, of the first session; 0: no experts */
    char plan[TELEMETRY_PLAN_NAMES];
};

#endif
