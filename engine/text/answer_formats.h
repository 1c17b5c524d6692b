/* How models mark reasoning and calls of tools in their answers: the table behind answer_parts.h.
 * Sources: the chat templates of the models named. close NULL: until the answer ends. */
#ifndef ENGINE_TEXT_ANSWER_FORMATS_H
#define ENGINE_TEXT_ANSWER_FORMATS_H

#define HERMES_CALL "<tool_call>"

/* open, close, part */
/* clang-format off */
#define ANSWER_MARKERS(X)                                                                     \
    /* Qwen3, DeepSeek-R1, GLM-4.x, LFM2, Nemotron */                                         \
    X("<think>",            "</think>",           PART_REASONING)                             \
    /* Magistral */                                                                           \
    X("[THINK]",            "[/THINK]",           PART_REASONING)                             \
    /* Hermes, Qwen */                                                                        \
    X(HERMES_CALL,          "</tool_call>",       PART_TOOL_CALL)                             \
    /* Granite 3 */                                                                           \
    X("<|tool_call|>",      NULL,                 PART_TOOL_CALL)                             \
    /* Mistral */                                                                             \
    X("[TOOL_CALLS]",       NULL,                 PART_TOOL_CALL)                             \
    /* LFM2 */                                                                                \
    X("<|tool_call_start|>", "<|tool_call_end|>", PART_TOOL_CALL)
/* clang-format on */

/* Harmony (gpt-oss): <|channel|>NAME<|message|>TEXT<|end|>; a header between. */
#define HARMONY_CHANNEL "<|channel|>"
#define HARMONY_MESSAGE "<|message|>"
#define HARMONY_START "<|start|>"
#define HARMONY_END "<|end|>"

#endif
