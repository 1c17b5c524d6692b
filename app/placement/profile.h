/* Expert profiles of real text, and suggested plans. Thread: the engine's (headless: the main
 * thread). */
#ifndef APP_PLACEMENT_PROFILE_H
#define APP_PLACEMENT_PROFILE_H

#include "app/options/options.h"
#include "app/setup/profile_file.h"
#include "engine/run/engine.h"

#include <stdio.h>

#define PROFILE_CHUNK 256 /* tokens between polls of stop */

/* How a file was tokenized: plain text, text with special tokens parsed, a saved chat. */
enum profile_reading { PROFILE_PLAIN, PROFILE_MARKED, PROFILE_CHAT };
/* "text", "text with special tokens", "chat" */
const char *profile_reading_word(enum profile_reading how);

struct profile_text_read {
    int *ids, n; /* mem_* memory, the caller's */
    enum profile_reading how;
    char said[120]; /* the same in words, with the number of tokens */
};

/* The tokens of a file (name, for errors). A saved chat (JSON with "messages") goes through the
 * chat template, as in a chat; in other text special tokens are parsed only with parse_special.
 * ERR_INPUT (no text, a damaged chat), ERR_MODEL, ERR_MEMORY. */
int profile_tokens(const struct engine *g, const char *text, size_t size, const char *name,
                   bool parse_special, struct profile_text_read *out, struct error *e);
/* A chat's messages as the model sees them; without a chat format only their texts. *ids: mem_*
 * memory. */
int profile_chat_tokens(const struct engine *g, const struct message *m, size_t n, int **ids,
                        int *n_ids, struct error *e);

/* Computes the text in windows of the context and counts. u must be initialised; its counts are
 * added to. stop (may be NULL) is polled between chunks. ERR_CANCELLED, and the engine's errors.
 * The session is cleared. */
int profile_text(struct engine *g, const int *ids, int n, struct usage *u, int (*stop)(void *ctx),
                 void *ctx, struct error *e);
/* Time of single expert calls on their present devices, from a trace of some tokens of the text;
 * fills facts' times. */
int profile_times(struct engine *g, const int *ids, int n, struct profile_facts *facts,
                  struct error *e);
/* Model, devices, source. */
void profile_describe(const struct engine *g, const char *source, enum profile_reading how,
                      struct profile_facts *facts);
/* Readable table: a line per layer and the mean, then its interpretation in one sentence. */
void profile_print(FILE *f, const struct usage *u);
/* The same for a chat's panel: what fits into 46 columns. */
void profile_print_narrow(FILE *f, const struct usage *u);
/* "the use is even: no hot set here" or what there is; one sentence. suggest: the command that
 * makes a plan of it, "--suggest" or "/suggest". */
void profile_sentence(const struct usage *u, const char *suggest, char *out, size_t size);

/* How well a plan made from one text works on another. */
struct suggestion {
    /* the hottest experts within the budget; the same number, spread evenly */
    struct plan *plan, *uniform;
    uint64_t bytes;
    int experts, all_experts;
    /* share of calls to experts on the device; held_out < 0: not validated */
    double hit_trained, hit_held_out;
    double hit_uniform; /* share of the experts that are on the device */
    double likeness;    /* of the two texts' use */
    /* tokens/s, interleaved; 0: no device to measure on */
    double rate, rate_uniform;
    bool rate_differs;
    bool hot_set; /* the result */
    char verdict[300];
};

/* Bytes of every expert, layer by layer, as suggestion_make wants them: mem_* memory. ERR_MEMORY.
 */
int suggestion_sizes(const struct model *m, uint64_t **sizes, struct error *e);
/* From counts only: plan, hit rates, result. held_out may be NULL. sizes: bytes of each expert
 * (n_layers * n_experts). ERR_MEMORY. */
int suggestion_make(struct suggestion *s, const struct usage *trained, const struct usage *held_out,
                    const uint64_t *sizes, uint64_t budget, struct error *e);
/* Measures both plans interleaved on some tokens and completes the result; does nothing without a
 * device. */
int suggestion_measure(struct suggestion *s, struct engine *g, const int *ids, int n,
                       struct error *e);
void suggestion_release(struct suggestion *s);

int profile_mode_run(struct options *o, struct error *e); /* --profile-experts */
int suggest_mode_run(struct options *o, struct error *e); /* --suggest */

#endif
