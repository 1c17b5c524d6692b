/* See chatview.h; wrap.c turns text into lines. */
#include "ui/chatview.h"
#include "ui/draw.h"
#include "ui/glyph.h"
#include "ui/search.h"
#include "ui/token_ink.h"
#include "ui/wrap.h"

#include <stdio.h>
#include <string.h>

/* columns: longer lines are hard to read */
#define READABLE 112
/* most lines of a message shown unfolded, and lines shown of a folded one */
#define USER_MOST 16
#define USER_HEAD 6

/* Whether a block has a header; its rows are header, lines, a blank row below. */
static bool has_header(const struct ui_block *b)
{
    return b->kind == UI_USER || b->kind == UI_ASSISTANT || b->kind == UI_SYSTEM ||
           b->kind == UI_THOUGHT || b->kind == UI_TOOL || b->kind == UI_VIEW;
}

/* A long message (an attached file) is folded to its beginning, except during a search. */
static bool is_cut(const struct ui_model *m, const struct ui_block *b)
{
    return b->kind == UI_USER && !m->thoughts_open && m->search.state == SEARCH_OFF &&
           b->wrap.n_lines > USER_MOST;
}

/* Only its header is shown. */
static bool is_folded(const struct ui_model *m, const struct ui_block *b)
{
    return (b->kind == UI_THOUGHT || b->kind == UI_TOOL) && !m->thoughts_open;
}

/* Number of lines shown; a folded message has one more with the number of hidden lines. */
static int body_lines(const struct ui_model *m, const struct ui_block *b)
{
    return is_folded(m, b) ? 0 : is_cut(m, b) ? USER_HEAD + 1 : (int)b->wrap.n_lines;
}

static int body_rows(const struct ui_model *m, const struct ui_block *b)
{
    return has_header(b) + body_lines(m, b);
}

static int block_rows(struct ui_model *m, size_t i, int width)
{
    struct ui_block *b = &m->blocks[i];
    int rows;

    chatview_wrap(b, width, !m->thoughts_open);
    rows = body_rows(m, b);
    if (b->kind == UI_ASSISTANT && b->open && b->len == 0)
        /* header and progress line */
        rows = 2;
    /* No blank row between consecutive lines of the program. */
    if ((b->kind == UI_NOTICE || b->kind == UI_TROUBLE) && i + 1 < m->n_blocks &&
        m->blocks[i + 1].kind == b->kind)
        return rows;
    return rows + 1;
}

/* Styles of code: keywords are bold, the rest has other colours. */
static struct style code_style(const struct theme *t, enum look look)
{
    struct style s = theme_style(t, ROLE_STYLE_CODE);

    if (look == LOOK_KEYWORD)
        s.attrs |= STYLE_BOLD;
    else
        s.fg = theme_style(t, look == LOOK_STRING ? ROLE_STYLE_ASSISTANT : ROLE_STYLE_DIM).fg;
    if (look == LOOK_COMMENT)
        s.attrs |= STYLE_ITALIC;
    return s;
}

static struct style look_style(const struct theme *t, const struct ui_block *b, enum look look)
{
    enum theme_role base = b->kind == UI_USER      ? ROLE_STYLE_USER_TEXT
                           : b->kind == UI_NOTICE  ? ROLE_STYLE_NOTICE
                           : b->kind == UI_TROUBLE ? ROLE_STYLE_TROUBLE
                           : b->kind == UI_SYSTEM || b->kind == UI_THOUGHT || b->kind == UI_TOOL ||
                                   b->kind == UI_VIEW
                               ? ROLE_STYLE_DIM
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
    else if (look == LOOK_ITALIC)
        s.attrs |= STYLE_ITALIC;
    else if (look == LOOK_LINK)
        s.attrs |= STYLE_UNDERLINE;
    else if (look >= LOOK_KEYWORD)
        s = code_style(t, look);
    return s;
}

