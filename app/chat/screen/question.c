/* See question.h. */
#include "app/chat/screen/question.h"

#include "engine/base/clock.h"
#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define QUIET_NS (700 * CLOCK_MILLI)
#define ROWS_LEFT 9     /* rows of the screen that are not covered, if possible */
#define LINE_BYTES 480u /* most of a line (ui/screen/screen.c) */

bool question_take(struct question *q, const struct conversation *c)
{
    struct tool_question now;
    bool on = conversation_question(c, &now);

    if (on == q->on && (!on || now.serial == q->serial))
        return false;
    q->on = on;
    q->serial = on ? now.serial : q->serial;
    q->quiet_from = 0;
    q->armed = false;
    q->top = 0;
    return true;
}

/* ---- the lines ---- */

/* Adds a text, whose lines are cut to this many columns. */
static void put_wrapped(struct strbuf *b, const char *text, size_t columns)
{
    while (*text) {
        size_t line = strcspn(text, "\n"), n;

        do {
            n = utf8_fit(text, line, columns, NULL);
            while (n > LINE_BYTES)
                n = utf8_previous(text, line, n);
            n = n ? n : line < 4 ? line : utf8_next(text, line, 0);
            if (b->len)
                strbuf_putc(b, '\n');
            strbuf_put(b, text, n);
            text += n;
            line -= n;
        } while (line);
        text += *text == '\n';
    }
}

/* Unsafe code points are visible; line ends are only those of the JSON's layout. */
static void put_arguments(struct strbuf *b, const json_t *arguments, size_t columns)
{
    char *text = json_dumps(arguments, JSON_INDENT(2)), *safe;
    size_t n = text ? strlen(text) : 0, size;
    struct strbuf made = {0};

    size = utf8_escape(NULL, 0, text ? text : "", n, UTF8_KEEP_NEWLINE) + 1;
    if (text && strbuf_reserve(&made, size)) {
        safe = made.data;
        utf8_escape(safe, size, text, n, UTF8_KEEP_NEWLINE);
        put_wrapped(b, safe, columns);
    } else {
        put_wrapped(b, "(no memory to show its arguments)", columns);
    }
    strbuf_release(&made);
    free(text); /* allocated by jansson */
}

static void build(struct question *q, const struct tool_question *asked, size_t columns)
{
    char head[256];
    int n = snprintf(head, sizeof head, "The model calls the tool %s of the server %s",
                     asked->tool->name, asked->tool->server);

    if (asked->of > 1 && n > 0 && n < (int)sizeof head)
        snprintf(head + n, sizeof head - (size_t)n, " (call %zu of %zu)", asked->at, asked->of);
    strbuf_clear(&q->body);
    put_wrapped(&q->body, head, columns);
    put_arguments(&q->body, asked->arguments, columns);
    q->lines = 1;
    for (const char *p = strbuf_text(&q->body); *p; p++)
        q->lines += *p == '\n';
}

static const char *line_at(const char *text, int line)
{
    while (line-- > 0) {
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return text;
}

const char *question_above(struct question *q, const struct conversation *c, int columns, int rows)
{
    struct tool_question asked;
    const char *from, *end;
    int room = rows - ROWS_LEFT < 3 ? 3 : rows - ROWS_LEFT;

    if (!conversation_question(c, &asked))
        return NULL;
    build(q, &asked, columns > 24 ? (size_t)columns - 4 : 20);
    q->rows = q->lines <= room ? q->lines : room - 1;
    q->top = q->top > q->lines - q->rows ? q->lines - q->rows : q->top;
    from = line_at(strbuf_text(&q->body), q->top);
    end = line_at(from, q->rows);
    strbuf_clear(&q->shown);
    strbuf_put(&q->shown, from, (size_t)(end - from));
    if (q->shown.len && q->shown.data[q->shown.len - 1] == '\n')
        q->shown.len--;
    if (q->shown.data)
        q->shown.data[q->shown.len] = 0;
    if (q->rows < q->lines)
        strbuf_printf(&q->shown, "\nlines %d to %d of %d; Up and Down scroll", q->top + 1,
                      q->top + q->rows, q->lines);
    return strbuf_text(&q->shown);
}

const char *question_prompt(const struct question *q)
{
    return q->armed ? "Run it? Enter: once, a: always in this chat, n: no " : "Run it? \u2026 ";
}

/* ---- time and keys ---- */

void question_drawn(struct question *q, uint64_t now)
{
    if (q->on && !q->quiet_from)
        q->quiet_from = now;
}

uint64_t question_due(const struct question *q)
{
    return q->on && q->quiet_from && !q->armed ? q->quiet_from + QUIET_NS : UINT64_MAX;
}

bool question_tick(struct question *q, uint64_t now)
{
    if (now < question_due(q))
        return false;
    q->armed = true;
    return true;
}

static bool scroll(struct question *q, uint32_t key)
{
    int step = key == KEY_UP          ? -1
               : key == KEY_DOWN      ? 1
               : key == KEY_PAGE_UP   ? -q->rows
               : key == KEY_PAGE_DOWN ? q->rows
                                      : 0,
        most = q->lines - q->rows;

    q->top = q->top + step < 0 ? 0 : q->top + step > most ? most : q->top + step;
    return step != 0;
}

enum question_reply question_key(struct question *q, const struct input_event *ev, uint64_t now)
{
    if (ev->kind == INPUT_WHEEL)
        return QUESTION_OTHER;
    if (ev->kind == INPUT_KEY && (ev->mods & (KEY_CTRL | KEY_ALT)))
        return QUESTION_OTHER;
    if (ev->kind == INPUT_KEY && ev->key < 0x20 && ev->key != '\r' && ev->key != '\n' &&
        ev->key != 0x1b && ev->key != '\t')
        return QUESTION_OTHER; /* Ctrl-C, Ctrl-L, Ctrl-Z */
    if (!q->armed) {
        /* meant for something else: the question waits until the fingers rest */
        q->quiet_from = q->quiet_from ? now : 0;
        return QUESTION_TAKEN;
    }
    if (ev->kind != INPUT_KEY || scroll(q, ev->key))
        return QUESTION_TAKEN;
    switch (ev->key) {
    case '\r': return QUESTION_ONCE;
    case 'a': return QUESTION_ALWAYS;
    case 'n':
    case 0x1b: return QUESTION_NEVER;
    default: return QUESTION_TAKEN;
    }
}

void question_release(struct question *q)
{
    strbuf_release(&q->body);
    strbuf_release(&q->shown);
    *q = (struct question){0};
}
