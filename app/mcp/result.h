/* The result of a tool's call as text for a model. Any thread. */
#ifndef APP_MCP_RESULT_H
#define APP_MCP_RESULT_H

#include <jansson.h>
#include <stddef.h>

/* result: of tools/call. At most `most` bytes and a note that says so; valid UTF-8, no NUL; mem_*
 * memory, NULL: none. */
char *mcp_result_text(const json_t *result, size_t most);
/* A text of a server on one line, safe to print. */
void mcp_line(char *out, size_t size, const char *text);

#endif
