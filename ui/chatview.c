/* See chatview.h. A source line becomes a row of glyphs with a look each (markers of bold and code
 * already gone), which is then cut at blanks, or anywhere between wide characters, or wherever the
 * width ends. */
#include "ui/chatview.h"
#include "engine/base/mem.h"
#include "ui/draw.h"
#include "ui/glyph.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* columns: the eye does not find its way back from longer lines */
#define READABLE 112

enum look { LOOK_TEXT, LOOK_BOLD, LOOK_CODE, LOOK_HEADING, LOOK_DIM };
enum line_kind { LINE_TEXT, LINE_CODE, LINE_FENCE, LINE_QUOTE };

struct item { /* a glyph of a source line */
    uint32_t offset;
    uint8_t bytes, width, look;
    bool blank;
};

/* Of the line being wrapped; kept between calls, freed never: one for the UI thread, as large as
 * the longest line. */
static struct item *items;
static size_t n_items, room_items;

static bool item_add(uint32_t offset, const struct glyph *g, enum look look)
{
    if (n_items == room_items) {
        size_t room = room_items ? room_items * 2 : 1024;
        struct item *p = mem_resize(items, room, sizeof *items);

        if (!p)
            return false;
        items = p;
        room_items = room;
    }
    items[n_items++] = (struct item){offset, (uint8_t)(g->bytes < 255 ? g->bytes : 255),
                                     (uint8_t)(g->kind == GLYPH_TAB ? 4 : g->width), (uint8_t)look,
                                     g->kind == GLYPH_TAB || g->ch == ' '};
    return true;
}

static struct wrap_line *line_add(struct wrap *w, uint32_t offset, int indent, enum line_kind kind)
{
    if (w->n_lines == w->room_lines) {
        size_t room = w->room_lines ? w->room_lines * 2 : 16;
        struct wrap_line *p = mem_resize(w->lines, room, sizeof *p);

        if (!p)
            return NULL;
        w->lines = p;
        w->room_lines = room;
    }
    w->lines[w->n_lines] = (struct wrap_line){.first = (uint32_t)w->n_runs,
                                              .offset = offset,
                                              .indent = (uint16_t)indent,
                                              .kind = (uint8_t)kind};
    return &w->lines[w->n_lines++];
}

static bool run_add(struct wrap *w, struct wrap_line *l, const struct item *i)
{
    struct wrap_run *last = l->n ? &w->runs[w->n_runs - 1] : NULL;

    if (last && last->look == i->look && last->offset + last->len == i->offset) {
        last->len += i->bytes;
        return true;
    }
    if (w->n_runs == w->room_runs) {
        size_t room = w->room_runs ? w->room_runs * 2 : 32;
        struct wrap_run *p = mem_resize(w->runs, room, sizeof *p);

        if (!p)
            return false;
        w->runs = p;
        w->room_runs = room;
    }
    w->runs[w->n_runs++] = (struct wrap_run){i->offset, i->bytes, i->look};
    l->n++;
    return true;
}

/* Cuts items[] into lines of width cells; the first is indented by first, the others by rest. */
static bool items_cut(struct wrap *w, uint32_t offset, int width, int first, int rest,
                      uint8_t bullet, enum line_kind kind)
{
    size_t at = 0;
    bool once = true;

    do {
        int indent = once ? first : rest, used = 0, room;
        size_t end = at, stop = 0, i;
        struct wrap_line *l;

        if (indent > width - 16)
            indent = width > 20 ? width - 16 : width / 2;
        room = width - indent < 1 ? 1 : width - indent;
        while (end < n_items && used + items[end].width <= room) {
            used += items[end].width;
            end++;
            if (end < n_items &&
                (items[end - 1].blank || (items[end].width == 2 && !items[end].blank) ||
                 items[end - 1].width == 2))
                stop = end;
        }
        if (end == at && end < n_items)
            /* wider than the pane: it is clipped, never looped on */
            end++;
        else if (end < n_items && kind != LINE_CODE && !items[end].blank && stop > at)
            end = stop;
        l = line_add(w, at < n_items ? items[at].offset : offset, indent, kind);
        if (!l)
            return false;
        l->bullet = once ? bullet : 0;
        for (i = at; i < end; i++)
            if (!run_add(w, l, &items[i]))
                return false;
        at = end;
        while (kind != LINE_CODE && at < n_items && items[at].blank)
            /* blanks at a cut belong to nobody */
            at++;
        once = false;
    } while (at < n_items);
    return true;
}

