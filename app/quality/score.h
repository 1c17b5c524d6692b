/* Texts through the engine, and every logit row that counts to a callback. Main thread. */
#ifndef APP_QUALITY_SCORE_H
#define APP_QUALITY_SCORE_H

#include "app/options/options.h"
#include "engine/run/engine.h"

#include <jansson.h>

#define SCORE_ROWS 64 /* most rows of logits at a time */

/* The logits after token `at` of the text; non-zero ends with that. */
typedef int (*score_row)(void *ctx, int at, const float *logits, struct error *e);

/* n ids as a text of their own, in the chat's session, which is cleared before; rows first .. n - 2
 * go to fn: each predicts the token behind it. ERR_CANCELLED: a signal came. ERR_MODEL: an id
 * that the model does not have. Errors of engine_eval and of fn. */
int score_text(struct engine *g, const int *ids, int n, int first, score_row fn, void *ctx,
               struct error *e);
/* The same, no more than so many of these rows at a time. */
int score_text_by(struct engine *g, const int *ids, int n, int first, int most_rows, score_row fn,
                  void *ctx, struct error *e);
/* ERR_MODEL: an id that the model does not have, for a tokenizer can know more than its model. */
int score_check(const struct engine *g, const int *ids, int n, struct error *e);
/* -ln p(ids[i + 1] | ids[0 .. i]), summed over i = first .. n - 2. */
int score_surprise(struct engine *g, const int *ids, int n, int first, double *sum,
                   struct error *e);

/* The engine with a context of `context` tokens (0: as elsewhere) where the user asked for none. */
int score_open(struct options *o, int context, struct engine **g, struct error *e);
/* The token that the model wants before raw text; -1: none. ERR_MODEL: no tokenizer. */
int score_bos(const struct engine *g, int *bos, struct error *e);
/* A text's ids behind that token (-1: none); special: control tokens in it are read as such. *ids
 * is mem_* memory, of a failure too. */
int score_encode(const struct engine *g, int bos, const char *text, size_t size, bool special,
                 int **ids, int *n, struct error *e);
/* The same of a file, `default` being the text that comes with the program; with the token that the
 * model wants before it, which is also told. */
int score_file(const struct engine *g, const char *name, bool special, int *bos, int **ids, int *n,
               struct error *e);
/* Every line of a text that is not empty, numbered from 1, with a bar that says `what`; an error of
 * fn is put down to its line. ERR_INPUT: there is none. */
int score_lines(const char *what, const char *text, size_t size,
                int (*fn)(void *ctx, const char *line, size_t n, int number, struct error *e),
                void *ctx, struct error *e);
/* Writes the result with what was measured (model, type, kernels) to --quality-json, where that is
 * given; takes `result`. ERR_VALUE: it is NULL, json_pack's answer to what
 * JSON has no number for; ERR_IO, ERR_MEMORY. */
int score_report(const struct options *o, const struct engine *g, json_t *result, struct error *e);
/* *chunks: how many the text of n tokens has; cut to what --chunks asks for. ERR_INPUT: none. */
int score_chunks(const struct options *o, const char *text, int n, int context, int *chunks,
                 struct error *e);

#endif
