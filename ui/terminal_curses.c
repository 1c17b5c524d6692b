/* See terminal.h. Curses handles the modes, the colours and the frame differences. It cannot handle
 * a cluster whose width by the C library's wcwidth differs from the screen's (families of emoji,
 * flags, variation selectors): curses gets blanks there, and after each update the rest of such a
 * row is written by hand, with the cursor repositioned after every such cluster, so nothing shifts
 * however the terminal draws it. Only this file includes curses. */
#include "ui/terminal.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "ui/glyph.h"

#define NCURSES_WIDECHAR 1 /* what _GNU_SOURCE means to it with glibc alone */
#include <curses.h>
#include <term.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#define ANSWER_MS 300    /* for a terminal on a slow connection */
#define COLOUR_CODES 257 /* the terminal's default (-1), and 256 */

struct terminal {
    SCREEN *screen;
    FILE *in, *out;
    int in_fd, out_fd;
    struct termios saved;
    enum theme_depth depth;
    bool eight; /* 8 colours: bright ones are bold */
    bool mouse, raw_ok, first;
    bool utf8;
    int light; /* see terminal_light */
    int w, h;
    struct canvas front; /* the frame on the screen */
    bool *odd_rows;      /* rows with clusters curses cannot draw */
    bool *linked_rows;   /* rows written by the newest frame */
    bool links;          /* it is known to support OSC 8, or to ignore it */
    struct decode decode;
    char *buffer; /* bytes written by hand, one write per frame */
    size_t used, size;
    bool suspended;
    /* 1 + pair of a foreground on a background; 0: not allocated yet */
    uint16_t pairs[COLOUR_CODES][COLOUR_CODES];
};

/* Data for a signal handler: set at open, constant while set. */
static struct {
    volatile sig_atomic_t armed;
    int fd;
    size_t len;
    char text[256];
    struct termios saved;
} emergency;

static struct terminal *current; /* curses itself is one per process */

static int buffer_char(int c)
{
    struct terminal *t = current;

    if (MEM_ROOM(t->buffer, t->used, t->size, 4096))
        t->buffer[t->used++] = (char)c;
    return c;
}

static void buffer_text(const char *text, size_t len)
{
    while (len--)
        buffer_char((unsigned char)*text++);
}

static void buffer_capability(const char *text)
{
    if (text && text != (char *)-1)
        tputs(text, 1, buffer_char);
}

