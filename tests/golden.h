/* Golden data (see the data's README): reading golden.safetensors without the program's own
 * readers, and the comparison with an engine that both the test suite and the golden tool make. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include "engine/run/engine.h"

#include <stdbool.h>
#include <stddef.h>

struct golden {
    char *bytes; /* the file */
    size_t size;
    float *widened; /* logits that are halves in the file, or NULL */
    int n, n_vocab; /* prompt tokens, vocabulary */
    const int *input_ids;
    const float *logits; /* (n, n_vocab), or (n_positions, n_vocab) */
    /* of which tokens of the prompt those are, rising; NULL: of all */
    const int *positions;
    int n_positions;
    const int *greedy; /* n_greedy ids, or NULL */
    int n_greedy;
    const float *short_logits; /* (n_short, n_vocab), or NULL */
    int n_short;
    const int *experts; /* (n_layers, n, used) of the routed layers, or NULL */
    const float *weights;
    const int *moe_layers; /* which layers those are; NULL: all */
    int n_layers, used;
    /* The residual stream before every layer and behind the last one but its norm, (n_hidden, rows,
     * hidden) of the last `rows` positions; NULL: the file has none. prenorm: behind the last
     * layer, (n, hidden), or NULL. */
    const float *hidden, *prenorm;
    int n_hidden, rows, width;
    /* What recurrent layers keep after the prompt: (n_states, channels, taps - 1), the oldest
     * first, and (n_states, heads, first, second): of a delta net keys by values, of Mamba 2 the
     * other way round. NULL: none. */
    const float *conv_state, *recurrent_state;
    const int *state_layers;
    int n_states;
};

/* 0, or -1 with one line in why. */
int golden_open(struct golden *g, const char *path, char *why, size_t why_size);
/* The same where the file has logits of several programs: the tensor's name. The greedy ids of
 * logits_KEY are greedy_KEY. */
int golden_open_logits(struct golden *g, const char *path, const char *logits, char *why,
                       size_t why_size);
void golden_close(struct golden *g);

struct golden_result {
    /* largest absolute difference of a logit: at once, in chunks of 1, 7 and 16 (of a prompt of 150
     * also 40 + 1 + 64 + 45), token by token */
    double whole, chunked, stepped;
    double hidden,
        states; /* the same of the stream between layers, of what recurrent layers keep */
    bool has_greedy, greedy_agrees;
    /* the same experts, weights within 1e-4, in whatever order; true where the file has none */
    bool routing_agrees;
};

#define GOLDEN_TOLERANCE 1e-4
/* Of a family's logits: three times that where its official code itself moves so much between
 * precisions. */
double golden_tolerance(const char *family);

/* The engine as the golden numbers want it: float weights multiplied in F32, F32 cache. kernels:
 * the set's name, NULL: the best. ERR_ codes
 * as engine_open. */
int golden_engine(struct engine **out, const char *model, const char *kernels, int n_threads,
                  int convert, bool exact, struct error *e);
/* The same with adapters. */
int golden_engine_adapted(struct engine **out, const char *model,
                          const struct adapter_request *adapters, int n, const char *kernels,
                          int n_threads, int convert, bool exact, struct error *e);
/* Runs every comparison; ERR_ codes of the engine. golden: with the logits of all positions. */
int golden_compare(struct engine *g, const struct golden *golden, struct golden_result *out,
                   struct error *e);
int golden_argmax(const float *logits, int n);

#endif