/* Is there a closing mark in s[from .. len)? */
static bool closes(const char *s, size_t from, size_t len, const char *mark, size_t n)
{
    size_t i;

    for (i = from; i + n <= len; i++)
        if (memcmp(s + i, mark, n) == 0 && i > from)
            return true;
    return false;
}

/* Glyphs of the paragraph text[from .. end) with bold and code marks taken out. open: more may
 * follow. */
static bool items_inline(const char *text, size_t from, size_t end, bool open, enum look base,
                         bool markdown)
{
    bool bold = false, code = false;
    size_t i = from;

    n_items = 0;
    while (i < end) {
        struct glyph g;

        if (markdown && !code && text[i] == '*' && i + 1 < end && text[i + 1] == '*') {
            bool opens = !bold && i + 2 < end && text[i + 2] != ' ' && text[i + 2] != '*' &&
                         (open || closes(text, i + 2, end, "**", 2));

            if (bold || opens) {
                bold = !bold;
                i += 2;
                continue;
            }
        }
        if (markdown && text[i] == '`' &&
            (code ||
             ((i + 1 < end && text[i + 1] != '`') && (open || closes(text, i + 1, end, "`", 1))))) {
            code = !code;
            i++;
            continue;
        }
        g = glyph_next(text + i, end - i);
        if (g.kind != GLYPH_NEWLINE && !item_add((uint32_t)i, &g,
                                                 code   ? LOOK_CODE
                                                 : bold ? LOOK_BOLD
                                                        : base))
            return false;
        i += (size_t)g.bytes;
    }
    return true;
}

static bool fence(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && i < 3 && s[i] == ' ')
        i++;
    return n - i >= 3 && memcmp(s + i, "```", 3) == 0;
}

/* Length of a list marker with the blanks around it, 0: none. *bullet: it is a sign, not a number.
 */
static size_t list_marker(const char *s, size_t n, bool *bullet)
{
    size_t i = 0, digits = 0;

    while (i < n && s[i] == ' ')
        i++;
    *bullet = i < n && (s[i] == '-' || s[i] == '*' || s[i] == '+');
    if (*bullet) {
        i++;
    } else {
        while (i + digits < n && digits < 3 && s[i + digits] >= '0' && s[i + digits] <= '9')
            digits++;
        if (!digits || i + digits >= n || (s[i + digits] != '.' && s[i + digits] != ')'))
            return 0;
        i += digits + 1;
    }
    return i < n && s[i] == ' ' ? i + 1 : 0;
}

/* Tables of the program: what does not fit goes on below the last column that begins in the left
 * part. */
static int table_indent(const char *s, size_t n, int width)
{
    int at = 2;
    size_t i;

    for (i = 2; i < n && (int)i <= width - 16; i++)
        if (s[i] != ' ' && s[i - 1] == ' ' && s[i - 2] == ' ')
            at = (int)i;
    return at;
}

