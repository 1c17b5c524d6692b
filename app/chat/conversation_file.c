/* The file of a conversation, and operations on its transcript as a whole: saving, copies, other
 * chats, truncating, loading. UI thread. */
#include "app/chat/internal.h"
#include "app/chat/report.h"
#include "engine/base/mem.h"
#include "engine/base/path.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Starts a file for a new or loaded chat. */
void conversation_file_begin(struct conversation *c)
{
    struct error e = {0};

    c->exports = (struct chat_exports){0};
    if (c->hooks.unkept)
        return;
    if (autosave_name(&c->autosave, &e) < 0)
        conversation_say(c, SAY_NOTICE, "this chat is not saved: %s", e.text);
}

/* The file named by --continue or --chat: 1, 0: neither was given, or negative. */
static int wanted_path(const struct options *o, char *path, size_t size, struct error *e)
{
    struct transcript_info newest;
    const char *name = o->chat && o->chat[0] ? o->chat : NULL;
    int rc;

    if (name && o->go_on)
        return error_set(e, ERR_USAGE, "--continue takes the newest chat: leave it out or --chat");
    if (!name && !(o->go_on && transcript_newest(&newest)))
        return 0;
    if ((rc = transcript_named_path(name ? name : newest.name, path, size, e)) < 0)
        return rc;
    if (strlen(path) + 8 > size ||
        (name && strlen(name) > 3 && !strcmp(name + strlen(name) - 3, ".md")))
        return error_set(e, ERR_USAGE, "--chat %.60s: a chat is kept as NAME or FILE.json", name);
    return 1;
}

/* The greeting line of a resumed chat. */
static void opened_text(struct conversation *c, const char *path)
{
    const char *name = path_name(path);
    size_t len = path_stem(name, ".json"), n = c->transcript.n;
    struct stat st;
    char ago[32];

    len = len ? len : strlen(name);
    if (stat(path, &st) < 0)
        return;
    snprintf(c->opened, sizeof c->opened, "%.*s goes on: %zu message%s, last used %s",
             len < 80 ? (int)len : 80, name, n, n == 1 ? "" : "s",
             transcript_ago((int64_t)st.st_mtime, (int64_t)time(NULL), ago));
}

int conversation_file_open(struct conversation *c, struct error *e)
{
    char path[PATH_MAX];
    int rc = wanted_path(c->options, path, sizeof path, e);

    if (rc < 0)
        return rc;
    if (rc == 0) {
        conversation_file_begin(c);
        if (c->options->go_on)
            snprintf(c->opened, sizeof c->opened, "no saved chats yet: this is the first one");
        return 0;
    }
    c->hooks.unkept = false;
    if (access(path, F_OK) == 0) {
        if ((rc = transcript_load(&c->transcript, path, e)) < 0)
            return rc;
        autosave_recover(&c->transcript, path);
        opened_text(c, path);
    }
    if (autosave_take(&c->autosave, path))
        return 0;
    conversation_file_begin(c);
    conversation_say(c, SAY_NOTICE,
                     "another moetop has this chat open: what is said here goes into a copy");
    return 0;
}

const char *conversation_greeting(struct conversation *c)
{
    struct transcript_info last;
    const char *title;
    size_t len;
    char ago[32];
    const struct transcript *t = &c->transcript;

    if (!c->opened[0] && !c->hooks.unkept && transcript_last(t, ROLE_USER) == t->n &&
        transcript_newest(&last)) {
        title = transcript_is_named(&last) || !last.title[0] ? last.name : last.title;
        len = strlen(title);
        len -= len > 1 && title[len - 1] == '.'; /* a comma follows */
        snprintf(c->opened, sizeof c->opened, "last chat: %.*s, %s · /load 1", (int)len, title,
                 transcript_ago(last.changed, (int64_t)time(NULL), ago));
    }
    return c->opened;
}

bool conversation_goes_on(const struct conversation *c)
{
    return transcript_last(&c->transcript, ROLE_USER) < c->transcript.n;
}

int conversation_save(struct conversation *c, struct error *e)
{
    return autosave_write(&c->autosave, &c->transcript, e);
}

void conversation_keep(struct conversation *c)
{
    if (!c->hooks.unkept)
        return;
    c->hooks.unkept = false;
    conversation_file_begin(c);
}

