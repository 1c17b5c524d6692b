/* The slash commands about what is said: /system, /regen, /continue, /undo, /edit, /clear. */
#include "app/chat_commands_own.h"

#include "engine/base/mem.h"

#include <string.h>

int chat_system(struct conversation *c, const char *arguments)
{
    if (chat_busy(c))
        return -1;
    if (!arguments[0])
        return chat_show(c, "system");
    if (strcmp(arguments, "none") == 0)
        arguments = "";
    if (conversation_system(c, arguments) < 0)
        return -1;
    conversation_say(c, SAY_NOTICE, arguments[0] ? "the system message holds from your next message on" : "no system message any more");
    return 0;
}

int chat_regen(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    size_t at = transcript_last(t, ROLE_USER);

    if (chat_busy(c))
        return -1;
    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is no answer to make anew");
        return -1;
    }
    conversation_truncate(c, at + 1);
    return conversation_answer(c, false);
}

int chat_continue(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);

    if (chat_busy(c))
        return -1;
    if (!t->n || t->entries[t->n - 1].role != ROLE_ASSISTANT) {
        conversation_say(c, SAY_NOTICE, "there is no answer to continue");
        return -1;
    }
    return conversation_answer(c, true);
}

int chat_undo(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    size_t at = transcript_last(t, ROLE_USER);

    if (chat_busy(c))
        return -1;
    if (at == t->n) {
        conversation_say(c, SAY_NOTICE, "there is nothing to take back");
        return -1;
    }
    return conversation_truncate(c, at);
}

int chat_edit(struct conversation *c, const char *arguments)
{
    const struct transcript *t = conversation_transcript(c);
    const struct conversation_hooks *h = conversation_hooks(c);
    size_t at = transcript_last(t, ROLE_USER);
    char *text;

    if (chat_busy(c))
        return -1;
    if (at == t->n || !h->edit) {
        conversation_say(c, SAY_NOTICE, "there is no message to edit");
        return -1;
    }
    text = mem_string(t->entries[at].text);
    if (!text)
        return -1;
    conversation_truncate(c, at);
    h->edit(h->ctx, text);
    mem_free(text);
    return 0;
}

int chat_clear(struct conversation *c, const char *arguments)
{
    if (chat_busy(c))
        return -1;
    conversation_new(c);
    return 0;
}