static size_t part_add(char *out, size_t n, size_t size, const char *part)
{
    int more = part[0] ? snprintf(out + n, size - n, "%s%s", n ? " · " : "", part) : 0;

    return n + (size_t)more < size ? n + (size_t)more : size - 1;
}

/* "cpu · 128 tokens · 4.3 s (paced) · computes 2504 tok/s · stopped"; higher forms omit more
 * from the left. A rate that does not follow from time and tokens is labelled. */
static void answer_text(const struct ui_block *b, int form, char *out, size_t size)
{
    char part[64] = "";
    size_t n = 0;

    out[0] = 0;
    if (form < 3)
        n = part_add(out, n, size, b->plan);
    if (form < 1)
        n = part_add(out, n, size, b->adapters);
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

/* The hint to fold or unfold, with its key. */
static void fold_hint(struct canvas *c, int at, int end, int y, const struct ui_model *m)
{
    if (at + 16 <= end)
        canvas_text_right(c, end, y, theme_style(&m->theme, ROLE_STYLE_DIM),
                          m->thoughts_open ? "Alt-t folds" : "Alt-t opens");
}

/* The folded line of a thought. */
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
    fold_hint(c, at, x + width, y, m);
}

/* The line above a tool's result: what ran, and how long the result is. */
static void tool_head(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                      const struct ui_block *b)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[sizeof b->tool + 48], size[16];
    int at;

    snprintf(text, sizeof text, "%s tool %s, %s", m->thoughts_open ? "▾" : "▸", b->tool,
             draw_size(size, (double)b->len, false));
    at = x + canvas_text_fit(c, x, y, width, dim, text);
    fold_hint(c, at, x + width, y, m);
}

/* The rule above the model's context. */
static void view_head(struct canvas *c, int x, int y, int width, const struct ui_model *m)
{
    struct style rule = theme_style(&m->theme, ROLE_STYLE_RULE);

    canvas_fill(c, (struct rect){x, y, width, 1}, rule, 0x2500);
    if (width >= 34)
        canvas_text(c, x + 2, y, theme_style(&m->theme, ROLE_STYLE_DIM),
                    " the model reads from here ");
}

/* Legend of this answer's token colours, instead of its figures: as many levels, strongest first,
 * as fit. */
static bool ink_legend(struct canvas *c, int x, int y, int end, const struct ui_model *m,
                       const struct ui_block *b)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);

    if (!token_ink_shown(m, b))
        return false;
    x = canvas_text(c, x + 1, y, dim, token_ink_word(m->ink));
    if (m->ink == INK_EXPERT)
        x = canvas_printf(c, x, y, dim, " L%d E%d", m->cursor_layer, m->cursor_expert);
    if (m->ink == INK_ATTENTION)
        x = canvas_printf(c, x, y, dim, " %s", m->attended.name);
    for (int level = TOKEN_INK_LEVELS - 1; level > 0; level--) {
        const char *word = token_ink_level_word(m->ink, level);

        if (!word || x + 1 + glyph_text_width(word, strlen(word)) > end)
            continue;
        x = canvas_text(c, x + 1, y, token_ink_level_style(&m->theme, dim, level), word);
    }
    return true;
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

    if (b->of > 1) {
        snprintf(line, sizeof line, " %d/%d", b->which, b->of);
        used = canvas_text(c, x + used, y, theme_style(&m->theme, ROLE_STYLE_DIM), line) - x;
        line[0] = 0;
    }
    if (b->kind != UI_ASSISTANT || ink_legend(c, x + used, y, x + width, m, b))
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

/* Text of an answer with coloured tokens. */
static int tokens_text(struct canvas *c, int x, int y, const struct ui_model *m,
                       const struct ui_block *b, struct style s, uint32_t offset, uint32_t len)
{
    size_t at = offset, last = offset + len;

    while (at < last) {
        size_t end;
        uint64_t serial = token_ink_at(m, b, at, &end);

        end = end < at + 1 ? at + 1 : end > last ? last : end;
        x = canvas_text_n(c, x, y, token_ink_style(m, s, serial), b->text + at, end - at);
        at = end;
    }
    return x;
}

