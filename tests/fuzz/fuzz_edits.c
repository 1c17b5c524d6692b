/* Fuzz target: a file of --expert-edit for a model of five layers, two of them dense. What is read
 * has permutations for swaps, factors that are finite, and a text that makes it again; what is not
 * says why in one line. */
#include "app/lab/edit_file.h"
#include "engine/device/expert_edits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS  5
#define EXPERTS 8
#define USED    2

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
    if (!ok)
        abort();
}

static void must_say_why(const struct error *e)
{
    must(e->code < 0 && e->text[0] && !strpbrk(e->text, "\n\r\x1b"));
}

static void check_layer(const struct expert_edits *x, int layer)
{
    int seen = 0;

    for (int i = 0; i < EXPERTS; i++) {
        size_t at = expert_edits_at(x, layer, i);

        must(x->becomes[at] < EXPERTS && isfinite(x->factor[at]) && x->off[at] <= 1);
        seen |= 1 << x->becomes[at];
        must(!expert_edits_marks(x, layer, i) || x->touched[layer]);
    }
    must(seen == (1 << EXPERTS) - 1);
}

static void check(const struct expert_edits *x, const struct hparams *hp)
{
    struct expert_edits *again = NULL;
    const char *lines[EXPERT_EDITS_LINES];
    char *text = strdup(x->text), *at, *rest;
    struct error e = {0};
    int n = 0;

    must(x->n > 0 && x->hash && x->layers == LAYERS && x->experts == EXPERTS && text != NULL);
    for (int l = 0; l < LAYERS; l++)
        check_layer(x, l);
    for (at = strtok_r(text, ";", &rest); at && n < EXPERT_EDITS_LINES;
         at = strtok_r(NULL, ";", &rest))
        lines[n++] = at + strspn(at, " ");
    must(expert_edits_read(&again, NULL, hp, lines, n, &e) == 0 && expert_edits_equal(x, again));
    expert_edits_free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layer_shape shapes[LAYERS];
    struct hparams hp = {.n_layers = LAYERS, .n_experts = EXPERTS};
    struct expert_edits *x = NULL;
    struct edit_lines l;
    struct error e = {0};

    memset(shapes, 0, sizeof shapes);
    for (int i = 0; i < LAYERS; i++) {
        shapes[i].ffn.kind = i % 3 ? FFN_ROUTED : FFN_DENSE;
        shapes[i].ffn.experts = i % 3 ? EXPERTS : 0;
        shapes[i].ffn.used = i % 3 ? USED : 0;
    }
    hp.layers = shapes;
    if (edit_file_parse(&l, (const char *)data, size, "edits.yaml", &e) < 0) {
        must_say_why(&e);
        return 0;
    }
    if (expert_edits_read(&x, NULL, &hp, (const char *const *)l.lines, (int)l.n, &e) < 0)
        must_say_why(&e);
    else if (x)
        check(x, &hp);
    expert_edits_free(x);
    edit_lines_release(&l);
    return 0;
}