static bool source_line(struct ui_block *b, size_t from, size_t end, bool open, int width)
{
    struct wrap *w = &b->wrap;
    const char *s = b->text + from;
    size_t n = end - from, marker, level = 0;
    bool markdown = b->kind == UI_ASSISTANT, bullet;
    int indent;

    if (b->kind == UI_OUTPUT)
        return items_inline(b->text, from, end, open, LOOK_TEXT, false) &&
               items_cut(w, (uint32_t)from, width, 0, table_indent(s, n, width), 0, LINE_TEXT);
    if (markdown && fence(s, n)) {
        size_t skip = 0;

        w->in_code = !w->in_code;
        while (skip < n && (s[skip] == ' ' || s[skip] == '`'))
            skip++;
        if (!w->in_code)
            /* the closing fence takes no line */
            return true;
        return items_inline(b->text, from + skip, end, open, LOOK_DIM, false) &&
               items_cut(w, (uint32_t)from, width, 1, 1, 0, LINE_FENCE);
    }
    if (w->in_code)
        return items_inline(b->text, from, end, open, LOOK_CODE, false) &&
               items_cut(w, (uint32_t)from, width, 1, 1, 0, LINE_CODE);
    while (markdown && level < n && level < 6 && s[level] == '#')
        level++;
    if (level && level < n && s[level] == ' ')
        return items_inline(b->text, from + level + 1, end, open, LOOK_HEADING, true) &&
               items_cut(w, (uint32_t)from, width, 0, 0, 0, LINE_TEXT);
    if (markdown && n >= 2 && s[0] == '>' && s[1] == ' ')
        return items_inline(b->text, from + 2, end, open, LOOK_DIM, true) &&
               items_cut(w, (uint32_t)from, width, 2, 2, 0, LINE_QUOTE);
    marker = markdown ? list_marker(s, n, &bullet) : 0;
    if (marker && bullet) {
        indent = (int)marker;
        return items_inline(b->text, from + marker, end, open, LOOK_TEXT, true) &&
               items_cut(w, (uint32_t)from, width, indent, indent, (uint8_t)(indent - 1),
                         LINE_TEXT);
    }
    return items_inline(b->text, from, end, open, LOOK_TEXT, markdown) &&
           items_cut(w, (uint32_t)from, width, 0, marker ? (int)marker : 0, 0, LINE_TEXT);
}

int chatview_wrap(struct ui_block *b, int width)
{
    struct wrap *w = &b->wrap;
    size_t at, len = b->len;

    assert(width > 0);
    if (width < 1)
        width = 1;
    if (w->width != width) {
        w->width = width;
        w->done = w->mark_runs = w->mark_lines = 0;
        w->mark_code = false;
        w->whole = false;
    }
    if (w->whole)
        return 0;
    w->n_runs = w->mark_runs;
    w->n_lines = w->mark_lines;
    w->in_code = w->mark_code;
    /* Blank lines at the end of a finished block are not shown. */
    while (!b->open && len > w->done && (b->text[len - 1] == '\n' || b->text[len - 1] == ' '))
        len--;
    for (at = w->done; at < len || (at == 0 && len == 0);) {
        const char *nl = memchr(b->text + at, '\n', len - at);
        size_t end = nl ? (size_t)(nl - b->text) : len;
        size_t cut = end > at && b->text[end - 1] == '\r' ? end - 1 : end;

        if (!source_line(b, at, cut, b->open && !nl, width))
            return ERR_MEMORY;
        if (!nl)
            break;
        at = end + 1;
        w->done = at;
        w->mark_runs = w->n_runs;
        w->mark_lines = w->n_lines;
        w->mark_code = w->in_code;
    }
    w->whole = true;
    return 0;
}

/* Rows a block takes: a header where it has a speaker, its lines, a blank row below. */
static bool has_header(const struct ui_block *b)
{
    return b->kind == UI_USER || b->kind == UI_ASSISTANT || b->kind == UI_SYSTEM ||
           b->kind == UI_THOUGHT;
}

static int body_rows(const struct ui_model *m, const struct ui_block *b)
{
    return has_header(b) + (b->kind == UI_THOUGHT && !m->thoughts_open ? 0 : (int)b->wrap.n_lines);
}

static int block_rows(struct ui_model *m, size_t i, int width)
{
    struct ui_block *b = &m->blocks[i];
    int rows;

    chatview_wrap(b, width);
    rows = body_rows(m, b);
    if (b->kind == UI_ASSISTANT && b->open && b->len == 0)
        /* header and the line of progress */
        rows = 2;
    /* Lines of the program that follow each other stand together. */
    if ((b->kind == UI_NOTICE || b->kind == UI_TROUBLE) && i + 1 < m->n_blocks &&
        m->blocks[i + 1].kind == b->kind)
        return rows;
    return rows + 1;
}

