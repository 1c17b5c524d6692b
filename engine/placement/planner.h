/* Placement strategies: one table of planners, each a pure function from plain data (use counts,
 * measured costs, block sizes, budgets, what each device can do) to a plan. No clock, no device
 * call, no random number: the same input gives the same plan, so every strategy is tested
 * exhaustively. Any thread.
 *
 * A spec is what the user types: "cpu", "layers:12", "layers:first:12", "hot:600M". Sizes are
 * binary (4M = 4 * 2^20). Several devices are filled one after the other, each with what those
 * before it left: by "hot:0=4G,1=2G" or "gpu:1+0" the ones named, in this order, each within its
 * size if it has one ("1=all": what it may hold), else the input's target and those after it. Every
 * plan returned is valid: blocks a device cannot run, or that do not fit its budget, stay on the
 * CPU, which the note reports. */
#ifndef ENGINE_PLACEMENT_PLANNER_H
#define ENGINE_PLACEMENT_PLANNER_H

#include "engine/base/error.h"
#include "engine/placement/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLANNER_DEVICES 8
#define PLANNER_NOTE 400
#define PLANNER_NO_LIMIT UINT64_MAX

/* Planner's view of a device. Costs are nanoseconds of one token (decode, one row); 0: not
 * measured. */
struct planner_device {
    const char *name; /* for notes: "opencl:0 (PoCL)"; may be NULL */
    int number;       /* in specs: 0 of "opencl:0" */
    /* bytes of weights and KV it may hold; PLANNER_NO_LIMIT. Ignored for the CPU: it holds all */
    uint64_t budget;
    /* n_layers, 1: this device runs the layer's attention; NULL: all */
    const uint8_t *attention_can;
    const uint8_t *experts_can; /* n_layers * n_experts; NULL: all */
    bool head_can;
    double attention_ns, expert_ns, head_ns;
    double handoff_ns; /* fixed cost of a job: launch, transfer, wait */
    double launch_ns;  /* the part of it in which the CPU gives the job, and can do nothing else */
    /* of a prompt's row: attention of a layer, one expert */
    double prompt_attention_ns, prompt_expert_ns;
    bool streams;          /* non-resident experts can be streamed to it ... */
    uint64_t stream_bytes; /* ... in buffers of so many bytes */
    bool unified;          /* shares the host's memory */
    bool fuses_layers;     /* a layer wholly on it costs one handoff instead of two */
};

struct planner_input {
    int n_layers, n_experts, n_experts_used;
    int n_devices; /* 1: the CPU alone */
    /* "the GPU": index of the device that strategies move work to; 0 if there is none */
    int target;
    /* further ones that strategies fill when the target is full, in this order */
    int also[PLANNER_DEVICES], n_also;
    struct planner_device devices[PLANNER_DEVICES];
    /* n_layers: weights and KV at this context; 0: the layer has no mixer to place */
    const uint64_t *attention_bytes;
    /* n_layers * n_experts; 0: the layer has no such expert, its device is the CPU */
    const uint64_t *expert_bytes;
    /* n_layers: experts per token in this layer; NULL: n_experts_used in each */
    const int *used;
    uint64_t head_bytes;
    /* n_layers * n_experts: how often each was chosen (profile or session); NULL or all 0: unknown
     */
    const double *usage;
    const double *recent;       /* the same, decayed (dynamic); NULL: usage */
    const struct plan *current; /* the last requested plan (dynamic); NULL: everything on the CPU */
    uint64_t move_bytes;        /* dynamic: upload at most this much per new plan; 0: no limit */
    double
        prompt_host_ns; /* of a prompt's row in a layer: routing and what follows it on the CPU */
    /* balanced: share of the time that a plan must save to be worth it; 0: the costs are exact */
    double doubt;
    int prompt_rows; /* the plan is for prompts, in passes of so many rows; 0: for tokens */
    /* auto: the phase's winning spec of the measurement; NULL: never measured; and the line that
     * says why, or NULL */
    const char *verdict, *verdict_line;
};

struct planner_spec;

struct planner {
    const char *name;   /* "hot" */
    const char *syntax; /* "hot[:SIZE]" */
    const char *help;   /* one line, no full stop */
    bool replans;       /* runs again while tokens are generated */
    /* normal on a machine without a device other than the CPU: no note needed */
    bool alone;
    /* after the colon; NULL: takes none */
    int (*parse)(struct planner_spec *s, const char *arguments, struct error *e);
    /* Puts blocks on in->target. p: everything on the CPU, or what was put on devices before this
     * one, to be modified. 0 or ERR_MEMORY. */
    int (*fill)(const struct planner_spec *s, const struct planner_input *in, struct plan *p,
                char note[PLANNER_NOTE]);
};

