/* Calls and results in a transcript. UI thread, or the main thread. */
#ifndef APP_MCP_RECORD_H
#define APP_MCP_RECORD_H

#include "app/common/transcript.h"
#include "app/mcp/round.h"

/* The last entry, an answer, makes these calls; plain: its text without them. ERR_MEMORY. */
int record_calls(struct transcript *t, const json_t *calls, const char *plain, struct error *e);
/* Appends the result of call i. ERR_MEMORY. */
int record_result(struct transcript *t, const struct round *r, size_t i, struct error *e);
/* "read_file: files, 0.3 s", "read_file: refused": what a result's entry says of itself; safe to
 * print. */
void record_line(const struct transcript_entry *x, char *out, size_t size);

#endif
