/* --expert-cache auto: what does not fit by its routed experts may run with some of them on the
 * disk. Any thread; nothing is loaded. */
#ifndef APP_SETUP_FIT_PAGE_H
#define APP_SETUP_FIT_PAGE_H

#include "app/setup/fit.h"

#define FIT_PAGE_FLAGS 96 /* room for what fit_page_smaller says */

/* Sets c->expert_cache to what is left for experts, measures f anew and says so in a line. 1: done;
 * 0: that does not help either, nothing is changed. f: of fit_measure or fit_measure_fast. */
int fit_page(struct engine_config *c, struct fit *f, char *line, size_t size);

/* The same for a suggestion: where that alone does not help smaller steps, a smaller cache of keys
 * and values and less context are tried along with it, and c has what was found. flags: what sets
 * all of it by hand, "-ub 128 -c 2048 --expert-cache 600M"; 0: empty. */
int fit_page_smaller(struct engine_config *c, struct fit *f, char *flags, size_t size);

#endif
