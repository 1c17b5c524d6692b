/* Colouring of an answer's tokens: their positions in its text, and their colour by the model's
 * figures (probability, surprise, time, an expert, a head's attention). UI thread. */
#ifndef UI_TOKEN_INK_H
#define UI_TOKEN_INK_H

#include "ui/model.h"

#define TOKEN_INK_LEVELS 5 /* 0: the text's normal colour */

/* The stored token of the block that contains byte `offset`: its serial (from 1, as n_tokens
 * counts), and the end of its text; 0: none is known there, up to *end. */
uint64_t token_ink_at(const struct ui_model *m, const struct ui_block *b, size_t offset,
                      size_t *end);
const struct ui_token *token_ink_token(const struct ui_model *m, uint64_t serial);
/* Applies the token's style to s: the background of its level in the current mode, underline for
 * the marked expert's tokens, reverse for the marked token. */
struct style token_ink_style(const struct ui_model *m, struct style s, uint64_t serial);
/* Whether the newest answer is coloured now, so that a legend is needed. */
bool token_ink_shown(const struct ui_model *m, const struct ui_block *b);
/* Colours the newest answer by times (ui_model.attended), copied. */
void token_ink_attended(struct ui_model *m, const char *name, const float *times, size_t n);
/* The next mode that has something to show. */
enum token_ink token_ink_next(const struct ui_model *m);
/* "probability", …; "off". */
const char *token_ink_word(enum token_ink ink);
/* Text of levels 1 to 4: "< 90 %"; NULL: this mode has no such level. */
const char *token_ink_level_word(enum token_ink ink, int level);
struct style token_ink_level_style(const struct theme *t, struct style s, int level);

#endif
