/* The engine's figures: plain data, copied through a triple buffer (engine/base/snapshot.h), so a
 * reader always sees one consistent state. Written by the engine thread between tokens (metrics.c
 * measures and computes every number); read by the UI thread. All times in nanoseconds of
 * CLOCK_MONOTONIC. */
#ifndef ENGINE_RUN_TELEMETRY_H
#define ENGINE_RUN_TELEMETRY_H

#include "engine/device/device.h"
#include "engine/layout/lora.h"
#include "engine/model/expert_cache.h"
#include "engine/placement/plan.h"
#include "engine/placement/verdict.h"
#include "engine/run/report/device_health.h"

#include <stddef.h>
#include <stdint.h>

#define TELEMETRY_LAYERS 1024
#define TELEMETRY_RECENT 128 /* newest token times kept */
#define TELEMETRY_ROUTES 256 /* newest tokens whose experts are kept */
#define TELEMETRY_PLANS 16
#define TELEMETRY_SPANS 320 /* blocks of one token's timeline; deeper models are truncated */

enum engine_state { ENGINE_LOADING, ENGINE_IDLE, ENGINE_PREFILL, ENGINE_DECODE, ENGINE_STOPPED };

struct plan_metrics { /* every plan used in this session */
    char name[64];
    uint64_t tokens, decode_ns;
    double mean_tok_s, median_tok_s, sd_tok_s, q1_tok_s, q3_tok_s;
    uint64_t prompt_tokens, prompt_ns; /* of passes with rows of prompts only */
    double prompt_tok_s;
    /* what the cost model expected when the plan was chosen; 0: costs are not known */
    double expected_tok_s, expected_prompt_tok_s;
    uint64_t ttft_ns;              /* of the newest turn started under it; 0: none */
    uint64_t wait_ns, transfer_ns; /* total under this plan */
    double share[DEVICE_MAX];      /* of the busy time, by device */
    /* switches to it during an answer: how often, the tokens generated until all its blocks had
     * moved, and the time the answer waited for plans and moves between two tokens, at most and in
     * total */
    uint64_t switches, switch_tokens, stall_ns, stall_sum_ns;
};

/* One block of the timeline: kind is an enum trace_kind (engine/run/report/trace.h), layer
 * n_layers: head and sampling. */
struct telemetry_span {
    uint32_t start_us, duration_us; /* from the token's start; duration at least 0 */
    int16_t layer;
    uint8_t kind, device;
};

#define TELEMETRY_DRAFTS 16 /* positions in a draft */

/* Speculative decoding (engine/run/speculate.c) in the session, since it was cleared. */
struct speculation_figures {
    bool wanted;                     /* --spec-type is not none */
    uint64_t passes, passes_drafted; /* passes that decoded; of these with drafts */
    uint64_t passes_early;           /* of these without: weights were still being moved */
    uint64_t drafted, accepted;      /* tokens */
    /* by position in their draft: verified; right together with all before them */
    uint64_t tried[TELEMETRY_DRAFTS], right[TELEMETRY_DRAFTS];
    uint64_t changed; /* drafted tokens used in place of what the model drew */
    int rows;         /* drafted rows in the newest pass that had any */
    double gain;   /* recent gain in tokens/s, 0.5: half as many more than without; 0: no drafts */
    char from[16]; /* name of the last drafter used */
    char why[96];  /* one line: why nothing is drafted; empty: something is */
};

/* Passes of all sessions since the start. */
#define PASS_BUCKETS 10
struct pass_figures {
    uint64_t passes, rows; /* rows: of prompts too */
    /* decode passes, by number of answering sessions: at most 1, 2, 3, 4, 6, 8, 16, 32, 64
     * (pass_bucket_most), more */
    uint64_t answering, answers[PASS_BUCKETS];
    uint64_t answered; /* sum of answering sessions over all passes */
};
/* Prompts and tokens of several sessions that two sides computed at the same time: pieces of
 * prompts, their rows, and tokens computed meanwhile; the time of all that, and the time of both
 * sides together, which they would have taken by turns if neither was slowed by the other. */
struct at_once_figures {
    uint64_t pieces, rows, tokens, ns, turns_ns;
};
/* The prompt cache on disk (engine/run/state/prompt_cache.h): contents of its folder, of all
 * models, and pieces of up to 256 tokens since the start. */
struct disk_figures {
    uint64_t most; /* size limit of the folder in bytes; 0: no cache */
    uint64_t files, bytes;
    uint64_t read, read_tokens, written, refused; /* refused: damaged ones */
};
/* INT_MAX for the last bucket. */
int pass_bucket_most(int bucket);

