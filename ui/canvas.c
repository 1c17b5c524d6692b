/* See canvas.h. */
#include "ui/canvas.h"
#include "engine/base/error.h"
#include "engine/base/mem.h"
#include "ui/glyph.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

static const struct cell blank = {' ', {-1, -1, 0}, 1};

int canvas_init(struct canvas *c, int w, int h)
{
    memset(c, 0, sizeof *c);
    return canvas_resize(c, w, h);
}

void canvas_release(struct canvas *c)
{
    mem_free(c->cells);
    mem_free(c->pool);
    memset(c, 0, sizeof *c);
}

int canvas_resize(struct canvas *c, int w, int h)
{
    struct cell *cells;

    w = w < 1 ? 1 : w > 2000 ? 2000 : w;
    h = h < 1 ? 1 : h > 1000 ? 1000 : h;
    if (w != c->w || h != c->h || !c->cells) {
        cells = mem_alloc((size_t)w * (size_t)h, sizeof *cells);
        if (!cells)
            return ERR_MEMORY;
        mem_free(c->cells);
        c->cells = cells;
        c->w = w;
        c->h = h;
    }
    canvas_clear(c);
    return 0;
}

void canvas_clear(struct canvas *c)
{
    int i, n = c->w * c->h;

    assert(c->cells);
    for (i = 0; i < n; i++)
        c->cells[i] = blank;
    c->pool_used = 0;
    c->n_links = 0;
    c->clip = (struct rect){0, 0, c->w, c->h};
    c->cursor_x = c->cursor_y = -1;
}

struct rect rect_intersect(struct rect a, struct rect b)
{
    int x0 = a.x > b.x ? a.x : b.x, y0 = a.y > b.y ? a.y : b.y;
    int x1 = a.x + a.w < b.x + b.w ? a.x + a.w : b.x + b.w,
        y1 = a.y + a.h < b.y + b.h ? a.y + a.h : b.y + b.h;

    return (struct rect){x0, y0, x1 > x0 ? x1 - x0 : 0, y1 > y0 ? y1 - y0 : 0};
}

struct rect canvas_clip(struct canvas *c, struct rect r)
{
    struct rect before = c->clip;

    c->clip = rect_intersect(before, r);
    return before;
}

void canvas_clip_set(struct canvas *c, struct rect r)
{
    assert(r.x >= 0 && r.y >= 0 && r.w >= 0 && r.h >= 0);
    assert(r.x + r.w <= c->w && r.y + r.h <= c->h);
    c->clip = r;
}

static bool inside(const struct canvas *c, int x, int y)
{
    return x >= c->clip.x && y >= c->clip.y && x < c->clip.x + c->clip.w &&
           y < c->clip.y + c->clip.h;
}

/* A cell that is overwritten may have been half of a wide one: its other half becomes a space. */
static void cell_set(struct canvas *c, int x, int y, struct cell v)
{
    struct cell *row = c->cells + (size_t)y * (size_t)c->w, *p = row + x;

    assert(x >= 0 && x < c->w && y >= 0 && y < c->h);
    if (p->width == 0 && x > 0 && v.width != 0) {
        row[x - 1].ch = ' ';
        row[x - 1].width = 1;
    }
    if (p->width == 2 && v.width != 2 && x + 1 < c->w) {
        row[x + 1].ch = ' ';
        row[x + 1].width = 1;
    }
    *p = v;
}

static uint32_t pool_add(struct canvas *c, const char *text, int len)
{
    size_t at = c->pool_used, need = at + (size_t)len + 1;

    if (need > c->pool_size) {
        size_t size = c->pool_size ? c->pool_size * 2 : 1024;

        if (need > size)
            size = need * 2;
        if (size >= CELL_POOL || !MEM_FIT(c->pool, size))
            return 0xfffd;
        c->pool_size = size;
    }
    memcpy(c->pool + at, text, (size_t)len);
    c->pool[at + (size_t)len] = 0;
    c->pool_used = need;
    return CELL_POOL | (uint32_t)at;
}

static int glyph_draw(struct canvas *c, int x, int y, struct style s, const struct glyph *g)
{
    int width = g->width;

    if (g->kind == GLYPH_HIDDEN)
        return x;
    if (g->kind != GLYPH_SHOWN) {
        if (inside(c, x, y))
            cell_set(c, x, y, (struct cell){' ', s, 1});
        return x + 1;
    }
    if (width == 2 && inside(c, x, y) && inside(c, x + 1, y)) {
        struct cell v = {g->ch ? g->ch : pool_add(c, g->text, g->len), s, 2};

        if (v.ch == 0xfffd)
            v.width = 1;
        cell_set(c, x + 1, y, blank);
        cell_set(c, x, y, v);
        c->cells[(size_t)y * (size_t)c->w + (size_t)x + 1] = (struct cell){v.width == 2 ? 0 : ' ',
                                                                           s, v.width == 2 ? 0 : 1};
    } else if (width == 2) {
        /* Half of it would be outside: neither half is drawn. */
        if (inside(c, x, y))
            cell_set(c, x, y, (struct cell){' ', s, 1});
        if (inside(c, x + 1, y))
            cell_set(c, x + 1, y, (struct cell){' ', s, 1});
    } else if (inside(c, x, y)) {
        cell_set(c, x, y, (struct cell){g->ch ? g->ch : pool_add(c, g->text, g->len), s, 1});
    }
    return x + width;
}

int canvas_text_n(struct canvas *c, int x, int y, struct style s, const char *text, size_t len)
{
    assert(text || len == 0);
    while (len) {
        struct glyph g = glyph_next(text, len);

        x = glyph_draw(c, x, y, s, &g);
        text += g.bytes;
        len -= (size_t)g.bytes;
    }
    return x;
}

