/* Fuzz target: a control vector's file for one of the golden models. What opens adds finite
 * directions behind layers that the model has; what does not says why in one line. Run from the
 * root of the repository. */
#include "engine/adapter/control.h"
#include "tests/fuzz/input_file.h"

#include <math.h>
#include <string.h>

#define BASE "tests/golden/families/qwen3_moe"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct model *base(void)
{
    static struct model *m;
    struct model_options o = {.convert = -1, .width = 8, .n_threads = 1};
    struct error e = {0};

    if (!m)
        must(model_inspect(&m, BASE, &o, NULL, &e) == 0);
    return m;
}

static void check(const struct control_vectors *c, const struct model *m)
{
    float *x = calloc((size_t)m->hp.hidden, sizeof *x);
    int used = 0;

    must(x && c->hash && c->layers == m->hp.n_layers && c->hidden == m->hp.hidden);
    for (int l = 0; l < c->layers; l++) {
        used += c->at[l] != NULL;
        control_vectors_add(c, l, x, 1);
        for (int i = 0; i < c->hidden && c->at[l]; i++)
            must(isfinite(c->at[l][i]));
    }
    must(used == c->used);
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct adapter_request asked[2] = {{input_path, 0.5f}, {input_path, -2.0f}};
    struct control_vectors *c;
    struct error e = {0};

    input_write(data, size);
    if (control_vectors_open(&c, base(), asked, 2, 0, 0, &e) == 0) {
        check(c, base());
        control_vectors_free(c);
    } else
        must(e.code < 0 && e.text[0] && !strpbrk(e.text, "\n\r\x1b"));
    return 0;
}
