/* The host's table of rotary cosines and sines: every device multiplies with these same values
 * (numeric contract, rule 6). Plain rotary embedding has one table. Longrope (Ding et al. 2024,
 * arXiv:2402.13753; PhimoeRotaryEmbedding in the model's official code) has two: sequences up to
 * original_context use the short factors, longer ones the long factors for every position, so the
 * cached keys of a sequence that exceeds it are invalid. Layers of a second geometry (Gemma 4) have
 * a separate table, the same for all sequences. Rows are computed up to the longest sequence so
 * far: a long context costs nothing before it is used. Owner: the engine, whose thread alone calls
 * rope_reach; filled rows never change. */
#ifndef ENGINE_RUN_ROPE_H
#define ENGINE_RUN_ROPE_H

#include "engine/base/error.h"
#include "engine/model/hparams.h"

#include <stddef.h>

enum rope_variant { ROPE_SHORT, ROPE_LONG, ROPE_VARIANTS };

struct rope {
    const struct hparams *hp;
    int filled; /* rows computed */
    int context, pairs, original_context;
    /* (context, pairs), mscale folded in; [ROPE_LONG] NULL where never needed */
    float *cos[ROPE_VARIANTS], *sin[ROPE_VARIANTS];
    float *second_cos, *second_sin; /* (context, second_rope.dims/2), or NULL; for every session */
    size_t bytes;
};

int rope_init(struct rope *r, const struct hparams *hp, int context, struct error *e);
/* Fills the tables up to position end - 1. Call before a pass, and for the whole context before
 * another device copies them. */
void rope_reach(struct rope *r, int end);
/* Number of tables for a context of this length. */
int rope_variants(const struct hparams *hp, int context);
/* Bytes that rope_init would allocate. */
size_t rope_footprint(const struct hparams *hp, int context);
void rope_release(struct rope *r);
/* The table for a sequence of so many tokens. */
enum rope_variant rope_choose(const struct rope *r, int tokens);

#endif
