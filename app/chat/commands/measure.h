/* The slash commands that measure, and /place save: they run on the engine's thread between two
 * answers; the chat stays usable. */
#ifndef APP_CHAT_COMMANDS_MEASURE_H
#define APP_CHAT_COMMANDS_MEASURE_H

#include "app/chat/conversation.h"

/* As struct chat_command's run. */
int chat_compare(struct conversation *c, const char *arguments);
int chat_profile(struct conversation *c, const char *arguments);
int chat_suggest(struct conversation *c, const char *arguments);
int chat_place_save(struct conversation *c, const char *name);

#endif