static struct style look_style(const struct theme *t, const struct ui_block *b, enum look look)
{
    enum theme_role base = b->kind == UI_USER                              ? ROLE_STYLE_USER_TEXT
                           : b->kind == UI_NOTICE                          ? ROLE_STYLE_NOTICE
                           : b->kind == UI_TROUBLE                         ? ROLE_STYLE_TROUBLE
                           : b->kind == UI_SYSTEM || b->kind == UI_THOUGHT ? ROLE_STYLE_DIM
                                                                           : ROLE_STYLE_TEXT;
    struct style s = theme_style(t, base);

    if (look == LOOK_BOLD)
        s.attrs |= STYLE_BOLD;
    else if (look == LOOK_CODE)
        s = theme_style(t, ROLE_STYLE_CODE);
    else if (look == LOOK_HEADING)
        s = theme_style(t, ROLE_STYLE_HEADING);
    else if (look == LOOK_DIM)
        s = theme_style(t, ROLE_STYLE_DIM);
    return s;
}

static size_t part_add(char *out, size_t n, size_t size, const char *part)
{
    int more = part[0] ? snprintf(out + n, size - n, "%s%s", n ? " · " : "", part) : 0;

    return n + (size_t)more < size ? n + (size_t)more : size - 1;
}

/* "cpu · 128 tokens · 4.3 s (paced) · computes 2504 tok/s · stopped"; higher forms leave out more
 * from the left. A rate that time and tokens do not give says whose it is. */
static void answer_text(const struct ui_block *b, int form, char *out, size_t size)
{
    char part[64] = "";
    size_t n = 0;

    out[0] = 0;
    if (form < 3)
        n = part_add(out, n, size, b->plan);
    if (form < 1 && b->tokens > 0 && b->seconds > 0) {
        snprintf(part, sizeof part, "%d token%s", b->tokens, b->tokens == 1 ? "" : "s");
        n = part_add(out, n, size, part);
    }
    if (b->seconds > 0) {
        snprintf(part, sizeof part, "%.1f s%s", b->seconds, b->paced ? " (paced)" : "");
        n = part_add(out, n, size, part);
    }
    if (form < 2 && b->tok_s > 0) {
        snprintf(part, sizeof part, "%s%.*f tok/s", b->paced ? "computes " : "",
                 b->tok_s < 100 ? 1 : 0, b->tok_s);
        n = part_add(out, n, size, part);
    }
    if (b->stop != STOP_NONE && b->stop != STOP_TOKEN && b->stop != STOP_STRING)
        part_add(out, n, size, draw_stop_word(b->stop));
}

/* One line for all that was thought. */
static void thought_head(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                         const struct ui_block *b)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[64], tokens[32] = "";
    int at;

    if (b->tokens)
        snprintf(tokens, sizeof tokens, ", %d token%s", b->tokens, b->tokens == 1 ? "" : "s");
    snprintf(text, sizeof text, "%s %s%s", m->thoughts_open ? "▾" : "▸",
             b->open ? "thinking" : "thought", tokens);
    at = canvas_text(c, x, y, dim, text);
    if (at + 16 <= x + width)
        canvas_text_right(c, x + width, y, dim, m->thoughts_open ? "Alt-t folds" : "Alt-t opens");
}

static void header_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                        const struct ui_block *b)
{
    static const char *const names[] = {
        [UI_USER] = "you", [UI_ASSISTANT] = "moetop", [UI_SYSTEM] = "system"};
    enum theme_role role = b->kind == UI_USER        ? ROLE_STYLE_USER
                           : b->kind == UI_ASSISTANT ? ROLE_STYLE_ASSISTANT
                                                     : ROLE_STYLE_DIM;
    char line[160] = "";
    int used = canvas_text(c, x, y, theme_style(&m->theme, role), names[b->kind]) - x;

    if (b->kind != UI_ASSISTANT)
        return;
    if (b->open)
        snprintf(line, sizeof line, "%s", m->live.plan);
    for (int form = 0; form < 4; form++) { /* the longest that fits */
        if (!b->open)
            answer_text(b, form, line, sizeof line);
        if (glyph_text_width(line, strlen(line)) + used + 2 > width)
            continue;
        canvas_text_right(c, x + width, y, theme_style(&m->theme, ROLE_STYLE_DIM), line);
        return;
    }
}

