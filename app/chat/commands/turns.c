/* The slash commands about what is said: /system, /regen, /continue, /undo, /edit, /clear. */
#include "app/chat/commands/internal.h"

#include "engine/run/messages.h"

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
    conversation_say(c, SAY_NOTICE,
                     arguments[0] ? "the system message holds from your next message on"
                                  : "no system message any more");
    return 0;
}

/* Why the new answer may well be the old one. */
static void tell_same(struct conversation *c)
{
    const struct options *o = conversation_options(c);

    if (o->temp == 0)
        conversation_say(
            c, SAY_NOTICE,
            "temp is 0, so the same settings give the same answer; /set temp 0.8 varies it");
    else if (o->seed != OPTION_SEED_RANDOM)
        conversation_say(
            c, SAY_NOTICE,
            "seed is %llu, so the same settings give the same answer; /set seed -1 varies it",
            (unsigned long long)o->seed);
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
    tell_same(c);
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
    if (strcmp(t->entries[t->n - 1].stop, stop_reason_word(STOP_TOKEN)) == 0 &&
        !conversation_options(c)->ignore_eos) {
        conversation_say(c, SAY_NOTICE, "the model had finished: there is nothing to add");
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

    if (chat_busy(c))
        return -1;
    if (at == t->n || !h->edit) {
        conversation_say(c, SAY_NOTICE, "there is no message to edit");
        return -1;
    }
    conversation_edit(c);
    return 0;
}

int chat_clear(struct conversation *c, const char *arguments)
{
    if (chat_busy(c))
        return -1;
    conversation_new(c);
    return 0;
}
