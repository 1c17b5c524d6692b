/* How models are told of tools that were taught to call them and whose own template leaves telling
 * to the caller: templates that stand before theirs where a conversation has tools, and change
 * `messages` as the model's card says. No line of its own, so that lines count as in the model's;
 * an empty text at the end, so that no block swallows the line behind it. */
#ifndef ENGINE_TEXT_TOOL_TELLINGS_H
#define ENGINE_TEXT_TOOL_TELLINGS_H

/* DeepSeek V3.1 ("ToolCall" of its card): behind the system message, and the empty line before it
 * also where there is none. */
/* clang-format off */
#define TELL_DEEPSEEK                                                                          \
    "{% set told = namespace(text='\\n\\n## Tools\\n"                                          \
    "You have access to the following tools:\\n') %}{% for tool in tools %}"                   \
    "{% set told.text = told.text + '\\n### ' + tool.function.name + '\\nDescription: ' + "    \
    "(tool.function.description or '') + '\\n\\nParameters: ' + "                              \
    "(tool.function.parameters or {}) | tojson + '\\n' %}{% endfor %}"                         \
    "{% set told.text = told.text + '\\n"                                                      \
    "IMPORTANT: ALWAYS adhere to this exact format for tool use:\\n"                           \
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>"                  \
    "tool_call_arguments<｜tool▁call▁end｜>{{additional_tool_calls}}<｜tool▁calls▁end｜>"      \
    "\\n\\nWhere:\\n\\n- `tool_call_name` must be an exact match to one of the available "     \
    "tools\\n- `tool_call_arguments` must be valid JSON that strictly follows the tool\\'s "   \
    "Parameters Schema\\n"                                                                     \
    "- For multiple tool calls, chain them directly without separators or spaces' %}"          \
    "{% if messages[0].role == 'system' %}{% set messages = [{'role': 'system', 'content': "   \
    "messages[0].content + told.text}] + messages[1:] %}{% else %}{% set messages = "          \
    "[{'role': 'system', 'content': told.text}] + messages %}{% endif %}{{ '' }}"
/* clang-format on */

#endif
