/* See answer_text.h. */
#include "app/common/answer_text.h"

#include <string.h>

/* A transcript holds C strings: text after a NUL must not be lost. */
static void put(struct strbuf *b, const char *text, size_t n)
{
    while (n) {
        size_t part = strnlen(text, n);

        strbuf_put(b, text, part);
        if (part < n) {
            strbuf_puts(b, "\xef\xbf\xbd");
            part++;
        }
        text += part;
        n -= part;
    }
}

void answer_text_put(struct strbuf *answer, struct strbuf *thought, enum answer_part *part,
                     const struct token_event *t)
{
    if (t->part == PART_REASONING) {
        put(thought, t->text, t->len);
    } else {
        strbuf_puts(answer, answer_part_border(*part, t->part));
        put(answer, t->text, t->len);
    }
    *part = t->part;
}
