/* Settings with which a model fits that does not, and the refusal to load it. Any thread except
 * fit_require, which prints: the main thread. Nothing is loaded. */
#ifndef APP_SETUP_FIT_REMEDY_H
#define APP_SETUP_FIT_REMEDY_H

#include "app/setup/fit.h"

#define FIT_CONTEXT_LEAST 512 /* smaller contexts are not suggested */

/* The largest context up to `most`, in steps of 256, that fits into so many bytes; 0: not even
 * FIT_CONTEXT_LEAST. m: from fit_inspect with c. */
int fit_context(const struct engine_config *c, const struct model *m,
                const struct model_footprint *weights, int most, uint64_t available);
/* The nearest settings that fit into the memory free when f was measured, as flags ("-c 2048",
 * "--dtype q4_0 -c 1024"), tried from the least loss to the greatest; empty: none. found (may be
 * NULL): these settings, and their needs. */
void fit_suggest(const struct engine_config *c, const struct fit *f, char *out, size_t size,
                 struct engine_config *found);
/* A type for --quantize whose file would fit, if no setting helps: "q4_k_m", and its approximate
 * size in bytes. NULL: none, or such a file cannot be written. */
const char *fit_smaller(const struct engine_config *c, const struct fit *f, uint64_t *bytes);

/* ERR_FIT: what is missing and, if there is one, the remedy. */
int fit_refuse(const struct engine_config *c, const struct fit *f, struct error *e);
/* Whether c may be loaded once so many bytes are freed by others: 0, ERR_FIT with the remedy, or
 * why it cannot be read. page: experts may stay on disk for that (fit_page.h), described in `line`
 * (else ""). Prints nothing: any thread. */
int fit_admit(struct engine_config *c, bool page, uint64_t freed, char *line, size_t size,
              struct error *e);
/* Called first when loading: ERR_FIT, with the table on stderr, if it does not fit and force is not
 * given. page: experts may stay on disk for that (fit_page.h), with a line on stderr. */
int fit_require(struct engine_config *c, bool force, bool page, struct error *e);

#endif
