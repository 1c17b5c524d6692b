/* A chat template's support of tools. Templates differ in what they read (tools, calls, results)
 * and in which form, and no file states it; it is found by rendering a small conversation in the
 * common ways and searching the result for its words. */
#ifndef ENGINE_TEXT_CHAT_TOOLS_H
#define ENGINE_TEXT_CHAT_TOOLS_H

#include "engine/base/error.h"
#include "engine/base/message.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* All zero: nothing. */
struct chat_tools {
    bool tools;          /* writes "tools" into the prompt */
    bool calls;          /* writes "tool_calls" of an assistant's message */
    bool results;        /* writes messages of role tool */
    bool no_system;      /* refuses a system message (Gemma 2) */
    bool text_arguments; /* arguments of calls are a JSON string; else an object */
    bool empty_content;  /* the content of a message with only calls is ""; else null */
    bool short_ids;      /* ids of calls are nine letters and digits (Mistral) */
    bool single;         /* one call per message, then its result (Llama 3) */
    bool described;      /* fails for a tool without "description" (gpt-oss) */
    bool hermes;         /* it writes calls as <tool_call>{"name": ..., "arguments": ...} */
    bool deepseek; /* or as <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...} (DeepSeek V3.1) */
};

/* A template's rendering (chat_template_render): *text is mem_* memory. */
typedef int chat_tools_render(void *ctx, const struct message *m, size_t n, const json_t *given,
                              bool add_generation_prompt, char **text, struct error *e);

/* ERR_CANCELLED, ERR_MEMORY; other failures of a rendering only mean that this way is
 * unsupported. */
int chat_tools_find(struct chat_tools *out, chat_tools_render *rendering, void *ctx,
                    struct error *e);

#endif
