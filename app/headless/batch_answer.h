/* One line of a batch's output: a JSON object that is filled while its line is answered. Any
 * thread. */
#ifndef APP_HEADLESS_BATCH_ANSWER_H
#define APP_HEADLESS_BATCH_ANSWER_H

#include "engine/base/strbuf.h"
#include "engine/run/report/messages.h"

#include <jansson.h>

/* Its number, id (none yet) and the input's digest. */
json_t *batch_answer_new(size_t index, const char *text, size_t n);
/* The answer and its figures. */
void batch_answer_put(json_t *o, const struct strbuf *text, const struct strbuf *reasoning,
                      const struct turn_done_event *done);
void batch_answer_failed(json_t *o, int code, const struct error *why);
/* The model is gone or a signal arrived: neither this line nor further ones can be answered. */
bool batch_is_fatal(int rc);

#endif
