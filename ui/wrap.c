/* See wrap.h: inline marks, lists, quotes, code, tables and rules, as usual in chats. Wrapping is
 * cached per block and redone only from the last finished source line; a table is redone from its
 * head while it grows. */
#include "ui/wrap.h"

#include "engine/base/mem.h"
#include "engine/text/tool_calls.h"
#include "ui/code_look.h"
#include "ui/glyph.h"

#include <assert.h>
#include <string.h>

#define TABLE_ROWS 100 /* a longer one is shown as source text */

struct item { /* a glyph of a source line */
    uint32_t offset;
    uint8_t bytes, width, look; /* width including the gap before it */
    uint8_t gap;
    bool blank;
};

/* The line being wrapped; a static buffer kept between calls, never freed: one for the UI thread,
 * as large as the longest line. */
static struct item *items;
static size_t n_items, room_items;

static bool item_add(uint32_t offset, const struct glyph *g, enum look look)
{
    if (!MEM_ROOM(items, n_items, room_items, 1024))
        return false;
    items[n_items++] = (struct item){offset,
                                     (uint8_t)(g->bytes < 255 ? g->bytes : 255),
                                     (uint8_t)(g->kind == GLYPH_TAB ? 4 : g->width),
                                     (uint8_t)look,
                                     0,
                                     g->kind == GLYPH_TAB || g->ch == ' '};
    return true;
}

static struct wrap_line *line_add(struct wrap *w, uint32_t offset, int indent, enum line_kind kind)
{
    if (!MEM_ROOM(w->lines, w->n_lines, w->room_lines, 16))
        return NULL;
    w->lines[w->n_lines] = (struct wrap_line){.first = (uint32_t)w->n_runs,
                                              .offset = offset,
                                              .indent = (uint16_t)indent,
                                              .kind = (uint8_t)kind};
    return &w->lines[w->n_lines++];
}

static bool run_add(struct wrap *w, struct wrap_line *l, const struct item *i)
{
    struct wrap_run *last = l->n ? &w->runs[w->n_runs - 1] : NULL;

    if (last && !i->gap && last->look == i->look && last->offset + last->len == i->offset) {
        last->len += i->bytes;
        return true;
    }
    if (!MEM_ROOM(w->runs, w->n_runs, w->room_runs, 32))
        return false;
    w->runs[w->n_runs++] =
        (struct wrap_run){.offset = i->offset, .len = i->bytes, .gap = i->gap, .look = i->look};
    l->n++;
    return true;
}

/* Cuts items[] into lines of width cells; the first is indented by `first`, the others by
 * `rest`. */
static bool items_cut(struct wrap *w, uint32_t offset, int width, int first, int rest,
                      uint8_t bullet, enum line_kind kind)
{
    size_t at = 0;
    bool once = true;

    do {
        int indent = once ? first : rest, used = 0, room;
        size_t end = at, stop = 0, i;
        struct wrap_line *l;

        if (!once && at < n_items) { /* a gap separates it from earlier text of the line */
            items[at].width = (uint8_t)(items[at].width - items[at].gap);
            items[at].gap = 0;
        }
        if (indent > width - 16)
            indent = width > 20 ? width - 16 : width / 2;
        room = width - indent < 1 ? 1 : width - indent;
        while (end < n_items && used + items[end].width <= room) {
            used += items[end].width;
            end++;
            if (end < n_items &&
                (items[end - 1].blank || (items[end].width == 2 && !items[end].blank) ||
                 items[end - 1].width - items[end - 1].gap == 2 || items[end].gap))
                stop = end;
        }
        if (end == at && end < n_items)
            /* wider than the pane: clipped, to guarantee progress */
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
            /* blanks at a cut are dropped */
            at++;
        once = false;
    } while (at < n_items);
    return true;
}

/* Whether a closing mark (n bytes) follows in s[from + 1 .. len): it must enclose some text. */
static bool closes(const char *s, size_t from, size_t len, const char *mark, size_t n)
{
    size_t i;

    for (i = from; i + n <= len; i++)
        if (memcmp(s + i, mark, n) == 0 && i > from)
            return true;
    return false;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80);
}

/* Markdown marks open at the current position. */
struct marks {
    bool bold, italic, code;
    size_t link_end, target_end; /* of the ] and the ) of a link; 0: in none */
    size_t struck_end;           /* end of the struck-out text, including its marks */
};

