/* The server on a terminal: sessions, requests, and the panels of the chat, live. Main thread. */
#ifndef APP_SERVE_DASHBOARD_H
#define APP_SERVE_DASHBOARD_H

#include "app/options/options.h"
#include "app/serve/common/server.h"

struct dashboard;

/* Whether this run has one: a terminal on all three descriptors, and not disabled by an option or
 * TERM. */
bool dashboard_wanted(const struct options *o);
/* Before the server's threads start: they inherit the signal mask. ERR_MEMORY, ERR_USAGE (no locale
 * with UTF-8). */
int dashboard_new(struct dashboard **out, struct server *s, const struct options *o,
                  struct error *e);
/* Takes over the terminal. ERR_USAGE: it cannot address its cursor. where: for the title; a copy.
 */
int dashboard_open(struct dashboard *d, const char *where, struct error *e);
enum dashboard_end { DASHBOARD_ON, DASHBOARD_QUIT, DASHBOARD_AGAIN };
/* Draws and handles keys for so many milliseconds, or until the user quits: QUIT, and AGAIN for
 * each repetition. */
enum dashboard_end dashboard_step(struct dashboard *d, int ms);
/* Restores the terminal. Accepts NULL. */
void dashboard_free(struct dashboard *d);

#endif
