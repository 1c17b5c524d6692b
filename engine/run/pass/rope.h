/* The host's table of rotary cosines and sines: every device multiplies with these same values
 * (numeric contract, rule 6). Plain rotary embedding has one table. Longrope (Ding et al. 2024,
 * arXiv:2402.13753; PhimoeRotaryEmbedding in the model's official code) has two: sequences up to
 * original_context use the short factors, longer ones the long factors for every position, so the
 * keys already cached do not fit a sequence that crosses the border. Layers of a second geometry
 * (Gemma 4) have a table of their own, the same for all sequences. Rows are computed as far as
 * sequences have come: a long context costs nothing before it is used. Owner: the engine, whose
 * thread alone calls rope_reach; what is filled never changes. */
#ifndef ENGINE_RUN_ROPE_H
#define ENGINE_RUN_ROPE_H

#include "engine/base/error.h"
#include "engine/model/hparams.h"

#include <stddef.h>

enum rope_variant { ROPE_SHORT, ROPE_LONG, ROPE_VARIANTS };

struct rope {
    const struct hparams *hp;
    int filled; /* rows that are there */
    int context, pairs, original_context;
    /* (context, pairs), mscale folded in; [ROPE_LONG] NULL where never needed */
    float *cos[ROPE_VARIANTS], *sin[ROPE_VARIANTS];
    float *second_cos, *second_sin; /* (context, second_rope.dims/2), or NULL; of every session */
    size_t bytes;
};

int rope_init(struct rope *r, const struct hparams *hp, int context, struct error *e);
/* Fills the tables up to position end - 1. Before a pass, and for all of the context before another
 * device takes a copy. */
void rope_reach(struct rope *r, int end);
/* How many tables a context of this length takes. */
int rope_variants(const struct hparams *hp, int context);
/* Bytes that rope_init would allocate. */
size_t rope_footprint(const struct hparams *hp, int context);
void rope_release(struct rope *r);
/* Which table a sequence of so many tokens takes. */
enum rope_variant rope_choose(const struct rope *r, int tokens);

#endif
