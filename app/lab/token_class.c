/* See token_class.h. */
#include "app/lab/token_class.h"

#include "engine/text/tokenizer.h"

#include <ctype.h>

/* By the first byte that is no white space; bytes from 0x80 on count as letters. */
enum trace_class token_class(const struct tokenizer *t, int id)
{
    char text[64];
    bool special = false, space = false;
    size_t n, at = 0, len;

    tokenizer_piece(t, id, &len, &special);
    n = special ? 0 : tokenizer_token_text(t, id, text, sizeof text);
    if (!n)
        return CLASS_SPECIAL;
    while (at < n && isspace((unsigned char)text[at]))
        at++;
    if (at == n)
        return CLASS_SPACE;
    space = at > 0;
    if (isdigit((unsigned char)text[at]))
        return CLASS_NUMBER;
    if (isalpha((unsigned char)text[at]) || (unsigned char)text[at] >= 0x80)
        return space ? CLASS_WORD : CLASS_PIECE;
    return CLASS_PUNCTUATION;
}