/* "~~words~~" at text[i]: returns its end; 0: not struck. Its marks stay: too few terminals can
 * strike out, and without the marks the text would mean the opposite. */
static size_t struck_at(const char *text, size_t i, size_t end)
{
    const char *close = i + 5 <= end && memcmp(text + i, "~~", 2) == 0 && text[i + 2] != ' ' &&
                                text[i + 2] != '~'
                            ? memmem(text + i + 3, end - i - 3, "~~", 2)
                            : NULL;

    return close ? (size_t)(close - text) + 2 : 0;
}

/* A link to http or https at text[i]: its ends go to *k. */
static bool link_at(const char *text, size_t i, size_t end, struct marks *k)
{
    const char *close = memchr(text + i, ']', end - i), *paren;
    size_t at = close ? (size_t)(close - text) : end;

    if (at + 9 >= end || at == i + 1 || text[at + 1] != '(' ||
        (memcmp(text + at + 2, "http://", 7) != 0 && memcmp(text + at + 2, "https:/", 7) != 0) ||
        !(paren = memchr(text + at + 2, ')', end - at - 2)))
        return false;
    k->link_end = at;
    k->target_end = (size_t)(paren - text);
    return true;
}

/* A single * or _ at text[i] that starts or ends italics. An _ inside a word is a letter. */
static bool italic_at(const char *text, size_t from, size_t i, size_t end, bool open,
                      const struct marks *k)
{
    char before = i > from ? text[i - 1] : ' ', after = i + 1 < end ? text[i + 1] : ' ';
    bool low = text[i] == '_';

    if (k->italic)
        return before != ' ' && !(low && is_word(after));
    return after != ' ' && after != text[i] && !(low && is_word(before)) &&
           (open || closes(text, i + 1, end, text + i, 1));
}

/* Bytes of a mark at text[i], 0: it is text. */
static size_t mark_at(const char *text, size_t from, size_t i, size_t end, bool open,
                      struct marks *k)
{
    if (!k->code && text[i] == '*' && i + 1 < end && text[i + 1] == '*') {
        bool opens = !k->bold && i + 2 < end && text[i + 2] != ' ' && text[i + 2] != '*' &&
                     (open || closes(text, i + 2, end, "**", 2));

        if (k->bold || opens) {
            k->bold = !k->bold;
            return 2;
        }
        return 0;
    }
    if (!k->code && (text[i] == '*' || text[i] == '_') && italic_at(text, from, i, end, open, k)) {
        k->italic = !k->italic;
        return 1;
    }
    if (text[i] == '`' && (k->code || ((i + 1 < end && text[i + 1] != '`') &&
                                       (open || closes(text, i + 1, end, "`", 1))))) {
        k->code = !k->code;
        return 1;
    }
    if (!k->code && text[i] == '[' && !k->target_end && link_at(text, i, end, k))
        return 1;
    return 0;
}

/* Glyphs of the paragraph text[from .. end) with Markdown marks removed. open: more may follow. */
static bool items_inline(const char *text, size_t from, size_t end, bool open, enum look base,
                         bool markdown)
{
    struct marks k = {0};
    size_t i = from;

    n_items = 0;
    while (i < end) {
        bool target = k.target_end && i > k.link_end, gap = false;
        struct glyph g;
        size_t mark = markdown && !target ? mark_at(text, from, i, end, open, &k) : 0;

        if (k.target_end && i == k.link_end) { /* "](": the target is shown after the words */
            i++;
            target = gap = true;
            mark = 0;
        }
        i += mark;
        if (mark)
            continue;
        if (markdown && !k.code && i >= k.struck_end)
            k.struck_end = struck_at(text, i, end);
        g = glyph_next(text + i, end - i);
        if (g.kind != GLYPH_NEWLINE && !item_add((uint32_t)i, &g,
                                                 k.code             ? LOOK_CODE
                                                 : i < k.struck_end ? LOOK_DIM
                                                 : target           ? LOOK_DIM
                                                 : k.target_end     ? LOOK_LINK
                                                 : k.bold           ? LOOK_BOLD
                                                 : k.italic         ? LOOK_ITALIC
                                                                    : base))
            return false;
        if (gap && n_items) {
            items[n_items - 1].gap = 1;
            items[n_items - 1].width++;
        }
        if (k.target_end && i >= k.target_end)
            k.link_end = k.target_end = 0;
        i += (size_t)g.bytes;
    }
    return true;
}

