/* Tool descriptions for models that were trained to call tools but whose own template leaves the
 * description to the caller: prefixes of their templates, used when a conversation has tools, that
 * change `messages` as the model's card says. They contain no newline, so that the template's line
 * numbers stay right; an empty text at the end, so that no block swallows the following newline. */
#ifndef ENGINE_TEXT_TOOL_TELLINGS_H
#define ENGINE_TEXT_TOOL_TELLINGS_H

/* DeepSeek V3.1 ("ToolCall" of its card): after the system message, with the empty line before it
 * even if there is none. */
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
