/* The masks of a JSON schema over a model's vocabulary, asked line by line, for
 * tests/tools/grammar_masks.py:
 *
 *   grammar_masks MODEL      first "vocab N" and N lines, a token's bytes in hex ("-": it is a
 *                            control token or says nothing)
 *   schema JSON              "ok", or "refused WHY"; the cursor stands at the beginning
 *   mask                     "mask COMPLETE WORDS": 32 tokens a word of eight hex digits, upwards,
 *                            the end of an answer not among them; COMPLETE 1: it may end here
 *   accept ID                "ok", or "dead": the token is not allowed */
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/file/weights.h"
#include "engine/text/grammar/matcher.h"
#include "engine/text/grammar/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BYTES 1024

struct request_fields {
    struct grammar_vocabulary *vocabulary;
    int n_vocab;
    struct matcher *matcher;
    int cursor;
};

static void print_vocabulary(const struct tokenizer *t, int n)
{
    printf("vocab %d\n", n);
    for (int id = 0; id < n; id++) {
        char bytes[TOKEN_BYTES];
        bool special = false;
        size_t len, said;

        tokenizer_piece(t, id, &len, &special);
        said = special ? 0 : tokenizer_token_text(t, id, bytes, sizeof bytes);
        if (said == 0)
            printf("-");
        for (size_t i = 0; i < said; i++)
            printf("%02x", (unsigned char)bytes[i]);
        printf("\n");
    }
}

static void take_schema(struct request_fields *a, const char *json)
{
    struct grammar *g;
    struct error e = {0};

    matcher_free(a->matcher);
    a->matcher = NULL;
    if (grammar_from_schema(&g, json, strlen(json), &e) != 0) {
        printf("refused %s\n", e.text);
        return;
    }
    if (matcher_new(&a->matcher, g, a->vocabulary, &e) == 0) {
        a->cursor = matcher_start(a->matcher);
        printf("ok\n");
    } else {
        printf("refused %s\n", e.text);
    }
    grammar_free(g);
}

static void print_mask(struct request_fields *a)
{
    const uint32_t *mask = a->matcher ? matcher_mask(a->matcher, a->cursor) : NULL;

    if (!mask) {
        printf("failed\n");
        return;
    }
    printf("mask %d ", matcher_complete(a->matcher, a->cursor));
    for (int i = 0; i < (a->n_vocab + 31) / 32; i++)
        printf("%08x", mask[i]);
    printf("\n");
}

static void accept(struct request_fields *a, int id)
{
    int next = a->matcher ? matcher_accept(a->matcher, a->cursor, id) : MATCHER_DEAD;

    printf("%s\n", next == MATCHER_DEAD ? "dead" : "ok");
    if (next != MATCHER_DEAD)
        a->cursor = next;
}

static void answer(struct request_fields *a)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;

    while ((n = getline(&line, &size, stdin)) > 0) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "schema ", 7) == 0)
            take_schema(a, line + 7);
        else if (strcmp(line, "mask") == 0)
            print_mask(a);
        else if (strncmp(line, "accept ", 7) == 0)
            accept(a, atoi(line + 7));
        else
            printf("what? %s\n", line);
        fflush(stdout);
    }
    free(line);
    matcher_free(a->matcher);
}

int main(int argc, char **argv)
{
    struct weight_file *file;
    struct tokenizer *t;
    struct request_fields a = {0};
    struct error e = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: grammar_masks MODEL\n");
        return 1;
    }
    if (weight_file_open(&file, argv[1], true, &e) != 0 || tokenizer_load(&t, file, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    a.n_vocab = tokenizer_size(t);
    if (grammar_vocabulary_new(&a.vocabulary, t, a.n_vocab, NULL, 0, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    print_vocabulary(t, a.n_vocab);
    fflush(stdout);
    answer(&a);
    grammar_vocabulary_free(a.vocabulary);
    tokenizer_free(t);
    weight_file_close(file);
    return 0;
}
