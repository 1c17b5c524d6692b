/* Fuzz target: grammars in GBNF, JSON schemas ({) and regular expressions (/). A grammar, or an
 * error with a code and one safe line; every node of it leads to a node or a rule. */
#include "engine/text/grammar/grammar.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

/* Behind a slash: a regular expression, in a schema. */
static int from_pattern(struct grammar **g, const char *text, size_t n, struct error *e)
{
    json_t *pattern = json_stringn(text, n), *schema;
    char *json;
    int rc;

    if (!pattern) /* no UTF-8 */
        return grammar_from_gbnf(g, text, n, e);
    schema = json_pack("{s:s, s:o}", "type", "string", "pattern", pattern);
    json = json_dumps(schema, 0);
    rc = grammar_from_schema(g, json, strlen(json), e);
    free(json);
    json_decref(schema);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error e = {0};
    struct grammar *g;

    const char *text = (const char *)data;
    int rc = size && text[0] == '{'   ? grammar_from_schema(&g, text, size, &e)
             : size && text[0] == '/' ? from_pattern(&g, text + 1, size - 1, &e)
                                      : grammar_from_gbnf(&g, text, size, &e);

    if (rc == 0) {
        must(g->n_nodes <= GRAMMAR_NODES && g->n_rules > 0 && g->alive[g->starts[0]]);
        for (int i = 0; i < g->n_nodes; i++) {
            const struct grammar_node *n = &g->nodes[i];

            must(n->kind <= NODE_RETURN && n->a >= 0 && n->a < g->n_nodes && n->b >= 0 &&
                 n->b < (n->kind == NODE_CALL ? g->n_rules : g->n_nodes));
        }
        grammar_free(g);
    } else {
        must(e.code < 0 && e.text[0] && !strpbrk(e.text, "\n\r\x1b") && !g);
    }
    return 0;
}
