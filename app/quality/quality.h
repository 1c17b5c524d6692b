/* How well a model predicts: --perplexity of a text or of the lines of a file, --kl-divergence from
 * another setting, --price of lossy ones, --choices, --ablate of every expert; control vectors made
 * from texts; and activation statistics on a text, for --quantize. Main thread, synchronous engine.
 * Results on stdout, and as JSON with --quality-json.
 */
#ifndef APP_QUALITY_QUALITY_H
#define APP_QUALITY_QUALITY_H

#include "app/options/options.h"
#include "engine/run/engine.h"

#include <jansson.h>

bool perplexity_wanted(const struct options *o);
int perplexity_run(struct options *o, struct error *e);
bool perplexity_lines_wanted(const struct options *o);
int perplexity_lines_run(struct options *o, struct error *e);
bool divergence_wanted(const struct options *o);
int divergence_run(struct options *o, struct error *e);
bool price_wanted(const struct options *o);
int price_run(struct options *o, struct error *e);
/* --make-control-vector */
bool control_wanted(const struct options *o);
int control_run(struct options *o, struct error *e);
bool ablate_wanted(const struct options *o);
int ablate_run(struct options *o, struct error *e);
bool choices_wanted(const struct options *o);
int choices_run(struct options *o, struct error *e);
/* The importance matrix of `model` on the text of --imatrix-text, written to `out`; a line on
 * stderr says how much text it is based on. */
int importance_from_text(const struct options *o, const char *model, const char *out,
                         struct error *e);

#endif
