/* See vocabulary.h. */
#include "engine/text/grammar/vocabulary.h"

#include "engine/base/mem.h"

#include <stdlib.h>
#include <string.h>

struct token_text {
    const char *text;
    int n, id;
};

static int by_text(const void *a, const void *b)
{
    const struct token_text *x = a, *y = b;
    int order = memcmp(x->text, y->text, (size_t)(x->n < y->n ? x->n : y->n));

    return order ? order : x->n != y->n ? x->n - y->n : x->id - y->id;
}

/* Texts of all tokens with text, in *pool; returns how many, -1: no memory. */
static int gather(const struct tokenizer *t, int n_vocab, struct token_text *texts, char **pool)
{
    char one[VOCABULARY_DEPTH];
    size_t total = 0;
    int n = 0;

    for (int id = 0; id < n_vocab; id++) {
        size_t len = tokenizer_token_text(t, id, one, sizeof one);

        total += len <= sizeof one ? len : 0;
    }
    if (!(*pool = mem_alloc(total + 1, 1)))
        return -1;
    total = 0;
    for (int id = 0; id < n_vocab; id++) {
        size_t len = tokenizer_token_text(t, id, one, sizeof one);

        if (!len || len > sizeof one)
            continue;
        memcpy(*pool + total, one, len);
        texts[n++] = (struct token_text){*pool + total, (int)len, id};
        total += len;
    }
    return n;
}

static int common(const struct token_text *a, const struct token_text *b)
{
    int i = 0;

    while (i < a->n && i < b->n && a->text[i] == b->text[i])
        i++;
    return i;
}

static int fill(struct grammar_vocabulary *v, const struct token_text *texts, int n)
{
    int path[VOCABULARY_DEPTH], depth = 0; /* nodes of the current path */
    size_t need = 0;

    for (int i = 0; i < n; i++)
        need += (size_t)(texts[i].n - (i ? common(&texts[i - 1], &texts[i]) : 0));
    if (!(v->nodes = mem_alloc(need + 1, sizeof *v->nodes)))
        return -1;
    for (int i = 0; i < n; i++) {
        int shared = i ? common(&texts[i - 1], &texts[i]) : 0;

        while (depth > shared) {
            depth--;
            v->nodes[path[depth]].skip = v->n_nodes - path[depth];
        }
        while (depth < texts[i].n) {
            v->nodes[v->n_nodes] = (struct vocabulary_node){0, -1, (uint8_t)texts[i].text[depth],
                                                            (uint8_t)depth};
            path[depth++] = v->n_nodes++;
        }
        v->same[texts[i].id] = v->nodes[path[depth - 1]].token;
        v->nodes[path[depth - 1]].token = texts[i].id;
    }
    while (depth-- > 0)
        v->nodes[path[depth]].skip = v->n_nodes - path[depth];
    return 0;
}

int grammar_vocabulary_new(struct grammar_vocabulary **out, const struct tokenizer *t, int n_vocab,
                           const int *stops, int n_stops, struct error *e)
{
    struct grammar_vocabulary *v = mem_alloc(1, sizeof *v);
    struct token_text *texts = mem_alloc((size_t)n_vocab, sizeof *texts);
    char *pool = NULL;
    int n = -1;

    *out = NULL;
    if (v && texts) {
        *v = (struct grammar_vocabulary){.tokenizer = t, .n_vocab = n_vocab};
        v->same = mem_alloc((size_t)n_vocab, sizeof *v->same);
        v->stops = mem_alloc((size_t)n_stops + 1, sizeof *v->stops);
        if (v->same && v->stops)
            n = gather(t, n_vocab, texts, &pool);
    }
    if (n >= 0) {
        for (int i = 0; i < n_stops; i++)
            if (stops[i] >= 0 && stops[i] < n_vocab)
                v->stops[v->n_stops++] = stops[i];
        for (int i = 0; i < n; i++) /* end-of-answer tokens, whatever their text */
            for (int k = 0; k < v->n_stops; k++)
                if (texts[i].id == v->stops[k]) {
                    texts[i--] = texts[--n];
                    break;
                }
        qsort(texts, (size_t)n, sizeof *texts, by_text);
        n = fill(v, texts, n);
    }
    mem_free(texts);
    mem_free(pool);
    if (n < 0) {
        grammar_vocabulary_free(v);
        return error_set(e, ERR_MEMORY, "out of memory for the vocabulary's texts");
    }
    *out = v;
    return 0;
}

void grammar_vocabulary_free(struct grammar_vocabulary *v)
{
    if (!v)
        return;
    mem_free(v->nodes);
    mem_free(v->same);
    mem_free(v->stops);
    mem_free(v);
}
