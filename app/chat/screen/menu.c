/* What stands over the input line: over a slash the commands it may become, each with its line of
 * help, or what the word under the cursor may be; over a message the files it names and its length.
 * Made anew only when the line has changed: some values are files in a folder. UI thread. */
#include "app/chat/screen/internal.h"

#include "app/chat/attach.h"
#include "app/chat/commands/commands.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#include <string.h>

#define ROWS 9
#define COLUMNS 76 /* of a row of values */

static void commands_add(struct strbuf *b, const char *line, size_t len)
{
    size_t n;
    const struct chat_command *all = chat_commands(&n);
    int rows = 0, more = 0;

    for (size_t i = 0; i < n; i++) {
        char head[64];
        int w;

        if (strncmp(all[i].name, line, len) != 0)
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
        strbuf_printf(b, "\n%d more; Tab completes", more);
}

/* Its own line of help, then the values in rows. */
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
        strbuf_clear(&s->menu);
        if (!command)
            attach_describe(conversation_info(s->conversation), line, len, &s->menu);
        else if (memchr(line, ' ', len))
            values_add(&s->menu, s, line, len);
        else
            commands_add(&s->menu, line, len);
    }
    return s->menu.len && !s->menu.failed ? s->menu.data : NULL;
}
