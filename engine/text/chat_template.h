/* The chat format, taken from the model's own template (tokenizer_config.json, chat_template.jinja,
 * GGUF tokenizer.chat_template) or from the user's replacement: a Jinja subset is executed. A
 * template that is wrong or needs more is an error; if a model has none, Phi's format is used, with
 * a notice. The frame's special tokens are encoded as such; message contents are encoded without
 * special tokens. Any thread; the template is immutable. */
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
    const char *file; /* or a template file; takes precedence over name */
    /* a JSON object whose members are variables of the template: {"enable_thinking": false} */
    const char *globals;
    time_t now;              /* current time for the template; 0: the clock */
    const struct stop *stop; /* may abort the first rendering */
};

/* ERR_MODEL: the template cannot be used, with the remedy; ERR_IO: the file; ERR_USAGE: the name or
 * the globals; ERR_CANCELLED, ERR_MEMORY. o may be NULL. */
int chat_template_load(struct chat_template **out, const struct weight_file *f,
                       const struct tokenizer *t, const struct chat_template_options *o,
                       struct error *e);
void chat_template_free(struct chat_template *c);
/* NULL: the model's own template is used, or the requested one; else one line: the model has
 * none. */
const char *chat_template_notice(const struct chat_template *c);
/* Its text; "": the model has none. Points into the template. */
const char *chat_template_source(const struct chat_template *c);
/* Whether the template reads a variable of this name ("enable_thinking"). */
bool chat_template_asks(const struct chat_template *c, const char *name);
/* Its support of tools, found by trial renderings. */
struct chat_tools chat_template_tools(const struct chat_template *c);
/* The markers of parts in its answers. */
struct answer_format chat_template_answers(const struct chat_template *c);
/* End-of-answer tokens of every model that has them as control tokens, whatever its files say:
 * calls fn for each that t has. */
void chat_template_ends(const struct tokenizer *t, void (*fn)(void *ctx, int id), void *ctx);
/* Rendered text as in the reference (tests, --print-prompt). given, here and below: an object whose
 * members are variables of the template, before those of the options ("tools", from a request);
 * NULL: none. mem_* memory. */
int chat_template_render(const struct chat_template *c, const struct message *m, size_t n,
                         const json_t *given, bool add_generation_prompt, const struct stop *stop,
                         char **text, struct error *e);
/* Ids: contents and `given` never become special tokens. starts (may be NULL): n + 1 offsets into
 * ids where each message starts, then the generation prompt; they cost one more rendering, whatever
 * n is. stop: may abort it (NULL: none; ERR_CANCELLED). mem_* memory. */
int chat_template_encode(const struct chat_template *c, const struct message *m, size_t n,
                         const json_t *given, bool add_generation_prompt, const struct stop *stop,
                         int **ids, int *n_ids, int *starts, struct error *e);
/* The line of the template (from 1) that wrote id number `at`: *line, 0 if unknown. For the same
 * rendering as chat_template_encode; *its: the text of that line, trimmed, mem_* memory (NULL:
 * none). ERR_INPUT, ERR_MEMORY as there. */
int chat_template_line(const struct chat_template *c, const struct message *m, size_t n,
                       const json_t *given, bool add_generation_prompt, int at, int *line,
                       char **its, struct error *e);

#endif