static bool tokens_told(const struct ui_model *m, const struct ui_block *b)
{
    return (m->ink != INK_OFF || m->marked || m->expert_marked) && b->first_token &&
           b == m->blocks + m->inked_block;
}

/* Text of a run, with search hits marked. */
static int run_text(struct canvas *c, int x, int y, const struct ui_model *m,
                    const struct ui_block *b, struct style s, uint32_t offset, uint32_t len)
{
    const struct ui_search *f = &m->search;
    size_t needle = f->state != SEARCH_OFF ? strlen(f->text) : 0, from = offset,
           begin = needle && offset >= needle ? offset - needle + 1 : 0;

    if (!needle && tokens_told(m, b))
        return tokens_text(c, x, y, m, b, s, offset, len);
    if (!needle)
        return canvas_text_n(c, x, y, s, b->text + offset, len);
    for (size_t at = begin; at < offset + len; at++) {
        size_t end = at + search_found(f, b->text, b->len, at), head = at > from ? at : from;
        bool here = (size_t)(b - m->blocks) == f->block && at == f->offset && f->at >= 0;
        struct style mark = s;

        if (end == at || end <= from)
            continue;
        end = end < offset + len ? end : offset + len;
        mark.attrs |= here ? STYLE_REVERSE : STYLE_UNDERLINE | STYLE_BOLD;
        x = canvas_text_n(c, x, y, s, b->text + from, head - from);
        x = canvas_text_n(c, x, y, mark, b->text + head, end - head);
        from = end;
    }
    return canvas_text_n(c, x, y, s, b->text + from, offset + len - from);
}

/* "words](https://…)": the address in the parentheses after link text that starts at `offset`;
 * its length, 0: no link. wrap.c has checked that it is http or https. */
static size_t link_target(const struct ui_block *b, size_t offset, const char **url)
{
    const char *from = b->text + offset, *end = b->text + b->len,
               *close = memchr(from, ']', (size_t)(end - from)), *last;

    if (!close || end - close < 10 || close[1] != '(' ||
        (strncmp(close + 2, "http://", 7) != 0 && strncmp(close + 2, "https://", 8) != 0) ||
        !(last = memchr(close, ')', (size_t)(end - close))))
        return 0;
    *url = close + 2;
    return (size_t)(last - *url);
}

/* Draws the brackets around the name of a called tool, and the hint beside it. */
static void call_marks(struct canvas *c, int x, int at, int y, int width, const struct ui_model *m,
                       const struct wrap_line *l)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);

    canvas_text(c, x, y, dim, m->thoughts_open ? "▾" : "▸");
    if (l->kind == LINE_CALL_CUT)
        canvas_text(c, at, y, dim, " …");
    else
        fold_hint(c, at, x + width, y, m);
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
    if (l->kind == LINE_RULE)
        canvas_fill(c, (struct rect){x, y, l->indent, 1}, theme_style(t, ROLE_STYLE_RULE), 0x2500);
    if (l->bullet)
        canvas_put(c, x + l->indent - 2, y, theme_style(t, ROLE_STYLE_DIM),
                   l->kind == LINE_TODO   ? 0x2610
                   : l->kind == LINE_DONE ? 0x2611
                                          : 0x2022);
    for (i = 0; i < l->n; i++) {
        const struct wrap_run *r = &b->wrap.runs[l->first + i];
        const char *s = b->text + r->offset;
        struct style look = look_style(t, b, (enum look)r->look);
        uint32_t from = 0, k;
        const char *url;
        size_t url_len;
        int began;

        at += r->gap;
        if (r->bar)
            at = canvas_text(c, at, y, theme_style(t, ROLE_STYLE_RULE), "│ ");
        began = at;
        /* Tabs are four cells here, one in canvas_text. */
        for (k = 0; k < r->len; k++)
            if (s[k] == '\t') {
                at = run_text(c, at, y, m, b, look, r->offset + from, k - from);
                at = canvas_text_n(c, at, y, look, "    ", 4);
                from = k + 1;
            }
        at = run_text(c, at, y, m, b, look, r->offset + from, r->len - from);
        if (r->look == LOOK_LINK && (url_len = link_target(b, r->offset, &url)))
            canvas_link(c, began, y, at - began, url, url_len);
    }
    if (l->kind == LINE_CALL || l->kind == LINE_CALL_CUT || l->kind == LINE_CALL_OPEN)
        call_marks(c, x, at, y, width, m, l);
    if (b->open && b->kind == UI_ASSISTANT && l == &b->wrap.lines[b->wrap.n_lines - 1] &&
        at < x + width)
        canvas_put(c, at, y, theme_style(t, ROLE_STYLE_ASSISTANT), 0x258c);
}

