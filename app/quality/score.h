/* Runs texts through the engine, and passes the logit rows that count to a callback. Main thread.
 */
#ifndef APP_QUALITY_SCORE_H
#define APP_QUALITY_SCORE_H

#include "app/options/options.h"
#include "engine/run/engine.h"

#include <jansson.h>

#define SCORE_ROWS 64 /* rows of logits at a time, at most */

/* The logits after token `at` of the text; non-zero stops with that. */
typedef int (*score_row)(void *ctx, int at, const float *logits, struct error *e);

/* Scores n ids as a separate text, in the chat's session, which is cleared first; rows first .. n -
 * 2 are passed to fn: each predicts the next token. ERR_CANCELLED: by a signal. ERR_MODEL: an id
 * that the model does not have. Errors of engine_eval and of fn. */
int score_text(struct engine *g, const int *ids, int n, int first, score_row fn, void *ctx,
               struct error *e);
/* The same, with at most so many of these rows at a time. */
int score_text_by(struct engine *g, const int *ids, int n, int first, int most_rows, score_row fn,
                  void *ctx, struct error *e);
/* ERR_MODEL: an id that the model does not have, as a tokenizer may have more than its model. */
int score_check(const struct engine *g, const int *ids, int n, struct error *e);
/* -ln p(ids[i + 1] | ids[0 .. i]), summed over i = first .. n - 2. */
int score_surprise(struct engine *g, const int *ids, int n, int first, double *sum,
                   struct error *e);

/* The engine with a context of `context` tokens (0: the default) unless the user set one. */
int score_open(struct options *o, int context, struct engine **g, struct error *e);
/* The token that the model needs before raw text (BOS); -1: none. ERR_MODEL: no tokenizer. */
int score_bos(const struct engine *g, int *bos, struct error *e);
/* A text's ids after that token (-1: none); special: parse special tokens. *ids is mem_* memory, on
 * failure too. */
int score_encode(const struct engine *g, int bos, const char *text, size_t size, bool special,
                 int **ids, int *n, struct error *e);
/* The same for a file, `default` being the text included in the program; with the token that the
 * model needs before it, returned too. */
int score_file(const struct engine *g, const char *name, bool special, int *bos, int **ids, int *n,
               struct error *e);
/* Calls fn for every non-empty line of a text, numbered from 1, with a progress bar labelled
 * `what`; an error of fn names its line. ERR_INPUT: there is none. */
int score_lines(const char *what, const char *text, size_t size,
                int (*fn)(void *ctx, const char *line, size_t n, int number, struct error *e),
                void *ctx, struct error *e);
/* Writes the result with the configuration (model, type, kernels) to --quality-json, if given;
 * takes `result`. ERR_VALUE: it is NULL, as json_pack returns for values that JSON cannot
 * represent; ERR_IO, ERR_MEMORY. */
int score_report(const struct options *o, const struct engine *g, json_t *result, struct error *e);
/* *chunks: the number of chunks in n tokens, limited by --chunks. ERR_INPUT: none. */
int score_chunks(const struct options *o, const char *text, int n, int context, int *chunks,
                 struct error *e);

#endif