/* Appends glyphs of text[from .. end) verbatim to items[]; line ends and the indentation of the
 * next line are dropped. */
static bool items_plain(const char *text, size_t from, size_t end, int gap, enum look look)
{
    size_t first = n_items;
    struct glyph g;

    for (size_t i = from; i < end; i += (size_t)g.bytes) {
        g = glyph_next(text + i, end - i);
        if (g.kind == GLYPH_NEWLINE)
            while (i + (size_t)g.bytes < end && text[i + (size_t)g.bytes] == ' ')
                i++;
        else if (!item_add((uint32_t)i, &g, look))
            return false;
    }
    if (n_items > first) {
        items[first].gap = (uint8_t)gap;
        items[first].width = (uint8_t)(items[first].width + gap);
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

/* Length of a list marker with surrounding blanks, 0: none. *bullet: it is a sign, not a number. */
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

/* Tables printed by the program: overlong text continues below the last column that starts in the
 * left part. */
static int table_indent(const char *s, size_t n, int width)
{
    int at = 2, column = 0;

    for (size_t i = 0; i < n && column <= width - 16; i++) {
        if (i >= 2 && s[i] != ' ' && s[i - 1] == ' ' && s[i - 2] == ' ')
            at = column;
        column += (s[i] & 0xc0) !=
                  0x80; /* a code point is a cell: true for the program's own tables */
    }
    return at;
}

/* Three or more of one of - * _ and nothing else. */
static bool is_rule(const char *s, size_t n)
{
    char mark = 0;
    int marks = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ')
            continue;
        if (!strchr("-*_", s[i]) || !s[i] || (mark && s[i] != mark))
            return false;
        mark = s[i];
        marks++;
    }
    return marks >= 3;
}

/* ── tables ── */

static bool table_row(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && i < 3 && s[i] == ' ')
        i++;
    return i < n && s[i] == '|';
}

static bool table_separator(const char *s, size_t n)
{
    bool dash = false;

    for (size_t i = 0; i < n; i++) {
        if (!strchr("|-: \r", s[i]) || !s[i])
            return false;
        dash |= s[i] == '-';
    }
    return dash && table_row(s, n);
}

/* The next cell of the row that ends at `end`, trimmed; *at: after the preceding bar, then after
 * its own. False: none. */
static bool cell_next(const char *s, size_t *at, size_t end, size_t *from, size_t *to)
{
    size_t i = *at;

    while (i < end && !(s[i] == '|' && s[i - 1] != '\\'))
        i++;
    if (i >= end) /* text after the last bar is not a cell */
        return false;
    *from = *at;
    *to = i;
    *at = i + 1;
    while (*from < *to && s[*from] == ' ')
        (*from)++;
    while (*to > *from && s[*to - 1] == ' ')
        (*to)--;
    return true;
}

static size_t row_begin(const char *s, size_t from, size_t end)
{
    const char *bar = memchr(s + from, '|', end - from);

    return bar ? (size_t)(bar - s) + 1 : end;
}

static int items_width(void)
{
    int width = 0;

    for (size_t i = 0; i < n_items; i++)
        width += items[i].width;
    return width;
}

/* Widens the columns for a row; false: they do not fit. */
static bool table_measure(struct wrap *w, const char *text, size_t from, size_t end)
{
    size_t at = row_begin(text, from, end), a, z;
    int c = 0;

    for (; cell_next(text, &at, end, &a, &z); c++) {
        int width;

        if (c >= (int)(sizeof w->table.width / sizeof w->table.width[0]) ||
            !items_inline(text, a, z, false, LOOK_TEXT, true))
            return false;
        width = items_width();
        if (width > w->table.width[c])
            w->table.width[c] = (uint16_t)(width < 1000 ? width : 1000);
        w->table.columns = c + 1 > w->table.columns ? c + 1 : w->table.columns;
    }
    return true;
}

static int table_width(const struct wrap *w)
{
    int width = 3 * (w->table.columns - 1);

    for (int c = 0; c < w->table.columns; c++)
        width += w->table.width[c];
    return width;
}

