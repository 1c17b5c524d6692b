/* Markers of reasoning and tool calls in models' answers: the table of answer_parts.h. Sources: the
 * chat templates of the models named. close NULL: until the answer ends. */
#ifndef ENGINE_TEXT_ANSWER_FORMATS_H
#define ENGINE_TEXT_ANSWER_FORMATS_H

#define HERMES_CALL "<tool_call>"
#define ATEM_CALLS "<atem:function_calls>"

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
    X("<|tool_call_start|>", "<|tool_call_end|>", PART_TOOL_CALL)                             \
    /* Gemma 4 */                                                                             \
    X("<|channel>thought",  "<channel|>",         PART_REASONING)                             \
    X("<|tool_call>",       "<tool_call|>",       PART_TOOL_CALL)                             \
    /* DeepSeek R1 to V3.1, V3.2, V4 */                                                       \
    X("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", PART_TOOL_CALL)                           \
    X("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", PART_TOOL_CALL)                   \
    X("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", PART_TOOL_CALL)                           \
    /* Kimi K2 */                                                                             \
    X("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", PART_TOOL_CALL)           \
    /* MiniMax M2, M1, Apriel and Jamba */                                                    \
    X("<minimax:tool_call>", "</minimax:tool_call>", PART_TOOL_CALL)                          \
    X("<tool_calls>",       "</tool_calls>",      PART_TOOL_CALL)                             \
    /* Seed-OSS */                                                                            \
    X("<seed:think>",       "</seed:think>",      PART_REASONING)                             \
    X("<seed:tool_call>",   "</seed:tool_call>",  PART_TOOL_CALL)                             \
    /* Nemotron Nano 2 */                                                                     \
    X("<TOOLCALL>",         "</TOOLCALL>",        PART_TOOL_CALL)                             \
    /* Hunyuan */                                                                             \
    X("<answer>",           "</answer>",          PART_ANSWER)                                \
    /* Cohere, North Code */                                                                  \
    X("<|START_THINKING|>", "<|END_THINKING|>",   PART_REASONING)                             \
    X("<|START_ACTION|>",   "<|END_ACTION|>",     PART_TOOL_CALL)                             \
    /* Hy3 */                                                                                 \
    X("<think:opensource>", "</think:opensource>", PART_REASONING)                            \
    X("<tool_calls:opensource>", "</tool_calls:opensource>", PART_TOOL_CALL)                  \
    /* Solar Open: a message of its own for each part */                                      \
    X("<|think|>",          "<|begin|>assistant", PART_REASONING)                             \
    X("<|tool_calls|>",     "<|calls|>",          PART_TOOL_CALL)                             \
    /* GigaChat 3.1 */                                                                        \
    X("<|function_call|>",  "<|message_sep|>",    PART_TOOL_CALL)                             \
    /* Muse Glimmer, in a message to the tool */                                              \
    X(ATEM_CALLS,           "</atem:function_calls>", PART_TOOL_CALL)                         \
    /* LongCat-Flash */                                                                       \
    X("<longcat_think>",    "</longcat_think>",   PART_REASONING)                             \
    X("<longcat_tool_call>", "</longcat_tool_call>", PART_TOOL_CALL)                          \
    /* ZAYA */                                                                                \
    X("<zyphra_tool_call>", "</zyphra_tool_call>", PART_TOOL_CALL)                            \
    /* Llama 4: what it says, then its calls; Python's calls may be what it says, and are found   \
     * like those without a marker */                                                         \
    X("<|python_start|>",   "<|python_end|>",     PART_ANSWER)                                \
    X("<|python_end|>",     NULL,                 PART_TOOL_CALL)                             \
    /* Llama 3 */                                                                             \
    X("<|python_tag|>",     NULL,                 PART_TOOL_CALL)
/* clang-format on */

/* marker, text, own: known by this text too, because a template puts the marker together (DeepSeek
 * V3.2, V4, Hy3); own false: by it alone, because the marker is another model's word (Gemma 4's) */
#define ANSWER_TOLD(X)                                  \
    X("<｜DSML｜function_calls>", "｜DSML｜", true)     \
    X("<｜DSML｜tool_calls>", "｜DSML｜", true)         \
    X("<think:opensource>", "':opensource'", true)      \
    X("<tool_calls:opensource>", "':opensource'", true) \
    X("<|think|>", "<|tool_call:begin|>", false)

/* Harmony (gpt-oss): <|channel|>NAME<|message|>TEXT<|end|>; a header in between names the tool that
 * a message is for ("to=functions.NAME"), before the channel or after it. */
#define HARMONY_TO "to="
#define HARMONY_FUNCTIONS "functions."
#define HARMONY_CHANNEL "<|channel|>"
#define HARMONY_MESSAGE "<|message|>"
#define HARMONY_START "<|start|>"
#define HARMONY_END "<|end|>"
/* Muse Glimmer's: no channels; a message to itself is reasoning, and calls have markers */
#define ATEM_SELF "self"
#define ATEM_END "<|eom|>"

#endif
