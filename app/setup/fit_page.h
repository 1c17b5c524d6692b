/* --expert-cache auto: a model whose routed experts do not fit may run with some of them on disk.
 * Any thread; nothing is loaded. */
#ifndef APP_SETUP_FIT_PAGE_H
#define APP_SETUP_FIT_PAGE_H

#include "app/setup/fit.h"

#define FIT_PAGE_FLAGS 96 /* size of the text of fit_page_smaller */

/* Sets c->expert_cache to the memory left for experts, measures f again and describes it in a line.
 * 1: done; 0: that is not enough either, nothing is changed. f: of fit_measure or fit_measure_fast.
 */
int fit_page(struct engine_config *c, struct fit *f, char *line, size_t size);

/* The same for a suggestion: if that alone is not enough, also tries smaller chunks, a smaller KV
 * cache and less context, and sets c to the result. flags: the options for it, "-ub 128 -c 2048
 * --expert-cache 600M"; 0: empty. */
int fit_page_smaller(struct engine_config *c, struct fit *f, char *flags, size_t size);

#endif
