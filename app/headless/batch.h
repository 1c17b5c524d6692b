/* --batch FILE|-: every line of the input is answered, JSON Lines out, in order. Main thread,
 * synchronous engine. */
#ifndef APP_HEADLESS_BATCH_H
#define APP_HEADLESS_BATCH_H

#include "app/options/options.h"
#include "engine/run/messages.h"

#include <jansson.h>

int batch_run(struct options *o, struct error *e);

/* ---- a line of the output ---- */

struct strbuf;
/* Its number, id (none yet) and the input's digest. */
json_t *batch_answer_new(size_t index, const char *text, size_t n);
/* What was answered, and its figures. */
void batch_answer_put(json_t *o, const struct strbuf *text, const struct strbuf *reasoning,
                      const struct turn_done_event *done);
void batch_answer_failed(json_t *o, int code, const struct error *why);
/* The model is gone or a signal came: no further line can be answered, and this one is not. */
bool batch_is_fatal(int rc);

/* ---- one line, without an engine (app/headless/batch_line.c) ---- */

struct batch_line {
    struct dialogue said; /* owned by the line */
    struct turn turn;     /* likewise its prompt and, with own_stops, its stops */
    bool own_stops;
    char *id; /* compact JSON of the line's id, from malloc; NULL: none */
};

/* What a line asks for. *line is filled as far as known even when it fails (its id), and is always
 * released by the caller. defaults: sampling, max_tokens, stops of the options; raw: a plain line
 * is; system (may be NULL): the system message where the line has none. ERR_INPUT names the key.
 * text needs no NUL; without its line end. */
int batch_line_read(struct batch_line *line, const char *text, size_t n,
                    const struct turn *defaults, bool raw, const char *system, struct error *e);
void batch_line_release(struct batch_line *line);

#endif
