/* Shared by the files of the slash commands: helpers, and each command's function for the table.
 * Thread: the UI thread. */
#ifndef APP_CHAT_COMMANDS_INTERNAL_H
#define APP_CHAT_COMMANDS_INTERNAL_H

#include "app/chat/conversation.h"
#include "engine/base/strbuf.h"

/* command_line.c */
const char *chat_blank(const char *s); /* skips blanks */
/* The first word of *s; *s is advanced past it and the blanks. */
void chat_word_take(const char **s, char *out, size_t size);
/* prints b as the output of one command, and releases it; 0 */
int chat_output(struct conversation *c, struct strbuf *b);
/* Columns left for a text after `before` columns in a line of output; at least 24. */
size_t chat_columns(const struct conversation *c, int before);
/* Adds word to the completions if it begins with begin. */
void chat_completion_add(char ***list, size_t *n, const char *word, const char *begin);
/* Completions of the option's value. */
void chat_complete_values(const struct option *option, const char *word, char ***list, size_t *n);
/* 1 and a notice while an answer is being written */
int chat_busy(struct conversation *c);

/* As struct chat_command's run. */
int chat_show(struct conversation *c, const char *arguments);
int chat_set(struct conversation *c, const char *arguments);
int chat_set_keep(struct conversation *c, const char *arguments);
int chat_system(struct conversation *c, const char *arguments);
int chat_role(struct conversation *c, const char *arguments);
int chat_regen(struct conversation *c, const char *arguments);
int chat_continue(struct conversation *c, const char *arguments);
int chat_undo(struct conversation *c, const char *arguments);
int chat_redo(struct conversation *c, const char *arguments);
int chat_lens(struct conversation *c, const char *arguments);
int chat_token(struct conversation *c, const char *arguments);
int chat_branches(struct conversation *c, const char *arguments);
int chat_compact(struct conversation *c, const char *arguments);
int chat_edit(struct conversation *c, const char *arguments);
int chat_clear(struct conversation *c, const char *arguments);
int chat_save(struct conversation *c, const char *arguments);
int chat_save_over(struct conversation *c, const char *arguments);
int chat_read(struct conversation *c, const char *arguments);
int chat_load(struct conversation *c, const char *arguments);
int chat_chats(struct conversation *c, const char *arguments);
int chat_rename(struct conversation *c, const char *arguments);
int chat_delete(struct conversation *c, const char *arguments);
int chat_copy(struct conversation *c, const char *arguments);
int chat_place(struct conversation *c, const char *arguments);
int chat_model(struct conversation *c, const char *arguments);
int chat_lora(struct conversation *c, const char *arguments);
int chat_experts_used(struct conversation *c, const char *arguments);
int chat_vote(struct conversation *c, const char *arguments);
int chat_expert_edit(struct conversation *c, const char *arguments);
int chat_kv(struct conversation *c, const char *arguments);
int chat_routing_trace(struct conversation *c, const char *arguments);
int chat_mcp(struct conversation *c, const char *arguments);
int chat_log(struct conversation *c, const char *arguments);
int chat_stats(struct conversation *c, const char *arguments);
int chat_cache(struct conversation *c, const char *arguments);
int chat_doctor(struct conversation *c, const char *arguments);
int chat_experts(struct conversation *c, const char *arguments);
int chat_quit(struct conversation *c, const char *arguments);

/* As struct chat_command's complete. */
void chat_complete_options(struct conversation *c, const char *line, const char *word, char ***list,
                           size_t *n);
void chat_complete_show(struct conversation *c, const char *line, const char *word, char ***list,
                        size_t *n);
void chat_complete_chats(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n);
/* names of files and folders; a leading @ of the word is kept */
void chat_complete_files(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n);
void chat_complete_mcp(struct conversation *c, const char *line, const char *word, char ***list,
                       size_t *n);
void chat_complete_roles(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n);
void chat_complete_models(struct conversation *c, const char *line, const char *word, char ***list,
                          size_t *n);
void chat_complete_copy(struct conversation *c, const char *line, const char *word, char ***list,
                        size_t *n);
void chat_complete_place(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n);

#endif
