/* The configuration of an engine, and the constant facts about it after opening. Plain data; what
 * it points at belongs to the caller of engine_open, which reads strings, overrides and adapters
 * before it returns and keeps none; backends, resources and callback_ctx must outlive the
 * engine. */
#ifndef ENGINE_RUN_CONFIG_H
#define ENGINE_RUN_CONFIG_H

#include "engine/adapter/adapter.h"
#include "engine/base/error.h"
#include "engine/device/device.h"
#include "engine/run/draft/accept.h"
#include "engine/run/draft/drafter.h"
#include "engine/run/report/messages.h"

#include <stdbool.h>
#include <stdint.h>

#define DRAFT_DEFAULT 8
#define MEDUSA_HEADS 16

enum medusa_init {
#define MEDUSA_INIT(name, words) MEDUSA_INIT_##name,
#include "engine/run/draft/medusa.def"
#undef MEDUSA_INIT
};

/* Medusa heads (engine/run/medusa_heads.h). */
struct medusa_request {
    const char *path; /* safetensors; NULL: none is read */
    int n;            /* at least so many heads; those the file lacks are initialised; 0: as many as
                       * it has */
    enum medusa_init init;
};

struct shared_resources;
struct routing_hooks;
struct engine;
struct tokenizer;
struct chat_template;

struct engine_config {
    const char *model_path;
    /* 0: the trained context, halved until it fits in half of the memory that the weights leave; at
     * most 4096 where `memory` is not known */
    int context;
    /* number of sessions open at the same time, for the footprint and for planners; 0: one */
    int sessions;
    int n_threads; /* 0: physical cores */
    /* shared with other engines (engine/run/pass/shared_resources.h); NULL: nothing is shared */
    struct shared_resources *resources;
    int batch, ubatch; /* most rows of a pass: the smaller of the two; 0: default, ubatch 512 */
    enum kv_type kv_k, kv_v;
    int convert; /* enum dtype or -1 (--dtype) */
    /* metadata overrides; NULL: none */
    const struct overrides *overrides;
    /* LoRA adapters, and the initial strengths of sessions (engine/adapter/adapter.h) */
    const struct adapter_request *adapters;
    int n_adapters;
    /* control vectors (engine/adapter/control.h) of every session, and their layers; 0, 0: all */
    const struct adapter_request *control;
    int n_control, control_first, control_last;
    /* lines of expert_edits_read: the initial edits of sessions; n_expert_edits 0: none */
    const char *const *expert_edits;
    int n_expert_edits;
    /* bytes for experts that stay on disk (model_options.expert_cache); 0: all are loaded */
    uint64_t expert_cache;
    /* memory usable without swapping, bytes; 0: not known (model_options.memory) */
    uint64_t memory;
    bool exact, float_library; /* see struct device_config */
    enum device_tune tune;
    /* answer while the weights are still being packed (model_options.background); benchmarks call
     * model_settle first */
    bool background;
    /* a built-in format (engine/text/chat_formats.h) instead of the model's template; NULL: the
     * model's */
    const char *chat_template;
    const char *chat_template_file; /* the same from a file; NULL: none */
    /* a JSON object whose members are global variables of the template; NULL: none */
    const char *chat_template_globals;
    /* an unusable chat template is an error only once a turn needs it */
    bool chat_optional;
    bool no_tokenizer;   /* a model without one is no error: ids only (golden checks) */
    const char *kernels; /* NULL: best */
    const struct device_ops *const *backends; /* NULL-terminated, CPU last; NULL: CPU alone */
    const char *device_selector;              /* "opencl:0", "none", NULL: automatic */
    const char *cache_dir;
    /* folder and size limit of the prompt cache on disk; NULL: none */
    const char *prompt_cache;
    uint64_t prompt_cache_bytes;
    /* sessions of more tokens are not written; 0: no limit. Weights of more bytes than
     * prompt_cache_weights get no folder, since its key takes reading them once */
    int prompt_cache_tokens;
    uint64_t prompt_cache_weights;
    bool prompt_cache_optional; /* an unusable folder is a notice, not an error */
    /* planner spec; NULL: cpu. A plan from a file: engine_plan_set after opening */
    const char *placement, *placement_prompt; /* of prompts; NULL: the same */
    /* "20:gpu,45:cpu": placements after so many generated tokens; NULL: none */
    const char *placement_script;
    /* lossy: experts per layer whose results may come one layer late (engine_defer_set); 0: none */
    int defer_experts;
    int experts_used;    /* lossy: experts a token uses (engine_experts_used_set); 0: all */
    float experts_least; /* lossy: least routing weight of an expert (engine_experts_least_set) */
    struct drafting {
        char type[16]; /* a drafter's name, "auto": any; "", "none": no drafting */
        /* draft model: a smaller one with the same vocabulary, opened as a second engine that
         * shares threads and devices; NULL: none */
        const char *model;
        struct medusa_request medusa; /* neither path nor n: none */
        float alpha;                  /* of `eagle`; 0: fitted */
        bool all; /* "auto" also prepares drafters that are used only when named, so they can be
                   * selected later */
        struct acceptance accept;
        int n_max;   /* most tokens of a draft; 0: DRAFT_DEFAULT */
        bool always; /* always draft as many as there are, whether it pays or not */
        /* acceptance_synthetic; n_synthetic 0: a draft is accepted as `accept` says. Else always,
         * too */
        float synthetic[DRAFT_MOST];
        int n_synthetic;
    } drafting;
    /* Set for the MTP block of that model's file, opened for drafting only (engine_mtp_config);
     * NULL: this is a model */
    const struct model *mtp_of;
    struct sampling sampling; /* default for turns without their own; all zero: greedy */
    double pace;              /* engine_pace_set */
    int audit;                /* engine_audit_set */
    /* progress of loading, on the opening thread; non-zero return: ERR_CANCELLED */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    /* Polled often and from any of the engine's threads while it is open: true ends the opening
     * with ERR_CANCELLED, and every session's turns and evaluations, for good. May be NULL. */
    bool (*stop)(void *ctx);
    /* bytes available at this moment without swapping, polled twice a second between passes;
     * UINT64_MAX: unknown. When it is low, caches free memory (memory_pressure.c). May be NULL */
    uint64_t (*memory_left)(void *ctx);
    /* microseconds so far in which some task stalled on memory; UINT64_MAX: unknown. Where that
     * grows fast, the threshold for low memory is higher. Polled together with memory_left; may be
     * NULL */
    uint64_t (*memory_stalled)(void *ctx);
    /* notices without an event callback; the engine's thread */
    void (*log)(void *ctx, const char *line);
    void *callback_ctx;
    /* A device was found to compute wrongly (engine_audit_set), in this line; the engine's thread.
     * May be NULL. */
    void (*wrong)(void *ctx, const char *line);
    /* Called once at the end of engine_open, on the opening thread (the worker's in a chat):
     * applies the application's settings to the loaded engine before the first token (profile, plan
     * file). A negative code fails the opening. May be NULL. */
    int (*opened)(void *ctx, struct engine *g, struct error *e);
    void *opened_ctx;
    const struct routing_hooks *routing; /* must outlive the engine; NULL: none */
};

