/* What the engine reports about itself: plain data, copied through a triple buffer
 * (engine/base/snapshot.h), so a reader always sees one consistent state. Written by the engine
 * thread between tokens (metrics.c measures and computes every number); read by the UI thread. All
 * times in nanoseconds of CLOCK_MONOTONIC. */
#ifndef ENGINE_RUN_TELEMETRY_H
#define ENGINE_RUN_TELEMETRY_H

#include "engine/device/device.h"
#include "engine/layout/lora.h"
#include "engine/model/expert_cache.h"

#include <stdint.h>

#define TELEMETRY_LAYERS 1024
#define TELEMETRY_RECENT 128 /* newest token times kept */
#define TELEMETRY_ROUTES 256 /* newest tokens whose experts are kept */
#define TELEMETRY_PLANS 16
#define TELEMETRY_SPANS 320 /* blocks of one token's timeline; deeper models are cut */

enum engine_state { ENGINE_LOADING, ENGINE_IDLE, ENGINE_PREFILL, ENGINE_DECODE, ENGINE_STOPPED };

struct plan_metrics { /* every plan used in this session */
    char name[64];
    uint64_t tokens, decode_ns;
    double mean_tok_s, median_tok_s, sd_tok_s, q1_tok_s, q3_tok_s;
    uint64_t ttft_ns;              /* of the newest turn begun under it; 0: none */
    uint64_t wait_ns, transfer_ns; /* total under this plan */
    double share[DEVICE_MAX];      /* of the busy time, by device */
    /* switching to it while an answer was generated: how often, the tokens generated until all its
     * blocks had moved, and how long the answer waited for plans and moves between two tokens, at
     * most and in all */
    uint64_t switches, switch_tokens, stall_ns, stall_sum_ns;
};

/* One block of the timeline: kind is an enum trace_kind (engine/run/report/trace.h), layer
 * n_layers: head and sampling. */
struct telemetry_span {
    uint32_t start_us, duration_us; /* from the token's begin; duration at least 0 */
    int16_t layer;
    uint8_t kind, device;
};

#define TELEMETRY_DRAFTS 16 /* positions in a draft */

/* Drafted tokens (engine/run/speculate.c): of the session, since it was cleared. */
struct speculation_figures {
    bool wanted;                     /* --spec-type is not none */
    uint64_t passes, passes_drafted; /* that made tokens of answers; with drafts */
    uint64_t passes_early;           /* without: weights were still brought into place beside it */
    uint64_t drafted, accepted;      /* tokens */
    /* by position in their draft: verified; right, with all before them */
    uint64_t tried[TELEMETRY_DRAFTS], right[TELEMETRY_DRAFTS];
    uint64_t changed; /* drafted ones in place of what the model drew */
    int rows;         /* drafted in the newest pass that had any */
    double gain;   /* of late: tokens a second, 0.5: half as many more than without; 0: no drafts */
    char from[16]; /* the drafter heard last */
    char why[96];  /* one line: why nothing is drafted; empty: something was */
};

/* Passes of all sessions since the start. */
#define PASS_BUCKETS 10
struct pass_figures {
    uint64_t passes, rows; /* rows: of prompts too */
    /* those that made tokens, by how many sessions answered in one: at most 1, 2, 3, 4, 6, 8, 16,
     * 32, 64 (pass_bucket_most), more */
    uint64_t answering, answers[PASS_BUCKETS];
    uint64_t answered; /* sum: sessions that answered, of all passes */
};
/* The prompt cache on the disk (engine/run/state/prompt_cache.h): what its folder holds, of all
 * models, and pieces of up to 256 tokens since the start. */
struct disk_figures {
    uint64_t most; /* bytes the folder may hold; 0: there is no cache */
    uint64_t files, bytes;
    uint64_t read, read_tokens, written, refused; /* refused: damaged ones */
};
/* INT_MAX for the last bucket. */
int pass_bucket_most(int bucket);

