/* What makes a model fit that does not, and the refusal to load it. Any thread but for fit_require,
 * which prints: the main thread. Nothing is loaded. */
#ifndef APP_SETUP_FIT_REMEDY_H
#define APP_SETUP_FIT_REMEDY_H

#include "app/setup/fit.h"

#define FIT_CONTEXT_LEAST 512 /* a context below this is no remedy worth naming */

/* The largest context up to `most`, in steps of 256, that fits into so many bytes; 0: not even the
 * least worth having. m: from fit_inspect with c. */
int fit_context(const struct engine_config *c, const struct model *m,
                const struct model_footprint *weights, int most, uint64_t available);
/* The nearest settings that fit into what was free when f was measured, as flags ("-c 2048",
 * "--dtype q4_0 -c 1024"), from the least loss to the greatest; empty: none found. found (may be
 * NULL): these settings, and what they take. */
void fit_suggest(const struct engine_config *c, const struct fit *f, char *out, size_t size,
                 struct engine_config *found);
/* A type for --quantize whose file would fit, for a model that no setting helps: "q4_k_m", and
 * about how many bytes it takes. NULL: none, or nobody writes such a file. */
const char *fit_smaller(const struct engine_config *c, const struct fit *f, uint64_t *bytes);

/* ERR_FIT: what is missing and, where there is one, the remedy. */
int fit_refuse(const struct engine_config *c, const struct fit *f, struct error *e);
/* Whether c may be loaded once so many bytes that others hold are given back: 0, ERR_FIT with the
 * remedy, or what makes it unreadable. page: experts may stay on the disk for that (fit_page.h),
 * which `line` then says (else ""). Prints nothing: any thread. */
int fit_admit(struct engine_config *c, bool page, uint64_t freed, char *line, size_t size,
              struct error *e);
/* What loading calls first: ERR_FIT, with the table on stderr, when it does not fit and force is
 * not given. page: experts may stay on the disk for that (fit_page.h), which a line on stderr says.
 */
int fit_require(struct engine_config *c, bool force, bool page, struct error *e);

#endif