struct telemetry {
    enum engine_state state;
    uint64_t serial; /* grows with every publication */
    /* the current layer, from 1, during a long pass; 0: none */
    int layer_at;
    /* this turn */
    int prompt_tokens, cached_tokens, prefilled_tokens, generated_tokens;
    int recomputed_tokens;                                 /* see turn_done_event */
    uint64_t turn_start_ns, first_token_ns, last_token_ns; /* 0: not yet */
    uint64_t prefill_ns, decode_ns;
    /* of this turn: pauses of --pace, excluded from the rates */
    uint64_t paused_ns;
    /* decode: (tokens - 1) / (last - first), without pacing pauses */
    double prefill_tok_s, decode_tok_s;
    double pace; /* most tokens a second; 0: off */
    /* computing time of the newest tokens, ring */
    uint32_t recent_us[TELEMETRY_RECENT];
    /* total ever; newest at (count - 1) % TELEMETRY_RECENT */
    uint64_t recent_count;
    /* session */
    int context_used, context_size;
    uint64_t session_prompt_tokens, session_generated_tokens;
    /* timeline of the newest traced token (about one a second, while enabled); 0: none */
    int n_spans;
    struct telemetry_span spans[TELEMETRY_SPANS];
    struct speculation_figures speculation;
    struct pass_figures passes;
    struct at_once_figures at_once;
    struct disk_figures stored;
    /* adapters: how many, and the strengths of the chat's session */
    int n_adapters;
    float strengths[LORA_ADAPTERS];
    uint64_t adapter_bytes, control_bytes; /* control_bytes: of control vectors */
    /* edits of the routing of the chat's session: how many experts, hash (0: none), text (cut off),
     * whether they differ from those of the start */
    int n_edits;
    uint64_t edits_hash;
    char edits[200];
    bool edits_others;
    uint8_t *edited; /* (n_layers, n_experts): 1: the expert is off, weighted or swapped */
    /* memory */
    uint64_t weights_packed, weights_mapped, kv_bytes, scratch_bytes;
    uint64_t kv_used_bytes; /* part of kv_bytes in use; kv_bytes is for whole contexts */
    /* bytes one decoded token reads: routed experts only; KV at the present length */
    uint64_t token_weight_bytes, token_kv_bytes;
    int n_devices;
    struct device_stats devices[DEVICE_MAX];
    int audit; /* one job of a device in so many is audited; 0: none */
    struct device_health health[DEVICE_MAX];
    /* what a job of one row takes beyond its kernels: until it is given, and from then on; typical,
     * 0: not learnt */
    uint64_t launch_ns[DEVICE_MAX], handoff_wait_ns[DEVICE_MAX];
    /* experts that stay on disk (slots 0: none), since the start; and recently: bytes a second
     * while the disk read, the share of requested experts that were in memory, and of the time that
     * computing waited for the disk */
    struct expert_cache_stats disk;
    double disk_rate, disk_hits, disk_share;
    /* placement: the plan of tokens, and of prompts if they have their own; of which of the two the
     * newest pass was (idle: tokens) */
    char plan[64], prompt_plan[64];
    enum plan_phase phase;
    /* what the change of sides cost after the newest prompt: copying its rows to where tokens are
     * computed; 0: there was nothing to copy */
    uint64_t handover_ns, handover_bytes;
    /* what only the CPU can compute of the model and so stays there under every plan: "latent
     * attention (MLA), 27 layers", "experts with adapters, 8 layers"; empty: nothing, or there is
     * no other device */
    char cpu_only[128];
    struct verdict verdict; /* of placement auto; n_rows 0: none */
    int moves_pending;
    uint64_t moves_pending_bytes, moved_bytes;
    /* the longest such wait of the session, and the time of a token just before it (median); 0:
     * none */
    uint64_t stall_ns, stall_token_ns;
    char stall_plan[64]; /* the plan that was being applied then */
    /* the bandwidth semaphore: active, bytes taken, time that jobs waited for it */
    bool bandwidth_on;
    uint64_t bandwidth_taken, bandwidth_waited_ns;
    int n_plans;
    struct plan_metrics plans[TELEMETRY_PLANS];
    /* experts: arrays of n_layers * n_experts, layer-major, allocated once with the snapshot */
    int n_layers, n_experts, n_experts_used;
    /* Per layer: the routed experts, and the count with the one after them that every token uses (a
     * shared expert; in a dense layer the only one). blocks 0: not set, all n_experts are routed;
     * TELEMETRY_MIXER: the layer is a mixer only and has none. */
#define TELEMETRY_MIXER 0xffff
    uint16_t routed[TELEMETRY_LAYERS], blocks[TELEMETRY_LAYERS];
    /* tokens routed there: this answer (without its prefill), whole session with prefill */
    uint32_t *answer, *session;
    float *now;       /* decayed use, newest token adds 1, half-life 16 tokens */
    uint8_t *ran_on;  /* device that last ran the expert, or would now (phase); PLAN_NO_DEVICE:
                         never */
    uint8_t *planned; /* its device in the current plan of this phase */
    uint8_t *here;    /* 0: it is on disk only */
    uint8_t *newest;  /* 1 + routing slot if the newest token chose it, else 0 */
#define TELEMETRY_NO_EXPERT 0xffff
    uint16_t *routes; /* (TELEMETRY_ROUTES, n_layers, n_experts_used): experts of the pass that made
                         a token, in slot order; the token with serial s (struct token_event) lies
                         at (s - 1) % TELEMETRY_ROUTES; s up to session_generated_tokens */
};

static inline int telemetry_routed(const struct telemetry *t, int layer)
{
    return t->blocks[layer] ? t->routed[layer] : t->n_experts;
}

static inline int telemetry_blocks(const struct telemetry *t, int layer)
{
    return t->blocks[layer] == TELEMETRY_MIXER ? 0
           : t->blocks[layer]                  ? t->blocks[layer]
                                               : t->n_experts;
}

/* "cpu", or "cpu, prompts gpu" where prompts have a plan of their own; returns out. */
#define TELEMETRY_PLAN_NAMES 144
const char *telemetry_plan_names(const struct telemetry *t, char *out, size_t size);

/* Allocates the arrays, zeroed; ERR_MEMORY. Copying allocates nothing: both must have the same
 * shape. */
int telemetry_init(struct telemetry *t, int n_layers, int n_experts, int n_used);
void telemetry_release(struct telemetry *t);
void telemetry_copy(struct telemetry *to, const struct telemetry *from);

/* Memory that closing the engine gives back, without what is mapped from files. */
static inline uint64_t telemetry_held(const struct telemetry *t)
{
    return t->weights_packed + t->adapter_bytes + t->control_bytes + t->kv_bytes + t->scratch_bytes;
}

#endif
