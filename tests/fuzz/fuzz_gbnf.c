/* Fuzz target: grammars in GBNF. A grammar, or an error with a code and one safe line; every
 * node of it leads to a node or a rule. */
#include "engine/text/grammar/grammar.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error e = {0};
    struct grammar *g;

    if (grammar_from_gbnf(&g, (const char *)data, size, &e) == 0) {
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
