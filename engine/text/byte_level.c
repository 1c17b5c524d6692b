/* GPT-2's spelling of bytes: vocabularies write each byte as a printable character ("\u0120the" for
 * " the"). A loaded tokenizer holds the bytes themselves, so that only this file knows this
 * alphabet. */
#include "engine/base/utf8.h"
#include "engine/text/tokenizer_data.h"

#include <string.h>

/* Bytes written as themselves: printable Latin-1. */
static bool is_itself(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The byte of each character below U+0144, -1: none. The other bytes are U+0100 onwards, in
 * order. */
struct alphabet {
    int16_t byte[0x144];
};

static void make_alphabet(struct alphabet *a)
{
    int next = 0x100;

    memset(a, -1, sizeof *a);
    for (int byte = 0; byte < 256; byte++)
        a->byte[is_itself(byte) ? byte : next++] = (int16_t)byte;
}

/* -1: text[0 .. len) does not begin with a character of the alphabet. */
static int letter(const struct alphabet *a, const char *text, size_t len, size_t *size)
{
    uint32_t cp;

    *size = utf8_decode(text, len, &cp);
    return cp < sizeof a->byte / sizeof *a->byte ? a->byte[cp] : -1;
}

/* In place, because bytes are never longer than their spelling; other text stays. */
static void decode(const struct alphabet *a, char *text, uint32_t *len)
{
    uint32_t n = 0;
    size_t size;

    for (size_t i = 0; i < *len; i += size)
        if (letter(a, text + i, *len - i, &size) < 0)
            return;
    for (size_t i = 0; i < *len; i += size)
        text[n++] = (char)letter(a, text + i, *len - i, &size);
    text[n] = 0;
    *len = n;
}

/* Records an added token that is a single byte of the vocabulary too: "b". */
static void spells_byte(struct tokenizer *t, const struct alphabet *a, int id)
{
    const struct piece *p = &t->pieces[id];
    size_t size = 0;
    int byte = p->in_model && p->len ? letter(a, p->text, p->len, &size) : -1;

    if (byte >= 0 && size == p->len && t->byte_ids[byte] < 0)
        t->byte_ids[byte] = id;
}

int byte_level_decode(struct tokenizer *t, const bool *literal, struct error *e)
{
    struct alphabet a;
    int status = 0;

    make_alphabet(&a);
    t->byte_level = true;
    t->byte_fallback = false; /* "<0x0A>" is an ordinary text here */
    memset(t->byte_ids, -1, sizeof t->byte_ids);
    memset(t->index, -1, ((size_t)t->index_mask + 1) * sizeof *t->index);
    for (int id = 0; id < t->n_pieces && status == 0; id++) {
        struct piece *p = &t->pieces[id];

        p->byte = -1;
        if (!p->text || literal[id])
            continue;
        decode(&a, t->pool + (p->text - t->pool), &p->len);
        if (p->len == 1 && p->in_model && t->byte_ids[(unsigned char)*p->text] < 0)
            t->byte_ids[(unsigned char)*p->text] = id;
        status = tokenizer_index(t, id, e);
    }
    /* a text of two ids belongs to the merged one: " " as added token and as two blanks */
    for (int id = 0; id < t->n_pieces && status == 0; id++)
        if (t->pieces[id].text && literal[id]) {
            spells_byte(t, &a, id);
            status = tokenizer_index(t, id, e);
        }
    return status;
}
