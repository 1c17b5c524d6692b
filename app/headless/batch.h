/* --batch FILE|-: every line of the input is answered, JSON Lines out, in order. Main thread,
 * synchronous engine. */
#ifndef APP_HEADLESS_BATCH_H
#define APP_HEADLESS_BATCH_H

#include "app/options/options.h"
#include "engine/run/messages.h"

int batch_run(struct options *o, struct error *e);

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
