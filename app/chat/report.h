/* --report: the conversation, the session's figures and the expert map as one file, when a chat
 * ends. HTML contains the map; Markdown has it beside it as an SVG file. UI thread. */
#ifndef APP_CHAT_REPORT_H
#define APP_CHAT_REPORT_H

#include "app/common/transcript.h"
#include "app/stats/run_stats.h"

/* Before the chat: path ends in .html or .md, and its folder exists. ERR_USAGE, ERR_IO. */
int report_check(const char *path, struct error *e);
/* Replaces the file; a new one is readable only by its owner. s: taken (stats_take), its turns 0:
 * nothing was computed. Writes nothing if the chat is empty. ERR_IO, ERR_MEMORY. */
int report_write(const struct transcript *t, const struct stats *s, const char *path,
                 struct error *e);
/* The same as the text of an HTML page, for mem_free; NULL: no memory. s: NULL for no figures. */
char *report_page(const struct transcript *t, const struct stats *s);

#endif
