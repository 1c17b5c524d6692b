/* Predicts the next tokens of a text, for a pass that verifies them together. A drafter is one file
 * and one row in drafters.def. Its predictions change how fast a text is generated, never the text:
 * the model draws every token as without it (engine/run/speculate.c). Engine thread; computing
 * allocates nothing: an instance, one per session, allocates its memory when it is made. */
#ifndef ENGINE_RUN_DRAFT_DRAFTER_H
#define ENGINE_RUN_DRAFT_DRAFTER_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define DRAFT_MOST 16 /* most tokens of a draft */

/* drafters, in the order of drafters.def; DRAFTER_COUNT: none */
enum drafter_kind {
#define DRAFTER(name, ...) DRAFTER_##name,
#include "engine/run/draft/drafters.def"
#undef DRAFTER
    DRAFTER_COUNT
};

/* What a drafter is made with: nothing, the draft model's engine, the MTP block's engine
 * (run/config.h), the engine it drafts for, that one with Medusa heads. */
enum drafter_needs {
    DRAFTER_NEEDS_NOTHING,
    DRAFTER_NEEDS_MODEL,
    DRAFTER_NEEDS_MTP,
    DRAFTER_NEEDS_ITSELF,
    DRAFTER_NEEDS_HEADS
};

struct drafter; /* private */
struct engine;

/* Of rows of a pass, after the last layer and before the norm; valid until the next pass. x: (rows,
 * hidden), what the norm is given. Of hyper-connected models also all streams, (streams * hidden)
 * of a row, the next row's `stride` values further; else NULL. */
struct hidden_states {
    const float *x, *streams;
    size_t stride;
};

struct drafter_ops {
    const char *name, *summary; /* a word of --spec-type, a line of the manual */
    size_t size;                /* of its struct drafter */
    /* d: zeroed. model: the engine that it needs; NULL: it needs none. Of what fails halfway the
     * memory is released too. */
    int (*init)(struct drafter *d, struct engine *model, struct error *e);
    void (*release)(struct drafter *d); /* NULL: it holds nothing but itself */
    enum drafter_needs needs;
    bool by_name; /* excluded from `auto` */
    /* NULL: proposing is almost free, and done for every token. Else it is done where it is
     * expected to pay: p[i], the learnt probability that the i-th of `most` tokens will be
     * right. */
    void (*expect)(const struct drafter *d, int most, float *p);
    /* number of tokens of ids[0 .. n - 1] that it has not read yet; NULL: it reads none */
    int (*behind)(const struct drafter *d, const int *ids, int n);
    /* reads those tokens */
    void (*read)(struct drafter *d, const int *ids, int n);
    /* NULL: not needed. Passes the model's hidden states of positions from pos on; those of later
     * ones are void. rows 0: only that. */
    void (*states)(struct drafter *d, int pos, int rows, const struct hidden_states *h);
    /* Proposes at most `most` (DRAFT_MOST) ids to follow ids[0 .. n - 1]; p[i]: its estimate that
     * the i-th is right if those before it are. Costly drafters stop once the probability that all
     * are right is `least` or less. Returns how many; 0: no proposal. */
    int (*propose)(struct drafter *d, const int *ids, int n, int most, float least, int *out,
                   float *p);
    /* The first `tried` tokens of the newest proposal were verified, `taken` of them were right. */
    void (*learn)(struct drafter *d, int tried, int taken);
};

const struct drafter_ops *drafter_ops(enum drafter_kind kind);
/* by name; DRAFTER_COUNT: not found */
enum drafter_kind drafter_find(const char *name);
/* ERR_MEMORY, or what its engine's sessions fail with; then *out is NULL. */
int drafter_new(struct drafter **out, const struct drafter_ops *ops, struct engine *model,
                struct error *e);
void drafter_free(struct drafter *d, const struct drafter_ops *ops); /* accepts NULL */

#endif