/* Which columns are right-aligned: "---:". */
static void table_sides(struct wrap *w, const char *text, size_t from, size_t end)
{
    size_t at = row_begin(text, from, end), a, z;

    for (int c = 0; c < w->table.columns && cell_next(text, &at, end, &a, &z); c++)
        w->table.right[c] = z > a && text[z - 1] == ':' && text[a] != ':';
}

/* Whether the line is the head of a table that fits; then sets the columns. */
static bool table_begins(struct ui_block *b, size_t from, int width)
{
    struct wrap *w = &b->wrap;
    size_t at = from;
    int rows = 0;

    memset(&w->table, 0, sizeof w->table);
    for (; at < b->len && rows <= TABLE_ROWS; rows++) {
        const char *nl = memchr(b->text + at, '\n', b->len - at);
        size_t end = nl ? (size_t)(nl - b->text) : b->len, n = end - at;

        if (!table_row(b->text + at, n) || (rows == 1 && !table_separator(b->text + at, n)))
            break;
        if (rows == 1)
            table_sides(w, b->text, at, end);
        else if (!table_measure(w, b->text, at, end))
            return false;
        at = end + 1;
    }
    w->table.from = from;
    w->table.on = rows >= 2 && rows <= TABLE_ROWS && w->table.columns > 0 &&
                  table_width(w) <= width;
    return w->table.on;
}

static bool table_line(struct ui_block *b, size_t from, size_t end, bool head)
{
    struct wrap *w = &b->wrap;
    size_t at = row_begin(b->text, from, end), a, z;
    int used = 0, column = 0;
    struct wrap_line *l;

    if (table_separator(b->text + from, end - from))
        return line_add(w, (uint32_t)from, table_width(w), LINE_RULE);
    if (!(l = line_add(w, (uint32_t)from, 0, LINE_TABLE)))
        return false;
    for (int c = 0; c < w->table.columns && cell_next(b->text, &at, end, &a, &z); c++) {
        struct item first = {.offset = (uint32_t)a, .gap = 1};
        int before, spare;

        if (!items_inline(b->text, a, z, false, head ? LOOK_BOLD : LOOK_TEXT, true) ||
            !run_add(w, l, &first))
            return false;
        spare = w->table.right[c] ? w->table.width[c] - items_width() : 0;
        before = c ? column + 1 - used : 0;
        w->runs[w->n_runs - 1].gap = (uint16_t)(c ? before : spare);
        w->runs[w->n_runs - 1].bar = c > 0;
        if (c && spare > 0) { /* after the bar */
            first.gap = (uint8_t)(spare < 255 ? spare : 255);
            if (!run_add(w, l, &first))
                return false;
        }
        for (size_t i = 0; i < n_items; i++)
            if (!run_add(w, l, &items[i]))
                return false;
        used = (c ? column + 3 : 0) + spare + items_width();
        column += (c ? 3 : 0) + w->table.width[c];
    }
    return true;
}

/* ── tool calls ── */

/* A call being laid out. */
struct call_lines {
    struct ui_block *b;
    int width;
};

static bool is_quote(const char *text, struct call_slice value)
{
    return value.len && (text[value.at] == '"' || text[value.at] == '\'');
}

/* "city "Paris"": a name without its quotes, and its value. */
static bool items_member(const char *text, struct call_slice key, struct call_slice value, int gap)
{
    return items_plain(text, key.at, key.at + key.len, gap, LOOK_DIM) &&
           items_plain(text, value.at, value.at + value.len, 1,
                       is_quote(text, value) ? LOOK_STRING : LOOK_CODE);
}

static bool members_below(const struct call_lines *l, const char *text,
                          const struct tool_call *call)
{
    struct call_slice key, value;

    for (size_t at = 0; tool_call_member(text, call, &at, &key, &value);) {
        n_items = 0;
        if (!items_member(text, key, value, 0) ||
            !items_cut(&l->b->wrap, (uint32_t)key.at, l->width, 4, 6, 0, LINE_CODE))
            return false;
    }
    return true;
}

