/* The slash commands that save, load and copy chats: /save, /load, /copy. */
#include "app/chat/attach.h"
#include "app/chat/commands/internal.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LISTED 30   /* chats that /load shows */
#define TITLE_AT 24 /* columns before a title in the list */

static int save(struct conversation *c, const char *name, bool replace)
{
    struct error e = {0};
    char path[PATH_MAX];
    int rc;

    if (!name[0]) {
        conversation_keep(c);
        rc = conversation_save(c, &e);
        snprintf(path, sizeof path, "%s", conversation_path(c));
    } else if (!name[strspn(name, "0123456789")]) {
        rc = error_set(&e, ERR_USAGE,
                       "a number is a place in the list of /load; choose another name");
    } else if ((rc = transcript_named_path(name, path, sizeof path, &e)) >= 0) {
        rc = conversation_export(c, path, replace, &e);
    }
    if (rc < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    else if (path[0] && access(path, F_OK) < 0)
        conversation_say(c, SAY_NOTICE, "nothing was said yet: there is nothing to save");
    else
        conversation_say(c, SAY_NOTICE,
                         path[0] ? "saved in %s" : "there is nowhere to save to; /save FILE%s",
                         path);
    return rc < 0 ? -1 : 0;
}

int chat_save(struct conversation *c, const char *arguments)
{
    return save(c, arguments, false);
}

int chat_save_over(struct conversation *c, const char *arguments)
{
    if (!arguments[0]) {
        conversation_say(c, SAY_NOTICE, "/save! FILE: which file is to be replaced?");
        return -1;
    }
    return save(c, arguments, true);
}

/* "  1  22 Nov 14:02    6  the fox: Tell me a story about …": last use, number of messages, name if
 * the user gave one, beginning of the text. */
static void list_line(struct strbuf *b, size_t number, const struct transcript_info *i,
                      size_t columns)
{
    char when[32], title[256];
    time_t changed = (time_t)i->changed;
    bool recent = time(NULL) - changed < 300 * 24 * 3600;
    size_t cut;
    struct tm tm;
    bool named = transcript_is_named(i);

    localtime_r(&changed, &tm);
    strftime(when, sizeof when, recent ? "%d %b %H:%M" : "%d %b %Y", &tm);
    snprintf(title, sizeof title, "%s%s%s", named ? i->name : "", named ? ": " : "",
             i->title[0] ? i->title : "(nothing said)");
    if (utf8_width(title, strlen(title)) > columns) {
        cut = utf8_fit(title, strlen(title), columns - 1, NULL);
        snprintf(title + cut, sizeof title - cut, "\u2026");
    }
    strbuf_printf(b, "%3zu  %-12s %4zu  %s\n", number, when, i->n, title);
}

/* words: only chats that contain them. */
static int list_chats(struct conversation *c, const char *words)
{
    const struct transcript_info *all;
    struct error e = {0};
    struct strbuf b = {0};
    size_t n;

    if (conversation_chats(c, words, &all, &n, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    if (n)
        strbuf_printf(&b, "     used last messages  beginning\n");
    for (size_t i = 0; i < n && i < LISTED; i++)
        list_line(&b, i + 1, &all[i], chat_columns(c, TITLE_AT));
    if (n > LISTED)
        strbuf_printf(&b, "     and %zu older ones; /chats WORDS finds them\n", n - LISTED);
    strbuf_puts(&b, n          ? "/load N reads one of them; /rename N NAME, /delete N"
                    : words[0] ? "these words were said in no saved chat"
                               : "no saved chats yet");
    return chat_output(c, &b);
}

int chat_chats(struct conversation *c, const char *arguments)
{
    return list_chats(c, arguments);
}

/* A number is an index into the list as last shown. */
static int chosen_path(struct conversation *c, const char *name, char *path, size_t size,
                       struct error *e)
{
    const struct transcript_info *all;
    unsigned long at;
    size_t n;
    int rc;

    if (name[strspn(name, "0123456789")])
        return transcript_named_path(name, path, size, e);
    if ((rc = conversation_chats(c, NULL, &all, &n, e)) < 0)
        return rc;
    at = strtoul(name, NULL, 10);
    if (at < 1 || at > n)
        return error_set(e, ERR_USAGE, "there is no chat number %.20s; /load lists them", name);
    return transcript_named_path(all[at - 1].name, path, size, e);
}

int chat_read(struct conversation *c, const char *arguments)
{
    const struct conversation_hooks *h = conversation_hooks(c);
    struct error e = {0};
    char *text, count[96];
    size_t n;

    if (!arguments[0]) {
        conversation_say(c, SAY_NOTICE, "/read FILE: which file?");
        return -1;
    }
    if (attach_read(arguments, &text, &n, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    attach_count(conversation_info(c), text, n, count, sizeof count);
    conversation_say(c, SAY_NOTICE, "%s: %s; Enter sends it", arguments, count);
    if (h->edit)
        h->edit(h->ctx, text);
    mem_free(text);
    return 0;
}

void chat_complete_files(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n)
{
    const char *name = word + (word[0] == '@'), *slash = strrchr(name, '/');
    size_t folder = slash ? (size_t)(slash - name) + 1 : 0;
    char path[PATH_MAX], found[PATH_MAX + 256];
    struct dirent *d;
    struct stat st;
    DIR *dir;

    snprintf(path, sizeof path, "%.*s", folder ? (int)folder : 1, folder ? name : ".");
    dir = opendir(path);
    for (int left = 500; dir && left > 0 && (d = readdir(dir)); left--) {
        if (d->d_name[0] == '.' && name[folder] != '.')
            continue;
        snprintf(found, sizeof found, "%.*s%s", (int)folder, name, d->d_name);
        if (stat(found, &st) < 0)
            continue;
        snprintf(found, sizeof found, "%s%.*s%s%s", word[0] == '@' ? "@" : "", (int)folder, name,
                 d->d_name, S_ISDIR(st.st_mode) ? "/" : "");
        chat_completion_add(list, n, found, word);
    }
    if (dir)
        closedir(dir);
}

int chat_load(struct conversation *c, const char *arguments)
{
    struct error e = {0};
    char path[PATH_MAX];
    size_t n;

    if (chat_busy(c))
        return -1;
    if (!arguments[0])
        return list_chats(c, "");
    if (chosen_path(c, arguments, path, sizeof path, &e) < 0 ||
        conversation_load(c, path, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    n = conversation_transcript(c)->n;
    conversation_say(c, SAY_NOTICE, "%s is loaded: %zu message%s", arguments, n, n == 1 ? "" : "s");
    conversation_end_say(c);
    return 0;
}

/* The file of number N of the list. 0, or -1 with a notice. */
static int numbered_path(struct conversation *c, const char *number, char *path, size_t size)
{
    struct error e = {0};

    if (chosen_path(c, number, path, size, &e) == 0)
        return 0;
    conversation_say(c, SAY_TROUBLE, "%s", e.text);
    return -1;
}

static int rename_other(struct conversation *c, const char *from, const char *name)
{
    struct error e = {0};
    char to[PATH_MAX];
    int fd;

    if (!transcript_lock(from, &fd)) {
        conversation_say(c, SAY_TROUBLE, "another moetop has that chat open: rename it there");
        return -1;
    }
    if (transcript_chat_path(name, to, sizeof to, &e) == 0)
        transcript_move(from, to, &e);
    if (fd >= 0)
        close(fd);
    if (e.code < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    else
        conversation_say(c, SAY_NOTICE, "that chat is called %s now", name);
    return e.code < 0 ? -1 : 0;
}

int chat_rename(struct conversation *c, const char *arguments)
{
    struct error e = {0};
    char number[32] = "", path[PATH_MAX];
    const char *name = arguments;

    if (strspn(arguments, "0123456789") &&
        strchr(" \t", arguments[strspn(arguments, "0123456789")]))
        chat_word_take(&name, number, sizeof number);
    if (!name[0]) {
        conversation_say(c, SAY_NOTICE, "/rename NAME names this chat, /rename N NAME another one");
        return -1;
    }
    if (number[0])
        return numbered_path(c, number, path, sizeof path) < 0 ? -1 : rename_other(c, path, name);
    if (conversation_rename(c, name, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    conversation_say(c, SAY_NOTICE, "this chat is called %s now", name);
    return 0;
}

/* Only by a number in the list shown, so that a mistyped name deletes nothing. */
int chat_delete(struct conversation *c, const char *arguments)
{
    char path[PATH_MAX], part[PATH_MAX + 8];
    int fd;

    if (!arguments[0] || arguments[strspn(arguments, "0123456789")]) {
        conversation_say(c, SAY_NOTICE, "/delete N: a number of the list of /load");
        return -1;
    }
    if (numbered_path(c, arguments, path, sizeof path) < 0)
        return -1;
    if (!transcript_lock(path, &fd)) {
        conversation_say(c, SAY_TROUBLE, "another moetop has that chat open");
        return -1;
    }
    snprintf(part, sizeof part, "%s.part", path);
    if (unlink(path) < 0)
        conversation_say(c, SAY_TROUBLE, "%s: %s", path, strerror(errno));
    else
        conversation_say(c, SAY_NOTICE, "chat %s is deleted; the numbers of the list stay",
                         arguments);
    unlink(part);
    if (fd >= 0)
        close(fd);
    return 0;
}

void chat_complete_chats(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n)
{
    struct transcript_info *all;
    struct error e;
    size_t count, i;

    if (transcript_list(&all, &count, &e) < 0)
        return;
    for (i = 0; i < count; i++)
        chat_completion_add(list, n, all[i].name, word);
    mem_free(all);
}

/* Without control characters and escape sequences, which could act when pasted into a shell. */
static void give(struct conversation *c, const char *text, size_t len)
{
    const struct conversation_hooks *h = conversation_hooks(c);
    size_t n = utf8_strip(NULL, 0, text, len, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
    char *safe = mem_alloc(n + 1, 1);

    if (!safe) {
        conversation_say(c, SAY_TROUBLE, "out of memory");
        return;
    }
    utf8_strip(safe, n + 1, text, len, UTF8_KEEP_NEWLINE | UTF8_KEEP_TAB);
    if (!h->copy || !h->copy(h->ctx, safe, n))
        conversation_say(c, SAY_NOTICE, "this terminal takes no copies");
    else
        conversation_say(c, SAY_NOTICE, "%zu bytes given to the terminal's clipboard", n);
    mem_free(safe);
}

int chat_copy(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    size_t at = transcript_last(t, ROLE_ASSISTANT), len, back = strtoul(arguments, NULL, 10);
    const char *text, *from, *to;
    char *whole = NULL;

    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is no answer to copy");
        return -1;
    }
    if (back > t->n) {
        conversation_say(c, SAY_NOTICE, "the chat has %zu messages; 1 is the newest", t->n);
        return -1;
    }
    text = t->entries[back ? t->n - back : at].text;
    len = strlen(text);
    if (strcmp(arguments, "code") == 0) { /* the last code block */
        for (from = NULL, to = strstr(text, "```"); to; to = strstr(to, "```")) {
            const char *end = strstr(to + 3, "```");

            if (!end)
                break;
            from = to + 3 + strcspn(to + 3, "\n");
            from += *from == '\n';
            len = (size_t)(end - from);
            to = end + 3;
        }
        if (!from) {
            conversation_say(c, SAY_NOTICE, "the answer has no block of code");
            return -1;
        }
        text = from;
    } else if (strcmp(arguments, "all") == 0) {
        FILE *f = open_memstream(&whole, &len);
        struct error e;

        if (!f)
            return -1;
        transcript_print(t, f, &e);
        fclose(f);
        text = whole;
    }
    give(c, text, len);
    free(whole);
    return 0;
}

void chat_complete_copy(struct conversation *c, const char *line, const char *word, char ***list,
                        size_t *n)
{
    chat_completion_add(list, n, "code", word);
    chat_completion_add(list, n, "all", word);
}
