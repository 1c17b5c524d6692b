/* --expert-cache auto: what does not fit by its routed experts may run with some of them on the
 * disk. Any thread; nothing is loaded. */
#ifndef APP_SETUP_FIT_PAGE_H
#define APP_SETUP_FIT_PAGE_H

#include "app/setup/fit.h"

/* Sets c->expert_cache to what is left for experts, measures f anew and says so in a line. 1: done;
 * 0: that does not help either, nothing is changed. f: of fit_measure or fit_measure_fast. */
int fit_page(struct engine_config *c, struct fit *f, char *line, size_t size);

/* The flag that sets such a cache by hand: "--expert-cache 600M"; empty: paging helps nothing. */
void fit_page_flag(const struct engine_config *c, const struct fit *f, char *out, size_t size);

#endif
