/* The lines above the input line: after a slash the matching commands, each with its help (Down and
 * Up select one), or the completions of the word under the cursor; for a message the files it names
 * and its length. Rebuilt only when the line or the selection has changed, as some values require
 * reading a folder. UI thread. */
#include "app/chat/screen/internal.h"

#include "app/chat/attach.h"
#include "app/chat/commands/commands.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "ui/input_line.h"

#include <stdio.h>
#include <string.h>

#define ROWS 9
#define COLUMNS 76 /* width of a row of values */

/* Matching command number `at`; NULL: there are not so many. */
static const struct chat_command *command_at(const char *line, size_t len, int at)
{
    size_t n;
    const struct chat_command *all = chat_commands(&n);

    for (size_t i = 0; i < n; i++)
        if (strncmp(all[i].name, line, len) == 0 && at-- == 0)
            return &all[i];
    return NULL;
}

/* The first one displayed, so that the selected one is visible. */
static int first_row(int marked)
{
    return marked >= ROWS ? marked - ROWS + 1 : 0;
}

static void commands_add(struct strbuf *b, const char *line, size_t len, int marked)
{
    size_t n;
    const struct chat_command *all = chat_commands(&n);
    int rows = 0, more = 0, first = first_row(marked);

    for (size_t i = 0; i < n; i++) {
        char head[64];
        int w;

        if (strncmp(all[i].name, line, len) != 0 || first-- > 0)
            continue;
        if (rows == ROWS) {
            more++;
            continue;
        }
        w = snprintf(head, sizeof head, "%s %s", all[i].name, all[i].arguments);
        w -= (int)utf8_width(head, (size_t)w);
        strbuf_printf(b, "%s%-*s %s", rows++ ? "\n" : "", 22 + w, head, all[i].help);
    }
    if (more)
        strbuf_printf(b, "\n%d more; Down chooses, Tab completes", more);
}

/* Its own help line, then the values in rows. */
static void values_add(struct strbuf *b, struct chat *s, const char *line, size_t len)
{
    size_t n, name = strcspn(line, " "), start = len, used = 0, rows = 0;
    const struct chat_command *all = chat_commands(&n);
    char **list;

    while (start && line[start - 1] != ' ')
        start--;
    for (size_t i = 0; i < n; i++)
        if (strlen(all[i].name) == name && strncmp(all[i].name, line, name) == 0)
            strbuf_printf(b, "%s %s: %s", all[i].name, all[i].arguments, all[i].help);
    list = chat_command_complete(s->conversation, line, (int)start, (int)len);
    for (size_t i = 0; list && list[i]; i++) {
        size_t w = utf8_width(list[i], strlen(list[i])) + 2;

        if (i == 0 || used + w > COLUMNS) {
            used = 0;
            if (++rows < ROWS)
                strbuf_puts(b, b->len ? "\n" : "");
            else if (rows == ROWS)
                strbuf_puts(b, "  \u2026");
        }
        if (rows < ROWS)
            strbuf_printf(b, "%s  ", list[i]);
        used += w;
    }
    for (size_t i = 0; list && list[i]; i++)
        mem_free(list[i]);
    mem_free(list);
}

const char *chat_menu(struct chat *s, const char *line, size_t len, size_t cursor)
{
    bool command = len && line[0] == '/' && line[1] != '/';

    if (!len || (command && (cursor != len || memchr(line, '\n', len))))
        return NULL;
    if (s->menu_line.len != len || memcmp(s->menu_line.data, line, len) != 0) {
        strbuf_clear(&s->menu_line);
        strbuf_put(&s->menu_line, line, len);
        s->menu_at = -1;
        s->menu_drawn = -2;
    }
    if (s->menu_drawn != s->menu_at) {
        s->menu_drawn = s->menu_at;
        strbuf_clear(&s->menu);
        if (!command)
            attach_describe(conversation_info(s->conversation), line, len, &s->menu);
        else if (memchr(line, ' ', len))
            values_add(&s->menu, s, line, len);
        else
            commands_add(&s->menu, line, len, s->menu_at);
    }
    return s->menu.len && !s->menu.failed ? s->menu.data : NULL;
}

int chat_menu_marked(const struct chat *s)
{
    return s->menu_at < 0 ? 0 : s->menu_at - first_row(s->menu_at) + 1;
}

/* Whether the line is only the beginning of a command. */
static bool chooses(const struct chat *s, const char *line, size_t len, size_t cursor)
{
    return len && line[0] == '/' && line[1] != '/' && cursor == len && !memchr(line, ' ', len) &&
           !memchr(line, '\n', len) && s->menu_line.len == len &&
           memcmp(s->menu_line.data, line, len) == 0;
}

bool chat_menu_step(struct chat *s, int step)
{
    size_t len, cursor;
    const char *line = input_text(&len, &cursor);

    if (!chooses(s, line, len, cursor) || (s->menu_at < 0 && step < 0))
        return false;
    if (s->menu_at + step < 0 || command_at(line, len, s->menu_at + step))
        s->menu_at += step;
    return true;
}

bool chat_menu_take(struct chat *s, bool *whole)
{
    size_t len, cursor;
    const char *line = input_text(&len, &cursor);
    const struct chat_command *k;
    char text[64];

    if (s->menu_at < 0 || !chooses(s, line, len, cursor) ||
        !(k = command_at(line, len, s->menu_at)))
        return false;
    s->menu_at = -1;
    *whole = !k->arguments[0];
    snprintf(text, sizeof text, "%s%s", k->name, *whole ? "" : " ");
    input_set(text);
    return true;
}

bool chat_menu_leave(struct chat *s)
{
    bool marked = s->menu_at >= 0;

    s->menu_at = -1;
    return marked;
}
