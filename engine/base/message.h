/* One message of a conversation. Plain data. */
#ifndef ENGINE_BASE_MESSAGE_H
#define ENGINE_BASE_MESSAGE_H

enum role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL };
#define ROLES 4

struct json_t;

struct message {
    enum role role;
    char *text; /* UTF-8, owned by whoever holds the message */
    /* of an assistant's: its thoughts before it, owned likewise; NULL: unknown */
    char *reasoning;
    /* further variables for the chat template: tool_calls, tool_call_id, name; a JSON object, whose
     * members override those above ("content": null means no text), owned likewise; NULL: none */
    struct json_t *members;
};

/* "system", "user", "assistant", "tool": as APIs and templates call them. */
static inline const char *role_word(enum role r)
{
    static const char *const words[ROLES] = {"system", "user", "assistant", "tool"};

    return words[r];
}

#endif
