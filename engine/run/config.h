/* What an engine is opened with, and what it then says of itself that stays. Plain data; what it
 * points at belongs to the caller of engine_open, which reads strings, overrides and adapters
 * before it returns and keeps none; backends, resources and callback_ctx must outlive the engine.
 */
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
    int n;            /* heads at least, those that the file lacks are made; 0: as it has */
    enum medusa_init init;
};

struct shared_resources;
struct engine;
struct tokenizer;
struct chat_template;

struct engine_config {
    const char *model_path;
    /* 0: the trained context, halved until half of the memory that the weights leave holds it; at
     * most 4096 where `memory` is not known */
    int context;
    /* how many sessions will be open at a time, for the footprint and for planners; 0: one */
    int sessions;
    int n_threads; /* 0: physical cores */
    /* what it shares with other engines (engine/run/pass/shared_resources.h); NULL: everything is
     * its own */
    struct shared_resources *resources;
    int batch, ubatch; /* most rows of a pass: the smaller of the two; 0: not said, ubatch 512 */
    enum kv_type kv_k, kv_v;
    int convert; /* enum dtype or -1 (--dtype) */
    /* metadata in place of the model's; NULL: none */
    const struct overrides *overrides;
    /* LoRA adapters, and the strengths that sessions begin with (engine/adapter/adapter.h) */
    const struct adapter_request *adapters;
    int n_adapters;
    /* bytes for experts that stay on the disk (model_options.expert_cache); 0: all are loaded */
    uint64_t expert_cache;
    /* what may be used without swapping, bytes; 0: not known (model_options.memory) */
    uint64_t memory;
    bool exact, float_library; /* see struct device_config */
    enum device_tune tune;
    /* answer while the weights are still being packed (model_options.background); who measures
     * calls model_settle */
    bool background;
    /* a built-in format (engine/text/chat_formats.h) instead of the model's template; NULL: the
     * model's */
    const char *chat_template;
    const char *chat_template_file; /* the same from a file; NULL: none */
    /* a JSON object: what the template finds by name; NULL: nothing more */
    const char *chat_template_globals;
    /* a chat template that cannot be used is no error until a turn wants it */
    bool chat_optional;
    bool no_tokenizer;   /* a model without one is no error: ids only (golden checks) */
    const char *kernels; /* NULL: best */
    const struct device_ops *const *backends; /* NULL-terminated, CPU last; NULL: CPU alone */
    const char *device_selector;              /* "opencl:0", "none", NULL: automatic */
    const char *cache_dir;
    /* folder where prompts' state outlives the engine, and how much it may hold; NULL: nowhere */
    const char *prompt_cache;
    uint64_t prompt_cache_bytes;
    /* 0: no bound: sessions of more tokens write nothing; larger weights (bytes) than these do
     * without such a folder, whose key takes reading them once */
    int prompt_cache_tokens;
    uint64_t prompt_cache_weights;
    bool prompt_cache_optional; /* a folder that cannot be used is a notice, not an error */
    /* planner spec; NULL: cpu. A plan from a file: engine_plan_set after opening */
    const char *placement;
    /* "20:gpu,45:cpu": after so many generated tokens; NULL: none */
    const char *placement_script;
    /* lossy: experts a layer may deliver one layer late (see engine_defer_set); 0: none */
    int defer_experts;
    int experts_used;    /* lossy: experts a token uses (engine_experts_used_set); 0: all */
    float experts_least; /* lossy: routing weight they have at least (engine_experts_least_set) */
    struct drafting {
        char type[16]; /* a drafter's name, "auto": any; "", "none": nothing is drafted */
        /* a smaller model of the same vocabulary, opened as an engine of its own beside this one,
         * with threads and devices in common; NULL: none */
        const char *model;
        struct medusa_request medusa; /* neither path nor n: none */
        float alpha;                  /* of `eagle`; 0: fitted */
        bool all; /* behind "auto" also who is asked by name alone may be asked for later */
        struct acceptance accept;
        int n_max;   /* most tokens of a draft; 0: DRAFT_DEFAULT */
        bool always; /* as many whenever there are, whether it pays or not */
        /* acceptance_synthetic; n_synthetic 0: a draft stands as `accept` says. Set: always, too */
        float synthetic[DRAFT_MOST];
        int n_synthetic;
    } drafting;
    /* It is not a model, but the block of that one's file which predicts further tokens, opened for
     * drafts alone (engine_mtp_config); NULL: a model */
    const struct model *mtp_of;
    struct sampling sampling; /* until a turn brings its own; all zero: greedy */
    double pace;              /* engine_pace_set */
    /* of loading, on the thread that opens; non-zero: ERR_CANCELLED */
    int (*progress)(void *ctx, uint64_t done, uint64_t total);
    /* Asked as long as the engine is open, often and from any of its threads: true ends the opening
     * with ERR_CANCELLED, and every session's turns and evaluations, for good. May be NULL. */
    bool (*stop)(void *ctx);
    /* bytes that can be had at this moment without swapping, asked twice a second between passes;
     * UINT64_MAX: nobody tells. When it is little, caches give memory back (memory_pressure.c). May
     * be NULL */
    uint64_t (*memory_left)(void *ctx);
    /* microseconds so far in which somebody waited for memory; UINT64_MAX: nobody tells. Where that
     * grows fast it is little already when it would else be enough. Asked beside memory_left; may
     * be NULL */
    uint64_t (*memory_stalled)(void *ctx);
    /* notices that no listener of events takes; the engine's thread */
    void (*log)(void *ctx, const char *line);
    void *callback_ctx;
    /* Called once at the end of engine_open, on the thread that opens (the worker's in a chat):
     * what the application applies to a loaded engine before the first token (profile, plan file).
     * A negative code fails the opening. May be NULL. */
    int (*opened)(void *ctx, struct engine *g, struct error *e);
    void *opened_ctx;
};

/* Immutable after open: any thread. Devices beyond the CPU are opened when a placement first asks
 * for one: entry i is there, and constant, once telemetry's n_devices exceeds i; n_devices here is
 * the engine thread's. */
struct engine_info {
    const struct model *model;
    const struct tokenizer *tokenizer; /* NULL: none */
    const struct chat_template *chat;  /* NULL: none */
    const struct adapters *adapters;   /* NULL: none */
    struct error chat_error;           /* why there is none; code 0: nothing is wrong */
    int context, n_threads, ubatch;
    const char *kernels;
    int n_devices;
    struct device_info devices[DEVICE_MAX]; /* 0: CPU */
};

/* What engine_open would allocate beyond the weights, without allocating it. inspected: from
 * model_inspect or model_load. */
struct engine_footprint {
    int context, ubatch, n_threads; /* as engine_open would resolve them */
    /* of scratch: copies, what sessions keep to go back to (checkpoints.h); apart, what is taken
     * and never touched while the CPU computes whole layers (forward_apart_footprint) */
    uint64_t kv_bytes, scratch_bytes, copies_bytes, apart_bytes;
};
struct session;

/* Which experts the rows of a session chose in a pass, for who observes (profiles, traces). Valid
 * during the call. */
struct routing {
    const struct session *session;
    int rows, pos, n_layers, used;
    const int *ids; /* rows token ids */
    /* (n_layers, rows, used), layers `layer_stride` values apart */
    const int *experts;
    const float *weights;
    size_t layer_stride;
    bool prefill;
};

#endif
