/* A byte-level tokenizer made by hand: id = byte for the first 256, then a few merges. Static
 * functions in a header, because each suite and fuzz target is one program. */
#ifndef TESTS_BYTE_LEVEL_H
#define TESTS_BYTE_LEVEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Merges in order; the joined token of merge i has id 256 + i. \u0120 is a blank. */
static const char *const byte_level_merges[] = {
    "h e",   "\u0120 t", "\u0120t he", "l l", "1 2",
    "he ll", "a -",      "- b",        "- -", "\u00c3 \u00a9", /* the two bytes of é */
};

enum { BYTE_LEVEL_MERGES = sizeof byte_level_merges / sizeof *byte_level_merges };
enum { BYTE_LEVEL_IDS = 256 + BYTE_LEVEL_MERGES }; /* the first free id */

/* How a vocabulary writes a byte: as itself where that is printable Latin-1, else from U+0100 on.
 * out: 3 bytes. */
static inline void byte_level_spell(int byte, char *out)
{
    int cp = byte, next = 0x100;

    for (int i = 0; i <= byte; i++) {
        int own = (i > 0x20 && i < 0x7f) || (i > 0xa0 && i != 0xad);

        cp = own ? i : next;
        next += !own;
    }
    if (cp < 0x80) {
        out[0] = (char)cp;
        out[1] = 0;
        return;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    out[2] = 0;
}

/* Token id as the vocabulary writes it; a static buffer. */
static inline const char *byte_level_token(int id)
{
    static char text[64];
    const char *merge, *blank;

    if (id < 256) {
        byte_level_spell(id, text);
        return text;
    }
    merge = byte_level_merges[id - 256];
    blank = strchr(merge, ' ');
    snprintf(text, sizeof text, "%.*s%s", (int)(blank - merge), merge, blank + 1);
    return text;
}

/* A tokenizer.json: more is what stands before and after the model ("..., " and ", ..." or ""),
 * model what stands in it. malloc'd. */
static inline char *byte_level_json(const char *before, const char *model)
{
    size_t size = 32768 + strlen(before) + strlen(model), n;
    char *json = malloc(size);

    n = (size_t)sprintf(json, "{%s\"model\": {\"type\": \"BPE\", %s\"vocab\": {", before, model);
    for (int i = 0; i < BYTE_LEVEL_IDS; i++) {
        const char *token = byte_level_token(i);

        n += (size_t)sprintf(json + n, "%s\"%s%s\": %d", i ? ", " : "",
                             *token == '"' || *token == '\\' ? "\\" : "", token, i);
    }
    n += (size_t)sprintf(json + n, "}, \"merges\": [");
    for (int i = 0; i < BYTE_LEVEL_MERGES; i++)
        n += (size_t)sprintf(json + n, "%s\"%s\"", i ? ", " : "", byte_level_merges[i]);
    sprintf(json + n, "]}}");
    return json;
}

#endif
