/* Expert profiles from real text, and what they suggest. Thread: the engine's (headless: the main
 * thread). */
#ifndef APP_PLACEMENT_PROFILE_H
#define APP_PLACEMENT_PROFILE_H

#include "app/options/options.h"
#include "app/setup/profile_file.h"
#include "engine/run/engine.h"

#include <stdio.h>

#define PROFILE_CHUNK 256 /* tokens between two looks at stop */

/* What a file was read as: plain text, text in which special tokens are read as such, a saved chat.
 */
enum profile_reading { PROFILE_PLAIN, PROFILE_MARKED, PROFILE_CHAT };
/* "text", "text with special tokens", "chat" */
const char *profile_reading_word(enum profile_reading how);

struct profile_text_read {
    int *ids, n; /* mem_* memory, the caller's */
    enum profile_reading how;
    char said[120]; /* the same for people, with the number of tokens */
};

/* What stands in a file (name, told in errors) as tokens. A saved chat (JSON with "messages") goes
 * through the chat template, as a chat does; in other text special tokens are read as such only
 * with parse_special. ERR_INPUT (no text, a damaged chat), ERR_MODEL, ERR_MEMORY. */
int profile_tokens(const struct engine *g, const char *text, size_t size, const char *name,
                   bool parse_special, struct profile_text_read *out, struct error *e);
/* A chat's messages as the model reads them; without a chat format their texts alone. *ids: mem_*
 * memory. */
int profile_chat_tokens(const struct engine *g, const struct message *m, size_t n, int **ids,
                        int *n_ids, struct error *e);

/* Computes the text in windows of the context and counts. u must be initialised; what it holds
 * stays. stop (may be NULL) is asked between chunks. ERR_CANCELLED, and the engine's errors. The
 * session is cleared. */
int profile_text(struct engine *g, const int *ids, int n, struct usage *u, int (*stop)(void *ctx),
                 void *ctx, struct error *e);
/* Time of single expert calls on the devices that run them now, from a trace of some tokens of the
 * text; fills facts' times. */
int profile_times(struct engine *g, const int *ids, int n, struct profile_facts *facts,
                  struct error *e);
/* Model, devices, source. */
void profile_describe(const struct engine *g, const char *source, enum profile_reading how,
                      struct profile_facts *facts);
/* Readable table: a line a layer and the mean, then what it means in one sentence. */
void profile_print(FILE *f, const struct usage *u);
/* The same for a chat's pane: what fits into 46 columns. */
void profile_print_narrow(FILE *f, const struct usage *u);
/* "the use is even: no hot set here" or what there is; one sentence. suggest: what makes a plan of
 * it here,
 * "--suggest" or "/suggest". */
void profile_sentence(const struct usage *u, const char *suggest, char *out, size_t size);

/* What a plan made from one text is worth on another. */
struct suggestion {
    /* the hottest experts within the budget; as many, spread evenly */
    struct plan *plan, *uniform;
    uint64_t bytes;
    int experts, all_experts;
    /* share of calls that meet their expert on the device; held_out < 0: not validated */
    double hit_trained, hit_held_out;
    double hit_uniform; /* share of the experts that are on the device */
    double likeness;    /* of the two texts' use */
    /* tokens a second, measured by turns; 0: there is no device to measure on */
    double rate, rate_uniform;
    bool rate_differs;
    bool hot_set; /* the verdict */
    char verdict[300];
};

/* Bytes of every expert, layer by layer, as suggestion_make wants them: mem_* memory. ERR_MEMORY.
 */
int suggestion_sizes(const struct model *m, uint64_t **sizes, struct error *e);
/* From counts alone: plan, hit rates, verdict. held_out may be NULL. sizes: bytes of each expert
 * (n_layers * n_experts). ERR_MEMORY. */
int suggestion_make(struct suggestion *s, const struct usage *trained, const struct usage *held_out,
                    const uint64_t *sizes, uint64_t budget, struct error *e);
/* Measures both plans by turns on some tokens and completes the verdict; does nothing without a
 * device. */
int suggestion_measure(struct suggestion *s, struct engine *g, const int *ids, int n,
                       struct error *e);
void suggestion_release(struct suggestion *s);

int profile_mode_run(struct options *o, struct error *e); /* --profile-experts */
int suggest_mode_run(struct options *o, struct error *e); /* --suggest */

#endif
