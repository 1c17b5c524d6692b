/* Fuzz target: chat templates. The input is a template; it is refused, or rendered within its
 * bounds with a mask as long as its text. */
#include "engine/text/jinja/jinja.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char hello[] = " Hello <|end|> ", hi[] = "Hi, \xe4\xbd\xa0!\n", be[] = "Be kind.";
    static const struct message m[] = {{.role = ROLE_SYSTEM, .text = be},
                                       {.role = ROLE_USER, .text = hello},
                                       {.role = ROLE_ASSISTANT, .text = hi},
                                       {.role = ROLE_USER, .text = hi}};
    static const struct jinja_variable v[] = {{"bos_token", "<s>", 3}, {"eos_token", "</s>", 4}};
    struct strbuf text = {0}, mask = {0};
    size_t begins[4];
    struct error e = {0};
    struct jinja *j;

    if (jinja_parse(&j, (const char *)data, size, &e) < 0) {
        if (!e.code || !e.text[0])
            abort();
        return 0;
    }
    for (size_t n = 0; n <= 4; n += 2)
        if (jinja_render(j,
                         &(struct jinja_input){.messages = m,
                                               .n_messages = n,
                                               .add_generation_prompt = n < 4,
                                               .variables = v,
                                               .n_variables = 2},
                         &(struct jinja_output){.text = &text, .mask = &mask, .begins = begins},
                         &e) == 0 &&
            text.len != mask.len)
            abort();
    strbuf_release(&text);
    strbuf_release(&mask);
    jinja_free(j);
    return 0;
}