int canvas_text(struct canvas *c, int x, int y, struct style s, const char *text)
{
    return canvas_text_n(c, x, y, s, text, strlen(text));
}

int canvas_text_fit(struct canvas *c, int x, int y, int width, struct style s, const char *text)
{
    size_t len = strlen(text);
    int at = 0;

    if (width <= 0)
        return 0;
    if (glyph_text_width(text, len) <= width)
        return canvas_text_n(c, x, y, s, text, len) - x;
    while (len) {
        struct glyph g = glyph_next(text, len);
        int w = g.kind == GLYPH_SHOWN ? g.width : g.kind == GLYPH_HIDDEN ? 0 : 1;

        if (at + w > width - 1)
            break;
        glyph_draw(c, x + at, y, s, &g);
        at += w;
        text += g.bytes;
        len -= (size_t)g.bytes;
    }
    canvas_put(c, x + at, y, s, 0x2026);
    return at + 1;
}

int canvas_text_right(struct canvas *c, int x_end, int y, struct style s, const char *text)
{
    int x = x_end - glyph_text_width(text, strlen(text));

    canvas_text(c, x, y, s, text);
    return x;
}

int canvas_printf(struct canvas *c, int x, int y, struct style s, const char *format, ...)
{
    char line[512];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return canvas_text(c, x, y, s, line);
}

void canvas_put(struct canvas *c, int x, int y, struct style s, uint32_t ch)
{
    assert(ch && !(ch & CELL_POOL));
    if (inside(c, x, y))
        cell_set(c, x, y, (struct cell){ch, s, 1});
}

void canvas_fill(struct canvas *c, struct rect r, struct style s, uint32_t ch)
{
    int x, y;

    assert(ch && !(ch & CELL_POOL));
    r = rect_intersect(r, c->clip);
    for (y = r.y; y < r.y + r.h; y++)
        for (x = r.x; x < r.x + r.w; x++)
            cell_set(c, x, y, (struct cell){ch, s, 1});
}

void canvas_link(struct canvas *c, int x, int y, int w, const char *url, size_t len)
{
    struct rect r = rect_intersect((struct rect){x, y, w, 1}, c->clip);

    if (r.w > 0 && r.h > 0 && c->n_links < CANVAS_LINKS)
        c->links[c->n_links++] = (struct canvas_link){r.x, r.y, r.w, url, len};
}

const struct cell *canvas_at(const struct canvas *c, int x, int y)
{
    if (x < 0 || y < 0 || x >= c->w || y >= c->h)
        return NULL;
    return c->cells + (size_t)y * (size_t)c->w + (size_t)x;
}

int canvas_cell_text(const struct canvas *c, const struct cell *cell, char *out)
{
    int n = 0;

    assert(!(cell->ch & CELL_POOL) || (cell->ch & ~CELL_POOL) < c->pool_used);
    if (cell->width == 0) {
        n = 0;
    } else if (cell->ch & CELL_POOL) {
        const char *p = c->pool + (cell->ch & ~CELL_POOL);

        n = (int)strlen(p);
        if (n > GLYPH_BYTES)
            n = GLYPH_BYTES;
        memcpy(out, p, (size_t)n);
    } else {
        n = (int)glyph_encode(cell->ch ? cell->ch : ' ', out);
    }
    out[n] = 0;
    return n;
}

bool canvas_cell_equal(const struct canvas *a, const struct cell *p, const struct canvas *b,
                       const struct cell *q)
{
    if (p->width != q->width || p->style.fg != q->style.fg || p->style.bg != q->style.bg ||
        p->style.attrs != q->style.attrs)
        return false;
    if ((p->ch & CELL_POOL) && (q->ch & CELL_POOL))
        return strcmp(a->pool + (p->ch & ~CELL_POOL), b->pool + (q->ch & ~CELL_POOL)) == 0;
    return p->ch == q->ch;
}

#define LEGEND_MAX 94

static char legend_letter(struct style *seen, int *n, struct style s)
{
    int i;

    for (i = 0; i < *n; i++)
        if (seen[i].fg == s.fg && seen[i].bg == s.bg && seen[i].attrs == s.attrs)
            break;
    if (i == *n && *n < LEGEND_MAX)
        seen[(*n)++] = s;
    return i == 0 ? ' ' : i < 26 ? (char)('a' + i - 1) : i < 52 ? (char)('A' + i - 26) : '*';
}

void canvas_print(const struct canvas *c, FILE *f, bool styles)
{
    struct style seen[LEGEND_MAX] = {{-1, -1, 0}};
    char text[GLYPH_BYTES + 1];
    int x, y, i, n = 1;

    for (y = 0; y < c->h; y++) {
        int end = c->w;

        while (end > 0 && c->cells[y * c->w + end - 1].ch == ' ')
            end--;
        for (x = 0; x < end; x++) {
            canvas_cell_text(c, &c->cells[y * c->w + x], text);
            fputs(text, f);
        }
        fputc('\n', f);
        if (!styles)
            continue;
        for (end = c->w; end > 0; end--)
            if (legend_letter(seen, &n, c->cells[y * c->w + end - 1].style) != ' ')
                break;
        for (x = 0; x < end; x++)
            fputc(legend_letter(seen, &n, c->cells[y * c->w + x].style), f);
        fputs("\n", f);
    }
    for (i = 1; styles && i < n; i++)
        fprintf(f, "%c fg %d bg %d attrs %d\n", legend_letter(seen, &n, seen[i]), seen[i].fg,
                seen[i].bg, seen[i].attrs);
}
