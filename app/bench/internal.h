/* Shared by the files of --bench. bench.c decides what is measured and prints; arms.c makes the
 * arms; run.c runs one test; suite.c runs whole turns; micro.c single kernels. Main thread; the
 * engine is used directly, without its worker. */
#ifndef APP_BENCH_INTERNAL_H
#define APP_BENCH_INTERNAL_H

#include "app/common/energy.h"
#include "app/common/machine_load.h"
#include "app/bench/result.h"
#include "app/bench/routing.h"
#include "app/options/options.h"
#include "app/common/system_sample.h"
#include "engine/placement/usage.h"
#include "engine/run/engine.h"
#include "engine/run/report/roofline.h"

/* prompts up to this many tokens are memory-bound: their bytes are counted, and the share of the
 * memory bandwidth is computed */
#define BENCH_BATCH 16

/* One set of options under test; arms that differ only in placement and routing share an engine. */
struct bench_arm {
    struct options o;
    char label[128];
    struct engine *g;
    /* the strategies' first results for --place and --place-prompt */
    struct plan *plan, *prompt_plan;
    struct imposed_routing imposed; /* experts NULL: the router chooses */
    struct usage usage;             /* of the newest warm-up, */
    uint64_t read_bytes;            /* and the bytes its tokens read, head included */
    /* with several texts: (n_layers, parallel, used) of the current pass, and its rows so far */
    int *chosen, n_chosen, parallel;
    bool owns_engine;
    struct roofline roofline;
    bool in_cache; /* all its weights are in the CPU cache (membw_cached) */
};

struct bench_test {
    int n_prompt, n_gen, n_depth;
    int parallel; /* texts computed in parallel */
};

/* A single pass of few tokens: as for a turn's first token, or to verify drafts. */
static inline bool bench_is_batch(const struct bench_test *t)
{
    return t->n_prompt > 0 && t->n_prompt <= BENCH_BATCH && !t->n_gen && t->parallel == 1;
}

/* What all tests share. */
struct bench {
    const struct options *o;
    struct bench_arm *arms;
    size_t n_arms;
    struct system *system;
    int *text, n_text; /* ids of the text, or NULL: none of the arms needs one */
    float *logits;
    bool counting; /* a warm-up, whose expert use is recorded */
    /* of the current test, per arm */
    struct series *token_ms;
    struct system_sample before; /* at the start of the current repetition */
    struct machine_load *load;
    struct energy *energy; /* NULL: no memory */
    struct energy_reading energy_before;
    struct bench_energy {
        double joules[ENERGY_SOURCES], seconds; /* NAN: not readable */
        long tokens;
    } * energies;
};

/* Around the counted part of a repetition, of so many tokens: what the machine did meanwhile. */
void bench_load_begin(struct bench *b);
void bench_load_end(struct bench *b, size_t arm, int tokens);

/* parallel.c: like bench_once, of several texts. */
int bench_once_parallel(struct bench *b, size_t arm, const struct bench_test *t, unsigned seed,
                        bool counted, double *ns, struct error *e);

/* The arms of o: --arms, times the lists of -t, -ub, -ctk and -ctv. */
int bench_arms_make(struct bench *b, const struct options *o, struct error *e);
/* Their engines, with room for `context` tokens. */
int bench_arms_open(struct bench *b, int context, struct error *e);
void bench_arms_release(struct bench *b);
/* Token i of repetition `seed`. */
int bench_token_at(const struct bench *b, const struct bench_arm *a, int i, unsigned seed);
/* Tokens from .. from + n - 1 (mem_* memory; NULL with *e: no memory). */
int *bench_tokens(const struct bench *b, const struct bench_arm *a, int from, int n, unsigned seed,
                  struct error *e);

/* Runs one repetition of a test on an arm: *ns gets its time; counted: token times and machine load
 * are recorded. The arm's plan is in force before the clock starts. */
int bench_once(struct bench *b, size_t arm, const struct bench_test *t, unsigned seed, bool counted,
               double *ns, struct error *e);
/* Fills the fields of a result other than its samples. */
void bench_describe(struct bench *b, size_t arm, const struct bench_test *t, double before,
                    double after, struct bench_result *r);
/* Applies the arm's placement and its routing. */
int bench_place(struct bench_arm *a, struct error *e);
/* An observer (engine_observe) that counts into the struct usage ctx. */
void bench_count_routing(void *ctx, const struct routing *r);

/* Whole turns over the prompts of a file. Results are appended to *r. */
int bench_suite(struct bench *b, const char *file, int n_gen, struct bench_result **r, size_t *n,
                struct error *e);

/* verify.c: measures passes of 1 .. --bench-verify rows after `depth` tokens, and prints a line for
 * each: its time and bytes, compared with those of one row. context: tokens of context it needs. */
int bench_verify(struct bench *b, int depth, struct error *e);
int bench_verify_context(const struct options *o, int depth);

/* --microbench. */
int bench_micro(const struct options *o, struct error *e);
/* micro_device.c: devices other than the CPU. card: not NULL: predicted for that one. */
int bench_micro_devices(const struct options *o, const char *path, const char *card,
                        struct error *e);

/* load_mode.c: --bench --connect, a server under load. */
int bench_load(const struct options *o, struct error *e);

#endif
