/* /vote: which of the two answers of --beside was better. UI thread. */
#include "app/chat/commands/internal.h"

#include <string.h>

int chat_vote(struct conversation *c, const char *arguments)
{
    static const char *const votes[] = {"1", "2", "both", "neither"};
    char word[16];

    chat_word_take(&arguments, word, sizeof word);
    for (size_t i = 0; i < sizeof votes / sizeof *votes; i++)
        if (strcmp(word, votes[i]) == 0)
            return conversation_vote(c, votes[i], arguments);
    conversation_say(c, SAY_NOTICE,
                     "/vote 1 or 2: that answer is better; both or neither: none is; a reason may "
                     "follow");
    return -1;
}
