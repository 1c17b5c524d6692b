/* The tokens of an answer in its text: where each stands, and the ink it has by what the model knew
 * of it (probability, surprise, time, an expert). Reads the model alone. UI thread. */
#ifndef UI_TOKEN_INK_H
#define UI_TOKEN_INK_H

#include "ui/model.h"

#define TOKEN_INK_LEVELS 5 /* 0: the text's own */

/* The kept token of the block whose text holds byte `offset`: its serial (from 1, as n_tokens
 * counts), and where its text ends; 0: none is known there, up to *end. */
uint64_t token_ink_at(const struct ui_model *m, const struct ui_block *b, size_t offset,
                      size_t *end);
const struct ui_token *token_ink_token(const struct ui_model *m, uint64_t serial);
/* Changes s for the token: its level's ground in the mode in force, the marked expert's tokens
 * underlined, the marked token reversed. */
struct style token_ink_style(const struct ui_model *m, struct style s, uint64_t serial);
/* The newest answer has ink of its own now: a legend is in place. */
bool token_ink_shown(const struct ui_model *m, const struct ui_block *b);
/* "probability", …; "off". */
const char *token_ink_word(enum token_ink ink);
/* Level 1 to 4 in words: "< 90 %"; NULL: this mode has no such level. */
const char *token_ink_level_word(enum token_ink ink, int level);
struct style token_ink_level_style(const struct theme *t, struct style s, int level);

#endif
