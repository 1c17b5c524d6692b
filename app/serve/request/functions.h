/* OpenAI's earlier form of tools: "functions" and "function_call" of a chat request, a message's
 * "function_call", results of the role "function". Request thread. */
#ifndef APP_SERVE_REQUEST_FUNCTIONS_H
#define APP_SERVE_REQUEST_FUNCTIONS_H

#include "app/serve/request/job.h"

/* Replaces them in j->body by "tools", "tool_choice" and "tool_calls". With "functions" it sets
 * j->wish.functions: the answer has at most one call, in the same form. */
int functions_read(struct job *j, struct refusal *r);

#endif
