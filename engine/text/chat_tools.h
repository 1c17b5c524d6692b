/* What a chat template knows of tools. Templates differ in what they read (tools, calls, results)
 * and in how they want it, and no file says so; it is found by rendering a small conversation in
 * the ways that are in use and looking for its words. */
#ifndef ENGINE_TEXT_CHAT_TOOLS_H
#define ENGINE_TEXT_CHAT_TOOLS_H

#include "engine/base/error.h"
#include "engine/base/message.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* All zero: nothing. */
struct chat_tools {
    bool tools;          /* "tools": it tells the model of them */
    bool calls;          /* "tool_calls" of an assistant's message are written */
    bool results;        /* messages of role tool are written */
    bool no_system;      /* whatever else it knows: a system message is refused (Gemma 2) */
    bool text_arguments; /* arguments of calls are a text that holds JSON; else an object */
    bool empty_content;  /* an assistant that only calls has the content ""; else null */
    bool short_ids;      /* ids of calls are nine letters and digits (Mistral) */
    bool single;         /* one call a message, then its result (Llama 3) */
    bool described;      /* a tool without "description" makes it fail (gpt-oss) */
    bool hermes;         /* it writes calls as <tool_call>{"name": ..., "arguments": ...} */
    bool deepseek; /* or as <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...} (DeepSeek V3.1) */
};

/* A template's rendering (chat_template_render): *text is mem_* memory. */
typedef int chat_tools_render(void *ctx, const struct message *m, size_t n, const json_t *given,
                              bool add_generation_prompt, char **text, struct error *e);

/* ERR_CANCELLED, ERR_MEMORY; whatever else a rendering fails for only says that it is no such way.
 */
int chat_tools_find(struct chat_tools *out, chat_tools_render *rendering, void *ctx,
                    struct error *e);

#endif
