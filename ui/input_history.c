/* See input_history.h. */
#include "ui/input_history.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <fcntl.h>
#include <stdio.h>
#include <readline/history.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HISTORY_MOST 2000          /* lines */
#define FILE_MOST ((off_t)1 << 20) /* bytes, beyond which it is cut to that many lines */

static char *history_file; /* mem_*; NULL: none */

void input_history_open(const char *file)
{
    struct stat st;

    using_history();
    stifle_history(HISTORY_MOST);
    history_comment_char = '#';
    /* with timestamps a message of several lines stays one entry */
    history_write_timestamps = 1;
    if (!file || !file[0] || !(history_file = mem_string(file)))
        return;
    if (stat(file, &st) == 0 && st.st_size > FILE_MOST)
        history_truncate_file(file, HISTORY_MOST);
    read_history(file);
}

/* Readline's own append is not a single write. */
static void append(const char *text)
{
    int fd = open(history_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    struct strbuf entry = {0};

    strbuf_printf(&entry, "#%lld\n%s\n", (long long)time(NULL), text);
    if (fd >= 0 && !entry.failed && write(fd, entry.data, entry.len) < 0) {
        /* kept for this run only */
    }
    if (fd >= 0)
        close(fd);
    strbuf_release(&entry);
}

void input_history_add(const char *text)
{
    HIST_ENTRY *last = history_length > 0 ? history_get(history_base + history_length - 1) : NULL;

    if (!text[0] || (last && strcmp(last->line, text) == 0))
        return;
    add_history(text);
    if (history_file)
        append(text);
}

void input_history_close(void)
{
    clear_history();
    mem_free(history_file);
    history_file = NULL;
}
