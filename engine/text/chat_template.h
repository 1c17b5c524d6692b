/* The chat format, taken from the model's own template (tokenizer_config.json, chat_template.jinja,
 * GGUF tokenizer.chat_template) or from what the user gave instead: a Jinja subset is executed. A
 * template that is wrong or asks for more is an error; where a model has none, Phi's format is used
 * and a notice says so. The frame's special tokens are encoded as such; message contents are
 * encoded without special tokens. Any thread; the template is immutable. */
#ifndef ENGINE_TEXT_CHAT_TEMPLATE_H
#define ENGINE_TEXT_CHAT_TEMPLATE_H

#include "engine/text/jinja/jinja.h"
#include "engine/base/message.h"
#include "engine/text/answer_parts.h"
#include "engine/text/chat_tools.h"
#include "engine/text/tokenizer.h"

struct chat_template;

/* All may be NULL. */
struct chat_template_options {
    /* a built-in format instead of the model's template (engine/text/chat_formats.h), */
    const char *name;
    const char *file; /* or a file's template; it goes before name */
    /* a JSON object whose members the template finds by name: {"enable_thinking": false} */
    const char *globals;
    time_t now;              /* what it takes for the present; 0: the clock */
    const struct stop *stop; /* who may end the first rendering */
};

/* ERR_MODEL: the template cannot be used, with the remedy; ERR_IO: the file; ERR_USAGE: the name or
 * the globals; ERR_CANCELLED, ERR_MEMORY. o may be NULL. */
int chat_template_load(struct chat_template **out, const struct weight_file *f,
                       const struct tokenizer *t, const struct chat_template_options *o,
                       struct error *e);
void chat_template_free(struct chat_template *c);
/* NULL: the model's own template runs, or the one asked for; else one line: the model has none. */
const char *chat_template_notice(const struct chat_template *c);
/* Its text; "": the model has none. Points into the template. */
const char *chat_template_source(const struct chat_template *c);
/* Does the template ask for a value of this name ("enable_thinking")? */
bool chat_template_asks(const struct chat_template *c, const char *name);
/* What it knows of tools, found by trying it out. */
struct chat_tools chat_template_tools(const struct chat_template *c);
/* How answers to it mark what they are made of. */
struct answer_format chat_template_answers(const struct chat_template *c);
/* Tokens that end an answer in every model that has them as control tokens, whatever its files say:
 * calls fn for each that t has. */
void chat_template_ends(const struct tokenizer *t, void (*fn)(void *ctx, int id), void *ctx);
/* Rendered text as the reference gives it (tests, --print-prompt). given, here and below: an object
 * whose members the template finds by name, before those of the options ("tools", what a request
 * says); NULL: none. mem_* memory. */
int chat_template_render(const struct chat_template *c, const struct message *m, size_t n,
                         const json_t *given, bool add_generation_prompt, const struct stop *stop,
                         char **text, struct error *e);
/* Ids: contents and what is given never become special tokens. starts (may be NULL): n + 1 offsets
 * into ids where each message begins, then the generation prompt; they cost one more rendering,
 * whatever n is. stop: who may end it (NULL: nobody; ERR_CANCELLED). mem_* memory. */
int chat_template_encode(const struct chat_template *c, const struct message *m, size_t n,
                         const json_t *given, bool add_generation_prompt, const struct stop *stop,
                         int **ids, int *n_ids, int *starts, struct error *e);
/* Which line of the template (from 1) wrote the id of number `at`: *line, 0 where none can be told.
 * Of the same rendering as chat_template_encode's; *its: the text of that line, without blanks
 * around it, mem_* memory (NULL: none). ERR_INPUT, ERR_MEMORY as there. */
int chat_template_line(const struct chat_template *c, const struct message *m, size_t n,
                       const json_t *given, bool add_generation_prompt, int at, int *line,
                       char **its, struct error *e);

#endif
