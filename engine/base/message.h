/* One message of a conversation. Plain data. */
#ifndef ENGINE_BASE_MESSAGE_H
#define ENGINE_BASE_MESSAGE_H

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT };

struct message {
    enum role role;
    char *text; /* UTF-8, owned by whoever holds the message */
    /* of an assistant's: what it thought before, owned likewise; NULL: nothing is known */
    char *reasoning;
};

#endif