/* What a spec gives to one device: "0=4G" (bytes), "0=12" (layers or experts of each layer), "0"
 * (all that it may hold). */
struct planner_share {
    int number; /* planner_device.number */
    int count;
    uint64_t size;
};

/* A parsed spec. Plain data. */
struct planner_spec {
    const struct planner *planner;
    char text[PLAN_NAME]; /* as typed */
    int count;            /* layers:N, experts:N */
    bool first;           /* layers:first:N */
    uint64_t size;        /* SIZE, of each device; PLANNER_NO_LIMIT when left out */
    /* devices to fill, in this order, instead of the target and those after it; 0: none is named */
    struct planner_share share[PLANNER_DEVICES];
    int n_shares;
};

extern const struct planner planners[]; /* strategies.c */
extern const int n_planners;
/* Parses an argument of a strategy: a number from 0 to 1000000. Negative: it is none. */
int planner_parse_number(const char *text, int *out);
/* Bytes that a spec lets a device hold: its share or SIZE, at most its budget. */
uint64_t planner_limit(const struct planner_spec *s, const struct planner_input *in, int device);
/* Layers (or experts of each layer) that it asks for on a device. */
int planner_count(const struct planner_spec *s, const struct planner_input *in, int device);
/* Whether the device can run this block, according to the input. */
bool planner_can_attention(const struct planner_input *in, int device, int layer);
bool planner_can_expert(const struct planner_input *in, int device, int layer, int expert);
/* Whether the layer has this expert; the number of experts of all layers. */
bool planner_has_expert(const struct planner_input *in, int layer, int expert);
int planner_experts(const struct planner_input *in);

const struct planner *planner_find(const char *name, size_t len); /* NULL: no such strategy */
/* ERR_USAGE tells what is wrong and what is allowed. */
int planner_parse(struct planner_spec *out, const char *spec, struct error *e);
/* A request of /place, a script or a server's client may be for prompts only: "prompt hot:600M", or
 * "prompt same" for the tokens' plan again (PLANNER_SAME). Moves *spec to what follows the word. */
#define PLANNER_SAME "same"
enum plan_phase planner_phase(const char **spec);
/* planner_parse for such a request; "prompt same" leaves out->planner NULL. */
int planner_parse_request(struct planner_spec *out, enum plan_phase *phase, const char *request,
                          struct error *e);
/* A new plan, named as typed. note: empty, or one line for the user (what stayed on the CPU, and
 * why). ERR_MEMORY. */
int planner_run(const struct planner_spec *s, const struct planner_input *in, struct plan **out,
                char note[PLANNER_NOTE], struct error *e);
/* One line per strategy for `--place help` and /place: syntax, then help. Returns the length
 * needed, like snprintf. */
int planner_help(char *out, size_t size);

/* Bytes of weights and KV that the plan puts on a device, including the streaming buffers. */
uint64_t planner_bytes(const struct planner_input *in, const struct plan *p, int device);
/* Of two plans that are in effect by turns: what either puts there, counted once. */
uint64_t planner_bytes_both(const struct planner_input *in, const struct plan *a,
                            const struct plan *b, int device);
/* ERR_USAGE names the first device whose budget that exceeds, and a remedy. */
int planner_check_both(const struct planner_input *in, const struct plan *tokens,
                       const struct plan *prompts, struct error *e);
/* 0 if every device index exists and every device can run its blocks; else ERR_USAGE naming the
 * first that cannot. */
int planner_check(const struct planner_input *in, const struct plan *p, struct error *e);
/* Rows from which a prompt's pass is split into groups that overlap (run/pass/microbatch.h). */
#define PLANNER_OVERLAP 128
/* Modelled time in ns. Of one decoded token: per layer attention, then the slower of host and
 * device experts (which work at once), the numbers on each being multinomial in the devices' shares
 * of the use; then the head. A cost not measured is assumed to be the CPU's, or 1 ns a byte where
 * that is missing too. Of a prompt's pass (prompt_rows): its groups of rows step by step, as
 * run/pass/microbatch.h takes them; in passes too short to be split one layer after the other. */
double planner_token_ns(const struct planner_input *in, const struct plan *p);
/* Share of expert calls whose expert is on a device other than the CPU, by the input's usage
 * (uniform where unknown). */
double planner_hit_rate(const struct planner_input *in, const struct plan *p);

/* "20:gpu,45:hot,80:cpu": switches to that spec after so many generated tokens. */
struct planner_step {
    int after;
    char spec[PLAN_NAME];
};
/* Fills at most max steps, sorted by `after`; returns how many, or ERR_USAGE. */
int planner_script_parse(struct planner_step *out, int max, const char *script, struct error *e);

#endif
