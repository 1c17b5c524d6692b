/* The figures of a run: --stats, --stats-json, /stats. Main (UI) thread. Collected from finished
 * turns, the engine's telemetry and two samples of the system, one at the start and one when asked.
 */
#ifndef APP_STATS_RUN_STATS_H
#define APP_STATS_RUN_STATS_H

#include "app/common/energy.h"
#include "app/common/machine_load.h"
#include "app/options/options.h"
#include "app/common/system_sample.h"
#include "engine/run/engine.h"

struct json_t;

struct stats {
    struct system *system;
    struct system_sample *first, *last;
    struct system_sample *begun; /* of the running turn */
    struct energy *energy;
    struct energy_reading energy_begun; /* likewise */
    double joules[ENERGY_SOURCES];      /* of all turns; NAN: not readable */
    double energy_seconds;
    struct machine_load load; /* what the machine did during the turns */
    /* turns */
    int turns;
    uint64_t prompt_tokens, cached_tokens, recomputed_tokens, generated_tokens;
    /* generated tokens after the first of their turn: what the decode rate counts */
    uint64_t later_tokens;
    uint64_t ruled_tokens; /* constrained by a grammar; and the probability it excluded, summed */
    double forbidden;
    /* computed again though the session had held as many; what differed in the newest turn that
     * lost some: the first token (-1: none) and why */
    uint64_t lost_tokens;
    double lost_seconds;
    int lost_turns, lost_at;
    const char *lost_why;
    uint64_t ttft_ns; /* of the newest turn */
    uint64_t prefill_ns, decode_ns, total_ns;
    enum stop_reason reason; /* of the newest turn */
    /* the engine, as last sampled */
    char model[200], type[16], kernels[16], plan[64], prompt_plan[64];
    char server[400]; /* where the model runs (--connect); "": here */
    /* the read pattern that decode uses for most of the weights (patterns.h), and whether it was
     * measured */
    char pattern[24];
    bool pattern_measured;
    const char *cache_dir; /* where measurements are kept; NULL: nowhere */
    int n_threads, context_used, context_size;
    uint64_t weights_packed, weights_mapped, kv_bytes, kv_used_bytes, scratch_bytes;
    uint64_t control_bytes; /* of control vectors */
    uint64_t active_bytes;  /* bytes of weights and KV read per token */
    uint64_t all_weights;   /* bytes that a text may touch */
    /* measured memory bandwidth in bytes/s; 0: not measured */
    double bandwidth;
    bool bandwidth_disturbed;        /* measured while other programs ran */
    bool in_cache;                   /* the weights were measured to be in the CPU cache */
    struct expert_cache_stats paged; /* experts on disk; slots 0: none */
    int n_devices, n_plans;
    struct device_stats devices[DEVICE_MAX];
    struct device_health health[DEVICE_MAX];
    uint64_t launch_ns[DEVICE_MAX], handoff_wait_ns[DEVICE_MAX]; /* struct telemetry */
    int audit;                                                   /* of telemetry */
    char device_names[DEVICE_MAX][160];
    struct plan_metrics plans[TELEMETRY_PLANS];
    bool bandwidth_on; /* the bandwidth semaphore */
    uint64_t bandwidth_taken, bandwidth_waited_ns;
    struct speculation_figures speculation;
    uint64_t moved_bytes;                 /* weights and KV copied by changes of the placement */
    uint64_t stall_ns, stall_token_ns;    /* see telemetry */
    uint64_t handover_ns, handover_bytes; /* see struct telemetry */
    struct at_once_figures at_once;
    char stall_plan[64];
    struct {
        char name[128];
        float strength;
        int rank_least, rank_most, matrices, expert_matrices, unplaced;
        uint64_t bytes, hash;
    } adapters[LORA_ADAPTERS];
    int n_edits; /* edited experts; their lines, cut off */
    char edits[200];
    int n_adapters;
    struct verdict verdict; /* of placement auto; n_rows 0: none */
    int n_layers, n_experts;
    bool mixer_alone[TELEMETRY_LAYERS]; /* layers without experts */
    /* (n_layers, n_experts): tokens routed there, whole session; owned */
    uint32_t *experts;
    /* of the newest answer (app/setup/receipt.h), owned; NULL: none was made */
    struct json_t *receipt;
    struct json_t *beside; /* the comparison of --beside; likewise */
};

/* Takes the first sample. o (may be NULL): a --stats-json file that cannot be written is reported
 * now, not after minutes of work. */
int stats_open(struct stats *s, const struct options *o, struct error *e);
void stats_release(struct stats *s);
/* The model is replaced: resets the counts. */
void stats_restart(struct stats *s);
/* Around every turn: averages are over turns, without the time between them. */
void stats_begin_turn(struct stats *s);
/* NAN: not readable. Prompt tokens that were computed count too. */
double stats_joules_a_token(const struct stats *s, enum energy_source source);
void stats_add_turn(struct stats *s, const struct turn_done_event *done);
/* What the newest turn computed again: tokens, seconds, the first token that differed, why (a
 * static text); 0 tokens: nothing. */
void stats_cache(struct stats *s, int lost, double seconds, int at, const char *why);
/* Copies the engine's figures and takes the last sample; call again for newer figures. */
void stats_take(struct stats *s, const struct engine_info *info, const struct telemetry *t);

/* The model runs elsewhere: times are those of the turns, as measured here. */
void stats_remote(struct stats *s, const char *model, const char *server);

/* Measures memory bandwidth for the interpretation, and whether the weights are in the CPU cache
 * (takes about a second); not while a model computes. */
void stats_measure(struct stats *s);

/* The table as text with its line of interpretation. Safe to print to a terminal. */
void stats_print(const struct stats *s, FILE *f);
/* Only the interpretation: one or more sentences. */
void stats_interpret(const struct stats *s, char *out, size_t size);
/* The same figures as JSON, written whole or not at all (temporary file, rename). ERR_IO. */
int stats_write_json(const struct stats *s, const char *path, struct error *e);
/* At the end of a run: prints and writes what o asks for. */
int stats_finish(const struct stats *s, const struct options *o, FILE *text, struct error *e);

double stats_decode_rate(const struct stats *s); /* tokens a second; 0: not known */
double stats_prefill_rate(const struct stats *s);

#endif