/* Immutable after open: any thread. Devices beyond the CPU are opened when a placement first needs
 * one: entry i exists, and is constant, once telemetry's n_devices exceeds i; n_devices here is for
 * the engine thread only. */
struct engine_info {
    const struct model *model;
    const struct tokenizer *tokenizer; /* NULL: none */
    const struct chat_template *chat;  /* NULL: none */
    const struct adapters *adapters;   /* NULL: none */
    /* of engine_config.expert_edits: those of new sessions; NULL: none */
    struct expert_edits *edits;
    struct error chat_error; /* why there is none; code 0: nothing is wrong */
    int context, n_threads, ubatch;
    const char *kernels;
    int n_devices;
    struct device_info devices[DEVICE_MAX]; /* 0: CPU */
};

/* What engine_open would allocate beyond the weights, without allocating it. inspected: from
 * model_inspect or model_load. */
struct engine_footprint {
    int context, ubatch, n_threads; /* as engine_open would resolve them */
    /* of scratch: copies, the sessions' checkpoints (checkpoints.h); apart, allocated but never
     * touched while the CPU computes whole layers (forward_apart_footprint) */
    uint64_t kv_bytes, scratch_bytes, copies_bytes, apart_bytes;
};
struct session;

/* Which experts the rows of a session chose in a pass, for observers (profiles, traces). Valid
 * during the callback. */
struct routing {
    const struct session *session;
    const struct model *model;
    int rows, pos, n_layers, used;
    const int *ids; /* rows token ids */
    /* (n_layers, rows, used), layers `layer_stride` values apart */
    const int *experts;
    const float *weights;
    size_t layer_stride;
    bool prefill;
    /* only for routing_hooks.rows: the router's scores before softmax, sigmoid and bias,
     * (n_layers, rows, n_experts), layers `score_stride` values apart, NULL unless asked for; the
     * turn's prompt and the sampler's seed (prompt NULL: an evaluation); whether the experts were
     * imposed; the edits of the session's routing (NULL: none); the natural logarithm of each row's
     * token's probability by the rows before it, at temperature 1 (rows; NAN: a text's first; NULL
     * unless asked for) */
    const float *scores;
    size_t score_stride;
    const struct expert_edits *edits;
    const float *logprobs;
    const struct prompt *prompt;
    uint64_t seed;
    bool imposed;
};

/* Recording and imposing of routing (app/lab). Engine's thread, outside the guard of a pass. While
 * hooks are set, every sequence is computed whole by its own session: no prefix is taken from
 * another session, and a prompt that leaves the session's tokens is computed from its start. */
struct routing_hooks {
    /* At the end of engine_open, by that thread. A negative code fails it. */
    int (*begin)(void *ctx, const struct engine_info *info, struct error *e);
    /* Rows of a session once they are its own: drafted ones when they are accepted, recomputed ones
     * never again. A negative code ends the pass's turns. May be NULL. */
    int (*rows)(void *ctx, const struct routing *r, struct error *e);
    /* Fills the experts and weights (n_layers, rows, used) of tokens that a session is about to
     * compute from position pos on, layers `stride` values apart, in the place of those that a
     * layer's router chooses (hparams_layer(..)->ffn.used of them). A negative code ends the
     * turns. May be NULL. */
    int (*impose)(void *ctx, const struct session *s, int pos, const int *ids, int rows,
                  uint16_t *experts, float *weights, size_t stride, struct error *e);
    bool scores;   /* rows gets scores: layers are computed one by one */
    bool logprobs; /* rows gets logprobs: every row's logits are computed */
    void *ctx;
};

#endif
