/* Fuzz target: chat templates. The input is a template; it is refused, or rendered within its
 * bounds with a mask as long as its text. */
#include "engine/text/jinja/jinja.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What a request brings beside its messages. */
static const char given_text[] =
    "{\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"find\", \"description\": "
    "\"d\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"who\": {\"type\": \"string\"}, "
    "\"n\": "
    "{\"type\": [\"integer\", \"null\"], \"default\": 1.5}}, \"required\": [\"who\"]}}}], "
    "\"enable_thinking\": false}";
static const char call_text[] =
    "{\"content\": null, \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": "
    "{\"name\": \"find\", \"arguments\": {\"who\": \"<|end|>\", \"n\": 3, \"l\": [true, null]}}}]}";
static const char result_text[] = "{\"tool_call_id\": \"c1\", \"name\": \"find\"}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *given;
    static char none[1];
    static char hello[] = " Hello <|end|> ", hi[] = "Hi, \xe4\xbd\xa0!\n", be[] = "Be kind.";
    static struct message m[] = {
        {.role = ROLE_SYSTEM, .text = be},      {.role = ROLE_USER, .text = hello},
        {.role = ROLE_ASSISTANT, .text = hi},   {.role = ROLE_USER, .text = hi},
        {.role = ROLE_ASSISTANT, .text = none}, {.role = ROLE_TOOL, .text = hello}};
    static const struct jinja_variable v[] = {{"bos_token", "<s>", 3}, {"eos_token", "</s>", 4}};
    struct strbuf text = {0}, mask = {0};
    size_t begins[6];
    struct error e = {0};
    struct jinja *j;

    if (!given) {
        given = json_loads(given_text, 0, NULL);
        m[4].members = json_loads(call_text, 0, NULL);
        m[5].members = json_loads(result_text, 0, NULL);
    }
    if (jinja_parse(&j, (const char *)data, size, &e) < 0) {
        if (!e.code || !e.text[0])
            abort();
        return 0;
    }
    for (size_t n = 0; n <= 6; n += 2)
        if (jinja_render(
                j,
                &(struct jinja_input){.messages = m,
                                      .n_messages = n,
                                      .add_generation_prompt = n<4, .given = n> 4 ? given : NULL,
                                      .variables = v,
                                      .n_variables = 2},
                &(struct jinja_output){.text = &text, .mask = &mask, .begins = begins}, &e) == 0 &&
            text.len != mask.len)
            abort();
    strbuf_release(&text);
    strbuf_release(&mask);
    jinja_free(j);
    return 0;
}
