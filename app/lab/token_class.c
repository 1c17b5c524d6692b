/* See token_class.h. */
#include "app/lab/token_class.h"

#include "engine/base/utf8.h"
#include "engine/text/tokenizer.h"

#include <ctype.h>
#include <string.h>

/* Letters by Unicode's blocks, in ascending order. */
static const struct {
    uint32_t from, to;
    enum trace_script script;
} blocks[] = {
    {'A', 'Z', SCRIPT_LATIN},
    {'a', 'z', SCRIPT_LATIN},
    {0xaa, 0xaa, SCRIPT_LATIN},
    {0xba, 0xba, SCRIPT_LATIN},
    {0xc0, 0xd6, SCRIPT_LATIN},
    {0xd8, 0xf6, SCRIPT_LATIN},
    {0xf8, 0x24f, SCRIPT_LATIN},
    {0x250, 0x36f, SCRIPT_OTHER},
    {0x370, 0x3ff, SCRIPT_GREEK},
    {0x400, 0x52f, SCRIPT_CYRILLIC},
    {0x530, 0x58f, SCRIPT_OTHER},
    {0x590, 0x5ff, SCRIPT_HEBREW},
    {0x600, 0x6ff, SCRIPT_ARABIC},
    {0x700, 0x74f, SCRIPT_OTHER},
    {0x750, 0x77f, SCRIPT_ARABIC},
    {0x780, 0x89f, SCRIPT_OTHER},
    {0x8a0, 0x8ff, SCRIPT_ARABIC},
    {0x900, 0x97f, SCRIPT_DEVANAGARI},
    {0x980, 0xdff, SCRIPT_OTHER},
    {0xe00, 0xe7f, SCRIPT_THAI},
    {0xe80, 0x10ff, SCRIPT_OTHER},
    {0x1100, 0x11ff, SCRIPT_HANGUL},
    {0x1200, 0x1c7f, SCRIPT_OTHER},
    {0x1c80, 0x1c8f, SCRIPT_CYRILLIC},
    {0x1c90, 0x1dff, SCRIPT_OTHER},
    {0x1e00, 0x1eff, SCRIPT_LATIN},
    {0x1f00, 0x1fff, SCRIPT_GREEK},
    {0x2c00, 0x2dff, SCRIPT_OTHER},
    {0x2e80, 0x2fdf, SCRIPT_HAN},
    {0x3005, 0x3007, SCRIPT_HAN},
    {0x3040, 0x30ff, SCRIPT_KANA},
    {0x3100, 0x312f, SCRIPT_OTHER},
    {0x3130, 0x318f, SCRIPT_HANGUL},
    {0x31a0, 0x31bf, SCRIPT_OTHER},
    {0x31f0, 0x31ff, SCRIPT_KANA},
    {0x3400, 0x4dbf, SCRIPT_HAN},
    {0x4e00, 0x9fff, SCRIPT_HAN},
    {0xa000, 0xa63f, SCRIPT_OTHER},
    {0xa640, 0xa69f, SCRIPT_CYRILLIC},
    {0xa6a0, 0xa6ff, SCRIPT_OTHER},
    {0xa720, 0xa7ff, SCRIPT_LATIN},
    {0xa800, 0xa8df, SCRIPT_OTHER},
    {0xa8e0, 0xa8ff, SCRIPT_DEVANAGARI},
    {0xa900, 0xa95f, SCRIPT_OTHER},
    {0xa960, 0xa97f, SCRIPT_HANGUL},
    {0xa980, 0xabff, SCRIPT_OTHER},
    {0xac00, 0xd7ff, SCRIPT_HANGUL},
    {0xf900, 0xfaff, SCRIPT_HAN},
    {0xfb00, 0xfb06, SCRIPT_LATIN},
    {0xfb13, 0xfb17, SCRIPT_OTHER},
    {0xfb1d, 0xfb4f, SCRIPT_HEBREW},
    {0xfb50, 0xfdff, SCRIPT_ARABIC},
    {0xfe70, 0xfefc, SCRIPT_ARABIC},
    {0xff21, 0xff3a, SCRIPT_LATIN},
    {0xff41, 0xff5a, SCRIPT_LATIN},
    {0xff66, 0xff9f, SCRIPT_KANA},
    {0xffa0, 0xffdc, SCRIPT_HANGUL},
    {0x10000, 0x1d3ff, SCRIPT_OTHER},
    {0x20000, 0x3ffff, SCRIPT_HAN},
};

/* Frequent words that no other of these languages writes so, in the order of
 * trace_stopword_words. */
static const char *const stopwords[TRACE_STOPWORDS] = {
    "",
    " the and that with this they have you from which would his were she there their ",
    " und der ist nicht eine mit auf dem sich auch wurde für dass wir sie einen ",
    " les est et dans une avec elle nous vous cette être ont leur aux où ",
    " el los las pero muy también está más fue sus cuando porque desde ",
    " che della sono gli anche più nel questo alla nella delle degli di ",
    " não uma com ele você foi são em ao isso muito também até ",
    " het een van niet zijn ook voor maar naar wordt deze hij ",
};

enum trace_script text_script(const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        bool valid;
        size_t step = utf8_decode_strict(text + at, n - at, &cp, &valid);

        for (size_t i = 0; valid && i < sizeof blocks / sizeof *blocks; i++)
            if (cp >= blocks[i].from && cp <= blocks[i].to)
                return blocks[i].script;
        at += step ? step : 1;
    }
    return SCRIPT_NONE;
}

int text_stopword(const char *text, size_t n)
{
    char word[24];
    size_t len = 1;

    while (n && isspace((unsigned char)*text)) {
        text++;
        n--;
    }
    if (!n || n > sizeof word - 3)
        return STOPWORD_NONE;
    word[0] = ' ';
    for (size_t i = 0; i < n; i++) {
        if (isspace((unsigned char)text[i]))
            return STOPWORD_NONE;
        word[len++] = (char)tolower((unsigned char)text[i]);
    }
    word[len++] = ' ';
    word[len] = 0;
    for (int l = 1; l < TRACE_STOPWORDS; l++)
        if (strstr(stopwords[l], word))
            return l;
    return STOPWORD_NONE;
}

/* By the first byte that is no white space; bytes from 0x80 on count as letters. */
static enum trace_class class_of(const char *text, size_t n)
{
    size_t at = 0;
    bool space;

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

struct token_traits token_traits(const struct tokenizer *t, int id)
{
    struct token_traits traits = {.class = CLASS_SPECIAL};
    char text[64];
    bool special = false;
    size_t len, n;

    tokenizer_piece(t, id, &len, &special);
    n = special ? 0 : tokenizer_token_text(t, id, text, sizeof text);
    n = n < sizeof text ? n : sizeof text;
    if (!n)
        return traits;
    traits.class = (uint8_t)class_of(text, n);
    traits.script = (uint8_t)text_script(text, n);
    /* a piece may be the inside of a word */
    traits.stopword = traits.class == CLASS_WORD ? (uint8_t)text_stopword(text, n) : 0;
    return traits;
}