static void line_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                      const struct ui_block *b, const struct wrap_line *l)
{
    const struct theme *t = &m->theme;
    int at = x + l->indent;
    uint32_t i;

    if (l->kind == LINE_CODE)
        canvas_fill(c, (struct rect){x, y, width, 1}, theme_style(t, ROLE_STYLE_CODE), ' ');
    if (l->kind == LINE_QUOTE)
        canvas_put(c, x, y, theme_style(t, ROLE_STYLE_RULE), 0x2502);
    if (l->bullet)
        canvas_put(c, x + l->indent - 2, y, theme_style(t, ROLE_STYLE_DIM), 0x2022);
    for (i = 0; i < l->n; i++) {
        const struct wrap_run *r = &b->wrap.runs[l->first + i];
        const char *s = b->text + r->offset;
        struct style look = look_style(t, b, (enum look)r->look);
        uint32_t from = 0, k;

        /* Tabs are four cells here, one in canvas_text. */
        for (k = 0; k < r->len; k++)
            if (s[k] == '\t') {
                at = canvas_text_n(c, at, y, look, s + from, k - from);
                at = canvas_text_n(c, at, y, look, "    ", 4);
                from = k + 1;
            }
        at = canvas_text_n(c, at, y, look, s + from, r->len - from);
    }
    if (b->open && b->kind == UI_ASSISTANT && l == &b->wrap.lines[b->wrap.n_lines - 1] &&
        at < x + width)
        canvas_put(c, at, y, theme_style(t, ROLE_STYLE_ASSISTANT), 0x258c);
}

static void progress_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[64];
    int bar, at;

    if (!m->prefilling || !m->progress_total) {
        canvas_text(c, x, y, dim, "…");
        return;
    }
    snprintf(text, sizeof text, "reading %d of %d tokens ", (int)m->progress_done,
             (int)m->progress_total);
    at = canvas_text(c, x, y, dim, text);
    bar = x + width - at;
    draw_bar(c, at, y, bar > 30 ? 30 : bar, (double)m->progress_done / (double)m->progress_total,
             theme_style(&m->theme, ROLE_STYLE_GRAPH), theme_style(&m->theme, ROLE_STYLE_RULE));
}

/* Absolute row of the anchor. */
static int anchor_row(struct ui_model *m, int width)
{
    struct ui_block *b;
    int row = 0;
    size_t i, k;

    for (i = 0; (int)i < m->anchor_block && i < m->n_blocks; i++)
        row += block_rows(m, i, width);
    if (i >= m->n_blocks || m->anchor_offset == UINT32_MAX)
        return row; /* the header */
    b = &m->blocks[i];
    for (k = 0; k + 1 < b->wrap.n_lines && b->wrap.lines[k + 1].offset <= m->anchor_offset; k++)
        ;
    return row + has_header(b) + (int)k;
}

static void anchor_set(struct ui_model *m, int row, int width)
{
    size_t i;

    for (i = 0; i < m->n_blocks; i++) {
        int rows = block_rows(m, i, width);

        if (row < rows) {
            const struct ui_block *b = &m->blocks[i];
            int k = row - has_header(b);

            m->anchor_block = (int)i;
            m->anchor_offset =
                k < 0 || !b->wrap.n_lines
                    ? UINT32_MAX
                    : b->wrap.lines[(size_t)k < b->wrap.n_lines ? (size_t)k : b->wrap.n_lines - 1]
                          .offset;
            return;
        }
        row -= rows;
    }
    m->anchor_block = -1;
}

/* Where blocks stand in the pane: cells from its left edge to the bar beside a block and to its
 * text, and the width of that. */
struct pane {
    int bar, text, width;
};

static struct pane pane_make(int w)
{
    struct pane p = {.bar = w >= 30, .text = w >= 30 ? 3 : 0};

    p.width = w - p.text - p.bar;
    p.width = p.width > READABLE ? READABLE : p.width < 1 ? 1 : p.width;
    return p;
}

