/* See answer_parts.h. */
#include "engine/text/answer_parts.h"

#include "engine/text/answer_formats.h"

#include <string.h>

static const struct marker {
    const char *open, *close;
    enum answer_part part;
} markers[] = {
#define X(open, close, part) {open, close, part},
    ANSWER_MARKERS(X)
#undef X
};
#define MARKERS (sizeof markers / sizeof *markers)
_Static_assert(MARKERS <= 32, "answer_format has a bit for each");

static const struct told {
    const char *open, *text;
    bool own;
} told[] = {
#define X(open, text, own) {open, text, own},
    ANSWER_TOLD(X)
#undef X
};

const char *answer_part_word(enum answer_part part)
{
    static const char *const words[PART_COUNT] = {"answer", "reasoning", "tool call"};

    return words[part];
}

const char *answer_part_border(enum answer_part from, enum answer_part to)
{
    return from == to               ? ""
           : to == PART_TOOL_CALL   ? "\n```tool call\n"
           : from == PART_TOOL_CALL ? "\n```\n"
                                    : "";
}

static bool knows(const char *source, const struct tokenizer *t, const char *marker)
{
    return (source && strstr(source, marker)) ||
           (t && tokenizer_find(t, marker, strlen(marker)) >= 0);
}

/* The same of a row of the table. */
static bool knows_row(const char *source, const struct tokenizer *t, const char *marker)
{
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (strcmp(told[i].open, marker) == 0)
            return knows(source, t, told[i].text) || (told[i].own && knows(source, t, marker));
    return knows(source, t, marker);
}

struct answer_format answer_format_of(const char *template_source, const struct tokenizer *t)
{
    struct answer_format f = {0};

    for (size_t i = 0; i < MARKERS; i++)
        f.known |= (unsigned)knows_row(template_source, t, markers[i].open) << i;
    f.harmony = knows(template_source, t, HARMONY_CHANNEL) &&
                knows(template_source, t, HARMONY_MESSAGE);
    f.atem = knows(template_source, NULL, ATEM_CALLS) &&
             knows(template_source, NULL, HARMONY_TO ATEM_SELF);
    f.harmony = f.harmony || f.atem;
    return f;
}