static void buffer_flush(struct terminal *t)
{
    size_t at = 0;

    while (at < t->used) {
        ssize_t n = write(t->out_fd, t->buffer + at, t->used - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    t->used = 0;
}

static void modes(struct terminal *t, bool on)
{
    if (!t->raw_ok)
        return;
    buffer_text(on ? "\033[?2004h" : "\033[?2004l", 8);
    if (t->mouse)
        buffer_text(on ? "\033[?1000h\033[?1006h" : "\033[?1006l\033[?1000l", 16);
    buffer_flush(t);
}

static void emergency_arm(struct terminal *t)
{
    const char *parts[] = {t->raw_ok ? "\033[?2026l\033[?2004l\033[?1006l\033[?1000l" : "",
                           exit_attribute_mode, exit_ca_mode, cursor_normal, "\r"};
    size_t i;

    emergency.armed = 0;
    emergency.len = 0;
    for (i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *p = parts[i];

        for (; p && *p && emergency.len < sizeof emergency.text; p++) {
            /* padding is for obsolete terminals */
            if (p[0] == '$' && p[1] == '<') {
                while (*p && *p != '>')
                    p++;
                if (!*p)
                    break;
                continue;
            }
            emergency.text[emergency.len++] = *p;
        }
    }
    emergency.fd = t->out_fd;
    emergency.saved = t->saved;
    emergency.armed = 1;
}

void terminal_emergency_restore(void)
{
    ssize_t n;

    if (!emergency.armed)
        return;
    emergency.armed = 0;
    n = write(emergency.fd, emergency.text, emergency.len);
    (void)n;
    tcsetattr(emergency.fd, TCSANOW, &emergency.saved);
}

static int front_resize(struct terminal *t)
{
    bool *odd = mem_alloc((size_t)t->h, sizeof *odd),
         *linked = mem_alloc((size_t)t->h, sizeof *linked);

    if (!odd || !linked || canvas_resize(&t->front, t->w, t->h) < 0) {
        mem_free(odd);
        mem_free(linked);
        return ERR_MEMORY;
    }
    mem_free(t->odd_rows);
    mem_free(t->linked_rows);
    t->odd_rows = odd;
    t->linked_rows = linked;
    t->first = true;
    return 0;
}

static void size_ask(struct terminal *t)
{
    struct winsize ws;

    if (ioctl(t->out_fd, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0 && ws.ws_row > 0) {
        t->w = ws.ws_col;
        t->h = ws.ws_row;
    } else {
        t->w = COLS > 0 ? COLS : 80;
        t->h = LINES > 0 ? LINES : 24;
    }
    t->w = t->w > 2000 ? 2000 : t->w;
    t->h = t->h > 1000 ? 1000 : t->h;
}

/* Removes a reply from the bytes; at: its start, end: after it. */
static void answer_take(char *bytes, size_t *used, char *at, char *end)
{
    memmove(at, end, (size_t)(bytes + *used - end) + 1);
    *used -= (size_t)(end - at);
}

/* Writes a query and reads until `take` has found (and removed) the reply; ANSWER_MS without a byte
 * counts as no reply. Typed bytes in between are kept. Curses does not own the terminal yet. */
static void ask(struct terminal *t, const char *question,
                bool (*take)(char *bytes, size_t *used, void *out), void *out)
{
    struct termios raw_mode = t->saved;
    struct pollfd p = {t->in_fd, POLLIN, 0};
    char bytes[1024];
    size_t used = 0;
    bool answered = false;

    cfmakeraw(&raw_mode);
    if (tcsetattr(t->out_fd, TCSADRAIN, &raw_mode) < 0 ||
        write(t->out_fd, question, strlen(question)) != (ssize_t)strlen(question))
        return;
    while (!answered && used + 1 < sizeof bytes && poll(&p, 1, ANSWER_MS) == 1) {
        ssize_t n = read(t->in_fd, bytes + used, sizeof bytes - 1 - used);

        if (n <= 0)
            break;
        used += (size_t)n;
        bytes[used] = 0;
        answered = take(bytes, &used, out);
    }
    if (used)
        decode_push(&t->decode, bytes, used);
    tcsetattr(t->out_fd, TCSADRAIN, &t->saved);
}

/* Cursor position report: ESC [ row ; column R. */
static bool take_column(char *bytes, size_t *used, void *out)
{
    for (char *at = bytes; (at = strchr(at, 033)); at++) {
        int row, column, end = 0;

        if (sscanf(at, "\033[%d;%dR%n", &row, &column, &end) == 2 && end) {
            *(int *)out = column;
            answer_take(bytes, used, at, at + end);
            return true;
        }
    }
    return false;
}

/* A two-byte letter moves the cursor by one column with UTF-8, by two otherwise; no reply counts as
 * no. */
static bool utf8_asked(struct terminal *t)
{
    int column = 0;

    ask(t, "\r\303\251\033[6n", take_column, &column);
    return write(t->out_fd, "\r  \r", 4) == 4 && column == 2;
}

/* The background colour (OSC 11), and the reply to DA1, which every terminal sends, so that there
 * is no waiting if OSC 11 is unsupported. */
static bool take_ground(char *bytes, size_t *used, void *out)
{
    char *colour = strstr(bytes, "\033]11;"), *end, *attributes = bytes;

    while ((attributes = strstr(attributes, "\033[?")) &&
           attributes[strspn(attributes + 3, "0123456789;") + 3] != 'c')
        attributes++;
    if (!attributes)
        return false;
    answer_take(bytes, used, attributes, attributes + strspn(attributes + 3, "0123456789;") + 4);
    if (!colour)
        return true;
    *(int *)out = theme_ground_is_light(colour + 5);
    end = colour + strcspn(colour, "\a\\");
    answer_take(bytes, used, colour, end + (*end != 0));
    return true;
}

/* Only on terminals known to parse such queries. */
static int ground_asked(struct terminal *t, const struct terminal_options *o)
{
    int light = -1;

    if (t->links)
        ask(t, "\033]11;?\033\\\033[c", take_ground, &light);
    if (light < 0 && o->ground)
        light = theme_ground_is_light(o->ground);
    return light;
}

int terminal_open(struct terminal **out, int in_fd, int out_fd, const struct terminal_options *o,
                  struct error *e)
{
    const char *type = o->type;
    struct terminal *t = mem_alloc(1, sizeof *t);

    if (!t)
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    t->in_fd = in_fd;
    t->out_fd = out_fd;
    decode_init(&t->decode);
    if (tcgetattr(out_fd, &t->saved) < 0 || !isatty(in_fd)) {
        mem_free(t);
        return error_set(
            e, ERR_USAGE,
            "no terminal: standard input and output must be one for the chat screen; use --plain");
    }
    /* DEC private modes are harmless where unknown, but only on terminals that parse them. */
    t->raw_ok = type && strncmp(type, "linux", 5) != 0 && strncmp(type, "vt52", 4) != 0 &&
                strncmp(type, "dumb", 4) != 0;
    t->links = t->raw_ok && strncmp(type, "vt", 2) != 0 && strncmp(type, "ansi", 4) != 0;
    t->utf8 = o->utf8 || (type && strncmp(type, "vt52", 4) != 0 && strncmp(type, "dumb", 4) != 0 &&
                          utf8_asked(t));
    t->light = o->colour && o->ask_ground ? ground_asked(t, o) : -1;
    t->in = fdopen(dup(in_fd), "r");
    t->out = fdopen(dup(out_fd), "w");
    current = t;
    t->screen = t->in && t->out && type && *type ? newterm(type, t->out, t->in) : NULL;
    if (!t->screen || !cursor_address) {
        error_set(e, ERR_USAGE,
                  "the terminal type \"%s\" is not known or cannot place its cursor; use --plain, "
                  "or set TERM",
                  type ? type : "");
        terminal_close(t);
        return ERR_USAGE;
    }
    raw();
    noecho();
    nonl();
    intrflush(stdscr, FALSE);
    keypad(stdscr, FALSE);
    leaveok(stdscr, FALSE);
    typeahead(-1);
    if (o->colour && has_colors() && start_color() == OK) {
        use_default_colors();
        t->eight = COLORS < 16;
        t->depth = COLORS >= 256 && COLOR_PAIRS >= 1024 ? THEME_256
                   : COLORS >= 8                        ? THEME_16
                                                        : THEME_MONO;
    }
    t->mouse = o->mouse;
    size_ask(t);
    resizeterm(t->h, t->w);
    if (front_resize(t) < 0) {
        terminal_close(t);
        return error_set(e, ERR_MEMORY, "out of memory for the screen");
    }
    emergency_arm(t);
    modes(t, true);
    *out = t;
    return 0;
}

int terminal_colours(const char *type)
{
    TERMINAL *before = cur_term, *mine;
    int failed, n;

    if (!type || !*type || setupterm(type, STDERR_FILENO, &failed) != OK)
        return -1;
    n = tigetnum("colors");
    mine = cur_term;
    set_curterm(before);
    if (mine != before)
        del_curterm(mine);
    return n > 0 ? n : 0;
}

void terminal_close(struct terminal *t)
{
    if (!t)
        return;
    if (t->screen) {
        if (!t->suspended) {
            modes(t, false);
            curs_set(1);
            endwin();
        }
        delscreen(t->screen);
        tcsetattr(t->out_fd, TCSADRAIN, &t->saved);
    }
    emergency.armed = 0;
    if (t->in)
        fclose(t->in);
    if (t->out)
        fclose(t->out);
    decode_release(&t->decode);
    canvas_release(&t->front);
    mem_free(t->linked_rows);
    mem_free(t->odd_rows);
    mem_free(t->buffer);
    if (current == t)
        current = NULL;
    mem_free(t);
}

enum theme_depth terminal_depth(const struct terminal *t)
{
    return t->depth;
}

int terminal_light(const struct terminal *t)
{
    return t->light;
}

bool terminal_utf8(const struct terminal *t)
{
    return t->utf8;
}

void terminal_size(const struct terminal *t, int *w, int *h)
{
    *w = t->w;
    *h = t->h;
}

void terminal_resized(struct terminal *t)
{
    int w = t->w, h = t->h;

    if (t->suspended)
        return;
    size_ask(t);
    if (t->w == w && t->h == h)
        return;
    resizeterm(t->h, t->w);
    if (front_resize(t) < 0) {
        t->w = w;
        t->h = h;
    }
}

void terminal_redraw(struct terminal *t)
{
    t->first = true;
}

static void colours(const struct terminal *t, struct style s, int *fg, int *bg, attr_t *attrs)
{
    if (t->depth == THEME_16 && t->eight)
        s = theme_of_eight(s);
    *fg = s.fg;
    *bg = s.bg;
    *attrs = (s.attrs & STYLE_BOLD ? A_BOLD : 0) | (s.attrs & STYLE_DIM ? A_DIM : 0) |
             (s.attrs & STYLE_ITALIC ? A_ITALIC : 0) |
             (s.attrs & STYLE_UNDERLINE ? A_UNDERLINE : 0) |
             (s.attrs & STYLE_REVERSE ? A_REVERSE : 0);
    if (t->depth == THEME_MONO)
        *fg = *bg = -1;
    /* a theme may use more colours than available */
    if (*fg >= COLORS)
        *fg = -1;
    if (*bg >= COLORS)
        *bg = -1;
}

/* Whether curses and the screen agree on the width of this cell. */
static bool curses_can(const struct cell *c)
{
    return !(c->ch & CELL_POOL) && (c->ch < 0x7f || wcwidth((wchar_t)c->ch) == (int)c->width);
}

/* alloc_pair searches a tree; a frame has few pairs, and they repeat. Curses reuses pairs only when
 * it runs out of them. */
static int pair_of(struct terminal *t, int fg, int bg)
{
    uint16_t *known = &t->pairs[fg + 1][bg + 1];

    if (!*known) {
        int pair = alloc_pair(fg, bg);

        *known = (uint16_t)(1 + (pair < 0 || pair > 0xfffe ? 0 : pair));
    }
    return *known - 1;
}

static void cell_to_curses(struct terminal *t, const struct cell *c, int x, int y)
{
    wchar_t text[2] = {curses_can(c) ? (wchar_t)c->ch : L' ', 0};
    cchar_t cc;
    attr_t attrs;
    int fg, bg, pair = 0, i, n = curses_can(c) ? 1 : c->width;

    colours(t, c->style, &fg, &bg, &attrs);
    if (fg >= 0 || bg >= 0)
        pair = pair_of(t, fg, bg);
    setcchar(&cc, text, attrs, (short)(pair > 32767 ? 0 : pair), pair > 32767 ? &pair : NULL);
    for (i = 0; i < n; i++)
        mvadd_wch(y, x + i, &cc);
}

/* Sets attributes by hand; curses leaves the terminal in the normal state after every update. */
static void style_by_hand(struct terminal *t, struct style s)
{
    attr_t attrs;
    int fg, bg;

    colours(t, s, &fg, &bg, &attrs);
    buffer_capability(exit_attribute_mode);
    if (attrs & A_BOLD)
        buffer_capability(enter_bold_mode);
    if (attrs & A_DIM)
        buffer_capability(enter_dim_mode);
    if (attrs & A_ITALIC)
        buffer_capability(enter_italics_mode);
    if (attrs & A_UNDERLINE)
        buffer_capability(enter_underline_mode);
    if (attrs & A_REVERSE)
        buffer_capability(enter_reverse_mode);
    if (fg >= 0 && set_a_foreground)
        buffer_capability(tiparm(set_a_foreground, fg));
    if (bg >= 0 && set_a_background)
        buffer_capability(tiparm(set_a_background, bg));
}

static void row_by_hand(struct terminal *t, const struct canvas *c, int y)
{
    char text[GLYPH_BYTES + 1];
    struct style style = STYLE_PLAIN;
    bool placed = false, styled = false;
    int x;

    for (x = 0; x < c->w; x++) {
        const struct cell *cell = canvas_at(c, x, y);
        bool can = curses_can(cell);

        if (cell->width == 0 || (!placed && can && !styled))
            /* before the first odd one: drawn by curses */
            continue;
        if (!placed)
            buffer_capability(tiparm(cursor_address, y, x));
        placed = true;
        if (!styled || memcmp(&style, &cell->style, sizeof style) != 0)
            style_by_hand(t, cell->style);
        style = cell->style;
        styled = true;
        buffer_text(text, (size_t)canvas_cell_text(c, cell, text));
        if (!can)
            /* the cursor position is unknown now */
            placed = false;
    }
    if (styled)
        buffer_capability(exit_attribute_mode);
}

/* An address encoded for OSC 8: all but printable ASCII is written as %XX, so nothing in it can end
 * the sequence. */
static void buffer_url(const char *url, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char b = (unsigned char)url[i];
        char hex[4];

        if (b > 0x20 && b < 0x7f) {
            buffer_text(url + i, 1);
            continue;
        }
        snprintf(hex, sizeof hex, "%%%02X", b);
        buffer_text(hex, 3);
    }
}

/* Rewrites its cells, as drawn by curses, inside the link. */
static void link_by_hand(struct terminal *t, const struct canvas *c, const struct canvas_link *l)
{
    char text[GLYPH_BYTES + 1];

    buffer_capability(tiparm(cursor_address, l->y, l->x));
    buffer_text("\033]8;;", 5);
    buffer_url(l->url, l->len);
    buffer_text("\033\\", 2);
    for (int x = l->x; x < l->x + l->w; x++) {
        const struct cell *cell = canvas_at(c, x, l->y);

        if (!cell || cell->width == 0)
            continue;
        style_by_hand(t, cell->style);
        buffer_text(text, (size_t)canvas_cell_text(c, cell, text));
    }
    buffer_capability(exit_attribute_mode);
    buffer_text("\033]8;;\033\\", 7);
}

/* Rows that are rewritten need their links again. */
static bool links_wanted(struct terminal *t, const struct canvas *c, int w, int h)
{
    bool any = false;

    for (int i = 0; t->links && i < c->n_links; i++)
        any |= c->links[i].y < h && c->links[i].x + c->links[i].w <= w &&
               t->linked_rows[c->links[i].y];
    return any;
}

/* Unchanged and without clusters, whose bytes are in the pool: true for most rows. */
static bool row_same(const struct terminal *t, const struct canvas *c, int y)
{
    size_t at = (size_t)y * (size_t)c->w;

    return !t->first && !t->odd_rows[y] && t->front.w == c->w && y < t->front.h &&
           memcmp(c->cells + at, t->front.cells + at, (size_t)c->w * sizeof *c->cells) == 0;
}

void terminal_draw(struct terminal *t, const struct canvas *c)
{
    int x, y, w = c->w < t->w ? c->w : t->w, h = c->h < t->h ? c->h : t->h;
    bool by_hand = false, linked;

    if (t->suspended)
        return;
    if (t->first) {
        erase();
        clearok(curscr, TRUE);
    }
    for (y = 0; y < h; y++) {
        bool changed = t->first, odd = false;

        if (row_same(t, c, y)) {
            t->linked_rows[y] = false;
            continue;
        }
        for (x = 0; x < w; x++) {
            const struct cell *now = canvas_at(c, x, y);

            if (now->width == 0)
                continue;
            odd = odd || !curses_can(now);
            if (!t->first && canvas_cell_equal(c, now, &t->front, canvas_at(&t->front, x, y)))
                continue;
            cell_to_curses(t, now, x, y);
            changed = true;
        }
        /* A row that had an odd cluster is repainted completely: curses does not know its
         * contents. */
        if (changed && t->odd_rows[y])
            wredrawln(stdscr, y, 1);
        t->odd_rows[y] = odd;
        t->linked_rows[y] = changed;
        by_hand = by_hand || (odd && changed);
        if (changed && odd)
            /* marks the row for the second pass */
            t->front.cells[(size_t)y * (size_t)t->front.w].width = 99;
    }
    linked = links_wanted(t, c, w, h);
    by_hand |= linked;
    /* two writes are shown as one frame, if the terminal supports it */
    if (t->raw_ok && by_hand) {
        buffer_text("\033[?2026h", 8);
        buffer_flush(t);
    }
    if (c->cursor_x >= 0 && c->cursor_x < w && c->cursor_y >= 0 && c->cursor_y < h) {
        move(c->cursor_y, c->cursor_x);
        curs_set(1);
    } else {
        move(h - 1, 0);
        curs_set(0);
    }
    wnoutrefresh(stdscr);
    doupdate();
    for (y = 0; by_hand && y < h; y++)
        if (t->front.cells[(size_t)y * (size_t)t->front.w].width == 99)
            row_by_hand(t, c, y);
    for (int i = 0; linked && i < c->n_links; i++)
        if (c->links[i].y < h && c->links[i].x + c->links[i].w <= w &&
            t->linked_rows[c->links[i].y])
            link_by_hand(t, c, &c->links[i]);
    if (by_hand)
        buffer_capability(tiparm(cursor_address, getcury(stdscr), getcurx(stdscr)));
    if (t->raw_ok && by_hand)
        buffer_text("\033[?2026l", 8);
    if (by_hand)
        buffer_flush(t);

    if (t->front.w == c->w && t->front.h == c->h) {
        memcpy(t->front.cells, c->cells, (size_t)c->w * (size_t)c->h * sizeof *c->cells);
        if (c->pool_used > t->front.pool_size) {
            char *pool = mem_resize(t->front.pool, c->pool_size, 1);

            t->front.pool = pool ? pool : t->front.pool;
            t->front.pool_size = pool ? c->pool_size : t->front.pool_size;
            if (!pool) {
                t->first = true;
                return;
            }
        }
        if (c->pool_used)
            memcpy(t->front.pool, c->pool, c->pool_used);
        t->first = false;
    }
}

int terminal_read(struct terminal *t)
{
    char bytes[4096];
    ssize_t n = read(t->in_fd, bytes, sizeof bytes);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0)
        return ERR_IO;
    decode_push(&t->decode, bytes, (size_t)n);
    return 0;
}

int terminal_next(struct terminal *t, bool late, struct input_event *out)
{
    return decode_next(&t->decode, late, out);
}

bool terminal_waiting(const struct terminal *t)
{
    return decode_waiting(&t->decode);
}

void terminal_mouse(struct terminal *t, bool on)
{
    if (t->mouse == on || !t->raw_ok)
        return;
    t->mouse = true;
    buffer_text(on ? "\033[?1000h\033[?1006h" : "\033[?1006l\033[?1000l", 16);
    buffer_flush(t);
    t->mouse = on;
}

void terminal_suspend(struct terminal *t)
{
    if (t->suspended)
        return;
    modes(t, false);
    curs_set(1);
    endwin();
    emergency.armed = 0;
    t->suspended = true;
}

void terminal_resume(struct terminal *t)
{
    if (!t->suspended)
        return;
    t->suspended = false;
    reset_prog_mode();
    doupdate();
    emergency.armed = 1;
    modes(t, true);
    terminal_resized(t);
    t->first = true;
}

void terminal_copy(struct terminal *t, const char *text, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t i;

    if (!t->raw_ok)
        return;
    buffer_text("\033]52;c;", 7);
    for (i = 0; i < len; i += 3) {
        unsigned v = (unsigned)(unsigned char)text[i] << 16;

        v |= i + 1 < len ? (unsigned)(unsigned char)text[i + 1] << 8 : 0;
        v |= i + 2 < len ? (unsigned char)text[i + 2] : 0;
        buffer_char(digits[v >> 18]);
        buffer_char(digits[v >> 12 & 63]);
        buffer_char(i + 1 < len ? digits[v >> 6 & 63] : '=');
        buffer_char(i + 2 < len ? digits[v & 63] : '=');
    }
    buffer_text("\033\\", 2);
    buffer_flush(t);
}

void terminal_notify(struct terminal *t, enum terminal_notice how, const char *text)
{
    static const char *const begin[] = {[NOTICE_OSC9] = "\033]9;",
                                        [NOTICE_OSC777] = "\033]777;notify;moetop;",
                                        [NOTICE_TITLE] = "\033]2;moetop: "};
    char safe[200];

    if (how == NOTICE_BELL) {
        buffer_char('\a');
    } else if (t->raw_ok) {
        utf8_strip(safe, sizeof safe, text, strlen(text), 0);
        buffer_text(begin[how], strlen(begin[how]));
        buffer_text(safe, strlen(safe));
        buffer_text("\033\\", 2);
    }
    buffer_flush(t);
}
