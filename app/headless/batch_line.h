/* One line of a batch's input, without an engine. Main thread. */
#ifndef APP_HEADLESS_BATCH_LINE_H
#define APP_HEADLESS_BATCH_LINE_H

#include "engine/base/error.h"
#include "engine/run/config.h"
#include "engine/run/report/messages.h"

#include <jansson.h>

struct batch_line {
    struct dialogue said; /* owned by the line */
    struct turn turn;     /* likewise its prompt and, with own_stops, its stops */
    bool own_stops;
    json_t *edits; /* its "expert_edits", a list of strings; NULL: none of its own */
    char *id;      /* compact JSON of the line's id, from malloc; NULL: none */
};

/* Parses a line's request. *line is filled as far as known even on failure (its id), and is always
 * released by the caller. defaults: sampling, max_tokens, stops of the options; raw: applies to a
 * plain line; system (may be NULL): the system message if the line has none. ERR_INPUT names the
 * key. text needs no NUL; without its line end. */
int batch_line_read(struct batch_line *line, const char *text, size_t n,
                    const struct turn *defaults, bool raw, const char *system, struct error *e);
/* Sets the turn's edits: the line's own for this model, else those of info (--expert-edit). Once,
 * after batch_line_read. ERR_INPUT: the model has no such layer or expert. */
int batch_line_edit(struct batch_line *line, const struct engine_info *info, struct error *e);
void batch_line_release(struct batch_line *line);

#endif
