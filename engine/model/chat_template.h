/* The chat format, taken from the model's own template (tokenizer_config.json, chat_template.jinja, GGUF tokenizer.chat_template): a Jinja
 * subset is executed; where it is missing or asks for more, the family's built-in format is used and a notice says so.
 * The frame's special tokens are encoded as such; message contents are encoded without special tokens. Any thread; the template is immutable. */
#ifndef ENGINE_MODEL_CHAT_TEMPLATE_H
#define ENGINE_MODEL_CHAT_TEMPLATE_H

#include "engine/model/jinja.h"
#include "engine/model/message.h"
#include "engine/model/tokenizer.h"

struct chat_template;

int chat_template_load(struct chat_template **out, const struct weight_file *f, const struct tokenizer *t, const struct jinja_stop *stop,
                       struct error *e);
void chat_template_free(struct chat_template *c);
/* NULL: the model's own template runs; else one line why the built-in one does. */
const char *chat_template_notice(const struct chat_template *c);
/* Rendered text as the reference gives it (tests, /show prompt). mem_* memory. */
int chat_template_render(const struct chat_template *c, const struct message *m, size_t n, bool add_generation_prompt,
                         const struct jinja_stop *stop, char **text, struct error *e);
/* Ids: contents never become special tokens. starts (may be NULL): n + 1 offsets into ids where each message begins, then the
 * generation prompt; they cost one more rendering, whatever n is. stop: who may end it (NULL: nobody; ERR_CANCELLED). mem_* memory. */
int chat_template_encode(const struct chat_template *c, const struct message *m, size_t n, bool add_generation_prompt,
                         const struct jinja_stop *stop, int **ids, int *n_ids, int *starts, struct error *e);

#endif
