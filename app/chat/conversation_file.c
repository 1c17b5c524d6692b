/* The file of a conversation, and what is done to its transcript as a whole: saving, copies, other
 * chats, cutting, reading. UI thread. */
#include "app/chat/internal.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <string.h>

/* A chat begins, or one that was read goes on: in a file of its own. */
void conversation_file_begin(struct conversation *c)
{
    struct error e = {0};

    c->exports = (struct chat_exports){0};
    if (c->hooks.unkept)
        return;
    if (autosave_name(&c->autosave, &e) < 0)
        conversation_say(c, SAY_NOTICE, "this chat is not saved: %s", e.text);
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

int conversation_chats(struct conversation *c, bool fresh, const struct transcript_info **out,
                       size_t *n, struct error *e)
{
    size_t kept = 0;
    int rc = 0;

    assert(out && n);
    if (fresh || !c->chats) {
        const char *own = strrchr(c->autosave.path, '/');

        mem_free(c->chats);
        rc = transcript_list(&c->chats, &c->n_chats, e);
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

int conversation_export(struct conversation *c, const char *path, bool replace, struct error *e)
{
    return chat_export(&c->exports, &c->transcript, path, replace, e);
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

int conversation_truncate(struct conversation *c, size_t n)
{
    assert(n <= c->transcript.n);
    c->editing = false;
    transcript_truncate(&c->transcript, n);
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

void conversation_new(struct conversation *c)
{
    size_t keep = c->transcript.n && c->transcript.entries[0].role == ROLE_SYSTEM ? 1 : 0;

    conversation_turn_save(c);
    c->editing = false;
    transcript_truncate(&c->transcript, keep);
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
    autosave_recover(&c->transcript, path);
    /* going on leaves the file that was read as it is */
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
