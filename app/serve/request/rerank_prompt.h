/* The question whether a document answers a query, as the model was trained to read it, and the
 * tokens of its answers. The template is a text with {query} and {document}: that of
 * --rerank-template-file, or GGUF's tokenizer.chat_template.rerank. Request thread. */
#ifndef APP_SERVE_REQUEST_RERANK_PROMPT_H
#define APP_SERVE_REQUEST_RERANK_PROMPT_H

#include "app/serve/request/job.h"

#define RERANK_TEMPLATE_BYTES ((size_t)64 << 10) /* most of a template */

struct rerank {
    const char *text; /* the template: the server's or the model's */
    size_t n;
    int yes, no; /* ids */
};

/* -1: there is no template, or no single token for "yes" or "no". */
int rerank_of(const struct job *j, struct rerank *out, struct refusal *r);
/* query and document: strings, in which no control token counts. p->ids are mem_* memory. */
int rerank_prompt(const struct job *j, const struct rerank *k, const json_t *query,
                  const json_t *document, struct prompt *p, struct refusal *r);
/* Whether it is a template: {query} and {document} are in it. */
bool rerank_template_is(const char *text, size_t n);

#endif