/* Fits as many members as possible in one line. */
static bool members_beside(const struct call_lines *l, const char *text,
                           const struct tool_call *call, enum line_kind *kind)
{
    struct call_slice key, value;
    int used = 0;
    size_t fits;

    for (size_t at = 0; tool_call_member(text, call, &at, &key, &value);)
        if (!items_member(text, key, value, 2))
            return false;
    for (fits = 0; fits < n_items && used + items[fits].width <= l->width - 4; fits++)
        used += items[fits].width;
    if (fits < n_items)
        *kind = LINE_CALL_CUT;
    n_items = fits;
    return true;
}

static int call_lines(void *ctx, const char *text, const struct tool_call *call)
{
    const struct call_lines *l = ctx;
    bool folded = l->b->wrap.folded, whole = tool_call_has_members(text, call);
    enum line_kind kind = folded ? LINE_CALL : LINE_CALL_OPEN;
    size_t at = call->name.at;

    n_items = 0;
    if (!items_plain(text, at, at + call->name.len, 0, LOOK_BOLD) ||
        (!whole && !items_plain(text, call->arguments.at, call->arguments.at + call->arguments.len,
                                2, LOOK_CODE)) ||
        (folded && !members_beside(l, text, call, &kind)) ||
        !items_cut(&l->b->wrap, (uint32_t)at, l->width, 2, 2, 0, kind))
        return -1;
    return folded || members_below(l, text, call) ? 0 : -1;
}

static size_t line_end(const struct ui_block *b, size_t from, size_t len)
{
    const char *nl = from < len ? memchr(b->text + from, '\n', len - from) : NULL;

    return nl ? (size_t)(nl - b->text) : len;
}

static bool call_begins(const struct ui_block *b, size_t from, size_t end)
{
    const char *word = answer_part_word(PART_TOOL_CALL);

    return b->kind == UI_ASSISTANT && !b->wrap.in_code && end - from == 3 + strlen(word) &&
           memcmp(b->text + from, "```", 3) == 0 &&
           memcmp(b->text + from + 3, word, strlen(word)) == 0;
}

/* The block of calls whose head ends at *end. 1: its lines are laid out, *end is that of its last
 * one; 0: it is shown as source text, while it grows or because it cannot be parsed; -1: no
 * memory. */
static int call_block(struct ui_block *b, size_t *end, size_t len, int width)
{
    struct call_lines l = {b, width};
    size_t from = *end + 1, at = from, stop = line_end(b, at, len);
    int calls;

    while (at < len && !fence(b->text + at, stop - at)) {
        at = stop + 1;
        stop = line_end(b, at, len);
    }
    if (from >= len || (at >= len && b->open))
        return 0;
    calls = tool_calls_each(b->text, from, at < len ? at : len, call_lines, &l);
    *end = calls > 0 ? stop : *end;
    return calls > 0 ? 1 : calls;
}

/* ── lines ── */

/* A line of code, with syntax highlighting. */
static bool code_line(struct ui_block *b, size_t from, size_t end, bool open, int width)
{
    static uint8_t *looks; /* static like items: one for the UI thread */
    static size_t room;
    struct wrap *w = &b->wrap;

    if (!items_inline(b->text, from, end, open, LOOK_CODE, false))
        return false;
    if (end - from > room) {
        if (!MEM_FIT(looks, (end - from) * 2))
            return false;
        room = (end - from) * 2;
    }
    if (w->language >= 0 && end > from) {
        code_look(w->language, b->text + from, end - from, looks);
        for (size_t i = 0; i < n_items; i++)
            items[i].look = looks[items[i].offset - from];
    }
    return items_cut(w, (uint32_t)from, width, 1, 1, 0, LINE_CODE);
}

static bool list_line(struct ui_block *b, size_t from, size_t end, bool open, int width,
                      size_t marker)
{
    const char *s = b->text + from + marker;
    bool task = end - from >= marker + 4 && s[0] == '[' && s[2] == ']' && s[3] == ' ' &&
                strchr(" xX", s[1]) && s[1];
    int indent = (int)marker;

    return items_inline(b->text, from + marker + (task ? 4 : 0), end, open, LOOK_TEXT, true) &&
           items_cut(&b->wrap, (uint32_t)from, width, indent, indent, (uint8_t)(indent - 1),
                     !task         ? LINE_TEXT
                     : s[1] == ' ' ? LINE_TODO
                                   : LINE_DONE);
}