/* Row k of a block, on row y of the screen. */
static void row_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                     const struct ui_block *b, int k)
{
    int line = k - has_header(b);

    if (line < 0 && b->kind == UI_THOUGHT)
        thought_head(c, x, y, width, m, b);
    else if (line < 0)
        header_draw(c, x, y, width, m, b);
    else if (b->kind == UI_ASSISTANT && b->open && b->len == 0 && k == 1)
        progress_draw(c, x, y, width, m);
    else if (k < body_rows(m, b))
        line_draw(c, x, y, width, m, b, &b->wrap.lines[line]);
}

/* A block of so many rows whose first one would stand on row y of the screen; rows above and below
 * the pane are left out. */
static void block_draw(struct canvas *c, struct rect r, const struct pane *p,
                       const struct ui_model *m, const struct ui_block *b, int y, int rows)
{
    int body = body_rows(m, b);
    bool bar = p->bar && (b->kind == UI_USER || b->kind == UI_OUTPUT);
    struct style s = theme_style(&m->theme, b->kind == UI_USER ? ROLE_STYLE_USER : ROLE_STYLE_RULE);

    for (int k = r.y > y ? r.y - y : 0; k < rows && y + k < r.y + r.h; k++) {
        if (bar && k < body)
            canvas_put(c, r.x + p->bar, y + k, s, 0x258e);
        row_draw(c, r.x + p->text, y + k, p->width, m, b, k);
    }
}

/* First row shown of `total`; an anchor that has come to the end is dropped: the newest is followed
 * again. */
static int top_row(struct ui_model *m, int total, int shown, int width)
{
    int top = total - shown, at;

    if (m->anchor_block >= 0) {
        at = anchor_row(m, width);
        if (at >= top)
            m->anchor_block = -1;
        else
            top = at;
    }
    return top < 0 ? 0 : top;
}

void chatview_draw(struct canvas *c, struct rect r, struct ui_model *m)
{
    struct rect before = canvas_clip(c, r);
    struct pane p = pane_make(r.w);
    int total = 0, top, row = 0;
    size_t i;

    if (r.w < 1 || r.h < 1) {
        canvas_clip_set(c, before);
        return;
    }
    m->chat_width = p.width;
    for (i = 0; i < m->n_blocks; i++)
        total += block_rows(m, i, p.width);
    if (total > 0)
        /* the blank row of the last block */
        total--;
    m->chat_lines = total;
    m->chat_rows = r.h;
    top = top_row(m, total, r.h, p.width);
    m->chat_below = total > top + r.h;
    for (i = 0; i < m->n_blocks && row < top + r.h; i++) {
        int rows = block_rows(m, i, p.width);

        block_draw(c, r, &p, m, &m->blocks[i], r.y + row - top, rows);
        row += rows;
    }
    if (m->chat_below && r.w >= 24) {
        char text[48];

        snprintf(text, sizeof text, " ↓ %d more ", total - top - r.h);
        canvas_text_right(c, r.x + r.w - 1, r.y + r.h - 1,
                          theme_style(&m->theme, ROLE_STYLE_SELECT), text);
    }
    canvas_clip_set(c, before);
}

void chatview_scroll(struct ui_model *m, int rows)
{
    int end = m->chat_lines - m->chat_rows, top;

    if (!m->chat_width || end <= 0)
        return;
    top = (m->anchor_block >= 0 ? anchor_row(m, m->chat_width) : end) + rows;
    if (top >= end)
        m->anchor_block = -1;
    else
        anchor_set(m, top < 0 ? 0 : top, m->chat_width);
    m->dirty = true;
}

void chatview_scroll_top(struct ui_model *m)
{
    chatview_scroll(m, -(1 << 24));
}

void chatview_scroll_to_last(struct ui_model *m)
{
    m->anchor_block = (int)m->n_blocks - 1;
    m->anchor_offset = has_header(&m->blocks[m->n_blocks - 1]) ? UINT32_MAX : 0;
    m->dirty = true;
}

void chatview_scroll_end(struct ui_model *m)
{
    m->anchor_block = -1;
    m->dirty = true;
}
