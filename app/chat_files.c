/* The slash commands that give the chat away or take one back: /save, /load, /copy. */
#include "app/chat_commands_own.h"

#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/base/utf8.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int save(struct conversation *c, const char *name, bool replace)
{
    struct error e = {0};
    char path[PATH_MAX];
    int rc;

    if (!name[0]) {
        rc = conversation_save(c, &e);
        snprintf(path, sizeof path, "%s", conversation_path(c));
    } else if ((rc = transcript_named_path(name, path, sizeof path, &e)) >= 0) {
        rc = conversation_export(c, path, replace, &e);
    }
    if (rc < 0)
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
    else
        conversation_say(c, SAY_NOTICE, path[0] ? "saved in %s" : "there is nowhere to save to; /save FILE%s", path);
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

int chat_load(struct conversation *c, const char *arguments)
{
    struct transcript_info *all;
    struct error e = {0};
    struct strbuf b = {0};
    char path[4096];
    size_t n, i;

    if (chat_busy(c))
        return -1;
    if (!arguments[0]) {
        if (transcript_list(&all, &n, &e) < 0) {
            conversation_say(c, SAY_TROUBLE, "%s", e.text);
            return -1;
        }
        for (i = 0; i < n && i < 30; i++)
            strbuf_printf(&b, "%-22s %3zu messages  %s\n", all[i].name, all[i].n, all[i].title);
        if (!n)
            strbuf_puts(&b, "no saved chats yet");
        mem_free(all);
        return chat_output(c, &b);
    }
    if (transcript_named_path(arguments, path, sizeof path, &e) < 0 || conversation_load(c, path, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    n = conversation_transcript(c)->n;
    conversation_say(c, SAY_NOTICE, "%s is loaded: %zu message%s", arguments, n, n == 1 ? "" : "s");
    return 0;
}

void chat_complete_chats(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
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

/* Without control characters and escape sequences: what is pasted into a shell must not act. */
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
    size_t at = transcript_last(t, ROLE_ASSISTANT), len;
    const char *text, *from, *to;
    char *whole = NULL;

    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is no answer to copy");
        return -1;
    }
    text = t->entries[at].text;
    len = strlen(text);
    if (strcmp(arguments, "code") == 0) {                        /* the last block of code */
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

void chat_complete_copy(struct conversation *c, const char *line, const char *word, char ***list, size_t *n)
{
    chat_completion_add(list, n, "code", word);
    chat_completion_add(list, n, "all", word);
}