#define PROGRESS_BAR 6 /* least cells of a bar */

/* Progress of the prefill, its rate and remaining time, in at most so many cells if possible. */
static void progress_text(char *out, size_t size, int width, const struct ui_model *m)
{
    int done = (int)m->progress_done, total = (int)m->progress_total;
    double left = m->prefill_rate > 0 ? (total - done) / m->prefill_rate : 0;
    char rate[16];

    snprintf(out, size, "reading %d of %d tokens ", done, total);
    if (m->prefill_rate <= 0)
        return;
    draw_rate(rate, m->prefill_rate);
    snprintf(out, size, "reading %d of %d tokens · %s tok/s · %.0f s left ", done, total, rate,
             left);
    if (glyph_text_width(out, strlen(out)) > width)
        snprintf(out, size, "reading %d of %d · %s/s · %.0f s left ", done, total, rate, left);
    if (glyph_text_width(out, strlen(out)) > width)
        snprintf(out, size, "%d of %d · %.0f s left ", done, total, left);
}

static void progress_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m)
{
    struct style dim = theme_style(&m->theme, ROLE_STYLE_DIM);
    char text[96];
    int bar, at;

    if (!m->prefilling || !m->progress_total) {
        canvas_text(c, x, y, dim, "…");
        return;
    }
    progress_text(text, sizeof text, width - PROGRESS_BAR, m);
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
    if (is_cut(m, b) && k > USER_HEAD)
        k = USER_HEAD;
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

/* Position of blocks in the pane: cells from its left edge to the bar beside a block and to its
 * text, and the text's width. */
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

static void cut_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                     const struct ui_block *b)
{
    char text[64];

    snprintf(text, sizeof text, "\u25b8 %zu lines more", b->wrap.n_lines - USER_HEAD);
    fold_hint(c, x + canvas_text_fit(c, x, y, width, theme_style(&m->theme, ROLE_STYLE_DIM), text),
              x + width, y, m);
}

/* Row k of a block, on row y of the screen. */
static void row_draw(struct canvas *c, int x, int y, int width, const struct ui_model *m,
                     const struct ui_block *b, int k)
{
    int line = k - has_header(b);

    if (line < 0 && b->kind == UI_THOUGHT)
        thought_head(c, x, y, width, m, b);
    else if (line < 0 && b->kind == UI_TOOL)
        tool_head(c, x, y, width, m, b);
    else if (line < 0 && b->kind == UI_VIEW)
        view_head(c, x, y, width, m);
    else if (line < 0)
        header_draw(c, x, y, width, m, b);
    else if (b->kind == UI_ASSISTANT && b->open && b->len == 0 && k == 1)
        progress_draw(c, x, y, width, m);
    else if (is_cut(m, b) && line == USER_HEAD)
        cut_draw(c, x, y, width, m, b);
    else if (k < body_rows(m, b))
        line_draw(c, x, y, width, m, b, &b->wrap.lines[line]);
}

/* Draws a block of so many rows whose first one is at row y of the screen; rows outside the pane
 * are skipped. */
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

/* First row shown of `total`; an anchor at the end is dropped: follows the newest again. */
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

        snprintf(text, sizeof text, r.w >= 40 ? " ↓ %d more · Ctrl-End " : " ↓ %d more ",
                 total - top - r.h);
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

