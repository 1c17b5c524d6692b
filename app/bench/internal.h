/* What the files of --bench share. bench.c decides what is measured and prints; arms.c makes the
 * arms; run.c runs one test; suite.c runs whole turns; micro.c single kernels. Main thread; the
 * engine is used directly, without its worker. */
#ifndef APP_BENCH_INTERNAL_H
#define APP_BENCH_INTERNAL_H

#include "app/common/machine_load.h"
#include "app/bench/result.h"
#include "app/bench/routing.h"
#include "app/options/options.h"
#include "app/common/system_sample.h"
#include "engine/placement/usage.h"
#include "engine/run/engine.h"
#include "engine/run/report/roofline.h"

/* a prompt of so many tokens is still bound by memory: its bytes are counted, and what part of the
 * memory's speed it reaches */
#define BENCH_BATCH 16

/* One set of options under test; arms that differ in placement and routing alone share an engine.
 */
struct bench_arm {
    struct options o;
    char label[128];
    struct engine *g;
    struct plan *plan;              /* what --place answered the first time */
    struct imposed_routing imposed; /* experts NULL: the router chooses */
    struct usage usage;             /* of the newest warm-up, */
    uint64_t read_bytes;            /* and what its tokens read, head and all */
    /* with several texts: (n_layers, parallel, used) of the pass under way, and its rows so far */
    int *chosen, n_chosen, parallel;
    bool owns_engine;
    struct roofline roofline;
    bool in_cache; /* all its weights come out of the cache (membw_cached) */
};

struct bench_test {
    int n_prompt, n_gen, n_depth;
    int parallel; /* texts computed side by side */
};

/* Few tokens at once, and nothing else: a turn's first token, or drafts to be verified. */
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
    bool counting; /* a warm-up, whose use of the experts is kept */
    /* of the test in progress, per arm */
    struct series *token_ms;
    struct system_sample before; /* at the begin of the repetition that runs */
    struct machine_load *load;
};

/* parallel.c: like bench_once, of several texts. */
int bench_once_parallel(struct bench *b, size_t arm, const struct bench_test *t, unsigned seed,
                        bool counted, double *ns, struct error *e);

/* The arms that o asks for: --arms, times the lists of -t, -ub, -ctk and -ctv. */
int bench_arms_make(struct bench *b, const struct options *o, struct error *e);
/* Their engines, with room for `context` tokens. */
int bench_arms_open(struct bench *b, int context, struct error *e);
void bench_arms_release(struct bench *b);
/* Token i of repetition `seed`. */
int bench_token_at(const struct bench *b, const struct bench_arm *a, int i, unsigned seed);
/* Tokens from .. from + n - 1 (mem_* memory; NULL: no memory, *e says so). */
int *bench_tokens(const struct bench *b, const struct bench_arm *a, int from, int n, unsigned seed,
                  struct error *e);

/* Runs one repetition of a test on an arm: *ns gets its time; counted: tokens' times and the load
 * are kept. The plan of the arm is in force before the clock starts. */
int bench_once(struct bench *b, size_t arm, const struct bench_test *t, unsigned seed, bool counted,
               double *ns, struct error *e);
/* Fills what a result says beside its samples. */
void bench_describe(struct bench *b, size_t arm, const struct bench_test *t, double before,
                    double after, struct bench_result *r);
/* Makes the arm's placement, and its routing, the one in force. */
int bench_place(struct bench_arm *a, struct error *e);
/* An observer (engine_observe) that counts into the struct usage ctx. */
void bench_count_routing(void *ctx, const struct routing *r);

/* Whole turns over the prompts of a file. Results are appended to *r. */
int bench_suite(struct bench *b, const char *file, int n_gen, struct bench_result **r, size_t *n,
                struct error *e);

/* verify.c: passes of 1 .. --bench-verify rows that begin after `depth` tokens, each held against
 * those of one row; prints a line for each. context: tokens that it takes room for. */
int bench_verify(struct bench *b, int depth, struct error *e);
int bench_verify_context(const struct options *o, int depth);

/* --microbench. */
int bench_micro(const struct options *o, struct error *e);

/* load_mode.c: --bench --connect, a server under a load. */
int bench_load(const struct options *o, struct error *e);

#endif
