/* Syntaxes of tool calls: the table of tool_calls.h, one row each. The first row that parses all of
 * a text counts. Sources: the chat templates of the models named. */
#ifndef ENGINE_TEXT_CALL_SYNTAXES_H
#define ENGINE_TEXT_CALL_SYNTAXES_H

#include "engine/text/call_slice.h"

#include <jansson.h>
#include <stdbool.h>

enum call_style {
    CALL_JSON,   /* {"name": …, "arguments" or "parameters": …}, or a list of them */
    CALL_NAMED,  /* open NAME sep JSON close */
    CALL_XML,    /* open NAME sep, key KEY between VALUE value_end, …, close */
    CALL_PYTHON, /* [NAME(KEY=VALUE, …), …] */
    CALL_BRACED  /* call:NAME{KEY:VALUE, …} */
};

/* style, open, sep, close, key, between, value_end */
/* clang-format off */
#define CALL_SYNTAXES(X)                                                                        \
    /* Hermes, Qwen3, Granite, Mistral to v7, Cohere, Llama 3, MiniMax M1; harmony as            \
     * answer_parts.h hands it on */                                                            \
    X(CALL_JSON, "", "", "", "", "", "")                                                        \
    /* Mistral from v11 on */                                                                   \
    X(CALL_NAMED, "", "[ARGS]", "", "", "", "")                                                 \
    /* DeepSeek R1 and V3, V3.1 */                                                              \
    X(CALL_NAMED, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",                     \
      "\n```<｜tool▁call▁end｜>", "", "", "")                                                     \
    X(CALL_NAMED, "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "", "", "")      \
    /* Kimi K2 */                                                                               \
    X(CALL_NAMED, "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",   \
      "", "", "")                                                                               \
    /* Solar Open: an identifier before the name */                                             \
    X(CALL_NAMED, "<|tool_call:begin|>", "<|tool_call:args|>", "<|tool_call:end|>", "", "", "") \
    /* Llama 3 for its own functions */                                                         \
    X(CALL_NAMED, "<function=", ">", "</function>", "", "", "")                                 \
    /* Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5, Seed-OSS */                                   \
    X(CALL_XML, "<function=", ">", "</function>", "<parameter=", ">", "</parameter>")           \
    /* MiniMax M2 */                                                                            \
    X(CALL_XML, "<invoke name=\"", "\">", "</invoke>", "<parameter name=\"", "\">",             \
      "</parameter>")                                                                           \
    /* Muse Glimmer */                                                                          \
    X(CALL_XML, "<atem:invoke name=\"", "\">", "</atem:invoke>", "<atem:parameter name=\"",     \
      "\">", "</atem:parameter>")                                                               \
    /* DeepSeek V3.2, V4 */                                                                     \
    X(CALL_XML, "<｜DSML｜invoke name=\"", "\">", "</｜DSML｜invoke>",                             \
      "<｜DSML｜parameter name=\"", "\" string=\"", "</｜DSML｜parameter>")                         \
    /* Hy3 */                                                                                   \
    X(CALL_XML, "<tool_call:opensource>", "<tool_sep:opensource>", "</tool_call:opensource>",   \
      "<arg_key:opensource>", "</arg_key:opensource>", "</arg_value:opensource>")               \
    /* LFM2, Llama 4 */                                                                         \
    X(CALL_PYTHON, "[", "(", ")", "", "=", "")                                                  \
    /* Gemma 4 */                                                                               \
    X(CALL_BRACED, "call:", "{", "}", "", ":", "")                                              \
    /* LongCat-Flash (Thinking, Lite); Chat has JSON between the marks */                       \
    X(CALL_XML, "", "", "", "<longcat_arg_key>", "</longcat_arg_key>", "</longcat_arg_value>")  \
    /* GLM 4.5 to 5; the last one, for a word alone is a call here */                           \
    X(CALL_XML, "", "", "", "<arg_key>", "</arg_key>", "</arg_value>")
/* clang-format on */

struct call_syntax {
    enum call_style style;
    const char *open, *sep, *close, *key, *between, *value_end;
};

extern const struct call_syntax call_syntaxes[]; /* until one whose open is NULL */

/* A value as written, in any syntax but JSON's; types: enum call_type, 0: unknown. A new reference;
 * NULL: it is none, or no memory. */
json_t *call_value(const char *text, const struct call_syntax *s, struct call_slice value,
                   unsigned types);
/* Whether the value at `at` is marked as a string. */
bool call_value_is_string(const char *text, const struct call_syntax *s, size_t at);

#endif