struct telemetry {
    enum engine_state state;
    uint64_t serial; /* grows with every publication */
    /* the layer that is computed, from 1, while a pass takes long; 0: none does */
    int layer_at;
    /* this turn */
    int prompt_tokens, cached_tokens, prefilled_tokens, generated_tokens;
    int recomputed_tokens;                                 /* see turn_done_event */
    uint64_t turn_start_ns, first_token_ns, last_token_ns; /* 0: not yet */
    uint64_t prefill_ns, decode_ns;
    /* of this turn: pauses of --pace, in no rate */
    uint64_t paused_ns;
    /* decode: (tokens - 1) / (last - first), pacing pauses taken out */
    double prefill_tok_s, decode_tok_s;
    double pace; /* tokens a second at most; 0: off */
    /* computing time of the newest tokens, ring */
    uint32_t recent_us[TELEMETRY_RECENT];
    /* total ever; newest at (count - 1) % TELEMETRY_RECENT */
    uint64_t recent_count;
    /* session */
    int context_used, context_size;
    uint64_t session_prompt_tokens, session_generated_tokens;
    /* timeline of the newest token that was traced (about one a second, while asked for); 0: none
     */
    int n_spans;
    struct telemetry_span spans[TELEMETRY_SPANS];
    struct speculation_figures speculation;
    struct pass_figures passes;
    struct disk_figures stored;
    /* adapters: how many, and the strengths of the chat's session */
    int n_adapters;
    float strengths[LORA_ADAPTERS];
    uint64_t adapter_bytes;
    /* memory */
    uint64_t weights_packed, weights_mapped, kv_bytes, scratch_bytes;
    uint64_t kv_used_bytes; /* of kv_bytes, which is what whole contexts would take */
    /* that one decoded token reads: routed experts only; KV at the present length */
    uint64_t token_weight_bytes, token_kv_bytes;
    int n_devices;
    struct device_stats devices[DEVICE_MAX];
    /* experts that stay on the disk (slots 0: there are none), since the start; and lately: bytes a
     * second while the disk read, the share of experts asked for that were there, and of the time
     * that computing stood still for it */
    struct expert_cache_stats disk;
    double disk_rate, disk_hits, disk_share;
    /* placement */
    char plan[64];
    /* what no other device computes of the model and so stays on the CPU under every plan: "latent
     * attention (MLA), 27 layers", "experts with adapters, 8 layers"; empty: nothing, or there is
     * no other device */
    char cpu_only[128];
    int moves_pending;
    uint64_t moves_pending_bytes, moved_bytes;
    /* the longest such wait of the session, and what a token took just before it (median); 0: none
     */
    uint64_t stall_ns, stall_token_ns;
    char stall_plan[64]; /* the plan that was being put in force then */
    /* the bandwidth semaphore: at work, bytes it let pass, time jobs waited for it */
    bool bandwidth_on;
    uint64_t bandwidth_taken, bandwidth_waited_ns;
    int n_plans;
    struct plan_metrics plans[TELEMETRY_PLANS];
    /* experts: arrays of n_layers * n_experts, layer-major, allocated once with the snapshot */
    int n_layers, n_experts, n_experts_used;
    /* Of each layer: the experts that its router chooses from, and with the one behind them that
     * every token meets (a shared expert; of a dense layer the only one). blocks 0: not said, all
     * n_experts are chosen from; TELEMETRY_MIXER: the layer is a mixer alone and has none. */
#define TELEMETRY_MIXER 0xffff
    uint16_t routed[TELEMETRY_LAYERS], blocks[TELEMETRY_LAYERS];
    /* tokens routed there: this answer (its prefill apart), whole session with prefill */
    uint32_t *answer, *session;
    float *now;       /* decayed use, newest token adds 1, half-life 16 tokens */
    uint8_t *ran_on;  /* device that ran the expert last; PLAN_NO_DEVICE: never */
    uint8_t *planned; /* device the current plan gives it */
    uint8_t *here;    /* 0: it lies on the disk alone */
    uint8_t *newest;  /* 1 + routing slot when the newest token chose it, else 0 */
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

/* Takes the arrays, zeroed; ERR_MEMORY. Copying allocates nothing: both were made for the same
 * shape. */
int telemetry_init(struct telemetry *t, int n_layers, int n_experts, int n_used);
void telemetry_release(struct telemetry *t);
void telemetry_copy(struct telemetry *to, const struct telemetry *from);

#endif