/* First row shown, and the start row of a block. */
static int first_row(struct ui_model *m)
{
    int end = m->chat_lines - m->chat_rows;

    return m->anchor_block >= 0 ? anchor_row(m, m->chat_width) : end > 0 ? end : 0;
}

static int block_row(struct ui_model *m, size_t block)
{
    int row = 0;

    for (size_t i = 0; i < block && i < m->n_blocks; i++)
        row += block_rows(m, i, m->chat_width);
    return row;
}

void chatview_show(struct ui_model *m, size_t block, size_t offset)
{
    const struct ui_block *b = &m->blocks[block];
    size_t k = 0;
    int row, top;

    if (!m->chat_width || block >= m->n_blocks)
        return;
    row = block_row(m, block) + has_header(b);
    block_rows(m, block, m->chat_width); /* ensures it is wrapped */
    while (k + 1 < b->wrap.n_lines && b->wrap.lines[k + 1].offset <= offset)
        k++;
    row += (int)k;
    top = first_row(m);
    if (row < top || row >= top + m->chat_rows)
        chatview_scroll(m, row - m->chat_rows / 2 - top);
}

void chatview_answer(struct ui_model *m, int step)
{
    int top, row = 0, best = -1;

    if (!m->chat_width)
        return;
    top = first_row(m);
    for (size_t i = 0; i < m->n_blocks; i++) {
        bool answer = m->blocks[i].kind == UI_ASSISTANT;

        if (answer && step < 0 && row < top)
            best = row; /* the last of those above */
        if (answer && step > 0 && row > top && best < 0)
            best = row;
        row += block_rows(m, i, m->chat_width);
    }
    if (best >= 0)
        chatview_scroll(m, best - top);
    else
        chatview_scroll(m, step < 0 ? -top : m->chat_lines);
}

int chatview_entry(struct ui_model *m)
{
    int end = m->chat_width ? first_row(m) + m->chat_rows : 0, row = 0, entry = 0;

    for (size_t i = 0; i < m->n_blocks && row < end; i++) {
        entry = m->blocks[i].entry ? m->blocks[i].entry : entry;
        row += block_rows(m, i, m->chat_width);
    }
    return entry;
}

/* Byte of the block's text at cell `column` of a line; SIZE_MAX: none. */
static size_t column_byte(const struct ui_block *b, const struct wrap_line *l, int column)
{
    int at = l->indent;

    for (uint32_t i = 0; i < l->n; i++) {
        const struct wrap_run *r = &b->wrap.runs[l->first + i];

        at += r->gap + (r->bar ? 2 : 0);
        for (uint32_t k = 0; k < r->len;) {
            uint32_t next = k + 1;
            int w;

            while (next < r->len && (b->text[r->offset + next] & 0xc0) == 0x80)
                next++;
            w = b->text[r->offset + k] == '\t'
                    ? 4
                    : glyph_text_width(b->text + r->offset + k, next - k);
            if (column >= at && column < at + w)
                return r->offset + k;
            at += w;
            k = next;
        }
    }
    return SIZE_MAX;
}

uint64_t chatview_token(struct ui_model *m, struct rect r, int x, int y)
{
    struct pane p = pane_make(r.w);
    int row = y - r.y;
    size_t byte, end;

    if (!m->chat_width)
        return 0;
    row += first_row(m);
    for (size_t i = 0; i < m->n_blocks && row >= 0; i++) {
        const struct ui_block *b = &m->blocks[i];
        int rows = block_rows(m, i, m->chat_width), line = row - has_header(b);

        row -= rows;
        if (row >= 0 || line < 0 || line >= (int)b->wrap.n_lines || b->kind != UI_ASSISTANT)
            continue;
        byte = column_byte(b, &b->wrap.lines[line], x - r.x - p.text);
        return byte == SIZE_MAX ? 0 : token_ink_at(m, b, byte, &end);
    }
    return 0;
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
