/* The questions of --choices, for modes that ask them more than once. Main thread. */
#ifndef APP_QUALITY_CHOICES_H
#define APP_QUALITY_CHOICES_H

#include "engine/run/engine.h"

struct choice_list;

/* All questions of a text. ERR_INPUT names the line; ERR_MEMORY. */
int choices_read(struct choice_list **out, const char *text, size_t size, struct error *e);
void choices_free(struct choice_list *l); /* accepts NULL */
int choices_count(const struct choice_list *l);
/* *surprise: -ln of the right option's share, exp of its score over the sum of all options';
 * *right: whether its score is the largest, the first of equals. Errors of score_text. */
int choices_ask(const struct choice_list *l, int i, struct engine *g, int bos, double *surprise,
                bool *right, struct error *e);

#endif
