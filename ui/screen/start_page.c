/* See start_page.h. */
#include "ui/screen/start_page.h"

#include "ui/glyph.h"

#include <string.h>

#define MOST_W 84
#define LEVELS 3 /* of pages: all; without the map; only the messages */

static const char *const examples[START_EXAMPLES] = {
    "Tell me a story about a brave fox.",
    "Write a story about a robot who finds a seed.",
};

enum line_kind { LINE_PLAIN, LINE_DIM, LINE_EXAMPLE };

/* level: of the smallest page that has the line; the page of level 0 has all */
static const struct {
    enum line_kind kind;
    int level;
    const char *text;
} lines[] = {
    {LINE_PLAIN, 1,
     "Chat with a mixture-of-experts model, and watch which experts every token wakes."},
    {LINE_PLAIN, 0, ""},
    {LINE_DIM, 2, "Type a message, or send one of these with Enter (Down chooses):"},
    {LINE_EXAMPLE, 2, ""},
    {LINE_EXAMPLE, 2, ""},
    {LINE_PLAIN, 0, ""},
    {LINE_DIM, 1, "Tab looks into the panels \u00b7 F6 moves experts to the GPU \u00b7 F1 keys"},
    {LINE_DIM, 0,
     "The map: a row a layer, a column an expert; the brighter, the more often chosen."},
};

bool start_page_wanted(const struct ui_model *m)
{
    for (size_t i = 0; i < m->n_blocks && m->hints; i++)
        if (m->blocks[i].kind == UI_USER || m->blocks[i].kind == UI_ASSISTANT ||
            m->blocks[i].kind == UI_OUTPUT)
            return false;
    return m->hints;
}

const char *start_page_example(const struct ui_model *m)
{
    return start_page_wanted(m) ? examples[m->example % START_EXAMPLES] : NULL;
}

/* Text wrapped at blanks; returns the rows, drawn if c is given. */
static int words(struct canvas *c, int x, int y, int width, struct style s, const char *text)
{
    int at = 0, rows = 1;

    while (*text) {
        size_t n = strcspn(text, " ");
        int w = glyph_text_width(text, n);

        if (at > 0 && at + w > width) {
            at = 0;
            rows++;
        }
        if (c)
            canvas_text_n(c, x + at, y + rows - 1, s, text, n);
        at += w + 1;
        text += n;
        text += strspn(text, " ");
    }
    return rows;
}

static int page(struct canvas *c, int x, int y, int width, int level, const struct ui_model *m)
{
    int rows = 0, example = 0;

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct style s = theme_style(&m->theme,
                                     lines[i].kind == LINE_DIM ? ROLE_STYLE_DIM : ROLE_STYLE_TEXT);
        bool marked = lines[i].kind == LINE_EXAMPLE && example == m->example % START_EXAMPLES;

        if (lines[i].level < level)
            continue;
        if (lines[i].kind != LINE_EXAMPLE) {
            rows += words(c, x, y + rows, width, s, lines[i].text);
            continue;
        }
        if (marked && c)
            canvas_put(c, x, y + rows, theme_style(&m->theme, ROLE_STYLE_FOCUS), 0x25b8);
        rows += words(c, x + 2, y + rows, width - 2,
                      marked ? theme_style(&m->theme, ROLE_STYLE_FOCUS) : s, examples[example++]);
    }
    return rows;
}

/* The largest page for so many rows; LEVELS: none. */
static int level_for(const struct ui_model *m, int width, int height)
{
    int level = width < 24 ? LEVELS : 0;

    while (level < LEVELS && page(NULL, 0, 0, width, level, m) > height)
        level++;
    return level;
}

static int width_in(int columns)
{
    return columns - 4 > MOST_W ? MOST_W : columns - 4;
}

bool start_page_fits(const struct ui_model *m, int columns, int rows)
{
    return level_for(m, width_in(columns), rows) < LEVELS;
}

void start_page_draw(struct canvas *c, struct rect r, const struct ui_model *m)
{
    int width = width_in(r.w), level = level_for(m, width, r.h);
    struct rect before;

    if (level == LEVELS)
        return;
    before = canvas_clip(c, r);
    page(c, r.x + 3, r.y + (r.h - page(NULL, 0, 0, width, level, m)) / 2, width, level, m);
    canvas_clip_set(c, before);
}
