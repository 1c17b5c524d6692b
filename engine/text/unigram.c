/* See unigram.h. */
#include "engine/text/unigram.h"

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

#define UNREACHED UINT32_MAX
#define UNKNOWN_PENALTY 10.0 /* an unknown character scores that much less than the worst piece */

static void reach(struct unigram_node *at, double score, size_t from, int id)
{
    if (at->from == UNREACHED || score > at->score)
        *at = (struct unigram_node){score, (uint32_t)from, id};
}

/* Adds every piece that begins at text[i]; true: one of them is the character of `size` bytes
 * there. */
static bool reach_pieces(struct unigram *u, const struct tokenizer *t, const char *text, size_t len,
                         size_t i, size_t size)
{
    int32_t node = t->words.first[(unsigned char)text[i]];
    bool single = false;

    for (size_t j = i; node;) {
        const struct trie_node *n = &t->words.nodes[node];

        j++;
        if (n->added >= 0) {
            reach(&u->nodes[j], u->nodes[i].score + t->scores[n->added], i, n->added);
            single = single || j - i == size;
        }
        if (j == len)
            break;
        for (node = n->child; node && t->words.nodes[node].byte != (unsigned char)text[j];
             node = t->words.nodes[node].sibling)
            ;
    }
    return single;
}

/* Reverses the links of the best path. */
static void turn_round(struct unigram_node *nodes, size_t len)
{
    uint32_t end = (uint32_t)len;
    struct unigram_node at = nodes[len];

    while (end > 0) {
        uint32_t from = at.from;
        struct unigram_node before = nodes[from];

        nodes[from].from = end;
        nodes[from].id = at.id;
        at = before;
        end = from;
    }
}

int unigram_cut(struct unigram *u, const struct tokenizer *t, const char *text, size_t len,
                int (*step)(void *ctx), void *ctx, struct error *e)
{
    size_t size;
    int status = 0;

    if (len + 1 > u->size) {
        if (!MEM_FIT(u->nodes, len + 1))
            return error_set(e, ERR_MEMORY, "out of memory for %zu bytes of text", len);
        u->size = len + 1;
    }
    for (size_t i = 0; i <= len; i++)
        u->nodes[i] = (struct unigram_node){0.0, UNREACHED, UNIGRAM_UNKNOWN};
    for (size_t i = 0; i < len && status == 0; i += size) {
        uint32_t cp;
        bool valid;

        size = utf8_decode_strict(text + i, len - i, &cp, &valid);
        if (!valid)
            size = 1;
        if (!reach_pieces(u, t, text, len, i, size))
            reach(&u->nodes[i + size], u->nodes[i].score + t->worst - UNKNOWN_PENALTY, i,
                  UNIGRAM_UNKNOWN);
        status = step(ctx);
    }
    if (status == 0)
        turn_round(u->nodes, len);
    return status;
}
