/* Penalties on the logits of tokens that occurred before: repetition, frequency and presence
 * penalty, and DRY. Owner: the sampler; one thread. Sampling allocates nothing: penalties_init
 * allocates marks, penalties_prepare the memory for DRY. Formulas are llama.cpp's
 * (src/llama-sampler.cpp there; DRY is p-e-w's of oobabooga's #5677, with the Z algorithm of
 * KoboldCpp's #982).
 *
 *     repetition: logit / penalty where it is positive, logit * penalty elsewhere
 *     then        logit - frequency * times - presence
 *     DRY:        logit - multiplier * base ^ (length - allowed), length: of the longest suffix of
 *                 the text that occurred before in front of this token; from allowed on, and not
 *                 across the last breaker */
#ifndef ENGINE_RUN_PENALTIES_H
#define ENGINE_RUN_PENALTIES_H

#include "engine/run/sampling/sampling.h"
#include "engine/text/tokenizer.h"

#include <stdbool.h>

struct penalties {
    int n_vocab;
    uint32_t *seen, *times; /* n_vocab each; times is valid where seen equals `round` */
    uint32_t round;
    int *ends; /* room; length of the suffix that also ends so many tokens earlier */
    size_t room;
    const struct tokenizer *tokenizer;
    unsigned char *breaks; /* n_vocab; NULL: not prepared */
    char breakers[SAMPLING_BREAKER_MAX][SAMPLING_BREAKER_BYTES + 1];
    int n_breakers;
};

int penalties_init(struct penalties *p, int n_vocab, struct error *e); /* ERR_MEMORY */
void penalties_release(struct penalties *p);
size_t penalties_footprint(int n_vocab);
/* Call before a turn: allocates what DRY needs, if enabled in s, for a history of at most `context`
 * tokens. Until then it penalises nothing. ERR_MEMORY. */
int penalties_prepare(struct penalties *p, const struct sampling *s, const struct tokenizer *t,
                      int context, struct error *e);

/* Marks the tokens that get a penalty, given the tokens so far, newest last. false: none. */
bool penalties_mark(struct penalties *p, const struct sampling *s, const int *recent, size_t n);
bool penalties_mark_dry(struct penalties *p, const struct sampling *s, const int *recent, size_t n);
/* The penalised logit of a token, after penalties_mark. */
float penalties_apply(const struct penalties *p, const struct sampling *s, float logit, int id);
float penalties_apply_dry(const struct penalties *p, const struct sampling *s, float logit, int id);

#endif