void answer_format_learn(struct answer_format *f)
{
    for (size_t i = 0; i < MARKERS; i++)
        f->known |= (unsigned)(strcmp(markers[i].open, HERMES_CALL) == 0) << i;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool ends_with(const char *text, size_t n, const char *end)
{
    size_t m = strlen(end);

    return n >= m && memcmp(text + n - m, end, m) == 0;
}

bool answer_format_opens(const struct answer_format *f, const char *text, size_t n)
{
    while (n && is_blank(text[n - 1]))
        n--;
    for (size_t i = 0; i < MARKERS; i++)
        if (f->known >> i & 1 && markers[i].part == PART_REASONING &&
            ends_with(text, n, markers[i].open))
            return true;
    return false;
}

void answer_parts_init(struct answer_parts *p, struct answer_format f, bool reasoning)
{
    *p = (struct answer_parts){.format = f, .header = f.harmony};
    for (size_t i = 0; i < MARKERS && reasoning && !p->close; i++)
        if (f.known >> i & 1 && markers[i].part == PART_REASONING) {
            p->part = PART_REASONING;
            p->close = markers[i].close;
            p->blank = true;
        }
}

/* Outputs text of the current part, without leading blanks. */
static void say(struct answer_parts *p, const char *text, size_t n, answer_put *put, void *ctx)
{
    for (; p->blank && n && is_blank(*text); text++)
        n--;
    if (!n)
        return;
    if (p->part == PART_TOOL_CALL && p->blank) {
        if (p->called)
            put(ctx, p->part, "\n", 1);
        p->called = true;
    }
    p->blank = false;
    put(ctx, p->part, text, n);
}

static void begin(struct answer_parts *p, enum answer_part part, const char *close)
{
    p->part = part;
    p->close = close;
    p->blank = true;
}

/* Outputs the first n held bytes, and drops `skip` more, a marker. */
static void release(struct answer_parts *p, size_t n, size_t skip, answer_put *put, void *ctx)
{
    say(p, p->held, n, put, ctx);
    p->n -= n + skip;
    memmove(p->held, p->held + n + skip, p->n);
}

/* Length of the longest suffix of the held text that is a prefix of a marker. */
static size_t begins(const struct answer_parts *p, const char *marker)
{
    size_t m = strlen(marker), k = p->n < m ? p->n : m - 1;

    while (k && memcmp(p->held + p->n - k, marker, k) != 0)
        k--;
    return k;
}

/* Marker number i that is possible now; NULL: no such number. */
static const char *awaited(const struct answer_parts *p, size_t i)
{
    if (p->part != PART_ANSWER)
        return i ? NULL : p->close;
    if (p->close && i-- == 0)
        return p->close;
    for (size_t k = 0; k < MARKERS; k++)
        if (p->format.known >> k & 1 && i-- == 0)
            return markers[k].open;
    return NULL;
}

/* A part's end may be another one's beginning. */
static void pass_marker(struct answer_parts *p, const char *marker)
{
    for (size_t k = 0; k < MARKERS && p->part == PART_ANSWER; k++)
        if (strcmp(markers[k].open, marker) == 0) {
            begin(p, markers[k].part, markers[k].close);
            return;
        }
    begin(p, PART_ANSWER, NULL);
}

/* Outputs held text that is no marker, and handles complete markers. */
static void sift(struct answer_parts *p, answer_put *put, void *ctx)
{
    const char *first, *marker, *at, *found;
    size_t keep, k;

    do {
        first = found = NULL;
        keep = 0;
        for (size_t i = 0; (marker = awaited(p, i)); i++) {
            at = memmem(p->held, p->n, marker, strlen(marker));
            if (at && (!first || at < first)) {
                first = at;
                found = marker;
            }
            k = begins(p, marker);
            keep = k > keep ? k : keep;
        }
        if (found) {
            release(p, (size_t)(first - p->held), strlen(found), put, ctx);
            pass_marker(p, found);
        }
    } while (found);
    release(p, p->n - keep, 0, put, ctx);
}

static void say_word(struct answer_parts *p, const char *word, answer_put *put, void *ctx)
{
    say(p, word, strlen(word), put, ctx);
}

/* The tool named by a header, "to=functions.NAME"; 0: none. */
static size_t recipient(const char *header, size_t n, const char **name)
{
    const char *at = memmem(header, n, HARMONY_TO, strlen(HARMONY_TO));
    size_t skip = strlen(HARMONY_FUNCTIONS), len = 0;

    if (!at || (at > header && !is_blank(at[-1])))
        return 0;
    *name = at + strlen(HARMONY_TO);
    n -= (size_t)(*name - header);
    if (n > skip && memcmp(*name, HARMONY_FUNCTIONS, skip) == 0) {
        *name += skip;
        n -= skip;
    }
    while (len < n && (unsigned char)(*name)[len] > ' ' && !strchr("\"\\<", (*name)[len]))
        len++;
    return len;
}

/* Harmony's header is complete: its channel determines the part. */
static void open_channel(struct answer_parts *p, answer_put *put, void *ctx)
{
    const char *name = NULL;
    size_t len = recipient(p->held, p->n, &name);

    p->header = false;
    p->opened = true;
    if (p->format.atem) {
        bool thinks = len == strlen(ATEM_SELF) && memcmp(name, ATEM_SELF, len) == 0;

        begin(p, thinks ? PART_REASONING : PART_ANSWER, NULL);
    } else if (len) {
        begin(p, PART_TOOL_CALL, NULL);
        say_word(p, "{\"name\": \"", put, ctx);
        say(p, name, len, put, ctx);
        say_word(p, "\", \"arguments\": ", put, ctx);
    } else
        begin(p, memmem(p->held, p->n, "analysis", 8) ? PART_REASONING : PART_ANSWER, NULL);
    p->n = 0;
}

/* A message of harmony's is complete. */
static void close_message(struct answer_parts *p, answer_put *put, void *ctx)
{
    release(p, p->n, 0, put, ctx);
    if (p->part == PART_TOOL_CALL)
        say_word(p, "}", put, ctx);
}

/* true: kept. A header is short: longer text is an answer without one. */
static bool put_header(struct answer_parts *p, const char *text, size_t n)
{
    if (n > sizeof p->held - p->n) {
        p->header = false;
        begin(p, PART_ANSWER, NULL);
        return false;
    }
    memcpy(p->held + p->n, text, n);
    p->n += n;
    return true;
}

/* true: the token was part of harmony's frame. */
static bool harmony(struct answer_parts *p, const char *text, size_t n, answer_put *put, void *ctx)
{
    static const char *const frame[] = {HARMONY_CHANNEL, HARMONY_START, HARMONY_END, ATEM_END};

    if (ends_with(text, n, HARMONY_MESSAGE) && n == strlen(HARMONY_MESSAGE)) {
        open_channel(p, put, ctx);
        return true;
    }
    for (size_t i = 0; i < sizeof frame / sizeof *frame; i++)
        if (n == strlen(frame[i]) && memcmp(text, frame[i], n) == 0) {
            if (!p->header)
                close_message(p, put, ctx);
            else
                put_header(p, " ", 1);
            p->header = true;
            return true;
        }
    return false;
}

/* Whether a control token counts as text: a marker or its beginning, or within a call. */
static bool is_text(const struct answer_parts *p, const char *text, size_t n)
{
    const char *marker;

    if (p->part == PART_TOOL_CALL && !p->format.harmony)
        return true;
    for (size_t i = 0; (marker = awaited(p, i)); i++)
        if (strlen(marker) >= n && memcmp(marker, text, n) == 0)
            return true;
    return false;
}

void answer_parts_push(struct answer_parts *p, const char *text, size_t n, bool control,
                       answer_put *put, void *ctx)
{
    if (p->format.harmony && control && harmony(p, text, n, put, ctx))
        return;
    if (control && p->header && p->format.harmony)
        put_header(p, " ", 1); /* <|constrain|> */
    if (control && !is_text(p, text, n))
        return;
    if (p->header && put_header(p, text, n))
        return;
    while (n) {
        size_t room = sizeof p->held - p->n, part = n < room ? n : room;

        memcpy(p->held + p->n, text, part);
        p->n += part;
        text += part;
        n -= part;
        sift(p, put, ctx);
    }
}

void answer_parts_end(struct answer_parts *p, answer_put *put, void *ctx)
{
    /* If a model writes no channel at all, its answer is the header's text. */
    if (p->format.harmony && !p->header)
        close_message(p, put, ctx);
    else if (!p->header || !p->opened)
        release(p, p->n, 0, put, ctx);
    p->n = 0;
}