int conversation_chats(struct conversation *c, const char *words,
                       const struct transcript_info **out, size_t *n, struct error *e)
{
    size_t kept = 0;
    int rc = 0;

    assert(out && n);
    if (words || !c->chats) {
        const char *own = strrchr(c->autosave.path, '/');

        mem_free(c->chats);
        rc = transcript_search(words, &c->chats, &c->n_chats, e);
        for (size_t i = 0; i < c->n_chats; i++) {
            size_t len = strlen(c->chats[i].name);

            if (!own || strncmp(own + 1, c->chats[i].name, len) != 0 ||
                strcmp(own + 1 + len, ".json") != 0)
                c->chats[kept++] = c->chats[i];
        }
        c->n_chats = kept;
    }
    *out = c->chats;
    *n = c->n_chats;
    return rc;
}

int conversation_rename(struct conversation *c, const char *name, struct error *e)
{
    char path[PATH_MAX], before[PATH_MAX];
    int rc = transcript_chat_path(name, path, sizeof path, e);

    if (rc < 0)
        return rc;
    conversation_keep(c);
    snprintf(before, sizeof before, "%s", c->autosave.path);
    if (conversation_busy(c))
        return error_set(e, ERR_USAGE, "not while an answer is being written");
    if (access(path, F_OK) == 0)
        return error_set(e, ERR_USAGE, "there is a chat of that name already");
    conversation_turn_save(c);
    if (before[0] && access(before, F_OK) == 0 && (rc = transcript_move(before, path, e)) < 0)
        return rc;
    return autosave_take(&c->autosave, path)
               ? 0
               : error_set(e, ERR_USAGE, "another moetop has a chat of that name open");
}

int conversation_export(struct conversation *c, const char *path, bool replace, struct error *e)
{
    const char *end = strrchr(path, '.');
    char *page;
    int rc;

    if (!end || strcasecmp(end, ".html") != 0)
        return chat_export(&c->exports, &c->transcript, path, replace, e);
    if (!(page = report_page(&c->transcript, conversation_stats(c))))
        return error_set(e, ERR_MEMORY, "out of memory for %s", path);
    rc = chat_export_text(&c->exports, &c->transcript, path, page, strlen(page), replace, e);
    mem_free(page);
    return rc;
}

void conversation_turn_save(struct conversation *c)
{
    struct error e = {0};
    int rc = autosave_write_turn(&c->autosave, &c->transcript, &e);

    if (rc < 0 && !c->save_said)
        conversation_say(c, SAY_TROUBLE, "this chat could not be saved: %s", e.text);
    c->save_said = rc < 0;
}

void conversation_changed(struct conversation *c)
{
    conversation_turn_save(c);
    if (c->hooks.changed)
        c->hooks.changed(c->hooks.ctx);
}

int conversation_fork(struct conversation *c, size_t at)
{
    struct error e = {0};

    c->editing = false;
    if (transcript_fork(&c->transcript, at, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    conversation_changed(c);
    return 0;
}

int conversation_system(struct conversation *c, const char *text)
{
    struct error e = {0};

    if (transcript_system(&c->transcript, text, &e) < 0) {
        conversation_say(c, SAY_TROUBLE, "%s", e.text);
        return -1;
    }
    conversation_changed(c);
    return 0;
}

/* In another chat every tool is asked about again. */
static void ask_again(struct conversation *c)
{
    if (c->tools.mcp)
        mcp_always_none(c->tools.mcp);
}

void conversation_new(struct conversation *c)
{
    size_t keep = c->transcript.n && c->transcript.entries[0].role == ROLE_SYSTEM ? 1 : 0;

    conversation_turn_save(c);
    c->editing = false;
    c->n_undone = 0;
    c->dropped = 0;
    ask_again(c);
    transcript_truncate(&c->transcript, keep);
    transcript_tails_release(&c->transcript.waiting);
    conversation_file_begin(c);
    conversation_notify(c, (struct command){.kind = COMMAND_CLEAR});
    prompt_history_clear(&c->prompter.history);
    conversation_changed(c);
}

int conversation_load(struct conversation *c, const char *path, struct error *e)
{
    int rc;

    conversation_turn_save(c);
    if ((rc = transcript_load(&c->transcript, path, e)) < 0)
        return rc;
    c->editing = false;
    c->n_undone = 0;
    c->dropped = 0;
    ask_again(c);
    autosave_recover(&c->transcript, path);
    /* continuing does not change the file that was read */
    conversation_file_begin(c);
    conversation_changed(c);
    return 0;
}

const struct transcript *conversation_transcript(const struct conversation *c)
{
    return &c->transcript;
}

const char *conversation_path(const struct conversation *c)
{
    return c->autosave.path;
}
