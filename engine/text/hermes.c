/* See hermes.h. */
#include "engine/text/hermes.h"

#include <stdlib.h>

static void put_json(struct strbuf *out, const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);

    if (text)
        strbuf_puts(out, text);
    else
        out->failed = true;
    free(text); /* allocated by jansson */
}

char *hermes_tools(const json_t *list)
{
    struct strbuf b = {0};
    const json_t *tool;
    char *text;
    size_t i;

    strbuf_puts(&b, "# Tools\n\nYou may call one or more functions to assist with the user query."
                    "\n\nYou are provided with function signatures within <tools></tools> XML tags:"
                    "\n<tools>");
    json_array_foreach(list, i, tool)
    {
        strbuf_putc(&b, '\n');
        put_json(&b, tool);
    }
    strbuf_puts(&b, "\n</tools>\n\nFor each function call, return a json object with function name "
                    "and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
                    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
    text = strbuf_take(&b, NULL);
    strbuf_release(&b);
    return text;
}

void hermes_put_call(struct strbuf *out, const json_t *name, const json_t *arguments)
{
    if (out->len)
        strbuf_putc(out, '\n');
    strbuf_puts(out, "<tool_call>\n{\"name\": ");
    put_json(out, name);
    strbuf_puts(out, ", \"arguments\": ");
    if (json_string_length(arguments))
        strbuf_puts(out, json_string_value(arguments)); /* as the model wrote them */
    else if (json_is_string(arguments))
        strbuf_puts(out, "{}");
    else
        put_json(out, arguments);
    strbuf_puts(out, "}\n</tool_call>");
}

void hermes_put_result(struct strbuf *out, const char *text)
{
    if (out->len)
        strbuf_putc(out, '\n');
    strbuf_puts(out, "<tool_response>\n");
    strbuf_puts(out, text);
    strbuf_puts(out, "\n</tool_response>");
}