static bool source_line(struct ui_block *b, size_t from, size_t end, bool open, int width)
{
    struct wrap *w = &b->wrap;
    const char *s = b->text + from;
    size_t n = end - from, marker, level = 0;
    bool markdown = b->kind == UI_ASSISTANT, bullet;

    if (b->kind == UI_OUTPUT || b->kind == UI_TOOL)
        return items_inline(b->text, from, end, open, LOOK_TEXT, false) &&
               items_cut(w, (uint32_t)from, width, 0, table_indent(s, n, width), 0, LINE_TEXT);
    if (markdown && fence(s, n)) {
        size_t skip = 0;

        w->in_code = !w->in_code;
        while (skip < n && (s[skip] == ' ' || s[skip] == '`'))
            skip++;
        if (!w->in_code)
            /* the closing fence is not shown */
            return true;
        w->language = code_language(s + skip, strcspn(s + skip, " \r\n"));
        return items_inline(b->text, from + skip, end, open, LOOK_DIM, false) &&
               items_cut(w, (uint32_t)from, width, 1, 1, 0, LINE_FENCE);
    }
    if (w->in_code)
        return code_line(b, from, end, open, width);
    if (markdown && table_row(s, n) && (w->table.on || table_begins(b, from, width)))
        return table_line(b, from, end, from == w->table.from);
    w->table.on = false;
    if (markdown && is_rule(s, n))
        return line_add(w, (uint32_t)from, width, LINE_RULE);
    while (markdown && level < n && level < 6 && s[level] == '#')
        level++;
    if (level && level < n && s[level] == ' ')
        return items_inline(b->text, from + level + 1, end, open, LOOK_HEADING, true) &&
               items_cut(w, (uint32_t)from, width, 0, 0, 0, LINE_TEXT);
    if (markdown && n >= 2 && s[0] == '>' && s[1] == ' ')
        return items_inline(b->text, from + 2, end, open, LOOK_DIM, true) &&
               items_cut(w, (uint32_t)from, width, 2, 2, 0, LINE_QUOTE);
    marker = markdown ? list_marker(s, n, &bullet) : 0;
    if (marker && bullet)
        return list_line(b, from, end, open, width, marker);
    return items_inline(b->text, from, end, open, LOOK_TEXT, markdown) &&
           items_cut(w, (uint32_t)from, width, 0, marker ? (int)marker : 0, 0, LINE_TEXT);
}

int chatview_wrap(struct ui_block *b, int width, bool folded)
{
    struct wrap *w = &b->wrap;
    size_t at, len = b->len;
    bool hold, called = false;

    assert(width > 0);
    if (width < 1)
        width = 1;
    if (w->width != width || w->folded != folded) {
        w->width = width;
        w->folded = folded;
        w->done = w->mark_runs = w->mark_lines = 0;
        w->mark_code = false;
        w->whole = false;
    }
    if (w->whole)
        return 0;
    w->n_runs = w->mark_runs;
    w->n_lines = w->mark_lines;
    w->in_code = w->mark_code;
    w->language = w->mark_language;
    w->table.on = false;
    /* Blank lines at the end of a finished block are not shown. */
    while (!b->open && len > w->done && (b->text[len - 1] == '\n' || b->text[len - 1] == ' '))
        len--;
    for (at = w->done; at < len || (at == 0 && len == 0);) {
        size_t end = line_end(b, at, len);
        size_t cut = end > at && b->text[end - 1] == '\r' ? end - 1 : end;
        bool call = call_begins(b, at, cut);
        int laid = call ? call_block(b, &end, len, width) : 0;

        if (laid < 0 || (!laid && !source_line(b, at, cut, b->open && end == len, width)))
            return ERR_MEMORY;
        if (end >= len)
            break;
        called |= call && b->open;
        hold = (called && w->in_code) || w->table.on ||
               (b->open && !w->in_code && table_row(b->text + at, cut - at) &&
                !memchr(b->text + end + 1, '\n', len - end - 1));
        at = end + 1;
        if (hold) /* further rows may widen it, or end the call */
            continue;
        w->done = at;
        w->mark_runs = w->n_runs;
        w->mark_lines = w->n_lines;
        w->mark_code = w->in_code;
        w->mark_language = w->language;
    }
    w->whole = true;
    return 0;
}
